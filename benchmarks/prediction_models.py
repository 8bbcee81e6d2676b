"""The programs that prediction.py measures, and the models that they take."""

import dataclasses
import hashlib
import json
import os
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from turns import FOLDER, ROOT, Worker, run_quietly

VOCAB_SIZE = 30522
IDS, TEXTS = ("ids/full", "ids/mixed"), ("texts/full", "texts/mixed")
FORMS = (*IDS, *TEXTS)
ACTIVATIONS = {"erf": "gelu", "tanh": "gelu_pytorch_tanh"}
REFERENCE = "torch/float32"


@dataclasses.dataclass(frozen=True)
class Size:
    """The shape of a model."""

    hidden_size: int
    num_layers: int
    num_heads: int
    vocab_size: int = VOCAB_SIZE

    def flops(self, lengths: Iterable[int]) -> float:
        """Returns the FLOP of the products that answers on texts of these lengths need.

        Of the last layer only [CLS] is read, for which keys and values of all tokens are needed.
        """
        hidden, total = self.hidden_size, 0.0
        for length in lengths:
            keys, others = 2 * hidden**2, 10 * hidden**2  # and values; query, output, feed-forward
            attention = 2 * length * hidden  # Scores, and the sums that they weight.
            whole = (self.num_layers - 1) * length * (keys + others + attention)
            last = length * keys + others + attention
            total += 2 * (whole + last + hidden**2)  # The pooler.
        return total


SIZES = {"base": Size(768, 12, 12), "small": Size(256, 4, 4)}


@dataclasses.dataclass(frozen=True)
class System:
    """A program with a precision, or a SavedModel of the user's.

    Attributes:
      program: Its name.
      precision: In which it computes.
      file: The model within the folder of a size.
      forms: The forms of input that it takes.
    """

    program: str
    precision: str
    file: str
    forms: Sequence[str] = FORMS

    @property
    def name(self) -> str:
        return f"{self.program}/{self.precision}" if self.precision else self.program

    @property
    def names(self) -> tuple[str, str, str]:
        """What it goes by: its own name, its program's, and its side's."""
        return self.name, self.program, "ours" if self.is_ours else "peers"

    @property
    def is_ours(self) -> bool:
        return self.program not in ("torch", "onnxruntime", "openvino")


SYSTEMS = (
    System("torch", "float32", "transformers"),
    System("torch", "bfloat16", "transformers"),
    System("onnxruntime", "float32", "model.onnx"),
    System("onnxruntime", "int8", "int8.onnx"),
    System("openvino", "float32", "openvino.xml"),
    System("openvino", "bfloat16", "openvino.xml"),
    System("saved_model", "float32", "saved_model"),
    System("saved_model", "bfloat16", "saved_model_bfloat16"),
    System("our_tflite", "float32", "tflite", IDS),
    System("our_tflite", "int8", "tflite_int8", IDS),
    System("our_onnx", "int8", "onnx_int8", IDS),
    System("load", "float32", "transformers", TEXTS),
    System("load", "bfloat16", "transformers", TEXTS),
    System("load_litert", "float32", "transformers", TEXTS),
    System("load_litert", "int8", "transformers", TEXTS),
    System("load_onnx", "float32", "transformers", TEXTS),
    System("load_onnx", "int8", "transformers", TEXTS),
)


def choose_systems(names: Sequence[str]) -> list[System]:
    """Returns the systems that go by one of these names, and the reference; see `System.names`."""
    wanted = {REFERENCE, *names}
    return [each for each in SYSTEMS if wanted & {*each.names}]


def own_system(given: str) -> System:
    """Returns the system of `--saved_model`."""
    name, _, folder = given.rpartition("=")
    return System(name or folder, "", str(Path(folder).resolve()))


class Models:
    """The models of one size, made where they are missing.

    Args:
      folder: Where they lie.
      size: Their shape.
      python: Of the peers.
      vocab_file: Their vocabulary.
      hidden_act: Their activation, in the terms of transformers.
    """

    def __init__(
        self, folder: Path, size: Size, python: str, vocab_file: str, hidden_act: str
    ) -> None:
        self.folder, self.size, self.python = folder, size, python
        self.vocab_file, self.hidden_act = vocab_file, hidden_act

    def prepare(self, systems: Iterable[System]) -> None:
        """Makes what the systems need, each only where what it is made of has changed."""
        self.folder.mkdir(parents=True, exist_ok=True)
        shape = {**dataclasses.asdict(self.size), "hidden_act": self.hidden_act}
        made_of = json.dumps({**shape, "vocabulary": _hash([Path(self.vocab_file)])})
        shape["vocab_file"] = self.vocab_file
        self._peer("transformers", "transformers", "", made_of, **shape)
        files = {system.file for system in systems}
        if files & {"model.onnx", "int8.onnx", "openvino.xml"}:
            self._peer("onnx", "model.onnx", "transformers", made_of)
        for make, file in (("int8", "int8.onnx"), ("openvino", "openvino.xml")):
            if file in files:
                self._peer(make, file, "model.onnx", made_of)
        for system in systems:
            if system.precision and system.is_ours and system.program != "load":
                self._export(system, made_of)

    def _peer(self, make: str, output: str, model: str, made_of: str, **others: Any) -> None:
        self._make(
            self.python,
            "prediction_peers.py",
            {
                "make": make,
                "output": str(self.folder / output),
                "model": str(self.folder / model),
                **others,
            },
            made_of,
        )

    def _export(self, system: System, made_of: str) -> None:
        # What `bert.load` converts is in its cache; a name alone is kept here.
        is_loaded = system.file == "transformers"
        output = system.name.replace("/", "_") if is_loaded else system.file
        setting = {
            "program": system.program,
            "output": str(self.folder / output),
            "model": str(self.folder / "transformers"),
            "precision": system.precision,
        }
        code = [*ROOT.glob("*.py"), *(ROOT / "bert").rglob("*.py")]
        self._make(sys.executable, "prediction_ours.py", setting, made_of + _hash(code))

    def _make(self, python: str, script: str, setting: Mapping[str, Any], made_of: str) -> None:
        """Makes a model, unless it was made from the same."""
        output = Path(setting["output"])
        stamp = output.with_name(f"{output.name}.made_from")
        if stamp.exists() and stamp.read_text() == made_of:
            return
        stamp.unlink(missing_ok=True)
        print(f"Making {output}", file=sys.stderr, flush=True)
        environment = {"TF_CPP_MIN_LOG_LEVEL": "3", **os.environ, "PYTHONPATH": str(ROOT)}
        command = [python, str(FOLDER / script), json.dumps(setting)]
        # Some tools leave files in the working directory.
        with tempfile.TemporaryDirectory() as folder:
            run_quietly(command, env=environment, cwd=folder)
        stamp.write_text(made_of)

    def start(self, system: System, cases_file: str) -> Worker:
        """Returns a worker that predicts as the system does."""
        setting = {
            "program": system.program,
            "precision": system.precision,
            "model": str(self.folder / system.file),
            "vocab_file": self.vocab_file,
            "cases": cases_file,
        }
        if system.is_ours:
            return Worker(sys.executable, "prediction_ours.py", setting)
        return Worker(self.python, "prediction_peers.py", setting)

    def megabytes(self, system: System) -> float:
        """Returns the size of a system's files."""
        path = self.folder / system.file
        files = path.rglob("*") if path.is_dir() else path.parent.glob(f"{path.stem}.*")
        return (
            sum(
                each.stat().st_size
                for each in files
                if each.is_file() and each.suffix != ".made_from"
            )
            / 1e6
        )


def _hash(paths: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    for path in sorted(paths):
        digest.update(path.read_bytes())
    return digest.hexdigest()

"""Reads and writes `model.safetensors`, with the names and layouts of transformers.

Tensors appear under their names in a TF1 checkpoint, so that both kinds of file are read in the
same way. Only safetensors files are opened: nothing in them can run.
"""

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any, BinaryIO

import numpy as np
import safetensors
import safetensors.numpy

from bert.files.paths import open_file, parse_json, read_json_object
from bert.files.stored_models import (
    KERAS_ENDING,
    SAFETENSORS_FILE,
    SAFETENSORS_INDEX_FILE,
    is_safetensors,
)
from bert.options import Message, Option, OptionError
from bert.weights.options import ARCHITECTURES
from bert.weights.saving import GLOBAL_STEP, is_single_file
from bert.weights.variables import Table, find_variables

# Why other files of weights are not read.
_PICKLE = "is a pickle: loading it could run code that is hidden in it"
_OTHER = "is a format that is not read here"
_REFUSED = {
    ".bin": _PICKLE,
    ".pt": _PICKLE,
    ".pth": _PICKLE,
    ".pkl": _PICKLE,
    ".ckpt": _PICKLE,
    ".h5": _OTHER,
    ".msgpack": _OTHER,
    ".onnx": _OTHER,
}

_TIED = {
    "cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
    "cls.predictions.decoder.bias": "cls.predictions.bias",
}
# Buffers of some versions of transformers: 0, 1, 2 and so on.
_BUFFERS = ("bert.embeddings.position_ids", "bert.embeddings.token_type_ids")


def find(path: str, option: str) -> str | None:
    """Returns the file of weights that `path` names or its folder holds, or None.

    Raises:
      ValueError: where there are weights in files of other formats alone; `option` gave the path.
    """
    if os.path.isfile(path):
        if is_safetensors(path):
            return path
        others = [path]
    elif os.path.isdir(path):
        for name in (SAFETENSORS_FILE, SAFETENSORS_INDEX_FILE):
            if os.path.isfile(os.path.join(path, name)):
                return os.path.join(path, name)
        others = [os.path.join(path, name) for name in sorted(os.listdir(path))]
    else:
        return None
    for other in others:
        if other.endswith(KERAS_ENDING):
            raise OptionError(
                option,
                "name a checkpoint or a safetensors file",
                remedy=Message(
                    "%r holds weights of Keras: convert_checkpoint.py makes a checkpoint of them, "
                    "with %s.",
                    *(other, Option("format", "tf")),
                ),
            )
        reason = _REFUSED.get(os.path.splitext(other)[1])
        if reason and not is_single_file(other):
            raise OptionError(
                option,
                "name weights in a safetensors file",
                remedy=f"{other!r} {reason}. To have {SAFETENSORS_FILE}, let somebody who trusts "
                "the file load it with transformers, and call "
                "`model.save_pretrained(folder, safe_serialization=True)`.",
            )
    return None


class Reader:
    """Reads the tensors of a Hugging Face model, under the names of a TF1 checkpoint.

    Numbers of 16 bits become float32. Tensors without a name in this project keep their own.

    Args:
      path: `model.safetensors`, or the index of a model of several files.
      option: The option that gave it, for messages.

    Raises:
      ValueError: where a file is missing or damaged, or a tensor is there twice or contradicts
        another.
    """

    def __init__(self, path: str, option: str = "init_checkpoint") -> None:
        self._path, self._option = path, option
        self._files: dict[str, Any] = {}
        # By name in the file: the file, and the tensor's shape and type.
        self._stored: dict[str, tuple[str, list[int], str]] = {}
        self._step: int | None = None
        for file in self._shards() if path.endswith(".json") else [path]:
            self._open(file)
        self._variables = find_variables(self._stored)
        self._names = self._find_names()
        self._check_tied()

    def _shards(self) -> list[str]:
        """Returns the files that an index lists."""
        listed = read_json_object(self._path).get("weight_map")
        if not isinstance(listed, dict) or not all(isinstance(v, str) for v in listed.values()):
            raise ValueError(f"{self._path!r} must have a `weight_map` from names to files.")
        folder = os.path.dirname(self._path)
        files = []
        for name in sorted(set(listed.values())):
            file = os.path.join(folder, name)
            if name != os.path.basename(name) or not os.path.isfile(file):
                must = f"have all of the files that {self._path!r} lists"
                raise self._error(must, f"{name!r} is not in the same folder.")
            files.append(file)
        return files

    def _open(self, path: str) -> None:
        try:
            self._files[path] = file = safetensors.safe_open(path, framework="numpy")
            metadata = file.metadata() or {}
            for name in file.keys():  # noqa: SIM118 (it is no dictionary)
                part = file.get_slice(name)
                self._stored[name] = (path, list(part.get_shape()), part.get_dtype())
        except (safetensors.SafetensorError, OSError) as error:
            raise self._broken(path, error) from error
        if metadata.get(GLOBAL_STEP, "").isdigit():
            self._step = int(metadata[GLOBAL_STEP])

    def _error(self, must: str, remedy: str) -> OptionError:
        return OptionError(self._option, must, remedy=remedy)

    def _broken(self, path: str, error: object) -> OptionError:
        return self._error("name whole safetensors files", f"{path!r} cannot be read: {error}")

    def _find_names(self) -> dict[str, str]:
        """Returns the names in the file by the names of a TF1 checkpoint."""
        ours = {variable.theirs: name for name, variable in self._variables.items()}
        names: dict[str, str] = {}
        for stored in sorted(self._stored):
            plain = _plain(stored)
            if plain in _BUFFERS or plain in _TIED:
                continue
            name = ours.get(plain, stored)
            if name in names:
                twice = f"{self._path!r} has {names[name]!r} and {stored!r}."
                raise self._error("have each tensor once", twice)
            names[name] = stored
        bias = "cls.predictions.decoder.bias"
        if bias in self._stored:
            names.setdefault("cls/predictions/output_bias", bias)
        return names

    def _check_tied(self) -> None:
        by_plain = {_plain(stored): stored for stored in self._stored}
        for name, twin in _TIED.items():
            if name not in by_plain or twin not in by_plain:
                continue
            if not np.array_equal(self._load(by_plain[name]), self._load(by_plain[twin])):
                raise self._error(
                    "have output weights that are tied to the embeddings, as BERT has",
                    f"In {self._path!r}, {by_plain[name]!r} differs from {by_plain[twin]!r}.",
                )

    @property
    def parts(self) -> list[str]:
        """The files of a model of several."""
        return [path for path in self._files if path != self._path]

    def _load(self, stored: str) -> np.ndarray:
        path, shape, dtype = self._stored[stored]
        try:
            if dtype == "BF16":
                value = _read_bfloat16(path, stored).reshape(shape)
            else:
                value = self._files[path].get_tensor(stored)
        except (safetensors.SafetensorError, OSError, TypeError) as error:
            raise self._broken(path, error) from error
        return value.astype(np.float32) if value.dtype == np.float16 else value

    def get_variable_to_shape_map(self) -> dict[str, list[int]]:
        """Returns the shape of each tensor as a TF1 checkpoint has it."""
        shapes = {}
        for name, stored in self._names.items():
            shape = self._stored[stored][1]
            shapes[name] = shape[::-1] if self._is_transposed(name) else shape
        return shapes if self._step is None else {**shapes, GLOBAL_STEP: []}

    def _is_transposed(self, name: str) -> bool:
        return name in self._variables and self._variables[name].is_transposed

    def has_tensor(self, name: str) -> bool:
        """Returns whether there is such a tensor."""
        return name in self._names or (name == GLOBAL_STEP and self._step is not None)

    def get_tensor(self, name: str) -> np.ndarray:
        """Returns the tensor of that name."""
        if name == GLOBAL_STEP and self._step is not None:
            return np.asarray(self._step, np.int64)
        value = self._load(self._names[name])
        return np.ascontiguousarray(value.T) if self._is_transposed(name) else value


def _plain(stored: str) -> str:
    """Returns the current name of a tensor in transformers, with the prefix of the encoder."""
    if stored.startswith(("embeddings.", "encoder.", "pooler.")):
        stored = f"bert.{stored}"
    module, _, leaf = stored.rpartition(".")
    if module.endswith("LayerNorm"):
        leaf = {"gamma": "weight", "beta": "bias"}.get(leaf, leaf)
    return f"{module}.{leaf}" if module else leaf


def _read_bfloat16(path: str, stored: str) -> np.ndarray:
    """Returns bfloat16 numbers, a type that NumPy lacks, as float32: they are its upper half.

    Args:
      path: A file of safetensors: the length of a header, the header, the numbers.
      stored: The name of the tensor there.
    """
    with open_file(path) as file:
        size = int.from_bytes(file.read(8), "little")
        start, end = parse_json(file.read(size))[stored]["data_offsets"]
        file.seek(8 + size + start)
        halves = np.frombuffer(file.read(end - start), "<u2").astype("<u4") << 16
    return halves.view("<f4")


def split(tensor_names: Sequence[str]) -> tuple[Table, list[str]]:
    """Returns the variables of tensors by name, and the names without one in transformers."""
    table = find_variables(tensor_names)
    known = {name: table[name] for name in tensor_names if name in table}
    return known, [name for name in tensor_names if name not in table and name != GLOBAL_STEP]


def architecture_of(tensor_names: Sequence[str]) -> str:
    """Returns the first of `ARCHITECTURES` all heads of which are among the tensors."""
    present = set(tensor_names)
    return next(name for name, heads in ARCHITECTURES.items() if present.issuperset(heads))


def write(file: BinaryIO, tensors: Mapping[str, np.ndarray], architecture: str) -> None:
    """Writes `model.safetensors`.

    Args:
      file: Open for bytes.
      tensors: By their names in a TF1 checkpoint; tensors without a name in transformers are left
        out, and `global_step` becomes metadata.
      architecture: One of `ARCHITECTURES`.
    """
    known, _ = split(list(tensors))
    # The encoder alone is saved without the prefix that it has within other models.
    prefix = "bert." if architecture == "BertModel" else ""
    stored = {}
    for name, variable in known.items():
        value = tensors[name].T if variable.is_transposed else tensors[name]
        stored[variable.theirs.removeprefix(prefix)] = np.ascontiguousarray(value)
    metadata = {"format": "pt"}
    if GLOBAL_STEP in tensors:
        metadata[GLOBAL_STEP] = str(int(tensors[GLOBAL_STEP]))
    content = memoryview(safetensors.numpy.save(dict(sorted(stored.items())), metadata))
    # The library writes the entries of the metadata in a random order, in a header that is padded.
    end = 8 + int.from_bytes(content[:8], "little")
    header = {**parse_json(bytes(content[8:end]).decode()), "__metadata__": metadata}
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False)
    file.write(content[:8])
    file.write(text.encode().ljust(end - 8))
    file.write(content[end:])

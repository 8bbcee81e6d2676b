"""Weights in Hugging Face's files: `model.safetensors`, with the names and layouts of transformers.

What is read here appears under the names of a TF1 checkpoint, so that both kinds of file are read
in the same way. Only safetensors files are opened: nothing in them can run.
"""

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any, BinaryIO

import numpy as np
import safetensors
import safetensors.numpy

from bert.files import huggingface as huggingface_files
from bert.files.huggingface import ARCHITECTURES
from bert.files.json_text import parse_json
from bert.files.paths import open_file
from bert.files.weight_names import (
    KERAS_ENDING,
    SAFETENSORS_FILE,
    SAFETENSORS_INDEX_FILE,
    is_safetensors,
)
from bert.weights import version1
from bert.weights.variables import Table, find_variables

GLOBAL_STEP = "global_step"

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


def find(path: str, flag: str) -> str | None:
    """Returns the file of weights that `path` names or its folder holds, or None.

    Args:
      path: A folder or a file.
      flag: The flag that gave it, for the message.

    Raises:
      ValueError: where there are weights in files of other kinds alone.
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
            raise ValueError(
                f"`--{flag}` must name a checkpoint or a safetensors file. {other!r} holds weights "
                "of Keras: `convert_checkpoint.py --format=tf` makes a checkpoint of them."
            )
        reason = _REFUSED.get(os.path.splitext(other)[1])
        if reason and not version1.is_checkpoint(other):
            raise ValueError(
                f"`--{flag}` must name weights in a safetensors file. {other!r} {reason}. To have "
                f"{SAFETENSORS_FILE}, let somebody who trusts the file load it with transformers, "
                "and call `model.save_pretrained(folder, safe_serialization=True)`."
            )
    return None


class Reader:
    """Reads the tensors of a Hugging Face model, under the names of a TF1 checkpoint.

    Numbers of 16 bits become float32. Tensors that this project has no name for keep theirs.

    Args:
      path: `model.safetensors`, or the index of a model of several files.
      flag: The flag that gave it, for messages.

    Raises:
      ValueError: where a file is missing or damaged, or a tensor is there twice or contradicts
        another.
    """

    def __init__(self, path: str, flag: str = "init_checkpoint") -> None:
        self._path, self._flag = path, flag
        self._files: dict[str, Any] = {}
        # By name in the file: the file, and the shape and type of what it stores.
        self._stored: dict[str, tuple[str, list[int], str]] = {}
        self._step: int | None = None
        for file in self._shards() if path.endswith(".json") else [path]:
            self._open(file)
        self._variables = find_variables(self._stored)
        self._places = self._find_places()
        self._check_tied()

    def _shards(self) -> list[str]:
        """Returns the files that an index lists."""
        listed = huggingface_files.read_json(self._path).get("weight_map")
        if not isinstance(listed, dict) or not all(isinstance(v, str) for v in listed.values()):
            raise ValueError(f"{self._path!r} must have a `weight_map` from names to files.")
        folder = os.path.dirname(self._path)
        files = []
        for name in sorted(set(listed.values())):
            file = os.path.join(folder, name)
            if name != os.path.basename(name) or not os.path.isfile(file):
                raise ValueError(
                    f"`--{self._flag}` must have all of the files that {self._path!r} lists. "
                    f"{name!r} is not in the same folder."
                )
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

    def _broken(self, path: str, error: object) -> ValueError:
        return ValueError(
            f"`--{self._flag}` must name whole safetensors files. {path!r} cannot be read: {error}"
        )

    def _find_places(self) -> dict[str, str]:
        """Returns the names in the file by the names here."""
        ours = {variable.theirs: name for name, variable in self._variables.items()}
        places: dict[str, str] = {}
        for stored in sorted(self._stored):
            plain = _plain(stored)
            if plain in _BUFFERS or plain in _TIED:
                continue
            name = ours.get(plain, stored)
            if name in places:
                raise ValueError(
                    f"`--{self._flag}` must have each tensor once. {self._path!r} has "
                    f"{places[name]!r} and {stored!r}."
                )
            places[name] = stored
        if "cls/predictions/output_bias" not in places:
            bias = "cls.predictions.decoder.bias"
            places |= {"cls/predictions/output_bias": bias} if bias in self._stored else {}
        return places

    def _check_tied(self) -> None:
        by_plain = {_plain(stored): stored for stored in self._stored}
        for name, twin in _TIED.items():
            if name not in by_plain or twin not in by_plain:
                continue
            if not np.array_equal(self._load(by_plain[name]), self._load(by_plain[twin])):
                raise ValueError(
                    f"`--{self._flag}` must have output weights that are tied to the embeddings, "
                    f"as BERT has. In {self._path!r}, {by_plain[name]!r} differs from "
                    f"{by_plain[twin]!r}."
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
        """Returns the shape of each tensor, as it is here."""
        shapes = {}
        for name, stored in self._places.items():
            shape = self._stored[stored][1]
            shapes[name] = shape[::-1] if self._is_transposed(name) else shape
        return shapes if self._step is None else {**shapes, GLOBAL_STEP: []}

    def _is_transposed(self, name: str) -> bool:
        return name in self._variables and self._variables[name].is_transposed

    def has_tensor(self, name: str) -> bool:
        """Returns whether there is such a tensor."""
        return name in self._places or (name == GLOBAL_STEP and self._step is not None)

    def get_tensor(self, name: str) -> np.ndarray:
        """Returns the tensor of that name."""
        if name == GLOBAL_STEP and self._step is not None:
            return np.asarray(self._step, np.int64)
        value = self._load(self._places[name])
        return np.ascontiguousarray(value.T) if self._is_transposed(name) else value


def _plain(stored: str) -> str:
    """Returns the name that transformers has for a tensor today, with the prefix of the encoder."""
    if stored.startswith(("embeddings.", "encoder.", "pooler.")):
        stored = f"bert.{stored}"
    module, _, leaf = stored.rpartition(".")
    if module.endswith("LayerNorm"):
        leaf = {"gamma": "weight", "beta": "bias"}.get(leaf, leaf)
    return f"{module}.{leaf}" if module else leaf


def _read_bfloat16(path: str, stored: str) -> np.ndarray:
    """Returns bfloat16 numbers, which NumPy has not, as float32, of which they are the upper half.

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
    """Returns how tensors of these names are stored in transformers, and the names it has not."""
    table = find_variables(tensor_names)
    known = {name: table[name] for name in tensor_names if name in table}
    return known, [name for name in tensor_names if name not in table and name != GLOBAL_STEP]


def architecture_of(tensor_names: Sequence[str]) -> str:
    """Returns the first of `ARCHITECTURES` of whose heads all are there."""
    present = set(tensor_names)
    return next(name for name, heads in ARCHITECTURES.items() if present.issuperset(heads))


def write(file: BinaryIO, tensors: Mapping[str, np.ndarray], architecture: str) -> None:
    """Writes `model.safetensors`.

    Args:
      file: Open for bytes.
      tensors: By their names in a TF1 checkpoint; those without a name in transformers are left
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

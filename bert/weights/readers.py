"""Weights in files of other programs: found, opened, and read by their names in a TF1 checkpoint.

A format is known by the ending of a file's name, or by its first bytes. PyTorch's names are those
of modules, with kernels transposed (`Variable.theirs`). Keras' names are those of TF1 scopes but
for a few (transformers: modeling_tf_bert.py).

In the first format of TensorFlow 1, which its reader reads, too, a checkpoint is a single file
without an index beside it: a Saver wrote it before version 0.12, and later with
`write_version=SaverDef.V1`.
"""

import dataclasses
import functools
import os
import re
from collections.abc import Callable
from typing import Any

import numpy as np

from bert.files.paths import file_size, is_file, open_file, paths_from, read_json_object
from bert.files.stored_models import (
    KERAS_WEIGHTS_FILE,
    SAFETENSORS_FILE,
    SAFETENSORS_INDEX_FILE,
    WEIGHTS_ENDINGS,
    is_index,
    is_safetensors,
)
from bert.names import load
from bert.options import OptionError
from bert.weights.formats import (
    DAMAGES,
    OBJECT_GRAPH,
    FormatError,
    OtherModelError,
    Tensor,
    Tensors,
    read_hdf5,
    read_objects,
    read_safetensors,
)
from bert.weights.variables import WORD_TABLE

# Files of weights as they are usually called; a folder may have the same weights in several. They
# are those of transformers, of kashgari, which has those of its BERT a second time, and of
# keras-hub; the first that is there is read.
FILES = (
    *(SAFETENSORS_FILE, SAFETENSORS_INDEX_FILE),
    *("tf_model.h5", "tf_model.h5.index.json"),
    *("pytorch_model.bin", "pytorch_model.bin.index.json"),
    *("flax_model.msgpack", "flax_model.msgpack.index.json"),
    *("model_weights.h5", KERAS_WEIGHTS_FILE),
)
# What is beside weights, and has other content, under the endings of weights.
_BESIDE = re.compile(
    r"(training_args|optimizer|scheduler|scaler|rng_state.*)\.(bin|pt|pth)"
    r"|(saved_model|keras_metadata|fingerprint)\.pb"
)
_SHARDS_ENDING = ".index.json"
# How files of HDF5 begin, and what Git leaves in the place of a large file without Git LFS.
_HDF5 = b"\x89HDF\r\n\x1a\n"
_POINTER = b"version https://git-lfs"
# How a checkpoint in the first format ends (tensorflow/core/lib/io/format.h, kTableMagicNumber).
_TABLE_END = bytes.fromhex("57fb808b247547db")
# How pickles of PyTorch begin, which may have the same names: an archive, or a bare pickle.
PICKLES = (b"PK", b"\x80")
_SINGLE_FILE = re.compile(r".+\.ckpt(?:-\d+)?")


@dataclasses.dataclass(frozen=True)
class Format:
    """A format of files with weights.

    Attributes:
      read: Returns the tensors of a file by their names there.
      read_shape: Returns the configuration in a file, as `BertConfig.from_dict` takes it, or None.
      find_parts: Returns the other files of the same weights.
    """

    read: Callable[[str], Tensors]
    read_shape: Callable[[str], dict[str, Any] | None] = lambda path: None
    find_parts: Callable[[str], list[str]] = lambda path: []


def _named(function: str) -> Callable[[str], Any]:
    """Returns a function of a module of this package, which is loaded when it is first called."""
    module, _, name = function.partition(".")

    def call(path: str) -> Any:
        return load(f"bert.weights.{module}", name)(path)

    return call


def find_format(path: str) -> Format | None:
    """Returns the format of a file, by its name or its first bytes; None for other files."""
    start = b""
    if os.path.isfile(path):
        with open_file(path) as file:
            start = file.read(len(_POINTER))
    if start == _POINTER:
        return Format(_refuse_pointer)
    named = (form for ending, form in _BY_NAME.items() if f"/{path}".endswith(ending))
    if form := next(named, None):
        return form
    if start.startswith(_HDF5):
        return Format(read_hdf5)
    return Format(_named("pickles.read_pickle")) if start.startswith(PICKLES) else None


def _refuse_pointer(_: str) -> Tensors:
    raise FormatError("it is a pointer of Git LFS; `git lfs pull` puts the weights in its place")


def is_single_file(path: str) -> bool:
    """Returns whether a file is in the first format, or, by its name, was so once."""
    if not is_file(path) or is_file(f"{path}.index"):
        return False
    with open_file(path) as file:
        start = file.read(2)
        file.seek(max(file_size(path) - len(_TABLE_END), 0))
        if file.read() == _TABLE_END:
            return True
    return bool(_SINGLE_FILE.fullmatch(path)) and not start.startswith(PICKLES)


def find_single_files(folder: str) -> list[str]:
    """Returns the files of a folder that are in the first format and have the usual names."""
    paths = paths_from(os.path.join(folder, ""))
    return [path for path in paths if _SINGLE_FILE.fullmatch(path) and is_single_file(path)]


def find(path: str, option: str) -> str | None:
    """Returns the file of weights that `path` names or its folder holds, or None.

    Raises:
      ValueError: where there are several, or weights of formats that are not read; `option` gave
        the path.
    """
    found = [path] if os.path.isfile(path) else []
    if os.path.isdir(path):
        names = sorted(os.listdir(path))
        usual = [name for name in FILES if name in names][:1]
        others = [name for name in names if not _BESIDE.fullmatch(name)]
        found = [os.path.join(path, name) for name in usual or others]
    endings = (_SHARDS_ENDING, *WEIGHTS_ENDINGS)
    readable = [file for file in found if file.endswith(endings) and find_format(file)]
    if len(readable) == 1:
        return readable[0]
    if readable:
        names = [os.path.basename(file) for file in readable]
        raise OptionError(option, "name one file", remedy=f"The folder {path!r} holds {names}.")
    for other in found:
        if other.endswith((*WEIGHTS_ENDINGS, ".onnx")) and not is_single_file(other):
            raise OptionError(
                option,
                "name weights in a format that is read here",
                remedy=f"{other!r} is none: neither safetensors, nor HDF5, nor of torch.save. "
                f"To have {SAFETENSORS_FILE}, load it with transformers, and call "
                "`model.save_pretrained(folder, safe_serialization=True)`.",
            )
    return None


class Reader:
    """Reads the tensors of a model by their names in a TF1 checkpoint.

    Floats of 16 or 64 bits become float32. Tensors without a name in this project keep their own.

    Args:
      stored: The tensors by their names in a file.

    Attributes:
      is_huggingface: Whether the names are those of transformers.
      gelu: The activation that "gelu" means in a configuration beside the file, as `hidden_act`;
        None for what the program means that the configuration is of.

    Raises:
      FormatError: where a tensor is there twice, or the model is no BERT.
    """

    def __init__(self, stored: Tensors) -> None:
        marks = ("layer_._", "encoder.layer", "encoder/layer/")
        self.is_huggingface = any(mark in name for name in stored for mark in marks)
        libraries = load("bert.weights.libraries")
        self._tensors = libraries.name_tensors(stored)
        self.gelu = libraries.find_library(libraries.order(stored).values()).gelu

    def get_variable_to_shape_map(self) -> dict[str, list[int]]:
        """Returns the shape of each tensor as a TF1 checkpoint has it."""
        return {name: [*tensor.shape] for name, tensor in self._tensors.items()}

    def get_tensor(self, name: str) -> np.ndarray:
        """Returns the tensor of that name."""
        value = self._tensors[name].read()
        is_float = value.dtype in (np.float16, "bfloat16", np.float64)
        return value.astype(np.float32) if is_float else value


def _open_objects(reader: Any) -> Reader:
    """Returns the tensors of a model that TensorFlow 2 has stored by objects, as `read_objects`."""
    found = Reader(read_objects(reader))
    if WORD_TABLE not in found.get_variable_to_shape_map():
        raise OtherModelError(
            "it was written by tf.train.Checkpoint or Keras and stores objects, none of which is "
            "the encoder of transformers or the Model Garden by name. Of a released BERT, take "
            "the weights of Google's original release (docs/weights.md has the links) or of the "
            "hub, such as google-bert/bert-base-uncased"
        )
    return found


def wrap(reader: Any) -> Any:
    """Returns a reader of TensorFlow, or of what it has by objects or a library by other names."""
    if reader.has_tensor(OBJECT_GRAPH):
        return _open_objects(reader)
    shapes = reader.get_variable_to_shape_map()
    if WORD_TABLE in shapes:
        return reader
    libraries = load("bert.weights.libraries")
    # Programs that train a module of TensorFlow Hub have it in a scope, `module/bert/…`.
    is_in_scope = any(name.endswith(f"/{WORD_TABLE}") for name in shapes)
    if not is_in_scope and not libraries.find_library(libraries.order(shapes).values()).mark:
        return reader
    return Reader(
        {
            name: Tensor(tuple(shape), functools.partial(reader.get_tensor, name))
            for name, shape in shapes.items()
        }
    )


def find_shards(path: str) -> list[str]:
    """Returns the files that an index lists."""
    listed = read_json_object(path).get("weight_map")
    if not isinstance(listed, dict) or not all(isinstance(v, str) for v in listed.values()):
        raise FormatError("it must have a `weight_map` from names to files")
    files = []
    for name in sorted(set(listed.values())):
        file = os.path.join(os.path.dirname(path), name)
        if name != os.path.basename(name) or not os.path.isfile(file):
            raise FormatError(f"it must have all of the files that it lists; {name!r} is not there")
        files.append(file)
    return files


def _read_shards(path: str) -> Tensors:
    """Returns the tensors of all files of an index."""
    tensors: dict[str, Tensor] = {}
    for file in find_shards(path):
        form = find_format(file)
        if form is None or file.endswith(_SHARDS_ENDING):
            raise FormatError(f"{file!r} holds no weights")
        try:
            found = form.read(file)
        except DAMAGES as error:
            raise FormatError(f"{file!r}: {error}") from error
        tensors |= found
    return tensors


# By the endings of names; the first that fits. Other files are known by their first bytes.
_BY_NAME = {
    _SHARDS_ENDING: Format(_read_shards, find_parts=find_shards),
    ".safetensors": Format(read_safetensors),
    ".msgpack": Format(_named("msgpacks.read_msgpack")),
    ".gguf": Format(_named("gguf.read_gguf"), _named("gguf.read_shape")),
    ".pb": Format(_named("frozen_graphs.read_frozen_graph")),
    ".keras": Format(_named("keras_archives.read_archive"), _named("keras_archives.read_shape")),
    f"/{KERAS_WEIGHTS_FILE}": Format(
        _named("keras_archives.read_preset"), find_parts=_named("keras_archives.find_head")
    ),
}


def weight_files(folder: str) -> list[str]:
    """Returns the names of the weights in a folder: an index, or files of other formats."""
    names = [os.path.basename(path) for path in paths_from(os.path.join(folder, ""))]
    found = [n for n in names if is_index(n) or is_safetensors(n) or n in FILES]
    return [*found, *map(os.path.basename, find_single_files(folder))]

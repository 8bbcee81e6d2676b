"""Readers of files of weights: each lists the tensors of a file, which are read when needed.

A reader takes a path and returns the tensors by their names in the file (`libraries` finds their
names in a TF1 checkpoint); a damaged file raises one of `DAMAGES`. Nothing that a file contains is
executed, no other file is opened on its behalf, and what it claims is held to the limits here.
NumPy has its type "bfloat16" from TensorFlow.
"""

import dataclasses
import functools
import re
import struct
import zipfile
from collections.abc import Callable, Iterator, Mapping
from typing import Any, BinaryIO

import h5py
import numpy as np
import safetensors
from google.protobuf.message import DecodeError
from tensorflow.core.protobuf.trackable_object_graph_pb2 import TrackableObjectGraph

from bert.files.paths import open_file
from bert.options import MessageError
from bert.weights.variables import GLOBAL_STEP

# What any file may claim: a Large has 400 tensors, and the longest of their names 80 characters.
MAX_TENSORS = 100_000
MAX_NAME = 1_000
MAX_DIMENSIONS = 8
# The entry of a checkpoint of TensorFlow 2 that says which object a tensor belongs to.
OBJECT_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"
_OPTIMIZER = re.compile(r"(^|/)(_?optimizer|\.OPTIMIZER_SLOT)/")
# The kinds of NumPy's types that are numbers; texts and objects are no tensors.
_NUMBERS = "fiub"


@dataclasses.dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor of a file.

    Attributes:
      shape: Its shape.
      read: Returns its values.
    """

    shape: tuple[int, ...]
    read: Callable[[], np.ndarray]

    def transposed(self) -> "Tensor":
        """Returns the tensor with its axes in the opposite order."""
        return Tensor(self.shape[::-1], lambda: np.ascontiguousarray(self.read().T))

    def reshaped(self, *shape: int) -> "Tensor":
        """Returns the same values in another shape."""
        return Tensor(shape, lambda: self.read().reshape(shape))


Tensors = Mapping[str, Tensor]


class FormatError(ValueError):
    """A file is not what its format demands; the text says why, as the end of a sentence."""


class OtherModelError(FormatError):
    """A file is sound, but its model is not a BERT."""


class UnsoundError(MessageError):
    """A checkpoint is damaged, or there are values in it that are not finite."""


# What libraries raise for damaged files, where a reader opens them and where it reads tensors.
DAMAGES = (
    *(ArithmeticError, AttributeError, EOFError, LookupError, MemoryError, OSError, RuntimeError),
    *(TypeError, ValueError),
    *(DecodeError, safetensors.SafetensorError, struct.error, zipfile.BadZipFile),
)


def find_not_finite(tensors: Mapping[str, np.ndarray]) -> str | None:
    """Returns a sentence about the first tensor with a value that is not finite, or None.

    Numbers whose squares are not finite count as well: no loss of such weights can be computed.
    """
    for name, values in tensors.items():
        if values.dtype.kind not in "fV":
            continue
        with np.errstate(all="ignore"):
            # The sum of the squares needs no other array; it may be infinite of itself.
            if values.dtype == np.float32 and np.isfinite(np.vdot(values, values)):
                continue
            finite = np.isfinite(np.square(values, dtype=np.result_type(values, np.float32)))
        if count := values.size - int(finite.sum()):
            return f"{count} of {values.size} values of `{name}` are not finite"
    return None


def read_range(path: str, start: int, size: int) -> bytes:
    """Returns `size` bytes of a file from `start` on."""
    with open_file(path) as file:
        file.seek(start)
        return file.read(size)


def check_limits(tensors: Tensors) -> None:
    """Checks what a file claims, before anything is made of it."""
    if len(tensors) > MAX_TENSORS:
        raise FormatError(f"it lists more than {MAX_TENSORS:,} tensors")
    for name, tensor in tensors.items():
        if len(name) > MAX_NAME or len(tensor.shape) > MAX_DIMENSIONS:
            raise FormatError(
                f"names have at most {MAX_NAME:,} characters and tensors {MAX_DIMENSIONS} "
                f"dimensions, not {name!r:.80} with {len(tensor.shape)}"
            )


def read_safetensors(path: str) -> Tensors:
    """Returns the tensors of a file of safetensors, with the step in its metadata, if any."""
    file = safetensors.safe_open(path, framework="numpy")
    metadata = file.metadata() or {}
    # Flax joins the keys that lead to a tensor by points here, and `msgpacks` does by slashes.
    is_flax = metadata.get("format") == "flax"
    tensors = {}
    for name in file.keys():  # noqa: SIM118 (it is no dictionary)
        shape = tuple(file.get_slice(name).get_shape())
        read = functools.partial(file.get_tensor, name)
        tensors[name.replace(".", "/") if is_flax else name] = Tensor(shape, read)
    if (step := metadata.get(GLOBAL_STEP, "")).isdigit():
        tensors[GLOBAL_STEP] = Tensor((), lambda: np.asarray(int(step), np.int64))
    return tensors


def read_hdf5(path: str | BinaryIO) -> Tensors:
    """Returns the tensors of an HDF5 file by the paths of its datasets.

    Args:
      path: The path, or a file that is open, at any place in another.

    Raises:
      FormatError: where it has links or data in other files.
    """
    file = h5py.File(path, "r")
    return {
        _name(key, dataset): Tensor(dataset.shape, functools.partial(dataset.__getitem__, ()))
        for key, dataset in _datasets(file)
        if dataset.dtype.kind in _NUMBERS
        and not key.startswith(("optimizer/", "optimizer_weights/"))
    }


def _datasets(file: h5py.File) -> Iterator[tuple[str, h5py.Dataset]]:
    """Yields the datasets of a file by their paths, without following a link to elsewhere."""
    groups = [("", file)]
    seen = 0
    while groups:
        path, group = groups.pop()
        for key in group:
            seen += 1
            name = f"{path}{key}"
            if seen > MAX_TENSORS or len(name) > MAX_NAME:
                raise FormatError(f"its groups have no end, as in {name!r:.80}")
            if not isinstance(group.get(key, getlink=True), h5py.HardLink):
                raise FormatError(f"{name!r} is a link to another place, which is not followed")
            item = group[key]
            if isinstance(item, h5py.Group):
                groups.append((f"{name}/", item))
            elif isinstance(item, h5py.Dataset):
                if item.external or item.is_virtual:
                    raise FormatError(f"{name!r} has its data in another file, which is not read")
                if item.dtype.kind in _NUMBERS and item.id.get_storage_size() < item.nbytes:
                    raise FormatError(f"the numbers of {name!r} are not all there")
                yield name, item


def _name(key: str, dataset: h5py.Dataset) -> str:
    """Returns the path of a dataset, in which a head for questions has its own name."""
    # Keras 3 makes paths of the classes of layers, whose names are attributes.
    is_span = "/output_layer/" in key and dataset.parent.attrs.get("name") == "span"
    return key.replace("/output_layer/", "/span/") if is_span else key


def read_objects(reader: Any) -> Tensors:
    """Returns the tensors that TensorFlow 2 has stored by objects, by the variables' own names.

    Args:
      reader: A reader of TensorFlow for a checkpoint that has `OBJECT_GRAPH`.
    """
    graph = TrackableObjectGraph.FromString(reader.get_tensor(OBJECT_GRAPH))
    shapes = reader.get_variable_to_shape_map()
    tensors: dict[str, Tensor] = {}
    for attribute in (attribute for node in graph.nodes for attribute in node.attributes):
        key, name = attribute.checkpoint_key, attribute.full_name
        # TensorFlow Hub stores the casing under a name that says nothing.
        name = "do_lower_case" if key.startswith("do_lower_case/") else name
        # Slots have the names of their variables, and other objects none.
        if key not in shapes or not name or _OPTIMIZER.search(key):
            continue
        read = functools.partial(reader.get_tensor, key)
        tensors[key if name in tensors else name] = Tensor(tuple(shapes[key]), read)
    return tensors

"""Reads the constants of a frozen graph of TensorFlow 1, which is neither loaded nor run.

A frozen graph has a node of the operation `Const` where the variable of that name was. The file is
a message of nodes (tensorflow/core/framework/graph.proto), which are parsed one by one.
"""

import functools
from collections.abc import Iterator
from typing import BinaryIO

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import node_def_pb2

from bert.files.paths import file_size, open_file
from bert.weights.formats import MAX_DIMENSIONS, FormatError, Tensor, Tensors, read_range

# The field of `GraphDef` with a node, and how its wire types are passed over.
_NODE = 1
_VARINT, _FIXED_64, _BYTES, _FIXED_32 = 0, 1, 2, 5
_MAX_NODES = 1_000_000
_FLOATS = {tf.as_dtype(name).as_datatype_enum for name in ("float32", "float64", "float16")}


def read_frozen_graph(path: str) -> Tensors:
    """Returns the constants of a graph that are tables or vectors of numbers, by their names.

    Raises:
      FormatError: where the file is no graph, or has no such constants.
    """
    tensors: dict[str, Tensor] = {}
    with open_file(path) as file:
        for start, size in _find_nodes(file, file_size(path)):
            file.seek(start)
            node = node_def_pb2.NodeDef.FromString(file.read(size))
            if node.op != "Const" or node.attr["value"].tensor.dtype not in _FLOATS:
                continue
            shape = tuple(axis.size for axis in node.attr["value"].tensor.tensor_shape.dim)
            if 0 < len(shape) <= MAX_DIMENSIONS:
                read = functools.partial(_read, path, start, size, shape)
                tensors[node.name] = Tensor(shape, read)
    if not tensors:
        raise FormatError("it is no frozen graph: it has no constants of numbers")
    return tensors


def _find_nodes(file: BinaryIO, end: int) -> Iterator[tuple[int, int]]:
    """Yields where the nodes of a message begin, with their sizes."""
    for _ in range(_MAX_NODES):
        if file.tell() >= end:
            return
        tag = _take_number(file)
        kind = tag & 7
        if kind == _VARINT:
            _take_number(file)
            continue
        sizes = {_FIXED_64: 8, _FIXED_32: 4}
        size = _take_number(file) if kind == _BYTES else sizes.get(kind, -1)
        start = file.tell()
        if size < 0 or start + size > end:
            raise FormatError("it is no graph, or is cut")
        if tag >> 3 == _NODE and kind == _BYTES:
            yield start, size
        file.seek(start + size)
    raise FormatError(f"it has more than {_MAX_NODES:,} nodes")


def _take_number(file: BinaryIO) -> int:
    """Returns a number of seven bits a byte, the lowest first."""
    number = 0
    for shift in range(0, 70, 7):
        byte = file.read(1)
        if not byte:
            break
        number |= (byte[0] & 0x7F) << shift
        if byte[0] < 0x80:
            return number
    raise FormatError("it is no graph, or is cut")


def _read(path: str, start: int, size: int, shape: tuple[int, ...]) -> np.ndarray:
    """Returns the numbers of a constant."""
    tensor = node_def_pb2.NodeDef.FromString(read_range(path, start, size)).attr["value"].tensor
    if tensor.tensor_content:
        values = np.frombuffer(tensor.tensor_content, tf.as_dtype(tensor.dtype).as_numpy_dtype)
        if values.size == np.prod(shape, dtype=np.int64):
            return values.reshape(shape)
    elif len(tensor.float_val) == 1 and np.prod(shape, dtype=np.float64) < 1 << 28:
        return np.full(shape, tensor.float_val[0], np.float32)
    raise FormatError("a constant has other numbers than its shape says")

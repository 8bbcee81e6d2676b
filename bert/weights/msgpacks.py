"""Reads the MessagePack of Flax: dictionaries of arrays in dictionaries (flax/serialization.py).

An array is an extension of type 1, which holds its shape, the name of its type, and its numbers. Of
more than a gigabyte, it is a dictionary of chunks.
"""

import functools
import math
import struct
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from bert.files.paths import file_size, open_file
from bert.weights.formats import MAX_NAME, FormatError, Tensor, Tensors, read_range

_MAX_DEPTH, _MAX_VALUES = 64, 1_000_000
_ARRAY = 1
_CHUNKED = "__msgpack_chunked_array__"
_TYPES = ("float32", "float16", "float64", "bfloat16", "int8", "int32", "int64", "uint8", "bool")
_CONSTANTS = {0xC0: None, 0xC2: False, 0xC3: True}
# By their first byte: numbers; and the length of the size of bytes, extensions, texts, lists and
# dictionaries (github.com/msgpack/msgpack, spec.md).
_NUMBERS = dict(zip(range(0xCA, 0xD4), (">f", ">d", *(f">{c}" for c in "BHIQbhiq")), strict=True))
_SIZES = {
    **{0xC4: ("bytes", 1), 0xC5: ("bytes", 2), 0xC6: ("bytes", 4)},
    **{0xC7: ("extension", 1), 0xC8: ("extension", 2), 0xC9: ("extension", 4)},
    **{0xD9: ("text", 1), 0xDA: ("text", 2), 0xDB: ("text", 4)},
    **{0xDC: ("list", 2), 0xDD: ("list", 4), 0xDE: ("dictionary", 2), 0xDF: ("dictionary", 4)},
}


class _Bytes(NamedTuple):
    """Bytes in a file that are not read yet."""

    start: int
    size: int


class _Array(NamedTuple):
    """An array in a file: its numbers are in `parts`, one after the other."""

    shape: tuple[int, ...]
    dtype: str
    parts: tuple[_Bytes, ...]


def read_msgpack(path: str) -> Tensors:
    """Returns the arrays in a file of Flax by the keys that lead to them, joined by slashes.

    Raises:
      FormatError: where it is damaged, or is no dictionary of arrays.
    """
    with open_file(path) as file:
        value = _Parser(file, file_size(path)).parse()
    tensors = {
        name: Tensor(array.shape, functools.partial(_read, path, array))
        for name, array in _arrays(value).items()
    }
    if not tensors:
        raise FormatError("it has no dictionary of arrays by name")
    return tensors


class _Parser:
    """Parses a file from its beginning; numbers of arrays are passed over."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self._file, self._size = file, size
        self._count = 0

    def parse(self, depth: int = 0) -> Any:
        """Returns the next value: dictionaries, lists, texts, numbers, `_Array` and `_Bytes`."""
        self._count += 1
        if depth > _MAX_DEPTH or self._count > _MAX_VALUES:
            raise FormatError(f"its dictionaries have no end, or over {_MAX_VALUES:,} values")
        first = self._take(1)[0]
        if first in _CONSTANTS:
            return _CONSTANTS[first]
        if first in _NUMBERS:
            size = struct.calcsize(_NUMBERS[first])
            return struct.unpack(_NUMBERS[first], self._take(size))[0]
        if first < 0x80 or first >= 0xE0:
            return first if first < 0x80 else first - 0x100
        return self._parse_sized(*self._find_size(first), depth)

    def _find_size(self, first: int) -> tuple[str, int]:
        if first < 0xC0:
            kinds = (("dictionary", 0x0F), ("list", 0x0F), ("text", 0x1F), ("text", 0x1F))
            kind, mask = kinds[(first - 0x80) >> 4]
            return kind, first & mask
        if 0xD4 <= first <= 0xD8:
            return "extension", 1 << (first - 0xD4)
        if first not in _SIZES:
            raise FormatError(f"it has the byte {first:#x} where a value begins")
        kind, width = _SIZES[first]
        return kind, int.from_bytes(self._take(width), "big")

    def _parse_sized(self, kind: str, size: int, depth: int) -> Any:
        if kind == "text":
            if size > MAX_NAME:
                raise FormatError(f"it has a text of {size:,} bytes, which no name has")
            return self._take(size).decode()
        if kind == "list":
            return [self.parse(depth + 1) for _ in range(size)]
        if kind == "dictionary":
            return self._parse_dictionary(size, depth)
        if kind == "extension":
            return self._parse_extension(size, depth)
        return self._skip(size)

    def _parse_dictionary(self, size: int, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for _ in range(size):
            key = self.parse(depth + 1)
            if not isinstance(key, str) or key in found:
                raise FormatError(f"its keys must be texts, each once, not {key!r:.80}")
            found[key] = self.parse(depth + 1)
        return found

    def _parse_extension(self, size: int, depth: int) -> Any:
        code, start = self._take(1)[0], self._file.tell()
        if code != _ARRAY:
            return self._skip(size)
        found = self.parse(depth + 1)
        if self._file.tell() != start + size or not isinstance(found, list) or len(found) != 3:
            raise FormatError("an array has no shape, type and numbers")
        shape, dtype, numbers = found
        return _make_array(shape, dtype, (numbers,))

    def _skip(self, size: int) -> _Bytes:
        skipped = _Bytes(self._file.tell(), size)
        if skipped.start + size > self._size:
            raise FormatError(f"it ends within {size:,} bytes of numbers")
        self._file.seek(size, 1)
        return skipped

    def _take(self, size: int) -> bytes:
        taken = self._file.read(size)
        if len(taken) < size:
            raise FormatError("it ends within a value")
        return taken


def _make_array(shape: Any, dtype: Any, parts: tuple[Any, ...]) -> _Array:
    """Returns an array whose shape, type and numbers agree."""
    if not isinstance(shape, list) or not all(type(n) is int and 0 <= n < 1 << 48 for n in shape):
        raise FormatError(f"an array has no proper shape, but {shape!r:.80}")
    if dtype not in _TYPES or not all(isinstance(part, _Bytes) for part in parts):
        raise FormatError(f"an array has numbers of the type {dtype!r:.80}, not of {[*_TYPES]}")
    needed = math.prod(shape) * np.dtype(dtype).itemsize
    size = sum(part.size for part in parts)
    if size != needed:
        raise FormatError(f"an array of shape {shape} has {size:,} bytes of {needed:,}")
    return _Array(tuple(shape), dtype, parts)


def _arrays(value: Any) -> dict[str, _Array]:
    """Returns the arrays of a dictionary by the path of their keys."""
    arrays: dict[str, _Array] = {}
    waiting = [("", value)]
    while waiting:
        name, value = waiting.pop()
        if isinstance(value, _Array):
            arrays[name] = value
        elif isinstance(value, dict) and _CHUNKED in value:
            arrays[name] = _join(value)
        elif isinstance(value, dict):
            waiting += [(f"{name}/{key}" if name else key, item) for key, item in value.items()]
    return arrays


def _join(value: dict[str, Any]) -> _Array:
    """Returns the array of a dictionary of chunks, which are numbered as its dimensions are."""
    parts = []
    for key in ("shape", "chunks"):
        numbered = value.get(key)
        if not isinstance(numbered, dict) or set(numbered) != {*map(str, range(len(numbered)))}:
            raise FormatError(f"an array in chunks has no proper {key!r}")
        parts.append([numbered[str(number)] for number in range(len(numbered))])
    shape, chunks = parts
    if not chunks or not all(isinstance(chunk, _Array) for chunk in chunks):
        raise FormatError("an array in chunks has none")
    return _make_array(shape, chunks[0].dtype, tuple(p for chunk in chunks for p in chunk.parts))


def _read(path: str, array: _Array) -> np.ndarray:
    """Returns the numbers of an array."""
    content = b"".join(read_range(path, *part) for part in array.parts)
    return np.frombuffer(content, array.dtype).reshape(array.shape)

"""Writes features as the original's JSON lines or as NumPy arrays, and reads arrays.

Formatting one number at a time would take longer than computing the features on a GPU, so that the
digits of many numbers are computed at once.
"""

import contextlib
import functools
import itertools
import json
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from tokenize import TokenError
from typing import IO, BinaryIO

import numpy as np

from bert.files.paths import open_file, os_errors, split_by_size

# The tokens of a line, and the values of each layer: float32 [tokens, W], or [1, W] if pooled.
Features = tuple[Sequence[str], Sequence[np.ndarray]]

# Values that are formatted together, and values of one operation, which fit the processor's cache.
_GROUP = 1 << 20
_BLOCK = 1 << 15
# The tables of digits have three before the point.
_LIMIT = 999.5
# What NumPy raises for damaged files; of tokens, for a header that is no literal; of keys, for a
# member that is no array.
_DAMAGES = (ValueError, EOFError, KeyError, SyntaxError, TokenError, zipfile.BadZipFile, zlib.error)


@contextlib.contextmanager
def array_errors(path: str) -> Iterator[None]:
    """Converts the errors of reading a damaged NumPy file to a `ValueError` with its name."""
    try:
        yield
    except _DAMAGES as error:
        raise ValueError(f"{path!r} must be a complete NumPy file. {error}") from error


def read_npz(path: str) -> dict[str, np.ndarray]:
    """Returns the arrays of an .npz file by name; raises `ValueError` where it is damaged."""
    with os_errors(path), open_file(path) as file, array_errors(path):
        arrays = dict(np.lib.npyio.NpzFile(file))
        if others := [name for name, each in arrays.items() if not isinstance(each, np.ndarray)]:
            raise ValueError(f"It has {others}, which are no arrays.")
        return arrays


def write_jsonl(
    file: BinaryIO,
    features: Iterable[Features],
    layers: Sequence[int | str],
    pooling: str,
    ids: Iterable[str] | None = None,
    number: int = 0,
) -> None:
    """Writes a JSON object for each line, values rounded to 6 decimals.

    Args:
      file: A binary file.
      features: The features of each line, in order.
      layers: The names of the layers.
      pooling: "none" for layers of each token; otherwise, an object has the layers of the line.
      ids: The ID of each line besides its number, if lines have IDs.
      number: The number of the first line.
    """
    names = itertools.repeat(b"") if ids is None else (b'"id": %s, ' % _text(name) for name in ids)
    heads = [b'{"index": %s, "values": [' % json.dumps(layer).encode() for layer in layers]
    for group in split_by_size(features, _num_values, _GROUP):
        columns = [
            json_rows(np.concatenate([values[column] for _, values in group]))
            for column in range(len(layers))
        ]
        rows = zip(*columns, strict=True)
        for tokens, values in group:
            # The layers of each token, or of the line.
            lists = [
                b"[%s]" % b", ".join([h + text + b"]}" for h, text in zip(heads, row, strict=True)])
                for row in itertools.islice(rows, len(values[0]))
            ]
            start = b'{"linex_index": %d, %s' % (number, next(names))
            file.write(start + _json_values(tokens, lists, pooling) + b"}\n")
            number += 1


def _num_values(line: Features) -> int:
    return sum(values.size for values in line[1])


def _json_values(tokens: Sequence[str], lists: list[bytes], pooling: str) -> bytes:
    if pooling != "none":
        return b'"pooling": "%s", "layers": %s' % (pooling.encode(), lists[0])
    entries = [
        b'{"token": %s, "layers": %s}' % (_text(token), text)
        for token, text in zip(tokens, lists, strict=True)
    ]
    # Faithful: `linex_index` is the original's misspelt key.
    return b'"features": [%s]' % b", ".join(entries)


def _text(text: str) -> bytes:
    return json.dumps(text).encode()


def json_rows(values: np.ndarray) -> list[bytes]:
    """Returns the text that `json.dumps` gives for each row of rounded values, without brackets.

    Args:
      values: float32 [R, W]; rounded as Python's `round(float(value), 6)`.

    Raises:
      ArithmeticError: where a value is not finite: JSON has no such numbers.
    """
    num_rows, width = values.shape
    largest = np.abs(values).max(axis=1, initial=0)
    if not np.isfinite(largest).all():
        raise ArithmeticError("Values must be finite. Received some that are not.")
    step = max(_BLOCK // width, 1)
    rows: list[bytes] = []
    for start in range(0, num_rows, step):
        rows += _json_lines(values[start : start + step]).split(b"\n")[:-1]
    for row in np.flatnonzero(largest >= _LIMIT):
        rows[row] = ", ".join([repr(round(value, 6)) for value in values[row].tolist()]).encode()
    return rows


def _json_lines(values: np.ndarray) -> bytes:
    """Returns each row as a line; only for values below `_LIMIT`.

    A float32 times a million is exact in float64. So rounding that to an integer, halves to the
    even one, gives the very digits of `round(x, 6)`, and tables turn them into text.
    """
    # Clipped values, which the caller formats otherwise, do not overflow.
    values = np.clip(values, -_LIMIT, _LIMIT)
    millionths = np.abs(np.rint(values * np.float64(1e6))).astype(np.uint32)
    negative = np.signbit(values)
    thousandths = millionths // 1000
    low = millionths - thousandths * 1000
    whole = thousandths // 1000
    high = thousandths - whole * 1000
    wholes, highs, lows, tiny = _digit_tables()
    text = np.empty((*values.shape, 4), np.uint32)  # 16 bytes a number
    text[..., 0] = wholes.take(whole + negative * np.uint32(1000))
    text[..., 1] = highs.take(high + (low == 0) * np.uint32(1000))
    text[..., 2] = lows.take(low)
    text[..., :-1, 3] = np.frombuffer(b", \0\0", np.uint32)
    text[..., -1, 3] = np.frombuffer(b"\n\0\0\0", np.uint32)
    # Python writes less than a ten-thousandth in another form.
    is_tiny = (millionths < 100) & (millionths > 0)
    text[is_tiny, :3] = tiny[millionths[is_tiny] + negative[is_tiny] * np.uint32(100)]
    return text.tobytes().translate(None, b"\0")


@functools.cache
def _digit_tables() -> tuple[np.ndarray, ...]:
    """Returns the texts of parts of numbers, padded with zero bytes.

    Tables: the digits before the point, with a minus from entry 1000 on; the point and three
    decimals, without zeros at the end from entry 1000 on; three more decimals; and numbers below
    100 millionths, with a minus from entry 100 on.
    """
    wholes = [f"{sign}{number}" for sign in ("", "-") for number in range(1000)]
    decimals = [f"{number:03}" for number in range(1000)]
    highs = [f".{digits}" for digits in decimals]
    highs += [f".{digits[0]}{digits[1:].rstrip('0')}" for digits in decimals]
    lows = [digits.rstrip("0") for digits in decimals]
    tiny = [f"{sign}{number / 1e6!r}" for sign in ("", "-") for number in range(100)]
    tables = [np.array(table, "S4").view(np.uint32) for table in (wholes, highs, lows)]
    return *tables, np.array(tiny, "S12").view(np.uint32).reshape(-1, 3)


class _Stream:
    """A file without `seek`, so that `zipfile` writes it sequentially."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.flush = file.flush

    def write(self, content: bytes) -> int:
        # TensorFlow's files do not return the length.
        self._file.write(content)
        return len(content)


Array = tuple[tuple[int, ...], str, Iterable[np.ndarray]]


def write_npz(file: BinaryIO, arrays: dict[str, Array]) -> None:
    """Writes an .npz file in parts, without any complete array in memory.

    Args:
      file: A binary file.
      arrays: The shape, dtype and parts of each array, by name.

    Raises:
      ValueError: where the parts do not fill the shape.
    """
    with zipfile.ZipFile(_Stream(file), "w") as archive:  # type: ignore[call-overload]
        for name, array in arrays.items():
            entry = zipfile.ZipInfo(f"{name}.npy")
            # Texts are padded with zeros to the longest text.
            is_text = np.dtype(array[1]).kind == "U"
            entry.compress_type = zipfile.ZIP_DEFLATED if is_text else zipfile.ZIP_STORED
            # zipfile does not know the size in advance, which may be beyond 4 GB.
            with archive.open(entry, "w", force_zip64=True) as part:
                write_npy(part, name, array)


def write_npy(file: IO[bytes], name: str, array: Array) -> None:
    """Writes an .npy file in parts, without the complete array in memory.

    Args:
      file: A binary file.
      name: The name of the array, for messages.
      array: The shape, the dtype and the parts, whose rows follow each other in the array.

    Raises:
      ValueError: where the parts do not fill the shape.
    """
    shape, dtype, parts = array
    header = {"descr": np.dtype(dtype).str, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, header)
    num_rows = 0
    for part in parts:
        # Bytes rather than a view, which TensorFlow's files do not take.
        file.write(np.asarray(part, dtype).tobytes())
        num_rows += len(part)
    if num_rows != shape[0]:
        raise ValueError(
            f"`{name}` must have {shape[0]} rows. There are {num_rows}; did an input file "
            "change while it was read?"
        )


def text_array(texts: Iterable[str], count: int, longest: int) -> Array:
    """Returns an array of `count` texts for `write_npy`, truncated to `longest` characters."""
    dtype = f"<U{max(longest, 1)}"
    return (count,), dtype, (np.array([text], dtype) for text in texts)

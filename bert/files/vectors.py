"""Files of features: JSON lines as the original writes them, or NumPy arrays.

Nearly all of a JSON file is digits. Made one number at a time, they would take longer than the
features do on a GPU, so they are made many at a time.
"""

import contextlib
import functools
import itertools
import json
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import IO, BinaryIO

import numpy as np

from bert.files.paths import open_file, os_errors

# A line's tokens, and for each layer its values: float32 [tokens, W], or [1, W] if pooled.
Features = tuple[Sequence[str], Sequence[np.ndarray]]

# Values to make text of together, and those of one operation, which stay in the processor's cache.
_GROUP = 1 << 20
_BLOCK = 1 << 15
# The tables of digits have three before the point.
_LIMIT = 999.5


def is_features(path: str) -> bool:
    """Returns whether a file begins like one that is written here; a single matrix may be any."""
    with os_errors(path), open_file(path) as file:
        head = file.read(64)
    return head.startswith(b'{"linex_index": ') or head[:4] + head[30:40] == b"PK\3\4values.npy"


@contextlib.contextmanager
def array_errors(path: str) -> Iterator[None]:
    """Makes a `ValueError` that names the file of what reading a damaged one of NumPy's raises."""
    try:
        yield
    except (ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise ValueError(f"{path!r} must be a whole file of NumPy's. {error}") from error


def read_npz(path: str) -> dict[str, np.ndarray]:
    """Returns the arrays of an archive by their names.

    Raises:
      ValueError: where it is not whole, or something else.
    """
    arrays = {}
    with (
        os_errors(path),
        open_file(path) as file,
        array_errors(path),
        zipfile.ZipFile(file) as archive,
    ):
        for name in archive.namelist():
            with archive.open(name) as member:
                arrays[name.removesuffix(".npy")] = np.lib.format.read_array(member)
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
      file: Open for writing bytes.
      features: Of each line, in order.
      layers: What to call them.
      pooling: "none", else the objects have the layers of the line, not those of its tokens.
      ids: What to call each line besides its number, if anything.
      number: Of the first line.
    """
    names = itertools.repeat(b"") if ids is None else (b'"id": %s, ' % _text(each) for each in ids)
    heads = [b'{"index": %s, "values": [' % json.dumps(layer).encode() for layer in layers]
    for group in _groups(features):
        columns = [
            json_rows(np.concatenate([values[column] for _, values in group]))
            for column in range(len(layers))
        ]
        rows = zip(*columns, strict=True)
        for tokens, values in group:
            # Each a list of layers, of one token or of the line.
            lists = [
                b"[%s]" % b", ".join([h + text + b"]}" for h, text in zip(heads, row, strict=True)])
                for row in itertools.islice(rows, len(values[0]))
            ]
            start = b'{"linex_index": %d, %s' % (number, next(names))
            file.write(start + _json_values(tokens, lists, pooling) + b"}\n")
            number += 1


def _groups(features: Iterable[Features]) -> Iterator[list[Features]]:
    group: list[Features] = []
    size = 0
    for line in features:
        group.append(line)
        size += sum(values.size for values in line[1])
        if size >= _GROUP:
            yield group
            group, size = [], 0
    if group:
        yield group


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
    # Of rows with larger values, too, so that they do not overflow.
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
    """Returns the text, filled up with zero bytes, of each part of a number.

    They are: what precedes the point, negative from entry 1000 on; the point and three decimals,
    the last ones from 1000 on; three more decimals; and whole numbers below 100 millionths,
    negative from 100 on.
    """
    wholes = [f"{sign}{number}" for sign in ("", "-") for number in range(1000)]
    decimals = [f"{number:03}" for number in range(1000)]
    highs = [f".{each}" for each in decimals]
    highs += [f".{each[0]}{each[1:].rstrip('0')}" for each in decimals]
    lows = [each.rstrip("0") for each in decimals]
    tiny = [f"{sign}{number / 1e6!r}" for sign in ("", "-") for number in range(100)]
    tables = [np.array(table, "S4").view(np.uint32) for table in (wholes, highs, lows)]
    return *tables, np.array(tiny, "S12").view(np.uint32).reshape(-1, 3)


class _Stream:
    """A file that can only be written, so that `zipfile` does not go back in it."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.flush = file.flush

    def write(self, content: bytes) -> int:
        # A file of TensorFlow's does not return it.
        self._file.write(content)
        return len(content)


Array = tuple[tuple[int, ...], str, Iterable[np.ndarray]]


def write_npz(file: BinaryIO, arrays: dict[str, Array]) -> None:
    """Writes an archive that `numpy.load` reads, without holding any array in memory.

    Args:
      file: Open for writing bytes.
      arrays: By name, the shape, the dtype and the parts whose rows make up the array.

    Raises:
      ValueError: where the parts do not fill the shape.
    """
    with zipfile.ZipFile(_Stream(file), "w") as archive:  # type: ignore[call-overload]
        for name, array in arrays.items():
            entry = zipfile.ZipInfo(f"{name}.npy")
            # Texts are as wide as the longest of them, and nearly all of that is zeros.
            is_text = np.dtype(array[1]).kind == "U"
            entry.compress_type = zipfile.ZIP_DEFLATED if is_text else zipfile.ZIP_STORED
            # Sizes are not known to zipfile in advance, and may be beyond 4 GB.
            with archive.open(entry, "w", force_zip64=True) as part:
                write_npy(part, name, array)


def write_npy(file: IO[bytes], name: str, array: Array) -> None:
    """Writes an array that `numpy.load` reads, without holding it in memory.

    Args:
      file: Open for writing bytes.
      name: What to call it in messages.
      array: Its shape, its dtype and the parts whose rows make it up.

    Raises:
      ValueError: where the parts do not fill the shape.
    """
    shape, dtype, parts = array
    header = {"descr": np.dtype(dtype).str, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, header)
    num_rows = 0
    for part in parts:
        # Rather than a view, which a file of TensorFlow's does not take.
        file.write(np.asarray(part, dtype).tobytes())
        num_rows += len(part)
    if num_rows != shape[0]:
        raise ValueError(
            f"`{name}` must have {shape[0]} rows. There are {num_rows}; did an input file "
            "change while it was read?"
        )


def text_array(texts: Iterable[str], count: int, longest: int) -> Array:
    """Returns an array of texts, to be written.

    Args:
      texts: The texts.
      count: How many there are.
      longest: How many characters the array has room for; what is longer is cut.
    """
    dtype = f"<U{max(longest, 1)}"
    return (count,), dtype, (np.array([text], dtype) for text in texts)

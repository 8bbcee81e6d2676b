"""Finds and reads files, local or on any file system that `tf.io.gfile` reads, and text and JSON.

TensorFlow is imported only for remote paths and for patterns, since its import takes longer than
the rest of a small corpus's preparation.
"""

import contextlib
import gzip
import json
import math
import os
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, BinaryIO, NamedTuple, TypeVar

from bert.files.process import import_tensorflow
from bert.options import Message, OptionError

T = TypeVar("T")

_GZIP = b"\x1f\x8b"

WILDCARDS = frozenset("*?[\\")
# What `match_files` takes, in the help of options.
PATTERNS = "comma-separated paths or patterns"

# How files begin that are not UTF-8 text.
_OLD_EXCEL = b"\xd0\xcf\x11\xe0"
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")
_PACKED = {".bz2": b"BZh", ".xz": b"\xfd7zXZ", ".zst": b"\x28\xb5\x2f\xfd", ".zip": b"PK\3\4"}

# The most names of a folder's content in a message.
_NAMES_SHOWN = 12


def is_remote(path: str) -> bool:
    """Returns whether a path needs `tf.io.gfile`."""
    return "://" in path


def real_path(path: str) -> str:
    """Returns a path with its links resolved, if it is local."""
    return path if is_remote(path) else os.path.realpath(path)


def _tensorflow() -> Any:
    import_tensorflow()
    import tensorflow as tf  # noqa: PLC0415

    return tf


def file_system() -> Any:
    """Returns `tf.io.gfile`."""
    return _tensorflow().io.gfile


@contextlib.contextmanager
def os_errors(path: str) -> Iterator[None]:
    """Converts TensorFlow's errors about a remote path to `OSError`."""
    if not is_remote(path):
        yield
        return
    errors = _tensorflow().errors
    try:
        yield
    except errors.NotFoundError as error:
        raise FileNotFoundError(error.message) from error
    except errors.OpError as error:
        raise OSError(error.message) from error


def split_patterns(patterns: str) -> list[str]:
    """Returns the patterns of a comma-separated list; between two commas may be nothing."""
    return [*filter(None, map(str.strip, patterns.split(",")))] or [patterns]


def match_files(patterns: str, option: str) -> list[str]:
    """Returns the files of a comma-separated list of paths or patterns, in its order.

    Args:
      patterns: Anything that `tf.io.gfile.glob` takes.
      option: The name of the option whose value it is, for the message.

    Raises:
      OptionError: where a pattern matches no file.
    """
    files: list[str] = []
    for pattern in split_patterns(patterns):
        # Departs: the original reads what a pattern matches in the order of the file system, which
        # differs from one copy of a folder to the next.
        matched = sorted(_match(pattern))
        if not matched:
            raise OptionError(option, "name existing files", remedy=f"{pattern!r} matches none.")
        files.extend(matched)
    return files


def match_file(pattern: str, option: str) -> str:
    """Returns the one file that a path or a pattern names.

    Raises:
      OptionError: where it names none, or several.
    """
    files = [pattern] if is_file(pattern) else match_files(pattern, option)
    if len(files) > 1:
        shown = ", ".join(map(repr, files[:3])) + ", …" * (len(files) > 3)
        received = Message("%r, which names %s: %s", pattern, len(files), shown)
        raise OptionError(option, "name a single file", received)
    return files[0]


def _match(pattern: str) -> list[str]:
    if not is_remote(pattern):
        if os.path.isfile(pattern):
            return [pattern]
        if not WILDCARDS & set(pattern):
            return []
    gfile = file_system()
    with os_errors(pattern):
        matched = [path for path in gfile.glob(pattern) if not gfile.isdir(path)]
    # Departs: the original also reads hidden files, such as an index beside records.
    wants_hidden = _is_hidden(pattern)
    return [path for path in matched if wants_hidden or not _is_hidden(path)]


def _is_hidden(path: str) -> bool:
    return os.path.basename(path).startswith(".")


@contextlib.contextmanager
def without_wildcards(path: str) -> Iterator[str]:
    """Gives a path that TensorFlow does not take for a pattern, where need be through a link."""
    if is_remote(path) or not WILDCARDS & set(path):
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="bert-link-") as folder:
        link = os.path.join(folder, "link")
        os.symlink(os.path.abspath(path), link)
        yield link


def index_path(path: str) -> str:
    """Returns the path of the index of a TFRecord file.

    The name begins with a dot, so that a pattern such as `train.tfrecord*` does not match it for
    the original, which would read it as records.
    """
    return hidden_path(path, "index")


def part_path(path: str) -> str:
    """Returns the path of the description of a part of an output, hidden as an index is."""
    return hidden_path(path, "part")


def hidden_path(path: str, ending: str) -> str:
    """Returns the path of a hidden file beside another one."""
    folder, name = os.path.split(path)
    return os.path.join(folder, f".{name}.{ending}")


def open_file(path: str, mode: str = "rb") -> BinaryIO:
    """Opens a file of bytes."""
    if not is_remote(path):
        return open(path, mode)  # type: ignore[return-value]
    return file_system().GFile(path, mode)


def read_file(path: str) -> bytes:
    """Returns the content of a file; raises `OSError` where it cannot be read."""
    with os_errors(path), open_file(path) as file:
        return file.read()


def file_size(path: str) -> int:
    """Returns the size in bytes, as stored."""
    if not is_remote(path):
        return os.path.getsize(path)
    gfile = file_system()
    with os_errors(path):
        return int(gfile.stat(path).length)


def file_states(paths: Sequence[str]) -> list[tuple[int, int]]:
    """Returns the size in bytes and the time of the last change, in nanoseconds, of each file."""
    return [
        (
            file_size(path),
            file_system().stat(path).mtime_nsec if is_remote(path) else os.stat(path).st_mtime_ns,
        )
        for path in paths
    ]


def is_gzip(path: str) -> bool:
    """Returns whether a file has the beginning of a gzip file, whatever its name."""
    with os_errors(path), open_file(path) as file:
        return file.read(2) == _GZIP


def read_lines(path: str) -> Iterator[tuple[bytes, int]]:
    """Yields each line with the number of bytes read from the file so far.

    A file with the beginning of a gzip file is unpacked, whatever its name.

    Raises:
      ValueError: where a gzip file is damaged.
    """
    with os_errors(path), open_file(path) as file:
        is_packed = file.read(2) == _GZIP
        file.seek(0)
        lines: Any = gzip.GzipFile(fileobj=file) if is_packed else file
        count = 0
        try:
            for line in lines:
                # A gzip file has a position of its own; elsewhere counting is cheaper than `tell`.
                count = file.tell() if is_packed else count + len(line)
                yield line, count
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise ValueError(
                f"{path!r} must be a complete gzip file. Received: {error}."
            ) from error


def check_beginning(path: str, line: bytes) -> None:
    """Checks the first line of a file that must be UTF-8 text.

    Raises:
      ValueError: where the file has another encoding, is packed or is a workbook of Excel, or all
        lines of a file of old Macs are this one.
    """
    if line.startswith(_UTF_16):
        raise ValueError(
            f"{path!r} must be UTF-8 text. It is UTF-16: convert it, as with `iconv -f UTF-16 -t "
            "UTF-8`."
        )
    check_no_workbook(path, line)
    # NumPy packs arrays, too.
    if line.startswith(tuple(_PACKED.values())) and not path.lower().endswith(".npz"):
        kind = next(kind for kind, begin in _PACKED.items() if line.startswith(begin))
        raise ValueError(
            f"{path!r} must be text, plain or gzip. It begins as a {kind} file: unpack it first."
        )
    # A text may have a single carriage return.
    if not line.endswith(b"\n") and line.count(b"\r") > 1 and b"\r" in line.rstrip(b"\r"):
        raise ValueError(
            f"{path!r} must have lines that end with LF, or CR and LF. They end with CR alone, as "
            "in Excel's CSV for old Macs: convert it, as with `tr '\\r' '\\n'`."
        )


def check_no_workbook(path: str, line: bytes = b"") -> None:
    """Raises `ValueError` where a file is a workbook, by its extension or its first line."""
    if path.lower().endswith((".xlsx", ".xlsm")) or line.startswith(_OLD_EXCEL):
        raise ValueError(
            f"{path!r} must be text or Parquet. It is a workbook of Excel: save its sheet as CSV "
            "UTF-8, or with pandas, `pandas.read_excel(...).to_csv(..., index=False)`, and give "
            "that file."
        )


def decode_line(path: str, number: int, line: bytes, errors: str = "strict") -> str:
    """Returns the text of a line, without its end, and without a byte order mark in line 1."""
    try:
        text = line.decode("utf-8-sig" if number == 1 else "utf-8", errors)
    except UnicodeDecodeError as error:
        shown = line[max(error.start - 20, 0) : error.start + 10]
        raise ValueError(
            f"{path}:{number}: text must be UTF-8. Received {shown!r}. Convert the file, if it is "
            "Latin-1 with `iconv -f LATIN1 -t UTF-8`, if it is Chinese perhaps with `-f GB18030`."
        ) from None
    return text.removesuffix("\n").removesuffix("\r")


def read_part(path: str, start: int, stop: int) -> Iterator[bytes]:
    """Yields the lines of a part of a file that is not packed, split at blank lines.

    Consecutive parts, each starting where the previous one stops, have every line of the file
    once. A part goes from the first blank line at or after `start`, or from the beginning of the
    file where `start` is 0, to the first blank line at or after `stop`.
    """
    with os_errors(path), open_file(path) as file:
        position = max(start - 1, 0)
        file.seek(position)
        if start:
            # A line that reaches into the part belongs to the previous one.
            position += len(file.readline())
        is_inside = start == 0
        for line in file:
            is_blank = line.isspace() and line.endswith(b"\n")
            if is_blank and position >= stop:
                return
            is_inside = is_inside or is_blank
            if is_inside:
                yield line
            position += len(line)


def split_by_size(items: Iterable[T], size: Callable[[T], int], limit: int) -> Iterator[list[T]]:
    """Yields lists of consecutive items; each ends as soon as its sizes add up to the limit."""
    collected: list[T] = []
    total = 0
    for item in items:
        collected.append(item)
        total += size(item)
        if total >= limit:
            yield collected
            collected, total = [], 0
    if collected:
        yield collected


class LineChunk(NamedTuple):
    """Consecutive lines of a file.

    Attributes:
      lines: The lines, with their ends.
      is_first: Whether the file begins with them.
      position: The bytes read so far, of this file and of the previous files.
    """

    lines: list[bytes]
    is_first: bool
    position: int


def read_chunks(paths: Sequence[str], num_bytes: int) -> Iterator[LineChunk]:
    """Yields the lines of all files in chunks of about `num_bytes`; an empty file has one chunk.

    Raises:
      ValueError: as `read_lines`.
    """
    before = 0
    for path in paths:
        is_first = True
        for read in split_by_size(read_lines(path), lambda read: len(read[0]), num_bytes):
            yield LineChunk([line for line, _ in read], is_first, before + read[-1][1])
            is_first = False
        if is_first:
            yield LineChunk([], is_first, before)
        before += file_size(path)


def is_file(path: str) -> bool:
    """Returns whether a path is a file, on any file system of `tf.io.gfile`."""
    if not is_remote(path):
        return os.path.isfile(path)
    gfile = file_system()
    with os_errors(path):
        return gfile.exists(path) and not gfile.isdir(path)


def is_folder(path: str) -> bool:
    """Returns whether a path is a folder, on any file system of `tf.io.gfile`."""
    if not is_remote(path):
        return os.path.isdir(path)
    with os_errors(path):
        return bool(file_system().isdir(path))


def list_folder(folder: str) -> list[str]:
    """Returns the names within a folder in alphabetical order, [] if it does not exist."""
    if not is_folder(folder):
        return []
    if not is_remote(folder):
        return sorted(os.listdir(folder))
    with os_errors(folder):
        # Some file systems end a folder's name with a slash.
        return sorted(name.rstrip("/") for name in file_system().listdir(folder))


def describe_folder(folder: str) -> str:
    """Returns the name and content of a folder, for a message about a missing file."""
    # Hidden files are seldom what is missing.
    names = sorted(list_folder(folder), key=lambda name: name.startswith("."))
    if names:
        more = f" and {len(names) - _NAMES_SHOWN} more" if len(names) > _NAMES_SHOWN else ""
        return f"{folder!r}, which holds {names[:_NAMES_SHOWN]}{more}"
    if is_remote(folder) or os.path.isdir(folder):
        return f"{folder!r}, which is empty"
    return f"{folder!r}, which is not a folder"


def find_file(folder: str, names: Mapping[str, Any] | Iterable[str]) -> str | None:
    """Returns the path of the first name that is a file in a folder, or None."""
    paths = (os.path.join(folder, name) for name in names)
    return next(filter(is_file, paths), None)


def paths_from(start: str) -> list[str]:
    """Returns the paths that begin with `start`, whose folder may have `*` or `[` in its name."""
    folder, beginning = os.path.split(start)
    names = list_folder(folder or os.curdir) if start else []
    return [os.path.join(folder, name) for name in names if name.startswith(beginning)]


def parse_json(text: str | bytes) -> Any:
    """Returns the value of a text.

    Raises:
      ValueError: where the text is not JSON or UTF-8, or is nested too deeply.
    """
    try:
        return json.loads(text if isinstance(text, str) else text.decode("utf-8-sig"))
    except RecursionError as error:
        raise ValueError(str(error)) from error


def read_json_object(path: str, option: str = "") -> dict[str, Any]:
    """Returns the JSON object in a file.

    Raises:
      OptionError: naming the option that gave the path, if any, where there is no file.
      ValueError: where the file is not JSON, or not an object.
    """
    try:
        values = parse_json(read_file(path))
    except FileNotFoundError as error:
        if not option:
            raise
        raise OptionError(option, "exist", path) from error
    except UnicodeDecodeError as error:
        raise ValueError(f"{path!r} must be UTF-8 text: {error}.") from error
    except ValueError as error:
        raise ValueError(f"{path!r} must be JSON: {error}.") from error
    if not isinstance(values, dict):
        raise ValueError(f"{path!r} must hold a JSON object. Received {values!r:.80}.")
    return values


def find_json_object(path: str) -> dict[str, Any]:
    """Returns the JSON object in a file, {} where there is no file."""
    return read_json_object(path) if is_file(path) else {}


def to_json(values: Any) -> bytes:
    """Returns the text of a JSON file."""
    return (json.dumps(values, indent=2, ensure_ascii=False) + "\n").encode()


def json_number(value: Any) -> bool | int | float:
    """Returns a scalar of NumPy as a number of JSON, for `default` of `json.dumps`.

    Raises:
      TypeError: where the value is no number or truth of NumPy.
    """
    kinds = {"b": bool, "i": int, "u": int, "f": float}
    kind = kinds.get(getattr(getattr(value, "dtype", None), "kind", ""))
    if kind is None or value.shape != ():
        raise TypeError(f"Object of type {type(value).__name__} is not JSON serializable")
    return kind(value)


def finite(value: Any) -> Any:
    """Returns a value with None for numbers that are not finite, which JSON lacks."""
    if isinstance(value, Mapping):
        return {name: finite(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value

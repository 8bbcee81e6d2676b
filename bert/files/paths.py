"""Paths: files found and read.

They are local or anything else that `tf.io.gfile` reads. TensorFlow is imported for the latter and
for patterns only: that takes longer than the rest of a small corpus's preparation.
"""

import contextlib
import gzip
import os
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, BinaryIO, NamedTuple

from bert.files.process import import_tensorflow
from bert.options import Message, OptionError

_GZIP = b"\x1f\x8b"

WILDCARDS = frozenset("*?[\\")
# What `match_files` takes, in the help of options.
PATTERNS = "comma-separated paths or patterns"

# Names of a folder's content that fit into a message.
_NAMES_SHOWN = 12


def is_remote(path: str) -> bool:
    """Returns whether a path needs `tf.io.gfile`."""
    return "://" in path


def _tensorflow() -> Any:
    import_tensorflow()
    import tensorflow as tf  # noqa: PLC0415

    return tf


def file_system() -> Any:
    """Returns `tf.io.gfile`."""
    return _tensorflow().io.gfile


@contextlib.contextmanager
def os_errors(path: str) -> Iterator[None]:
    """Makes an `OSError` of what TensorFlow raises for a path that is not local."""
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


def match_files(patterns: str, option: str) -> list[str]:
    """Returns the files that a comma-separated list of paths or patterns names, in its order.

    Args:
      patterns: Anything that `tf.io.gfile.glob` takes.
      option: The name of the option that has them, for the message.

    Raises:
      OptionError: where a pattern matches no file.
    """
    files: list[str] = []
    for pattern in patterns.split(","):
        # Departs: the original reads what a pattern matches in the order of the file system, which
        # differs from one copy of a folder to the next.
        matched = sorted(_match(pattern.strip()))
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
    beside = {*map(index_path, matched), *map(part_path, matched)}
    return [path for path in matched if path not in beside]


def index_path(path: str) -> str:
    """Returns where the index of a TFRecord file is, where it has one.

    Its name begins with a dot, so that a pattern such as `train.tfrecord*` does not match it for
    the original, which would read it as records.
    """
    folder, name = os.path.split(path)
    return os.path.join(folder, f".{name}.index")


def part_path(path: str) -> str:
    """Returns where the description of a part of an output is, hidden as an index is."""
    folder, name = os.path.split(path)
    return os.path.join(folder, f".{name}.part")


def open_file(path: str, mode: str = "rb") -> BinaryIO:
    """Opens a file of bytes."""
    if not is_remote(path):
        return open(path, mode)  # type: ignore[return-value]
    return file_system().GFile(path, mode)


def read_file(path: str) -> bytes:
    """Returns what a file holds.

    Raises:
      OSError: where it cannot be read, on other file systems too.
    """
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
    """Returns whether a file begins like one of gzip, whatever its name."""
    with os_errors(path), open_file(path) as file:
        return file.read(2) == _GZIP


def read_lines(path: str) -> Iterator[tuple[bytes, int]]:
    """Yields each line with the number of bytes read from the file so far.

    What begins like a gzip file is unpacked, whatever its name.

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


def read_part(path: str, start: int, stop: int) -> Iterator[bytes]:
    """Yields the lines of a part of a file that is not packed, cut at blank lines.

    The parts of a file, each of which begins where the one before it stops, have its lines, each
    once. A part goes from the first blank line at or behind `start` to that of `stop`; from the
    beginning of the file where `start` is 0.
    """
    with os_errors(path), open_file(path) as file:
        position = max(start - 1, 0)
        file.seek(position)
        if start:
            # Whatever reaches into the part is of the one before it.
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


class LineChunk(NamedTuple):
    """Some lines of a file that follow each other.

    Attributes:
      lines: With their ends.
      is_first: Whether the file begins with them.
      position: The bytes read by then, of this file and of those before it.
    """

    lines: list[bytes]
    is_first: bool
    position: int


def read_chunks(paths: Sequence[str], num_bytes: int) -> Iterator[LineChunk]:
    """Yields the lines of all files, in chunks of about so many bytes; a file without lines, too.

    Raises:
      ValueError: as `read_lines`.
    """
    before = 0
    for path in paths:
        lines: list[bytes] = []
        size = position = 0
        is_first = True
        for line, position in read_lines(path):
            lines.append(line)
            size += len(line)
            if size >= num_bytes:
                yield LineChunk(lines, is_first, before + position)
                lines, size, is_first = [], 0, False
        if lines or is_first:
            yield LineChunk(lines, is_first, before + position)
        before += file_size(path)


def is_file(path: str) -> bool:
    """Returns whether a file is there, on any file system that `tf.io.gfile` knows."""
    if not is_remote(path):
        return os.path.isfile(path)
    gfile = file_system()
    with os_errors(path):
        return gfile.exists(path) and not gfile.isdir(path)


def is_folder(path: str) -> bool:
    """Returns whether a folder is there, as `is_file`."""
    if not is_remote(path):
        return os.path.isdir(path)
    with os_errors(path):
        return bool(file_system().isdir(path))


def list_folder(folder: str) -> list[str]:
    """Returns the names within a folder in alphabetical order, none if it is not there."""
    if not is_folder(folder):
        return []
    if not is_remote(folder):
        return sorted(os.listdir(folder))
    with os_errors(folder):
        # Some file systems end a folder's name with a slash.
        return sorted(name.rstrip("/") for name in file_system().listdir(folder))


def describe_folder(folder: str) -> str:
    """Returns what to say of a folder in which something was not found."""
    names = list_folder(folder)
    if names:
        more = f" and {len(names) - _NAMES_SHOWN} more" if len(names) > _NAMES_SHOWN else ""
        return f"{folder!r}, which holds {names[:_NAMES_SHOWN]}{more}"
    if is_remote(folder) or os.path.isdir(folder):
        return f"{folder!r}, which is empty"
    return f"{folder!r}, which is not a folder"


def find_file(folder: str, names: Mapping[str, Any] | Iterable[str]) -> str | None:
    """Returns the path of the first of these names that is a file in a folder."""
    paths = (os.path.join(folder, name) for name in names)
    return next(filter(is_file, paths), None)


def paths_from(start: str) -> list[str]:
    """Returns the paths of files that begin so; a folder's name may hold `*` or `[`."""
    folder, beginning = os.path.split(start)
    names = list_folder(folder)
    return [os.path.join(folder, name) for name in names if name.startswith(beginning)]

"""Files of text and of records: found, read, encoded, and written so that only whole ones appear.

Paths are local or anything else that `tf.io.gfile` reads. TensorFlow is imported for the latter
and for patterns only: that takes longer than the rest of a small corpus's preparation, and neither
`tf.train.Example` nor TFRecord needs more than the few lines below.
"""

import contextlib
import functools
import gzip
import os
import re
import struct
import sys
import uuid
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, BinaryIO

import numpy as np

_WILDCARDS = frozenset("*?[\\")

# A batch of records shares its arithmetic; these bound what waits for it.
_BATCH_RECORDS = 1024
_BATCH_BYTES = 1 << 24

# In the names of files that a process was writing when it was killed.
LEFTOVER = re.compile(r"\.partial|\.[0-9a-f]{32}\.tmp$")


def _tensorflow() -> Any:
    from bert.command_line import quiet_import  # noqa: F401, I001, PLC0415
    import tensorflow as tf  # noqa: PLC0415

    return tf


def _gfile() -> Any:
    return _tensorflow().io.gfile


def is_remote(path: str) -> bool:
    """Returns whether a path needs `tf.io.gfile`."""
    return "://" in path


@contextlib.contextmanager
def _os_errors(path: str) -> Iterator[None]:
    """Makes an `OSError` of what TensorFlow raises for a path that is not local."""
    if not is_remote(path):
        yield
        return
    try:
        yield
    except _tensorflow().errors.OpError as error:
        raise OSError(error.message) from error


def match_files(patterns: str, flag: str) -> list[str]:
    """Returns the files that a comma-separated list of paths or patterns names, in its order.

    Args:
      patterns: Anything that `tf.io.gfile.glob` takes.
      flag: The flag that gave them, for the message.

    Raises:
      ValueError: where a pattern matches no file.
    """
    files: list[str] = []
    for pattern in patterns.split(","):
        # Departs: the original reads what a pattern matches in the order of the file system, which
        # differs from one copy of a folder to the next.
        matched = sorted(_match(pattern.strip()))
        if not matched:
            raise ValueError(f"`--{flag}` must name existing files. {pattern!r} matches none.")
        files.extend(matched)
    return files


def _match(pattern: str) -> list[str]:
    if not is_remote(pattern):
        if os.path.isfile(pattern):
            return [pattern]
        if not _WILDCARDS & set(pattern):
            return []
    gfile = _gfile()
    with _os_errors(pattern):
        return [path for path in gfile.glob(pattern) if not gfile.isdir(path)]


def open_file(path: str, mode: str = "rb") -> BinaryIO:
    """Opens a file of bytes."""
    if not is_remote(path):
        return open(path, mode)  # type: ignore[return-value]
    return _gfile().GFile(path, mode)


def file_size(path: str) -> int:
    """Returns the size in bytes, as stored."""
    if not is_remote(path):
        return os.path.getsize(path)
    gfile = _gfile()
    with _os_errors(path):
        return int(gfile.stat(path).length)


def read_lines(path: str) -> Iterator[tuple[bytes, int]]:
    """Yields each line with the number of bytes read from the file so far.

    What begins like a gzip file is unpacked, whatever its name.

    Raises:
      ValueError: where a gzip file is damaged.
    """
    with open_file(path) as file:
        is_gzip = file.read(2) == b"\x1f\x8b"
        file.seek(0)
        lines: Any = gzip.GzipFile(fileobj=file) if is_gzip else file
        count = 0
        try:
            for line in lines:
                # Where a gzip file stands is known; elsewhere counting is cheaper than asking.
                count = file.tell() if is_gzip else count + len(line)
                yield line, count
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise ValueError(f"{path!r} must be a whole gzip file. Received: {error}.") from error


def check_outputs(paths: Sequence[str], inputs: Sequence[str], flag: str) -> None:
    """Checks that files can be written, before what goes into them is made.

    Args:
      paths: The files to write.
      inputs: Files that must not be among them.
      flag: The flag that gave the paths, for the messages.

    Raises:
      ValueError: naming the flag and the path.
    """
    read = {os.path.realpath(path) for path in inputs}
    seen: set[str] = set()
    for path in paths:
        place = path if is_remote(path) else os.path.realpath(path)
        if not path:
            raise ValueError(f"`--{flag}` must name files. Received an empty name among {paths}.")
        if place in seen:
            raise ValueError(f"`--{flag}` must name each file once. Received {path!r} again.")
        if place in read:
            raise ValueError(f"`--{flag}` must not name an input file. Received {path!r}.")
        seen.add(place)
    try:
        for path in paths:
            _discard([_open_beside(path)])
    except OSError as error:
        raise ValueError(f"`--{flag}` must name files that can be written. {error}.") from error


@contextlib.contextmanager
def replace_files(paths: Sequence[str]) -> Iterator[list[BinaryIO]]:
    """Opens files for bytes that take the place of `paths` when the block ends.

    Where it ends with an exception, nothing of them remains, and what was there before does.
    """
    opened: list[tuple[str, BinaryIO]] = []
    try:
        for path in paths:
            opened.append(_open_beside(path))
        yield [file for _, file in opened]
        for path, (_, file) in zip(paths, opened, strict=True):
            with _os_errors(path):
                file.close()
        for path, (temporary, _) in zip(paths, opened, strict=True):
            with _os_errors(path):
                _rename(temporary, path)
    except BaseException:
        _discard(opened)
        raise


@contextlib.contextmanager
def open_output(path: str, input_file: str) -> Iterator[BinaryIO]:
    """Opens `--output_file`: standard output for -, else a file that appears when it is whole.

    Args:
      path: The output.
      input_file: What it must not replace.
    """
    if path == "-":
        yield sys.stdout.buffer
        return
    check_outputs([path], [input_file], "output_file")
    with replace_files([path]) as (file,):
        yield file


def _rename(temporary: str, path: str) -> None:
    if is_remote(path):
        _gfile().rename(temporary, path, overwrite=True)
    else:
        os.replace(temporary, os.path.realpath(path))


def _open_beside(path: str) -> tuple[str, BinaryIO]:
    """Opens a new file in the folder of `path`; returns its name, too."""
    if is_remote(path):
        temporary = f"{path}.{uuid.uuid4().hex}.tmp"
        with _os_errors(path):
            file = open_file(temporary, "wb")
            file.write(b"")
            return temporary, file
    # A link stays a link; a folder, a pipe or a device is no place for a file.
    path = os.path.realpath(path)
    if os.path.exists(path) and not os.path.isfile(path):
        raise OSError(f"{path!r} is not a regular file")
    temporary = f"{path}.{uuid.uuid4().hex}.tmp"
    return temporary, open_file(temporary, "xb")


def _discard(opened: Sequence[tuple[str, BinaryIO]]) -> None:
    for temporary, file in opened:
        # What went wrong is on its way already; clearing up must not hide it.
        with contextlib.suppress(OSError), _os_errors(temporary):
            file.close()
        with contextlib.suppress(OSError), _os_errors(temporary):
            (_gfile() if is_remote(temporary) else os).remove(temporary)


class RecordWriter:
    """Writes records to a file in the TFRecord format.

    A record is 8 bytes of length, a checksum of them, the record and its checksum. Checksums of
    many records take hardly longer than one, so records wait until there are many.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._waiting: list[bytes] = []
        self._longest = 0

    def write(self, record: bytes) -> None:
        """Takes one serialized record."""
        self._waiting.append(record)
        self._longest = max(self._longest, len(record))
        if len(self._waiting) >= _BATCH_RECORDS or (
            len(self._waiting) * self._longest >= _BATCH_BYTES
        ):
            self.flush()

    def flush(self) -> None:
        """Hands everything to the file."""
        lengths = [struct.pack("<Q", len(record)) for record in self._waiting]
        parts = zip(
            lengths,
            _masked_checksums(lengths),
            self._waiting,
            _masked_checksums(self._waiting),
            strict=True,
        )
        self._file.write(b"".join([piece for record in parts for piece in record]))
        self._waiting.clear()
        self._longest = 0


@contextlib.contextmanager
def write_records(paths: Sequence[str]) -> Iterator[list[RecordWriter]]:
    """Opens TFRecord files that appear, all of them, when the block ends without an exception."""
    with replace_files(paths) as files:
        writers = [RecordWriter(file) for file in files]
        yield writers
        for writer in writers:
            writer.flush()


@functools.cache
def _checksum_tables() -> tuple[np.ndarray, np.ndarray]:
    """Returns what CRC-32C makes of 2 bytes that 0 or 2 further bytes follow."""
    tables = []
    state = np.arange(1 << 16)
    for _ in range(2):
        for _ in range(16):
            state = (state >> 1) ^ (state & 1) * 0x82F63B78
        tables.append(state)
    return tables[0], tables[1]


def _masked_checksums(messages: Sequence[bytes]) -> list[bytes]:
    """Returns the CRC-32C of each message, masked as TFRecord asks, as 4 bytes."""
    if not messages:
        return []
    near, far = _checksum_tables()
    longest = max(map(len, messages))
    words = -(-longest // 4)
    # Zeros in front leave a state of zero as it is. So all messages end together, and go through
    # the register side by side, 4 bytes a step.
    aligned = b"".join([message.rjust(4 * words, b"\0") for message in messages])
    columns = np.frombuffer(aligned, "<u4").reshape(len(messages), words).T.astype(np.int64)
    state = np.zeros(len(messages), np.int64)
    for column in columns:
        state ^= column
        # `wrap` saves the check of bounds, which would be most of the time.
        state = far.take(state & 0xFFFF, mode="wrap") ^ near.take(state >> 16, mode="wrap")
    # The register ought to begin with ones. It is linear, so what becomes of them is added here.
    ones = [0xFFFFFFFF]
    small = near[:: 1 << 8].tolist()
    for _ in range(longest):
        ones.append(small[ones[-1] & 0xFF] ^ (ones[-1] >> 8))
    crc = state ^ [ones[len(message)] for message in messages] ^ 0xFFFFFFFF
    masked = (crc >> 15 | crc << 17) + 0xA282EAD8
    packed = (masked & 0xFFFFFFFF).astype("<u4").tobytes()
    return [packed[start : start + 4] for start in range(0, len(packed), 4)]


def encode_example(features: Mapping[str, Sequence[int] | Sequence[float]]) -> bytes:
    """Returns the `tf.train.Example` with these lists of integers or floats, serialized."""
    return encode_examples({name: np.asarray([values]) for name, values in features.items()})[0]


def encode_examples(features: Mapping[str, np.ndarray]) -> list[bytes]:
    """Returns one serialized `tf.train.Example` for each row, with the bytes always the same.

    Args:
      features: by name, integers or floats [B, L]; L may differ between names. Booleans count as
        integers. The bytes are those of `SerializeToString(deterministic=True)`.
    """
    # Protobuf's order of names, in which `label` comes after `label_ids`.
    names = sorted(features, key=lambda name: name.encode() + b"\xff")
    columns = [_encode_entries(name, features[name]) for name in names]
    bodies = [b"".join(entries) for entries in zip(*columns, strict=True)]
    return [b"\x0a" + _varint(len(body)) + body for body in bodies]


def _encode_entries(name: str, values: np.ndarray) -> list[bytes]:
    """Returns for each row of values the map entry, `name` to a list, within `Features`."""
    if values.dtype.kind == "f":
        block = values.astype("<f4").tobytes()
        ends = np.arange(1, len(values) + 1) * values.shape[1] * 4
        field = 2
    else:
        block, ends = _varints(values)
        field = 3
    entries = []
    start = 0
    for end in ends.tolist():
        entries.append(_entry_head(name, field, end - start) + block[start:end])
        start = end
    return entries


@functools.lru_cache(maxsize=4096)
def _entry_head(name: str, field: int, size: int) -> bytes:
    """Returns what precedes `size` bytes of packed values in the map entry of a feature.

    The nesting, from the inside: values in field 1 of a list, which is field 2 (floats) or 3
    (integers) of a `Feature`, which is field 2 of the entry, whose field 1 is the name; the entry
    itself is field 1 of `Features`.
    """
    head = b"\x0a" + _varint(size) if size else b""
    head = bytes([field << 3 | 2]) + _varint(len(head) + size) + head
    head = _named(name) + b"\x12" + _varint(len(head) + size) + head
    return b"\x0a" + _varint(len(head) + size) + head


def _named(name: str) -> bytes:
    encoded = name.encode()
    return b"\x0a" + _varint(len(encoded)) + encoded


def _varint(value: int) -> bytes:
    """Returns a number from 0 in groups of 7 bits, the lowest first, all but the last marked."""
    groups = []
    while value > 0x7F:
        groups.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*groups, value])


def _varints(values: np.ndarray) -> tuple[bytes, np.ndarray]:
    """Returns all integers [B, L] as varints, and the offsets at which the rows end."""
    unsigned = values.astype(np.int64).view(np.uint64)
    largest = int(unsigned.max(initial=0))
    if largest < 1 << 32:
        unsigned = unsigned.astype(np.uint32)
    shifts = range(0, max(largest.bit_length(), 1), 7)
    groups = np.empty((*unsigned.shape, len(shifts)), np.uint8)
    present = np.ones(groups.shape, bool)
    for index, shift in enumerate(shifts):
        groups[..., index] = unsigned >> shift
        if index:
            present[..., index] = unsigned >= 1 << shift
    groups &= 0x7F
    groups[..., :-1] |= present[..., 1:].view(np.uint8) << 7
    return groups[present].tobytes(), present.sum((1, 2)).cumsum()

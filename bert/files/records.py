"""Reads and writes `tf.train.Example` records in TFRecord files without TensorFlow.

Importing TensorFlow takes longer than the rest of a small corpus's preparation.
"""

import array
import contextlib
import dataclasses
import functools
import json
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, BinaryIO

import google_crc32c
import numpy as np

from bert.files.durable import replace_files
from bert.files.paths import (
    file_size,
    index_path,
    is_file,
    open_file,
    os_errors,
    parse_json,
    read_file,
)
from bert.log import logger

# A record in a file: its length (8 bytes), a checksum of the length (4), the record, a checksum of
# the record (4).
RECORD_HEADER, RECORD_FOOTER = 12, 4


@functools.lru_cache(maxsize=1 << 14)
def record_header(length: int) -> bytes:
    """Returns the bytes before a record of some length in a TFRecord file."""
    packed = struct.pack("<Q", length)
    return packed + _masked_checksum(packed)


def encode_record(record: bytes) -> bytes:
    """Returns the bytes of a record in the TFRecord format."""
    return b"".join([record_header(len(record)), record, _masked_checksum(record)])


def decode_record(stored: bytes) -> bytes | None:
    """Returns the record in bytes of `encode_record`, or None where they are damaged."""
    record = stored[RECORD_HEADER:-RECORD_FOOTER]
    return record if encode_record(record) == stored else None


def find_ends(path: str) -> np.ndarray:
    """Returns the ends of the records before the first damaged one, as in `Index`."""
    ends = array.array("q")
    size = file_size(path)
    end = 0
    with os_errors(path), open_file(path) as file:
        while header := file.read(RECORD_HEADER):
            length = int.from_bytes(header[:8], "little")
            end += RECORD_HEADER + length + RECORD_FOOTER
            if header != record_header(length) or end > size:
                break
            if decode_record(header + file.read(length + RECORD_FOOTER)) is None:
                break
            ends.append(end)
    return np.frombuffer(ends, np.int64)


def _masked_checksum(content: bytes) -> bytes:
    """Returns the masked CRC-32C of the TFRecord format."""
    crc = google_crc32c.value(content)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


class RecordWriter:
    """Writes records to a file in the TFRecord format.

    Attributes:
      sizes: The size of each record in the file, in bytes.
    """

    def __init__(self, file: BinaryIO) -> None:
        self.sizes = array.array("Q")
        self._file = file

    def write(self, record: bytes) -> None:
        """Writes a serialized record."""
        stored = encode_record(record)
        self._file.write(stored)
        self.sizes.append(len(stored))

    def join(self, content: bytes, sizes: Sequence[int]) -> None:
        """Appends the bytes that another writer has written, and the sizes of its records."""
        self._file.write(content)
        self.sizes.extend(sizes)

    def encode_index(self, made_with: Mapping[str, Any]) -> bytes:
        """Returns the bytes of the index of all written records."""
        ends = np.cumsum(np.frombuffer(self.sizes, np.uint64), dtype=np.int64)
        return encode_index(Index(ends, made_with))


@contextlib.contextmanager
def write_records(
    paths: Sequence[str], made_with: Mapping[str, Any] | None = None
) -> Iterator[list[RecordWriter]]:
    """Opens TFRecord files, which all appear when the block ends without an exception.

    Args:
      paths: The files.
      made_with: A description of the records for the index beside each file; None for no index.
    """
    indexes = [index_path(path) for path in paths if made_with is not None]
    # An index appears before its records: the command replaces only records with an index, and may
    # be repeated after a kill.
    with replace_files([*indexes, *paths]) as files:
        writers = [RecordWriter(file) for file in files[len(indexes) :]]
        yield writers
        if made_with is not None:
            for writer, file in zip(writers, files, strict=False):
                file.write(writer.encode_index(made_with))


# The most bytes of a first record that are searched for a feature.
_MOST_BYTES = 1 << 24
# The version of the format of an index.
_INDEX_FORM = 1


@dataclasses.dataclass(frozen=True)
class Index:
    """The index of a TFRecord file, stored as a line of JSON, `ends`, and a CRC-32 of both.

    Attributes:
      ends: The end of each record in bytes, its checksum included: int64 [records].
      made_with: The description of the records.
    """

    ends: np.ndarray
    made_with: Mapping[str, Any]


def encode_index(index: Index) -> bytes:
    """Returns the bytes of an index, which are deterministic."""
    head = {"form": _INDEX_FORM, "records": len(index.ends), "made_with": index.made_with}
    content = json.dumps(head, sort_keys=True).encode() + b"\n" + index.ends.astype("<i8").tobytes()
    return content + struct.pack("<I", zlib.crc32(content))


def decode_index(content: bytes) -> Index:
    """Returns the index in bytes of `encode_index`.

    Raises:
      ValueError: where it is damaged, or of another version.
    """
    if len(content) < 4 or zlib.crc32(content[:-4]) != struct.unpack("<I", content[-4:])[0]:
        raise ValueError("its checksum must be that of its content.")
    head, _, ends = content[:-4].partition(b"\n")
    values = parse_json(head)
    form = values.get("form") if isinstance(values, dict) else None
    if form != _INDEX_FORM:
        raise ValueError(f"its form must be {_INDEX_FORM}. Received {form!r}.")
    index = Index(np.frombuffer(ends, "<i8"), values.get("made_with"))
    if not isinstance(index.made_with, dict):
        raise ValueError("it must describe how the records were made.")
    # The sign is checked first, so that no difference overflows.
    if np.any(index.ends < 0) or np.any(
        np.diff(index.ends, prepend=0) < RECORD_HEADER + RECORD_FOOTER
    ):
        raise ValueError("its records must follow each other.")
    return index


def read_index(path: str) -> Index | None:
    """Returns the index beside a TFRecord file; None where it is missing or unreadable."""
    place = index_path(path)
    if not is_file(place):
        logger.debug("There is no %s.", place)
        return None
    try:
        return decode_index(read_file(place))
    except (OSError, ValueError) as error:
        logger.warning("%s is not used, for it cannot be read: %s", place, error)
        return None


def fits(index: Index, path: str) -> bool:
    """Returns whether an index fits a TFRecord file: its size, and three records' lengths.

    Only the headers of the first, the middle and the last record are read.
    """
    ends = index.ends
    if file_size(path) != (int(ends[-1]) if len(ends) else 0):
        return False
    with os_errors(path), open_file(path) as file:
        for number in sorted({0, len(ends) // 2, len(ends) - 1} if len(ends) else ()):
            start = int(ends[number - 1]) if number else 0
            file.seek(start)
            length = int(ends[number]) - start - RECORD_HEADER - RECORD_FOOTER
            if file.read(RECORD_HEADER) != record_header(length):
                return False
    return True


def leave_index(path: str, ends: np.ndarray) -> None:
    """Writes an index without a description, so that the next run need not read the records.

    An index with a description is not replaced, since its records may come back. A folder that
    cannot be written is no error.

    Args:
      path: The TFRecord file.
      ends: As in `Index`.
    """
    there = read_index(path)
    if there is not None and there.made_with:
        logger.info(
            "%s stays, for it describes other records. If these are gone for good, delete it, so "
            "that the next start need not read all of %s.",
            index_path(path),
            path,
        )
        return
    try:
        with replace_files([index_path(path)]) as (file,):
            file.write(encode_index(Index(ends, {})))
    except OSError as error:
        logger.info(
            "%s is not written, so the next start reads the records again: %s",
            index_path(path),
            error,
        )


def read_description(path: str) -> Mapping[str, Any]:
    """Returns the description in the index of a file, or {}."""
    index = read_index(path)
    return index.made_with if index is not None and fits(index, path) else {}


def has_feature(path: str, name: str) -> bool:
    """Returns whether a file is a TFRecord file whose first record has a feature."""
    with os_errors(path), open_file(path) as file:
        head = file.read(RECORD_HEADER)
        length = int.from_bytes(head[:8], "little")
        if head != record_header(length):
            return False
        return _named(name) in file.read(min(length, _MOST_BYTES))


def encode_example(features: Mapping[str, Sequence[int] | Sequence[float]]) -> bytes:
    """Returns a serialized `tf.train.Example` of lists of integers or floats."""
    return encode_examples({name: np.asarray([values]) for name, values in features.items()})[0]


def encode_examples(features: Mapping[str, np.ndarray]) -> list[bytes]:
    """Returns a serialized `tf.train.Example` for each row.

    The bytes are those of `SerializeToString(deterministic=True)`.

    Args:
      features: Integers, booleans or floats [B, L] by name; L may differ between names.
    """
    # Protobuf's order of names, in which `label` comes after `label_ids`.
    names = sorted(features, key=lambda name: name.encode() + b"\xff")
    columns = [_encode_entries(name, features[name]) for name in names]
    bodies = [b"".join(entries) for entries in zip(*columns, strict=True)]
    return [b"\x0a" + _varint(len(body)) + body for body in bodies]


def _encode_entries(name: str, values: np.ndarray) -> list[bytes]:
    """Returns the map entry of a feature within `Features` for each row of values."""
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
    """Returns the bytes before `size` bytes of packed values in the map entry of a feature.

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
    """Returns a non-negative number as a varint of protobuf."""
    groups = []
    while value > 0x7F:
        groups.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*groups, value])


def _varints(values: np.ndarray) -> tuple[bytes, np.ndarray]:
    """Returns the varints of integers [B, L], and the ends of the rows in bytes."""
    unsigned = values
    if values.dtype.kind not in "bu":
        unsigned = values.astype(np.int64).view(np.uint64)
    largest = int(unsigned.max(initial=0))
    if largest < 1 << 7:
        rows, width = values.shape
        return unsigned.astype(np.uint8).tobytes(), np.arange(1, rows + 1) * width
    if largest < 1 << 32:
        unsigned = unsigned.astype(np.uint32)
    shifts = range(0, max(largest.bit_length(), 1), 7)
    groups = np.empty((*unsigned.shape, len(shifts)), np.uint8)
    present = np.ones(groups.shape, bool)
    sizes = np.full(len(values), values.shape[1])
    for index, shift in enumerate(shifts):
        groups[..., index] = (unsigned >> shift).astype(np.uint8) & 0x7F
        if index:
            continues = unsigned >= 1 << shift
            groups[..., index - 1] |= continues.view(np.uint8) << 7
            present[..., index] = continues
            sizes += np.count_nonzero(continues, axis=1)
    return groups[present].tobytes(), sizes.cumsum()

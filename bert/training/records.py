"""Records: their features, and TFRecord files with random access to them.

A record is a serialized `tf.train.Example` (original: run_pretraining.py). A damaged file is
refused when it is opened, a damaged record when it is read; changes to an open file are noticed.
"""

import dataclasses
import itertools
import os
import threading
import weakref
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from google.protobuf.message import DecodeError

from bert.files.machine import allow_open_files, in_threads
from bert.files.paths import file_size, index_path, is_remote, open_file, os_errors
from bert.files.records import (
    Index,
    decode_record,
    encode_examples,
    find_ends,
    fits,
    leave_index,
    read_index,
    write_records,
)
from bert.log import logger
from bert.options import Message, MessageError, Option

# Files that may be open besides those of records.
_OTHER_FILES = 256

# The option that sets the length of sequences.
LENGTH = Option("max_seq_length")


@dataclasses.dataclass(frozen=True)
class Feature:
    """The length, type and range of a feature of every record.

    Attributes:
      length: The number of values.
      length_source: The option or the text that sets the length, for messages.
      limit: Exclusive upper bound of the values, which are integers from 0; None for floats, which
        are finite.
      limit_source: The option, message or text that sets the limit, for messages.
      per_token: Whether the values belong to tokens, padding included, so that a batch may be
        trimmed to its longest sequence.
      rows: The number of equal rows that the values are split into, such as one for each choice;
        0 for none.
      is_weight: Whether the values are floats from 0.
    """

    length: int
    length_source: Option | str
    limit: int | None = None
    limit_source: Option | Message | str = ""
    per_token: bool = False
    rows: int = 0
    is_weight: bool = False

    @property
    def dtype(self) -> str:
        return "float32" if self.limit is None else "int64"

    @property
    def range(self) -> Message:
        """The range of the values, for messages."""
        if self.limit is None:
            return Message("finite" + " and at least 0" * self.is_weight)
        return Message("at least 0 and less than %d, as %s says", self.limit, self.limit_source)

    def allows(self, values: Any) -> Any:
        """Returns which values, of a tensor or an array, are in the range."""
        if self.limit is not None:
            return (values >= 0) & (values < self.limit)
        finite = tf.math.is_finite(values)
        return finite & (values >= 0) if self.is_weight else finite


def encoder_features(
    *, max_seq_length: int, vocab_size: int, type_vocab_size: int, rows: int = 0
) -> dict[str, Feature]:
    """Returns the features that the encoder reads; `rows` sequences each, unless 0."""

    def feature(limit: int, limit_source: Message | str) -> Feature:
        length = max_seq_length * max(rows, 1)
        return Feature(length, LENGTH, limit, limit_source, per_token=True, rows=rows)

    def size(name: str) -> Message:
        return Message("`%s` in %s", name, Option("bert_config_file"))

    return {
        "input_ids": feature(vocab_size, size("vocab_size")),
        "input_mask": feature(2, "a mask"),
        "segment_ids": feature(type_vocab_size, size("type_vocab_size")),
    }


def check_record(serialized: bytes, features: Mapping[str, Feature], place: str) -> None:
    """Checks that a record has the features.

    Raises:
      ValueError: naming the record, the feature, its values and the option to look at.
    """
    try:
        stored = tf.train.Example.FromString(serialized).features.feature
    except DecodeError as error:
        raise ValueError(
            f"{place} must be a tf.train.Example. It is {len(serialized)} bytes of something else."
        ) from error
    for name, feature in features.items():
        if name not in stored:
            raise ValueError(f"{place} must have the feature `{name}`. It has {sorted(stored)}.")
        kind = "float_list" if feature.limit is None else "int64_list"
        values = getattr(stored[name], kind).value
        if len(values) != feature.length:
            raise MessageError(
                "%s: `%s` must have %d values of %s, as %s says. It has %d; make the data and run "
                "with the same options.",
                place,
                name,
                feature.length,
                kind,
                feature.length_source,
                len(values),
            )
        array = np.asarray(values)
        wrong = array[~np.asarray(feature.allows(array))]
        if len(wrong):
            hint = "; was the data made for another model?" if feature.limit is not None else "."
            raise MessageError(
                "%s: `%s` must be %s. It has %s%s", place, name, feature.range, wrong[0], hint
            )


class Records:
    """The records of some TFRecord files, with random access.

    Args:
      files: Paths that `tf.io.gfile` reads.

    Raises:
      ValueError: where a file is damaged, or there is no record at all.
    """

    def __init__(self, files: Sequence[str]) -> None:
        # The files of evaluation stay open beside those of training.
        allow_open_files(2 * len(files) + _OTHER_FILES)
        self.files = []
        for file in in_threads(RecordFile, files):
            self.files.append(file)
            logger.info("%s holds %d records.", file.path, len(file))
        self._first = np.cumsum([0, *map(len, self.files)])
        if not len(self):
            raise ValueError(f"The input files must hold records. There are none in {[*files]}.")

    def leave_indexes(self) -> None:
        """Writes an index beside each file that has no valid one, for the next start."""
        for file in self.files:
            file.leave_index()

    def __len__(self) -> int:
        return int(self._first[-1])

    def __getitem__(self, number: int) -> bytes:
        return self.read([number])[0]

    def read(self, numbers: Sequence[int] | np.ndarray) -> list[bytes]:
        """Returns the records with these numbers; consecutive records are read at once.

        Raises:
          ValueError: where a record cannot be read or is damaged.
        """
        if not len(numbers):
            return []
        wanted, places = np.unique(numbers, return_inverse=True)
        files = np.searchsorted(self._first, wanted, side="right") - 1
        cuts = np.flatnonzero((np.diff(wanted) > 1) | (np.diff(files) > 0)) + 1
        first = np.concatenate([[0], cuts])
        inside = wanted - self._first[files]
        ranges = zip(
            [self.files[index] for index in files[first].tolist()],
            inside[first].tolist(),
            (inside[np.append(cuts, len(wanted)) - 1] + 1).tolist(),
            strict=True,
        )
        # A remote file system takes most of the time until it begins to answer.
        waits = any(is_remote(file.path) for file in self.files)
        apply = in_threads if waits else map
        read = apply(lambda part: part[0].read(*part[1:]), ranges)
        records = list(itertools.chain.from_iterable(read))
        return [records[place] for place in places.tolist()]

    def place(self, number: int) -> str:
        """Returns the place of a record for messages; records of a file count from 0."""
        index = int(np.searchsorted(self._first, number, side="right")) - 1
        return f"Record {number - self._first[index]} of {self.files[index].path!r}"

    def check_first(self, features: Mapping[str, Feature]) -> None:
        """Checks the first record of every file."""
        self.check(self._first[:-1][np.diff(self._first) > 0], features)

    def check(self, numbers: np.ndarray, features: Mapping[str, Feature]) -> None:
        """Checks some records, as `check_record`."""
        for number, record in zip(numbers.tolist(), self.read(numbers), strict=True):
            check_record(record, features, self.place(number))


_REMEDY = "Restore it, or make it again; then the same command, unless it overwrites, resumes."


class RecordFile:
    """The records of a file; 4 bytes of memory each, 8 in files of more than 4 GB.

    With a valid index beside the file, opening reads the index alone. Without it, the complete file
    is read once, to find and check the records. Remote files are read by range.

    Args:
      path: A path that `tf.io.gfile` reads.

    Raises:
      ValueError: where the file cannot be read, or is damaged.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._lock = threading.Lock()
        try:
            # Not mapped into memory, where a truncated file would end the process. A remote file is
            # opened for each read, since TensorFlow buffers 512 KB of each open one.
            self._file: Any = None if is_remote(path) else open(path, "rb", buffering=0)  # noqa: SIM115
            if self._file is not None:
                weakref.finalize(self, self._file.close)
            self._state = self._find_state()
            ends, self._lacks_index = _find_ends_of(path)
        except OSError as error:
            raise _unreadable(path, error) from error
        self._ends = ends.astype(np.uint32 if not len(ends) or ends[-1] < 1 << 32 else np.int64)

    def leave_index(self) -> None:
        """Writes an index beside the file where there is no valid one, for the next start."""
        if self._lacks_index:
            leave_index(self.path, self._ends.astype(np.int64))
            self._lacks_index = False

    def __len__(self) -> int:
        return len(self._ends)

    def __getitem__(self, number: int) -> bytes:
        return self.read(number, number + 1)[0]

    def read(self, first: int, end: int) -> list[bytes]:
        """Returns the records with the numbers in [first, end), read at once.

        Raises:
          ValueError: where they cannot be read, or are not as they were written.
        """
        bounds = [int(self._ends[first - 1]) if first else 0, *self._ends[first:end].tolist()]
        content = self._read_range(bounds[0], bounds[-1])
        records = []
        for number, (start, stop) in enumerate(itertools.pairwise(bounds), first):
            record = decode_record(content[start - bounds[0] : stop - bounds[0]])
            if record is None:
                raise ValueError(
                    f"Record {number} of {self.path!r} must be as its checksums say. It is damaged "
                    f"between the bytes {start} and {stop}, or {index_path(self.path)!r} is the "
                    f"index of another file and is to be deleted. {_REMEDY}"
                )
            records.append(record)
        return records

    def _read_range(self, start: int, stop: int) -> bytes:
        try:
            if self._file is None:
                with os_errors(self.path), open_file(self.path) as file:
                    file.seek(start)
                    return file.read(stop - start)
            with self._lock:
                self._file.seek(start)
                content = self._file.read(stop - start)
            state = self._find_state()
        except OSError as error:
            raise _unreadable(self.path, error) from error
        if state == self._state:
            return content
        self._check_again(state)
        return self._read_range(start, stop)

    def _find_state(self) -> tuple[int, int] | None:
        """Returns the size and time of the last change of a local file, None of a remote one."""
        if self._file is None:
            return None
        status = os.fstat(self._file.fileno())
        return status.st_size, status.st_mtime_ns

    def _check_again(self, state: tuple[int, int] | None) -> None:
        """Checks a file that was written to since it was opened.

        Raises:
          ValueError: where it is damaged, or holds other records.
        """
        try:
            ends = _scan(self.path)
        except ValueError as error:
            raise ValueError(f"It was written to while it was read. {error} {_REMEDY}") from error
        if not np.array_equal(ends, self._ends):
            raise ValueError(
                f"{self.path!r} must stay as it is while it is read. It had {len(self)} records "
                f"and has others now, {len(ends)}. {_REMEDY}"
            )
        logger.warning(
            "%s was written to while it was read. It is complete, and its records have the same "
            "lengths as before, so reading continues.",
            self.path,
        )
        self._state = state


def _unreadable(path: str, error: OSError) -> ValueError:
    reason = getattr(error, "strerror", None) or str(error)
    return ValueError(f"{path!r} must be a file that can be read. Received: {reason}.")


def _find_ends_of(path: str) -> tuple[np.ndarray, bool]:
    """Returns the byte offset of the end of each record, and whether a valid index is missing.

    Raises:
      ValueError: where the file is damaged.
    """
    index = read_index(path)
    if index is not None and fits(index, path):
        return index.ends, False
    ends = _scan(path)
    if index is not None:
        _check_uncut(path, ends, index)
    return ends, True


def _scan(path: str) -> np.ndarray:
    """Reads a complete file and returns the byte offset of the end of each record.

    Raises:
      ValueError: where it is damaged.
    """
    ends = find_ends(path)
    end, size = int(ends[-1]) if len(ends) else 0, file_size(path)
    if end != size:
        raise ValueError(
            f"{path!r} must be a whole, uncompressed TFRecord file. It has {size} bytes, but after "
            f"{len(ends)} records, at byte {end}, it is damaged or truncated."
        )
    return ends


def _check_uncut(path: str, ends: np.ndarray, index: Index) -> None:
    """Checks that a file does not lack the last records of its index.

    Raises:
      ValueError: where it does.
    """
    if len(ends) < len(index.ends) and np.array_equal(ends, index.ends[: len(ends)]):
        raise ValueError(
            f"{path!r} must hold all {len(index.ends)} records that were written. It has the first "
            f"{len(ends)} and is truncated after them. Copy or make it again; if it is meant to be "
            f"shorter, delete {index_path(path)!r}."
        )
    logger.info("%s is not the file that %s was written for.", path, index_path(path))


def write_examples(path: str, arrays: Mapping[str, np.ndarray]) -> None:
    """Writes one record per row of the arrays, [N, ...] each, to a TFRecord file."""
    rows = {name: values.reshape(len(values), -1) for name, values in arrays.items()}
    count = len(rows["input_ids"])
    with write_records([path]) as (writer,):
        for start in range(0, count, 1000):
            part = {name: values[start : start + 1000] for name, values in rows.items()}
            for record in encode_examples(part):
                writer.write(record)

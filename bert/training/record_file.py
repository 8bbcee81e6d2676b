"""A TFRecord file with random access to its records.

A damaged file is refused when it is opened, a damaged record when it is read; changes to the file
while it is open are noticed.
"""

import itertools
import os
import threading
import weakref
from typing import Any

import numpy as np

from bert.files.paths import file_size, index_path, is_remote, open_file, os_errors
from bert.files.records import (
    Index,
    decode_record,
    find_ends,
    fits,
    leave_index,
    read_index,
)
from bert.log import logger

_REMEDY = "Restore it, or make it again; then the same command resumes."


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

"""A TFRecord file in which each record is reached by its number.

What is wrong with the file is told when it is opened, and when it changes while it is read.
"""

import os
import re
import shutil
import tempfile
import threading
import weakref
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging

from bert.files.paths import index_path
from bert.files.places import is_remote
from bert.files.records import RECORD_FOOTER, RECORD_HEADER, read_index


class RecordFile:
    """The records of a file, of which 8 bytes each are kept in memory.

    Opening reads the whole file once and checks its checksums; where `write_records` has left an
    index beside it, also that no record is missing. A file that is not local is copied to a
    temporary folder first.

    Args:
      path: That `tf.io.gfile` reads.

    Attributes:
      path: As given.
      made_with: What the index says of how the records were made, {} where there is none.

    Raises:
      ValueError: where the file cannot be read, or is not whole.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._lock = threading.Lock()
        try:
            self._local = self._copy() if is_remote(path) else path
            # Read, and not mapped into memory: there, a file that is cut ends the process.
            self._file = open(self._local, "rb", buffering=0)  # noqa: SIM115
            weakref.finalize(self, self._file.close)
            self._state = self._find_state()
        except (OSError, tf.errors.OpError) as error:
            raise _unreadable(path, error) from error
        self._ends = _find_ends(self._local, path)
        self.made_with = _check_index(path, self._ends)

    def _copy(self) -> str:
        folder = tempfile.mkdtemp(prefix="bert-records-")
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        copy = os.path.join(folder, os.path.basename(self.path))
        tf.io.gfile.copy(self.path, copy)
        return copy

    def __len__(self) -> int:
        return len(self._ends)

    def __getitem__(self, number: int) -> bytes:
        start = int(self._ends[number - 1]) if number else 0
        size = int(self._ends[number]) - start - RECORD_HEADER - RECORD_FOOTER
        try:
            with self._lock:
                self._file.seek(start + RECORD_HEADER)
                record = self._file.read(size)
            state = self._find_state()
        except OSError as error:
            raise _unreadable(self.path, error) from error
        if state == self._state:
            return record
        self._check_again(state)
        return self[number]

    def _find_state(self) -> tuple[int, int]:
        status = os.fstat(self._file.fileno())
        return status.st_size, status.st_mtime_ns

    def _check_again(self, state: tuple[int, int]) -> None:
        """Checks a file that was written to since it was opened.

        Raises:
          ValueError: where it is not whole, or holds other records.
        """
        remedy = "Restore it, or make it again; then the same command goes on."
        try:
            ends = _find_ends(self._local, self.path)
        except ValueError as error:
            raise ValueError(f"It was written to while it was read. {error} {remedy}") from error
        if not np.array_equal(ends, self._ends):
            raise ValueError(
                f"{self.path!r} must stay as it is while it is read. It had {len(self)} records "
                f"and has others now, {len(ends)}. {remedy}"
            )
        logging.warning(
            "%s was written to while it was read. It is whole, and its records have the lengths "
            "that they had, so reading goes on.",
            self.path,
        )
        self._state = state


def _unreadable(path: str, error: Exception) -> ValueError:
    reason = getattr(error, "strerror", None) or getattr(error, "message", None) or str(error)
    # TensorFlow adds the operation that failed.
    reason = re.sub(r"^\{\{.*?\}\} ?| \[Op:.*", "", reason)
    return ValueError(f"{path!r} must be a file that can be read. Received: {reason}.")


# Records whose lengths are asked for at once.
_AT_ONCE = 4096


def _find_ends(local: str, path: str) -> np.ndarray:
    """Returns the offset in bytes at which each record ends, its checksum included.

    Raises:
      ValueError: naming `path`, where the file at `local` cannot be read, or is damaged.
    """
    chunks = [np.zeros(0, np.int64)]
    # What is whole before the damage, in the last of these batches, is counted one by one.
    for batch_size in (_AT_ONCE, 1):
        records = tf.data.TFRecordDataset(local).skip(sum(map(len, chunks)))
        try:
            for lengths in records.map(tf.strings.length).batch(batch_size):
                chunks.append(lengths.numpy().astype(np.int64))
            break
        except (tf.errors.DataLossError, tf.errors.OutOfRangeError):
            continue
        except tf.errors.OpError as error:
            raise _unreadable(path, error) from error
    ends = np.cumsum(np.concatenate(chunks) + RECORD_HEADER + RECORD_FOOTER)
    # TensorFlow takes a header that is cut short for the end of the file, so sizes are compared.
    end, size = int(ends[-1]) if len(ends) else 0, os.path.getsize(local)
    if end != size:
        raise ValueError(
            f"{path!r} must be a whole, uncompressed TFRecord file. It has {size} bytes, but after "
            f"{len(ends)} records, at byte {end}, it is damaged or cut short."
        )
    return ends


def _check_index(path: str, ends: np.ndarray) -> Mapping[str, Any]:
    """Checks that a file holds all records that were written; returns how these were made.

    Raises:
      ValueError: where the last ones are missing.
    """
    index = read_index(path)
    if index is None:
        return {}
    if np.array_equal(ends, index.ends):
        return index.made_with
    if np.array_equal(ends, index.ends[: len(ends)]):
        raise ValueError(
            f"{path!r} must hold all {len(index.ends)} records that were written. It has the first "
            f"{len(ends)} and is cut behind them. Copy or make it again; if it is meant to be "
            f"shorter, delete {index_path(path)!r}."
        )
    logging.info("%s is not the file that %s was written for.", path, index_path(path))
    return {}

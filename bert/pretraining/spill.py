"""Tokenized documents and drawn instances on disk, for data larger than memory."""

import io
import os
import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, overload

import numpy as np

from bert.files.paths import open_file
from bert.pretraining.corpus import Found
from bert.pretraining.draws import part_of

# An instance before the document of its second segment is read. Positions are numbers of tokens
# among all tokens.
SEED = np.dtype(
    [
        ("key", np.uint64),
        ("a_start", np.int64),
        ("a_size", np.uint32),
        # The number of tokens of the text that follows.
        ("size", np.uint32),
        ("target", np.uint32),
        ("is_random_next", np.bool_),
        ("b_document", np.int64),
    ]
)

# The names of all files that this module writes.
FILES = re.compile(r"ids|ends|firsts|seeds-\d+")


class Spill:
    """Documents in files of a folder: written once, then read at any position by any process.

    As in `corpus.Documents`, the bounds of a document are the end of the sentence before it and the
    ends of its own sentences.

    Args:
      folder: The local folder of the files.
      dtype: The type of the ids.
    """

    def __init__(self, folder: str, dtype: np.dtype) -> None:
        self._folder = folder
        self._dtypes = {"ids": dtype, "ends": np.dtype(np.int64), "firsts": np.dtype(np.int64)}
        self._sizes = {name: dtype.itemsize for name, dtype in self._dtypes.items()}
        self._files: dict[str, Any] = {}

    def __getstate__(self) -> dict[str, Any]:
        # Each process opens the files itself.
        return {**vars(self), "_files": {}}

    def __enter__(self) -> "Spill":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the files; reading opens them again."""
        for file in self._files.values():
            file.close()
        self._files.clear()

    def _place(self, name: str) -> str:
        return os.path.join(self._folder, name)

    def _write(self, name: str, values: Any) -> None:
        if name not in self._files:
            self._files[name] = open_file(self._place(name), "wb")
        self._files[name].write(np.asarray(values, self._dtypes[name]).tobytes())

    def begin(self) -> None:
        """Starts writing."""
        self._write("ends", [0])

    def add(self, ids: np.ndarray, found: Found) -> None:
        """Writes the documents of some lines."""
        self._write("ids", ids)
        self._write("ends", found.ends)
        self._write("firsts", found.firsts)

    def finish(self, num_sentences: int) -> None:
        """Ends writing."""
        self._write("firsts", [num_sentences])
        self.close()

    def _read(self, name: str, start: int, stop: int) -> bytes:
        file = self._files.get(name)
        if file is None:
            # Without a buffer, for reads are seldom of adjacent bytes.
            file = self._files[name] = io.FileIO(self._place(name))
        size = self._sizes[name]
        file.seek(start * size)
        count = (stop - start) * size
        content = file.read(count)
        # A system reads 2 GiB at once, and no more.
        while len(content) < count and (more := file.read(count - len(content))):
            content += more
        return content

    def ids(self, start: int, stop: int) -> np.ndarray:
        """Returns the ids of tokens."""
        return np.frombuffer(self._read("ids", start, stop), self._dtypes["ids"])

    def bounds(self, first: int, stop: int) -> Sequence[int]:
        """Returns where sentences `first` to `stop` - 1 begin, and where the last of them ends."""
        return memoryview(self._read("ends", first, stop + 1)).cast("q")

    def firsts(self, start: int, stop: int) -> np.ndarray:
        """Returns the first sentence of each document, and the one after the last document."""
        return np.frombuffer(self._read("firsts", start, stop + 1), np.int64)

    def document(self, number: int) -> "SpilledBounds":
        """Returns the bounds of a document, which are read on access."""
        first, stop = memoryview(self._read("firsts", number, number + 2)).cast("q")
        return SpilledBounds(self, first, stop)


class SpilledBounds(Sequence[int]):
    """Where the sentences of a document begin, and where the last ends."""

    def __init__(self, spill: Spill, first: int, stop: int) -> None:
        self._spill = spill
        self._first, self._stop = first, stop

    def __len__(self) -> int:
        return self._stop + 1 - self._first

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[int]: ...
    def __getitem__(self, index: int | slice) -> int | Sequence[int]:
        if isinstance(index, slice):
            start, stop, _ = index.indices(len(self))
            return self._spill.bounds(self._first + start, self._first + stop - 1)
        index = range(len(self))[index]
        return self[index : index + 1][0]


class SeedFiles:
    """Drawn instances on disk, a file for each range of the keys.

    Args:
      folder: The local folder of the files.
      num_files: The number of files; one at a time must fit into memory.
    """

    def __init__(self, folder: str, num_files: int) -> None:
        self._paths = [Path(folder, f"seeds-{number}") for number in range(num_files)]

    def add(self, seeds: np.ndarray) -> None:
        """Adds instances to their files."""
        numbers = part_of(seeds["key"], len(self._paths)).astype(np.int64)
        order = np.argsort(numbers, kind="stable")
        bounds = np.searchsorted(numbers[order], np.arange(len(self._paths) + 1))
        ordered = seeds[order]
        for path, (start, stop) in zip(self._paths, pairwise(bounds.tolist()), strict=True):
            if start < stop:
                with path.open("ab") as file:
                    file.write(ordered[start:stop].tobytes())

    def __iter__(self) -> Iterator[np.ndarray]:
        """Yields the instances of each file in the order of the keys; removes read files."""
        for path in self._paths:
            if path.exists():
                seeds = np.fromfile(path, SEED)
                yield seeds[np.argsort(seeds["key"], kind="stable")]
                path.unlink()

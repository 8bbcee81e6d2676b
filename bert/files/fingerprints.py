"""Fingerprints of the inputs of a run, to find out whether they are the same again."""

import functools
import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from absl import logging

from bert.files.paths import file_size, file_states, open_file, os_errors
from bert.files.processes import in_threads

# Of larger files, so many blocks at even distances are read. Trainings keep such digests: another
# rule would refuse to go on with those that have begun.
_WHOLE_BYTES = 1 << 26
_BLOCKS = 64
_BLOCK_BYTES = 1 << 16
# Characters of a value in a message.
_LENGTH_SHOWN = 80


def of_files(paths: Sequence[str]) -> str:
    """Returns a digest of the contents of files, in their order; not of their names.

    Of files beyond 64 MB it is of their size and 64 blocks, so that any size takes no time.
    """
    digest = hashlib.sha256()
    for part in map(_read, paths):
        digest.update(part)
    return digest.hexdigest()


def of_whole_files(paths: Sequence[str]) -> str:
    """Returns a digest of every byte of files, in their order; it takes as long as reading them."""
    return of_bytes(" ".join(in_threads(_of_whole_file, paths)).encode())


def _of_whole_file(path: str) -> str:
    with os_errors(path), open_file(path) as file:
        digest = hashlib.sha256()
        while block := file.read(_BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest()


class WatchedFiles(list[str]):
    """Paths of files that must hold the same bytes from now on until they are read.

    Attributes:
      states: The size and the time of the last change of each file before it was read.
    """

    def __init__(self, paths: Sequence[str]) -> None:
        super().__init__(paths)
        self.states = file_states(paths)
        self._digests: list[str] = []

    @classmethod
    def of(cls, paths: Sequence[str]) -> "WatchedFiles":
        """Returns `paths` itself where these files are watched already."""
        return paths if isinstance(paths, cls) else cls(paths)

    @functools.cached_property
    def digest(self) -> str:
        """The `of_whole_files` of the files, which are read once for it."""
        self._digests = [*in_threads(_of_whole_file, self)]
        self.check()
        return of_bytes(" ".join(self._digests).encode())

    def check(self) -> None:
        """Checks that the files are as they were.

        Of a file of which only the time has changed, the digest decides where it is known.

        Raises:
          ValueError: where a file was written to, and names it.
        """
        for number, (path, before, now) in enumerate(
            zip(self, self.states, file_states(self), strict=True)
        ):
            if before == now:
                continue
            change = "was written to since"
            if before[0] != now[0]:
                change = f"has {now[0]} now"
            elif self._digests:
                if _of_whole_file(path) == self._digests[number]:
                    logging.info("%s was touched while it was read. It holds the same.", path)
                    continue
                change = "holds others now"
            raise ValueError(
                f"{path!r} must stay as it is while it is read. It had {before[0]} bytes, and "
                f"{change}. Run the command again when it is complete."
            )


def _read(path: str) -> bytes:
    """Returns what of a file goes into the digest."""
    size = file_size(path)
    parts = [f"{size} ".encode()]
    with os_errors(path), open_file(path) as file:
        if size <= _WHOLE_BYTES:
            return b"".join([*parts, file.read()])
        for block in range(_BLOCKS):
            file.seek((size - _BLOCK_BYTES) * block // (_BLOCKS - 1))
            parts.append(file.read(_BLOCK_BYTES))
    return b"".join(parts)


def describe_differences(
    one: Mapping[str, Any], other: Mapping[str, Any], words: Mapping[str, str], joined_by: str
) -> str:
    """Returns which values of two descriptions differ, on one line.

    Args:
      one: Values by name; a name that is absent has the value None.
      other: The same for what it is compared with.
      words: What to say of some names instead of both values, such as digests.
      joined_by: Stands between both values.
    """
    names = [name for name in dict.fromkeys([*one, *other]) if one.get(name) != other.get(name)]
    return "; ".join(
        words.get(name)
        or f"`{_shorten(name)}` is {_shorten(one.get(name))}{joined_by}{_shorten(other.get(name))}"
        for name in names
    )


def _shorten(value: Any) -> str:
    """Returns a name as it is, and anything else as Python writes it, cut where it is long."""
    text = value if isinstance(value, str) and value.isidentifier() else repr(value)
    return text if len(text) <= _LENGTH_SHOWN else f"{text[:_LENGTH_SHOWN]}…"


def of_arrays(arrays: Mapping[str, Any]) -> str:
    """Returns a digest of NumPy arrays by name, whatever the order of the names."""
    digest = hashlib.sha256()
    for name, values in sorted(arrays.items()):
        digest.update(repr((name, values.shape, values.dtype.str)).encode())
        digest.update(values.tobytes())
    return digest.hexdigest()


def of_bytes(content: bytes) -> str:
    """Returns the digest of what a file holds."""
    return hashlib.sha256(content).hexdigest()

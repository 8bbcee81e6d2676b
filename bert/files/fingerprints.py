"""Fingerprints of the inputs of a run, by which runs are compared."""

import functools
import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from bert.files.machine import in_threads
from bert.files.paths import file_size, file_states, open_file, os_errors
from bert.log import logger

# Of larger files, this many blocks at even distances are read. Another rule would change digests
# that training runs have stored, which could not resume then.
_WHOLE_BYTES = 1 << 26
_BLOCKS = 64
_BLOCK_BYTES = 1 << 16
# Characters of a value in a message.
_LENGTH_SHOWN = 80


def of_files(paths: Sequence[str]) -> str:
    """Returns a digest of the contents of files in order, whatever their names.

    The digest of a file beyond 64 MB is of its size and 64 blocks, which takes little time.
    """
    digest = hashlib.sha256()
    for part in map(_read, paths):
        digest.update(part)
    return digest.hexdigest()


def of_whole_files(paths: Sequence[str]) -> str:
    """Returns a digest of every byte of files, in their order."""
    return of_bytes(" ".join(in_threads(_of_whole_file, paths)).encode())


def _of_whole_file(path: str) -> str:
    with os_errors(path), open_file(path) as file:
        digest = hashlib.sha256()
        while block := file.read(_BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest()


class WatchedFiles(list[str]):
    """Paths of files whose content must not change before they are read.

    Attributes:
      states: The size and the modification time of each file when it was first seen.
    """

    def __init__(self, paths: Sequence[str]) -> None:
        super().__init__(paths)
        self.states = file_states(paths)
        self._digests: list[str] = []

    @functools.cached_property
    def digest(self) -> str:
        """The `of_whole_files` of the files, which are read once."""
        self._digests = [*in_threads(_of_whole_file, self)]
        self.check()
        return of_bytes(" ".join(self._digests).encode())

    def check(self) -> None:
        """Raises `ValueError` where a file has changed.

        If only the modification time of a file has changed, its digest decides where it is known.
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
                    logger.info("%s was touched while it was read. Its content is the same.", path)
                    continue
                change = "has other content now"
            raise ValueError(
                f"{path!r} must stay as it is while it is read. It had {before[0]} bytes, and "
                f"{change}. Run the command again when it is complete."
            )


def _read(path: str) -> bytes:
    """Returns the part of a file that goes into the digest."""
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
    """Returns the values in which two descriptions differ, on one line.

    Args:
      one: Values by name; an absent name has the value None.
      other: The values to compare them with.
      words: The text for names whose values are not shown, such as digests.
      joined_by: The text between both values.
    """
    names = [name for name in dict.fromkeys([*one, *other]) if one.get(name) != other.get(name)]
    return "; ".join(
        words.get(name)
        or f"`{_shorten(name)}` is {_shorten(one.get(name))}{joined_by}{_shorten(other.get(name))}"
        for name in names
    )


def _shorten(value: Any) -> str:
    """Returns an identifier as it is, and the `repr` of any other value, truncated."""
    text = value if isinstance(value, str) and value.isidentifier() else repr(value)
    return text if len(text) <= _LENGTH_SHOWN else f"{text[:_LENGTH_SHOWN]}…"


def of_arrays(arrays: Mapping[str, Any]) -> str:
    """Returns a digest of NumPy arrays by name, in any order of names."""
    digest = hashlib.sha256()
    for name, values in sorted(arrays.items()):
        digest.update(repr((name, values.shape, values.dtype.str)).encode())
        digest.update(values.tobytes())
    return digest.hexdigest()


def of_bytes(content: bytes) -> str:
    """Returns the digest of the content of a file."""
    return hashlib.sha256(content).hexdigest()

"""Fingerprints of what a run is made of, to tell whether it is the same again."""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from bert.files.paths import file_size, open_file, os_errors

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
    digests = []
    for path in paths:
        with os_errors(path), open_file(path) as file:
            digest = hashlib.sha256()
            while block := file.read(_BLOCK_BYTES):
                digest.update(block)
        digests.append(digest.hexdigest())
    return of_bytes(" ".join(digests).encode())


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

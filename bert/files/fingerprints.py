"""Fingerprints of what a run is made of, to tell whether it is the same again."""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from bert.files.paths import file_size, open_file

# Of larger files, so many blocks at even distances are read.
_WHOLE_BYTES = 1 << 26
_BLOCKS = 64
_BLOCK_BYTES = 1 << 16


def of_files(paths: Sequence[str]) -> str:
    """Returns a digest of the contents of files, in their order; not of their names.

    Of files beyond 64 MB it is of their size and 64 blocks, so that any size takes no time.
    """
    digest = hashlib.sha256()
    for path in paths:
        size = file_size(path)
        digest.update(f"{size} ".encode())
        with open_file(path) as file:
            if size <= _WHOLE_BYTES:
                digest.update(file.read())
                continue
            for block in range(_BLOCKS):
                file.seek((size - _BLOCK_BYTES) * block // (_BLOCKS - 1))
                digest.update(file.read(_BLOCK_BYTES))
    return digest.hexdigest()


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

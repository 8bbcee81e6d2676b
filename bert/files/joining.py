"""Files that several runs have made of one input, as one file: the same bytes as a single run's."""

import contextlib
import shutil
import zipfile
from collections.abc import Iterator, Sequence
from typing import IO, BinaryIO

import numpy as np

from bert.files import parquet
from bert.files.paths import open_file
from bert.files.vectors import Array, write_npy, write_npz

# Forms of files that are not joined line by line, by the endings of their names.
ARRAYS = ("npy", "npz", "parquet")

# Of an archive of vectors, what tells how they were made rather than what they are.
_OF_ALL = ("layers", "pooling")
_BLOCK_BYTES = 1 << 24


def join(paths: Sequence[str], form: str, file: BinaryIO) -> None:
    """Joins files in their order: lines, or where the form is one of `ARRAYS`, rows.

    Raises:
      ValueError: where one does not go with the first.
    """
    if form == "npy":
        write_npy(file, "values", _join_arrays([_Stored(path) for path in paths]))
    elif form == "npz":
        write_npz(file, {name: _join_named(paths, name) for name in _names(paths)})
    elif form == "parquet":
        parquet.join_parquet(paths, file)
    else:
        for path in paths:
            with open_file(path) as part:
                shutil.copyfileobj(part, file, _BLOCK_BYTES)


class _Stored:
    """An array in a file of NumPy's, or in an archive under a name."""

    def __init__(self, path: str, name: str | None = None) -> None:
        self.path = path
        self.name = name
        with self._open() as (_, shape, dtype):
            self.shape, self.dtype = shape, dtype

    @contextlib.contextmanager
    def _open(self) -> Iterator[tuple[IO[bytes], tuple[int, ...], np.dtype]]:
        """Opens it behind its header."""
        with contextlib.ExitStack() as stack:
            file: IO[bytes] = stack.enter_context(open_file(self.path))
            try:
                if self.name:
                    archive = stack.enter_context(zipfile.ZipFile(file))
                    file = stack.enter_context(archive.open(f"{self.name}.npy"))
                np.lib.format.read_magic(file)
                shape, _, dtype = np.lib.format.read_array_header_1_0(file)
            except (ValueError, zipfile.BadZipFile) as error:
                raise ValueError(
                    f"{self.path!r} must be a whole file of NumPy's. {error}"
                ) from error
            yield file, shape, dtype

    def blocks(self) -> Iterator[np.ndarray]:
        """Yields its rows; of texts, which are wide and compressed, one at a time."""
        with self._open() as (file, shape, dtype):
            row_bytes = dtype.itemsize * int(np.prod(shape[1:]))
            step = 1 if dtype.kind == "U" else max(_BLOCK_BYTES // row_bytes, 1)
            for start in range(0, shape[0], step):
                num_rows = min(step, shape[0] - start)
                values = np.frombuffer(file.read(num_rows * row_bytes), dtype)
                yield values.reshape(num_rows, *shape[1:])


def _names(paths: Sequence[str]) -> list[str]:
    """Returns the names in the archives, which are those of the first."""
    found: list[list[str]] = []
    for path in paths:
        try:
            with open_file(path) as file, zipfile.ZipFile(file) as archive:
                found.append([name.removesuffix(".npy") for name in archive.namelist()])
        except zipfile.BadZipFile as error:
            raise ValueError(f"{path!r} must be a whole archive of NumPy's. {error}.") from error
        if found[-1] != found[0]:
            raise ValueError(
                f"{path!r} must hold {found[0]}, as {paths[0]!r}. It holds {found[-1]}."
            )
    return found[0]


def _join_named(paths: Sequence[str], name: str) -> Array:
    parts = [_Stored(path, name) for path in paths]
    if name not in _OF_ALL:
        return _join_arrays(parts)
    values = [[each.tolist() for each in part.blocks()] for part in parts]
    for part, each in zip(parts, values, strict=True):
        if each != values[0]:
            raise ValueError(
                f"{part.path!r} must have the {name} {values[0]}, as {parts[0].path!r}. It has "
                f"{each}."
            )
    return parts[0].shape, parts[0].dtype.str, parts[0].blocks()


def _join_arrays(parts: Sequence[_Stored]) -> Array:
    first = parts[0]
    for part in parts:
        if (part.shape[1:], part.dtype.kind) != (first.shape[1:], first.dtype.kind):
            raise ValueError(
                f"{part.path!r} must have rows of {first.shape[1:]}, as {first.path!r}. They are "
                f"of {part.shape[1:]}."
            )
    # Texts are as wide as the longest of all.
    dtype = max((part.dtype for part in parts), key=lambda each: each.itemsize)
    shape = (sum(part.shape[0] for part in parts), *first.shape[1:])
    return shape, dtype.str, (block for part in parts for block in part.blocks())

"""Parquet files, with pyarrow, which is an extra of the package: `pip install 'bert[parquet]'`."""

import datetime
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, BinaryIO

from bert.files.paths import open_file

ENDING = ".parquet"


def _pyarrow(path: str) -> Any:
    try:
        import pyarrow  # noqa: PLC0415
        import pyarrow.parquet  # noqa: PLC0415
    except ImportError:
        raise ValueError(
            f"The package pyarrow must be there to read or write Parquet, such as {path!r}. "
            "Install it with `pip install pyarrow`, or with this package as `pip install "
            "'.[parquet]'`; or give a .csv, .tsv or .jsonl."
        ) from None
    return pyarrow


def check_installed(path: str) -> None:
    """Raises `ValueError` where the file at `path` could not be read or written."""
    _pyarrow(path)


def read_parquet(path: str) -> Iterator[dict[str, Any]]:
    """Yields the rows, each with the values by the names of the columns, as JSON has them.

    Raises:
      ValueError: where pyarrow is missing, or the file is no Parquet.
    """
    for batch in _read(path).to_batches():
        for row in batch.to_pylist():
            yield {name: _plain(value) for name, value in row.items()}


def _read(path: str) -> Any:
    pyarrow = _pyarrow(path)
    with open_file(path) as file:
        try:
            return pyarrow.parquet.read_table(pyarrow.PythonFile(file, mode="r"))
        except pyarrow.ArrowException as error:
            raise ValueError(f"{path!r} must be a whole Parquet file. {error}.") from error


def write_parquet(
    file: BinaryIO, rows: Sequence[Mapping[str, Any]], input_file: str, start: int = 0
) -> None:
    """Writes rows; the columns that they have of another Parquet file stay as they are there.

    Args:
      file: Open for bytes.
      rows: All rows, of which some may lack a column.
      input_file: The file that they may be of.
      start: Where the first one stands there.
    """
    pyarrow = _pyarrow(input_file)
    names = list(dict.fromkeys(name for row in rows for name in row))
    values = {name: [row.get(name) for row in rows] for name in names}
    kept = _read(input_file) if input_file.lower().endswith(ENDING) else None
    if kept is not None:
        kept = kept.slice(start, len(rows))
        values = {name: each for name, each in values.items() if name not in kept.column_names}
    try:
        arrays = {name: pyarrow.array(each) for name, each in values.items()}
    except pyarrow.ArrowException as error:
        raise ValueError(
            f"A column of Parquet must have values of one kind. {error}. Write JSON lines instead."
        ) from None
    table = pyarrow.table(arrays) if kept is None else kept
    for name in values if kept is not None else ():
        table = table.append_column(name, arrays[name])
    pyarrow.parquet.write_table(table, file)


def join_parquet(paths: Sequence[str], file: BinaryIO) -> None:
    """Writes the rows of several files as one, with the columns of all of them.

    Of whole numbers in one and others in another, all become of the wider kind, as in a single run.
    """
    pyarrow = _pyarrow(paths[0])
    try:
        table = pyarrow.concat_tables(map(_read, paths), promote_options="permissive")
    except pyarrow.ArrowException as error:
        raise ValueError(f"Parts must have columns of the same kinds. {error}.") from None
    pyarrow.parquet.write_table(table.combine_chunks(), file)


def _plain(value: Any) -> Any:
    """Returns a value as JSON has it."""
    if isinstance(value, Mapping):
        return {str(name): _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)

"""Parquet files, with pyarrow, which is the extra `parquet` of the package."""

import contextlib
import datetime
import io
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, BinaryIO

from bert.files.paths import is_remote, open_file, read_file

ENDING = ".parquet"

_ROWS_AT_ONCE = 1024


def _pyarrow(path: str) -> Any:
    try:
        import pyarrow  # noqa: PLC0415
        import pyarrow.parquet  # noqa: PLC0415
    except ImportError:
        raise ValueError(
            f"The package pyarrow must be installed to read or write Parquet, such as {path!r}. "
            "Install it with `pip install pyarrow`, or with this package as `pip install "
            "'.[parquet]'`; or give a .csv, .tsv or .jsonl."
        ) from None
    return pyarrow


def check_installed(path: str) -> None:
    """Raises `ValueError` where pyarrow is not installed; `path` is for the message."""
    _pyarrow(path)


def read_parquet(path: str) -> Iterator[dict[str, Any]]:
    """Yields each row as a dictionary of values that JSON can hold, by the names of the columns.

    Raises:
      ValueError: where pyarrow is not installed, or the file is no Parquet.
    """
    with _open(path) as file:
        for batch in file.iter_batches(_ROWS_AT_ONCE):
            names = batch.schema.names
            columns = [
                _values(path, name, column)
                for name, column in zip(names, batch.columns, strict=True)
            ]
            for values in zip(*columns, strict=True):
                yield dict(zip(names, map(_plain, values), strict=True))


def describe_parquet(path: str) -> tuple[list[str], int]:
    """Returns the names of the columns and the number of rows; raises as `read_parquet`."""
    with _open(path) as file:
        return file.schema_arrow.names, file.metadata.num_rows


@contextlib.contextmanager
def _open(path: str) -> Iterator[Any]:
    pyarrow = _pyarrow(path)
    # A file of TensorFlow lacks methods that pyarrow needs.
    opened = io.BytesIO(read_file(path)) if is_remote(path) else open_file(path)
    with opened as file:
        try:
            parquet = pyarrow.parquet.ParquetFile(pyarrow.PythonFile(file, mode="r"))
            names = parquet.schema_arrow.names
            if again := sorted({name for name in names if names.count(name) > 1}):
                raise ValueError(
                    f"{path!r} must have columns of different names. Received {again} more than "
                    "once."
                )
            yield parquet
        except (pyarrow.ArrowException, OSError) as error:
            raise ValueError(f"{path!r} must be a complete Parquet file. {error}.") from error


def _values(path: str, name: str, column: Any) -> list[Any]:
    """Returns the values of a column; texts for times in units that Python lacks."""
    pyarrow = _pyarrow(path)
    try:
        return column.to_pylist()
    except (pyarrow.ArrowException, ValueError, OverflowError, LookupError) as error:
        try:
            return column.cast(pyarrow.string()).to_pylist()
        except pyarrow.ArrowException:
            raise ValueError(
                f"{path!r}: the column {name!r}, of {column.type}, must have values that can be "
                f"read. {error}. Leave it out, or make texts of it."
            ) from error


def _read(path: str) -> Any:
    with _open(path) as file:
        return file.read()


def check_columns(rows: Iterable[Mapping[str, Any]], input_file: str) -> None:
    """Checks that rows can be written as Parquet.

    Raises:
      ValueError: where a column has values of several types, or of a type that Parquet lacks.
    """
    rows = [*rows]
    names = dict.fromkeys(name for row in rows for name in row)
    _make_table({name: [row.get(name) for row in rows] for name in names}, input_file)


def _make_table(
    columns: Mapping[str, Sequence[Any]], input_file: str, texts: Collection[str] = ()
) -> Any:
    pyarrow = _pyarrow(input_file)
    arrays = {}
    for name, values in columns.items():
        try:
            arrays[name] = pyarrow.array(values, pyarrow.string() if name in texts else None)
            # Parquet lacks some types of pyarrow, such as objects without keys.
            column = pyarrow.table({name: arrays[name].slice(0, 0)})
            pyarrow.parquet.write_table(column, io.BytesIO())
        except (pyarrow.ArrowException, OverflowError) as error:
            raise ValueError(
                f"A column of Parquet must have values of one kind. The column {name!r} of "
                f"{input_file!r} cannot be written: {error}. Write JSON lines instead."
            ) from None
    return pyarrow.table(arrays)


def _write(table: Any, file: BinaryIO) -> None:
    # A file of TensorFlow lacks methods that pyarrow needs.
    content = io.BytesIO()
    _pyarrow(ENDING).parquet.write_table(table, content)
    file.write(content.getvalue())


def write_parquet(
    file: BinaryIO,
    rows: Iterable[Mapping[str, Any]],
    names: Sequence[str],
    input_file: str,
    start: int | None = None,
    texts: Collection[str] = (),
) -> None:
    """Writes rows; columns from a Parquet file of inputs are copied with their types.

    Args:
      file: A binary file.
      rows: All rows; some may lack a column.
      names: The names of the columns.
      input_file: The file of the inputs.
      start: The number of the first row in that file if it is Parquet, or None.
      texts: The names of columns of texts, for columns without any value.
    """
    source = None if start is None else _read(input_file)
    added = [name for name in names if source is None or name not in source.column_names]
    values: dict[str, list[Any]] = {name: [] for name in added}
    count = 0
    for row in rows:
        count += 1
        for name in added:
            values[name].append(row.get(name))
    table = _make_table(values, input_file, texts)
    if source is not None:
        source = source.slice(start, count)
        for name in added:
            source = source.append_column(name, table[name])
        table = source
    _write(table, file)


def join_parquet(paths: Sequence[str], file: BinaryIO) -> None:
    """Writes the rows of several files to one, with the columns of all.

    Where the types of a column differ, as integers and floats, the wider type is written.
    """
    pyarrow = _pyarrow(paths[0])
    try:
        table = pyarrow.concat_tables(map(_read, paths), promote_options="permissive")
    except pyarrow.ArrowException as error:
        raise ValueError(f"Parts must have columns of the same kinds. {error}.") from None
    _write(table.combine_chunks(), file)


def _plain(value: Any) -> Any:
    """Returns a value in a type that JSON has."""
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)

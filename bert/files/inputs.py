"""Reads the inputs of a model from a file or standard input: rows with all of their values."""

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from bert.files import parquet
from bert.files.rows import Row, RowReader, format_of
from bert.files.tables import Table, is_number
from bert.options import Message, Option, OptionError


class Input(NamedTuple):
    """An input of a model, or the reason why a row is no input.

    Attributes:
      line: The line of the row, from 1.
      done: The share of the file that has been read, up to 1.
      cells: All values of the row by name; None if it cannot be read.
      row: The fields of the task; None if they cannot be read.
      problem: The reason.
    """

    line: int
    done: float
    cells: dict[str, Any] | None
    row: dict[str, Any] | None
    problem: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Columns:
    """The columns with the fields of a task.

    Attributes:
      fields: The names of the fields in the task.
      given: The value of the option `columns`, or None.
      known: The columns of the training files, by the names of options, as in `task.json`.
      derive: Returns the fields of a row in another format of the task, from the place and the
        values of the row; None where there is no other format.
    """

    fields: tuple[str, ...]
    given: str | None = None
    known: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    derive: Callable[[str, Mapping[str, Any]], dict[str, Any]] | None = None

    @property
    def choices(self) -> list[list[str]]:
        """The names of columns that a file may have, the likeliest names first."""
        if self.given:
            names = self.given.split(",")
            if len(names) != len(self.fields):
                must = f"name {len(self.fields)} columns, for {', '.join(self.fields)}"
                raise OptionError("columns", must, self.given)
            return [names]
        trained = [self.known.get(f"{field}_column") for field in self.fields]
        return [*[trained] * all(trained), list(self.fields)]  # type: ignore[list-item]

    def find(self, names: Sequence[str]) -> list[str] | None:
        """Returns the first choice whose names are all in `names`, or None."""
        return next((choice for choice in self.choices if {*choice} <= {*names}), None)


@dataclasses.dataclass(frozen=True)
class Inputs:
    """The inputs of a file.

    Attributes:
      names: The names of the columns; empty if every row has its own.
      rows: The inputs.
      separator: The separator of columns, or the default one.
      has_mark: Whether the file is a table that begins with a byte order mark.
    """

    names: list[str]
    rows: "Rows"
    separator: str = ","
    has_mark: bool = False


def kind_of(path: str, separator: str | None = None) -> str:
    """Returns the format of a file, one of `rows.FORMATS`; with a separator, it is a table."""
    found = format_of(path)
    return "csv" if found == "lines" and separator is not None else found


def read_inputs(
    path: str, kind: str | None, columns: Columns, separator: str | None = None
) -> Inputs:
    """Returns the inputs of a file.

    Args:
      path: The file; - for standard input.
      kind: One of `rows.FORMATS`; None for the format of the extension.
      columns: The columns with the fields of the task.
      separator: As for `rows.find_separator`; None for the separator of the training files.

    Raises:
      ValueError: where the columns are not in the header.
    """
    kind = kind or kind_of(path, separator)
    # An error of the option comes first.
    assert columns.choices
    if separator is None and kind == "csv":
        separator = columns.known.get("separator")
    reader = RowReader(path, kind, separator if kind in ("tsv", "csv") else None)
    if kind in ("tsv", "csv"):
        return _read_table(reader, columns)
    if kind == "parquet":
        names, _ = parquet.describe_parquet(path)
        return Inputs(names, Rows(reader, iter(reader), _object_parser(columns)))
    if kind == "jsonl":
        return Inputs([], Rows(reader, iter(reader), _object_parser(columns)))
    fields = columns.fields
    return Inputs(list(fields), Rows(reader, iter(reader), _line_parser(fields)))


def names_of(inputs: Iterable[Input]) -> list[str]:
    """Returns the names of all values of inputs."""
    return list(dict.fromkeys(name for query in inputs for name in query.cells or ()))


# Returns all values of a row, and the fields of the task, from its place and its cells.
Parser = Callable[[str, Any], tuple[dict[str, Any], dict[str, Any]]]


class Rows(Iterator[Input]):
    """The inputs of a file, which can be read once.

    Args:
      reader: The reader of the file.
      rows: The rows to parse.
      parse: Returns the values of a row.
    """

    def __init__(self, reader: RowReader, rows: Iterator[Row], parse: Parser) -> None:
        self._reader = reader
        self._rows = rows
        self._parse = parse

    def count(self) -> int:
        """Reads the remaining rows without parsing, and returns their number."""
        return sum(1 for _ in self._rows)

    def only(self, places: range) -> None:
        """Limits the inputs to the rows of a range, counted from the next row."""
        self._rows = itertools.islice(self._rows, places.start, places.stop)

    def __next__(self) -> Input:
        line, value = next(self._rows)
        done = self._reader.done
        try:
            if isinstance(value, ValueError):
                raise value
            cells, row = self._parse(f"{self._reader.path}:{line}", value)
        except ValueError as error:
            return Input(line, done, None, None, str(error))
        return Input(line, done, cells, row)


def _line_parser(fields: tuple[str, ...]) -> Parser:
    def parse(place: str, line: str) -> tuple[dict[str, Any], dict[str, Any]]:
        cells = line.split("\t") if len(fields) > 1 else [line]
        if len(cells) != len(fields):
            raise ValueError(
                f"{place}: must have {', '.join(fields)}, with a tab between them. "
                f"Received {line!r}."
            )
        row = dict(zip(fields, cells, strict=True))
        return row, row

    return parse


def _object_parser(columns: Columns) -> Parser:
    default = columns.choices[-1]

    def parse(place: str, value: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        if isinstance(value, str) and len(default) == 1:
            value = {default[0]: value}
        names = columns.find(list(value)) if isinstance(value, Mapping) else None
        if names is None and columns.derive and isinstance(value, Mapping):
            return dict(value), columns.derive(place, value)
        if names is None:
            raise ValueError(
                f"{place}: must be an object with the keys {default}. Received {value!r:.200}."
            )
        row = zip(columns.fields, names, strict=True)
        return dict(value), {field: value[name] for field, name in row}

    return parse


def _read_table(reader: RowReader, columns: Columns) -> Inputs:
    # A header may be blank, which is then the error.
    reader.keeps_blank = reader.is_plain_tsv
    table = Table(reader)
    # In a single column of TSV, a blank line is a row with a blank text.
    reader.keeps_blank = reader.is_plain_tsv and len(table.names) == 1
    names, rows = _unique(table.names), table.rows
    likeliest = columns.choices[0]
    positions: list[int] | None = None
    if found := columns.find(table.names):
        positions = [table.names.index(name) for name in found if table.find(name) is not None]
    elif columns.derive and not columns.given:
        pass
    elif all(map(is_number, likeliest)):
        positions = list(map(int, likeliest))
        if not columns.known.get("has_header"):
            # The first row is an input.
            names = [f"column_{position}" for position in range(len(names))]
            rows = itertools.chain([table.first], rows)
    else:
        trained = f" (or {likeliest}, as in training)" if len(columns.choices) > 1 else ""
        usual = "Name the columns of the texts with %s, or give %s if there is no header."
        raise table.error(
            f"the header must name {columns.choices[-1]}{trained}",
            lambda cells: columns.find(cells) is not None,
            Message(usual, Option("columns"), Option("input_format", "lines")),
        )
    parse_object = _object_parser(columns)

    def parse(place: str, cells: list[str]) -> tuple[dict[str, Any], dict[str, Any]]:
        table.check_width(place, cells)
        named = dict(zip(names, cells, strict=False))
        if positions is None:
            return parse_object(place, named)
        if len(cells) <= max(positions):
            raise ValueError(
                f"{place}: has {len(cells)} columns, needs {max(positions) + 1}. Received {cells}."
            )
        return named, {
            field: cells[position]
            for field, position in zip(columns.fields, positions, strict=True)
        }

    return Inputs(names, Rows(reader, rows, parse), reader.separator, reader.has_mark)


def _unique(header: Sequence[str]) -> list[str]:
    """Returns the names, with a free number after a name that is there already."""
    names: list[str] = []
    for name in header:
        count = header[: len(names)].count(name)
        numbered = (f"{name}_{number}" for number in itertools.count(count + 1))
        taken = {*header, *names}
        names.append(next(new for new in numbered if new not in taken) if count else name)
    return names

"""What is asked in a file or on standard input: rows with all that they hold, one after another."""

import dataclasses
import functools
import itertools
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from absl import logging

from bert.files import parquet
from bert.files.json_text import parse_json
from bert.files.paths import file_size, read_lines
from bert.files.rows import (
    ESCAPED,
    BadRow,
    Row,
    check_line_end,
    check_unicode,
    decode_line,
    find_separator,
    format_of,
    name_cells,
    suggest_separator,
    try_csv_rows,
)


class Input(NamedTuple):
    """What is asked in a row, or what is wrong with it.

    Attributes:
      line: Its number, from 1.
      done: What part of the inputs is read with it, up to 1.
      cells: All that it holds by name, None where it cannot be read.
      row: The fields of the task, None where they cannot be read.
      problem: Why not.
    """

    line: int
    done: float
    cells: dict[str, Any] | None
    row: dict[str, Any] | None
    problem: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Columns:
    """Where the values of a task stand.

    Attributes:
      fields: Their names in the task.
      given: What `--columns` says, or None.
      known: Those of the training's files, as `task.json` keeps them by the names of flags.
      derive: Makes the fields of a row that has them in another form of the task's, given its
        place; None where there is no other.
    """

    fields: tuple[str, ...]
    given: str | None = None
    known: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    derive: Callable[[str, Mapping[str, Any]], dict[str, Any]] | None = None

    @property
    def choices(self) -> list[list[str]]:
        """The names that they may have in a file, the likeliest ones first."""
        if self.given:
            names = self.given.split(",")
            if len(names) != len(self.fields):
                raise ValueError(
                    f"`--columns` must name {len(self.fields)} columns, for "
                    f"{', '.join(self.fields)}. Received {self.given!r}."
                )
            return [names]
        trained = [self.known.get(f"{field}_column") for field in self.fields]
        return [*[trained] * all(trained), list(self.fields)]  # type: ignore[list-item]

    def find(self, names: Sequence[str]) -> list[str] | None:
        """Returns the choice of which all are among some names, or None."""
        return next((each for each in self.choices if set(each) <= set(names)), None)


@dataclasses.dataclass(frozen=True)
class Inputs:
    """The inputs of a file.

    Attributes:
      names: Of the columns; empty where each row has its own.
      rows: The inputs.
      separator: What separates the columns of the file, or would if it had any.
    """

    names: list[str]
    rows: "Rows"
    separator: str = ","


def kind_of(path: str, separator: str | None = None) -> str:
    """Returns which of `tables.FORMATS` a file is of: with a separator, a table at any rate."""
    found = format_of(path)
    return "csv" if found == "lines" and separator is not None else found


def read_inputs(
    path: str, kind: str | None, columns: Columns, separator: str | None = None
) -> Inputs:
    """Returns the inputs of a file.

    Args:
      path: The file; - for standard input.
      kind: One of `tables.FORMATS`; None for what its ending says.
      columns: Where the values of the task stand.
      separator: As for `tables.find_separator`; None for that of the training's files.

    Raises:
      ValueError: where the columns are not in the header.
    """
    kind = kind or kind_of(path, separator)
    # What is wrong with --columns is said first.
    assert columns.choices
    if kind in ("tsv", "csv"):
        return _read_table(path, kind, columns, separator)
    if kind == "parquet":
        names, count = parquet.describe_parquet(path)
        found = enumerate(parquet.read_parquet(path), start=1)
        numbered = ((number, number / count, row) for number, row in found)
        return Inputs(names, Rows(numbered, path, _object_parser(columns)))
    if kind == "jsonl":
        rows = _skip_blank(path, _lines(path), lambda number, line: _is_blank(path, number, line))
        return Inputs([], Rows(rows, path, _json_parser(columns)))
    return Inputs(list(columns.fields), Rows(_lines(path), path, _line_parser(columns.fields)))


def names_of(inputs: Iterable[Input]) -> list[str]:
    """Returns the names of all that inputs hold."""
    return list(dict.fromkeys(name for each in inputs for name in each.cells or ()))


# Number, part of the inputs that is read, and what stands there, or why it cannot be read.
Numbered = Iterator[tuple[int, float, Any]]
# Returns all that a row holds, and the fields of the task.
Parser = Callable[[str, Any], tuple[dict[str, Any], dict[str, Any]]]


def _lines(path: str) -> Numbered:
    """Yields number, part that is read, and bytes of each line."""
    if path == "-":
        for number, line in enumerate(sys.stdin.buffer, start=1):
            yield number, 0.0, line
        return
    size = max(file_size(path), 1)
    for number, (line, count) in enumerate(read_lines(path), start=1):
        check_line_end(path, number, line)
        yield number, count / size, line


def _text(path: str, number: int, line: Any) -> Any:
    if isinstance(line, ValueError):
        raise line
    return decode_line(path, number, line) if isinstance(line, bytes) else line


class Rows(Iterator[Input]):
    """Inputs, to be read once.

    Args:
      lines: As they stand in the file.
      path: Of the file.
      parse: Makes inputs of them.
    """

    def __init__(self, lines: Numbered, path: str, parse: Parser) -> None:
        self._lines = lines
        self._path = path
        self._parse = parse

    def count(self) -> int:
        """Returns how many are left, which it reads without looking into them."""
        return sum(1 for _ in self._lines)

    def only(self, places: range) -> None:
        """Passes over the others, counted from the next one, without looking into them."""
        self._lines = itertools.islice(self._lines, places.start, places.stop)

    def __next__(self) -> Input:
        number, done, line = next(self._lines)
        place = f"{self._path}:{number}"
        try:
            cells, row = self._parse(place, _text(self._path, number, line))
            check_unicode(place, cells)
        except ValueError as error:
            return Input(number, done, None, None, str(error))
        return Input(number, done, cells, row)


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


def _json_parser(columns: Columns) -> Parser:
    parse_object = _object_parser(columns)
    default = columns.choices[-1]

    def parse(place: str, line: str) -> tuple[dict[str, Any], dict[str, Any]]:
        try:
            value = parse_json(line)
        except ValueError as error:
            raise ValueError(f"{place}: must be JSON. Received {line!r:.200} ({error}).") from None
        if isinstance(value, str) and len(default) == 1:
            value = {default[0]: value}
        return parse_object(place, value)

    return parse


def _object_parser(columns: Columns) -> Parser:
    default = columns.choices[-1]

    def parse(place: str, value: Any) -> tuple[dict[str, Any], dict[str, Any]]:
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


def _row_parser(names: list[str], columns: Columns) -> Parser:
    """Returns a parser of rows below a header in which other columns are named."""
    parse_object = _object_parser(columns)

    def parse(place: str, line: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        return parse_object(place, name_cells(place, names, _split(line)))

    return parse


def _read_table(path: str, kind: str, columns: Columns, separator: str | None) -> Inputs:
    if separator is None and kind == "csv":
        separator = columns.known.get("separator")
    found = find_separator(f"table.{kind}", separator)
    rows = _lines(path) if kind == "tsv" and found == "\t" else _csv_cells(path, found)
    first = next(rows, None)
    if first is None:
        raise ValueError(f"{path!r} must hold a header and the rows of a table. It is empty.")
    cells = _split(_text(path, first[0], first[2]))
    if kind == "tsv" and found == "\t" and len(cells) > 1:
        # Of a single column, a blank line is a row with a blank text.
        rows = _skip_blank(path, rows, lambda number, line: _is_blank(path, number, line))
    if columns.derive and not columns.given and not columns.find(cells):
        header = _unique([cell.strip() for cell in cells])
        return Inputs(header, Rows(rows, path, _row_parser(header, columns)), found)
    names, places = _locate(path, cells, columns, found)
    if names is None:
        # The first row is an input as all others.
        names = [f"column_{place}" for place in range(len(cells))]
        rows = itertools.chain([first], rows)
    parsed = Rows(rows, path, _cells_parser(names, places, columns.fields))
    return Inputs(names, parsed, found)


def _skip_blank(path: str, rows: Numbered, is_blank: Callable[[int, Any], bool]) -> Numbered:
    """Yields the rows that are not blank, and warns of the others."""
    num_blank = 0
    for number, done, row in rows:
        if is_blank(number, row):
            num_blank += 1
        else:
            yield number, done, row
    if num_blank:
        _tell_blank(path, num_blank)


@functools.lru_cache
def _tell_blank(path: str, count: int) -> None:
    # Once, though a file is read for its names, and to be counted, too.
    logging.warning("%s: skipped %d blank lines.", path, count)


def _is_blank(path: str, number: int, line: bytes) -> bool:
    # What is no text is told as such.
    text = decode_line(path, number, line, ESCAPED)
    return not text or text.isspace()


def _csv_cells(path: str, separator: str) -> Numbered:
    """Returns the rows of CSV that are not blank."""
    done = [0.0]

    def texts() -> Iterator[tuple[int, str]]:
        for number, part, line in _lines(path):
            done[0] = part
            yield number, decode_line(path, number, line, ESCAPED)

    def rows() -> Numbered:
        for row in try_csv_rows(path, texts(), separator):
            if isinstance(row, BadRow):
                yield row.line, done[0], row.error
            else:
                yield row.line, done[0], _unescape(path, row)

    def is_blank(_: int, row: list[str] | ValueError) -> bool:
        return isinstance(row, list) and all(not cell or cell.isspace() for cell in row)

    return _skip_blank(path, rows(), is_blank)


def _unescape(path: str, row: Row) -> list[str] | ValueError:
    """Returns the cells of a row, or why one of them is no text."""
    try:
        decode_line(path, row.line, "\n".join(row.cells).encode("utf-8", ESCAPED))
    except ValueError as error:
        return error
    return row.cells


def _split(cells: Any) -> list[str]:
    return cells.split("\t") if isinstance(cells, str) else cells


def _locate(
    path: str, first: list[str], columns: Columns, separator: str
) -> tuple[list[str] | None, list[int]]:
    """Returns the names in the header, None where there is none, and the places of the fields."""
    header = [cell.strip() for cell in first]
    if names := columns.find(header):
        if again := [name for name in names if header.count(name) > 1]:
            raise ValueError(
                f"{path}:1: the header must have {again[0]!r} once, for the text is in that "
                f"column. Received {header}."
            )
        return _unique(header), [header.index(name) for name in names]
    likeliest = columns.choices[0]
    if all(re.fullmatch("[0-9]+", name) for name in likeliest):
        places = [int(name) for name in likeliest]
        return _unique(header) if columns.known.get("has_header") else None, places
    missing = [name for name in columns.choices[-1] if name not in header]
    trained = f" (or {likeliest}, as in training)" if len(columns.choices) > 1 else ""
    hint = suggest_separator(
        separator.join(first), separator, lambda cells: columns.find(cells) is not None
    )
    raise ValueError(
        f"{path}:1: the header must name {missing}{trained}. Received {header}."
        + (
            hint
            or " Say with `--columns` which columns hold the texts, or with `--input_format=lines` "
            "that there is no header."
        )
    )


def _unique(header: Sequence[str]) -> list[str]:
    """Returns the names, where one is there again with a number behind it that is free."""
    names: list[str] = []
    for name in header:
        count = header[: len(names)].count(name)
        numbered = (f"{name}_{number}" for number in itertools.count(count + 1))
        taken = {*header, *names}
        names.append(next(each for each in numbered if each not in taken) if count else name)
    return names


def _cells_parser(names: list[str], places: list[int], fields: tuple[str, ...]) -> Parser:
    """Returns a parser of rows below a header."""

    def parse(place: str, line: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        cells = _split(line)
        named = name_cells(place, names, cells)
        if len(cells) <= max(places):
            raise ValueError(
                f"{place}: has {len(cells)} columns, needs {max(places) + 1}. Received {cells}."
            )
        row = zip(fields, places, strict=True)
        return named, {field: cells[index] for field, index in row}

    return parse

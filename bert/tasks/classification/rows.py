"""The rows of anyone's own files, of which the columns in use are kept.

Columns are found by their names in the header or, counted from 0, by numbers.
"""

import dataclasses
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from absl import logging

from bert.files.rows import (
    Row,
    check_width,
    ending_of,
    find_separator,
    is_table,
    read_objects,
    read_table,
    suggest_separator,
    why_width,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """What the files mean; each field has the name of a flag.

    Attributes:
      text_a_column: A name in the header, or a number from 0; so are the next three.
      id_column: What names examples in predictions. Without one, rows are counted.
      has_header: Without it, there is a header unless all columns are given as numbers.
      labels: All labels, in a sequence or separated by commas. Without them, those of the training
        file in alphabetical order, or in that of numbers where all are integers.
      separator: What separates the columns; None for tabs in a .tsv and commas in others. Where it
        is given, a file may have any ending.
      label_separator: What stands between the labels of a cell, for multi-label.
      metric: One of `examples.METRICS`.
    """

    task_type: str = "classification"
    text_a_column: str = "text"
    text_b_column: str | None = None
    label_column: str = "label"
    id_column: str | None = None
    has_header: bool | None = None
    separator: str | None = None
    labels: str | Sequence[str] | None = None
    label_separator: str = ","
    metric: str | None = None

    def __post_init__(self) -> None:
        given = self.columns
        if len(set(given.values())) < len(given) or not all(given.values()):
            raise ValueError(
                f"Columns must be names or numbers, each with one use. Received {given}."
            )
        if self.has_header is False and not all(map(is_index, given.values())):
            raise ValueError(
                "Columns must be numbers, counted from 0, where `has_header` is false. "
                f"Received {given}."
            )
        find_separator("", self.separator)
        if not self.label_separator:
            raise ValueError("`label_separator` must not be empty. Received ''.")

    @property
    def columns(self) -> dict[str, str]:
        """The columns in use, by the names of their flags."""
        names = ("text_a_column", "text_b_column", "label_column", "id_column")
        given = {name: getattr(self, name) for name in names}
        return {name: column for name, column in given.items() if column is not None}

    @property
    def expects_header(self) -> bool:
        """Whether the first row of a table names the columns."""
        if self.has_header is None:
            return not all(map(is_index, self.columns.values()))
        return self.has_header


def is_index(column: str) -> bool:
    """Returns whether a column is given by its number."""
    return re.fullmatch("[0-9]+", column) is not None


@dataclasses.dataclass(frozen=True, slots=True)
class Record:
    """The columns in use of one row, by the names of their flags; a label may be missing."""

    line: int
    cells: Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class File:
    """What is read of a file.

    Attributes:
      path: Where it is.
      header: Its first row, where that names the columns.
      records: The others.
    """

    path: str
    header: Record | None
    records: list[Record]

    def is_first(self, record: Record) -> bool:
        """Returns whether a record stands where a header would."""
        return self.header is None and record is self.records[0]


def read_file(path: str, options: Options, *, needs_label: bool = True) -> File:
    """Returns the columns in use of a file.

    Args:
      path: Its ending says what it is.
      options: What it means.
      needs_label: Whether every row must have a label.

    Raises:
      ValueError: naming file and line, where a column is missing or there is no row.
    """
    if not is_table(path):
        header, records = None, _read_objects(path, options, needs_label)
    else:
        rows = read_table(path, options.separator)
        header, records = _read_cells(path, rows, options, needs_label)
    if ending_of(path) == ".tsv" and find_separator(path, options.separator) == "\t":
        _warn_of_quotes(path, records)
    if not records:
        raise ValueError(f"{path!r} must hold examples. Received a file without any.")
    return File(path, header, records)


def _warn_of_quotes(path: str, records: Sequence[Record]) -> None:
    texts = [(record.line, record.cells["text_a_column"]) for record in records]
    quoted = [line for line, text in texts if len(text) > 1 and text[0] == text[-1] == '"']
    if quoted:
        logging.warning(
            "%s: %d texts stand within quotes, which are text in a .tsv; the first is on line %d. "
            "If they are not meant so, make it a .csv.",
            path,
            len(quoted),
            quoted[0],
        )


def _read_objects(path: str, options: Options, needs_label: bool) -> list[Record]:
    records = []
    for line, cells in read_objects(path):
        used = {}
        for flag, key in options.columns.items():
            if key in cells:
                used[flag] = cells[key]
                if flag != "label_column":
                    used[flag] = _text_of(path, line, key, cells[key])
            elif flag != "label_column" or needs_label:
                raise ValueError(
                    f"{path}:{line}: must have the key {key!r}, the `{flag}`. "
                    f"Received the keys {list(cells)}."
                )
        records.append(Record(line, used))
    return records


def is_not_finite(value: Any) -> bool:
    """Returns whether it is NaN or infinite, as some programs write what is missing."""
    return isinstance(value, float) and not math.isfinite(value)


def _text_of(path: str, line: int, key: str, value: Any) -> str:
    if is_not_finite(value) or isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError(f"{path}:{line}: {key!r} must be a string. Received {shorten(value)}.")
    return str(value)


def _read_cells(
    path: str, rows: list[Row], options: Options, needs_label: bool
) -> tuple[Record | None, list[Record]]:
    """Returns the header, if there is one, and the other rows."""
    if not rows:
        return None, []
    places = _locate(path, rows[0], options, needs_label)
    width = len(rows[0].cells)
    for row in rows:
        count = len(row.cells)
        if count != width:
            raise ValueError(
                f"{path}:{row.line}: has {count} column{'s' * (count != 1)}, needs {width} "
                f"as line {rows[0].line} has. Received {shorten(row.cells)}. "
                f"{_name_separator(path, options)} {why_width(count < width)}"
            )
    records = [
        Record(row.line, {flag: row.cells[place] for flag, place in places.items()}) for row in rows
    ]
    return (records[0], records[1:]) if options.expects_header else (None, records)


def _locate(path: str, first: Row, options: Options, needs_label: bool) -> dict[str, int]:
    """Returns the place of each column."""
    header = [cell.strip() for cell in first.cells] if options.expects_header else []
    places = {}
    for flag, column in options.columns.items():
        if header.count(column) > 1:
            raise ValueError(
                f"{path}:{first.line}: the header must have {column!r} once. Received {header}."
            )
        is_optional = flag == "label_column" and not needs_label
        if column in header:
            places[flag] = header.index(column)
        elif is_index(column) and int(column) < len(first.cells):
            places[flag] = int(column)
        elif is_index(column) and not is_optional:
            reason = f", as `{flag}` is {column}, counted from 0"
            check_width(path, first, int(column) + 1, reason, _suggest(path, first, options))
        elif not is_optional:
            raise ValueError(
                f"{path}:{first.line}: the header must have the column {column!r}, the `{flag}`. "
                f"Received {shorten(header)}. {_name_separator(path, options)}"
                f"{_suggest(path, first, options) or _hint(flag, column, header)}"
            )
    return places


def _hint(flag: str, column: str, header: Sequence[str]) -> str:
    """Returns what to do about a column that a header has not, as a sentence."""
    if header[0].casefold().startswith("sep="):
        return " Remove this line, which is Excel's, and give the separator with `--separator`."
    for name in header:
        if name.casefold() == column.casefold():
            return f" Did you mean `--{flag}={name}`?"
    return " If the file has no header, give columns as numbers from 0."


def _name_separator(path: str, options: Options) -> str:
    separator = find_separator(path, options.separator)
    named = {",": "commas", "\t": "tabs"}.get(separator, repr(separator))
    return f"Columns are separated by {named} here."


def _suggest(path: str, first: Row, options: Options) -> str:
    """Returns the separator that the first row of a file looks as if it had, as a sentence."""
    columns = [column for flag, column in options.columns.items() if flag != "label_column"]

    def fits(cells: list[str]) -> bool:
        return all(
            column in cells or (is_index(column) and int(column) < len(cells)) for column in columns
        )

    separator = find_separator(path, options.separator)
    return suggest_separator(separator.join(first.cells), separator, fits)


def shorten(value: Any) -> str:
    """Returns as much of a value as a message has room for."""
    shown = repr(value)
    return shown if len(shown) <= 80 else shown[:80] + "..."

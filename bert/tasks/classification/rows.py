"""The rows of anyone's own files, of which the columns in use are kept.

Columns are found by their names in the header or, counted from 0, by numbers.
"""

import dataclasses
import math
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
from bert.options import Message, MessageError, Option
from bert.tasks.classification.options import ClassificationData, is_index


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


def read_file(path: str, data: ClassificationData, *, needs_label: bool = True) -> File:
    """Returns the columns in use of a file.

    Args:
      path: Its ending says what it is.
      data: What the columns are.
      needs_label: Whether every row must have a label.

    Raises:
      ValueError: naming file and line, where a column is missing or there is no row.
    """
    if not is_table(path):
        header, records = None, _read_objects(path, data, needs_label)
    else:
        rows = read_table(path, data.separator)
        header, records = _read_cells(path, rows, data, needs_label)
    if ending_of(path) == ".tsv" and find_separator(path, data.separator) == "\t":
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


def _read_objects(path: str, data: ClassificationData, needs_label: bool) -> list[Record]:
    records = []
    for line, cells in read_objects(path):
        used = {}
        for flag, key in data.columns.items():
            if key in cells:
                used[flag] = cells[key]
                if flag != "label_column":
                    used[flag] = _text_of(path, line, key, cells[key])
            elif flag != "label_column" or needs_label:
                raise MessageError(
                    "%s:%d: must have the key %r, the %s. Received the keys %s.",
                    *(path, line, key, Option(flag), list(cells)),
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
    path: str, rows: list[Row], data: ClassificationData, needs_label: bool
) -> tuple[Record | None, list[Record]]:
    """Returns the header, if there is one, and the other rows."""
    if not rows:
        return None, []
    places = _locate(path, rows[0], data, needs_label)
    width = len(rows[0].cells)
    for row in rows:
        count = len(row.cells)
        if count != width:
            raise ValueError(
                f"{path}:{row.line}: has {count} column{'s' * (count != 1)}, needs {width} "
                f"as line {rows[0].line} has. Received {shorten(row.cells)}. "
                f"{_name_separator(path, data)} {why_width(count < width)}"
            )
    records = [
        Record(row.line, {flag: row.cells[place] for flag, place in places.items()}) for row in rows
    ]
    return (records[0], records[1:]) if data.expects_header else (None, records)


def _locate(path: str, first: Row, data: ClassificationData, needs_label: bool) -> dict[str, int]:
    """Returns the place of each column."""
    header = [cell.strip() for cell in first.cells] if data.expects_header else []
    places = {}
    for flag, column in data.columns.items():
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
            check_width(path, first, int(column) + 1, reason, _suggest(path, first, data))
        elif not is_optional:
            raise MessageError(
                "%s:%d: the header must have the column %r, the %s. Received %s. %s%s",
                *(path, first.line, column, Option(flag), shorten(header)),
                _name_separator(path, data),
                _suggest(path, first, data) or _hint(flag, column, header),
            )
    return places


def _hint(flag: str, column: str, header: Sequence[str]) -> Message:
    """Returns a remedy for a column that is missing from a header, as a sentence."""
    if header[0].casefold().startswith("sep="):
        return Message(
            " Remove this line, which is Excel's, and give the separator with %s.",
            Option("separator"),
        )
    for name in header:
        if name.casefold() == column.casefold():
            return Message(" Did you mean %s?", Option(flag, name))
    return Message(" If the file has no header, give columns as numbers from 0.")


def _name_separator(path: str, data: ClassificationData) -> str:
    separator = find_separator(path, data.separator)
    named = {",": "commas", "\t": "tabs"}.get(separator, repr(separator))
    return f"Columns are separated by {named} here."


def _suggest(path: str, first: Row, data: ClassificationData) -> str | Message:
    """Returns the separator that the first row of a file looks as if it had, as a sentence."""
    columns = [column for flag, column in data.columns.items() if flag != "label_column"]

    def fits(cells: list[str]) -> bool:
        return all(
            column in cells or (is_index(column) and int(column) < len(cells)) for column in columns
        )

    separator = find_separator(path, data.separator)
    return suggest_separator(separator.join(first.cells), separator, fits)


def shorten(value: Any) -> str:
    """Returns as much of a value as a message has room for."""
    shown = repr(value)
    return shown if len(shown) <= 80 else shown[:80] + "..."

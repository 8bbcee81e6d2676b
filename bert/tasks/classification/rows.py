"""Rows of a classifier's own files, of which only the columns in use are loaded."""

import dataclasses
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from bert.files.rows import (
    Row,
    Table,
    ending_of,
    find_separator,
    is_number,
    is_table,
    load_rows,
    open_table,
    shorten,
)
from bert.log import logger
from bert.options import Message, MessageError, Option, joined
from bert.tasks.classification.options import ClassificationData


@dataclasses.dataclass(frozen=True)
class File:
    """The rows of a file.

    Attributes:
      path: The path.
      header: The first row, where it names the columns.
      rows: The other rows. Each has the columns in use, by the names of their options; a label may
        be missing.
      skipped: The lines of rows that are left out.
    """

    path: str
    header: Row | None
    rows: list[Row]
    skipped: Collection[int] = ()

    def numbered(self) -> Iterator[tuple[int, Row]]:
        """Yields the rows that are not skipped, each with its number in the file, from 1."""
        for number, row in enumerate(self.rows, start=1):
            if row.line not in self.skipped:
                yield number, row

    def is_first(self, row: Row) -> bool:
        """Returns whether a row is where a header would be."""
        return self.header is None and row is self.rows[0]


def read_file(path: str, data: ClassificationData, *, needs_label: bool = True) -> File:
    """Returns the columns in use of a file.

    Args:
      path: A file whose extension says its format.
      data: The columns, by name or number.
      needs_label: Whether every row must have a label.

    Raises:
      ValueError: naming file and line, where a column is missing or there is no row.
    """
    header = None
    if is_table(path):
        # Answers to a file of texts alone have their places only, which must not shift.
        table = open_table(path, data.separator).keep_blank_texts()
        positions = _find_columns(table, data, needs_label)
        rows = []
        for line, cells in (table.first, *table.rows):
            table.check_width(f"{path}:{line}", cells)
            used = {option: cells[position] for option, position in positions.items()}
            rows.append(Row(line, used))
        if data.expects_header:
            header, *rows = rows
    else:
        rows = _read_objects(path, data, needs_label)
    if ending_of(path) == ".tsv" and find_separator(path, data.separator) == "\t":
        _warn_of_quotes(path, rows)
    if not rows:
        raise ValueError(f"{path!r} must hold examples. Received a file without any.")
    return File(path, header, rows)


def _warn_of_quotes(path: str, rows: Sequence[Row]) -> None:
    texts = [(row.line, row.cells["text_a_column"]) for row in rows]
    quoted = [line for line, text in texts if len(text) > 1 and text[0] == text[-1] == '"']
    if quoted:
        logger.warning(
            "%s: %d texts are within quotes, which are text in a .tsv; the first is on line %d. "
            "If they are not meant so, make it a .csv.",
            path,
            len(quoted),
            quoted[0],
        )


def _read_objects(path: str, data: ClassificationData, needs_label: bool) -> list[Row]:
    objects, columns, rows = load_rows(path), data.columns, []
    # A label that only some rows lack is missing there, as null is.
    has_labels = any(columns.get("label_column") in cells for _, cells in objects)
    for line, cells in objects:
        used = {}
        for option, key in columns.items():
            if key in cells:
                used[option] = cells[key]
                if option != "label_column":
                    is_id = option == "id_column"
                    used[option] = _text_of(f"{path}:{line}: {key!r}", cells[key], is_id)
            elif option == "label_column" and (has_labels or not needs_label):
                used[option] = None
            else:
                raise MessageError(
                    "%s:%d: must have the key %r, the %s. Received the keys %s.",
                    path,
                    line,
                    key,
                    Option(option),
                    list(cells),
                )
        rows.append(Row(line, used))
    return rows


def is_not_finite(value: Any) -> bool:
    """Returns whether a value is NaN or infinite, which some programs write where none is."""
    return isinstance(value, float) and not math.isfinite(value)


def _text_of(place: str, value: Any, is_id: bool) -> str:
    """Returns a text, or an ID, which may be a number; `place` names the value in errors."""
    kinds = str | int | float if is_id else str
    if is_not_finite(value) or isinstance(value, bool) or not isinstance(value, kinds):
        kind = "a string or a number" if is_id else "a string"
        raise ValueError(f"{place} must be {kind}. Received {shorten(value)}.")
    return str(value)


def _find_columns(table: Table, data: ClassificationData, needs_label: bool) -> dict[str, int]:
    """Returns the position of each column by the name of its option."""
    positions, missing = {}, {}
    for option, column in data.columns.items():
        position = table.find(column) if data.expects_header else None
        if position is None and is_number(column) and int(column) < len(table.names):
            position = int(column)
        if position is not None:
            positions[option] = position
        elif option != "label_column" or needs_label:
            missing[option] = column
    if missing:
        raise _missing(table, data, missing)
    return positions


def _missing(table: Table, data: ClassificationData, missing: Mapping[str, str]) -> MessageError:
    """Returns the error of columns that are not there, by the names of their options."""
    texts = [column for name, column in data.columns.items() if name != "label_column"]

    def fits(cells: list[str]) -> bool:
        return all(text in cells or (is_number(text) and int(text) < len(cells)) for text in texts)

    for option, column in missing.items():
        if is_number(column):
            number = Message(
                "there must be a column %s, counted from 0, the %s", column, Option(option)
            )
            return table.error(number, fits)
    options = joined([*map(Option, missing)], " and ")
    own = "the name of yours or, if the file has no header, its number"
    if len(missing) > 1:
        own = "the names of yours or, if the file has no header, their numbers"
    remedy = Message(f"Give %s {own} from 0.", options)
    names = {name.casefold(): name for name in table.names}
    if meant := {o: names[c.casefold()] for o, c in missing.items() if c.casefold() in names}:
        remedy = Message("Did you mean %s?", joined([*map(Option, meant, meant.values())], " and "))
    noun = "column" if len(missing) == 1 else "columns"
    columns = " and ".join(map(repr, missing.values()))
    must = Message(f"the header must have the {noun} %s, the %s", columns, options)
    return table.error(must, fits, remedy)

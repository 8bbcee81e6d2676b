"""Tables: rows below a header whose columns are found by name, or by their number from 0."""

import itertools
import re
from collections.abc import Callable, Sequence
from typing import Any

from bert.files.rows import RowReader, checked, ending_of, suggest_separator
from bert.options import Message, MessageError, Option


class Table:
    """A table whose first row has been read; JSON lines and Parquet are tables of objects.

    Args:
      reader: The file.
      strict: Whether a row that cannot be read raises its `ValueError`, rather than yielding it.

    Attributes:
      first: The first row, a header or not.
      names: The names of the columns: the cells of the first row, without the spaces around them,
        or the keys of the first object.
      rows: The rows after the first, or all objects; they can be read once.

    Raises:
      ValueError: where there is no first row, or it cannot be read.
    """

    def __init__(self, reader: RowReader, *, strict: bool = False) -> None:
        self._reader = reader
        self.rows = checked(reader) if strict else iter(reader)
        first = next(self.rows, None)
        if first is None:
            found = "is empty" if reader.is_empty else "holds blank lines"
            raise ValueError(
                f"{reader.path!r} must hold a header and the rows of a table. It {found}."
            )
        if isinstance(first.cells, ValueError):
            raise first.cells
        self.first = first
        self._is_text = reader.form in ("tsv", "csv")
        if self._is_text:
            self.names = [cell.strip() for cell in first.cells]
        else:
            self.names = list(first.cells)
            self.rows = itertools.chain([first], self.rows)

    @property
    def _place(self) -> str:
        return f"{self._reader.path}:{self.first.line}"

    def find(self, name: str) -> int | None:
        """Returns the position of a column in the header, None where the header does not name it.

        Raises:
          ValueError: where the header names it more than once.
        """
        if self.names.count(name) > 1:
            raise ValueError(
                f"{self._place}: the header must have {name!r} once. Received {self.names}."
            )
        return self.names.index(name) if name in self.names else None

    def error(
        self,
        must: str | Message,
        fits: Callable[[list[str]], bool],
        remedy: str | Message = "",
    ) -> MessageError:
        """Returns the error of a first row that lacks a column.

        Args:
          must: What must hold, such as "the header must name text_a".
          fits: Whether the cells of a first row have all columns. If they do with another
            separator, the message suggests that separator.
          remedy: Otherwise, what else to do, as a sentence.
        """
        separator = self._reader.separator
        name = {",": "commas", "\t": "tabs"}.get(separator, repr(separator))
        separated = f" Columns are separated by {name} here." if self._is_text else ""
        if self._is_text and self.names[0].casefold().startswith("sep="):
            text = "Remove this line, which is Excel's, and give the separator with %s."
            remedy = Message(text, Option("separator"))
        return MessageError(
            "%s: %s. Received %s.%s%s",
            *(self._place, must, shorten(self.names), separated),
            self.suggest_separator(fits) or Message(" %s" if remedy else "%s", remedy),
        )

    def suggest_separator(self, fits: Callable[[list[str]], bool]) -> str | Message:
        """Returns a remedy where another separator splits the first row well, or else ""."""
        if not self._is_text:
            return ""
        separator = self._reader.separator
        return suggest_separator(separator.join(self.first.cells), separator, fits)

    def check_width(self, place: str, cells: Sequence[str]) -> None:
        """Checks that a row has as many cells as the first one; blank cells may follow.

        Args:
          place: The file and the line, for the message.
          cells: The cells of the row.

        Raises:
          ValueError: where there are fewer or more, as a line break or a separator in a text makes.
        """
        count, width = len(cells), len(self.names)
        if count >= width and not any(cells[width:]):
            return
        reason = "A text with a separator in it must be within quotes, in a .csv."
        if count < width:
            reason = (
                "A text with a line break must be within quotes, in a .csv. If empty columns at "
                "the end are left off, as Excel does, remove them from all rows."
            )
        raise ValueError(
            f"{place}: has {count} column{'s' * (count != 1)}, but the first line has {width}. "
            f"Received {cells!r:.200}. {reason}"
        )

    def name_cells(self, place: str, cells: Any) -> dict[str, Any]:
        """Returns the cells of a row by the names of their columns; raises as `check_width`."""
        if not self._is_text:
            return cells
        self.check_width(place, cells)
        return dict(zip(self.names, cells, strict=False))


def open_table(path: str, separator: str | None = None) -> Table:
    """Opens a .tsv file, or another one as CSV, all of whose rows must be readable."""
    form = "tsv" if ending_of(path) == ".tsv" else "csv"
    return Table(RowReader(path, form, separator), strict=True)


def is_number(column: str) -> bool:
    """Returns whether a column is given by its number."""
    return re.fullmatch("[0-9]+", column) is not None


def shorten(value: Any) -> str:
    """Returns the `repr` of a value, truncated for a message."""
    shown = repr(value)
    return shown if len(shown) <= 80 else shown[:80] + "..."

"""Rows of text files, TSV, CSV, JSON lines and Parquet, and tables of named columns."""

import codecs
import collections
import contextlib
import csv
import functools
import itertools
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from bert.files import parquet
from bert.files.display import counted
from bert.files.paths import check_beginning, decode_line, file_size, parse_json, read_lines
from bert.log import logger
from bert.options import Message, MessageError, Option, OptionError

# The formats of rows: lines of text, tables, and tables of objects.
FORMATS = ("lines", "tsv", "csv", "jsonl", "parquet")
# What `find_separator` takes, in the help of options.
SEPARATORS = "one character, such as ';', or tab, comma, semicolon or space"

# A carriage return within a line is text, but `csv` ends rows there, unless it is within quotes.
# This character replaces it for `csv`; no decoded text has it.
_RETURN = "\udc0d"
# The error handler that decodes bytes that are not UTF-8 without a loss.
_ESCAPED = "surrogateescape"

# Separators to suggest in place of another one, with their names in options.
_SEPARATORS = {";": ";", "\t": "tab", ",": ",", "|": "|"}
_NAMES = {"tab": "\t", "\\t": "\t", "comma": ",", "semicolon": ";", "space": " "}


class Row(NamedTuple):
    """A row of a file.

    Attributes:
      line: The number of its first line, from 1.
      cells: The cells of a table, the object of JSON lines or Parquet, or the text of a line; a
        `ValueError` where the row cannot be read.
    """

    line: int
    cells: Any


class RowReader:
    """The rows of a text file, plain or gzip, or of a Parquet file, with the unreadable rows.

    Args:
      path: A path that `tf.io.gfile` reads; - for standard input.
      form: One of `FORMATS`; None for the format of the extension.
      separator: As for `find_separator`.

    Attributes:
      name: The file in messages.
      has_cells: Whether rows are lists of cells, and not objects or lines.
      separator: The character between the columns of a table.
      keeps_blank: Whether blank rows of a table are yielded rather than skipped; may be changed
        while reading.
      is_empty: Whether no line has been read yet.
      has_mark: Whether the file begins with a byte order mark, which is no part of the text.
      done: The share of the file that has been read, up to 1.
    """

    def __init__(self, path: str, form: str | None = None, separator: str | None = None) -> None:
        self.path = path
        self.form = form or format_of(path)
        self.has_cells = self.form in ("tsv", "csv")
        self.separator = find_separator(f"table.{self.form}", separator)
        self.keeps_blank = False
        self.is_empty = True
        self.has_mark = False
        self.done = 0.0
        self.name = getattr(sys.stdin, "called", "standard input") if path == "-" else path

    @property
    def is_plain_tsv(self) -> bool:
        """Whether rows are lines that are split at tabs, with quotes as text, as in GLUE."""
        return self.form == "tsv" and self.separator == "\t"

    def __iter__(self) -> Iterator[Row]:
        blank: list[int] = []
        for row in self._read():
            is_list = self.has_cells and isinstance(row.cells, list)
            is_blank = row.cells is _BLANK or (is_list and not "".join(row.cells).strip())
            # The reader of CSV yields [] for a blank line, and this for "", a cell without text.
            is_cell = row.cells == [""] and not self.is_plain_tsv
            if is_cell or not is_blank or self.keeps_blank:
                yield row
            else:
                blank.append(row.line)
        if blank:
            _warn_of_blank(self.name, len(blank), blank[0])

    def _read(self) -> Iterator[Row]:
        if self.form == "parquet":
            _, count = parquet.describe_parquet(self.path)
            for number, values in enumerate(parquet.read_parquet(self.path), start=1):
                self.is_empty, self.done = False, number / count
                yield Row(number, values)
        elif self.has_cells and not self.is_plain_tsv:
            lines = (
                (number, decode_line(self.name, number, line, _ESCAPED), line.endswith(b"\r\n"))
                for number, line in self._lines()
            )
            for row in _read_csv(self.name, lines, self.separator):
                yield self._check_escaped(row)
        else:
            for number, line in self._lines():
                yield Row(number, self._parse(number, line))

    def _lines(self) -> Iterator[tuple[int, bytes]]:
        """Yields the number, from 1, and the bytes of each line."""
        lines: Iterable[tuple[bytes, int]] = ((line, 0) for line in sys.stdin.buffer)
        size = 1
        if self.path != "-":
            lines, size = read_lines(self.path), max(file_size(self.path), 1)
        for number, (line, count) in enumerate(lines, start=1):
            if number == 1:
                check_beginning(self.name, line)
                self.has_mark = line.startswith(codecs.BOM_UTF8)
            self.is_empty, self.done = False, count / size
            yield number, line

    def _parse(self, number: int, line: bytes) -> Any:
        try:
            text = decode_line(self.name, number, line)
            if self.form == "jsonl":
                return _parse_json(f"{self.name}:{number}", text)
        except ValueError as error:
            return error
        return text.split("\t") if self.form == "tsv" else text

    def _check_escaped(self, row: Row) -> Row:
        """Returns a row of CSV, with an error in place of cells that are not UTF-8."""
        if isinstance(row.cells, list):
            line = self.separator.join(row.cells).encode("utf-8", _ESCAPED)
            try:
                decode_line(self.name, row.line, line)
            except ValueError as error:
                return Row(row.line, error)
        return row


# In place of the object on a blank line.
_BLANK: Any = object()


def checked(reader: RowReader) -> Iterator[Row]:
    """Yields the rows of a file that must all be readable; only standard input may be empty.

    Raises:
      ValueError: naming the file and the line, at the first row that cannot be read.
    """
    for row in reader:
        if isinstance(row.cells, ValueError):
            raise row.cells
        if reader.form == "jsonl" and not isinstance(row.cells, dict):
            raise ValueError(
                f'{reader.name}:{row.line}: must be a JSON object, such as {{"text": "..."}}. '
                f"Received {shorten(json.dumps(row.cells, ensure_ascii=False))}."
            )
        yield row
    if reader.is_empty and reader.form != "parquet" and reader.path != "-":
        raise ValueError(f"{reader.path!r} must hold rows. Received an empty file.")


@functools.lru_cache
def _warn_of_blank(path: str, count: int, first: int) -> None:
    # Once, though a file may be read several times.
    lines = counted(count, "blank line")
    logger.warning("%s: skipped %s, the first is line %d.", path, lines, first)


def _parse_json(place: str, line: str) -> Any:
    if not line or line.isspace():
        return _BLANK
    try:
        value = parse_json(line)
    except ValueError as error:
        reason = str(error)
        if isinstance(error, json.JSONDecodeError):
            reason = f"{error.msg} at column {error.colno}"
        raise ValueError(
            f"{place}: must be one JSON object on a line. Received {shorten(line)} ({reason})."
        ) from None
    try:
        # JSON can name half a pair of surrogates.
        _ = json.dumps(value, ensure_ascii=False).encode() if "\\u" in line else b""
    except UnicodeEncodeError as error:
        raise ValueError(
            f"{place}: text must be Unicode. Received {error.object[error.start : error.end]!r}, "
            "which is half of a pair of surrogates."
        ) from None
    return value


def load_rows(path: str, form: str | None = None) -> list[Row]:
    """Returns the rows of a file, whose format may differ from its extension."""
    return list(checked(RowReader(path, form)))


def text_lines(path: str) -> Iterator[Row]:
    """Yields each line of a file, or of standard input for -, without its end."""
    return checked(RowReader(path, "lines"))


def ending_of(path: str) -> str:
    """Returns the extension of a file in lower case, without ".gz", such as ".csv"."""
    stem, ending = os.path.splitext(path.lower())
    return os.path.splitext(stem)[1] if ending == ".gz" else ending


def format_of(path: str) -> str:
    """Returns the one of `FORMATS` that an extension names, or else "lines"."""
    ending = ending_of(path).removeprefix(".")
    ending = {"json": "jsonl"}.get(ending, ending)
    return ending if ending in FORMATS else "lines"


def is_table(path: str) -> bool:
    """Returns whether a file has rows of cells, rather than objects."""
    return format_of(path) not in ("jsonl", "parquet")


def find_separator(path: str, separator: str | None) -> str:
    """Returns the character between the columns of a file.

    Args:
      path: The file, whose extension decides where no separator is given.
      separator: A character, or the name of one; None for the usual one.
    """
    if separator is None:
        return "\t" if ending_of(path) == ".tsv" else ","
    separator = _NAMES.get(separator, separator)
    if len(separator) != 1 or separator in '"\r\n':
        names = ", ".join(name for name in _NAMES if name.isalpha())
        must = f"be one character, such as ';' or '|', or its name: {names}"
        raise OptionError("separator", must, separator)
    return separator


def suggest_separator(
    line: str, separator: str, fits: Callable[[list[str]], bool]
) -> str | Message:
    """Returns a remedy for a line that is split at wrong places, or "" if there is none.

    Args:
      line: The line as it is in the file.
      separator: The separator that does not fit.
      fits: Whether the cells between another separator are right.
    """
    for other, name in _SEPARATORS.items():
        # `csv` would end the row at a carriage return or a line break.
        row = line.replace("\r", " ").replace("\n", " ")
        cells: list[str] = []
        # Python 3.10 reads no NUL.
        with _any_size(), contextlib.suppress(csv.Error):
            cells = next(csv.reader([row], delimiter=other), [])
        if other != separator and len(cells) > 1 and fits([cell.strip() for cell in cells]):
            text = " It looks as if %r separates the columns: give %s."
            return Message(text, other, Option("separator", name))
    return ""


@contextlib.contextmanager
def _any_size() -> Iterator[None]:
    """Lifts the limit on the size of cells, which the process shares."""
    limit = csv.field_size_limit(sys.maxsize)
    try:
        yield
    finally:
        csv.field_size_limit(limit)


def _read_csv(name: str, lines: Iterator[tuple[int, str, bool]], separator: str) -> Iterator[Row]:
    """Yields the rows of lines; after a bad row, it continues with the next line.

    A cell within double quotes may hold separators, line breaks, and doubled double quotes.

    Args:
      name: The file, for messages.
      lines: The number and the text of each line, and whether it ends with CR and LF.
      separator: The character between cells.
    """
    # Lines after a quote without an end, which may be rows.
    waiting: collections.deque[tuple[int, str, bool]] = collections.deque()
    taken: list[tuple[int, str, bool]] = []

    def take() -> Iterator[str]:
        while line := waiting.popleft() if waiting else next(lines, None):
            taken.append(line)
            _, text, has_return = line
            # Within quotes, the end of a line is part of the cell.
            yield text.replace("\r", _RETURN) + ("\r\n" if has_return else "\n")

    while True:
        taken.clear()
        # A new reader for each row, which takes as many lines as the row has.
        reader = csv.reader(take(), strict=True, delimiter=separator)
        try:
            with _any_size():
                cells = next(reader, None)
        except csv.Error as error:
            (number, line, _), *others = taken
            waiting.extendleft(reversed(others))
            reason = MessageError(
                "%s:%s: a cell that begins with a quote must end with one, and quotes within it "
                "must be doubled. Received %s (%s, on line %s).%s",
                name,
                number,
                shorten(line),
                error,
                number + reader.line_num - 1,
                suggest_separator(line, separator, lambda _: True) if number == 1 else "",
            )
            yield Row(number, reason)
            continue
        if cells is None:
            return
        yield Row(taken[0][0], [cell.replace(_RETURN, "\r") for cell in cells])


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
                f"{reader.name!r} must hold a header and the rows of a table. It {found}."
            )
        if isinstance(first.cells, ValueError):
            raise first.cells
        self.first = first
        self._place = f"{reader.name}:{first.line}"
        if reader.has_cells:
            self.names = [cell.strip() for cell in first.cells]
        else:
            self.names = list(first.cells)
            self.rows = itertools.chain([first], self.rows)

    def keep_blank_texts(self) -> "Table":
        """Makes a blank line in a single column of TSV a row with a blank text; returns itself."""
        self._reader.keeps_blank = self._reader.is_plain_tsv and len(self.names) == 1
        return self

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
        separated = f" Columns are separated by {name} here." if self._reader.has_cells else ""
        if self._reader.has_cells and self.names[0].casefold().startswith("sep="):
            text = "Remove this line, which is Excel's, and give the separator with %s."
            remedy = Message(text, Option("separator"))
        return MessageError(
            "%s: %s. Received %s.%s%s",
            self._place,
            must,
            shorten(self.names),
            separated,
            self.suggest_separator(fits) or Message(" %s" if remedy else "%s", remedy),
        )

    def suggest_separator(self, fits: Callable[[list[str]], bool]) -> str | Message:
        """Returns a remedy where another separator splits the first row well, or else ""."""
        separator = self._reader.separator
        if not self._reader.has_cells:
            return ""
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
            f"{place}: has {counted(count, 'column')}, but the first line has {width}. "
            f"Received {cells!r:.200}. {reason}"
        )

    def name_cells(self, place: str, cells: Any) -> dict[str, Any]:
        """Returns the cells of a row by the names of their columns; raises as `check_width`."""
        if not self._reader.has_cells:
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

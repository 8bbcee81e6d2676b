"""Rows of text files, TSV, CSV, JSON lines and Parquet, each with the line where it begins."""

import collections
import contextlib
import csv
import functools
import itertools
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from absl import logging

from bert.files import parquet
from bert.files.json_text import parse_json
from bert.files.machine import size_text
from bert.files.paths import file_size, read_lines
from bert.options import Message, MessageError, Option, OptionError

# How a file of texts is read: line by line, or as one of the tables.
FORMATS = ("lines", "tsv", "csv", "jsonl", "parquet")
# What `find_separator` takes, in the help of options.
SEPARATORS = "one character, such as ';', or tab, comma, semicolon or space"

# Within a line, carriage returns are text, but `csv` ends rows there, unless they are in quotes,
# which not all that write CSV put around them. No text that was decoded holds this one.
_RETURN = "\udc0d"
# How Python decodes bytes that are not text without a loss.
ESCAPED = "surrogateescape"


# Separators that may be meant where another one was expected, with their names in options.
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
    """The rows of a text file, plain or of gzip, or of Parquet; bad rows are among them.

    Args:
      path: A path that `tf.io.gfile` reads; - for standard input.
      form: One of `FORMATS`; None for the one of the extension.
      separator: As `find_separator` takes it, for tables.

    Attributes:
      path: As given.
      form: One of `FORMATS`.
      separator: The character between the columns of a table.
      keeps_blank: Whether blank rows of a table are yielded, not skipped; may be changed at any
        time.
      is_empty: Whether no line has been read yet.
      done: The share of the file that has been read, up to 1.
    """

    def __init__(self, path: str, form: str | None = None, separator: str | None = None) -> None:
        self.path = path
        self.form = form or format_of(path)
        self.separator = find_separator(f"table.{self.form}", separator)
        self.keeps_blank = False
        self.is_empty = True
        self.done = 0.0

    @property
    def is_plain_tsv(self) -> bool:
        """Whether rows are lines that are split at tabs, with quotes as text, as in GLUE."""
        return self.form == "tsv" and self.separator == "\t"

    def __iter__(self) -> Iterator[Row]:
        blank: list[int] = []
        for row in self._read():
            is_blank = row.cells is _BLANK or (
                self.form in ("tsv", "csv") and isinstance(row.cells, list) and is_blank_row(row)
            )
            if not is_blank or self.keeps_blank:
                yield row
            else:
                blank.append(row.line)
        if blank:
            _warn_of_blank(self.path, len(blank), blank[0])

    def _read(self) -> Iterator[Row]:
        if self.form == "parquet":
            _, count = parquet.describe_parquet(self.path)
            for number, values in enumerate(parquet.read_parquet(self.path), start=1):
                self.done = number / count
                yield Row(number, values)
        elif self.form == "csv" or (self.form == "tsv" and not self.is_plain_tsv):
            lines = (
                (number, decode_line(self.path, number, line, ESCAPED))
                for number, line in self._lines()
            )
            for row in try_csv_rows(self.path, lines, self.separator):
                yield self._unescape(row)
        else:
            for number, line in self._lines():
                yield Row(number, self._parse(number, line))

    def _lines(self) -> Iterator[tuple[int, bytes]]:
        """Yields the number, from 1, and the bytes of each line."""
        if self.path == "-":
            for number, line in enumerate(sys.stdin.buffer, start=1):
                self.is_empty = False
                yield number, line
            return
        size = max(file_size(self.path), 1)
        for number, (line, count) in enumerate(read_lines(self.path), start=1):
            check_line_end(self.path, number, line)
            self.is_empty, self.done = False, count / size
            yield number, line

    def _parse(self, number: int, line: bytes) -> Any:
        try:
            text = decode_line(self.path, number, line)
            if self.form == "jsonl":
                return _parse_json(f"{self.path}:{number}", text)
        except ValueError as error:
            return error
        return text.split("\t") if self.form == "tsv" else text

    def _unescape(self, row: Row) -> Row:
        """Returns a row of CSV, with an error for its cells where one is not UTF-8."""
        if isinstance(row.cells, list):
            line = self.separator.join(row.cells).encode("utf-8", ESCAPED)
            try:
                decode_line(self.path, row.line, line)
            except ValueError as error:
                return Row(row.line, error)
        return row


# In place of the object on a blank line.
_BLANK: Any = object()


def is_blank_row(row: Row) -> bool:
    """Returns whether a row of a table has nothing but blank cells."""
    return all(not cell or cell.isspace() for cell in row.cells)


def checked(reader: RowReader) -> Iterator[Row]:
    """Yields the rows of a file that must be good: cells, texts, or objects.

    Raises:
      ValueError: naming the file and the line, at the first row that cannot be read.
    """
    for row in reader:
        if isinstance(row.cells, ValueError):
            raise row.cells
        if reader.form == "jsonl" and not isinstance(row.cells, dict):
            raise ValueError(
                f'{reader.path}:{row.line}: must be a JSON object, such as {{"text": "..."}}. '
                f"Received {shorten(json.dumps(row.cells, ensure_ascii=False))}."
            )
        yield row
    if reader.is_empty and reader.form != "parquet":
        raise _no_rows(reader.path)


def _no_rows(path: str) -> ValueError:
    return ValueError(f"{path!r} must hold rows. Received an empty file.")


@functools.lru_cache
def _warn_of_blank(path: str, count: int, first: int) -> None:
    # Once, though a file may be read several times.
    logging.warning("%s: skipped %d blank lines, the first is %d.", path, count, first)


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
    if "\\u" in line:
        _check_unicode(place, value)
    return value


def _check_unicode(place: str, value: Any) -> None:
    """Checks that a value can be written as UTF-8: JSON can name half of a pair of surrogates."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise ValueError(
            f"{place}: text must be Unicode. Received {error.object[error.start : error.end]!r}, "
            "which is half of a pair of surrogates."
        ) from None


def read_table(path: str, separator: str | None = None, form: str | None = None) -> list[Row]:
    """Returns the rows of a table: with quotes as text in a .tsv, and else as CSV has them.

    Args:
      path: A path that `tf.io.gfile` reads.
      separator: As for `find_separator`.
      form: "tsv" or "csv"; None for the one of the extension, or else "csv".
    """
    form = form or ("tsv" if ending_of(path) == ".tsv" else "csv")
    return list(checked(RowReader(path, form, separator)))


def read_objects(path: str) -> list[Row]:
    """Returns the objects of a file of JSON lines, or the rows of Parquet, counted from 1."""
    return list(checked(RowReader(path, "jsonl" if format_of(path) != "parquet" else None)))


def text_lines(path: str) -> Iterator[tuple[int, str]]:
    """Yields the number, from 1, and the text of each line; gzip files are unpacked.

    Neither line ends, be they LF or CRLF, nor a byte order mark are part of the text.
    """
    number = 0
    for number, (line, _) in enumerate(read_lines(path), start=1):
        check_line_end(path, number, line)
        yield number, decode_line(path, number, line)
    if not number:
        raise _no_rows(path)


def check_line_end(path: str, number: int, line: bytes) -> None:
    """Checks that a file that is one line to its end has not lines that end as on old Macs.

    Raises:
      ValueError: where it has: all of it would be a single text.
    """
    # A text may have a single carriage return.
    is_one_line = number == 1 and not line.endswith(b"\n")
    if is_one_line and line.count(b"\r") > 1 and b"\r" in line.rstrip(b"\r"):
        raise ValueError(
            f"{path!r} must have lines that end with LF, or CR and LF. They end with CR alone, as "
            "in Excel's CSV for old Macs: convert it, as with `tr '\\r' '\\n'`."
        )


def stdin_lines() -> Iterator[tuple[int, str]]:
    """Yields the lines of standard input as `text_lines` does those of a file; it may be empty."""
    for number, line in enumerate(sys.stdin.buffer, start=1):
        yield number, decode_line("standard input", number, line)


def describe_files(files: Sequence[str]) -> str:
    """Returns what files there are, for a line."""
    size = size_text(sum(map(file_size, files)))
    return f"{files[0]!r}, {size}" if len(files) == 1 else f"{len(files)} files, {size} in all"


def decode_line(path: str, number: int, line: bytes, errors: str = "strict") -> str:
    """Returns the text of a line, without its end, and of the first one without its mark.

    Args:
      path: Of the file, for messages.
      number: Of the line, from 1.
      line: The bytes.
      errors: With `ESCAPED`, bytes that are not text become characters that no text has.

    Raises:
      ValueError: where there are such bytes, without `ESCAPED`.
    """
    try:
        text = line.decode("utf-8-sig" if number == 1 else "utf-8", errors)
    except UnicodeDecodeError as error:
        known = "UTF-16" if line.startswith((b"\xff\xfe", b"\xfe\xff")) else "another encoding"
        shown = line[max(error.start - 20, 0) : error.start + 10]
        raise ValueError(
            f"{path}:{number}: text must be UTF-8. Received bytes of {known}: {shown!r}. "
            "Convert the file to UTF-8."
        ) from None
    return text.removesuffix("\n").removesuffix("\r")


def ending_of(path: str) -> str:
    """Returns the extension of a file, such as ".csv"; of a gzip file, the one before ".gz".

    It is in lower case, however the name is.
    """
    stem, ending = os.path.splitext(path.lower())
    return os.path.splitext(stem)[1] if ending == ".gz" else ending


def format_of(path: str) -> str:
    """Returns the one of `FORMATS` that an extension stands for, or else "lines"."""
    ending = ending_of(path).removeprefix(".")
    ending = {"json": "jsonl"}.get(ending, ending)
    return ending if ending in FORMATS else "lines"


def find_separator(path: str, separator: str | None) -> str:
    """Returns what separates the columns of a file.

    Args:
      path: Its ending counts where no separator is given.
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
    """Returns a remedy for a line that is split at wrong places, "" where no other is better.

    Args:
      line: The line as it is in the file.
      separator: The separator that does not fit.
      fits: Whether the cells that another one gives are as they should be.
    """
    for other, name in _SEPARATORS.items():
        # Within a line, carriage returns are text.
        cells = next(csv.reader([line.replace("\r", " ")], delimiter=other), [])
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


def try_csv_rows(
    path: str, lines: Iterator[tuple[int, str]], separator: str = ","
) -> Iterator[Row]:
    """Yields the rows that numbered lines hold; after a bad row, goes on with its second line.

    A cell within double quotes may hold separators, line breaks, and doubled quotes for single
    ones.
    """
    # Lines that a quote without an end has taken, which may be rows of their own.
    waiting: collections.deque[tuple[int, str]] = collections.deque()

    def take() -> tuple[int, str] | None:
        return waiting.popleft() if waiting else next(lines, None)

    while first := take():
        number, line = first
        taken: list[tuple[int, str]] = []
        texts = itertools.chain([line], (text for _, text in _noted(iter(take, None), taken)))
        # A reader for each row, which takes as many lines as the row has.
        reader = csv.reader(
            (f"{text}\n".replace("\r", _RETURN) for text in texts),
            strict=True,
            delimiter=separator,
        )
        try:
            with _any_size():
                cells = next(reader)
        except csv.Error as error:
            hint = suggest_separator(line, separator, lambda _: True) if number == 1 else ""
            reason = MessageError(
                "%s:%s: a cell that begins with a quote must end with one, and quotes within it "
                "must be doubled. Received %s (%s, on line %s).%s",
                path,
                number,
                shorten(line),
                error,
                number + reader.line_num - 1,
                hint,
            )
            yield Row(number, reason)
            waiting.extendleft(reversed(taken))
            continue
        yield Row(number, [cell.replace(_RETURN, "\r") for cell in cells])


def _noted(
    lines: Iterator[tuple[int, str]], taken: list[tuple[int, str]]
) -> Iterator[tuple[int, str]]:
    for each in lines:
        taken.append(each)
        yield each


def is_table(path: str) -> bool:
    """Returns whether a file has rows of cells, rather than objects."""
    return ending_of(path) not in (".jsonl", ".json", parquet.ENDING)


def shorten(text: str) -> str:
    """Returns as much of a text as a message has room for, in quotes."""
    return repr(text if len(text) <= 60 else text[:60] + "...")

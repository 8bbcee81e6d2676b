"""Tables in files: rows of TSV, CSV, JSON lines and Parquet, each with the line where it begins."""

import collections
import contextlib
import csv
import itertools
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from absl import logging

from bert.files import parquet
from bert.files.durable import replace_files
from bert.files.json_text import parse_json
from bert.files.machine import size_text
from bert.files.paths import file_size, match_files, read_lines

# How a file of texts is read: line by line, or as one of the tables.
FORMATS = ("lines", "tsv", "csv", "jsonl", "parquet")
# What `find_separator` takes, in the help of options.
SEPARATORS = "one character, such as ';', or tab, comma, semicolon or space"

# Tabs, and all that some program takes for the end of a line.
_BREAKS = re.compile("[\t\n\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029]+")
# Within a line, carriage returns are text, but `csv` ends rows there, unless they are in quotes,
# which not all that write CSV put around them. No text that was decoded holds this one.
_RETURN = "\udc0d"
# How Python keeps bytes that are no text.
ESCAPED = "surrogateescape"
_PAIR = re.compile(r"(.*) \|\|\| (.*)", re.DOTALL)

# Those that may be meant where another one was expected, with what `--separator` calls them.
_SEPARATORS = {";": "';'", "\t": "tab", ",": "','", "|": "'|'"}
_NAMES = {"tab": "\t", "\\t": "\t", "comma": ",", "semicolon": ";", "space": " "}


class Row(NamedTuple):
    """The cells of a row, and the number of its first line."""

    line: int
    cells: list[str]


class BadRow(NamedTuple):
    """Why there are no cells, and the number of the line."""

    line: int
    error: ValueError


class JsonRow(NamedTuple):
    """The object on a line."""

    line: int
    cells: dict[str, Any]


def text_lines(path: str) -> Iterator[tuple[int, str]]:
    """Yields the number, from 1, and the text of each line; gzip files are unpacked.

    Neither line ends, be they LF or CRLF, nor a byte order mark are part of the text.
    """
    number = 0
    for number, (line, _) in enumerate(read_lines(path), start=1):
        check_line_end(path, number, line)
        yield number, decode_line(path, number, line)
    if not number:
        raise ValueError(f"{path!r} must hold rows. Received an empty file.")


def check_line_end(path: str, number: int, line: bytes) -> None:
    """Checks that a file that is one line to its end has not lines that end as on old Macs.

    Raises:
      ValueError: where it has: all of it would be a single text.
    """
    # A single carriage return may stand within a text.
    is_one_line = number == 1 and not line.endswith(b"\n")
    if is_one_line and line.count(b"\r") > 1 and b"\r" in line.rstrip(b"\r"):
        raise ValueError(
            f"{path!r} must have lines that end with LF, or CR and LF. They end with CR alone, as "
            "in Excel's CSV for old Macs: convert it, as with `tr '\\r' '\\n'`."
        )


def check_unicode(place: str, cells: Mapping[str, Any]) -> None:
    """Checks that values can be written as UTF-8.

    Raises:
      ValueError: where there is half of a pair of surrogates, which JSON can name.
    """
    try:
        json.dumps(cells, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise ValueError(
            f"{place}: text must be Unicode. Received {error.object[error.start : error.end]!r}, "
            "which is half of a pair of surrogates."
        ) from None


def stdin_lines() -> Iterator[tuple[int, str]]:
    """Yields the lines of standard input as `text_lines` does those of a file; it may be empty."""
    for number, line in enumerate(sys.stdin.buffer, start=1):
        yield number, decode_line("standard input", number, line)


def find_texts(patterns: str, flag: str = "input_file") -> list[str]:
    """Returns the files that `match_files` does, of each of which the first line can be read.

    Raises:
      ValueError: where a pattern matches no file, one of gzip is not whole, or one is no UTF-8 text
        from its very beginning.
      OSError: where a file cannot be opened.
    """
    files = match_files(patterns, flag)
    for path in files:
        line, _ = next(read_lines(path), (b"", 0))
        _check_beginning(path, line)
    return files


# How files of other forms begin.
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")
_PACKED = {".bz2": b"BZh", ".xz": b"\xfd7zXZ", ".zst": b"\x28\xb5\x2f\xfd", ".zip": b"PK\3\4"}


def _check_beginning(path: str, line: bytes) -> None:
    """Raises `ValueError` where a file begins as none of UTF-8 text does."""
    if line.startswith(_UTF_16):
        raise ValueError(
            f"{path!r} must be UTF-8 text. It is UTF-16: convert it, as with `iconv -f UTF-16 -t "
            "UTF-8`."
        )
    # Arrays of NumPy are packed so, too.
    if line.startswith(tuple(_PACKED.values())) and not path.endswith(".npz"):
        kind = next(kind for kind, begin in _PACKED.items() if line.startswith(begin))
        raise ValueError(
            f"{path!r} must be text, plain or of gzip. It begins as a {kind} file: unpack it first."
        )


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
      errors: With `ESCAPED`, bytes that are no text are kept as what no text holds.

    Raises:
      ValueError: where there are such bytes, and they are not kept.
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


def read_tsv(path: str) -> list[Row]:
    """Returns the rows of a file of tab-separated values; quotes are text, as in GLUE."""
    rows = (Row(number, line.split("\t")) for number, line in text_lines(path))
    return _drop_blank(path, rows)


def ending_of(path: str) -> str:
    """Returns how the name of a file ends, that of what is packed where it is, such as ".csv".

    It is in lower case, however the name is.
    """
    stem, ending = os.path.splitext(path.lower())
    return os.path.splitext(stem)[1] if ending == ".gz" else ending


def format_of(path: str) -> str:
    """Returns which of `FORMATS` the ending of a name tells; else "lines"."""
    ending = ending_of(path).removeprefix(".")
    ending = {"json": "jsonl"}.get(ending, ending)
    return ending if ending in FORMATS else "lines"


def find_separator(path: str, separator: str | None) -> str:
    """Returns what separates the columns of a file.

    Args:
      path: Its ending counts where no separator is given.
      separator: As `--separator` takes it: a character, or the name of one; None for the usual one.
    """
    if separator is None:
        return "\t" if ending_of(path) == ".tsv" else ","
    separator = _NAMES.get(separator, separator)
    if len(separator) != 1 or separator in '"\r\n':
        raise ValueError(
            "`--separator` must be one character, such as ';' or '|', or its name: "
            f"{', '.join(name for name in _NAMES if name.isalpha())}. Received {separator!r}."
        )
    return separator


def suggest_separator(line: str, separator: str, fits: Callable[[list[str]], bool]) -> str:
    """Returns what to say of a line that is cut at wrong places, "" where no other is better.

    Args:
      line: As it stands in the file.
      separator: What does not fit.
      fits: Whether the cells that another one gives are as they should be.
    """
    for other, name in _SEPARATORS.items():
        # Within a line, carriage returns are text.
        cells = next(csv.reader([line.replace("\r", " ")], delimiter=other), [])
        if other != separator and len(cells) > 1 and fits([cell.strip() for cell in cells]):
            return f" It looks as if {other!r} separates the columns: give --separator={name}."
    return ""


def read_table(path: str, separator: str | None = None) -> list[Row]:
    """Returns the rows of a text file: with quotes as text in a .tsv, and else as CSV has them.

    Args:
      path: A path that `tf.io.gfile` reads.
      separator: As for `find_separator`.
    """
    found = find_separator(path, separator)
    if ending_of(path) == ".tsv" and found == "\t":
        return read_tsv(path)
    return read_csv(path, found)


def read_csv(path: str, separator: str = ",") -> list[Row]:
    """Returns the rows of a file of separated values.

    A cell within double quotes may hold separators, line breaks, and doubled quotes for single
    ones.
    """
    return _drop_blank(path, csv_rows(path, text_lines(path), separator))


@contextlib.contextmanager
def _any_size() -> Iterator[None]:
    """Lets cells be of any size; the limit holds for the whole process."""
    limit = csv.field_size_limit(sys.maxsize)
    try:
        yield
    finally:
        csv.field_size_limit(limit)


def csv_rows(path: str, lines: Iterator[tuple[int, str]], separator: str = ",") -> Iterator[Row]:
    """Yields the rows that numbered lines hold, as `read_csv` does, blank ones too.

    Raises:
      ValueError: at a row that cannot be read.
    """
    for row in try_csv_rows(path, lines, separator):
        if isinstance(row, BadRow):
            raise row.error
        yield row


def try_csv_rows(
    path: str, lines: Iterator[tuple[int, str]], separator: str = ","
) -> Iterator[Row | BadRow]:
    """Yields what `csv_rows` does, and goes on behind the first line of a row that is none."""
    header = ""
    # A quote that nothing ends has taken what may be rows of their own.
    waiting: collections.deque[tuple[int, str]] = collections.deque()

    def take() -> tuple[int, str] | None:
        return waiting.popleft() if waiting else next(lines, None)

    while first := take():
        number, line = first
        header = header or line
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
            hint = ""
            # A header of a single column speaks of another separator.
            if number == 1 or separator not in header:
                hint = suggest_separator(header, separator, lambda _: True)
            reason = (
                f"{path}:{number}: a cell that begins with a quote must end with one, and quotes "
                f"within it must be doubled. Received {_shorten(line)} ({error}, on line "
                f"{number + reader.line_num - 1}).{hint}"
            )
            yield BadRow(number, ValueError(reason))
            waiting.extendleft(reversed(taken))
            continue
        yield Row(number, [cell.replace(_RETURN, "\r") for cell in cells])


def _noted(
    lines: Iterator[tuple[int, str]], taken: list[tuple[int, str]]
) -> Iterator[tuple[int, str]]:
    for each in lines:
        taken.append(each)
        yield each


def write_tsv(path: str, rows: Iterable[Iterable[str]]) -> None:
    """Writes a file of tab-separated values; tabs and line breaks within cells become spaces."""
    with replace_files([path]) as [file]:
        for row in rows:
            file.write(tsv_line(row).encode("utf-8", "replace") + b"\n")


def tsv_line(cells: Iterable[str]) -> str:
    """Returns a line of tab-separated values; tabs and line breaks within cells become spaces."""
    return "\t".join([_BREAKS.sub(" ", cell) for cell in cells])


def _drop_blank(path: str, rows: Iterable[Row]) -> list[Row]:
    blank: list[int] = []
    kept = []
    for row in rows:
        if any(cell and not cell.isspace() for cell in row.cells):
            kept.append(row)
        else:
            blank.append(row.line)
    _warn_of_blank(path, blank)
    return kept


def _warn_of_blank(path: str, blank: list[int]) -> None:
    if blank:
        logging.warning("%s: skipped %d blank lines, the first is %d.", path, len(blank), blank[0])


def is_table(path: str) -> bool:
    """Returns whether a file has rows of cells, rather than objects."""
    return ending_of(path) not in (".jsonl", ".json", parquet.ENDING)


def read_objects(path: str) -> list[JsonRow]:
    """Returns the objects of a file of JSON lines, or the rows of Parquet, counted from 1."""
    if ending_of(path) == parquet.ENDING:
        return [JsonRow(number, row) for number, row in enumerate(parquet.read_parquet(path), 1)]
    return read_json_lines(path)


def read_json_lines(path: str) -> list[JsonRow]:
    """Returns the objects of a file with one on each line."""
    return list(json_rows(path))


def json_rows(path: str) -> Iterator[JsonRow]:
    """Yields the objects of a file with one on each line as they are read, blank lines skipped."""
    blank = []
    for number, line in text_lines(path):
        if not line or line.isspace():
            blank.append(number)
            continue
        try:
            value = parse_json(line)
        except ValueError as error:
            reason = str(error)
            if isinstance(error, json.JSONDecodeError):
                reason = f"{error.msg} at column {error.colno}"
            raise ValueError(
                f"{path}:{number}: must be one JSON object on a line. Received "
                f"{_shorten(line)} ({reason})."
            ) from None
        if not isinstance(value, dict):
            raise ValueError(
                f'{path}:{number}: must be a JSON object, such as {{"text": "..."}}. '
                f"Received {_shorten(line)}."
            )
        if "\\u" in line:
            check_unicode(f"{path}:{number}", value)
        yield JsonRow(number, value)
    _warn_of_blank(path, blank)


def check_width(path: str, row: Row, needed: int, reason: str = "", hint: str = "") -> None:
    """Raises `ValueError` if a row has fewer columns than `needed`."""
    count = len(row.cells)
    if count < needed:
        raise ValueError(
            f"{path}:{row.line}: has {count} column{'s' * (count != 1)}, needs {needed}{reason}. "
            f"Received {row.cells if len(str(row.cells)) <= 80 else str(row.cells)[:80] + '...'}."
            f"{hint}"
        )


def why_width(is_narrow: bool) -> str:
    """Returns why a row may have fewer cells than there are columns, or more, and what to do."""
    if is_narrow:
        return (
            "A text with a line break must stand within quotes, in a .csv. If empty columns at the "
            "end are left off, as Excel does, remove them from all rows."
        )
    return "A text with a separator in it must stand within quotes, in a .csv."


def name_cells(place: str, names: Sequence[str], cells: Sequence[str]) -> dict[str, str]:
    """Returns the cells of a row by the names of the columns.

    Args:
      place: Where it stands, for messages.
      names: The columns.
      cells: As many; blank ones may follow.

    Raises:
      ValueError: where there are fewer or more, as where a line break or a separator cuts a text.
    """
    count = len(cells)
    if count < len(names) or any(cells[len(names) :]):
        reason = why_width(count < len(names))
        raise ValueError(
            f"{place}: has {count} column{'s' * (count != 1)}, but the first line has "
            f"{len(names)}. Received {cells!r:.200}. {reason}"
        )
    return dict(zip(names, cells, strict=False))


def _shorten(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:60] + "...")


def clean_line(line: str | bytes) -> str:
    """Returns a line of a file without the whitespace around it."""
    # Faithful: carriage returns vanish wherever they stand, as tf.gfile had it.
    text = line.decode("utf-8", "ignore") if isinstance(line, bytes) else line
    return text.replace("\r", "").strip()


def split_pair(text: str) -> tuple[str, str]:
    """Returns the two texts of `A ||| B`; the second is empty where there is only one."""
    # Faithful: of several marks, the last one counts (original: extract_features.py).
    match = _PAIR.fullmatch(text)
    return (match[1], match[2]) if match else (text, "")

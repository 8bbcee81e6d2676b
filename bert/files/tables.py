"""Tables in files: rows of TSV, CSV and JSON lines, each with the line on which it begins."""

import itertools
import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from absl import logging

from bert.files.paths import read_lines

_INSIDE_QUOTES = re.compile(r'(?:[^"]+|"")*')


class Row(NamedTuple):
    """The cells of a row, and the number of its first line."""

    line: int
    cells: list[str]


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
        try:
            text = line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            known = "UTF-16" if line.startswith((b"\xff\xfe", b"\xfe\xff")) else "another encoding"
            shown = line[max(error.start - 20, 0) : error.start + 10]
            raise ValueError(
                f"{path}:{number}: text must be UTF-8. Received bytes of {known}: {shown!r}. "
                "Convert the file to UTF-8."
            ) from None
        yield number, text.removesuffix("\n").removesuffix("\r")
    if not number:
        raise ValueError(f"{path!r} must hold rows. Received an empty file.")


def read_tsv(path: str) -> list[Row]:
    """Returns the rows of a file of tab-separated values; quotes are text, as in GLUE."""
    rows = (Row(number, line.split("\t")) for number, line in text_lines(path))
    return _drop_blank(path, rows)


def read_csv(path: str) -> list[Row]:
    """Returns the rows of a file of comma-separated values.

    A cell within double quotes may hold commas, line breaks, and doubled quotes for single ones.
    """
    lines = text_lines(path)
    rows = (Row(number, _split_csv(path, number, line, lines)) for number, line in lines)
    return _drop_blank(path, rows)


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


def _split_csv(path: str, number: int, line: str, lines: Iterator[tuple[int, str]]) -> list[str]:
    """Returns the cells of the row that begins with `line`; takes further lines where it has more.

    Unlike the `csv` module, it knows where a quote that is never closed was opened.
    """
    if '"' not in line:
        return line.split(",")
    cells = []
    more = True
    while more:
        if line.startswith('"'):
            cell, line, end = _read_quoted(path, number, line[1:], lines)
            if line and line[0] != ",":
                raise ValueError(
                    f"{path}:{number}: a quote that opens a cell must be closed before a comma or "
                    f"the end of the line. Received {_shorten(line)} after it is closed on line "
                    f"{end}. Double the quotes that are text."
                )
            more, line, number = bool(line), line[1:], end
        else:
            cell, comma, line = line.partition(",")
            more = bool(comma)
        cells.append(cell)
    return cells


def _read_quoted(
    path: str, number: int, text: str, lines: Iterator[tuple[int, str]]
) -> tuple[str, str, int]:
    """Returns the cell whose opening quote precedes `text`, what follows it, and on which line."""
    parts = []
    for current, line in itertools.chain([(number, text)], lines):
        match = _INSIDE_QUOTES.match(line)
        assert match is not None
        parts.append(match[0])
        if match.end() < len(line):
            return "\n".join(parts).replace('""', '"'), line[match.end() + 1 :], current
    raise ValueError(
        f"{path}:{number}: a quote that opens a cell must be closed. Received "
        f"{_shorten(chr(34) + parts[0])}, and no closing quote up to the end of the file."
    )


def read_json_lines(path: str) -> list[JsonRow]:
    """Returns the objects of a file with one on each line."""
    rows = []
    blank = []
    for number, line in text_lines(path):
        if not line or line.isspace():
            blank.append(number)
            continue
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as error:
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
        rows.append(JsonRow(number, value))
    _warn_of_blank(path, blank)
    return rows


def check_width(path: str, row: Row, needed: int, reason: str = "") -> None:
    """Raises `ValueError` if a row has fewer columns than `needed`."""
    count = len(row.cells)
    if count < needed:
        raise ValueError(
            f"{path}:{row.line}: has {count} column{'s' * (count != 1)}, needs {needed}{reason}. "
            f"Received {row.cells if len(str(row.cells)) <= 80 else str(row.cells)[:80] + '...'}."
        )


def _shorten(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:60] + "...")


_PAIR = re.compile(r"(.*) \|\|\| (.*)", re.DOTALL)


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

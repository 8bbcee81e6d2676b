"""Reads texts and pairs of texts: lines of a file, or columns of a table, which may have IDs."""

import collections
import dataclasses
import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from bert.files.paths import match_files, read_lines
from bert.files.rows import FORMATS, SEPARATORS, RowReader, check_beginning, format_of
from bert.files.tables import Table
from bert.log import logger
from bert.options import Message, MessageError, Option, OptionError, option

# The columns of texts by default.
_USUAL_COLUMNS = (["text"], ["text_a", "text_b"], ["text_a"], ["sentence"])
_PAIR = re.compile(r"(.*) \|\|\| (.*)", re.DOTALL)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextColumns:
    """How files of texts are read, and which columns of a table hold the texts."""

    GROUP = "data"

    input_format: str | None = option(
        None,
        "lines: one text per line. tsv, csv: a table whose header names the columns. jsonl: one "
        "JSON object per line. parquet: a Parquet file. Default: by the file's extension, or else "
        "lines.",
        choices=FORMATS,
    )
    text_column: str | None = option(
        None,
        "Column or key of the texts in a table; two, separated by a comma, for pairs. Default: "
        "the only column; or text, text_a (with text_b, if present) or sentence.",
    )
    id_column: str | None = option(
        None, "Column or key of an ID for each text in a table; it is written with the results."
    )
    separator: str | None = option(
        None, f"Column separator of a table: {SEPARATORS}. Default: tab for tsv, comma for csv."
    )


def find_texts(patterns: str, flag: str = "input_file") -> list[str]:
    """Returns the files of `match_files`, whose first lines can be read.

    Raises:
      ValueError: where a pattern matches no file, a gzip file is incomplete, or the beginning of a
        file is not UTF-8 text.
      OSError: where a file cannot be opened.
    """
    files = match_files(patterns, flag)
    for path in files:
        line, _ = next(read_lines(path), (b"", 0))
        check_beginning(path, line)
    return files


def clean_line(line: str | bytes) -> str:
    """Returns a line of a file without the whitespace around it."""
    # Faithful: all carriage returns are removed, as in tf.gfile.
    text = line.decode("utf-8", "ignore") if isinstance(line, bytes) else line
    return text.replace("\r", "").strip()


def split_pair(text: str) -> tuple[str, str]:
    """Returns the two texts of `A ||| B`; the second is empty where there is only one."""
    # Faithful: the last of several marks separates the texts (original: extract_features.py).
    match = _PAIR.fullmatch(text)
    return (match[1], match[2]) if match else (text, "")


def decoded_lines(path: str, damaged: collections.Counter[str]) -> Iterator[tuple[str, int]]:
    """Yields the text of each line, with its end, and the number of bytes read so far.

    A byte order mark and bytes that are not UTF-8 are removed.

    Args:
      path: The file, which may be a gzip file.
      damaged: Counts lines with such bytes by path, for `warn_of_damaged`.
    """
    for number, (line, position) in enumerate(read_lines(path)):
        text = line.decode("utf-8", "ignore")
        if not line.isascii() and text.encode() != line:
            damaged[path] += 1
        yield text if number else text.removeprefix("\ufeff"), position


def warn_of_damaged(damaged: collections.Counter[str]) -> None:
    """Warns of lines that are not UTF-8, if there are any."""
    if damaged:
        logger.warning(
            "%d lines are not UTF-8, the first of them in %s. What cannot be read was left out.",
            damaged.total(),
            next(iter(damaged)),
        )


class GivenText(NamedTuple):
    """A text, or a pair of texts, of a file.

    Attributes:
      place: The file and the line, for messages.
      texts: The text and the second text, which may be "".
      id: The ID in the table; None without a column of IDs.
    """

    place: str
    texts: tuple[str, str]
    id: str | None

    @property
    def text(self) -> str:
        """Both texts in the form of a line."""
        return " ||| ".join(filter(None, self.texts))


class Texts:
    """The texts of some files, which are read each time they are iterated.

    A line is a text `A` or a pair `A ||| B`. A table names its columns on its first line; JSON
    lines name theirs in each object.

    Args:
      files: The paths of the files.
      columns: The format of the files and the columns of the texts.

    Attributes:
      files: The paths of the files.
      has_ids: Whether the texts have IDs.

    Raises:
      ValueError: where a table has no such columns.
    """

    def __init__(self, files: Sequence[str], columns: TextColumns | None = None) -> None:
        columns = columns or TextColumns()
        self.files = files
        self.has_ids = columns.id_column is not None
        self._sources = [
            _Source(path, columns.input_format or format_of(path), columns) for path in files
        ]

    def __iter__(self) -> Iterator[GivenText]:
        for source in self._sources:
            yield from source.read()


class _Source:
    """A file of texts, with the columns that are read."""

    def __init__(self, path: str, form: str, columns: TextColumns) -> None:
        self.path = path
        self.form = form
        self._id_column = columns.id_column
        self._separator = columns.separator
        self._has_warned = False
        self._text_columns: list[str] = []
        if form != "lines":
            self._find_columns(columns.text_column)
        elif columns.text_column or columns.id_column:
            name = "text_column" if columns.text_column else "id_column"
            raise MessageError(
                "%s must be that of a table. %r is read as lines of text; give its format with "
                "%s, csv, tsv or jsonl.",
                Option(name, getattr(columns, name)),
                path,
                Option("input_format"),
            )

    def _open(self) -> Table:
        return Table(RowReader(self.path, self.form, self._separator), strict=True)

    def _find_columns(self, text_column: str | None) -> None:
        table = self._open()
        names = table.names
        if text_column:
            self._text_columns = text_column.split(",")
        elif len(names) == 1:
            self._text_columns = names
        else:
            usual = (columns for columns in _USUAL_COLUMNS if {*columns} <= {*names})
            self._text_columns = next(usual, [])
        if not 1 <= len(self._text_columns) <= 2:
            raise OptionError(
                "text_column",
                f"name the column of the texts in {self.path!r}, or two for pairs",
                Message("%r; the columns are %s", text_column, names),
            )
        if not text_column and len(names) == 1 and table.suggest_separator(lambda _: True):
            must = Message("its columns must be named, a single one with %s", Option("text_column"))
            raise table.error(must, lambda _: True)
        wanted = self._text_columns + ([self._id_column] if self._id_column else [])
        if None in map(table.find, wanted):
            options = Option("text_column"), Option("id_column")
            raise table.error(
                Message("it must have the columns %s, those of %s and %s", wanted, *options),
                lambda cells: {*wanted} <= {*cells},
                Message("%s reads lines of text instead.", Option("input_format", "lines")),
            )

    def read(self) -> Iterator[GivenText]:
        """Yields the texts."""
        if self.form == "lines":
            damaged: collections.Counter[str] = collections.Counter()
            for number, (line, _) in enumerate(decoded_lines(self.path, damaged), start=1):
                yield GivenText(f"{self.path}:{number}", split_pair(clean_line(line)), None)
            if not self._has_warned:
                warn_of_damaged(damaged)
                self._has_warned = True
            return
        table = self._open()
        for row in table.rows:
            place = f"{self.path}:{row.line}"
            cells = table.name_cells(place, row.cells)
            texts = [self._cell(place, cells, name) for name in self._text_columns]
            name = self._id_column
            given = None if name is None else str(self._cell(place, cells, name, is_text=False))
            yield GivenText(place, (texts[0], texts[1] if len(texts) > 1 else ""), given)

    def _cell(self, place: str, cells: dict[str, Any], name: str, *, is_text: bool = True) -> Any:
        if name not in cells:
            raise ValueError(
                f"{place}: must have a value of {name!r}. Received only {list(cells)}."
            )
        value = cells[name]
        if is_text and not isinstance(value, str):
            raise ValueError(f"{place}: must have text as {name!r}. Received {value!r:.80}.")
        return value

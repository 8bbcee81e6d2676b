"""Texts in files: the lines of a text, or columns of a table, each with its id if it has one."""

import collections
import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from absl import logging

from bert.files.parquet import read_parquet
from bert.files.paths import read_lines
from bert.files.rows import (
    FORMATS,
    SEPARATORS,
    clean_line,
    csv_rows,
    find_separator,
    format_of,
    json_rows,
    name_cells,
    split_pair,
    suggest_separator,
    text_lines,
)
from bert.options import option

# The columns that hold texts where nobody says which.
_USUAL_COLUMNS = (["text"], ["text_a", "text_b"], ["text_a"], ["sentence"])


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


def decoded_lines(path: str, damaged: collections.Counter[str]) -> Iterator[tuple[str, int]]:
    """Yields the text of each line, its end too, with the bytes read from the file so far.

    Bytes that are not UTF-8 are left out, and so is a byte order mark.

    Args:
      path: Of the file, which may be one of gzip.
      damaged: By path, in how many lines there are such bytes, for `warn_of_damaged`; is added to.
    """
    for number, (line, position) in enumerate(read_lines(path)):
        text = line.decode("utf-8", "ignore")
        if not line.isascii() and text.encode() != line:
            damaged[path] += 1
        yield text if number else text.removeprefix("\ufeff"), position


def warn_of_damaged(damaged: collections.Counter[str]) -> None:
    """Warns of lines that are not UTF-8, if there are any."""
    if damaged:
        logging.warning(
            "%d lines are not UTF-8, the first of them in %s. What cannot be read was left out.",
            damaged.total(),
            next(iter(damaged)),
        )


class GivenText(NamedTuple):
    """A text, or a pair of texts, of a file.

    Attributes:
      place: Where it stands, for messages.
      texts: The text and another one, which is empty where there is none.
      id: What the table calls it; None for a text of no table, or of one without such a column.
    """

    place: str
    texts: tuple[str, str]
    id: str | None

    @property
    def text(self) -> str:
        """Both texts as a line has them."""
        return " ||| ".join(each for each in self.texts if each)


class Texts:
    """The texts of some files, read anew each time they are iterated.

    A line is a text `A` or a pair `A ||| B`. A table names its columns on its first line; JSON
    lines name theirs in each object.

    Args:
      files: Their paths.
      form: One of `tables.FORMATS`, or None for what the ending of each name tells.
      text_column: The name of the column with the texts, or those of the first and second texts of
        pairs, with a comma between them; None for the usual ones.
      id_column: The name of the column that tells texts apart, or None.
      separator: What is between the columns, as `--separator` takes it; None for the usual one.

    Attributes:
      files: As given.

    Raises:
      ValueError: where a table has no such columns.
    """

    def __init__(
        self,
        files: Sequence[str],
        form: str | None = None,
        text_column: str | None = None,
        id_column: str | None = None,
        separator: str | None = None,
    ) -> None:
        self.files = files
        self.has_ids = id_column is not None
        self._sources = [
            _Source(path, form or format_of(path), text_column, id_column, separator)
            for path in files
        ]

    @classmethod
    def of(cls, columns: TextColumns, files: Sequence[str]) -> "Texts":
        """Returns the texts of files in some columns."""
        named = (columns.text_column, columns.id_column)
        return cls(files, columns.input_format, *named, columns.separator)

    def __iter__(self) -> Iterator[GivenText]:
        for source in self._sources:
            yield from source.read()


class _Source:
    """One file, and which of its columns are read."""

    def __init__(
        self,
        path: str,
        form: str,
        text_column: str | None,
        id_column: str | None,
        separator: str | None,
    ) -> None:
        self.path = path
        self.form = form
        self._id_column = id_column
        self._separator = separator
        self._has_warned = False
        self._text_columns: list[str] = []
        if form != "lines":
            self._find_columns(text_column)
        elif text_column or id_column:
            given = (
                f"`--text_column={text_column}`" if text_column else f"`--id_column={id_column}`"
            )
            raise ValueError(
                f"{given} must be that of a table. {path!r} is read as lines of text; say what it "
                "is with `--input_format`, csv, tsv or jsonl."
            )

    def _find_columns(self, text_column: str | None) -> None:
        names = self._names()
        if text_column:
            self._text_columns = text_column.split(",")
        elif len(names) == 1:
            self._text_columns = names
        else:
            usual = (each for each in _USUAL_COLUMNS if {*each} <= {*names})
            self._text_columns = next(usual, [])
        if not 1 <= len(self._text_columns) <= 2:
            raise ValueError(
                f"`--text_column` must name the column of the texts in {self.path!r}, or two for "
                f"pairs. Received {text_column!r}; the columns are {names}."
            )
        wanted = [*self._text_columns, *([self._id_column] if self._id_column else [])]
        if not text_column and len(names) == 1 and (hint := self._suggest(names, [])):
            raise ValueError(
                f"The header of {self.path!r} must name its columns. It is a single one, "
                f"{names[0]!r}.{hint} If it is one, name it with `--text_column`."
            )
        if missing := [name for name in wanted if name not in names]:
            raise ValueError(
                f"{self.path!r} must have the columns {wanted}. It lacks {missing} and has "
                f"{names}. Say with `--text_column` and `--id_column` which hold the texts and "
                f"their ids; `--input_format=lines` reads lines of text instead."
                f"{self._suggest(names, wanted)}"
            )

    def _names(self) -> list[str]:
        if self.form in ("jsonl", "parquet"):
            first = next(self._objects(), None)
            return list(first[1]) if first else []
        return self._header(self._rows())

    def _header(self, rows: Iterator[tuple[int, list[str]]]) -> list[str]:
        """Returns the names in the first row, which it takes."""
        first = next(rows, None)
        if first is None:
            raise ValueError(
                f"{self.path!r} must hold a header and the rows of a table. It holds blank lines."
            )
        return [cell.strip() for cell in first[1]]

    def _objects(self) -> Iterator[tuple[int, dict[str, Any]]]:
        if self.form == "jsonl":
            return iter(json_rows(self.path))
        return enumerate(read_parquet(self.path), start=1)

    def _rows(self) -> Iterator[tuple[int, list[str]]]:
        """Yields the rows of a table, its header too, that are not blank."""
        lines = text_lines(self.path)
        rows: Iterable[tuple[int, list[str]]]
        separator = self._find_separator()
        if self.form == "tsv" and separator == "\t":
            rows = ((number, line.split("\t")) for number, line in lines)
        else:
            rows = csv_rows(self.path, lines, separator)
        for number, cells in rows:
            if any(cell and not cell.isspace() for cell in cells):
                yield number, cells

    def _find_separator(self) -> str:
        if self._separator is None:
            return "\t" if self.form == "tsv" else ","
        return find_separator(self.path, self._separator)

    def _suggest(self, names: list[str], wanted: list[str]) -> str:
        """Returns what to say where another separator would give the wanted columns."""
        if self.form not in ("tsv", "csv"):
            return ""
        separator = self._find_separator()
        return suggest_separator(
            separator.join(names), separator, lambda cells: {*wanted} <= {*cells}
        )

    def _records(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yields the place of each row and its cells by the names of their columns."""
        if self.form in ("jsonl", "parquet"):
            for line, values in self._objects():
                yield f"{self.path}:{line}", values
            return
        rows = self._rows()
        header = self._header(rows)
        for number, cells in rows:
            place = f"{self.path}:{number}"
            yield place, name_cells(place, header, cells)

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
        for place, cells in self._records():
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

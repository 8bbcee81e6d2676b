"""Texts, pairs of texts and inputs of a model: lines of a file, or columns of a table."""

import collections
import dataclasses
import functools
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from bert.files import parquet
from bert.files.display import counted
from bert.files.paths import check_beginning, match_files, read_lines
from bert.files.rows import FORMATS, SEPARATORS, Row, RowReader, Table, format_of, is_number
from bert.log import logger
from bert.options import Message, MessageError, Option, OptionError, OptionGroup, option

# The columns of texts by default.
_USUAL_COLUMNS = (["text"], ["text_a", "text_b"], ["text_a"], ["sentence"])
_PAIR = re.compile(r"(.*) \|\|\| (.*)", re.DOTALL)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextColumns(OptionGroup):
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


def find_texts(input_file: str) -> list[str]:
    """Returns the files of the option `input_file`, whose first lines can be read.

    Raises:
      ValueError: where a pattern matches no file, a gzip file is incomplete, or the beginning of a
        file is not UTF-8 text.
      OSError: where a file cannot be opened.
    """
    files = match_files(input_file, "input_file")
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
            "What is not UTF-8 was left out of %s, the first of them in %s.",
            counted(damaged.total(), "line"),
            next(iter(damaged)),
        )


class GivenText(NamedTuple):
    """A text, or a pair of texts, of a file.

    Attributes:
      place: The file and the line, for messages.
      texts: The text and the second text, which may be "".
      id: The ID in the table; None where it is null, and without a column of IDs.
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
      has_ids: Whether the texts have IDs.

    Raises:
      ValueError: where a table has no such columns.
    """

    def __init__(self, files: Sequence[str], columns: TextColumns | None = None) -> None:
        self.files = files
        self._given = columns or TextColumns()
        self.has_ids = bool(self._given.id_column)
        self._warned: set[str] = set()
        # Of a table, the columns of its texts and the one of IDs.
        self._columns = {path: self._find_columns(path) for path in files}

    def __iter__(self) -> Iterator[GivenText]:
        for path in self.files:
            yield from self._read_table(path) if self._columns[path] else self._read_lines(path)

    def _open(self, path: str) -> Table:
        reader = RowReader(path, self._given.input_format, self._given.separator)
        return Table(reader, strict=True).keep_blank_texts()

    def _find_columns(self, path: str) -> list[str]:
        """Returns the columns to read, that of IDs last; [] for a file of lines."""
        text_column, id_column = self._given.text_column, self._given.id_column
        if (self._given.input_format or format_of(path)) == "lines":
            for name, column in (("text_column", text_column), ("id_column", id_column)):
                if column:
                    raise MessageError(
                        "%s must be that of a table. %r is read as lines of text; give its format "
                        "with %s, csv, tsv or jsonl.",
                        Option(name, column),
                        path,
                        Option("input_format"),
                    )
            return []
        table = self._open(path)
        names = table.names
        if text_column:
            texts = text_column.split(",")
        elif len(names) == 1:
            texts = names
        else:
            usual = (columns for columns in _USUAL_COLUMNS if {*columns} <= {*names})
            texts = next(usual, [])
        if not 1 <= len(texts) <= 2:
            raise OptionError(
                "text_column",
                f"name the column of the texts in {path!r}, or two for pairs",
                Message("%r; the columns are %s", text_column, names),
            )
        if not text_column and len(names) == 1 and table.suggest_separator(lambda _: True):
            must = Message("its columns must be named, a single one with %s", Option("text_column"))
            raise table.error(must, lambda _: True)
        columns = texts + ([id_column] if id_column else [])
        if None in map(table.find, columns):
            options = Option("text_column"), Option("id_column")
            raise table.error(
                Message("it must have the columns %s, those of %s and %s", columns, *options),
                lambda cells: {*columns} <= {*cells},
                Message("%s reads lines of text instead.", Option("input_format", "lines")),
            )
        return columns

    def _read_lines(self, path: str) -> Iterator[GivenText]:
        damaged: collections.Counter[str] = collections.Counter()
        for number, (line, _) in enumerate(decoded_lines(path, damaged), start=1):
            yield GivenText(f"{path}:{number}", split_pair(clean_line(line)), None)
        # Once, though a file may be read several times.
        if path not in self._warned:
            warn_of_damaged(damaged)
            self._warned.add(path)

    def _read_table(self, path: str) -> Iterator[GivenText]:
        columns, table = self._columns[path], self._open(path)
        for row in table.rows:
            place = f"{path}:{row.line}"
            cells = table.name_cells(place, row.cells)
            for name in columns:
                if name not in cells:
                    raise ValueError(
                        f"{place}: must have a value of {name!r}. Received only {list(cells)}."
                    )
            values = [cells[name] for name in columns]
            given = values.pop() if self.has_ids else None
            for name, text in zip(columns, values, strict=False):
                if not isinstance(text, str):
                    raise ValueError(f"{place}: must have text as {name!r}. Received {text!r:.80}.")
            first, second = [*values, ""][:2]
            yield GivenText(place, (first, second), None if given is None else str(given))


class Input(NamedTuple):
    """An input of a model, or the reason why a row is no input.

    Attributes:
      line: The line of the row, from 1.
      done: The share of the file that has been read, up to 1.
      cells: All values of the row by name; None if it cannot be read.
      row: The fields of the task; None if they cannot be read.
      problem: The reason.
    """

    line: int
    done: float
    cells: dict[str, Any] | None
    row: dict[str, Any] | None
    problem: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Columns:
    """The columns with the fields of a task.

    Attributes:
      fields: The names of the fields in the task.
      given: The value of the option `columns`, or None.
      known: The columns of the training files, by the names of options, as in `task.json`.
      derive: Returns the fields of a row in another format of the task, from the place and the
        values of the row; None where there is no other format.
    """

    fields: tuple[str, ...]
    given: str | None = None
    known: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    derive: Callable[[str, Mapping[str, Any]], dict[str, Any]] | None = None

    @property
    def choices(self) -> list[list[str]]:
        """The names of columns that a file may have, the likeliest names first."""
        if self.given:
            names = self.given.split(",")
            if len(names) != len(self.fields):
                must = f"name {len(self.fields)} columns, for {', '.join(self.fields)}"
                raise OptionError("columns", must, self.given)
            return [names]
        trained = [self.known.get(f"{field}_column") for field in self.fields]
        return [*[trained] * all(trained), list(self.fields)]  # type: ignore[list-item]

    @property
    def used(self) -> list[str]:
        """The given columns, or else all columns of the training files, also of labels and IDs."""
        if self.given:
            return self.given.split(",")
        return [column for name, column in self.known.items() if name.endswith("_column")]

    @property
    def expects_header(self) -> bool:
        """Whether the first row of a table is a header, also where columns are numbers."""
        has_header = None if self.given else self.known.get("has_header")
        return not all(map(is_number, self.used)) if has_header is None else has_header

    def find(self, names: Sequence[str]) -> list[str] | None:
        """Returns the first choice whose names are all in `names`, or None."""
        return next((choice for choice in self.choices if {*choice} <= {*names}), None)


# Returns all values of a row, and the fields of the task, from its place and its cells.
Parser = Callable[[str, Any], tuple[dict[str, Any], dict[str, Any]]]


class InputRows(Iterator[Input]):
    """The inputs of a file, which can be read once.

    Args:
      reader: The reader of the file.
      names: The names of the columns; empty if every row has its own.
      rows: The rows to parse; None for all of the reader.
      parse: Returns the values of a row.

    Attributes:
      name: The file in messages.
      separator: The separator of columns, or the default one.
      has_mark: Whether the file is a table that begins with a byte order mark.
    """

    def __init__(
        self, reader: RowReader, names: list[str], parse: Parser, rows: Iterator[Row] | None = None
    ) -> None:
        self.names = names
        self.name = reader.name
        self.separator = reader.separator
        self.has_mark = reader.has_cells and reader.has_mark
        self._reader = reader
        self._rows = iter(reader) if rows is None else rows
        self._parse = parse

    def count(self) -> int:
        """Reads the remaining rows without parsing, and returns their number."""
        return sum(1 for _ in self._rows)

    def only(self, places: range) -> None:
        """Limits the inputs to the rows of a range, counted from the next row."""
        self._rows = itertools.islice(self._rows, places.start, places.stop)

    def __next__(self) -> Input:
        line, value = next(self._rows)
        done = self._reader.done
        try:
            if isinstance(value, ValueError):
                raise value
            cells, row = self._parse(f"{self.name}:{line}", value)
        except ValueError as error:
            return Input(line, done, None, None, str(error))
        return Input(line, done, cells, row)


def kind_of(path: str, separator: str | None = None) -> str:
    """Returns the format of a file, one of `rows.FORMATS`; with a separator, it is a table."""
    found = format_of(path)
    return "csv" if found == "lines" and separator is not None else found


def read_inputs(
    path: str, kind: str | None, columns: Columns, separator: str | None = None
) -> InputRows:
    """Returns the inputs of a file.

    Args:
      path: The file; - for standard input.
      kind: One of `rows.FORMATS`; None for the format of the extension.
      columns: The columns with the fields of the task.
      separator: As for `rows.find_separator`; None for the separator of the training files.

    Raises:
      ValueError: where the columns are not in the header.
    """
    # An error of the option comes first.
    assert columns.choices
    is_table = kind is None and separator is None and path != "-" and _is_table(path, columns)
    kind = kind or ("csv" if is_table else kind_of(path, separator))
    if kind not in ("tsv", "csv"):
        reader = RowReader(path, kind)
        if kind == "lines":
            parse = functools.partial(_parse_line, columns.fields)
            return InputRows(reader, list(columns.fields), parse)
        names = parquet.describe_parquet(path)[0] if kind == "parquet" else []
        return InputRows(reader, names, functools.partial(_parse_object, columns))
    if separator is None and kind == "csv":
        separator = columns.known.get("separator")
    return _read_table(RowReader(path, kind, separator), columns)


def _is_table(path: str, columns: Columns) -> bool:
    """Returns whether a file without a known extension is a table, like the training files.

    The separator of the training must split its first row into the columns.
    """
    separator = columns.known.get("separator")
    if separator is None or format_of(path) != "lines":
        return False
    try:
        names = Table(RowReader(path, "csv", separator)).names
    except ValueError:
        return False
    positions = map(str, range(len(names)))
    return columns.find(names) is not None or {*columns.used} <= {*names, *positions}


def names_of(inputs: Iterable[Input]) -> list[str]:
    """Returns the names of all values of inputs."""
    return list(dict.fromkeys(name for query in inputs for name in query.cells or ()))


def _parse_line(
    fields: tuple[str, ...], place: str, line: str
) -> tuple[dict[str, Any], dict[str, Any]]:
    cells = line.split("\t") if len(fields) > 1 else [line]
    if len(cells) != len(fields):
        raise ValueError(
            f"{place}: must have {', '.join(fields)}, with a tab between them. Received {line!r}."
        )
    row = dict(zip(fields, cells, strict=True))
    return row, row


def _parse_object(
    columns: Columns, place: str, value: Any
) -> tuple[dict[str, Any], dict[str, Any]]:
    default = columns.choices[-1]
    if isinstance(value, str) and len(default) == 1:
        value = {default[0]: value}
    names = columns.find(list(value)) if isinstance(value, Mapping) else None
    if names is None and columns.derive and isinstance(value, Mapping):
        return dict(value), columns.derive(place, value)
    if names is None:
        raise ValueError(
            f"{place}: must be an object with the keys {default}. Received {value!r:.200}."
        )
    row = zip(columns.fields, names, strict=True)
    return dict(value), {field: value[name] for field, name in row}


def _read_table(reader: RowReader, columns: Columns) -> InputRows:
    # A header may be blank, which is then the error.
    reader.keeps_blank = reader.is_plain_tsv
    table = Table(reader)
    table.keep_blank_texts()
    names, rows = _unique(table.names), table.rows
    likeliest = columns.choices[0]
    expects_header = columns.expects_header
    places = {name: table.find(name) for name in likeliest} if expects_header else {}
    found = columns.find(table.names)
    if found and not expects_header and all(map(is_number, found)):
        # Cells of a row may be numbers, too. pandas names columns by their own numbers.
        found = found if [*map(table.names.index, found)] == [*map(int, found)] else None
    positions: list[int] | None = None
    if found:
        positions = [table.names.index(name) for name in found if table.find(name) is not None]
    elif columns.derive and not columns.given:
        pass
    elif all(is_number(name) or places.get(name) is not None for name in likeliest):
        by_name = ((name, places.get(name)) for name in likeliest)
        positions = [int(name) if place is None else place for name, place in by_name]
        if not expects_header:
            # The first row is an input.
            names = [f"column_{position}" for position in range(len(names))]
            rows = itertools.chain([table.first], rows)
    else:
        trained = f" (or {likeliest}, as in training)" if len(columns.choices) > 1 else ""
        usual = "Name the columns of the texts with %s, or give %s if there is no header."
        raise table.error(
            f"the header must name {columns.choices[-1]}{trained}",
            lambda cells: columns.find(cells) is not None,
            Message(usual, Option("columns"), Option("input_format", "lines")),
        )

    def parse(place: str, cells: list[str]) -> tuple[dict[str, Any], dict[str, Any]]:
        table.check_width(place, cells)
        named = dict(zip(names, cells, strict=False))
        if positions is None:
            return _parse_object(columns, place, named)
        if len(cells) <= max(positions):
            found, needed = counted(len(cells), "column"), max(positions) + 1
            raise ValueError(f"{place}: has {found}, needs {needed}. Received {cells}.")
        return named, {
            field: cells[position]
            for field, position in zip(columns.fields, positions, strict=True)
        }

    return InputRows(reader, names, parse, rows)


def _unique(header: Sequence[str]) -> list[str]:
    """Returns the names, with a free number after a name that is there already."""
    names: list[str] = []
    for name in header:
        count = header[: len(names)].count(name)
        numbered = (f"{name}_{number}" for number in itertools.count(count + 1))
        taken = {*header, *names}
        names.append(next(new for new in numbered if new not in taken) if count else name)
    return names

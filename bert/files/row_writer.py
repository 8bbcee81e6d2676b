"""Writes rows as JSON lines, CSV, TSV or Parquet, and files that an interrupted run can resume.

A row has the values of an input, then its answers. An answer gets a suffix where an input has a
value of the same name.
"""

import codecs
import contextlib
import csv
import dataclasses
import functools
import hashlib
import io
import itertools
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, BinaryIO, TypeVar

from bert.files import parquet
from bert.files.display import counted
from bert.files.durable import open_locked, rename, replace_files, sync
from bert.files.paths import file_system, is_file, json_number, open_file, parse_json
from bert.files.texts import Input
from bert.log import logger
from bert.options import Message, OptionError

_Item = TypeVar("_Item")

# Tabs, and all characters that end a line in some program.
_BREAKS = re.compile("[\t\n\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029]+")

_SUFFIX = "_predicted"
# The column of errors.
_ERROR = "error"


def write_tsv(path: str, rows: Iterable[Iterable[str]]) -> None:
    """Writes a file of tab-separated values; tabs and line breaks within cells become spaces."""
    with replace_files([path]) as [file]:
        for row in rows:
            file.write(tsv_line(row).encode("utf-8", "replace") + b"\n")


def save_rows(rows: Any, option: str) -> str:
    """Returns the path of a JSON-lines file in memory, which has a digest of the rows.

    Args:
      rows: A list of dictionaries, or an object whose `to_dict("records")` returns one, such as a
        DataFrame.
      option: The name of the option that gave the rows.

    Raises:
      OptionError: where these are no rows of JSON values, among them scalars of NumPy.
    """
    try:
        records = rows.to_dict("records") if hasattr(rows, "to_dict") else list(rows)
        dump = functools.partial(json.dumps, ensure_ascii=False, default=json_number)
        lines = [dump(dict(record)).encode() + b"\n" for record in records]
    except (TypeError, ValueError) as error:
        raise OptionError(
            option,
            "be a path, a DataFrame, or a list of dictionaries of texts and numbers",
            remedy=Message("Received a %s: %s.", type(rows).__name__, error),
        ) from error
    if not lines and isinstance(rows, Iterator):
        remedy = "A generator has its rows once: a list has them for every run."
        raise OptionError(option, "have rows", Message("a used or empty generator"), remedy)
    content = b"".join(lines)
    folder = f"ram://rows/{hashlib.sha256(content).hexdigest()}"
    path = f"{folder}/{option}.jsonl"
    if not is_file(path):
        file_system().makedirs(folder)
        with open_file(path, "wb") as file:
            file.write(content)
    return path


def tsv_line(cells: Iterable[str]) -> str:
    """Returns a line of tab-separated values; tabs and line breaks within cells become spaces."""
    return "\t".join([_BREAKS.sub(" ", cell) for cell in cells])


@dataclasses.dataclass(frozen=True)
class Names:
    """The names of the values of inputs and answers, which are the same in every row.

    Attributes:
      inputs: The names of the values of inputs.
      answers: The name of each value of an answer in the output.
      error: The name of the error of an input without an answer.
    """

    inputs: Sequence[str]
    answers: Mapping[str, str]
    error: str

    @classmethod
    def of(cls, inputs: Sequence[str], answers: Sequence[str]) -> "Names":
        """Returns names that are distinct from those of inputs, and warns of changed names."""
        renamed = {answer: _free(answer, inputs) for answer in answers}
        for old, new in renamed.items():
            if old != new:
                logger.warning(
                    "Inputs have a value %r: the one of the answers is named %r.", old, new
                )
        return cls(inputs, renamed, _free(_ERROR, [*inputs, *renamed.values()]))

    @property
    def added(self) -> list[str]:
        """The names of answers and errors."""
        return [*self.answers.values(), self.error]


def _free(name: str, taken: Sequence[str]) -> str:
    while name in taken:
        name += _SUFFIX
    return name


class JsonLines:
    """The format of answers as JSON lines.

    Args:
      names: The names of the values.
    """

    # Writes the complete file from the lines, where they are not the file itself.
    make: Callable[[Any, BinaryIO], None] | None = None

    def __init__(self, names: Names) -> None:
        self.names = names

    def find_problem(self, query: Input) -> str:
        """Returns why the answer to an input cannot be written, or ""."""
        # The names of a file, whose inputs are all read before, are those of no input.
        taken = [name for name in query.cells or () if name in self.names.added]
        if not taken:
            return ""
        return (
            f"must not have keys that answers have, unless the first input has them. Received "
            f"{taken}. Give a file in place of standard input, so that all keys are known before."
        )

    def answer(self, query: Input, answer: Mapping[str, Any]) -> bytes:
        """Returns the line of an answer."""
        named = {self.names.answers[name]: value for name, value in answer.items()}
        return _json_line({**(query.cells or {}), **named})

    def refusal(self, query: Input, problem: str) -> bytes:
        """Returns the line of an input that has no answer."""
        return _json_line({"line": query.line, self.names.error: problem})

    def belongs(self, line: bytes, query: Input) -> bool:
        """Returns whether a line of an earlier run is an answer to an input."""
        try:
            answer = parse_json(line)
        except ValueError:
            return False
        if not isinstance(answer, dict) or self.names.error in answer:
            return False
        given = {name: value for name, value in answer.items() if name not in self.names.added}
        # Compared as text, since NaN does not equal itself.
        return json.dumps(given) == json.dumps(query.cells)


class _Columns(JsonLines):
    """A format with the same columns in every row, whose rows are JSON lines until it is complete.

    The lines have errors even where the complete file has no column of them: a run that skips
    inputs without an answer can resume a run that stopped at one.

    Args:
      names: The names of the columns.
      has_errors: Whether the complete file has the column of errors.
    """

    def __init__(self, names: Names, *, has_errors: bool) -> None:
        super().__init__(names)
        self.columns = [*names.inputs, *names.answers.values(), *[names.error] * has_errors]

    def find_problem(self, query: Input) -> str:
        """Returns why an input has no row, or ""."""
        unknown = [name for name in query.cells or () if name not in self.names.inputs]
        if not unknown:
            return ""
        return (
            f"must have the keys of the first input, {[*self.names.inputs]}, for a table. Received "
            f"{unknown}. Write JSON lines, in which every input may have its own keys."
        )

    def answer(self, query: Input, answer: Mapping[str, Any]) -> bytes:
        flat = _flatten(answer, self.names).items()
        plain = {n: _cell(value) if isinstance(value, list | dict) else value for n, value in flat}
        return super().answer(query, plain)

    def refusal(self, query: Input, problem: str) -> bytes:
        cells = (query.cells or {}).items()
        given = {name: value for name, value in cells if name not in self.names.added}
        return _json_line({**given, self.names.error: problem})


class Table(_Columns):
    """The format of answers as a table: a header, and a row for each input.

    Args:
      names: The names of the columns.
      separator: With a tab, tabs and line breaks in cells become spaces. With any other separator,
        cells that need quotes have them.
      has_errors: Whether the complete file has the column of errors.
      has_header: Whether the file has the header; a part that follows another one has none.
      has_mark: Whether the file begins with a byte order mark, by which Excel knows UTF-8.
    """

    def __init__(
        self,
        names: Names,
        separator: str,
        *,
        has_errors: bool,
        has_header: bool = True,
        has_mark: bool = False,
    ) -> None:
        super().__init__(names, has_errors=has_errors)
        self._separator = separator
        self._header = b""
        if has_header:
            self._header = codecs.BOM_UTF8 * has_mark + self._line(self.columns)

    def _line(self, cells: Sequence[str]) -> bytes:
        if self._separator == "\t":
            return f"{tsv_line(cells)}\n".encode("utf-8", "backslashreplace")
        text = io.StringIO()
        # Before Python 3.13, `csv` quotes a carriage return only where it may end lines.
        csv.writer(text, delimiter=self._separator, lineterminator="\r\n").writerow(cells)
        line = text.getvalue().removesuffix("\r\n") + "\n"
        return line.encode("utf-8", "backslashreplace")

    def make(self, lines: Any, output: BinaryIO) -> None:
        output.write(self._header)
        for row in map(parse_json, lines):
            output.write(self._line([_cell(row.get(name)) for name in self.columns]))


class ParquetLines(_Columns):
    """The format of answers as Parquet.

    Args:
      names: The names of the columns.
      input_file: The file of the inputs.
      start: The number of the first input in a Parquet file of inputs, whose columns are copied;
        None for another format.
      has_errors: Whether the complete file has the column of errors.
    """

    def __init__(
        self, names: Names, input_file: str, start: int | None = None, *, has_errors: bool = False
    ) -> None:
        super().__init__(names, has_errors=has_errors)
        self._input_file = input_file
        self._start = start

    def make(self, lines: Any, output: BinaryIO) -> None:
        rows, texts = map(parse_json, lines), {self.names.error}
        parquet.write_parquet(
            output, rows, self.columns, self._input_file, self._start, texts=texts
        )


def flat_names(answers: Sequence[str]) -> list[str]:
    """Returns the names of answers in a table, where the label is followed by its probability."""
    names = list(answers)
    if {"label", "probabilities"} <= {*names}:
        names.insert(names.index("label") + 1, "probability")
    return names


def probability_of(answer: Mapping[str, Any]) -> float:
    """Returns the probability of an answer: its own, or that of the likeliest label."""
    if "probabilities" not in answer:
        return float(answer["probability"])
    chances = answer["probabilities"]
    return float(max(chances.values() if isinstance(chances, Mapping) else chances))


def _flatten(answer: Mapping[str, Any], names: Names) -> dict[str, Any]:
    """Returns the values of an answer in a table; None for missing ones."""
    values = dict(answer)
    if "probabilities" in values and "label" in values:
        # The label is the likeliest one, or empty where that is too unlikely.
        values["probability"] = probability_of(answer)
    known = names.answers
    assert values.keys() <= known.keys(), f"Answers were to have {[*known]}, not {[*values]}."
    return {name: values.get(name) for name in known}


def _json_line(values: Mapping[str, Any]) -> bytes:
    return json.dumps(values, ensure_ascii=False).encode("utf-8", "backslashreplace") + b"\n"


def _cell(value: Any) -> str:
    """Returns the text of a value, as JSON if it is no text."""
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


class ResumableFile:
    """A line-oriented output file that an interrupted run can resume.

    The file is local. Until it is complete, it has another name.

    Args:
      path: The path of the complete file.
      key: A digest of model, input and options, which is part of the other name, so that lines
        of another run are never resumed.

    Attributes:
      unfinished: The path until the file is complete.
      count: How many complete lines it has.
      num_rewritten: How many of the inputs returned by `skip_answered` already have lines; their
        chunk is computed again.
    """

    def __init__(self, path: str, key: str) -> None:
        self._path = os.path.realpath(path)
        self.unfinished = f"{self._path}.{key}.unfinished"
        self.count = 0
        self.num_rewritten = 0
        # Whether `count` includes the lines of an earlier run.
        self._is_passed = False
        try:
            self._file = open_locked(self.unfinished)
        except BlockingIOError as error:
            raise OptionError(
                "output_file",
                "be written by one run at a time",
                remedy=f"Another one is at work on {self.unfinished!r}.",
            ) from error

    def skip_answered(
        self,
        inputs: Iterator[_Item],
        answers: Callable[[bytes, _Item], bool],
        chunk: int = 1,
    ) -> Iterator[_Item]:
        """Returns the inputs without a line, and the inputs before them in their chunk.

        Lines stay up to the first one that is incomplete or not the answer to its input.

        Args:
          inputs: All inputs, one for each line.
          answers: Returns whether a line is the answer to an input.
          chunk: How many inputs are answered together.
        """
        begun: list[_Item] = []
        end = 0
        for line in self._file:
            record = next(inputs, None)
            if record is None:
                break
            if not line.endswith(b"\n") or not answers(line, record):
                inputs = itertools.chain([record], inputs)
                break
            end += len(line)
            self.count += 1
            begun.append(record)
            if len(begun) == chunk:
                begun.clear()
        self._file.seek(end)
        self._file.truncate()
        self._is_passed = True
        if self.count:
            logger.info("Resuming after %s in %s.", counted(self.count, "line"), self.unfinished)
        self.num_rewritten = len(begun)
        return itertools.chain(begun, inputs)

    def write(self, line: bytes) -> None:
        """Writes a line, which has its end."""
        self._file.write(line)
        self.count += 1

    def flush(self) -> None:
        """Writes buffered lines to the file."""
        self._file.flush()

    def finish(self, make: Callable[[BinaryIO, BinaryIO], None] | None = None) -> None:
        """Renames the complete file.

        Args:
          make: Writes the complete file from the lines, where they are not the file itself.
        """
        with self._file:
            self._file.flush()
            if make:
                self._file.seek(0)
                with replace_files([self._path]) as [file]:
                    make(self._file, file)
                os.remove(self.unfinished)
                return
            sync(self.unfinished)
            rename(self.unfinished, self._path)
            sync(os.path.dirname(self._path))

    def leave(self) -> None:
        """Closes the file, and removes it if it has no lines."""
        with contextlib.suppress(OSError):
            self._file.flush()
        # Before `skip_answered`, the number of lines that are answers is not known.
        lines = counted(self.count, "line") if self._is_passed else "Lines"
        if self.count if self._is_passed else os.fstat(self._file.fileno()).st_size:
            logger.warning(
                "%s so far in %s; the same command resumes there.", lines, self.unfinished
            )
        else:
            with contextlib.suppress(OSError):
                os.remove(self.unfinished)
        with contextlib.suppress(OSError):
            self._file.close()


@contextlib.contextmanager
def open_resumable(
    path: str,
    key: str,
    make: Callable[[BinaryIO, BinaryIO], None] | None = None,
    check: Callable[[], None] = lambda: None,
) -> Iterator[ResumableFile]:
    """Opens a `ResumableFile`, which is finished when the block ends without an exception.

    Args:
      path: The path of the complete file.
      key: As `ResumableFile` takes it.
      make: As `ResumableFile.finish` takes it.
      check: Raises where the file must not be renamed, since another run may have written it.
    """
    lines = ResumableFile(path, key)
    try:
        yield lines
        check()
    except BaseException:
        lines.leave()
        raise
    lines.finish(make)

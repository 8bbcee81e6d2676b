"""Files of answers, each behind all that its input holds: JSON lines, CSV, TSV or Parquet.

Names of answers that an input has already get a suffix.
"""

import csv
import io
import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, BinaryIO

from absl import logging

from bert.files import parquet
from bert.files.inputs import Input
from bert.files.json_text import parse_json
from bert.files.tables import tsv_line

_SUFFIX = "_predicted"
# The column of what is wrong with an input.
_ERROR = "error"


def rename(answers: Sequence[str], taken: Sequence[str]) -> dict[str, str]:
    """Returns the names that answers have beside those of an input."""
    names: dict[str, str] = {}
    for answer in answers:
        name = answer
        while name in taken:
            name += _SUFFIX
        names[answer] = name
    return names


class JsonLines:
    """An object a line."""

    header = b""
    # What makes the whole file of the lines, where they are not it.
    make: Callable[[Any, BinaryIO], None] | None = None

    def __init__(self) -> None:
        self._told: set[str] = set()

    def answer(self, asked: Input, answer: Mapping[str, Any]) -> bytes:
        """Returns the line of an answer."""
        cells = asked.cells or {}
        return _json_line({**cells, **self._beside(cells, answer)})

    def _beside(self, taken: Mapping[str, Any], answer: Mapping[str, Any]) -> dict[str, Any]:
        names = rename(list(answer), list(taken))
        for old, new in names.items():
            if old != new and new not in self._told:
                self._told.add(new)
                _tell(old, new)
        return {names[name]: value for name, value in answer.items()}

    def refusal(self, asked: Input, problem: str) -> bytes:
        """Returns the line of an input that has no answer."""
        text = json.dumps({"line": asked.line, _ERROR: problem}, ensure_ascii=False)
        return text.encode("utf-8", "backslashreplace") + b"\n"

    def belongs(self, line: bytes, asked: Input) -> bool:
        """Returns whether a line of an earlier run is the answer to an input."""
        try:
            answer = parse_json(line)
        except ValueError:
            return False
        if not isinstance(answer, dict):
            return False
        if answer.keys() == {"line", _ERROR}:
            # The reason may have been the reader's or the model's.
            return bool(answer["line"] == asked.line)
        return asked.cells is not None and answer | asked.cells == answer

    def records(self, file: BinaryIO) -> Iterator[bytes]:
        """Yields the lines of a file."""
        return iter(file)


class Table:
    """A row for each input below a header.

    Args:
      names: Of the inputs' columns.
      answers: Names of what answers hold.
      separator: A tab writes cells as they are; what else would end them becomes spaces. Any other
        puts quotes around cells that need them.
      has_errors: Whether the last column is for what is wrong with an input.
    """

    make = None

    def __init__(
        self, names: Sequence[str], answers: Sequence[str], separator: str, *, has_errors: bool
    ) -> None:
        self._names = list(names)
        self._renamed = rename(answers, names)
        self._errors = [*rename([_ERROR], [*names, *self._renamed.values()]).values()] * has_errors
        self._separator = separator
        for old, new in self._renamed.items():
            if old != new:
                _tell(old, new)
        self.header = self._line([*names, *self._renamed.values(), *self._errors])

    def _line(self, cells: Sequence[str]) -> bytes:
        if self._separator == "\t":
            return f"{tsv_line(cells)}\n".encode("utf-8", "backslashreplace")
        text = io.StringIO()
        csv.writer(text, delimiter=self._separator, lineterminator="\n").writerow(cells)
        return text.getvalue().encode("utf-8", "backslashreplace")

    def _known(self, asked: Input) -> list[str]:
        cells = asked.cells or {}
        if others := [name for name in cells if name not in self._names]:
            raise ValueError(
                f"Inputs of a table must have the keys of the first one, {self._names}. Received "
                f"{others} on line {asked.line}. With JSON lines to write, each may have its own."
            )
        return [_cell(cells.get(name)) for name in self._names]

    def answer(self, asked: Input, answer: Mapping[str, Any]) -> bytes:
        """Returns the row of an answer."""
        flat = _known_answers(answer, self._renamed)
        given = [_cell(flat.get(name)) for name in self._renamed]
        return self._line([*self._known(asked), *given, *[""] * len(self._errors)])

    def refusal(self, asked: Input, problem: str) -> bytes:
        """Returns the row of an input that has no answer."""
        blank = [""] * len(self._renamed)
        return self._line([*self._known(asked), *blank, *[problem] * len(self._errors)])

    def belongs(self, line: bytes, asked: Input) -> bool:
        """Returns whether a row of an earlier run is of an input."""
        # The blank one is for the separator.
        return line.startswith(self._line([*self._known(asked), ""]).removesuffix(b"\n"))

    def records(self, file: BinaryIO) -> Iterator[bytes]:
        """Yields the rows of a file, which may have line breaks within quotes."""
        record = b""
        for line in file:
            record += line
            if self._separator == "\t" or record.count(b'"') % 2 == 0:
                yield record
                record = b""
        if record:
            yield record


class ParquetLines(JsonLines):
    """Rows of Parquet, which are kept as JSON lines until all are there.

    Args:
      input_file: The file that is answered, whose columns stay as they are if it is Parquet.
      path: That of the rows.
      answers: Names of what answers hold.
      start: Where the first row stands in the file that is answered.
    """

    def __init__(self, input_file: str, path: str, answers: Sequence[str], start: int = 0) -> None:
        super().__init__()
        parquet.check_installed(path)
        self._input_file = input_file
        self._answers = answers
        self._start = start
        self.make = self._make

    def answer(self, asked: Input, answer: Mapping[str, Any]) -> bytes:
        flat = _known_answers(answer, self._answers)
        plain = {
            name: _cell(flat[name]) if isinstance(flat.get(name), list | dict) else flat.get(name)
            for name in self._answers
        }
        return super().answer(asked, plain)

    def refusal(self, asked: Input, problem: str) -> bytes:
        return _json_line({**(asked.cells or {}), _ERROR: problem})

    def _make(self, lines: Any, output: BinaryIO) -> None:
        rows = [parse_json(line) for line in lines]
        parquet.write_parquet(output, rows, self._input_file, self._start)


def flatten(answer: Mapping[str, Any]) -> dict[str, Any]:
    """Returns an answer as a table has it: with the probability of the label behind the label."""
    values = dict(answer)
    if "probabilities" in values and "label" in values:
        values["probability"] = values["probabilities"][values["label"]]
    return {name: values[name] for name in flat_names(list(answer))}


def flat_names(answers: Sequence[str]) -> list[str]:
    """Returns the names that `flatten` gives to answers of some names."""
    has_chance = {"label", "probabilities"} <= set(answers)
    pairs = ([name, *["probability"] * (has_chance and name == "label")] for name in answers)
    return [name for pair in pairs for name in pair]


def _known_answers(answer: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
    flat = flatten(answer)
    assert flat.keys() <= {*names}, f"Answers were to have {[*names]}, not {[*flat]}."
    return flat


def _tell(old: str, new: str) -> None:
    logging.warning("Inputs have %r themselves: that of the answers is in %r.", old, new)


def _json_line(values: Mapping[str, Any]) -> bytes:
    return json.dumps(values, ensure_ascii=False).encode("utf-8", "backslashreplace") + b"\n"


def _cell(value: Any) -> str:
    """Returns the text of a value; that of a list or an object is JSON."""
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)

"""Answers of a model to inputs of a file, as lines; inputs without an answer are named by line."""

import dataclasses
import functools
import itertools
import json
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from bert.files.durable import replace_files
from bert.files.inputs import Columns, Input, Inputs, read_inputs
from bert.files.paths import read_lines
from bert.files.row_writer import JsonLines, Table
from bert.models.open import find_answering, open_answering
from bert.scale.batches import Work
from bert.scale.options import Answering

if TYPE_CHECKING:
    from bert.models.exported import ExportedModel
    from bert.models.fine_tuned import LoadedModel

    Model = LoadedModel | ExportedModel

Form = JsonLines | Table


class Answer(NamedTuple):
    """A line to write, and the problem where the input has no answer."""

    text: bytes
    problem: str = ""


@dataclasses.dataclass(frozen=True)
class Answerer:
    """Answers inputs; those of a call go through the model in batches of about the same length.

    Args:
      model: The model that answers.
      path: The file of the inputs, for messages.
      form: How answers are written.
    """

    model: Any
    path: str
    form: Form

    def __call__(self, inputs: Sequence[Input]) -> Iterator[Answer]:
        """Yields what to write for each input."""
        inputs = [*map(self._fit, inputs)]
        rows = [query for query in inputs if query.row is not None]
        answers = iter(self._answer(rows))
        for query in inputs:
            yield self._refuse(query, query.problem) if query.row is None else next(answers)

    def find_saved(self, line: bytes, query: Input) -> Answer | None:
        """Returns a line of an earlier run as an answer, None where it is not the input's.

        An input that had no answer may have one by now, so that it is computed again.
        """
        if self.form.belongs(line, query):
            return Answer(line)
        [answer] = self([query])
        return answer if answer.problem and answer.text == line else None

    def _fit(self, query: Input) -> Input:
        """Returns an input, without its row where there is no room for an answer."""
        problem = self.form.find_problem(query)
        if query.row is None or not problem:
            return query
        return query._replace(row=None, problem=f"{self.path}:{query.line}: {problem}")

    def _refuse(self, query: Input, problem: str) -> Answer:
        return Answer(self.form.refusal(query, problem), problem)

    def _answer(self, inputs: Sequence[Input]) -> list[Answer]:
        """Returns the answers; where the model refuses some inputs, the halves are tried."""
        try:
            answers = self.model.predict([query.row for query in inputs])
        except ValueError as error:
            if len(inputs) > 1:
                middle = len(inputs) // 2
                parts = (inputs[:middle], inputs[middle:])
                return [answer for part in parts for answer in self._answer(part)]
            # The model was given a single input, whose place in the file is another.
            reason = str(error).removeprefix("Input 0, counted from 0").lstrip(",: ")
            return [self._refuse(inputs[0], f"{self.path}:{inputs[0].line}: {reason}")]
        return [
            Answer(self.form.answer(query, answer))
            for query, answer in zip(inputs, answers, strict=True)
        ]


@functools.lru_cache(maxsize=1)
def _load_once(given: Answering, key: str) -> "Model":
    """Returns the model, which a process loads once.

    Args:
      given: Names the model.
      key: Differs for every model that was or will be in the same folder.
    """
    del key
    return open_answering(given, find_answering(given), given.batch_size)


def read(given: Answering, model: "Model") -> Inputs:
    """Returns the inputs.

    Raises:
      ValueError: where the columns or the header of a table do not fit the task.
    """
    columns = Columns(
        fields=model.fields,
        given=given.columns,
        known=getattr(model.task, "columns", {}),
        derive=getattr(model.task, "derive", None),
    )
    return read_inputs(given.input_file, given.input_format, columns, given.separator)


@dataclasses.dataclass(frozen=True)
class AnswerWork(Work):
    """The answers to a file of inputs, computed by machines.

    Args:
      given: The model and the inputs.
      form: How answers are written.
      size: Inputs of a chunk, which go through the model in batches of similar lengths.
      num_of_file: Inputs whose answers are in one file.
      num_inputs: All inputs.
    """

    given: Answering
    form: Form
    size: int
    num_of_file: int
    num_inputs: int

    @classmethod
    def plan(
        cls, given: Answering, form: Form, size: int, num_inputs: int, folder: str
    ) -> "AnswerWork":
        """Returns the work on so many inputs."""
        num_of_file = size * cls.num_chunks(-(-num_inputs // size))
        return cls(folder, cls.with_whole_paths(given), form, size, num_of_file, num_inputs)

    @property
    def num_files(self) -> int:
        return -(-self.num_inputs // self.num_of_file)

    def open(self) -> Any:
        return _load_once(self.given, self.folder)

    def read(self, _: Any, done: Collection[int]) -> Iterator[tuple[int, list[Input]]]:
        rows = read(self.given, self.open()).rows
        for number in itertools.count():
            inputs = list(itertools.islice(rows, self.num_of_file))
            if not inputs:
                return
            if number not in done:
                yield number, inputs

    def make(self, number: int, inputs: Sequence[Input]) -> None:
        content = self.answer(inputs)
        with replace_files([self.path(number)]) as [file]:
            file.write(content)

    def answer(self, inputs: Sequence[Input]) -> bytes:
        """Returns the content of a file: the line of each input, and its problem."""
        answers = Answerer(self.open(), self.given.input_file, self.form)
        chunks = (inputs[at : at + self.size] for at in range(0, len(inputs), self.size))
        found = ([each.text.decode(), each.problem] for chunk in chunks for each in answers(chunk))
        return b"".join(json.dumps(each).encode() + b"\n" for each in found)


def read_back(paths: Sequence[str]) -> Iterator[Answer]:
    """Yields the answers of files that `AnswerWork` has written."""
    for path in paths:
        for line, _ in read_lines(path):
            text, problem = json.loads(line)
            yield Answer(text.encode(), problem)

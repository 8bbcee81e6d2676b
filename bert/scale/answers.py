"""Answers of a model to the inputs of a file, as lines; messages name inputs by line."""

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

from bert.files.paths import read_lines
from bert.files.row_writer import JsonLines, probability_of
from bert.files.texts import Columns, Input, InputRows, read_inputs
from bert.models.open import find_answering, open_answering
from bert.options import OptionError
from bert.scale.batches import Work
from bert.scale.options import Answering

if TYPE_CHECKING:
    from bert.models.answering import AnsweringModel
    from bert.models.exported import ExportedModel

    Model = AnsweringModel | ExportedModel

# The answer of a row whose probability is too small, and what belongs to it.
_EMPTY = {"label": None, "ending": None, "answer": "", "start": None, "end": None}


class Answer(NamedTuple):
    """A line to write, the reason if it is not an answer, and whether the answer is empty."""

    text: bytes
    problem: str = ""
    is_empty: bool = False


def check_probability(min_probability: float, model: "Model") -> None:
    """Checks that the answers of a model have a probability, if one is required.

    Raises:
      OptionError: for other models.
    """
    # The graph of an export that is not run does not say what it answers.
    names = {*model.task.answer_names}
    if (
        min_probability
        and names
        and not ("probability" in names or {"label", "probabilities"} <= names)
    ):
        raise OptionError(
            "min_probability",
            "be 0 for a model whose answers have no probability of their own",
            min_probability,
            f"This one answers with {', '.join(model.task.answer_names)}.",
        )


@dataclasses.dataclass(frozen=True)
class Answerer:
    """Answers inputs; the inputs of a call are sorted by length into batches.

    Args:
      model: The model that answers.
      path: The file of the inputs, for messages.
      form: How answers are written.
      min_probability: The probability below which an answer is empty.
    """

    model: Any
    path: str
    form: JsonLines
    min_probability: float = 0.0

    def __call__(self, inputs: Sequence[Input]) -> Iterator[Answer]:
        """Yields what to write for each input."""
        inputs = [*map(self._fit, inputs)]
        rows = [query for query in inputs if query.row is not None]
        answers = iter(self._answer(rows))
        for query in inputs:
            yield self._refuse(query, query.problem) if query.row is None else next(answers)

    def find_saved(self, line: bytes, query: Input) -> Answer | None:
        """Returns a line of an earlier run as the answer to an input, None where it is not.

        An input without an answer is computed again, since it may have one now.
        """
        if self.form.belongs(line, query):
            return Answer(line)
        [answer] = self([query])
        return answer if answer.problem and answer.text == line else None

    def _fit(self, query: Input) -> Input:
        """Returns an input, with a problem instead of a row where its answer cannot be written."""
        problem = self.form.find_problem(query)
        if query.row is None or not problem:
            return query
        return query._replace(row=None, problem=f"{self.path}:{query.line}: {problem}")

    def _refuse(self, query: Input, problem: str) -> Answer:
        return Answer(self.form.refusal(query, problem), problem)

    def _answer(self, inputs: Sequence[Input]) -> list[Answer]:
        """Returns the answers; if the model refuses an input, each half is tried."""
        # By name, the columns of the training would be looked for again.
        fields = self.model.fields
        rows = [tuple(query.row[name] for name in fields) for query in inputs if query.row]
        try:
            answers = self.model.predict(rows)
        except ValueError as error:
            if len(inputs) > 1:
                middle = len(inputs) // 2
                parts = (inputs[:middle], inputs[middle:])
                return [answer for part in parts for answer in self._answer(part)]
            # The number of a single input in a message of the model says nothing about the file.
            reason = str(error).removeprefix("Input 0, counted from 0").lstrip(",: ")
            return [self._refuse(inputs[0], f"{self.path}:{inputs[0].line}: {reason}")]
        return [self._write(query, answer) for query, answer in zip(inputs, answers, strict=True)]

    def _write(self, query: Input, answer: Mapping[str, Any]) -> Answer:
        is_empty = self.min_probability > 0 and probability_of(answer) < self.min_probability
        if is_empty:
            answer = {name: _EMPTY.get(name, value) for name, value in answer.items()}
        return Answer(self.form.answer(query, answer), "", is_empty)


def read(given: Answering, model: "Model") -> InputRows:
    """Returns the inputs of the file.

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

    Attributes:
      form: How answers are written.
      size: Inputs of a chunk, which go through the model in batches of similar lengths.
      input_file: The file of the inputs as it was given, for messages.
    """

    form: JsonLines
    size: int
    input_file: str

    @staticmethod
    def load(options: Answering) -> "Model":
        return open_answering(options, find_answering(options), options.batch_size)

    def inputs(self) -> Iterator[Input]:
        # Problems begin with the path that was opened, an absolute one.
        opened = self.options.input_file
        for query in read(self.options, self.model()):
            yield query._replace(problem=query.problem.replace(opened, self.input_file, 1))

    def write(self, file: BinaryIO, start: int, inputs: Sequence[Input]) -> None:
        """Writes each `Answer`."""
        del start
        options = self.options
        answers = Answerer(self.model(), self.input_file, self.form, options.min_probability)
        for at in range(0, len(inputs), self.size):
            for text, *others in answers(inputs[at : at + self.size]):
                file.write(json.dumps([text.decode(), *others]).encode() + b"\n")


def read_back(paths: Sequence[str]) -> Iterator[Answer]:
    """Yields the answers of files that `AnswerWork` has written."""
    for path in paths:
        for line, _ in read_lines(path):
            text, *others = json.loads(line)
            yield Answer(text.encode(), *others)

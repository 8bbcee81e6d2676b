"""What a model answers to inputs of a file, as lines; what it refuses is told by its place."""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from bert.files.inputs import Input
from bert.files.row_writer import JsonLines, Table

Form = JsonLines | Table


class Answer(NamedTuple):
    """A line to write; with a problem, there is none to the input."""

    text: bytes
    problem: str = ""


@dataclasses.dataclass(frozen=True)
class Answerer:
    """Answers inputs; those of a call go through the model in batches of about the same length.

    Args:
      model: A `bert.models.loaded.LoadedModel` or a `bert.models.exported.ExportedModel`.
      path: The file of the inputs, for messages.
      form: How answers are written.
    """

    model: Any
    path: str
    form: Form

    def __call__(self, inputs: Sequence[Input]) -> Iterator[Answer]:
        """Yields what to write for each input."""
        inputs = [*map(self._fit, inputs)]
        rows = [each for each in inputs if each.row is not None]
        answers = iter(self._ask(rows))
        for each in inputs:
            yield self._refuse(each, each.problem) if each.row is None else next(answers)

    def find_kept(self, line: bytes, asked: Input) -> Answer | None:
        """Returns a line of an earlier run, None where it is not what an input gets.

        What had no answer may have one by now, and is asked again.
        """
        if self.form.belongs(line, asked):
            return Answer(line)
        [answer] = self([asked])
        return answer if answer.problem and answer.text == line else None

    def _fit(self, asked: Input) -> Input:
        """Returns an input, one that is not asked where there is no room for its answer."""
        problem = self.form.find_problem(asked)
        if asked.row is None or not problem:
            return asked
        return asked._replace(row=None, problem=f"{self.path}:{asked.line}: {problem}")

    def _refuse(self, asked: Input, problem: str) -> Answer:
        return Answer(self.form.refusal(asked, problem), problem)

    def _ask(self, inputs: Sequence[Input]) -> list[Answer]:
        """Returns the answers; where the model refuses some, it is asked about parts of them."""
        try:
            answers = self.model.predict([each.row for each in inputs])
        except ValueError as error:
            if len(inputs) > 1:
                middle = len(inputs) // 2
                parts = (inputs[:middle], inputs[middle:])
                return [answer for part in parts for answer in self._ask(part)]
            # It was asked about a single one, whose place in the file is another.
            reason = str(error).removeprefix("Input 0, counted from 0").lstrip(",: ")
            return [self._refuse(inputs[0], f"{self.path}:{inputs[0].line}: {reason}")]
        return [
            Answer(self.form.answer(each, answer))
            for each, answer in zip(inputs, answers, strict=True)
        ]

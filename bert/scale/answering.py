"""Answers to the inputs of a file, shared by machines."""

import dataclasses
import itertools
import json
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from bert.files.durable import replace_files
from bert.files.inputs import Input
from bert.files.paths import read_lines
from bert.scale import models
from bert.scale.answers import Answer, Answerer, Form
from bert.scale.batches import Work
from bert.scale.settings import AnsweredSettings


@dataclasses.dataclass(frozen=True)
class AnswerWork(Work):
    """What machines are told.

    Args:
      settings: The model and the inputs.
      form: How answers are written.
      size: Of a chunk.
      num_of_file: Inputs of a file.
      num_inputs: Those of all files.
    """

    settings: AnsweredSettings
    form: Form
    size: int
    num_of_file: int
    num_inputs: int

    @classmethod
    def plan(
        cls, settings: AnsweredSettings, form: Form, size: int, num_inputs: int, folder: str
    ) -> "AnswerWork":
        """Returns the work on so many inputs."""
        num_of_file = size * cls.num_chunks(-(-num_inputs // size))
        return cls(folder, cls.with_whole_paths(settings), form, size, num_of_file, num_inputs)

    @property
    def num_files(self) -> int:
        return -(-self.num_inputs // self.num_of_file)

    def open(self) -> Any:
        return models.load_once(self.settings, self.folder)

    def read(self, _: Any, done: Collection[int]) -> Iterator[tuple[int, list[Input]]]:
        rows = models.read(self.settings, self.open()).rows
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
        """Returns what a file holds: for each input, its line and what was wrong."""
        answers = Answerer(self.open(), self.settings.input_file, self.form)
        chunks = (inputs[at : at + self.size] for at in range(0, len(inputs), self.size))
        found = ([each.text.decode(), each.problem] for chunk in chunks for each in answers(chunk))
        return b"".join(json.dumps(each).encode() + b"\n" for each in found)


def read_back(paths: Sequence[str]) -> Iterator[Answer]:
    """Yields the answers of files that `AnswerWork` has made."""
    for path in paths:
        for line, _ in read_lines(path):
            text, problem = json.loads(line)
            yield Answer(text.encode(), problem)

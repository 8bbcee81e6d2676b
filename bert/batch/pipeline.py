"""Answers as a pipeline of Apache Beam: those of a single process, from many machines.

One step reads the inputs and deals them out in whole chunks, which are rounded as in a single
process. Answers of some consecutive chunks are a file each, in a folder that all machines reach;
what an earlier run has left there is not asked again.
"""

import dataclasses
import itertools
import json
import os
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from bert.batch import models
from bert.batch.answers import Answer, Answerer, Form
from bert.batch.settings import AnsweredSettings
from bert.command_line.beam import NAMESPACE, BeamSettings, run_pipeline
from bert.files import durable
from bert.files.inputs import Input
from bert.files.paths import is_file, is_folder, read_lines
from bert.files.places import is_remote

# So many files at most, give or take a factor of two, for any number of inputs.
_FILES = 1024


@dataclasses.dataclass(frozen=True)
class Work:
    """What machines are told.

    Args:
      settings: The model and the inputs.
      form: How answers are written.
      size: Of a chunk.
      num_chunks: Those of a file.
      folder: That of the files.
    """

    settings: AnsweredSettings
    form: Form
    size: int
    num_chunks: int
    folder: str

    @classmethod
    def plan(
        cls, settings: AnsweredSettings, form: Form, size: int, num_inputs: int, folder: str
    ) -> "Work":
        """Returns the work on so many inputs."""
        num_chunks = max(-(-num_inputs // size) // _FILES, 1)
        return cls(
            _with_whole_paths(settings),
            form,
            size,
            num_chunks,
            folder if is_remote(folder) else os.path.abspath(folder),
        )

    def path(self, number: int) -> str:
        """Returns that of a file."""
        return os.path.join(self.folder, f"{number:06}")

    def read(self, _: Any, done: Collection[int]) -> Iterator[tuple[int, list[Input]]]:
        """Yields the inputs of each file that is not done, with its number."""
        rows = models.read(self.settings, models.load_once(self.settings)).rows
        for number in itertools.count():
            inputs = list(itertools.islice(rows, self.size * self.num_chunks))
            if not inputs:
                return
            if number not in done:
                yield number, inputs

    def answer(self, inputs: Sequence[Input]) -> bytes:
        """Returns what a file holds: for each input, its line and what was wrong."""
        model = models.load_once(self.settings)
        answers = Answerer(model, self.settings.input_file, self.form)
        chunks = (inputs[at : at + self.size] for at in range(0, len(inputs), self.size))
        found = ([each.text.decode(), each.problem] for chunk in chunks for each in answers(chunk))
        return b"".join(json.dumps(each).encode() + b"\n" for each in found)

    def write(self, answered: tuple[int, bytes]) -> None:
        """Writes a file; again if another machine has done so, for it holds the same."""
        number, content = answered
        with durable.replace_files([self.path(number)]) as [file]:
            file.write(content)


def _with_whole_paths(settings: AnsweredSettings) -> AnsweredSettings:
    """Returns the settings for processes in other folders."""
    names = ("model_dir", "input_file", "bert_config_file", "vocab_file")
    paths = {name: getattr(settings, name) for name in names}
    return dataclasses.replace(
        settings,
        **{
            name: os.path.abspath(path)
            for name, path in paths.items()
            # A model may also be named on the hub.
            if path and not is_remote(path) and os.path.exists(path)
        },
    )


def answer(settings: BeamSettings, work: Work, num_inputs: int) -> Iterator[Answer]:
    """Returns the answers in the order of the inputs, once all are there.

    Raises:
      ValueError: where the pipeline cannot be run, or leaves some out.
    """
    num_files = -(-num_inputs // (work.size * work.num_chunks))
    if not is_folder(work.folder):
        durable.make_folders(work.folder)
    done = {number for number in range(num_files) if is_file(work.path(number))}
    if len(done) < num_files:
        run_pipeline(settings, lambda pipeline: _build(pipeline, work, done))
    for number in range(num_files):
        path = work.path(number)
        if not is_file(path):
            raise ValueError(
                f"All machines must write into the folder {work.folder!r}. {path!r} is not there "
                "on this one: give an `--output_file` on a file system that all share."
            )
    return _read_back([work.path(number) for number in range(num_files)])


def _read_back(paths: Sequence[str]) -> Iterator[Answer]:
    for path in paths:
        for line, _ in read_lines(path):
            text, problem = json.loads(line)
            yield Answer(text.encode(), problem)


def _build(pipeline: Any, work: Work, done: Collection[int]) -> Any:
    import apache_beam as beam  # noqa: PLC0415
    from apache_beam.ml.inference.base import RunInference  # noqa: PLC0415

    return (
        pipeline
        | "Start" >> beam.Create([None])
        | "Read" >> beam.FlatMap(work.read, done)
        | "Deal out" >> beam.Reshuffle()
        | "Answer" >> RunInference(_handler(work))
        | "Write" >> beam.Map(work.write)
    )


def _handler(work: Work) -> Any:
    """Returns what `RunInference` asks the model by."""
    from apache_beam.metrics import Metrics  # noqa: PLC0415
    from apache_beam.ml.inference.base import ModelHandler  # noqa: PLC0415

    class Handler(ModelHandler):
        def load_model(self) -> Any:
            return models.load_once(work.settings)

        def batch_elements_kwargs(self) -> dict[str, int]:
            # An element is a list of inputs already.
            return {"min_batch_size": 1, "max_batch_size": 1}

        def get_num_bytes(self, batch: Sequence[Any]) -> int:
            # Else all would be pickled, to be measured.
            return sum(len(inputs) for _, inputs in batch)

        def run_inference(
            self, batch: Sequence[tuple[int, list[Input]]], model: Any, inference_args: Any = None
        ) -> Iterator[tuple[int, bytes]]:
            del model, inference_args
            for number, inputs in batch:
                yield number, work.answer(inputs)
                Metrics.counter(NAMESPACE, "inputs").inc(len(inputs))

    return Handler()

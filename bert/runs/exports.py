"""Exports a fine-tuned model, and compares each export with the model before it is kept."""

import contextlib
import dataclasses
import json
import math
import os
import statistics
import timeit
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from bert.export import portable, saved_model
from bert.export.formats import Export, ExportOptions, read_exports
from bert.files import owned
from bert.files.durable import replace_folder, write_text
from bert.files.paths import file_size, file_system
from bert.log import logger
from bert.network.lengths import by_length
from bert.options import Message, Option, OptionError
from bert.reports.page import Section, Table
from bert.tasks.examples import Arrays, Inputs, Outputs, Part
from bert.tasks.task import Task, at_precision
from bert.training.evaluation import Predictor

# The file with the result of the comparison, in the folder of an export.
PARITY = "parity.json"

# The number of timed calls, whose median is logged.
_CALLS = 9
_BATCH_SIZE = 32
# Scores that differ by less are equal: sums in another order differ in the last digits.
_ROUNDING = 1e-6

Runtime = Callable[[Arrays], Mapping[str, np.ndarray]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Parity:
    """The result of comparing an export with the float32 model.

    Attributes:
      export: The export.
      metric: The name of the main score.
      examples: The number of dev examples; 0 without a dev set.
      score: The score of the export; None where the dev set has no answers.
      float32_score: The score of the model.
      largest_difference: The largest difference of a probability, or of a predicted number.
      bytes: The size of all files of the export.
      max_score_loss: The largest loss that is allowed.
      counts_examples: Whether the score is the fraction of correct examples. One of them may be
        lost where any loss is allowed, since a single one of few examples is no measure.
    """

    export: Export
    metric: str
    examples: int = 0
    score: float | None = None
    float32_score: float | None = None
    largest_difference: float | None = None
    bytes: int
    max_score_loss: float
    counts_examples: bool = False

    @property
    def score_loss(self) -> float | None:
        """The score of the model minus the score of the export."""
        if self.score is None or self.float32_score is None:
            return None
        return self.float32_score - self.score

    @property
    def is_refused(self) -> bool:
        """Whether the loss is larger than allowed; a score that is NaN is lost."""
        if self.score_loss is None:
            return False
        if self.num_lost is not None:
            return self.num_lost > self.num_allowed
        return not self.score_loss <= self.max_score_loss + _ROUNDING

    @property
    def num_lost(self) -> int | None:
        """The number of correct examples that are lost, where the score counts examples."""
        if not self.counts_examples or self.score_loss is None or math.isnan(self.score_loss):
            return None
        return round(self.score_loss * self.examples)

    @property
    def num_allowed(self) -> int:
        """The number of examples that may be lost, where the score counts examples."""
        if not self.max_score_loss:
            return 0
        return max(math.floor((self.max_score_loss + _ROUNDING) * self.examples), 1)

    def describe_loss(self) -> str:
        """Returns the loss of an export, for messages."""
        text = (
            f"{self.score_loss:.4g} of {self.metric} ({self.score:.4f}, float32 "
            f"{self.float32_score:.4f})"
        )
        if self.num_lost is None:
            return text
        allowed = "none is" if not self.num_allowed else f"{self.num_allowed} would be"
        return f"{text}, {self.num_lost} of {self.examples} examples, where {allowed} allowed"

    def to_dict(self) -> dict[str, Any]:
        """Returns the contents of `parity.json`."""
        values = {**vars(self), "score_loss": self.score_loss}
        export = values.pop("export")
        del values["counts_examples"]
        return {"format": export.format, "precision": export.precision, **values}

    def describe(self) -> str:
        """Returns a line for the log."""
        text = f"{self.bytes / 1e6:.1f} MB"
        if self.largest_difference is not None:
            text += (
                f", predictions of {self.examples} dev examples differ by "
                f"{self.largest_difference:.2g} at most"
            )
        if self.score is not None:
            text += f", {self.metric} {self.score:.4f} (float32 {self.float32_score:.4f})"
        if self.num_lost and self.num_lost > 0:
            text += f", {self.num_lost} of {self.examples} examples lost"
        return text


class _Comparison:
    """Compares exports with their model on a dev set.

    Args:
      task: The task of the model.
      model: The model from tokens, in float32.
      inputs: The inputs of the dev set.
    """

    def __init__(self, task: Task, model: keras.Model, inputs: Inputs) -> None:
        self._task = task
        self._names = list(model.input)
        self._inputs = inputs
        rank = len(next(iter(model.input.values())).shape)
        spec = tf.TensorSpec([None] * rank, tf.int32)
        self._predict = Predictor(model, dict.fromkeys(self._names, spec))
        self._outputs = [*self._run(self._predict)]
        self._float32_score = self._score(self._outputs)

    def compare(self, runtime: Runtime) -> dict[str, Any]:
        """Returns what `Parity` needs of an export."""
        outputs = [*self._run(runtime)]
        return {
            "examples": len(self._inputs.examples),
            "score": self._score(outputs),
            "float32_score": self._float32_score,
            "largest_difference": self._difference(outputs),
        }

    def log_latency(self, name: str, runtime: Runtime) -> None:
        """Logs the time for an example of the median length."""
        arrays = self._inputs.arrays
        lengths = arrays["input_mask"].sum(axis=-1)
        middle = np.argsort(lengths.reshape(len(lengths), -1).max(-1))[len(lengths) // 2]
        example = {key: values[[middle]] for key, values in arrays.items()}
        [(_, batch)] = by_length(example, self._names, 1)
        own, other = (_milliseconds(run, batch) for run in (self._predict, runtime))
        logger.info(
            "One example of %d tokens takes %s %.1f ms (the model here %.1f ms).",
            batch["input_mask"].sum(axis=-1).max(),
            name,
            other,
            own,
        )

    def _run(self, runtime: Runtime) -> Iterator[tuple[np.ndarray, Arrays]]:
        for numbers, batch in by_length(self._inputs.arrays, self._names, _BATCH_SIZE):
            yield numbers, runtime(batch)

    def _score(self, outputs: Outputs) -> float | None:
        scores = self._task.score(self._inputs, self._task.decode(self._inputs, outputs))
        return float(scores[self._task.metric]) if scores else None

    def _difference(self, outputs: Sequence[tuple[np.ndarray, Arrays]]) -> float:
        largest = 0.0
        for (numbers, own), (_, other) in zip(self._outputs, outputs, strict=True):
            rows = {name: values[numbers] for name, values in self._inputs.arrays.items()}
            one, two = (self._task.probabilities(rows, found) for found in (own, other))
            # `maximum` returns a NaN if there is one.
            largest = float(np.maximum(largest, np.abs(one - two).max(initial=0.0)))
        return float(f"{largest:.6g}")


class _RefusedError(Exception):
    """An export loses too much."""


def run(
    options: ExportOptions,
    folder: str,
    task: Task,
    model: keras.Model,
    inputs: Sequence[Inputs],
    beside: Mapping[str, bytes],
) -> list[Parity]:
    """Writes the requested exports, and keeps those that are not refused.

    Args:
      options: The formats and precisions, and the largest loss of the score that is allowed.
      folder: The output folder.
      task: The task of the model.
      model: The trained model, made by `Task.make_model`.
      inputs: The inputs of all parts; those of the dev set are for one device, whatever the model
        was trained on.
      beside: By name, the contents of the files that describe the model to other programs.
    """
    model = at_precision(task, task.whole_model(model), "float32")
    dev = next((each for each in inputs if each.part == Part("dev")), None)
    comparison = _Comparison(task, model, dev) if dev else None
    if comparison is None:
        logger.warning(
            "Exports are compared with no data: %s together with the evaluation of a dev set "
            "shows what an export loses.",
            Option("do_export"),
        )
    parities = []
    for export in read_exports(options):
        place = owned.claim_tree(folder, export.name)
        with contextlib.suppress(_RefusedError), replace_folder(place) as partial:
            if export.format == "saved_model":
                exported = at_precision(task, model, export.precision)
                task.export(partial, exported, options.export_tokenizer)
            else:
                portable.write(partial, export.format, export.precision, model, beside)
            runtime = _open(partial, export)
            parity = Parity(
                export=export,
                metric=task.metric,
                **(comparison.compare(runtime) if comparison else {}),
                bytes=_size(partial),
                max_score_loss=options.max_score_loss,
                counts_examples=task.counts_examples,
            )
            logger.info("Export %s: %s.", export.name, parity.describe())
            if comparison:
                comparison.log_latency(export.name, runtime)
            if parity.is_refused:
                logger.warning(
                    "The export loses more than %s, so it is not written.",
                    Option("max_score_loss", parity.max_score_loss),
                )
                raise _RefusedError
            text = json.dumps(parity.to_dict(), indent=2)
            write_text(os.path.join(partial, PARITY), text + "\n")
        if not parity.is_refused:
            owned.adopt_tree(folder, export.name)
            logger.info("Wrote %s.", place)
        parities.append(parity)
    return parities


def make_sections(parities: Sequence[Parity]) -> list[Section]:
    """Returns the section of a page that compares the exports with the model."""
    compared = [parity for parity in parities if parity.examples]
    if not compared:
        return []
    rows = [
        [
            parity.export.name,
            parity.score,
            parity.float32_score,
            parity.largest_difference,
            parity.bytes / 1e6,
            "refused" if parity.is_refused else "",
        ]
        for parity in compared
    ]
    metric = compared[0].metric.replace("_", " ")
    columns = ["", metric, "of float32", "largest difference of predictions", "MB", ""]
    note = f"Compared with the model in float32, on the {compared[0].examples:,} dev examples."
    return [Table("Exports", columns, rows, note)]


def find_refusal(parities: Sequence[Parity]) -> OptionError | None:
    """Returns the error of the exports that lose too much, if any do."""
    refused = [parity for parity in parities if parity.is_refused]
    if not refused:
        return None
    losses = "; ".join(f"{parity.export.name} loses {parity.describe_loss()}" for parity in refused)
    return OptionError(
        "max_score_loss",
        "be at least what an export loses on the dev set",
        Message("%g, but %s", refused[0].max_score_loss, losses),
        Message(
            "It is not written; all else is. Give another %s, such as float32, or allow the loss.",
            Option("export_precision"),
        ),
    )


def _open(folder: str, export: Export) -> Runtime:
    if export.format != "saved_model":
        return portable.open_runtime(folder, export.format)
    loaded = saved_model.load(folder)
    signature = loaded.signatures["features"]

    def call(inputs: Arrays) -> dict[str, np.ndarray]:
        # The loaded model must outlive its functions.
        assert loaded is not None
        values = {name: tf.constant(each, tf.int32) for name, each in inputs.items()}
        return {name: each.numpy() for name, each in signature(**values).items()}

    return call


def _size(folder: str) -> int:
    return sum(
        file_size(os.path.join(inner, name))
        for inner, _, names in file_system().walk(folder)
        for name in names
    )


def _milliseconds(run: Runtime, batch: Arrays) -> float:
    """Returns the median time of a call."""
    run(batch)
    return statistics.median(timeit.repeat(lambda: run(batch), number=1, repeat=_CALLS)) * 1000

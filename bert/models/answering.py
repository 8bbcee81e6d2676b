"""The answers of a fine-tuned model, whatever runtime computes its outputs."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bert.export.formats import Runtime
from bert.files.texts import Columns
from bert.models.model import Between, Model, Queries, as_list
from bert.network.lengths import by_length
from bert.tasks.answering import AnsweringTask, collect
from bert.tasks.examples import QUERIES, Arrays, Inputs, Outputs, is_list, read_rows


class AnsweringModel(Model):
    """A model that answers inputs of a task.

    Args:
      task: The task of the model.
      runtime: What computes the outputs.
      batch_size: Maximum sequences that go through the model together; a single one where the
        runtime mixes rows, so that answers do not depend on the batch.

    Attributes:
      task: As given.
      tokenizer: The tokenizer of the task.
      batch_size: As given.
    """

    def __init__(self, task: AnsweringTask, runtime: Runtime, batch_size: int) -> None:
        self.task = task
        self.tokenizer = task.tokenizer
        self.batch_size = batch_size
        self.kind = task.kind
        self.labels = list(task.stored().get("task", {}).get("labels", []))
        self.methods = ("predict",)
        self._runtime = runtime

    @property
    def fields(self) -> tuple[str, ...]:
        """Names of an input's values."""
        return self.task.fields

    def predict(self, inputs: Queries, *, between: Between = lambda: None) -> list[dict[str, Any]]:
        columns = Columns(fields=self.fields, known=getattr(self.task, "columns", {}))
        rows = read_rows(_rename_columns(inputs, columns), self.fields)
        if not rows:
            return []
        read, predictions = self.decide(self.task.parse(rows), between)
        return self.task.answers(read, predictions)

    def decide(
        self, examples: Sequence[Any], between: Between = lambda: None
    ) -> tuple[Inputs, Any]:
        """Returns the model's inputs for examples of the task, and the predictions.

        Args:
          examples: At least one example, as `task.parse` returns them.
          between: As for `predict`.
        """
        inputs, outputs = self.compute(examples, between)
        return inputs, self.task.decode(inputs, outputs)

    def compute(
        self, examples: Sequence[Any], between: Between = lambda: None
    ) -> tuple[Inputs, Outputs]:
        """Returns the model's inputs for examples of the task, and its outputs; as `decide`."""
        inputs = self.task.make_inputs(QUERIES, examples)
        has_choices = max(self._runtime.ranks.values()) > 2
        run = self._run_choices if has_choices else self._run
        return inputs, run(inputs.arrays, between)

    def _run(self, arrays: Arrays, between: Between) -> Outputs:
        """Yields the model's outputs; sequences of similar lengths go together."""
        names = list(self._runtime.ranks)
        num_rows = 1 if self._runtime.mixes_rows else self.batch_size
        for numbers, batch in by_length(arrays, names, num_rows):
            outputs = self._runtime({name: batch[name] for name in names})
            between()
            yield numbers, outputs

    def _run_choices(self, arrays: Arrays, between: Between) -> Outputs:
        """Yields the outputs for rows of choices; each choice is a sequence of a batch.

        A batch then has at most `batch_size` sequences, and no padding for absent choices.
        """
        is_there = np.asarray(arrays["input_mask"].any(axis=-1))  # [N, E]
        # Each is [C, 1, S].
        choices = {name: arrays[name][is_there][:, None] for name in self._runtime.ranks}
        outputs = {}
        for name, values in collect(self._run(choices, between)).items():
            outputs[name] = np.zeros(is_there.shape, values.dtype)
            outputs[name][is_there] = values[:, 0]
        yield np.arange(len(is_there)), outputs


def _rename_columns(inputs: Queries, columns: Columns) -> Sequence[Any]:
    """Returns inputs in which the columns of the training files have the names of fields."""

    def rename(number: int, value: Any) -> Any:
        if not isinstance(value, Mapping):
            return value
        if names := columns.find(list(value)):
            return dict(zip(columns.fields, map(value.get, names), strict=True))
        if columns.choices[0] == [*columns.fields]:
            return value
        raise ValueError(
            f"Input {number}, counted from 0, must have {', '.join(map(repr, columns.fields))} "
            f"(or {columns.choices[0]}, as in training). Received {value!r:.200}."
        )

    inputs = as_list(inputs)
    return [*itertools.starmap(rename, enumerate(inputs))] if is_list(inputs) else inputs

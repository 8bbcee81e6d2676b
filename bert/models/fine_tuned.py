"""Loads a fine-tuned model into memory and predicts with it."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from bert.files.inputs import Columns
from bert.files.weight_names import TASK_FILE
from bert.models.kinds import open_task, read_task
from bert.models.model import Between, as_list
from bert.models.model import Inputs as ModelInputs
from bert.models.options import Overrides
from bert.models.vectors import Encoding, find_encoder
from bert.network.inference import infer
from bert.network.lengths import by_length
from bert.tasks.task import (
    QUERIES,
    Arrays,
    Inputs,
    Outputs,
    Task,
    collect,
    is_list,
    read_rows,
    stored_field,
)
from bert.training.options import check_length
from bert.weights.folder import ModelFolder
from bert.weights.huggingface_files import FINE_TUNED


class LoadedModel(Encoding):
    """A fine-tuned model, which predicts.

    Args:
      task: The task of the model.
      model: The Keras model from tokens, with its weights.
      batch_size: Maximum sequences that go through the model together.
      max_seq_length: Maximum tokens of a text for `encode`; None for as many as the model takes.
        For answers, the task has its own limit.

    Attributes:
      task: As given.
      model: As given, a Keras model of `input_ids`, `input_mask` and `segment_ids`.
      tokenizer: The tokenizer of the model.
    """

    def __init__(
        self,
        task: Task,
        model: keras.Model,
        batch_size: int = 32,
        max_seq_length: int | None = None,
    ) -> None:
        self.max_seq_length = max_seq_length
        self.task = task
        self.model = model
        self.tokenizer = task.tokenizer
        self.batch_size = batch_size
        self.kind = task.kind
        self.labels = list(task.stored().get("task", {}).get("labels", []))
        self.methods = ("predict", *(("encode", "inputs") if find_encoder(model) else ()))
        self._rank = len(next(iter(model.input.values())).shape)
        signature = {
            name: tf.TensorSpec([None] * self._rank, tf.int32, name=name) for name in model.input
        }
        self._graph = tf.function(
            lambda batch: infer(model, batch), input_signature=[signature], autograph=False
        )

    @property
    def fields(self) -> tuple[str, ...]:
        """Names of an input's values."""
        return self.task.fields

    def predict(
        self, inputs: ModelInputs, *, between: Between = lambda: None
    ) -> list[dict[str, Any]]:
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
        run = self._run if self._rank == 2 else self._run_choices
        return inputs, run(inputs.arrays, between)

    def _run(self, arrays: Arrays, between: Between) -> Outputs:
        """Yields the model's outputs; sequences of similar lengths go together."""
        for numbers, batch in by_length(arrays, list(self.model.input), self.batch_size):
            found = self._graph({name: batch[name] for name in self.model.input})
            outputs = {name: values.numpy() for name, values in found.items()}
            between()
            yield numbers, outputs

    def _run_choices(self, arrays: Arrays, between: Between) -> Outputs:
        """Yields the outputs for rows of choices; each choice is a sequence of a batch.

        A batch then has at most `batch_size` sequences, and no padding for absent choices.
        """
        is_there = np.asarray(arrays["input_mask"].any(axis=-1))  # [N, E]
        choices = {name: arrays[name][is_there][:, None] for name in self.model.input}  # [C, 1, S]
        outputs = {}
        for name, values in collect(self._run(choices, between)).items():
            outputs[name] = np.zeros(is_there.shape, values.dtype)
            outputs[name][is_there] = values[:, 0]
        yield np.arange(len(is_there)), outputs


def _rename_columns(inputs: ModelInputs, columns: Columns) -> Sequence[Any]:
    """Returns inputs in which the columns of the training files have the names of fields."""

    def rename(value: Any) -> Any:
        names = columns.find(list(value)) if isinstance(value, Mapping) else None
        return dict(zip(columns.fields, map(value.get, names), strict=True)) if names else value

    inputs = as_list(inputs)
    return [*map(rename, inputs)] if is_list(inputs) else inputs


def open_fine_tuned(
    folder: ModelFolder, overrides: Overrides, *, batch_size: int = 32, precision: str = "float32"
) -> LoadedModel:
    """Returns the fine-tuned model of a folder.

    Args:
      folder: The folder of the model.
      overrides: Options in place of what the folder says.
      batch_size: Maximum sequences that go through the model together.
      precision: Name of a dtype policy.

    Raises:
      ValueError: where files are missing or malformed.
    """
    stored = read_task(folder, overrides)
    kind = stored.get("kind")
    path = os.path.join(folder.path, TASK_FILE)
    if kind not in FINE_TUNED:
        raise ValueError(f"`kind` in {path!r} must be one of {sorted(FINE_TUNED)}. It is {kind!r}.")
    weights = folder.stored
    if overrides.max_seq_length is not None:
        # An error of the option, not of the file.
        check_length(overrides.max_seq_length, folder.config)
    try:
        stored_field(stored, "do_lower_case", bool)
        check_length(stored_field(stored, "max_seq_length", int), folder.config)
        task = open_task(stored, folder.config, folder.load_tokenizer())
    except ValueError as error:
        raise ValueError(f"{path!r} must be as a training run writes it: {error}") from error
    model = task.whole_model(task.make_model(precision))
    weights.assign(model.weights, with_head=True)
    loaded = LoadedModel(task, model, batch_size, overrides.max_seq_length)
    loaded.text_vectors = folder.text_vectors
    return loaded

"""A model in memory: loaded once from the folder that a script has filled, used often."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import modeling
import tokenization
from bert.tasks.classification.task import Classification
from bert.tasks.squad.task import QuestionAnswering
from bert.tasks.swag.task import MultipleChoice
from bert.tasks.tagging import task as tagging_task
from bert.training.batches import round_up
from bert.training.evaluation import Predictor
from bert.training.task import Arrays, Part, Row, Task
from bert.weights.folder import TASK_FILE, ModelFolder

# By the `kind` in `task.json`, what makes a task of it.
KINDS: Mapping[
    str, Callable[[Mapping[str, Any], modeling.BertConfig, tokenization.FullTokenizer], Task]
] = {
    "classification": Classification.from_stored,
    "question_answering": QuestionAnswering.from_stored,
    "tagging": tagging_task.from_stored,
    "multiple_choice": MultipleChoice.from_stored,
}


class LoadedModel:
    """A fine-tuned model that answers.

    Args:
      task: What it does.
      model: From tokens, with its weights.
      batch_size: Sequences that go through the model together.

    Attributes:
      task: As given.
      model: As given, a Keras model of `input_ids`, `input_mask` and `segment_ids`.
      tokenizer: That of the model.
    """

    def __init__(self, task: Task, model: keras.Model, batch_size: int = 32) -> None:
        self.task = task
        self.model = model
        self.tokenizer = task.tokenizer
        self.batch_size = batch_size
        rank = len(next(iter(model.input.values())).shape)
        signature = {
            name: tf.TensorSpec([None] * rank, tf.int32, name=name) for name in model.input
        }
        self._predictor = Predictor(model, signature)

    @property
    def fields(self) -> tuple[str, ...]:
        """Names of an input's values."""
        return self.task.fields

    def predict(self, inputs: Sequence[Any]) -> list[dict[str, Any]]:
        """Returns an answer for each input, in their order.

        Args:
          inputs: Each a dictionary of `fields`; or a tuple of their values, in that order; or, for
            a task of one field, its value.

        Raises:
          ValueError: where an input is none of these, naming its place.
        """
        if isinstance(inputs, str | bytes | Mapping):
            raise ValueError(f"`inputs` must be a list of them. Received {inputs!r}.")
        rows = [self._row(value, place) for place, value in enumerate(inputs)]
        if not rows:
            return []
        made = self.task.make_inputs(Part("test"), self.task.parse(rows))
        return self.task.answers(made, self.task.decode(made, self._run(made.arrays)))

    def _row(self, value: Any, place: int) -> Row:
        fields = self.fields
        if isinstance(value, str) and len(fields) == 1:
            value = (value,)
        if isinstance(value, tuple | list) and len(value) == len(fields):
            value = dict(zip(fields, value, strict=True))
        if not isinstance(value, Mapping) or not all(name in value for name in fields):
            raise ValueError(
                f"Input {place}, counted from 0, must have {', '.join(map(repr, fields))}. "
                f"Received {value!r}."
            )
        for name in fields:
            if not isinstance(value[name], str | list | tuple):
                raise ValueError(
                    f"Input {place}, counted from 0, must have text as {name!r}. "
                    f"Received {value[name]!r}."
                )
        return value

    def _run(self, arrays: Arrays) -> Iterator[tuple[np.ndarray, dict[str, np.ndarray]]]:
        """Yields the model's outputs; sequences of about the same length go together."""
        mask = arrays["input_mask"]
        lengths = mask.reshape(len(mask), -1, mask.shape[-1]).sum(-1).max(-1)  # [N]
        order = np.argsort(lengths, kind="stable")
        for start in range(0, len(order), self.batch_size):
            numbers = order[start : start + self.batch_size]
            longest = round_up(max(int(lengths[numbers[-1]]), 1))
            inputs = {
                name: tf.constant(arrays[name][numbers][..., :longest], tf.int32)
                for name in self.model.input
            }
            yield numbers, self._predictor(inputs)


def load(model_dir: str, *, batch_size: int = 32, precision: str = "float32") -> LoadedModel:
    """Returns the model in the `--output_dir` of a fine-tuning script.

    Args:
      model_dir: That folder; it needs `task.json`, `vocab.txt`, `bert_config.json` and weights.
      batch_size: Sequences that go through the model together.
      precision: Name of a dtype policy.

    Raises:
      ValueError: where something is missing there.
    """
    folder = ModelFolder(model_dir, "model_dir")
    stored = folder.read_task()
    kind = str(stored.get("kind"))
    if kind not in KINDS:
        path = os.path.join(model_dir, TASK_FILE)
        raise ValueError(f"`kind` in {path!r} must be one of {sorted(KINDS)}. It is {kind!r}.")
    weights = folder.stored
    task = KINDS[kind](stored, folder.config, folder.load_tokenizer())
    model = task.whole_model(task.make_model(precision))
    weights.assign(model.weights, with_head=True)
    return LoadedModel(task, model, batch_size)

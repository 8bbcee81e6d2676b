"""A fine-tuned model in memory: loaded once from the folder that a script has filled, used often.

What is particular to a task comes from its script's `serve` function, as a `ServedTask`.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

import modeling
import tokenization
from bert.files.paths import open_file
from bert.training import finetuning
from bert.training.batches import round_up
from bert.training.evaluation import Predictor
from bert.weights import checkpoint
from served_task import Row, ServedTask

Server = Callable[
    [Mapping[str, Any], modeling.BertConfig, tokenization.FullTokenizer, str], ServedTask
]


def _servers() -> dict[str, Server]:
    """Returns, by the `kind` in `task.json`, what makes a model that answers."""
    import run_classifier  # noqa: PLC0415 (each brings all that its task needs)
    import run_ner  # noqa: PLC0415
    import run_squad  # noqa: PLC0415
    import run_swag  # noqa: PLC0415

    return {
        "classification": run_classifier.serve,
        "question_answering": run_squad.serve,
        "tagging": run_ner.serve,
        "multiple_choice": run_swag.serve,
    }


class LoadedModel:
    """A fine-tuned model that answers.

    Args:
      task: What it does.
      batch_size: Sequences that go through the model together.
    """

    def __init__(self, task: ServedTask, batch_size: int = 32) -> None:
        self.task = task
        self.batch_size = batch_size
        rank = len(next(iter(task.model.input.values())).shape)
        signature = {
            name: tf.TensorSpec([None] * rank, tf.int32, name=name) for name in task.model.input
        }
        self._predictor = Predictor(task.model, signature)

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
        features = self.task.make_features(rows)
        return self.task.decode(rows, features, self._run(features))

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

    def _run(self, features: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Returns the model's outputs; sequences of about the same length go together."""
        mask = features["input_mask"]
        size = mask.shape[-1]
        lengths = mask.reshape(len(mask), -1, size).sum(-1).max(-1)  # [N]
        order = np.argsort(lengths, kind="stable")
        results: dict[str, np.ndarray] = {}
        for start in range(0, len(order), self.batch_size):
            numbers = order[start : start + self.batch_size]
            longest = round_up(max(int(lengths[numbers[-1]]), 1))
            inputs = {
                name: tf.constant(features[name][numbers][..., :longest], tf.int32)
                for name in self.task.model.input
            }
            for name, values in self._predictor(inputs).items():
                shape = list(values.shape[1:])
                per_token = self.task.model.output[name].shape[1:2] == (None,) and mask.ndim == 2
                if per_token:
                    shape[0] = size
                if name not in results:
                    results[name] = np.zeros([len(order), *shape], values.dtype)
                if per_token:
                    results[name][numbers, : values.shape[1]] = values
                else:
                    results[name][numbers] = values
        return results


def load(model_dir: str, *, batch_size: int = 32, precision: str = "float32") -> LoadedModel:
    """Returns the model in the `--output_dir` of a fine-tuning script.

    Args:
      model_dir: That folder; it needs `task.json`, `vocab.txt`, `bert_config.json` and weights.
      batch_size: Sequences that go through the model together.
      precision: Name of a dtype policy.

    Raises:
      ValueError: where something is missing there.
    """
    stored = finetuning.read_task(model_dir, flag="model_dir")
    kind, servers = stored.get("kind"), _servers()
    if kind not in servers:
        raise ValueError(
            f"`kind` in {os.path.join(model_dir, checkpoint.TASK_FILE)!r} must be one of "
            f"{sorted(servers)}. It is {kind!r}."
        )
    prefix = finetuning.find_weights(model_dir)
    if prefix is None:
        raise ValueError(
            f"`--model_dir` must hold trained weights. {model_dir!r} has none; did the training "
            "end?"
        )
    config = modeling.BertConfig.from_json_file(os.path.join(model_dir, checkpoint.CONFIG_FILE))
    with open_file(os.path.join(model_dir, checkpoint.VOCAB_FILE)) as file:
        tokenizer = tokenization.FullTokenizer(file, stored["do_lower_case"])
    task = servers[kind](stored, config, tokenizer, precision)
    checkpoint.load_weights(task.model.weights, prefix, flag="model_dir", with_head=True)
    return LoadedModel(task, batch_size)

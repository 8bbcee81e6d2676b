"""The protocols of a task: its data, its head, its answers, and what it stores and exports.

`bert.runs` trains, evaluates and exports through them, `bert.models` answers through them.
"""

import dataclasses
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Protocol

import keras
import numpy as np

import modeling
import tokenization
from bert.tasks.options import DataFiles
from bert.tasks.split import DevSplit, find_split
from bert.training.batches import Batches, Feature, Records, write_examples
from bert.training.objective import Objective

Arrays = Mapping[str, np.ndarray]
# Numbers of rows, and the model's outputs for them.
Outputs = Iterable[tuple[np.ndarray, Arrays]]
Row = Mapping[str, Any]

# Fields of which a row has several texts.
LISTS = ("endings",)


@dataclasses.dataclass(frozen=True)
class Part:
    """A part of a data set.

    Attributes:
      split: "train", "dev" or "test"; "asked" for `ASKED`.
      suffix: The ending of its file names where a split has several parts, such as "_mismatched".
    """

    split: str
    suffix: str = ""

    @property
    def name(self) -> str:
        """Split and suffix, such as "dev_mismatched"."""
        return f"{self.split}{self.suffix}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaskContext:
    """The model that a task is opened for, and what the run does with it.

    Attributes:
      config: The shape of the model.
      tokenizer: The tokenizer of the model.
      splits: The parts of the data that the run uses, among "train", "dev" and "test".
      stored: The `task.json` of the trained model that the run uses; {} where it trains one.
      resumed: The `task.json` of the folder in which a training run resumes; or {}.
      seed: The seed of the run.
      export_formats: The formats in which the run exports the model.
    """

    config: modeling.BertConfig
    tokenizer: tokenization.FullTokenizer
    splits: Sequence[str]
    stored: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    resumed: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    seed: int = 0
    export_formats: Sequence[str] = ()

    @property
    def is_training(self) -> bool:
        """Whether the run trains the model."""
        return "train" in self.splits

    def find_split(self, files: DataFiles) -> DevSplit | None:
        """Returns how the run splits the dev set off the training file; None where it does not."""
        if "dev" not in self.splits:
            return None
        stored = self.stored or self.resumed
        return find_split(files, stored, seed=self.seed, is_training=self.is_training)


# The part of queries to a trained model, a few at a time, about which nothing is logged.
ASKED = Part("asked")


@dataclasses.dataclass(frozen=True)
class Inputs:
    """Examples, and the arrays that a model reads of them.

    Attributes:
      part: The part of the data set.
      examples: The examples, in the task's own form.
      arrays: The arrays by name, int32 [N, S] or [N, E, S] with 0 for padding, and the labels. N
        need not be the number of examples.
      batches: The batches of the arrays, once `Task.open_inputs` has made them.
      num_examples: The examples of an epoch, where they are not as many as the records.
    """

    part: Part
    examples: Sequence[Any]
    arrays: Arrays
    batches: Batches | None = None
    num_examples: int | None = None

    @property
    def num_rows(self) -> int:
        """The number of rows of the arrays, N."""
        return len(next(iter(self.arrays.values())))

    def head(self, count: int) -> Arrays:
        """Returns the arrays of the first rows."""
        return {name: values[:count] for name, values in self.arrays.items()}


@dataclasses.dataclass(frozen=True)
class ExampleFile:
    """The file of a part's examples, from which batches are read.

    Attributes:
      path: The TFRecord file.
      batch_size: The records of a step.
      seed: The seed of the order, for training; None to read all records once.
      trim: Whether to remove columns that are padding in the whole batch.
      is_kept: Whether the file is in the folder of the run; other workers' files are removed.
    """

    path: str
    batch_size: int
    seed: int | None = None
    trim: bool = True
    is_kept: bool = True

    def write(self, arrays: Arrays) -> None:
        """Writes one record per row of the arrays, [N, ...] each."""
        write_examples(self.path, arrays)

    def open(self, features: Mapping[str, Feature], lengths: np.ndarray) -> Batches:
        """Returns batches of the written records, of similar length.

        Args:
          features: The features of every record.
          lengths: The tokens of each record, int [N].
        """
        return Batches(
            Records([self.path]),
            features,
            self.batch_size,
            self.seed,
            lengths=lengths,
            trim=self.trim,
        )


class Data(Protocol):
    """The examples of a task, and the arrays that its model reads."""

    @property
    def fields(self) -> tuple[str, ...]:
        """The names of an input's values, such as `text_a` and `text_b`."""
        ...

    @property
    def tokenizer(self) -> tokenization.FullTokenizer:
        """The tokenizer of the model."""
        ...

    def read(self, splits: Collection[str]) -> Mapping[Part, Sequence[Any]]:
        """Returns the examples of the parts of these splits, validated."""
        ...

    def parse(self, rows: Sequence[Row]) -> Sequence[Any]:
        """Returns the examples in rows of `fields`, without their answers."""
        ...

    def make_inputs(self, part: Part, examples: Sequence[Any]) -> Inputs:
        """Returns the arrays of examples."""
        ...

    def open_inputs(self, inputs: Inputs, file: ExampleFile) -> Inputs:
        """Returns the inputs with batches for the model of `make_model`."""
        ...


class Head(Protocol):
    """The model of a task, its objective, and the score that selects its weights."""

    @property
    def metric(self) -> str:
        """The score by which weights are the best, higher ones better."""
        ...

    @property
    def counts_examples(self) -> bool:
        """Whether the metric is the fraction of examples that are answered correctly."""
        ...

    @property
    def guess(self) -> str:
        """The answers of the baseline, such as "always giving the same answer"."""
        ...

    def make_model(self, precision: str) -> keras.Model:
        """Returns the model that is trained; `precision` is the name of a dtype policy."""
        ...

    def whole_model(self, model: keras.Model) -> keras.Model:
        """Returns the model from tokens, where `model` reads features that were precomputed."""
        ...

    def objective(self, inputs: Inputs) -> Objective:
        """Returns the objective of a training run on these inputs."""
        ...


class Answers(Protocol):
    """What the outputs of a model mean: predictions, answers, scores and files of them."""

    @property
    def answer_names(self) -> tuple[str, ...]:
        """The keys of an answer of `answers`."""
        ...

    def decode(self, inputs: Inputs, outputs: Outputs) -> Any:
        """Returns the predictions, in the task's own form.

        Args:
          inputs: The inputs of `make_inputs` or `open_inputs`.
          outputs: The outputs for all rows, in any order; outputs per token may be truncated to
            the longest row of their batch.
        """
        ...

    def probabilities(self, arrays: Arrays, outputs: Arrays) -> np.ndarray:
        """Returns the probabilities of some rows, padding left out.

        Args:
          arrays: The arrays of `Inputs` for these rows.
          outputs: The outputs of the model; outputs per token may be truncated to the longest row.

        Returns:
          Probabilities, float [...]; where the model predicts a number, the number.
        """
        ...

    def answers(self, inputs: Inputs, predictions: Any) -> list[dict[str, Any]]:
        """Returns an answer for each example, fit for JSON."""
        ...

    def score(self, inputs: Inputs, predictions: Any) -> dict[str, Any]:
        """Returns the scores; empty where the examples have no labels.

        Among them are `baseline`, the score of guessing, and `baseline_metric`, its name.
        """
        ...

    def write(
        self, folder: str, step: int, inputs: Inputs, predictions: Any, scores: Mapping[str, Any]
    ) -> None:
        """Writes predictions and scores of a part to files in a folder, and logs the scores.

        Args:
          folder: The output folder of the run.
          step: The step of the weights.
          inputs: The inputs of the part.
          predictions: The result of `decode`.
          scores: The result of `score`.
        """
        ...


class Export(Protocol):
    """What outlives a run: `task.json`, and an exported model."""

    @property
    def kind(self) -> str:
        """The name of the kind of task in `task.json`."""
        ...

    def stored(self) -> dict[str, Any]:
        """Returns the contents of `task.json`: all that answering needs beside the model."""
        ...

    def fixed(self, *, is_training: bool) -> Collection[str]:
        """Returns the keys of `stored` that no later run in the folder may change."""
        ...

    def export(self, folder: str, model: keras.Model) -> None:
        """Writes a SavedModel that takes text.

        Args:
          folder: The folder to write.
          model: The model from tokens, as `whole_model` or `at_precision` returns it.
        """
        ...


class Task(Data, Head, Answers, Export, Protocol):
    """A task that BERT is fine-tuned for."""


def at_precision(task: Task, model: keras.Model, precision: str) -> keras.Model:
    """Returns a trained model at a precision.

    Args:
      task: The task of the model.
      model: The model from tokens.
      precision: "float32"; or "bfloat16" for rounded weights and computations in this type: half
        the size, and faster on hardware that has instructions for it.
    """
    if all(layer.compute_dtype == precision for layer in model.layers):
        return model
    # A copy of the task, since some tasks hold the model that they have made.
    other = dataclasses.replace(task)  # type: ignore[type-var]
    rounded = other.whole_model(other.make_model(precision))
    for weight, value in zip(rounded.weights, model.weights, strict=True):
        weight.assign(value)
    return rounded


def read_rows(inputs: Sequence[Any], fields: Sequence[str]) -> list[Row]:
    """Returns inputs as rows of a task's fields, all of them texts but `LISTS`.

    Args:
      inputs: Dictionaries of the fields; or tuples of their values, in that order; or, for a task
        of one field, values.
      fields: The names of the fields.

    Raises:
      ValueError: where an input has another form, naming its place.
    """
    if not is_list(inputs):
        raise ValueError(f"`inputs` must be a list, a text or an object. Received {inputs!r:.200}.")
    return [
        _read_row(value, f"Input {number}, counted from 0,", fields)
        for number, value in enumerate(inputs)
    ]


def is_list(values: Any) -> bool:
    """Returns whether values are a list, or a column of pandas, and not a text or a table."""
    is_one = isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable)
    return not is_one and getattr(values, "ndim", 1) == 1


def _read_row(value: Any, place: str, fields: Sequence[str]) -> Row:
    if isinstance(value, str) and len(fields) == 1:
        value = (value,)
    if isinstance(value, tuple | list) and len(value) == len(fields):
        value = dict(zip(fields, value, strict=True))
    if not isinstance(value, Mapping) or not all(name in value for name in fields):
        raise ValueError(
            f"{place} must have {', '.join(map(repr, fields))}. Received {value!r:.200}."
        )
    for name in fields:
        is_list = name in LISTS
        texts = value[name] if is_list else [value[name]]
        if not isinstance(texts, list | tuple) or not all(isinstance(each, str) for each in texts):
            kind = "a list of texts" if is_list else "text"
            raise ValueError(
                f"{place} must have {kind} as {name!r}. Received {value[name]!r:.200}."
            )
    return {name: value[name] for name in fields}


def num_sequences(row: Row) -> int:
    """Returns the number of sequences that the model reads of a row, as far as the row shows."""
    return max([1, *(len(row[name]) for name in LISTS if name in row)])


_NOUNS = {
    str: "text",
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    dict: "an object",
    list: "a list",
}


_MOST = 2**31 - 1


def stored_field(stored: Mapping[str, Any], name: str, kind: type, low: int = 1) -> Any:
    """Returns a value of `task.json`.

    Args:
      stored: The contents of the file.
      name: The key.
      kind: The type of the value.
      low: The lower bound of a whole number; the upper bound is the largest of 32 bits.

    Raises:
      ValueError: where the key is missing or has a value of another type.
    """
    value: Any = stored.get(name)
    kinds = (int, float) if kind is float else (kind,)
    if type(value) not in kinds or (kind is int and not low <= value <= _MOST):
        bound = f" from {low} to {_MOST}" * (kind is int)
        received = f"Received {value!s:.80}" if name in stored else "It is not there"
        raise ValueError(f"`{name}` must be {_NOUNS[kind]}{bound}. {received}.")
    return value


def collect(outputs: Outputs) -> dict[str, np.ndarray]:
    """Returns the outputs for all rows, in their order; all rows must be of one shape."""
    numbers, rows = zip(*outputs, strict=True)
    order = np.argsort(np.concatenate(numbers))
    return {name: np.concatenate([each[name] for each in rows])[order] for name in rows[0]}


def collect_padded(outputs: Outputs, shape: tuple[int, ...], name: str) -> np.ndarray:
    """Returns an output per token, float32 [N, S, C], with 0 where it was truncated.

    Args:
      outputs: The outputs of all rows.
      shape: N and S.
      name: The name of the output.
    """
    whole = np.zeros((*shape, 0), np.float32)
    for numbers, each in outputs:
        values = each[name]
        if not whole.size:
            whole = np.zeros((*shape, values.shape[-1]), np.float32)
        whole[numbers, : values.shape[1]] = values
    return whole

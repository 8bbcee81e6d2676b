"""What fine-tuning, prediction and export know of a task: the protocol that all tasks keep.

`bert.runs.finetuning.run` tells the story of a script on it, `bert.models.open.load` that of a
model that answers. What a single task needs stays in that task.
"""

import dataclasses
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Protocol

import keras
import numpy as np

import modeling
import tokenization
from bert.reports.sections import Section
from bert.tasks.options import DataFiles
from bert.tasks.split import DevSplit, find_split
from bert.training.batches import Batches, Feature, Records, write_examples
from bert.training.loop import Objective

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
      split: "train", "dev" or "test"; that of `ASKED` is "asked".
      suffix: What tells its files from those of the main part of its split, such as "_mismatched".
    """

    split: str
    suffix: str = ""

    @property
    def name(self) -> str:
        """Both, such as "dev_mismatched"."""
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


# That of what a trained model is only asked, a few at a time: the log tells nothing of it.
ASKED = Part("asked")


@dataclasses.dataclass(frozen=True)
class Inputs:
    """Examples, and what a model reads of them.

    Attributes:
      part: Whose they are.
      examples: In the task's own form.
      arrays: By name what the model reads, int32 [N, S] or [N, E, S] with 0 for padding, and the
        labels. N need not be the number of examples.
      batches: Those of the arrays, where `Task.open_inputs` has made them.
      num_examples: How many make an epoch, where that is not the number of records.
    """

    part: Part
    examples: Sequence[Any]
    arrays: Arrays
    batches: Batches | None = None
    num_examples: int | None = None

    @property
    def num_rows(self) -> int:
        """N."""
        return len(next(iter(self.arrays.values())))

    def head(self, count: int) -> Arrays:
        """Returns the arrays of the first rows."""
        return {name: values[:count] for name, values in self.arrays.items()}


@dataclasses.dataclass(frozen=True)
class ExampleFile:
    """Where a part's examples are written, to be read in batches.

    Attributes:
      path: A TFRecord file.
      batch_size: Records per step.
      seed: That of the order, for training; None where all are read once.
      trim: Whether to cut off what is padding in a whole batch.
      is_kept: Whether its folder is that of the run; other workers' files are removed.
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
        """Returns batches of what is written, formed by length.

        Args:
          features: What every record must be.
          lengths: int [N], the tokens of each record.
        """
        return Batches(
            Records([self.path]),
            features,
            self.batch_size,
            self.seed,
            lengths=lengths,
            trim=self.trim,
        )


class Task(Protocol):
    """What is done with BERT."""

    @property
    def kind(self) -> str:
        """Its name in `task.json`."""
        ...

    @property
    def metric(self) -> str:
        """The score by which weights are the best, higher ones better."""
        ...

    @property
    def counts_examples(self) -> bool:
        """Whether that score is the part of the examples that are answered right."""
        ...

    @property
    def guess(self) -> str:
        """What the baseline is of, such as "always giving the same answer"."""
        ...

    @property
    def fields(self) -> tuple[str, ...]:
        """Names of an input's values, such as `text_a` and `text_b`."""
        ...

    @property
    def answer_names(self) -> tuple[str, ...]:
        """Names of what an answer of `answers` holds."""
        ...

    @property
    def tokenizer(self) -> tokenization.FullTokenizer:
        """That of the model."""
        ...

    def stored(self) -> dict[str, Any]:
        """Returns what `task.json` keeps: all that is needed to answer, but the model."""
        ...

    def fixed(self, *, is_training: bool) -> Collection[str]:
        """Returns the keys of `stored` that may not change from one run in a folder to the next."""
        ...

    def read(self, splits: Collection[str]) -> Mapping[Part, Sequence[Any]]:
        """Returns the examples of the parts of these splits, checked."""
        ...

    def parse(self, rows: Sequence[Row]) -> Sequence[Any]:
        """Returns the examples in rows of `fields`, without their answers."""
        ...

    def make_inputs(self, part: Part, examples: Sequence[Any]) -> Inputs:
        """Returns what the model reads of examples."""
        ...

    def make_model(self, precision: str) -> keras.Model:
        """Returns the model that is trained; `precision` is the name of a dtype policy."""
        ...

    def open_inputs(self, inputs: Inputs, file: ExampleFile) -> Inputs:
        """Returns the inputs with batches of what the model of `make_model` reads."""
        ...

    def whole_model(self, model: keras.Model) -> keras.Model:
        """Returns the model from tokens, if `model` reads features that were computed before."""
        ...

    def objective(self, inputs: Inputs) -> Objective:
        """Returns what is minimized when the model is trained on these inputs."""
        ...

    def decode(self, inputs: Inputs, outputs: Outputs) -> Any:
        """Returns the predictions, in the task's own form.

        Args:
          inputs: Those of `make_inputs`, or of `open_inputs`.
          outputs: The model's for all rows, in any order; those per token may be cut after the
            longest of theirs.
        """
        ...

    def probabilities(self, arrays: Arrays, outputs: Arrays) -> np.ndarray:
        """Returns what the model's outputs for some rows say, without what is padding.

        Args:
          arrays: What the model has read, those of `Inputs` for these rows.
          outputs: The model's; those per token may be cut after the longest of theirs.

        Returns:
          Probabilities, float [...]; where the model gives a number, that.
        """
        ...

    def answers(self, inputs: Inputs, predictions: Any) -> list[dict[str, Any]]:
        """Returns an answer for each example, fit for JSON."""
        ...

    def score(self, inputs: Inputs, predictions: Any) -> dict[str, Any]:
        """Returns the scores; empty where none are to be had.

        Among them are `baseline`, that of guessing, and `baseline_metric`, which score it is.
        """
        ...

    def write(
        self, folder: str, step: int, inputs: Inputs, predictions: Any, scores: Mapping[str, Any]
    ) -> None:
        """Writes predictions and scores of a part to files in a folder, and logs the scores.

        Args:
          folder: That of the run.
          step: The step of the weights.
          inputs: The part's.
          predictions: As `decode` gives them.
          scores: As `score` gives them.
        """
        ...

    def report(
        self, inputs: Inputs, predictions: Any, scores: Mapping[str, Any]
    ) -> Sequence[Section]:
        """Returns what the page of a run shows of a part; arguments as `write`."""
        ...

    def export(self, folder: str, model: keras.Model) -> None:
        """Writes a SavedModel that takes text.

        Args:
          folder: Where to write.
          model: From tokens, as `whole_model` gives it or `at_precision`.
        """
        ...


def at_precision(task: Task, model: keras.Model, precision: str) -> keras.Model:
    """Returns a model as it is to be used once it is trained.

    Args:
      task: What it does.
      model: From tokens.
      precision: "float32", which a model trained in it has already; or "bfloat16" for one of the
        same weights, rounded, that keeps and computes all in this type: half the size, and faster
        where there are instructions for it.
    """
    if all(layer.compute_dtype == precision for layer in model.layers):
        return model
    # In a task of its own, since some keep what they have made.
    other = dataclasses.replace(task)  # type: ignore[type-var]
    rounded = other.whole_model(other.make_model(precision))
    for weight, value in zip(rounded.weights, model.weights, strict=True):
        weight.assign(value)
    return rounded


def read_rows(inputs: Sequence[Any], fields: Sequence[str]) -> list[Row]:
    """Returns what a model is asked as rows of its task's fields, all of them texts but `LISTS`.

    Args:
      inputs: Each a dictionary of the fields; or a tuple of their values, in that order; or, for a
        task of one field, its value.
      fields: Their names.

    Raises:
      ValueError: where an input is none of these, naming its place.
    """
    if not is_list(inputs):
        raise ValueError(f"`inputs` must be a list, of one input too. Received {inputs!r:.200}.")
    return [
        _read_row(value, f"Input {number}, counted from 0,", fields)
        for number, value in enumerate(inputs)
    ]


def is_list(values: Any) -> bool:
    """Returns whether values are some, one after another: no text, and no table with columns."""
    # A table of pandas gives the names of its columns; one column of it is a list.
    return not isinstance(values, str | bytes | Mapping) and getattr(values, "ndim", 1) == 1


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
    """Returns how many sequences the model reads of a row, as far as the row tells it."""
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
    """Returns a value of `task.json`, which must be there and of a kind.

    Args:
      stored: What the file holds.
      name: The key.
      kind: One of the types of JSON's values.
      low: The least that a whole number may be; the most is what 32 bits hold.

    Raises:
      ValueError: where it is not.
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
    """Returns an output per token, float32 [N, S, C], with 0 where it was cut.

    Args:
      outputs: Of all rows.
      shape: N and S.
      name: That of the output.
    """
    whole = np.zeros((*shape, 0), np.float32)
    for numbers, each in outputs:
        values = each[name]
        if not whole.size:
            whole = np.zeros((*shape, values.shape[-1]), np.float32)
        whole[numbers, : values.shape[1]] = values
    return whole

"""The protocols of a task: its data, its head, its answers, and its export.

`bert.runs` trains, evaluates and exports a task by these protocols, and `bert.models` predicts.
"""

import dataclasses
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Protocol

import keras
import numpy as np

import modeling
import tokenization
from bert.export.formats import CORE
from bert.files import fingerprints
from bert.log import logger
from bert.network.kernels import check_finite
from bert.options import OptionError
from bert.tasks.options import DataFiles
from bert.tasks.split import DevSplit, find_labelled, find_split
from bert.training.batches import Batches
from bert.training.loop import Objective
from bert.training.progress import save_results, save_scores
from bert.training.records import Feature, Records, write_examples

Arrays = Mapping[str, np.ndarray]
# Batches of row numbers with the model's outputs for these rows.
Outputs = Iterable[tuple[np.ndarray, Arrays]]
InputRow = Mapping[str, Any]

# The fields that hold several texts.
LISTS = ("endings",)


@dataclasses.dataclass(frozen=True)
class Part:
    """A part of a data set.

    Attributes:
      split: "train", "dev" or "test"; "queries" for `QUERIES`.
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
    """The model that a task is opened for, and the steps of the run.

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
        """Returns the split of the dev set from the training file; None without a split."""
        if "dev" not in self.splits:
            return None
        stored = self.stored or self.resumed
        return find_split(files, stored, seed=self.seed, is_training=self.is_training)


# The part of queries to a trained model, about which nothing is logged.
QUERIES = Part("queries")


@dataclasses.dataclass(frozen=True)
class Inputs:
    """Examples, and the features of a model.

    Attributes:
      part: The part of the data set.
      examples: The examples, in the task's own form.
      arrays: The arrays by name, int32 [N, S] or [N, E, S] with 0 for padding, and the labels. N
        need not be the number of examples.
      batches: The batches of the arrays, once `Task.open_inputs` has made them.
      num_examples: The number of examples of an epoch; None for the number of records.
      total: The number of examples of the part, of which `examples` may be the first; None for
        these alone.
    """

    part: Part
    examples: Sequence[Any]
    arrays: Arrays
    batches: Batches | None = None
    num_examples: int | None = None
    total: int | None = None

    @property
    def share(self) -> float:
        """The fraction of the part's examples that the inputs have."""
        return 1.0 if self.total is None else len(self.examples) / self.total

    @property
    def num_rows(self) -> int:
        """The number of rows of the arrays, N."""
        return len(next(iter(self.arrays.values())))

    @property
    def num_sequences(self) -> int:
        """The number of sequences of an example, E where there are several."""
        ids = self.arrays["input_ids"]
        return ids.shape[1] if ids.ndim > 2 else 1

    def describe(self) -> dict[str, Any]:
        """Returns by name the number and the digest of what a training run must find unchanged."""
        digest = fingerprints.of_arrays(self.arrays)
        name = f"the {self.part.split} set{self.part.suffix}"
        return {name: {"records": f"{self.num_rows} records", "sha256": digest}}

    def head(self, count: int) -> Arrays:
        """Returns the arrays of the first rows."""
        return {name: values[:count] for name, values in self.arrays.items()}


def find_inputs(inputs: Iterable[Inputs], split: str) -> Inputs:
    """Returns the inputs of the main part of a split, the one without a suffix."""
    [found] = (each for each in inputs if each.part == Part(split))
    return found


@dataclasses.dataclass(frozen=True)
class ExampleFile:
    """The record file of a part, from which batches are read.

    Attributes:
      path: The TFRecord file.
      batch_size: The records of a step.
      seed: The seed of the order in training; None to read all records once.
      trim: Whether to remove columns with padding only from a batch.
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
        """Returns batches of records of similar lengths.

        Args:
          features: The features of every record.
          lengths: The tokens of each record, int [N].
        """
        records = Records([self.path])
        return Batches(
            records, features, self.batch_size, self.seed, lengths=lengths, trim=self.trim
        )


class Data(Protocol):
    """The examples of a task, and the features of its model."""

    @property
    def fields(self) -> tuple[str, ...]:
        """The names of an input's values, such as `text_a` and `text_b`."""

    @property
    def tokenizer(self) -> tokenization.FullTokenizer:
        """The tokenizer of the model."""

    def read(self, splits: Collection[str]) -> Mapping[Part, Sequence[Any]]:
        """Returns the validated examples of these splits, by part."""

    def can_score(self, examples: Sequence[Any]) -> bool:
        """Returns whether examples of the dev set have the scores that the run needs."""

    def parse(self, rows: Sequence[InputRow]) -> Sequence[Any]:
        """Returns the examples of rows of `fields`, without labels."""

    def make_inputs(self, part: Part, examples: Sequence[Any]) -> Inputs:
        """Returns the arrays of examples."""

    def open_inputs(self, inputs: Inputs, file: ExampleFile) -> Inputs:
        """Returns the inputs with batches for the model of `make_model`."""


class Head(Protocol):
    """The model of a task, its objective, and the metric that selects its weights."""

    @property
    def metric(self) -> str:
        """The score that selects the best weights, the higher the better."""

    @property
    def counts_examples(self) -> bool:
        """Whether the metric is the fraction of examples with the right answer."""

    @property
    def baseline_answer(self) -> str:
        """The answers of the baseline, such as "always giving the same answer"."""

    def make_model(self, precision: str) -> keras.Model:
        """Returns the trained model; `precision` is the name of a dtype policy."""

    def whole_model(self, model: keras.Model) -> keras.Model:
        """Returns the model from tokens, which may differ from the trained `model`."""

    def objective(self, inputs: Inputs) -> Objective:
        """Returns the objective of a training run on these inputs."""


class Answers(Protocol):
    """The predictions, answers and scores of a model's outputs, and their files."""

    @property
    def answer_names(self) -> tuple[str, ...]:
        """The keys of an answer."""

    def decode(self, inputs: Inputs, outputs: Outputs) -> Any:
        """Returns the predictions, in the task's own form.

        Args:
          inputs: The inputs of `make_inputs` or `open_inputs`.
          outputs: The outputs for all rows, in any order; outputs per token may be truncated to
            the longest row of their batch.
        """

    def probabilities(self, arrays: Arrays, outputs: Arrays) -> np.ndarray:
        """Returns the probabilities of some rows without padding; for regression the numbers.

        Args:
          arrays: The arrays of `Inputs` for these rows.
          outputs: The outputs of the model; outputs per token may be truncated to the longest row.
        """

    def answers(self, inputs: Inputs, predictions: Any) -> list[dict[str, Any]]:
        """Returns the answer for each example, for JSON."""

    def score(self, inputs: Inputs, predictions: Any) -> dict[str, Any]:
        """Returns the scores, with `baseline` and `baseline_metric`; {} without labels."""

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


class Export(Protocol):
    """The contents of `task.json`, and the exported model."""

    @property
    def kind(self) -> str:
        """The name of the kind of task in `task.json`."""

    def stored(self) -> dict[str, Any]:
        """Returns the contents of `task.json`, which prediction needs beside the model."""

    def fixed(self, *, is_training: bool) -> Collection[str]:
        """Returns the keys of `stored` that no later run in the folder may change."""

    def export(self, folder: str, model: keras.Model, wordpiece: str = CORE) -> None:
        """Writes a SavedModel that takes text.

        Args:
          folder: The folder to write.
          model: The model from tokens, as `whole_model` or `at_precision` returns it.
          wordpiece: Whose operations cut words into pieces, one of `WORDPIECES`.
        """


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


def read_rows(inputs: Sequence[Any], fields: Sequence[str]) -> list[InputRow]:
    """Returns inputs as rows of a task's fields, texts or for `LISTS` lists of texts.

    Args:
      inputs: Dictionaries of the fields; or tuples of their values in order; or, for a task with
        one field, values.
      fields: The names of the fields.

    Raises:
      ValueError: where an input has another form, with its number.
    """
    if not is_list(inputs):
        raise ValueError(f"`inputs` must be a list, a text or an object. Received {inputs!r:.200}.")
    return [
        read_row(value, f"Input {number}, counted from 0,", fields)
        for number, value in enumerate(inputs)
    ]


def is_list(values: Any) -> bool:
    """Returns whether values are a list, or a column of pandas, and not a text or a table."""
    is_one = isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable)
    return not is_one and getattr(values, "ndim", 1) == 1


def read_row(value: Any, place: str, fields: Sequence[str]) -> InputRow:
    """Returns an input as a row, as `read_rows` does; `place` names the input in errors."""
    if isinstance(value, str) and len(fields) == 1:
        value = (value,)
    if isinstance(value, tuple | list) and len(value) == len(fields):
        value = dict(zip(fields, value, strict=True))
    if not isinstance(value, Mapping) or not all(name in value for name in fields):
        alone = ", or be a text" if len(fields) == 1 else ""
        raise ValueError(
            f"{place} must have {', '.join(map(repr, fields))}{alone}. Received {value!r:.200}."
        )
    for name in fields:
        is_list = name in LISTS
        texts = value[name] if is_list else [value[name]]
        if not isinstance(texts, list | tuple) or not all(isinstance(text, str) for text in texts):
            kind = "a list of texts" if is_list else "text"
            raise ValueError(
                f"{place} must have {kind} as {name!r}. Received {value[name]!r:.200}."
            )
    return {name: value[name] for name in fields}


def num_sequences(row: InputRow) -> int:
    """Returns the number of sequences that the model reads for a row."""
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


def stored_field(stored: Mapping[str, Any], name: str, kind: type) -> Any:
    """Returns a value of `task.json`.

    Args:
      stored: The contents of the file.
      name: The key.
      kind: The type of the value; a whole number is from 1 to the largest of 32 bits.

    Raises:
      ValueError: where the key is missing or has a value of another type.
    """
    value: Any = stored.get(name)
    kinds = (int, float) if kind is float else (kind,)
    if type(value) not in kinds or (kind is int and not 1 <= value <= _MOST):
        bound = f" from 1 to {_MOST}" * (kind is int)
        received = f"Received {value!s:.80}" if name in stored else "It is not there"
        raise ValueError(f"`{name}` must be {_NOUNS[kind]}{bound}. {received}.")
    return value


def collect(outputs: Outputs) -> dict[str, np.ndarray]:
    """Returns the outputs in the order of the rows, which must be of one shape."""
    numbers, batches = zip(*outputs, strict=True)
    order = np.argsort(np.concatenate(numbers))
    names = batches[0].keys()
    return {
        name: check_finite(np.concatenate([batch[name] for batch in batches]))[order]
        for name in names
    }


def collect_padded(outputs: Outputs, shape: tuple[int, ...], name: str) -> np.ndarray:
    """Returns an output per token, float32 [N, S, C], padded with 0 where it was truncated.

    Args:
      outputs: The outputs of all rows.
      shape: N and S.
      name: The name of the output.
    """
    padded = np.zeros((*shape, 0), np.float32)
    for numbers, batch in outputs:
        values = check_finite(batch[name])
        if not padded.size:
            padded = np.zeros((*shape, values.shape[-1]), np.float32)
        padded[numbers, : values.shape[1]] = values
    return padded


def find_scored(inputs: Inputs) -> list[int]:
    """Returns the places of the labelled examples, and warns where only some have a label."""
    known = find_labelled(inputs.examples)
    if 0 < len(known) < len(inputs.examples):
        logger.warning(
            "Scored are the %d of %d %s examples that have a label.",
            len(known),
            len(inputs.examples),
            inputs.part.split,
        )
    return known


def results_name(part: Part) -> str:
    """Returns the name of the files with the scores of a part, without its ending."""
    return f"{'eval' if part.split == 'dev' else part.split}_results{part.suffix}"


def write_scores(
    folder: str,
    step: int,
    part: Part,
    scores: Mapping[str, Any],
    names: Sequence[str],
    table: str = "",
) -> None:
    """Writes all scores to `<part>_results.json`, and the named ones to `<part>_results.txt`.

    What is logged is the table, or else the named scores.
    """
    file_name = results_name(part)
    kind = file_name.partition("_")[0]
    # Faithful: the original's eval_results.txt has the loss under two names.
    results = {f"{kind}_{name}": scores[name] for name in (*names, "loss")}
    save_results(folder, step, {**results, "loss": scores["loss"]}, file_name, table)
    save_scores(folder, step, scores, file_name)


def check_lstm_export(formats: Sequence[str], allowed: Collection[str]) -> None:
    """Checks that a model with LSTMs is exported only in formats that can hold them.

    Raises:
      OptionError: for the first format that is not allowed.
    """
    if wrong := [name for name in formats if name not in allowed]:
        raise OptionError(
            "export_format",
            f"be {' or '.join(allowed)} for a model with LSTMs, whose loop over the tokens "
            f"{wrong[0]} cannot hold",
            ",".join(formats),
        )

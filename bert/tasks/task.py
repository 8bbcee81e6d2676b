"""What a run needs of a task that it trains, evaluates and exports: protocols, and a common base.

What answers, which `bert.tasks.answering` has, is a part of it.
"""

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import keras
import numpy as np

import modeling
import tokenization
from bert.log import logger
from bert.network.heads import Losses, Weights
from bert.options import MessageError, Option, OptionError
from bert.tasks.answering import AnsweringTask, EncoderTask, has_bilstm
from bert.tasks.distillation import Teacher, without_layers
from bert.tasks.examples import Arrays, Inputs, Part, find_labelled
from bert.tasks.options import DataFiles, Encoder, Lengths
from bert.tasks.split import DevSplit, find_split
from bert.training.batches import Batches
from bert.training.loop import Objective
from bert.training.progress import save_results, save_scores
from bert.training.records import Feature, Records, encoder_features, write_examples

if TYPE_CHECKING:
    from typing_extensions import Self


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
    """The data set of a run, the batches of its examples, and what no other run may change."""

    def read(self, splits: Collection[str]) -> Mapping[Part, Sequence[Any]]:
        """Returns the validated examples of these splits, by part."""

    def can_score(self, examples: Sequence[Any]) -> bool:
        """Returns whether examples of the dev set have the scores that the run needs."""

    def open_inputs(self, inputs: Inputs, file: ExampleFile) -> Inputs:
        """Returns the inputs with batches for the model of `make_model`."""

    def fixed(self, *, is_training: bool) -> Collection[str]:
        """Returns the keys of `stored` that no later run in the folder may change."""


class Head(Protocol):
    """What a training run minimizes, and the metric that selects its weights."""

    @property
    def metric(self) -> str:
        """The score that selects the best weights, the higher the better."""

    @property
    def counts_examples(self) -> bool:
        """Whether the metric is the fraction of examples with the right answer."""

    @property
    def baseline_answer(self) -> str:
        """The answers of the baseline, such as "always giving the same answer"."""

    def objective(self, inputs: Inputs) -> Objective:
        """Returns the objective of a training run on these inputs."""


class Scores(Protocol):
    """The scores of predictions, and the files of both."""

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


class Task(AnsweringTask, Data, Head, Scores, Protocol):
    """A task that BERT is fine-tuned for."""


@dataclasses.dataclass(frozen=True)
class TrainingTask(EncoderTask):
    """A `Task` on an encoder; a subclass has what its kind needs, and inherits what answers.

    Attributes:
      teacher: The model to learn from in addition to the data; None without distillation.
    """

    teacher: Teacher | None = dataclasses.field(default=None, kw_only=True)

    @classmethod
    def for_run(
        cls, context: TaskContext, lengths: Lengths, encoder: Encoder, *own: Any, **others: Any
    ) -> "Self":
        """Returns the task of a run, with a BiLSTM by the options or as the model was trained.

        Args:
          context: The model, and what the run does.
          lengths: The length of sequences.
          encoder: The options of the BiLSTM.
          *own: The first fields of the subclass.
          **others: Its other fields.

        Raises:
          ValueError: where the hidden size is odd, or an export cannot hold the LSTMs.
        """
        config, add_bilstm = context.config, encoder.add_bilstm or has_bilstm(context.stored)
        if add_bilstm or config.is_bilstm:
            # tf2onnx cannot convert the loop over the tokens.
            check_lstm_export(context.export_formats, ["saved_model"])
        if add_bilstm and config.hidden_size % 2:
            raise MessageError(
                "%s needs an even `hidden_size`, half of it for each direction. Received %s.",
                Option("add_bilstm"),
                config.hidden_size,
            )
        model = (config, context.tokenizer, lengths.max_seq_length)
        return cls(*model, *own, add_bilstm=add_bilstm, **others)

    @property
    def unlabeled(self) -> Sequence[Any]:
        """The examples without labels, which only a teacher answers."""
        return self.teacher.unlabeled if self.teacher else ()

    def can_score(self, examples: Sequence[Any]) -> bool:
        """Returns whether examples of the dev set have the scores that the run needs."""
        del examples
        return True

    def encoder_features(self, rows: int = 0) -> dict[str, Feature]:
        """Returns the features of a record that the encoder reads, of `rows` sequences."""
        return encoder_features(
            max_seq_length=self.max_seq_length,
            vocab_size=self.config.vocab_size,
            type_vocab_size=self.config.type_vocab_size,
            rows=rows,
        )

    def build_model(self, make: Callable[..., keras.Model], *sizes: int, **given: Any) -> Any:
        """Returns a model of `bert.network.heads`, with the layers that a teacher needs."""
        in_step = self.teacher.in_step if self.teacher else None
        if in_step is None:
            return super().build_model(make, *sizes, **given)
        given |= {"gives_layers": bool(in_step.layers)}
        return in_step.extend(super().build_model(make, *sizes, **given))

    def whole_model(self, model: keras.Model) -> keras.Model:
        return without_layers(model)

    def teach(self, weights: Weights, losses: Losses) -> Objective:
        """Returns the objective of some parts, and of a teacher's."""
        in_step = self.teacher.in_step if self.teacher else None
        return Objective(*(in_step.objective(weights, losses) if in_step else (weights, losses)))


def at_precision(task: AnsweringTask, model: keras.Model, precision: str) -> keras.Model:
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

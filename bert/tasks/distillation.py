"""Distillation: a student learns the logits and the layers of a teacher.

Source: Hinton et al., Distilling the Knowledge in a Neural Network; Jiao et al., TinyBERT, and Sun
et al., Patient Knowledge Distillation for BERT Model Compression, for the layers.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import keras
import numpy as np
from keras import ops

import modeling
from bert.files.texts import Columns, read_inputs
from bert.network.heads import Batch, Blend, Losses, Weights, layer_name
from bert.network.kernels import infer
from bert.options import MessageError, Option, OptionError
from bert.tasks.answering import AnsweringTask
from bert.tasks.examples import InputRow, Inputs, Outputs, read_row
from bert.tasks.options import Teacher as TeacherOptions
from bert.weights.tokenizers import options_of
from bert.weights.variables import PROJECTION

if TYPE_CHECKING:
    from typing_extensions import Self

Tensor = Any

TEACHER_LOGITS, IS_LABELED = "teacher_logits", "is_labeled"

UNIFORM = "uniform"
# The name of a part of the loss.
_LAYERS = "layers"


class TeacherModel(Protocol):
    """A fine-tuned model that answers examples of its task."""

    @property
    def task(self) -> Any:
        """The task of the model."""

    def compute(self, examples: Sequence[Any]) -> tuple[Inputs, Outputs]:
        """Returns the inputs of examples, and the model's outputs."""

    def decide(self, examples: Sequence[Any]) -> tuple[Inputs, np.ndarray]:
        """Returns the inputs of examples, and the decoded outputs."""


@dataclasses.dataclass(frozen=True)
class StepTeacher:
    """A teacher whose forward pass is a part of the training step.

    Attributes:
      model: A model from the student's inputs to its targets, float32. Logits have the names of the
        student's outputs, and are in the batch of the losses by `teacher_name`; the targets of
        layers, [B, S, T], have the names of `layer_name`.
      config: The shape of its encoder.
      weight: The factor of the loss of layers.
    """

    model: keras.Model
    config: modeling.BertConfig
    weight: float = 1.0

    @property
    def layers(self) -> list[str]:
        """The names of the layers that are learned, from the lowest."""
        names = map(layer_name, range(len(self.model.output)))
        return [name for name in names if name in self.model.output]

    def extend(self, model: keras.Model) -> keras.Model:
        """Returns a student whose layers, where some are learned, are as wide as the teacher's.

        A projection is learned for a layer of another width. Checkpoints have it, so that training
        resumes; `without_layers` removes it.

        Args:
          model: A model with `gives_layers`.
        """
        if not self.layers:
            return model
        outputs = dict(model.output)
        for number, name in enumerate(self.layers):
            width = self.model.output[name].shape[-1]
            if outputs[name].shape[-1] != width:
                project = keras.layers.Dense(
                    width, use_bias=False, name=f"{PROJECTION}{number}", dtype="float32"
                )
                outputs[name] = project(outputs[name])
            outputs[name] = ops.cast(outputs[name], "float32")
        return _Student(model.input, outputs, name=model.name)

    def objective(self, weights: Weights, losses: Losses) -> tuple[Weights, Losses]:
        """Returns an objective whose batches have the teacher's logits, too.

        Where layers are learned, it has one more part, their mean squared error. The mean is over
        layers, real tokens and values.

        Args:
          weights: The weights of the other parts.
          losses: The losses of the other parts.
        """

        def all_weights(batch: Batch) -> dict[str, Tensor]:
            parts = weights(batch)
            if self.layers:
                parts[_LAYERS] = ops.sum(ops.cast(batch["input_mask"], "float32"))
            return parts

        def all_losses(
            outputs: Mapping[str, Tensor], batch: Batch, totals: Mapping[str, Tensor]
        ) -> dict[str, Tensor]:
            found = infer(self.model, {name: batch[name] for name in self.model.input})
            targets = {name: ops.stop_gradient(target) for name, target in found.items()}
            named = {teacher_name(name): target for name, target in targets.items()}
            parts = losses(outputs, {**batch, **named}, totals)
            if self.layers:
                mask = ops.cast(batch["input_mask"], "float32")
                errors = [ops.square(outputs[name] - targets[name]) for name in self.layers]
                total = sum(ops.sum(ops.mean(error, axis=-1) * mask) for error in errors)
                parts[_LAYERS] = self.weight * total / (len(errors) * totals[_LAYERS])
            return parts

        return all_weights, all_losses


def teacher_name(name: str) -> str:
    """Returns the name in a batch of what a teacher gives in the training step."""
    return f"teacher_{name}"


class _Student(keras.Model):
    """A model that returns its layers only in training."""

    def call(self, inputs: Batch, training: bool | None = None, mask: Any = None) -> Any:
        outputs = super().call(inputs, training=training, mask=mask)
        return outputs if training else _without_layers(outputs)


def without_layers(model: keras.Model) -> keras.Model:
    """Returns a model with the same weights without the layers of `StepTeacher.extend`, if any."""
    outputs = _without_layers(model.output)
    if len(outputs) == len(model.output):
        return model
    return keras.Model(model.input, outputs, name=model.name)


def _without_layers(outputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: outputs[name] for name in outputs if not name.startswith(layer_name(""))}


def open_layers(
    text: str | None, layers: Sequence[Tensor], config: modeling.BertConfig
) -> dict[str, Tensor]:
    """Returns by `layer_name` the targets of the student's layers that `distill_layers` names.

    Args:
      text: For each layer of the student the number of a teacher's layer, from 0, separated by
        commas; or "uniform", for layers at even distances up to the last; None for no layers.
      layers: The layers of the teacher, symbolic tensors [B, S, T].
      config: The shape of the student.

    Raises:
      ValueError: where the teacher has no such layers, or their number is not the student's.
    """
    numbers = [] if text is None else _parse(text, len(layers), config.num_hidden_layers)
    return {
        layer_name(own): ops.cast(layers[number], "float32") for own, number in enumerate(numbers)
    }


def _parse(text: str, num_teacher: int, num_student: int) -> list[int]:
    if text == UNIFORM and num_teacher < num_student:
        raise MessageError(
            "%s needs a teacher of at least as many layers as the student. It has %d, the student "
            "%d.",
            Option("distill_layers", UNIFORM),
            num_teacher,
            num_student,
        )
    if text == UNIFORM:
        return [(number + 1) * num_teacher // num_student - 1 for number in range(num_student)]
    try:
        numbers = [int(number) for number in text.split(",")]
    except ValueError:
        numbers = []
    if len(numbers) != num_student or not all(0 <= number < num_teacher for number in numbers):
        raise OptionError(
            "distill_layers",
            f"be {UNIFORM}, or for each of the student's {num_student} layers one of the "
            f"teacher's, 0 to {num_teacher - 1}, with commas between",
            text,
        )
    return numbers


@dataclasses.dataclass(frozen=True, kw_only=True)
class Teacher:
    """A teacher of a student.

    Attributes:
      unlabeled: Examples without labels, of which the teacher's logits alone are learned.
      weight: The share of the teacher in the loss of labelled examples.
      temperature: The divisor of the logits, as for `soft_losses`.
      in_step: The part that the training step computes; None if only stored logits are learned.
      path: The option that named the teacher.
      weights: The name and the digest of its weights, for `run.json`.
    """

    unlabeled: Sequence[Any] = ()
    weight: float = 0.5
    temperature: float = 2.0
    in_step: StepTeacher | None = None
    path: str | None = None
    weights: Mapping[str, str] | None = None

    @property
    def step_config(self) -> modeling.BertConfig | None:
        """The shape of the model that is a part of the training step, if there is one."""
        return self.in_step.config if self.in_step else None

    @classmethod
    def of(
        cls, options: TeacherOptions, in_step: StepTeacher | None, task: Any, **others: Any
    ) -> "Self":
        """Returns the teacher that options describe, with the texts of its `unlabeled_file`.

        Args:
          options: The options.
          in_step: What is computed in the training step.
          task: The task of the student.
          **others: More attributes of the teacher.

        Raises:
          ValueError: where the texts cannot be read.
        """
        unlabeled: Sequence[Any] = ()
        if options.unlabeled_file:
            columns = getattr(task, "columns", {})
            rows = read_unlabeled(options.unlabeled_file, task.fields, columns)
            unlabeled = task.parse_unlabeled(rows)
            if not unlabeled:
                raise OptionError("unlabeled_file", "hold texts", remedy="All its lines are blank.")
        weight, temperature = options.teacher_weight, options.distillation_temperature
        return cls(
            unlabeled=unlabeled, weight=weight, temperature=temperature, in_step=in_step, **others
        )

    def blend(self, task_type: str = "classification", name: str = TEACHER_LOGITS) -> Blend:
        """Returns a function that blends the losses of labels with the distance from the teacher.

        The function takes losses [R], logits [R, C], or [R, S] of positions, and a batch. All rows
        are labelled, except where the batch has `IS_LABELED` and says otherwise.

        Args:
          task_type: The type of the task, as for `heads.classification_objective`.
          name: The name in the batch of as many logits of the teacher, stored or computed in the
            step (`teacher_name`).
        """

        def blended(label_losses: Tensor, logits: Tensor, batch: Batch) -> Tensor:
            theirs = ops.reshape(batch[name], ops.shape(logits))
            teacher_losses = soft_losses(task_type, logits, theirs, self.temperature)
            is_labeled = ops.reshape(batch.get(IS_LABELED, ops.ones_like(label_losses)), (-1,))
            share = (1.0 - self.weight) * ops.cast(is_labeled, "float32")
            return share * label_losses + (1.0 - share) * teacher_losses

        return blended


@dataclasses.dataclass(frozen=True, kw_only=True)
class AnsweringTeacher(Teacher):
    """A teacher whose logits are computed once, and stored in the records of training.

    Attributes:
      answer: Returns the teacher's logits of examples, in the order of the student's labels.
    """

    answer: Callable[[Sequence[Any]], np.ndarray]


def soft_losses(
    task_type: str, logits: Tensor, teacher_logits: Tensor, temperature: float
) -> Tensor:
    """Returns the distance of each answer from the teacher's, float32 [B]; 0 for the same answer.

    The distance is the Kullback-Leibler divergence of the probabilities at a temperature, times the
    square of the temperature, which keeps the size of the gradients; for multi-label its mean over
    labels, and for regression the squared difference.

    Args:
      task_type: The type of the task, as for `heads.classification_objective`.
      logits: The student's logits, float32 [B, C].
      teacher_logits: The teacher's logits, float32 [B, C].
      temperature: The divisor of the logits, above 0: the higher, the more the less likely labels
        count.
    """
    if task_type == "regression":
        return ops.mean(ops.square(logits - teacher_logits), axis=-1)
    ours, theirs = logits / temperature, teacher_logits / temperature
    if task_type == "classification":
        ours, theirs = ops.log_softmax(ours), ops.log_softmax(theirs)
        return temperature**2 * ops.sum(ops.exp(theirs) * (theirs - ours), axis=-1)
    chance = ops.sigmoid(theirs)
    # The divergence for both answers: the label is present, or absent.
    present = ops.log_sigmoid(theirs) - ops.log_sigmoid(ours)
    absent = ops.log_sigmoid(-theirs) - ops.log_sigmoid(-ours)
    return temperature**2 * ops.mean(chance * present + (1.0 - chance) * absent, axis=-1)


def read_unlabeled(
    path: str, fields: Sequence[str], columns: Mapping[str, Any]
) -> dict[int, InputRow]:
    """Returns the rows of a file of unlabelled texts by their lines.

    The file has any format that predict.py reads.

    Raises:
      ValueError: where the file is empty, or a row cannot be read.
    """
    rows: dict[int, InputRow] = {}
    for found in read_inputs(path, None, Columns(fields=tuple(fields), known=columns)):
        if found.row is None:
            raise ValueError(found.problem)
        rows[found.line] = read_row(found.row, f"{path}:{found.line}:", fields)
    if not rows:
        raise OptionError("unlabeled_file", "hold texts", remedy=f"{path!r} is empty.")
    return rows


def check_same_tokenizer(
    ours: AnsweringTask, theirs: AnsweringTask, path: str, *, is_needed_always: bool
) -> None:
    """Checks that a student tokenizes texts as the teacher does, whose forward pass it shares.

    Args:
      ours: The task of the student.
      theirs: The task of the teacher.
      path: The teacher, for the message.
      is_needed_always: Whether the teacher is a part of the training step without layers, too.

    Raises:
      ValueError: where their vocabularies, casings or options of the tokenizer differ.
    """
    student, teacher = (
        (tokenizer.basic_tokenizer.do_lower_case, options_of(tokenizer), dict(tokenizer.vocab))
        for tokenizer in (ours.tokenizer, theirs.tokenizer)
    )
    if student == teacher:
        return
    must = "have the vocabulary, the casing and the other options of the student's tokenizer"
    if is_needed_always:
        raise OptionError("teacher", must, remedy=f"The tokenizer of {path!r} differs.")
    raise MessageError(
        "%s needs a %s with the vocabulary, the casing and the other options of the student's "
        "tokenizer. The tokenizer of %r differs. Without it, only the answers are learned.",
        Option("distill_layers"),
        Option("teacher"),
        path,
    )


def order_of_labels(
    ours: tuple[str, Sequence[str]], theirs: tuple[str, Sequence[str]], path: str | None
) -> list[int]:
    """Returns the index of each label of a student among the labels of a teacher.

    Args:
      ours: What the student decides, in words, and its labels; no labels for a number.
      theirs: What the teacher decides.
      path: The teacher, for the message.

    Raises:
      OptionError: where the teacher decides something else, or has other labels.
    """
    (kind, labels), (their_kind, their_labels) = ours, theirs
    if kind != their_kind or sorted(labels) != sorted(their_labels):
        student, teacher = (
            kind + f" with the labels {', '.join(sorted(labels))}" * bool(labels)
            for kind, labels in (ours, theirs)
        )
        raise OptionError(
            "teacher",
            f"decide the same as the student, {student}",
            remedy=f"The one in {path!r} decides {teacher}.",
        )
    return [their_labels.index(label) for label in labels] or [0]

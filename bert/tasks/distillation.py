"""Distillation: a student learns the logits and the layers of a teacher.

Source: Hinton et al., Distilling the Knowledge in a Neural Network; Jiao et al., TinyBERT, and Sun
et al., Patient Knowledge Distillation for BERT Model Compression, for the layers.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import keras
import numpy as np
from keras import ops

import modeling
from bert.files.texts import Columns, Input, read_inputs
from bert.network.heads import Batch, Blend, Losses, Weights, layer_name
from bert.network.kernels import infer
from bert.options import MessageError, Option, OptionError
from bert.tasks.task import Inputs, Outputs, Task, read_row
from bert.weights.tokenizers import options_of

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
        ...

    def compute(self, examples: Sequence[Any]) -> tuple[Inputs, Outputs]:
        """Returns the inputs of examples, and the model's outputs."""
        ...

    def decide(self, examples: Sequence[Any]) -> tuple[Inputs, np.ndarray]:
        """Returns the inputs of examples, and the decoded outputs."""
        ...


@dataclasses.dataclass(frozen=True)
class Layers:
    """The layers of a teacher that a student learns.

    Attributes:
      teacher: A model from `encoder_inputs` to the target of each layer of the student, float32
        [B, S, T].
      widths: T of each layer.
      weight: The factor of their loss.
    """

    teacher: keras.Model
    widths: Sequence[int]
    weight: float = 1.0

    def extend(self, model: keras.Model) -> keras.Model:
        """Returns a student with layers among its outputs that are as wide as the teacher's.

        A projection is learned for a layer of another width. Checkpoints have it, so that training
        resumes; `without_layers` removes it.

        Args:
          model: A model of `heads` with `gives_layers`.
        """
        outputs = dict(model.output)
        for number, width in enumerate(self.widths):
            name = layer_name(number)
            if outputs[name].shape[-1] != width:
                project = keras.layers.Dense(
                    width, use_bias=False, name=f"distillation_{number}", dtype="float32"
                )
                outputs[name] = project(outputs[name])
            outputs[name] = ops.cast(outputs[name], "float32")
        return _Student(model.input, outputs, name=model.name)

    def objective(self, weights: Weights, losses: Losses) -> tuple[Weights, Losses]:
        """Returns an objective with one more part, the mean squared error of layers.

        The mean is over layers, real tokens and values.

        Args:
          weights: The weights of the other parts.
          losses: The losses of the other parts.
        """

        def all_weights(batch: Batch) -> dict[str, Tensor]:
            return {**weights(batch), _LAYERS: ops.sum(ops.cast(batch["input_mask"], "float32"))}

        def all_losses(
            outputs: Mapping[str, Tensor], batch: Batch, totals: Mapping[str, Tensor]
        ) -> dict[str, Tensor]:
            mask = ops.cast(batch["input_mask"], "float32")
            inputs = {name: batch[name] for name in modeling.encoder_inputs()}
            # Keras does not return a single output as a list.
            targets = keras.tree.flatten(infer(self.teacher, inputs))
            sums = []
            for number, target in enumerate(targets):
                errors = ops.square(outputs[layer_name(number)] - ops.stop_gradient(target))
                sums.append(ops.sum(ops.mean(errors, axis=-1) * mask))
            total = self.weight * sum(sums) / (len(sums) * totals[_LAYERS])
            return {**losses(outputs, batch, totals), _LAYERS: total}

        return all_weights, all_losses


class _Student(keras.Model):
    """A model that returns its layers only in training."""

    def call(self, inputs: Batch, training: bool | None = None, mask: Any = None) -> Any:
        outputs = super().call(inputs, training=training, mask=mask)
        names = [name for name in outputs if training or not name.startswith(layer_name(""))]
        return {name: outputs[name] for name in names}


def without_layers(model: keras.Model) -> keras.Model:
    """Returns the model of `Layers.extend` with the same weights and `logits` alone."""
    return keras.Model(model.input, {"logits": model.output["logits"]}, name=model.name)


def open_layers(
    text: str, weight: float, teacher: modeling.BertModel, config: modeling.BertConfig
) -> Layers:
    """Returns the layers that `distill_layers` names.

    Args:
      text: For each layer of the student the number of a teacher's layer, from 0, separated by
        commas; or "uniform", for layers at even distances up to the last.
      weight: The factor of their loss.
      teacher: The encoder of the teacher, with its weights.
      config: The shape of the student.

    Raises:
      ValueError: where the teacher has no such layers, or their number is not the student's.
    """
    numbers = _parse(text, teacher.config.num_hidden_layers, config.num_hidden_layers)
    inputs = modeling.encoder_inputs()
    layers = teacher(inputs)["encoder_layers"]
    targets = [ops.cast(layers[number], "float32") for number in numbers]
    return Layers(keras.Model(inputs, targets), [teacher.config.hidden_size] * len(numbers), weight)


def _parse(text: str, num_teacher: int, num_student: int) -> list[int]:
    if text == UNIFORM and num_teacher < num_student:
        raise MessageError(
            "%s needs a teacher of at least as many layers as the student. It has %d, the student "
            "%d.",
            *(Option("distill_layers", UNIFORM), num_teacher, num_student),
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


@dataclasses.dataclass(frozen=True)
class Teacher:
    """A teacher of a student; the class of its task adds the features of training.

    Attributes:
      answer: Returns the teacher's logits of examples, in the order of the student's labels.
      unlabeled: Examples without labels, of which the teacher's logits alone are learned.
      weight: The share of the teacher in the loss of labelled examples.
      temperature: The divisor of the logits, as for `soft_losses`.
      layers: The layers that are learned; None for logits alone.
    """

    answer: Callable[[Sequence[Any]], np.ndarray]
    unlabeled: Sequence[Any] = ()
    weight: float = 0.5
    temperature: float = 2.0
    layers: Layers | None = None


def blend(task_type: str, weight: float, temperature: float) -> Blend:
    """Returns a function that blends the losses of labels with the distance from a teacher.

    The function takes losses [R], logits [R, C], and a batch with `TEACHER_LOGITS`, float32 [R, C],
    and `IS_LABELED`, [R, 1].

    Args:
      task_type: The type of the task, as for `heads.classification_objective`.
      weight: The share of the teacher in the loss of labelled rows.
      temperature: The divisor of the logits, as for `soft_losses`.
    """

    def blended(label_losses: Tensor, logits: Tensor, batch: Batch) -> Tensor:
        teacher_losses = soft_losses(task_type, logits, batch[TEACHER_LOGITS], temperature)
        share = (1.0 - weight) * ops.cast(batch[IS_LABELED][:, 0], "float32")
        return share * label_losses + (1.0 - share) * teacher_losses

    return blended


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


def read_unlabeled(path: str, fields: Sequence[str], columns: Mapping[str, Any]) -> list[Input]:
    """Returns the rows of a file of unlabelled texts, in any format that predict.py reads.

    Raises:
      ValueError: where the file is empty, or a row cannot be read.
    """
    rows = list(read_inputs(path, None, Columns(fields=tuple(fields), known=columns)))
    for each in rows:
        if each.row is None:
            raise ValueError(each.problem)
        read_row(each.row, f"{path}:{each.line}:", fields)
    if not rows:
        raise OptionError("unlabeled_file", "hold texts", remedy=f"{path!r} is empty.")
    return rows


def check_same_tokenizer(ours: Task, theirs: Task, path: str) -> None:
    """Checks that a student tokenizes texts as the teacher does whose layers it learns.

    Raises:
      ValueError: where their vocabularies, casings or options of the tokenizer differ.
    """
    student, teacher = (
        (tokenizer.basic_tokenizer.do_lower_case, options_of(tokenizer), dict(tokenizer.vocab))
        for tokenizer in (ours.tokenizer, theirs.tokenizer)
    )
    if student != teacher:
        raise MessageError(
            "%s needs a %s with the vocabulary, the casing and the other options of the student's "
            "tokenizer. Those of %r differ. Without it, only the answers are learned.",
            *(Option("distill_layers"), Option("teacher"), path),
        )

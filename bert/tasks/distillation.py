"""A model that learns from another one: from its answers, and from its layers.

Source: Hinton et al., Distilling the Knowledge in a Neural Network; Jiao et al., TinyBERT, and Sun
et al., Patient Knowledge Distillation for BERT Model Compression, for the layers.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import keras
import numpy as np
from keras import ops

import modeling
from bert.files.inputs import Columns, Input, read_inputs
from bert.network.heads import Batch, Blend, Losses, Weights, layer_name
from bert.network.inference import infer
from bert.options import MessageError, Option, OptionError
from bert.tasks.task import Inputs, Outputs, Task
from bert.weights.tokenizers import options_of

Tensor = Any

TEACHER_LOGITS, IS_LABELED = "teacher_logits", "is_labeled"

UNIFORM = "uniform"
# The name of the part of the loss.
_LAYERS = "layers"


class TeacherModel(Protocol):
    """A model that a student learns from."""

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
    """The layers of a teacher that those of a student learn.

    Attributes:
      teacher: A model of `encoder_inputs`, with the vocabulary of the student, of a list: for each
        layer of the student what it is to give, float32 [B, S, T].
      widths: T of each.
      weight: What their loss is multiplied by.
    """

    teacher: keras.Model
    widths: Sequence[int]
    weight: float = 1.0

    def extend(self, model: keras.Model) -> keras.Model:
        """Returns a student that gives its layers, too, as wide as the teacher's.

        Where its own are of another width, a projection is learned with it. That is among the
        weights, so that a training goes on where it stopped; what answers later has none.

        Args:
          model: With its layers among its outputs, as `heads` makes it.
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
        """Returns an objective with one more part: the mean squared error over real tokens.

        It is a mean over layers, tokens and values.

        Args:
          weights: Of the student's own parts.
          losses: Likewise.
        """

        def all_weights(batch: Batch) -> dict[str, Tensor]:
            return {**weights(batch), _LAYERS: ops.sum(ops.cast(batch["input_mask"], "float32"))}

        def all_losses(
            outputs: Mapping[str, Tensor], batch: Batch, totals: Mapping[str, Tensor]
        ) -> dict[str, Tensor]:
            mask = ops.cast(batch["input_mask"], "float32")
            inputs = {name: batch[name] for name in modeling.encoder_inputs()}
            # Of a single output, Keras makes no list.
            given = keras.tree.flatten(infer(self.teacher, inputs))
            shown = [ops.stop_gradient(each) for each in given]
            sums = [
                ops.sum(ops.mean(ops.square(outputs[layer_name(n)] - each), axis=-1) * mask)
                for n, each in enumerate(shown)
            ]
            total = self.weight * sum(sums) / (len(sums) * totals[_LAYERS])
            return {**losses(outputs, batch, totals), _LAYERS: total}

        return all_weights, all_losses


class _Student(keras.Model):
    """Gives its layers only where it is trained: nobody else asks for them."""

    def call(self, inputs: Batch, training: bool | None = None, mask: Any = None) -> Any:
        outputs = super().call(inputs, training=training, mask=mask)
        names = [name for name in outputs if training or not name.startswith(layer_name(""))]
        return {name: outputs[name] for name in names}


def without_layers(model: keras.Model) -> keras.Model:
    """Returns a student as it answers once it is trained, with its weights: with logits alone.

    Args:
      model: As `Layers.extend` makes it.
    """
    return keras.Model(model.input, {"logits": model.output["logits"]}, name=model.name)


def open_layers(
    text: str, weight: float, teacher: modeling.BertModel, config: modeling.BertConfig
) -> Layers:
    """Returns the layers that `distill_layers` names.

    Args:
      text: For each layer of the student the number of a teacher's, from 0, with commas between; or
        "uniform", for which the last is learned from the last, and the others at even distances.
      weight: As `Layers.weight`.
      teacher: The encoder of the teacher, with its weights.
      config: The shape of the student.

    Raises:
      ValueError: where the teacher has no such layers, or there are not as many as the student has.
    """
    numbers = _parse(text, teacher.config.num_hidden_layers, config.num_hidden_layers)
    inputs = modeling.encoder_inputs()
    layers = teacher(inputs)["encoder_layers"]
    shown = [ops.cast(layers[number], "float32") for number in numbers]
    return Layers(keras.Model(inputs, shown), [teacher.config.hidden_size] * len(numbers), weight)


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
        numbers = [int(each) for each in text.split(",")]
    except ValueError:
        numbers = []
    if len(numbers) != num_student or not all(0 <= each < num_teacher for each in numbers):
        raise OptionError(
            "distill_layers",
            f"be {UNIFORM}, or for each of the student's {num_student} layers one of the "
            f"teacher's, 0 to {num_teacher - 1}, with commas between",
            text,
        )
    return numbers


def blend(task_type: str, weight: float, temperature: float) -> Blend:
    """Returns the `blend` of an objective of `heads`: from losses [R], logits [R, C] and the batch.

    The batch has, of these rows, `TEACHER_LOGITS`, float32 [R, C], and `IS_LABELED`, [R, 1].

    Args:
      task_type: As for `heads.classification_objective`.
      weight: The share of the teacher in the loss of rows that have a label.
      temperature: What logits are divided by, which lets the less likely labels count more.
    """

    def blended(told: Tensor, logits: Tensor, batch: Batch) -> Tensor:
        shown = soft_losses(task_type, logits, batch[TEACHER_LOGITS], temperature)
        share = (1.0 - weight) * ops.cast(batch[IS_LABELED][:, 0], "float32")
        return share * told + (1.0 - share) * shown

    return blended


def soft_losses(
    task_type: str, logits: Tensor, teacher_logits: Tensor, temperature: float
) -> Tensor:
    """Returns how far each answer is from the teacher's, float32 [B]; 0 where they are the same.

    That is the Kullback-Leibler divergence of the probabilities at a temperature, of several labels
    a mean over them, times the square of the temperature, so that gradients are of one size at all;
    of numbers, the squared difference.

    Args:
      task_type: As for `heads.classification_objective`.
      logits: float32 [B, C].
      teacher_logits: Likewise.
      temperature: Above 0.
    """
    if task_type == "regression":
        return ops.mean(ops.square(logits - teacher_logits), axis=-1)
    ours, theirs = logits / temperature, teacher_logits / temperature
    if task_type == "classification":
        ours, theirs = ops.log_softmax(ours), ops.log_softmax(theirs)
        return temperature**2 * ops.sum(ops.exp(theirs) * (theirs - ours), axis=-1)
    chance = ops.sigmoid(theirs)
    # Of both answers, that the label is given and that it is not.
    given = ops.log_sigmoid(theirs) - ops.log_sigmoid(ours)
    absent = ops.log_sigmoid(-theirs) - ops.log_sigmoid(-ours)
    return temperature**2 * ops.mean(chance * given + (1.0 - chance) * absent, axis=-1)


def read_unlabeled(path: str, fields: Sequence[str], columns: Mapping[str, Any]) -> list[Input]:
    """Returns the rows of `fields` in a file of texts, of any form that predict.py reads.

    Raises:
      ValueError: where there are none, or one cannot be read.
    """
    rows = list(read_inputs(path, None, Columns(fields=tuple(fields), known=columns)).rows)
    if problem := next((each.problem for each in rows if each.row is None), None):
        raise ValueError(problem)
    if not rows:
        raise OptionError("unlabeled_file", "hold texts", remedy=f"{path!r} is empty.")
    return rows


def check_same_pieces(ours: Task, theirs: Task, path: str) -> None:
    """Checks that a student and a teacher whose layers it learns cut texts alike.

    Raises:
      ValueError: where their vocabularies, casings or options of the tokenizer differ.
    """
    one, other = (
        (
            each.tokenizer.basic_tokenizer.do_lower_case,
            options_of(each.tokenizer),
            dict(each.tokenizer.vocab),
        )
        for each in (ours, theirs)
    )
    if one != other:
        raise MessageError(
            "%s needs a %s with the vocabulary, the casing and the other options of the student's "
            "tokenizer. Those of %r differ. Without it, the answers alone are learned.",
            *(Option("distill_layers"), Option("teacher"), path),
        )

"""A classifier that learns from another one's answers, too.

Source: Hinton et al., Distilling the Knowledge in a Neural Network.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from keras import ops

from bert.files.inputs import Columns, read_inputs
from bert.tasks.classification.examples import InputExample
from bert.tasks.classification.examples import Task as Decision
from bert.tasks.heads import Batch, Blend
from bert.training.batches import Feature

Tensor = Any

TEACHER_LOGITS, IS_LABELED = "teacher_logits", "is_labeled"


@dataclasses.dataclass(frozen=True)
class Teacher:
    """What is learned from another model.

    Attributes:
      answer: From examples to its logits, float32 [N, C], in the order of the task's labels.
      unlabeled: Examples of which nothing but its answer is known.
      weight: Its share of the loss of the others.
      temperature: What logits are divided by, which lets the less likely labels count more.
    """

    answer: Callable[[Sequence[InputExample]], np.ndarray]
    unlabeled: Sequence[InputExample] = ()
    weight: float = 0.5
    temperature: float = 2.0

    def features(self, num_outputs: int) -> dict[str, Feature]:
        """Returns the features that training needs beyond those of the task."""
        return {
            TEACHER_LOGITS: Feature(num_outputs, "the number of labels"),
            IS_LABELED: Feature(1, "the format", 2, "a bit"),
        }

    def arrays(self, examples: Sequence[InputExample]) -> dict[str, np.ndarray]:
        """Returns what these features hold for examples of which the unlabeled are the last."""
        count = len(examples) - len(self.unlabeled)
        is_labeled = np.arange(len(examples)) < count
        return {
            TEACHER_LOGITS: self.answer(examples),
            IS_LABELED: is_labeled[:, None].astype(np.int32),
        }

    def blend(self, task_type: str) -> Blend:
        """Returns the `blend` of `heads.classification_objective`.

        Args:
          task_type: As there.
        """

        def blended(told: Tensor, logits: Tensor, batch: Batch) -> Tensor:
            shown = soft_losses(task_type, logits, batch[TEACHER_LOGITS], self.temperature)
            share = (1.0 - self.weight) * ops.cast(batch[IS_LABELED][:, 0], "float32")
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


def read_unlabeled(path: str, task: Decision, columns: Mapping[str, Any]) -> list[InputExample]:
    """Returns the examples in a file of texts, of any form that predict.py reads.

    Raises:
      ValueError: where there are none, or one cannot be read.
    """
    fields = ("text_a", "text_b") if task.is_pair else ("text_a",)
    inputs = read_inputs(path, None, Columns(fields=fields, known=columns))
    examples = []
    for each in inputs.rows:
        if each.row is None:
            raise ValueError(each.problem)
        texts = [each.row[field] for field in fields]
        examples.append(InputExample(f"unlabeled-{each.line}", *texts))
    if not examples:
        raise ValueError(f"`--unlabeled_file` must hold texts. {path!r} is empty.")
    return examples


def order_of_labels(ours: Decision, theirs: Decision, path: str) -> list[int]:
    """Returns the places of our labels among those of a teacher.

    Raises:
      ValueError: where it decides something else.
    """
    same = ours.task_type == theirs.task_type and ours.is_pair == theirs.is_pair
    if not same or sorted(ours.labels) != sorted(theirs.labels):
        raise ValueError(
            f"`--teacher` must decide the same as the student, {_describe(ours)}. The one in "
            f"{path!r} decides {_describe(theirs)}."
        )
    if ours.task_type == "regression":
        return [0]
    return [theirs.labels.index(label) for label in ours.labels]


def _describe(task: Decision) -> str:
    labels = f" with the labels {', '.join(sorted(task.labels))}" if task.labels else ""
    return f"{task.task_type} of {'pairs' if task.is_pair else 'single texts'}{labels}"

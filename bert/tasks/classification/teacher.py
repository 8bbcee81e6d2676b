"""What a classifier learns from another one."""

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np

from bert.network.heads import Blend
from bert.options import OptionError
from bert.tasks.classification.examples import InputExample
from bert.tasks.classification.examples import Task as Decision
from bert.tasks.distillation import IS_LABELED, TEACHER_LOGITS, Layers, blend
from bert.training.batches import Feature


@dataclasses.dataclass(frozen=True)
class Teacher:
    """What is learned from another model.

    Attributes:
      answer: From examples to its logits, float32 [N, C], in the order of the task's labels.
      unlabeled: Examples of which nothing but its answer is known.
      weight: Its share of the loss of the others.
      temperature: What logits are divided by, which lets the less likely labels count more.
      layers: What is learned of its layers, if anything.
    """

    answer: Callable[[Sequence[InputExample]], np.ndarray]
    unlabeled: Sequence[InputExample] = ()
    weight: float = 0.5
    temperature: float = 2.0
    layers: Layers | None = None

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
        """Returns the `blend` of `heads.classification_objective`."""
        return blend(task_type, self.weight, self.temperature)


def order_of_labels(ours: Decision, theirs: Decision, path: str) -> list[int]:
    """Returns the places of our labels among those of a teacher.

    Raises:
      ValueError: where it decides something else.
    """
    same = ours.task_type == theirs.task_type and ours.is_pair == theirs.is_pair
    if not same or sorted(ours.labels) != sorted(theirs.labels):
        raise OptionError(
            "teacher",
            f"decide the same as the student, {_describe(ours)}",
            remedy=f"The one in {path!r} decides {_describe(theirs)}.",
        )
    if ours.task_type == "regression":
        return [0]
    return [theirs.labels.index(label) for label in ours.labels]


def _describe(task: Decision) -> str:
    labels = f" with the labels {', '.join(sorted(task.labels))}" if task.labels else ""
    return f"{task.task_type} of {'pairs' if task.is_pair else 'single texts'}{labels}"

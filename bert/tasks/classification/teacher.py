"""The teacher of a classifier."""

from collections.abc import Sequence

import numpy as np

from bert.network.heads import Blend
from bert.options import OptionError
from bert.tasks.classification.examples import ClassificationTask, InputExample
from bert.tasks.distillation import IS_LABELED, TEACHER_LOGITS, Teacher, blend
from bert.training.records import Feature


class ClassificationTeacher(Teacher):
    """A teacher of a classifier; `answer` returns logits, float32 [N, C]."""

    def features(self, num_outputs: int) -> dict[str, Feature]:
        """Returns the additional features of training."""
        return {
            TEACHER_LOGITS: Feature(num_outputs, "the number of labels"),
            IS_LABELED: Feature(1, "the format", 2, "a bit"),
        }

    def arrays(self, examples: Sequence[InputExample]) -> dict[str, np.ndarray]:
        """Returns the values of `features` for examples, the unlabeled ones at the end."""
        count = len(examples) - len(self.unlabeled)
        is_labeled = np.arange(len(examples)) < count
        return {
            TEACHER_LOGITS: self.answer(examples),
            IS_LABELED: is_labeled[:, None].astype(np.int32),
        }

    def blend(self, task_type: str) -> Blend:
        """Returns the `blend` of `heads.classification_objective`."""
        return blend(task_type, self.weight, self.temperature)


def order_of_labels(ours: ClassificationTask, theirs: ClassificationTask, path: str) -> list[int]:
    """Returns the places of the student's labels among the teacher's.

    Raises:
      ValueError: where the teacher has another type of task or other labels.
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


def _describe(task: ClassificationTask) -> str:
    labels = f" with the labels {', '.join(sorted(task.labels))}" if task.labels else ""
    return f"{task.task_type} of {'pairs' if task.is_pair else 'single texts'}{labels}"

"""What a tagger learns from another one."""

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np
from keras import ops

from bert.network.heads import Batch, Blend
from bert.options import OptionError
from bert.tasks.distillation import IS_LABELED, TEACHER_LOGITS, Layers, Tensor, blend
from bert.tasks.tagging.sentences import Sentence
from bert.tasks.tagging.windows import NO_WORD, Task
from bert.tasks.task import Arrays
from bert.training.batches import LENGTH, Feature


@dataclasses.dataclass(frozen=True)
class Teacher:
    """What is learned from another model.

    Attributes:
      answer: From sentences to its logits of all their words, [words, C], in the order of the
        task's labels.
      unlabeled: Sentences of which nothing but its answer is known.
      weight: Its share of the loss of the others' words.
      temperature: What logits are divided by, which lets the less likely labels count more.
      layers: What is learned of its layers, if anything.
    """

    answer: Callable[[Sequence[Sentence]], np.ndarray]
    unlabeled: Sequence[Sentence] = ()
    weight: float = 0.5
    temperature: float = 2.0
    layers: Layers | None = None

    def features(self, num_labels: int, max_seq_length: int) -> dict[str, Feature]:
        """Returns the features that training needs beyond those of the task."""
        source = LENGTH
        length = num_labels * max_seq_length
        return {
            TEACHER_LOGITS: Feature(length, source, per_token=True, rows=num_labels),
            IS_LABELED: Feature(max_seq_length, source, 2, "a bit", per_token=True),
        }

    def arrays(self, sentences: Sequence[Sentence], arrays: Arrays) -> dict[str, np.ndarray]:
        """Returns what these features hold: float32 [N, C, S] and int32 [N, S].

        Args:
          sentences: Those to train on, of which the unlabeled are the last.
          arrays: As `windows.make_features` gives them.
        """
        logits = self.answer(sentences)
        word_ids = arrays["word_ids"]
        is_word = word_ids != NO_WORD
        shown = np.zeros((*word_ids.shape, logits.shape[1]), np.float32)
        shown[is_word] = logits[word_ids[is_word]]
        labeled = sentences[: len(sentences) - len(self.unlabeled)]
        num_labeled = sum(len(sentence.words) for sentence in labeled)
        return {
            TEACHER_LOGITS: np.ascontiguousarray(shown.transpose(0, 2, 1)),
            IS_LABELED: (is_word & (word_ids < num_labeled)).astype(np.int32),
        }

    def blend(self) -> Blend:
        """Returns the `blend` of `heads.tagging_objective`."""
        of_rows = blend("classification", self.weight, self.temperature)

        def blended(told: Tensor, logits: Tensor, batch: Batch) -> Tensor:
            shown = ops.transpose(batch[TEACHER_LOGITS], (0, 2, 1))  # [B, S, C]
            rows = {
                TEACHER_LOGITS: ops.reshape(shown, (-1, shown.shape[-1])),
                IS_LABELED: ops.reshape(batch[IS_LABELED], (-1, 1)),
            }
            return of_rows(told, logits, rows)

        return blended


def order_of_labels(ours: Task, theirs: Task, path: str) -> list[int]:
    """Returns the places of our labels among those of a teacher.

    Raises:
      ValueError: where it decides something else.
    """
    if ours.scheme != theirs.scheme or sorted(ours.labels) != sorted(theirs.labels):
        raise OptionError(
            "teacher",
            f"decide the same as the student, {_describe(ours)}",
            remedy=f"The one in {path!r} decides {_describe(theirs)}.",
        )
    return [theirs.labels.index(label) for label in ours.labels]


def _describe(task: Task) -> str:
    return f"tags of the scheme {task.scheme}: {', '.join(sorted(task.labels))}"

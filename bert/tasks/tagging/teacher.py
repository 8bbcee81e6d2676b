"""Distillation of a tagger from another tagger."""

from collections.abc import Sequence

import numpy as np
from keras import ops

from bert.network.heads import Batch, Blend
from bert.options import OptionError
from bert.tasks.distillation import IS_LABELED, TEACHER_LOGITS, Teacher, Tensor, blend
from bert.tasks.tagging.sentences import Sentence
from bert.tasks.tagging.tag_set import TagSet
from bert.tasks.tagging.windows import NO_WORD
from bert.tasks.task import Arrays
from bert.training.batches import LENGTH, Feature


class TaggingTeacher(Teacher):
    """A teacher of a tagger; `answer` returns the logits of all words of sentences, [words, C]."""

    def features(self, num_labels: int, max_seq_length: int) -> dict[str, Feature]:
        """Returns the features of training records in addition to those of the task."""
        length = num_labels * max_seq_length
        return {
            TEACHER_LOGITS: Feature(length, LENGTH, per_token=True, rows=num_labels),
            IS_LABELED: Feature(max_seq_length, LENGTH, 2, "a bit", per_token=True),
        }

    def arrays(self, sentences: Sequence[Sentence], arrays: Arrays) -> dict[str, np.ndarray]:
        """Returns the values of these features: float32 [N, C, S] and int32 [N, S].

        Args:
          sentences: The sentences to train on; those of `unlabeled` are the last.
          arrays: The arrays of `windows.make_features`.
        """
        logits = self.answer(sentences)
        word_ids = arrays["word_ids"]
        is_word = word_ids != NO_WORD
        token_logits = np.zeros((*word_ids.shape, logits.shape[1]), np.float32)
        token_logits[is_word] = logits[word_ids[is_word]]
        labeled = sentences[: len(sentences) - len(self.unlabeled)]
        num_labeled = sum(len(sentence.words) for sentence in labeled)
        return {
            TEACHER_LOGITS: np.ascontiguousarray(token_logits.transpose(0, 2, 1)),
            IS_LABELED: (is_word & (word_ids < num_labeled)).astype(np.int32),
        }

    def blend(self) -> Blend:
        """Returns the `blend` of `heads.tagging_objective`."""
        blend_rows = blend("classification", self.weight, self.temperature)

        def blended(losses: Tensor, logits: Tensor, batch: Batch) -> Tensor:
            teacher_logits = ops.transpose(batch[TEACHER_LOGITS], (0, 2, 1))  # [B, S, C]
            rows = {
                TEACHER_LOGITS: ops.reshape(teacher_logits, (-1, teacher_logits.shape[-1])),
                IS_LABELED: ops.reshape(batch[IS_LABELED], (-1, 1)),
            }
            return blend_rows(losses, logits, rows)

        return blended


def order_of_labels(ours: TagSet, theirs: TagSet, path: str) -> list[int]:
    """Returns the index of each label of a student among the labels of a teacher.

    Raises:
      ValueError: if the teacher has other labels.
    """
    if ours.scheme != theirs.scheme or sorted(ours.labels) != sorted(theirs.labels):
        raise OptionError(
            "teacher",
            f"decide the same as the student, {_describe(ours)}",
            remedy=f"The one in {path!r} decides {_describe(theirs)}.",
        )
    return [theirs.labels.index(label) for label in ours.labels]


def _describe(tag_set: TagSet) -> str:
    return f"tags of the scheme {tag_set.scheme}: {', '.join(sorted(tag_set.labels))}"

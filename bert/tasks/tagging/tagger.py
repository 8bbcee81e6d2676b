"""The task of tagging words, such as those of names, and its teacher (paper, section 5.3)."""

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from keras import ops

from bert.files.owned import claim
from bert.log import logger
from bert.network.heads import Blend, crf_objective, tagging_objective
from bert.options import Message, Option, OptionError
from bert.tasks.distillation import (
    IS_LABELED,
    TEACHER_LOGITS,
    AnsweringTeacher,
    StepTeacher,
    TeacherModel,
    order_of_labels,
)
from bert.tasks.examples import Arrays, InputRow, Inputs, Part
from bert.tasks.options import Teacher as TeacherOptions
from bert.tasks.split import split_fields
from bert.tasks.tagging import sentences as tagging_sentences
from bert.tasks.tagging import windows as tagging_windows
from bert.tasks.tagging.sentences import Sentence, TaggedFiles
from bert.tasks.tagging.tags import format_report
from bert.tasks.tagging.text_tagger import Predictions, RawText, TextTagger
from bert.tasks.task import ExampleFile, TrainingTask, write_scores
from bert.training.loop import Objective
from bert.training.records import LENGTH, Feature

# The scores in `eval_results.txt` and `test_results.txt`, if they exist.
_SCORES = ("precision", "recall", "f1", "accuracy", "macro_f1")


class TaggingTeacher(AnsweringTeacher):
    """A teacher of a tagger; `answer` returns the logits of all words of sentences, [words, C]."""

    def features(self, num_labels: int, max_seq_length: int) -> dict[str, Feature]:
        """Returns the features that training records have in addition to the task's."""
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
        is_word = word_ids != tagging_windows.NO_WORD
        token_logits = np.zeros((*word_ids.shape, logits.shape[1]), np.float32)
        token_logits[is_word] = logits[word_ids[is_word]]
        labeled = sentences[: len(sentences) - len(self.unlabeled)]
        num_labeled = sum(len(sentence.words) for sentence in labeled)
        return {
            TEACHER_LOGITS: np.ascontiguousarray(token_logits.transpose(0, 2, 1)),
            IS_LABELED: (is_word & (word_ids < num_labeled)).astype(np.int32),
        }

    def blend(self, task_type: str = "classification", name: str = TEACHER_LOGITS) -> Blend:
        """Returns the `blend` of `heads.tagging_objective`."""
        blended = super().blend(task_type, name)
        return lambda losses, logits, batch: blended(
            losses, logits, {**batch, name: ops.transpose(batch[name], (0, 2, 1))}
        )


@dataclasses.dataclass(frozen=True)
class Tagging(TextTagger, TrainingTask):
    """The task of tagging words, which implements the protocols of `bert.tasks.task`.

    Attributes:
      files: The files of sentences; None where none are read.
      sentences: The sentences of each split of the files.
      output_scheme: The scheme of predictions in files; None for the tag set's.
    """

    files: TaggedFiles | None = None
    sentences: Mapping[str, list[Sentence]] = dataclasses.field(default_factory=dict)
    output_scheme: str | None = None
    teacher: TaggingTeacher | None = dataclasses.field(default=None, kw_only=True)

    counts_examples = False

    @property
    def metric(self) -> str:
        return "accuracy" if self.tag_set.is_plain else "f1"

    @property
    def baseline_answer(self) -> str:
        guesses_tag = self.tag_set.is_plain or self.tag_set.is_segmentation
        return "always giving the most frequent tag" if guesses_tag else "tagging every word as O"

    def split_fields(self) -> dict[str, Any]:
        return split_fields(self.files.dev_split if self.files else None)

    def fixed(self, *, is_training: bool) -> Collection[str]:
        names = ("kind", "task", "do_lower_case", "feature_based", "feature_layers", "lstm_size")
        # A trained model may predict with other windows, but training must not resume with them.
        return (*names, *["max_seq_length", "document_context"] * is_training)

    def read(self, splits: Collection[str]) -> dict[Part, Sequence[Sentence]]:
        examples: dict[Part, Sequence[Sentence]]
        examples = {Part(split): self.sentences[split] for split in splits}
        if self.unlabeled and "train" in splits:
            logger.info("Read %d sentences that the teacher tags.", len(self.unlabeled))
            examples[Part("train")] = [*self.sentences["train"], *self.unlabeled]
        return examples

    def with_teacher(
        self, model: TeacherModel, in_step: StepTeacher | None, options: TeacherOptions
    ) -> "Tagging":
        """Returns the task of a student that learns from another model.

        Args:
          model: The teacher.
          in_step: The layers of the teacher that the student learns, if any.
          options: The weights of the teacher, and its file of texts without labels.

        Raises:
          ValueError: if the teacher has other tags, or the texts cannot be read; or if the student
            has a CRF.
        """
        if self.add_crf:
            must = Message(
                "not be given with %s, whose paths are of sentences: a teacher is learned by word",
                Option("crf"),
            )
            raise OptionError("teacher", must, options.teacher, "The teacher may have a CRF.")
        order = order_of_labels(self.decides, model.task.decides, options.teacher)

        def answer(sentences: Sequence[Sentence]) -> np.ndarray:
            words, *_ = model.task.decode_words(*model.compute(sentences))
            return words[:, order]

        teacher = TaggingTeacher.of(options, in_step, self, answer=answer)
        return dataclasses.replace(self, teacher=teacher)

    def parse_unlabeled(self, rows: Mapping[int, InputRow]) -> list[RawText]:
        """Returns the sentences of rows by lines, without tags; each row is a document."""
        texts = self.parse([*rows.values()])
        return [
            dataclasses.replace(text, document=-line)
            for text, line in zip(texts, rows, strict=True)
            if text.words
        ]

    def open_inputs(self, inputs: Inputs, file: ExampleFile) -> Inputs:
        arrays, features = inputs.arrays, self._record_features()
        if self.teacher and inputs.part.split == "train":
            arrays = {**arrays, **self.teacher.arrays(inputs.examples, arrays)}
            features |= self.teacher.features(len(self.tag_set.labels), self.max_seq_length)
        file.write({name: arrays[name] for name in features})
        lengths = arrays["input_mask"].sum(axis=1)
        return dataclasses.replace(inputs, batches=file.open(features, lengths))

    def _record_features(self) -> dict[str, Feature]:
        def per_token(limit: int, limit_source: Any) -> Feature:
            length = self.max_seq_length
            return Feature(length, LENGTH, limit, limit_source, per_token=True)

        return {
            **self.encoder_features(),
            "label_ids": per_token(len(self.tag_set.labels), "the number of labels"),
            "label_mask": per_token(2, "a mask"),
        }

    def objective(self, inputs: Inputs) -> Objective:
        if self.add_crf:
            return Objective(*crf_objective())
        return self.teach(*tagging_objective(self.teacher.blend() if self.teacher else None))

    def score(self, inputs: Inputs, predictions: Predictions) -> dict[str, Any]:
        if not self.can_score(inputs.examples):
            return {}
        scores = tagging_windows.score(self.tag_set, inputs.examples, predictions.sentences)
        baseline = {"baseline": scores.pop("baseline"), "baseline_metric": self.metric}
        return {**scores, "loss": predictions.loss, **baseline}

    def write(
        self,
        folder: str,
        step: int,
        inputs: Inputs,
        predictions: Predictions,
        scores: Mapping[str, Any],
    ) -> None:
        self._write_predictions(folder, inputs, predictions)
        if not scores:
            return
        names = [name for name in _SCORES if name in scores]
        table = f"loss: {scores['loss']:.4f}\n{format_report(scores)}"
        write_scores(folder, step, inputs.part, scores, names, table)

    def _write_predictions(self, folder: str, inputs: Inputs, predictions: Predictions) -> None:
        assert self.files is not None
        sentences, split = inputs.examples, inputs.part.split
        path = claim(folder, f"{'dev_' * (split == 'dev')}predictions.txt")
        is_split = split == "dev" and self.files.dev_split is not None
        tags = (prediction.tags for prediction in predictions.sentences)
        tagging_sentences.write_predictions(
            path,
            self.files.find("train" if is_split else split),
            self.files.columns,
            zip(sentences, tags, strict=True),
            self.output_scheme or self.tag_set.scheme,
            is_part=is_split or len(sentences) < len(self.sentences[split]),
        )
        logger.info("Wrote the tags of %d sentences to %s.", len(sentences), path)

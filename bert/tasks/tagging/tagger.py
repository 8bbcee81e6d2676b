"""The task of tagging words, such as those of names, and its teacher (paper, section 5.3)."""

import dataclasses
import itertools
import math
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import keras
import numpy as np
from keras import ops
from scipy.special import softmax

from bert.files.owned import claim
from bert.log import logger
from bert.network.crf import ANY, decode_sentences, sentence_losses
from bert.network.heads import Blend, crf_objective, tagging_model, tagging_objective
from bert.network.lengths import group_by_length
from bert.options import Message, Option, OptionError
from bert.tasks.base import EncoderTask
from bert.tasks.distillation import (
    IS_LABELED,
    TEACHER_LOGITS,
    AnsweringTeacher,
    StepTeacher,
    TeacherModel,
    order_of_labels,
)
from bert.tasks.options import Teacher as TeacherOptions
from bert.tasks.split import split_fields
from bert.tasks.tagging import sentences as tagging_sentences
from bert.tasks.tagging import windows as tagging_windows
from bert.tasks.tagging.sentences import Sentence, TaggedFiles
from bert.tasks.tagging.tags import Span, TagSet, find_spans, format_report
from bert.tasks.task import (
    QUERIES,
    Arrays,
    ExampleFile,
    InputRow,
    Inputs,
    Outputs,
    Part,
    collect_padded,
    write_scores,
)
from bert.training.loop import Objective
from bert.training.records import LENGTH, Feature

if TYPE_CHECKING:
    from bert.export.tokenizer import GraphTokenizer

# Sentences whose best paths are computed together.
_PATHS = 256
# The scores in `eval_results.txt` and `test_results.txt`, if they exist.
_SCORES = ("precision", "recall", "f1", "accuracy", "macro_f1")


@dataclasses.dataclass(frozen=True)
class Predictions:
    """The prediction for each sentence, and the loss, which is NaN without gold tags."""

    sentences: list[tagging_windows.Prediction]
    loss: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class RawText(Sentence):
    """A sentence of the words of a raw text.

    Attributes:
      text: The text.
      spans: The span of each word in the text.
    """

    text: str
    spans: Sequence[Span]

    @classmethod
    def read(cls, text: str, unit: str) -> "RawText":
        """Returns a text split into units, words or characters."""
        spans = find_spans(text, unit)
        return cls([text[start:end] for start, end in spans], text=text, spans=spans)


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
class Tagging(EncoderTask):
    """The task of tagging words, which implements the protocols of `bert.tasks.task`.

    Attributes:
      tag_set: The tags of the model.
      document_context: Whether windows are filled with the neighbouring sentences.
      files: The files of sentences; None for a trained model without data.
      sentences: The sentences of each split of the files.
      output_scheme: The scheme of predictions in files; None for the tag set's.
      add_crf: Whether the tags of a sentence are chosen together, by a CRF.
    """

    tag_set: TagSet
    document_context: bool = False
    files: TaggedFiles | None = None
    sentences: Mapping[str, list[Sentence]] = dataclasses.field(default_factory=dict)
    output_scheme: str | None = None
    teacher: TaggingTeacher | None = dataclasses.field(default=None, kw_only=True)
    add_crf: bool = False

    kind = "tagging"
    counts_examples = False
    fields = ("text",)

    @property
    def answer_names(self) -> tuple[str, ...]:
        return ("words",) if self.tag_set.answers_with_words else ("entities",)

    @property
    def metric(self) -> str:
        return "accuracy" if self.tag_set.is_plain else "f1"

    @property
    def baseline_answer(self) -> str:
        guesses_tag = self.tag_set.is_plain or self.tag_set.is_segmentation
        return "always giving the most frequent tag" if guesses_tag else "tagging every word as O"

    def stored(self) -> dict[str, Any]:
        stored = self.store(
            self.tag_set.to_dict(),
            document_context=self.document_context,
            feature_based=False,
            feature_layers=None,
            lstm_size=None,
            **split_fields(self.files.dev_split if self.files else None),
        )
        return {**stored, **({"crf": True} if self.add_crf else {})}

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

    def parse(self, rows: Sequence[InputRow]) -> list[RawText]:
        return [RawText.read(row["text"], self.tag_set.unit) for row in rows]

    @property
    def _decides(self) -> tuple[str, Sequence[str]]:
        """What the tagger decides, in words, and its labels."""
        return f"tags of the scheme {self.tag_set.scheme}", self.tag_set.labels

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
        order = order_of_labels(self._decides, model.task._decides, options.teacher)

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

    def make_inputs(self, part: Part, examples: Sequence[Sentence]) -> Inputs:
        arrays = tagging_windows.make_features(
            examples,
            self.tag_set,
            self.tokenizer,
            self.max_seq_length,
            document_context=self.document_context,
            whole_words=self.config.is_word_vectors,
            logs=part != QUERIES,
        )
        if not len(arrays["word_ids"]):
            # The model needs a window even if all texts are blank.
            blank = np.zeros((1, self.max_seq_length), np.int32)
            arrays = {**dict.fromkeys(arrays, blank), "word_ids": blank + tagging_windows.NO_WORD}
        return Inputs(part, examples, arrays)

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

    def make_model(self, precision: str) -> keras.Model:
        count, given = len(self.tag_set.labels), {"dtype": precision, "add_crf": self.add_crf}
        return self.build_model(tagging_model, count, **given)

    def objective(self, inputs: Inputs) -> Objective:
        if self.add_crf:
            return Objective(*crf_objective())
        return self.teach(*tagging_objective(self.teacher.blend() if self.teacher else None))

    def decode(self, inputs: Inputs, outputs: Outputs) -> Predictions:
        words, labels, loss = self.decode_words(inputs, outputs)
        found = tagging_windows.decode(self.tag_set, inputs.examples, words, labels)
        return Predictions(found, loss)

    def decode_words(
        self, inputs: Inputs, outputs: Outputs
    ) -> tuple[np.ndarray, np.ndarray | None, float]:
        """Returns the logits of words, the indices of their tags, and the mean loss of the words.

        With a CRF, a path is that of a complete sentence, whatever windows the sentence was split
        into, and the logits are the logarithms of the probabilities of each word's tags. Without
        it, the tags are None, for the most probable ones.
        """
        arrays, sentences = inputs.arrays, inputs.examples
        batches = iter(outputs)
        first = next(batches)
        batches = itertools.chain([first], batches)
        logits = collect_padded(batches, arrays["label_ids"].shape, "logits")
        words = tagging_windows.by_word(arrays, logits)
        known = None
        if self.can_score(sentences):
            known = tagging_windows.is_known(sentences, self.tag_set)
        if not self.add_crf:
            loss = math.nan if known is None else tagging_windows.loss(arrays, logits, known)
            return words, None, loss
        gold = None
        if known is not None:
            gold = np.where(known, tagging_windows.by_word(arrays, arrays["label_ids"]), ANY)
        lengths = [len(sentence.words) for sentence in sentences]
        return _decode_paths(words, lengths, first[1]["transitions"][0], gold)

    def can_score(self, examples: Sequence[Sentence]) -> bool:
        return tagging_sentences.has_labels(examples, self.tag_set.scheme)

    def probabilities(self, arrays: Arrays, outputs: Arrays) -> np.ndarray:
        logits = outputs["logits"]
        if self.add_crf:
            is_word = arrays["label_mask"][:, : logits.shape[1]] > 0
            words, lengths = logits[is_word], is_word.sum(axis=1)
            return np.exp(_decode_paths(words, lengths, outputs["transitions"][0])[0])
        return softmax(logits[arrays["input_mask"][:, : logits.shape[1]] > 0], axis=-1)

    def answers(self, inputs: Inputs, predictions: Predictions) -> list[dict[str, Any]]:
        """Returns the entities of each text from `text_entities`, or its words from `as_word`."""
        (name,) = self.answer_names
        convert = tagging_windows.as_word if self.tag_set.answers_with_words else dict
        find = tagging_windows.text_entities
        return [
            {name: [convert(e) for e in find(raw.text, raw.spans, tags, self.tag_set.scheme)]}
            for raw, tags in zip(inputs.examples, predictions.sentences, strict=True)
        ]

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

    def export_text(self, folder: str, model: keras.Model, tokenizer: "GraphTokenizer") -> None:
        from bert.tasks.tagging.export import export_tagger  # noqa: PLC0415

        export_tagger(folder, model, tokenizer, self.tag_set, self.max_seq_length)


def _decode_paths(
    words: np.ndarray,
    lengths: Sequence[int],
    transitions: np.ndarray,
    gold: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray, float]:
    """Returns the logarithms of probabilities of words, the best paths, and the mean loss of words.

    Args:
      words: The logits of the words of all sentences, float [words, C].
      lengths: The number of words of each sentence.
      transitions: The scores of neighbouring labels, float [C + 2, C], of a CRF.
      gold: The index of each word's tag, `ANY` where it is not known, int [words].
    """
    log_probabilities = np.zeros(words.shape)
    labels, total = np.zeros(len(words), np.int32), 0.0
    counts = np.array(lengths, np.int32)
    starts = np.cumsum(counts) - counts
    for rows in group_by_length(counts, _PATHS):
        numbers = np.arange(max(counts[rows].max(), 1))
        is_word = numbers < counts[rows, None]  # [B, W]
        places = (starts[rows, None] + numbers)[is_word]
        logits = np.zeros((*is_word.shape, words.shape[1]))
        logits[is_word] = words[places]
        batch = (logits, counts[rows], transitions.astype(np.float64))
        found, logs = decode_sentences(*batch)
        labels[places], log_probabilities[places] = found.numpy()[is_word], logs.numpy()[is_word]
        if gold is not None:
            given = np.full(is_word.shape, ANY, np.int32)
            given[is_word] = gold[places]
            total += float(np.sum(sentence_losses(*batch, given)))
    num_known = 0 if gold is None else int(np.count_nonzero(gold != ANY))
    return log_probabilities, labels, total / num_known if num_known else math.nan

"""Tags the words of texts with a trained model (paper, section 5.3)."""

import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import keras
import numpy as np
from scipy.special import softmax

import modeling
import tokenization
from bert.network.crf import ANY, decode_sentences, sentence_losses
from bert.network.heads import tagging_model
from bert.network.lengths import group_by_length
from bert.tasks.answering import EncoderTask, collect_padded, stored_field
from bert.tasks.examples import QUERIES, Arrays, InputRow, Inputs, Outputs, Part
from bert.tasks.tagging import sentences as tagging_sentences
from bert.tasks.tagging import windows as tagging_windows
from bert.tasks.tagging.sentences import Sentence
from bert.tasks.tagging.tags import Span, TagSet, find_spans

if TYPE_CHECKING:
    from typing_extensions import Self

    from bert.export.tokenizer import GraphTokenizer

# Sentences whose best paths are computed together.
_PATHS = 256


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


@dataclasses.dataclass(frozen=True)
class TextTagger(EncoderTask):
    """A task of `bert.tasks.answering` whose predictions are tags of words.

    Attributes:
      tag_set: The tags of the model.
      document_context: Whether windows are filled with the neighbouring sentences.
      add_crf: Whether the tags of a sentence are chosen together, by a CRF.
    """

    tag_set: TagSet
    document_context: bool = dataclasses.field(default=False, kw_only=True)
    add_crf: bool = dataclasses.field(default=False, kw_only=True)

    kind = "tagging"
    fields = ("text",)

    @classmethod
    def from_stored(
        cls,
        stored: Mapping[str, Any],
        config: modeling.BertConfig,
        tokenizer: tokenization.FullTokenizer,
        **own: Any,
    ) -> "Self":
        """Returns the task that `task.json` describes; `own` are the fields of a subclass."""
        own["tag_set"] = TagSet.from_dict(stored_field(stored, "task", dict))
        return cls.restore(stored, config, tokenizer, add_crf=has_crf(stored), **own)

    @property
    def answer_names(self) -> tuple[str, ...]:
        return ("words",) if self.tag_set.answers_with_words else ("entities",)

    def stored(self) -> dict[str, Any]:
        stored = self.store(
            self.tag_set.to_dict(),
            document_context=self.document_context,
            feature_based=False,
            feature_layers=None,
            lstm_size=None,
        )
        return {**stored, **({"crf": True} if self.add_crf else {})}

    def parse(self, rows: Sequence[InputRow]) -> list[RawText]:
        return [RawText.read(row["text"], self.tag_set.unit) for row in rows]

    @property
    def decides(self) -> tuple[str, Sequence[str]]:
        """What the tagger decides, in words, and its labels."""
        return f"tags of the scheme {self.tag_set.scheme}", self.tag_set.labels

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

    def make_model(self, precision: str) -> keras.Model:
        count, given = len(self.tag_set.labels), {"dtype": precision, "add_crf": self.add_crf}
        return self.build_model(tagging_model, count, **given)

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
        """Returns whether sentences have tags to score with."""
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

    def export_text(self, folder: str, model: keras.Model, tokenizer: "GraphTokenizer") -> None:
        from bert.tasks.tagging.export import export_tagger  # noqa: PLC0415

        export_tagger(folder, model, tokenizer, self.tag_set, self.max_seq_length)


def has_crf(stored: Mapping[str, Any]) -> bool:
    """Returns whether `task.json` has a CRF."""
    return bool(stored_field({"crf": False, **stored}, "crf", bool))


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

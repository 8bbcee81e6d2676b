"""SavedModels that find entities in text: words, windows and labels in one graph.

The graph computes what `LoadedModel.predict` does, and needs no code of this project.

Dimension key: `B` texts, `N` maximum number of entities of a text, `W` words of all texts,
concatenated, `V` windows, `S` sequence, `C` labels.
"""

import functools
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from bert.export import saved_model
from bert.export.tokenizer import CharacterTable, GraphTokenizer, tabulate
from bert.network import crf
from bert.tasks.tagging.tags import (
    OUTSIDE,
    TagSet,
    continues,
    is_mark,
    is_spaced,
    simplify,
    split_label,
)

Tensor = Any


def export_tagger(
    folder: str,
    model: keras.Model,
    tokenizer: GraphTokenizer,
    tag_set: TagSet,
    max_seq_length: int,
) -> None:
    """Writes a SavedModel that finds entities.

    The signature `serving_default` takes `text`, string [B], of any length. It returns
    `num_entities`, int32 [B], and for each entity `entity_type` and `entity_text`, string [B, N];
    `start` and `end` (exclusive), int32 [B, N], in characters of the text; and `score`, float32
    [B, N], the mean probability of its words' tags. Rows with fewer entities end with "", -1 and 0.
    If the tag set answers with words, each word is such an entity, and its tag is the type. Bytes
    that are not UTF-8 are dropped and not counted.

    The signature `features` takes the model's inputs, int32 [B, S], and returns `logits`, float32
    [B, S, C]. The signatures `labels` and `scheme` take nothing and return `labels`, string [C],
    and `scheme`, string [1].

    Args:
      folder: The folder to write; a SavedModel in it is replaced.
      model: A model from `input_ids`, `input_mask`, `segment_ids` and, if it is an input,
        `label_mask`, 1 at the first piece of a word, to `logits`.
      tokenizer: The tokenizer that the model was trained with, as a graph.
      tag_set: The tags of the model.
      max_seq_length: Maximum tokens per window, including [CLS] and [SEP].

    Raises:
      ValueError: before anything is written, if a window is longer than the model takes.
    """
    exported = _Tagger(model, tokenizer, tag_set, max_seq_length)

    def serve(text: Tensor) -> dict[str, Tensor]:
        return exported.find_entities(text)

    spec = tf.TensorSpec([None], tf.string, name="text")
    signatures = {
        "serving_default": tf.function(serve, input_signature=[spec], autograph=False),
        "features": saved_model.features_function(exported.run, names=exported.inputs),
        "labels": saved_model.labels_function(exported.labels),
        "scheme": tf.function(exported.tell_scheme, input_signature=[], autograph=False),
    }
    saved_model.save(folder, exported, signatures)


class _Words(NamedTuple):
    """The words of all texts.

    Attributes:
      starts: The offset of each word in the characters of its text, int32 [W].
      ends: The offset of the character after each word, int32 [W].
      texts: The index of each word's text, int64 [W].
      bounds: The index of each text's first word, followed by the number of words, int64 [B + 1].
      ids: The ids of the word pieces of all words, int32.
      pieces: The index of each word's first piece, followed by the number of pieces, int64 [W + 1].
    """

    starts: Tensor
    ends: Tensor
    texts: Tensor
    bounds: Tensor
    ids: Tensor
    pieces: Tensor


class _Tagger(saved_model.ExportedModel):
    """A model that finds entities, from strings to entities."""

    def __init__(
        self,
        model: keras.Model,
        tokenizer: GraphTokenizer,
        tag_set: TagSet,
        max_seq_length: int,
    ) -> None:
        super().__init__(model, tokenizer, max_seq_length)
        self._unknown = tokenizer.source.vocab["[UNK]"]
        tags = [split_label(label, tag_set.scheme) for label in tag_set.labels]
        with tf.device("/CPU:0"):
            self._spans = GraphWordSpans(tag_set.unit)
            self.labels = tf.constant(tag_set.labels, tf.string)
            self._scheme = tf.constant([tag_set.scheme], tf.string)
            self._types = tf.constant([kind for _, kind in tags], tf.string)
            self._is_outside = tf.constant([prefix == OUTSIDE for prefix, _ in tags])
            # Whether a label (column) continues the entity of the label before (row).
            self._continues = tf.constant(
                [[continues(before, tag) for tag in tags] for before in tags]
            )

    # The name of the function is in the bytes of the SavedModel.
    def tell_scheme(self) -> dict[str, Tensor]:
        """Returns the scheme of the labels."""
        return {"scheme": tf.identity(self._scheme)}

    def find_entities(self, texts: Tensor) -> dict[str, Tensor]:
        """Returns the entities of texts, string [B]."""
        with tf.device("/CPU:0"):
            texts = tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8", errors="ignore")
            words = self._read(texts)
            firsts, lasts = _split(words, self.max_seq_length - 2)
            starts = tf.gather(words.pieces, firsts)
            # Only a single word can be longer; its tag is at its first piece.
            parts = tf.ragged.range(
                starts, tf.minimum(tf.gather(words.pieces, lasts), starts + self.max_seq_length - 2)
            )
            parts = parts.with_values(tf.gather(words.ids, parts.values))
            features = self.tokenizer.pack(parts, max_seq_length=self.max_seq_length)
            windows = _owners(words.pieces, firsts, lasts)
            places = words.pieces[:-1] - tf.gather(starts, windows) + 1
            places = tf.stack([windows, places], 1)  # [W, 2]
            ones = tf.ones_like(windows, tf.int32)
            shape = tf.shape(features["input_ids"], tf.int64)
            features["label_mask"] = tf.scatter_nd(places, ones, shape)
        outputs = self.run_in_batches(features)
        with tf.device("/CPU:0"):
            logits = tf.cast(tf.gather_nd(outputs["logits"], places), tf.float64)  # [W, C]
            if "transitions" not in outputs:
                labels = tf.argmax(logits, axis=-1)
                probabilities = tf.reduce_max(tf.nn.softmax(logits), axis=-1)
                return self._entities(texts, words, labels, probabilities)
            # The same for each window, of which there may be none.
            transitions = tf.cast(tf.reduce_sum(outputs["transitions"][:1], 0), tf.float64)
            by_text = tf.RaggedTensor.from_row_splits(logits, words.bounds, validate=False)
            counts = tf.cast(by_text.row_lengths(), tf.int32)
            # A word more, since a loop needs one.
            padded = tf.pad(by_text.to_tensor(), [[0, 0], [0, 1], [0, 0]])
            is_word = tf.sequence_mask(counts, tf.shape(padded)[1])
            labels = tf.boolean_mask(crf.best_paths(padded, counts, transitions), is_word)
            logs = tf.boolean_mask(crf.log_marginals(padded, counts, transitions), is_word)
            probabilities = tf.exp(tf.gather(logs, labels, batch_dims=1))
            return self._entities(texts, words, tf.cast(labels, tf.int64), probabilities)

    def _read(self, texts: Tensor) -> _Words:
        words, starts, ends = self._spans.find(texts)
        pieces = self.tokenizer.tokenize(words.values)
        # A word without a piece becomes [UNK].
        is_empty = tf.cast(pieces.row_lengths() == 0, tf.int64)
        unknown = tf.fill([pieces.nrows(), 1], self._unknown)
        pieces = tf.concat([pieces, tf.RaggedTensor.from_tensor(unknown, lengths=is_empty)], 1)
        return _Words(
            starts=starts.values,
            ends=ends.values,
            texts=words.value_rowids(),
            bounds=words.row_splits,
            ids=pieces.values,
            pieces=tf.cast(pieces.row_splits, tf.int64),
        )

    def _entities(
        self, texts: Tensor, words: _Words, labels: Tensor, probabilities: Tensor
    ) -> dict[str, Tensor]:
        """Returns entities, as `windows.text_entities` does, of labels and probabilities, [W]."""
        pairs = tf.stack([tf.concat([labels[:1], labels[:-1]], 0), labels], 1)
        # No entity continues into the next text.
        is_same_text = words.texts == tf.concat([[-1], words.texts[:-1]], 0)
        is_continued = tf.gather_nd(self._continues, pairs) & is_same_text
        begins = ~tf.gather(self._is_outside, labels) & ~is_continued
        first = tf.where(begins)[:, 0]
        count = tf.size(first)
        # The index of each word's entity, -1 for words outside of entities.
        entities = tf.where(begins | is_continued, tf.cumsum(tf.cast(begins, tf.int32)) - 1, -1)
        sums = tf.math.unsorted_segment_sum(probabilities, entities, count)
        lengths = tf.math.unsorted_segment_sum(tf.ones_like(labels), entities, count)
        starts = tf.gather(words.starts, first)
        ends = tf.gather(words.ends, first + lengths - 1)
        rows = tf.gather(words.texts, first)
        found = tf.strings.substr(tf.gather(texts, rows), starts, ends - starts, unit="UTF8_CHAR")
        columns = {
            "entity_type": (tf.gather(self._types, tf.gather(labels, first)), ""),
            "entity_text": (found, ""),
            "start": (starts, -1),
            "end": (ends, -1),
            "score": (tf.cast(sums / tf.cast(lengths, tf.float64), tf.float32), 0.0),
        }
        num_texts = tf.size(texts, tf.int64)
        by_text = tf.RaggedTensor.from_value_rowids(first, rows, num_texts, validate=False)
        return {
            "num_entities": tf.cast(by_text.row_lengths(), tf.int32),
            **{
                name: by_text.with_values(values).to_tensor(default)
                for name, (values, default) in columns.items()
            },
        }


def _split(words: _Words, budget: int) -> tuple[Tensor, Tensor]:
    """Returns the first and last (exclusive) words of windows, int64 [V], as `windows.split` does.

    Each iteration adds a window of every text that is not at its end, so that the windows of a text
    are in order.
    """
    pieces = words.pieces
    has_words = words.bounds[:-1] < words.bounds[1:]
    begins = tf.boolean_mask(words.bounds[:-1], has_words)
    stops = tf.boolean_mask(words.bounds[1:], has_words)

    def search(values: Tensor, side: str = "left") -> Tensor:
        return tf.searchsorted(pieces, values, side=side, out_type=tf.int64)

    def place(first: Tensor, begin: Tensor, stop: Tensor, *windows: Tensor) -> tuple[Tensor, ...]:
        start = tf.gather(pieces, first)
        last = tf.minimum(search(start + budget, "right") - 1, stop)
        last = tf.maximum(last, first + 1)
        is_end = last == stop
        # The last window starts as early as possible.
        early = tf.maximum(search(tf.gather(pieces, stop) - budget), begin)
        window_first = tf.where(is_end, tf.minimum(first, early), first)
        # The next window must include the word at `last`.
        earliest = search(tf.gather(pieces, tf.minimum(last + 1, stop)) - budget)
        following = tf.maximum(tf.maximum(search(start + budget // 2), earliest), first + 1)
        following = tf.minimum(following, last)
        remaining = [tf.boolean_mask(words, ~is_end) for words in (following, begin, stop)]
        firsts, lasts = tf.concat([windows[0], window_first], 0), tf.concat([windows[1], last], 0)
        return *remaining, firsts, lasts

    empty = tf.zeros([0], tf.int64)
    *_, firsts, lasts = tf.while_loop(
        lambda first, *_: tf.size(first) > 0,
        place,
        (begins, begins, stops, empty, empty),
        shape_invariants=(tf.TensorShape([None]),) * 5,
    )
    return firsts, lasts


def _owners(pieces: Tensor, firsts: Tensor, lasts: Tensor) -> Tensor:
    """Returns the first window in which each word has its maximum context, int64 [W].

    Args:
      pieces: The `pieces` of `_Words`.
      firsts: The first word of each window, int64 [V].
      lasts: The word after the last word of each window, int64 [V].
    """
    words = tf.ragged.range(firsts, lasts)
    windows = words.value_rowids()
    words = words.values
    begins, ends = (tf.gather(tf.gather(pieces, bound), windows) for bound in (firsts, lasts))
    contexts = tf.minimum(tf.gather(pieces, words) - begins, ends - tf.gather(pieces, words + 1))
    count = tf.size(pieces) - 1
    best = tf.gather(tf.math.unsorted_segment_max(contexts, words, count), words)
    return tf.math.unsorted_segment_min(windows, tf.where(contexts == best, words, -1), count)


# Substitutes in simplified text for an apostrophe before a possessive s, and for a comma or colon
# between digits, since TensorFlow's regular expressions have no lookaround.
_POSSESSIVE = "\N{MODIFIER LETTER APOSTROPHE}"
_WITHIN_NUMBER = "\N{MIDDLE DOT}"
_WORD = (
    r"(?:[A-Za-z]\.){2,}"
    rf"|{_POSSESSIVE}[sS]"
    rf"|\w+(?:[-&./@'{_WITHIN_NUMBER}]\w+)*"
    r"|\S"
)
# The kinds of characters for the unit "character"; a mark may also be spaced.
_MARK, _SPACED, _SPACE = 1, 2, 4


@functools.cache
def _tables(unit: str) -> tuple[np.ndarray, ...]:
    if unit == "word":
        return tabulate(lambda char: [ord(simplify(char))])
    return tabulate(lambda char: [_kind(char)])


def _kind(char: str) -> int:
    if char.isspace():
        return _SPACE
    return is_mark(char) * _MARK + is_spaced(char) * _SPACED


class GraphWordSpans(tf.Module):
    """Finds the words of texts in a graph, as `tags.find_spans` does.

    Args:
      unit: One of `tags.UNITS`.
    """

    def __init__(self, unit: str) -> None:
        super().__init__()
        self._unit = unit
        with tf.device("/CPU:0"):
            self._table = CharacterTable(_tables(unit))

    def find(self, texts: Tensor) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
        """Returns the words of texts, string [B] of valid UTF-8.

        Returns:
          The words, string [B, (W)], and their starts and ends (exclusive) in characters, int32
          [B, (W)].
        """
        with tf.device("/CPU:0"):
            # A space separates the texts.
            codes = tf.strings.unicode_decode(tf.strings.join([texts, " "]), "UTF-8")
            codes = codes.with_row_splits_dtype(tf.int32)
            kinds = self._table.translate(codes).values
            if self._unit == "word":
                is_space = kinds == ord(" ")
                first = _word_begins(kinds)
            else:
                is_space = kinds == _SPACE
                first = _character_begins(kinds, is_space)
            # Letters, which are all characters but spaces, belong to a word each.
            letters = tf.where(~is_space)[:, 0]
            words = tf.RaggedTensor.from_row_starts(letters, first, validate=False)
            begins = tf.gather(letters, first)
            ends = begins + words.row_lengths()
            rows = tf.searchsorted(begins, tf.cast(codes.row_splits, tf.int64), out_type=tf.int64)
            texts = tf.strings.unicode_encode(
                words.with_values(tf.gather(codes.values, letters)), "UTF-8"
            )
            ragged = tf.RaggedTensor.from_row_splits(texts, rows, validate=False)
            offsets = tf.gather(tf.cast(codes.row_starts(), tf.int64), ragged.value_rowids())
            starts, stops = (tf.cast(bound - offsets, tf.int32) for bound in (begins, ends))
            return ragged, ragged.with_values(starts), ragged.with_values(stops)


def _word_begins(codes: Tensor) -> Tensor:
    """Returns the indices of the letters of simplified text at which words begin."""

    def neighbour(mask: Tensor, step: int) -> Tensor:
        return tf.pad(mask, [[2, 2]])[2 + step : tf.size(codes) + 2 + step]

    def is_in(chars: str) -> Tensor:
        return tf.reduce_any([codes == ord(char) for char in chars], 0)

    is_digit = (codes >= ord("0")) & (codes <= ord("9"))
    lower = codes | 32
    is_word = is_digit | (codes == ord("_")) | ((lower >= ord("a")) & (lower <= ord("z")))
    possessive = (codes == ord("'")) & neighbour(is_in("sS"), 1) & ~neighbour(is_word, 2)
    within = is_in(",:") & neighbour(is_digit, -1) & neighbour(is_digit, 1)
    codes = tf.where(possessive, ord(_POSSESSIVE), codes)
    codes = tf.where(within, ord(_WITHIN_NUMBER), codes)
    text = tf.strings.unicode_encode(codes, "UTF-8")
    words = tf.strings.split([tf.strings.regex_replace(text, f"({_WORD})", r" \1 ")]).values
    lengths = tf.strings.length(words, unit="UTF8_CHAR")
    return tf.cast(tf.cumsum(lengths, exclusive=True), tf.int64)


def _character_begins(kinds: Tensor, is_space: Tensor) -> Tensor:
    """Returns the indices of the letters at which units of the kind "character" begin."""
    before = tf.concat([[_SPACE], kinds[:-1]], 0)
    is_joined = (kinds & _MARK > 0) | (kinds & before & _SPACED > 0)
    begins = ~is_joined | (before == _SPACE)
    return tf.where(tf.boolean_mask(begins, ~is_space))[:, 0]

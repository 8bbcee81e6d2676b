"""SavedModels that find entities in text: words, windows and labels within the graph.

The answers are those of `LoadedModel.predict`, from strings and without the code of this
project.

Dimension key: `B` texts, `N` the most entities of a text, `W` words of all texts, one text after
another, `V` windows, `S` sequence, `C` labels.
"""

import functools
import unicodedata
from collections.abc import Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

import tokenization
from bert.export import saved_model
from bert.export.tokenizer import CharacterTable, tabulate
from bert.files.outputs import check_saved_model
from bert.tasks.tagging import entities as tagging_entities
from bert.tasks.tagging import windows as tagging_windows
from bert.tasks.tagging import words as tagging_words

Tensor = Any

# `windows.make_features` has room for a word piece and what surrounds it.
_SHORTEST = 3


def export_tagger(
    folder: str,
    model: keras.Model,
    tokenizer: tokenization.FullTokenizer,
    task: tagging_windows.Task,
    max_seq_length: int,
) -> None:
    """Writes a SavedModel that finds entities, with these signatures.

    `serving_default` takes `text`, string [B], of any length. It gives `num_entities`, int32 [B],
    and for each entity `entity_type` and `entity_text`, string [B, N]; `start` and `end`, int32
    [B, N], the characters of the text from the first to the one after the last; and `score`,
    float32 [B, N], the mean probability of its words' labels. Rows with fewer entities end with "",
    -1 and 0. Where all of a text is tagged or cut into words, each word is such an entity, and its
    tag is the type. Bytes that are not UTF-8 are dropped and not counted. `features` takes the
    model's inputs, int32 [B, S], and gives `logits`, float32 [B, S, C]. `labels` takes nothing and
    gives `labels`, string [C]; so does `scheme`, which gives `scheme`, string [1]: how they mark
    entities.

    Args:
      folder: Where to write; a SavedModel that is there already is replaced.
      model: From `input_ids`, `input_mask`, `segment_ids` and, where it asks for it, `label_mask`,
        1 where a word is predicted, to `logits`.
      tokenizer: Whose vocabulary and casing the model was trained with.
      task: What the model decides.
      max_seq_length: Tokens of a window at most, with specials.

    Raises:
      ValueError: before anything is written, where these do not fit together.
    """
    check_saved_model(folder)
    _check_labels(model, task.labels)
    if max_seq_length < _SHORTEST:
        raise ValueError(f"`max_seq_length` must be at least 3. Received {max_seq_length}.")
    exported = _Tagger(model, tokenizer, task, max_seq_length)

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


def _check_labels(model: keras.Model, labels: Sequence[str]) -> None:
    count = model.output["logits"].shape[-1]
    if len(labels) != count:
        raise ValueError(
            f"`task` must have a label for each of the model's {count} outputs. Received "
            f"{list(labels)}."
        )


class _Words(NamedTuple):
    """The words of all texts.

    Attributes:
      starts: The character of its text at which each word begins, int32 [W].
      ends: The one after its last.
      texts: The text of each word, int64 [W].
      bounds: The number of each text's first word, and the number of all words, int64 [B + 1].
      ids: Of the word pieces of all words, int32.
      pieces: The number of each word's first piece, and that of all pieces, int64 [W + 1].
    """

    starts: Tensor
    ends: Tensor
    texts: Tensor
    bounds: Tensor
    ids: Tensor
    pieces: Tensor


class _Tagger(saved_model.ExportedModel):
    """A model that finds entities, with all that happens before and after it."""

    def __init__(
        self,
        model: keras.Model,
        tokenizer: tokenization.FullTokenizer,
        task: tagging_windows.Task,
        max_seq_length: int,
    ) -> None:
        super().__init__(model, tokenizer, max_seq_length)
        self._unknown = tokenizer.vocab["[UNK]"]
        tags = [tagging_entities.split_label(label, task.scheme) for label in task.labels]
        with tf.device("/CPU:0"):
            self._spans = GraphWordSpans(task.unit)
            self.labels = tf.constant(task.labels, tf.string)
            self._scheme = tf.constant([task.scheme], tf.string)
            self._types = tf.constant([kind for _, kind in tags], tf.string)
            self._is_outside = tf.constant(
                [prefix == tagging_entities.OUTSIDE for prefix, _ in tags]
            )
            # Whether an entity goes on from a label (row) to another, as in `find_entities`.
            self._goes_on = tf.constant(
                [[tagging_entities.goes_on(before, tag) for tag in tags] for before in tags]
            )

    def tell_scheme(self) -> dict[str, Tensor]:
        """Returns that of the labels."""
        return {"scheme": tf.identity(self._scheme)}

    def find_entities(self, texts: Tensor) -> dict[str, Tensor]:
        """Returns the entities of texts, string [B]."""
        with tf.device("/CPU:0"):
            texts = tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8", errors="ignore")
            words = self._read(texts)
            firsts, lasts = _split(words, self.max_seq_length - 2)
            starts = tf.gather(words.pieces, firsts)
            # Only a single word can be longer; its first piece is what counts.
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
        logits = self.run_in_batches(features)["logits"]
        with tf.device("/CPU:0"):
            logits = tf.gather_nd(logits, places)  # [W, C]
            return self._entities(texts, words, tf.cast(logits, tf.float64))

    def _read(self, texts: Tensor) -> _Words:
        words, starts, ends = self._spans.find(texts)
        pieces = self.tokenizer.tokenize(words.values)
        # A word without a piece is taken for an unknown one.
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

    def _entities(self, texts: Tensor, words: _Words, logits: Tensor) -> dict[str, Tensor]:
        """Returns the entities as `predictions.text_entities` does, of logits float64 [W, C]."""
        labels = tf.argmax(logits, axis=-1)
        probabilities = tf.reduce_max(tf.nn.softmax(logits), axis=-1)
        pairs = tf.stack([tf.concat([labels[:1], labels[:-1]], 0), labels], 1)
        # No entity goes on from one text to the next.
        follows = words.texts == tf.concat([[-1], words.texts[:-1]], 0)
        goes_on = tf.gather_nd(self._goes_on, pairs) & follows
        begins = ~tf.gather(self._is_outside, labels) & ~goes_on
        first = tf.where(begins)[:, 0]
        count = tf.size(first)
        # The entity of each word that is in one, -1 for the others.
        entities = tf.where(begins | goes_on, tf.cumsum(tf.cast(begins, tf.int32)) - 1, -1)
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
    """Returns the windows of all texts, as `windows.split` places them.

    Each round gives a window to every text that is not at its end.

    Returns:
      The first word of each, and the one after its last, int64 [V]. Those of a text are in order.
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
        # The last window begins as early as it can.
        early = tf.maximum(search(tf.gather(pieces, stop) - budget), begin)
        own = tf.where(is_end, tf.minimum(first, early), first)
        # From there on, the next window reaches further than this one.
        further = search(tf.gather(pieces, tf.minimum(last + 1, stop)) - budget)
        following = tf.maximum(tf.maximum(search(start + budget // 2), further), first + 1)
        following = tf.minimum(following, last)
        left = [tf.boolean_mask(each, ~is_end) for each in (following, begin, stop)]
        return *left, tf.concat([windows[0], own], 0), tf.concat([windows[1], last], 0)

    none = tf.zeros([0], tf.int64)
    many = tf.TensorShape([None])
    *_, firsts, lasts = tf.while_loop(
        lambda first, *_: tf.size(first) > 0,
        place,
        (begins, begins, stops, none, none),
        shape_invariants=(many,) * 5,
    )
    return firsts, lasts


def _owners(pieces: Tensor, firsts: Tensor, lasts: Tensor) -> Tensor:
    """Returns for each word the first of those windows where it has most context, int64 [W].

    Args:
      pieces: As in `_Words`.
      firsts: The first word of each window, int64 [V].
      lasts: The one after its last.
    """
    words = tf.ragged.range(firsts, lasts)
    windows = words.value_rowids()
    words = words.values
    begins, ends = (tf.gather(tf.gather(pieces, each), windows) for each in (firsts, lasts))
    contexts = tf.minimum(tf.gather(pieces, words) - begins, ends - tf.gather(pieces, words + 1))
    count = tf.size(pieces) - 1
    best = tf.gather(tf.math.unsorted_segment_max(contexts, words, count), words)
    return tf.math.unsorted_segment_min(windows, tf.where(contexts == best, words, -1), count)


# What stands in simplified text for an apostrophe before a possessive s, and for a comma or colon
# between digits: regular expressions of TensorFlow cannot look ahead or back.
_POSSESSIVE = "\N{MODIFIER LETTER APOSTROPHE}"


_WITHIN_NUMBER = "\N{MIDDLE DOT}"


_WORD = (
    r"(?:[A-Za-z]\.){2,}"
    rf"|{_POSSESSIVE}[sS]"
    rf"|\w+(?:[-&./@'{_WITHIN_NUMBER}]\w+)*"
    r"|\S"
)


# What a character is where the unit is the character.
_MARK, _SPACED, _SPACE = 1, 2, 4


@functools.cache
def _tables(unit: str) -> tuple[np.ndarray, ...]:
    if unit == "word":
        return tabulate(lambda char: [ord(tagging_words._simplify(char))])
    return tabulate(lambda char: [_kind(char)])


def _kind(char: str) -> int:
    if char.isspace():
        return _SPACE
    is_mark = unicodedata.category(char) in ("Mn", "Mc", "Me", "Cf")
    return is_mark * _MARK + tagging_words._is_spaced(char) * _SPACED


class GraphWordSpans(tf.Module):
    """Does in a graph what `words.find_spans` does.

    Args:
      unit: One of `words.UNITS`.
    """

    def __init__(self, unit: str) -> None:
        super().__init__()
        self._unit = unit
        with tf.device("/CPU:0"):
            self._table = CharacterTable(_tables(unit))

    def find(self, texts: Tensor) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
        """Returns the words of texts, string [B] of valid UTF-8.

        Returns:
          The words, string [B, (W)], and the characters at which each begins and ends, int32
          [B, (W)].
        """
        with tf.device("/CPU:0"):
            # A space keeps the texts apart.
            codes = tf.strings.unicode_decode(tf.strings.join([texts, " "]), "UTF-8")
            codes = codes.with_row_splits_dtype(tf.int32)
            kinds = self._table.translate(codes).values
            if self._unit == "word":
                is_space = kinds == ord(" ")
                first = self._word_begins(kinds, is_space)
            else:
                is_space = kinds == _SPACE
                first = _character_begins(kinds, is_space)
            # Letters are all that is no space; each belongs to a word.
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
            starts, stops = (tf.cast(each - offsets, tf.int32) for each in (begins, ends))
            return ragged, ragged.with_values(starts), ragged.with_values(stops)

    def _word_begins(self, codes: Tensor, is_space: Tensor) -> Tensor:
        """Returns the numbers of the letters that begin words, of simplified text."""

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
    """Returns the numbers of the letters that begin what counts as a character."""
    before = tf.concat([[_SPACE], kinds[:-1]], 0)
    goes_on = (kinds & _MARK > 0) | (kinds & before & _SPACED > 0)
    begins = ~goes_on | (before == _SPACE)
    return tf.where(tf.boolean_mask(begins, ~is_space))[:, 0]

"""The words and characters of raw text as a TensorFlow graph: what `word_spans` finds, it finds.

Dimension key: `B` texts, `C` characters, `W` words.
"""

import functools
import unicodedata
from typing import Any

import numpy as np
import tensorflow as tf

import word_spans
from bert.export.tokenizer import Table, tabulate

Tensor = Any

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
        return tabulate(lambda char: [ord(word_spans._simplify(char))])
    return tabulate(lambda char: [_kind(char)])


def _kind(char: str) -> int:
    if char.isspace():
        return _SPACE
    is_mark = unicodedata.category(char) in ("Mn", "Mc", "Me", "Cf")
    return is_mark * _MARK + word_spans._is_spaced(char) * _SPACED


class GraphWordSpans(tf.Module):
    """Does in a graph what `word_spans.find_spans` does.

    Args:
      unit: One of `word_spans.UNITS`.
    """

    def __init__(self, unit: str) -> None:
        super().__init__()
        self._unit = unit
        with tf.device("/CPU:0"):
            self._table = Table(_tables(unit))

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

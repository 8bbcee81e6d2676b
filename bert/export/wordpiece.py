"""WordPiece as a TensorFlow graph (paper, section 3), of operations that every TensorFlow has.

Dimension key: `N` words, `U` different ones, `R` of those that are not yet cut to their end, `C`
beginnings of these, `P` pieces.
"""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

Tensor = Any

_NONE = -1
_MARK = "##"


class GraphWordpiece(tf.Module):
    """Does in a graph what a `WordpieceTokenizer` does.

    Args:
      ids: Of the tokens.
      unknown: The token of a word that cannot be cut into tokens.
      longest: Characters that a word may have; a longer one is unknown.
    """

    def __init__(self, ids: Mapping[str, int], unknown: str, longest: int) -> None:
        super().__init__()
        # A token that is empty or longer than any word is never found.
        found = {each: ids[each] for each in ids if 0 < len(each.removeprefix(_MARK)) <= longest}
        self._ids = tf.lookup.StaticHashTable(
            tf.lookup.KeyValueTensorInitializer([*found], [*found.values()], tf.string, tf.int32),
            default_value=_NONE,
        )
        self._longest_token = max(map(len, found))
        self._unknown_id = ids[unknown]
        self._longest = longest

    def tokenize(self, words: Tensor) -> tf.RaggedTensor:
        """Returns the ids of the pieces of words.

        Args:
          words: string [N], in UTF-8, none of them empty.

        Returns:
          int32 [N, (P)].
        """
        different, places = tf.unique(words)
        return tf.gather(self._cut(different), places)

    def _cut(self, words: Tensor) -> tf.RaggedTensor:
        """Returns the ids of the pieces of different words, int32 [U, (P)]."""
        ids = self._ids.lookup(words)
        is_long = tf.strings.length(words, "UTF8_CHAR") > self._longest
        ids = tf.where(is_long, self._unknown_id, ids)
        is_whole = ids != _NONE
        numbers = tf.range(tf.size(words))
        others = tf.boolean_mask(numbers, ~is_whole)
        count = tf.shape(others)
        *_, pieces, owners = tf.while_loop(
            lambda rest, *_: tf.size(rest) > 0,
            self._cut_once,
            [
                tf.gather(words, others),
                others,
                tf.zeros(count, tf.int32),
                tf.boolean_mask(ids, is_whole),
                tf.boolean_mask(numbers, is_whole),
            ],
            shape_invariants=[tf.TensorShape([None])] * 5,
        )
        is_unknown = tf.math.unsorted_segment_min(pieces, owners, tf.size(words)) == _NONE
        # Of what cannot be cut to its end, nothing counts but that.
        is_kept = ~tf.gather(is_unknown, owners) | (pieces == _NONE)
        pieces, owners = tf.boolean_mask(pieces, is_kept), tf.boolean_mask(owners, is_kept)
        order = tf.argsort(owners, stable=True)
        return tf.RaggedTensor.from_value_rowids(
            tf.gather(tf.where(pieces == _NONE, self._unknown_id, pieces), order),
            tf.gather(owners, order),
            nrows=tf.size(words),
            validate=False,
        )

    def _cut_once(
        self, rest: Tensor, numbers: Tensor, marks: Tensor, pieces: Tensor, owners: Tensor
    ) -> tuple[Tensor, ...]:
        """Takes from the rest of each word the longest token that it begins with.

        Args:
          rest: With the mark before it, but where nothing has been taken yet, string [R].
          numbers: Those of the words, int32 [R].
          marks: Characters of the marks, int32 [R].
          pieces: The ids that have been taken from all words, int32 [P].
          owners: The numbers of their words, int32 [P].

        Returns:
          The same, of the words that are not yet at their end.
        """
        lengths = tf.strings.length(rest, "UTF8_CHAR")
        sizes = tf.ragged.range(marks + 1, tf.minimum(lengths, self._longest_token) + 1)
        rows, sizes = sizes.value_rowids(), sizes.values  # [C]
        beginnings = tf.strings.substr(
            tf.gather(rest, rows), tf.zeros_like(sizes), sizes, "UTF8_CHAR"
        )
        ids = self._ids.lookup(beginnings)
        # They become longer, so the last that is a token is the longest.
        places = tf.where(ids != _NONE, tf.range(tf.size(ids)), _NONE)
        best = tf.math.unsorted_segment_max(places, rows, tf.size(rest))  # [R]
        is_found = best >= 0
        best = tf.maximum(best, 0)
        taken = tf.where(is_found, tf.gather(ids, best), _NONE)
        ends = tf.gather(sizes, best)
        goes_on = is_found & (ends < lengths)
        rest = tf.strings.substr(
            tf.boolean_mask(rest, goes_on),
            tf.boolean_mask(ends, goes_on),
            tf.boolean_mask(lengths, goes_on),
            "UTF8_CHAR",
        )
        return (
            tf.strings.join([_MARK, rest]),
            tf.boolean_mask(numbers, goes_on),
            tf.fill(tf.shape(rest), len(_MARK)),
            tf.concat([pieces, taken], 0),
            tf.concat([owners, numbers], 0),
        )

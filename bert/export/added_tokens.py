"""Finds added tokens of a Hugging Face tokenizer in a graph, as `bert.text.added_tokens` does.

Dimension key: `B` texts, `C` characters, `M` matches, `G` gaps between them, `P` pieces.
"""

from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from bert.export.tables import CharacterTable, tabulate
from bert.text.added_tokens import Finder, is_space, is_word_character

Tensor = Any

_SPACES = [code for code in range(0x3001) if is_space(chr(code))]
_NONE = -1


class GraphFinder(tf.Module):
    """Does in a graph what a `Finder` does.

    Args:
      finder: What to do.
      ids: Of the tokens.
    """

    def __init__(self, finder: Finder, ids: Mapping[str, int]) -> None:
        super().__init__()
        # The longest come last, and so have the last word.
        tokens = sorted(finder.tokens.items(), key=lambda item: len(item[0]))
        self._patterns = [[ord(char) for char in pattern] for pattern, _ in tokens]
        self._lengths = tf.constant([len(pattern) for pattern, _ in tokens], tf.int32)
        self._ids = tf.constant([ids[token.content] for _, token in tokens], tf.int32)
        self._single_word, self._lstrip, self._rstrip = (
            tf.constant([getattr(token, name) for _, token in tokens])
            for name in ("single_word", "lstrip", "rstrip")
        )
        self._is_word = CharacterTable(tabulate(lambda char: [is_word_character(char)]))

    def tokenize(
        self, codes: tf.RaggedTensor, tokenize: Callable[[tf.RaggedTensor], tf.RaggedTensor]
    ) -> tf.RaggedTensor:
        """Returns the ids of texts, int32 [B, (P)].

        Args:
          codes: Their code points, int32 [B, (C)].
          tokenize: Does the same with what lies between the tokens.
        """
        starts, ends, ids = self._find(codes)
        limits = codes.row_limits()
        # At the end of each text there is one that is none. It comes before what begins there.
        order = tf.argsort(tf.concat([2 * limits, 2 * starts + 1], 0), stable=True)
        starts, ends = self._extend(codes, starts, ends, ids)
        starts = tf.gather(tf.concat([limits, starts], 0), order)  # [G]
        ends = tf.gather(tf.concat([limits, ends], 0), order)
        ids = tf.gather(tf.concat([tf.fill(tf.shape(limits), _NONE), ids], 0), order)
        begins = tf.concat([[0], ends[:-1]], 0)[: tf.size(ends)]
        places = tf.ragged.range(begins, tf.maximum(starts, begins), row_splits_dtype=tf.int32)
        gaps = places.with_values(tf.gather(codes.values, places.values))  # [G, (C)]
        is_token = ids != _NONE
        found = tf.RaggedTensor.from_row_lengths(
            tf.gather(self._ids, tf.boolean_mask(ids, is_token)), tf.cast(is_token, tf.int32)
        )
        pieces = tokenize(gaps)
        found = found.with_row_splits_dtype(pieces.row_splits.dtype)
        last = tf.cast(tf.where(~is_token)[:, 0], tf.int32)
        by_text = tf.RaggedTensor.from_row_splits(
            tf.concat([pieces, found], 1),
            tf.cast(tf.concat([[0], last + 1], 0), pieces.row_splits.dtype),
        )
        return by_text.merge_dims(1, 2)

    def _find(self, codes: tf.RaggedTensor) -> tuple[Tensor, Tensor, Tensor]:
        """Returns where matches begin and end among all characters, and their numbers, int32 [M].

        Of those that overlap, the first counts, and of those that begin together the longest.
        """
        flat, count = codes.values, tf.size(codes.values)
        longest = len(self._patterns[-1])
        padded = tf.pad(flat, [[0, longest]], constant_values=_NONE)
        room = tf.repeat(codes.row_limits(), codes.row_lengths()) - tf.range(count)
        which = tf.fill([count], _NONE)
        for number, pattern in enumerate(self._patterns):
            matches = room >= len(pattern)
            for place, code in enumerate(pattern):
                matches &= padded[place : place + count] == code
            which = tf.where(matches, number, which)
        lengths = tf.where(which == _NONE, 1, tf.gather(self._lengths, tf.maximum(which, 0)))
        is_found = _reached(tf.range(count) + lengths) & (which != _NONE)
        starts = tf.cast(tf.where(is_found)[:, 0], tf.int32)
        ends = starts + tf.gather(lengths, starts)
        return self._keep_single(codes, starts, ends, tf.gather(which, starts))

    def _keep_single(
        self, codes: tf.RaggedTensor, starts: Tensor, ends: Tensor, numbers: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Leaves out those that stand within a word, but should not."""
        is_word = tf.pad(self._is_word.translate(codes).values == 1, [[1, 1]])
        row_starts = _at(codes.row_starts(), codes, starts)
        row_limits = _at(codes.row_limits(), codes, starts)
        before = tf.gather(is_word, starts) & (starts > row_starts)
        behind = tf.gather(is_word, ends + 1) & (ends < row_limits)
        kept = ~(tf.gather(self._single_word, numbers) & (before | behind))
        starts, ends, numbers = (tf.boolean_mask(each, kept) for each in (starts, ends, numbers))
        return starts, ends, numbers

    def _extend(
        self, codes: tf.RaggedTensor, starts: Tensor, ends: Tensor, numbers: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Adds the spaces on the sides where they belong to the token."""
        flat, count = codes.values, tf.size(codes.values)
        is_space = tf.reduce_any(flat[:, None] == tf.constant(_SPACES), 1)
        solid = tf.cast(tf.where(~is_space)[:, 0], tf.int32)
        # Behind the last character before that is no space, and at the next one.
        earlier = tf.searchsorted(solid, starts) - 1
        left = tf.where(earlier < 0, 0, tf.gather(tf.pad(solid, [[1, 0]]), earlier + 1) + 1)
        later = tf.gather(tf.pad(solid, [[0, 1]], constant_values=0), tf.searchsorted(solid, ends))
        later = tf.where(tf.searchsorted(solid, ends) == tf.size(solid), count, later)
        right = tf.minimum(later, _at(codes.row_limits(), codes, starts))
        ends = tf.where(tf.gather(self._rstrip, numbers), right, ends)
        previous = tf.concat([[0], ends[:-1]], 0)[: tf.size(ends)]
        left = tf.maximum(left, tf.maximum(previous, _at(codes.row_starts(), codes, starts)))
        return tf.where(tf.gather(self._lstrip, numbers), left, starts), ends


def _at(of_rows: Tensor, codes: tf.RaggedTensor, places: Tensor) -> Tensor:
    """Returns what rows have, int32 [B], for characters at these places, int32 [M]."""
    return tf.gather(of_rows, tf.searchsorted(codes.row_limits(), places, side="right"))


def _reached(following: Tensor) -> Tensor:
    """Returns which characters are come to from the first, bool [C].

    Args:
      following: By character the one that is come to from it, int32 [C]; C is the end.
    """
    count = tf.size(following)
    following = tf.concat([following, [count]], 0)
    reached = tf.concat([[True], tf.fill([count], False)], 0)

    def double(reached: Tensor, following: Tensor) -> tuple[Tensor, Tensor]:
        found = tf.boolean_mask(following, reached)
        ones = tf.fill(tf.shape(found), True)
        reached = tf.tensor_scatter_nd_update(reached, found[:, None], ones)
        return reached, tf.gather(following, following)

    reached, _ = tf.while_loop(
        lambda _, following: following[0] < count, double, [reached, following]
    )
    return reached[:count]

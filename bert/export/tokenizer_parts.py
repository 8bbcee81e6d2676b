"""Parts of the graph tokenizer: tables of characters, word pieces, and added tokens.

They are made of operations that every TensorFlow has.

Dimension key: `B` texts, `C` characters (of the beginnings of words, in `GraphWordpiece`), `N`
words, `U` different ones, `R` of those that are not yet cut to their end, `P` pieces, `M` matches
of added tokens, `G` gaps between them.
"""

import functools
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from bert.text.added_tokens import SPACES, Finder, is_word_character
from bert.text.characters import CJK_RANGES

Tensor = Any

# In a table: the character stays.
_ITSELF = -1

_CODES = 0x110000
_BLOCK = 256


class CharacterTable(tf.Module):
    """What `str.translate` does: replaces each character by none, one or several.

    The rows of the table are patterns, of which there are few. Characters find theirs in two steps,
    since most blocks of 256 characters are alike.
    """

    def __init__(self, arrays: tuple[np.ndarray, ...]) -> None:
        super().__init__()
        self._block_of, self._rows, self._values, self._splits = map(tf.constant, arrays)

    def translate(self, codes: tf.RaggedTensor) -> tf.RaggedTensor:
        """Returns the new code points of each text, int32 [B, (C)]."""
        flat = codes.values
        blocks = tf.gather(self._block_of, flat // _BLOCK)
        rows = tf.gather(self._rows, blocks * _BLOCK + flat % _BLOCK)
        patterns = tf.RaggedTensor.from_row_splits(self._values, self._splits, validate=False)
        new = tf.gather(patterns, rows)
        sources = tf.gather(flat, new.value_rowids())
        return tf.RaggedTensor.from_row_splits(
            tf.where(new.values == _ITSELF, sources, new.values),
            tf.gather(new.row_splits, codes.row_splits),
            validate=False,
        )


@functools.cache
def _blocks() -> list[Sequence[int]]:
    """Returns the code points to look at in each block: one will do where all are alike."""
    blocks = [range(start, start + _BLOCK) for start in range(0, _CODES, _BLOCK)]
    return [block[:1] if _are_alike(block) else block for block in blocks]


def _are_alike(block: Sequence[int]) -> bool:
    """Returns whether a block has no characters, or Chinese ones alone that stay as they are."""
    text = "".join(map(chr, block))
    categories = set(map(unicodedata.category, text))
    is_chinese = any(low <= block[0] and block[-1] <= high for low, high in CJK_RANGES)
    is_stable = is_chinese and unicodedata.normalize("NFD", text) == text
    return categories <= {"Cn", "Co", "Cs"} or (is_stable and categories == {"Lo"})


def tabulate(replace: Callable[[str], Sequence[int]]) -> tuple[np.ndarray, ...]:
    """Returns the arrays of a `CharacterTable` from a function of one character."""
    patterns: dict[tuple[int, ...], int] = {}
    rows = np.empty((_CODES // _BLOCK, _BLOCK), np.int32)
    for row, block in zip(rows, _blocks(), strict=True):
        news = [(code, replace(chr(code))) for code in block]
        found = [tuple([_ITSELF if new == code else new for new in many]) for code, many in news]
        row[:] = [patterns.setdefault(pattern, len(patterns)) for pattern in found]
    # Only a few are to be sorted.
    first: dict[bytes, int] = {}
    alike = [first.setdefault(row.tobytes(), number) for number, row in enumerate(rows)]
    kept = [*first.values()]
    blocks, place_of = np.unique(rows[kept], axis=0, return_inverse=True)
    places = dict(zip(kept, place_of.reshape(-1), strict=True))
    return (
        np.asarray([places[number] for number in alike], np.int32),
        blocks.reshape(-1),
        np.asarray([code for pattern in patterns for code in pattern], np.int32),
        np.cumsum([0, *map(len, patterns)], dtype=np.int32),
    )


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
          numbers: The numbers of the words, int32 [R].
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
        is_space = tf.reduce_any(flat[:, None] == tf.constant([*map(ord, SPACES)]), 1)
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

"""Tables of all characters, for graphs.

Dimension key: `B` texts, `C` characters.
"""

import functools
import unicodedata
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

from bert.text.characters import CJK_RANGES

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
    blocks, block_of = np.unique(rows, axis=0, return_inverse=True)
    return (
        block_of.reshape(-1).astype(np.int32),
        blocks.reshape(-1),
        np.asarray([code for pattern in patterns for code in pattern], np.int32),
        np.cumsum([0, *map(len, patterns)], dtype=np.int32),
    )

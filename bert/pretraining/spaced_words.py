"""Words between spaces, for masking whole words of text that is tokenized into characters.

For Chinese text that a program has segmented into words.
"""

from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np

import tokenization
from bert.pretraining.masking import FIRST, FOLLOWING, SPECIAL, kinds_of_ids


class SpacedTokenizer(tokenization.FullTokenizer):
    """A tokenizer whose `tokenize_lines_to_ids` marks the tokens that continue a word.

    A word is everything between two spaces. The id of a token that continues one is larger by
    `offset`.

    Attributes:
      inv_vocab: The token of each id, the larger ones included.
      offset: A number larger than every id of the vocabulary.
    """

    def __init__(self, vocab_file: Any, do_lower_case: bool = True, **options: Any) -> None:
        super().__init__(vocab_file, do_lower_case, **options)
        self.offset = max(self.inv_vocab) + 1
        self.inv_vocab |= {number + self.offset: t for number, t in self.inv_vocab.items()}

    def tokenize_lines_to_ids(self, lines: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Returns the ids of many lines in one array, and the number of each line in another."""
        words = [tokenization.split_at_spaces(line) for line in lines]
        ids, counts = super().tokenize_lines_to_ids(list(chain.from_iterable(words)))
        ends = np.append(0, np.cumsum(counts))
        goes_on = np.ones(len(ids), bool)
        goes_on[ends[:-1][counts > 0]] = False
        last_words = np.cumsum([0, *map(len, words)])
        return ids + self.offset * goes_on, np.diff(ends[last_words])


def offset_of(tokenizer: tokenization.FullTokenizer) -> int:
    """Returns how much larger the ids of tokens that continue a word are; 0 where they are not."""
    return tokenizer.offset if isinstance(tokenizer, SpacedTokenizer) else 0


def find_kinds(tokenizer: tokenization.FullTokenizer) -> np.ndarray:
    """Returns the kind of every id that a tokenizer gives, uint8 [ids]."""
    kinds = kinds_of_ids(tokenizer.vocab)
    if not offset_of(tokenizer):
        return kinds
    return np.concatenate([place_in_words(kinds, False), place_in_words(kinds, True)])


def place_in_words(kinds: np.ndarray, goes_on: Any) -> np.ndarray:
    """Returns the kinds of tokens, given whether each continues a word between spaces."""
    return np.where(kinds == SPECIAL, SPECIAL, np.where(goes_on, FOLLOWING, FIRST)).astype(np.uint8)

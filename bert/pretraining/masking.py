"""Masks tokens of sequences (paper, section 3.1).

There are two sources of random numbers: the generator of the original's script, from which
everything is drawn in the original's order, and a `KeyedRandom` for each sequence, from which only
the numbers that are needed are drawn.
"""

import dataclasses
import functools
import hashlib
import itertools
import math
import random
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

import tokenization
from bert.options import Message, Option, OptionError, OptionGroup, option

if TYPE_CHECKING:
    from typing_extensions import Self

# The kinds of tokens: [CLS] and [SEP], which are not masked; the first token of a word; a token
# that continues a word.
SPECIAL, FIRST, FOLLOWING = range(3)

# The feature of records without masks that says of each token whether it continues a word, where
# the ids do not show it.
GOES_ON = "goes_on"

# Replacements other than a random word, which is a number from 0.
MASK, ITSELF = -1, -2

# The values of `words`.
PIECES, SPACES = "pieces", "spaces"


# The masked positions of a sequence, and the replacement of each.
Masks = tuple[Sequence[int], Sequence[int]]


class Ratios(NamedTuple):
    """The replacements of masked tokens (paper, table 8).

    Attributes:
      mask: The percentage that becomes [MASK].
      same: The percentage that stays the same.
      random: The percentage that becomes a random word.
    """

    mask: float
    same: float
    random: float

    def __str__(self) -> str:
        return f"{self.mask:g} % as [MASK], {self.same:g} % as they are, {self.random:g} % random"


# The paper's ratios (section 3.1).
RATIOS = "80,10,10"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Masking(OptionGroup):
    """How tokens are masked."""

    max_predictions_per_seq: int = option(
        20,
        Message(
            "Maximum masked tokens per sequence, about max_seq_length * masked_lm_prob. Use the "
            "same value for training; with %s, only training masks.",
            Option("mask_at_training"),
        ),
        low=1,
    )
    do_whole_word_mask: bool = option(
        False, "Mask all pieces of a word or none, instead of single pieces."
    )
    words: str = option(
        PIECES,
        Message(
            "What counts as a word for %s. pieces: a token and the following ones that begin with "
            "##; spaces: everything between two spaces, as for Chinese text that is segmented "
            "into words. The tokens are the same.",
            Option("do_whole_word_mask"),
        ),
        choices=(PIECES, SPACES),
    )
    masked_lm_prob: float = option(
        0.15,
        Message("Fraction of the tokens to mask, up to %s.", Option("max_predictions_per_seq")),
        low=0,
        high=1,
    )
    mask_ratios: str = option(
        RATIOS,
        "Percentages of the masked tokens that become [MASK], stay the same and become a random "
        "word (paper, table 8: MASK, SAME, RND).",
    )
    random_seed: int = option(12345, "Seed for all random draws.")

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> "Self":
        """Returns the masking that an index of records describes."""
        names = [field.name for field in dataclasses.fields(cls)]
        return cls(**{name: values[name] for name in names if name in values})

    @functools.cached_property
    def ratios(self) -> Ratios:
        """The replacements of masked tokens.

        Raises:
          OptionError: where they are not three numbers from 0 whose sum is 100.
        """
        try:
            numbers = [float(number) for number in self.mask_ratios.split(",")]
        except ValueError:
            numbers = []
        is_three = len(numbers) == len(Ratios._fields)
        if not is_three or not min(numbers) >= 0 or not math.isclose(sum(numbers), 100):
            raise OptionError(
                "mask_ratios",
                "be three numbers from 0 whose sum is 100: the percent of masked tokens that "
                "become [MASK], that stay the same and that become a random word, such as "
                f"{RATIOS}",
                self.mask_ratios,
            )
        return Ratios(*numbers)

    @property
    def has_words(self) -> bool:
        """Whether spaces separate words, so that ids alone do not show where a word begins."""
        return self.words == SPACES

    def __str__(self) -> str:
        units = "whole words" if self.do_whole_word_mask else "single tokens"
        units += " between spaces" * self.has_words
        return (
            f"{100 * self.masked_lm_prob:g} % of the tokens, {self.max_predictions_per_seq} at "
            f"most, {units}, {self.ratios}"
        )

    def draw(self, kinds: bytes, num_words: int, rng: random.Random) -> tuple[list[int], list[int]]:
        """Returns the positions to mask in the order drawn, and the replacement of each.

        A replacement is `MASK`, `ITSELF` or the number of a random word, which may be any word,
        [PAD] and [unused1] included, as in the original.

        Args:
          kinds: The kind of each token.
          num_words: The number of words to draw from.
          rng: The source of random numbers.
        """
        count = min(self.max_predictions_per_seq, max(1, round(len(kinds) * self.masked_lm_prob)))
        candidates = list(itertools.compress(itertools.count(), kinds))
        followers: dict[int, list[int]] = {}
        if self.do_whole_word_mask:
            candidates, followers = _split_words(candidates, kinds)
        if isinstance(rng, KeyedRandom) and not followers:
            shuffle(candidates, rng, count)
            # The shuffle fills the list from its end.
            candidates.reverse()
        else:
            shuffle(candidates, rng)
        positions = _choose(candidates, followers, count)
        draw = rng.random
        mask, rest = self.ratios.mask / 100, self.ratios.same + self.ratios.random
        same = self.ratios.same / rest if rest else 0.0
        words = [
            MASK if draw() < mask else ITSELF if draw() < same else below(num_words, rng)
            for _ in positions
        ]
        return positions, words


def kind(token: str) -> int:
    """Returns the kind of a token."""
    if token in {"[CLS]", "[SEP]"}:
        return SPECIAL
    return FOLLOWING if token.startswith("##") else FIRST


def kinds_of_ids(vocab: Mapping[str, int]) -> np.ndarray:
    """Returns the kind of every id, uint8 [ids]."""
    kinds = np.zeros(max(vocab.values()) + 1, np.uint8)
    for token, number in vocab.items():
        kinds[number] = kind(token)
    return kinds


def words_of(vocab: Mapping[str, int]) -> np.ndarray:
    """Returns the ids of all replacements, int64 [words + 1]; index -1, `MASK`, is [MASK]."""
    return np.array([*vocab.values(), vocab.get("[MASK]", 0)])


def create_masked_lm_predictions(
    tokens: Sequence[str],
    masked_lm_prob: float,
    max_predictions_per_seq: int,
    vocab_words: Sequence[str],
    rng: random.Random,
    *,
    do_whole_word_mask: bool = False,
) -> tuple[list[str], list[int], list[str]]:
    """Returns the tokens with masks, the masked positions, and the tokens masked (section 3.1)."""
    masking = Masking(
        masked_lm_prob=masked_lm_prob,
        max_predictions_per_seq=max_predictions_per_seq,
        do_whole_word_mask=do_whole_word_mask,
    )
    positions, words = masking.draw(bytes(map(kind, tokens)), len(vocab_words), rng)
    output = list(tokens)
    for position, word in zip(positions, words, strict=True):
        if word != ITSELF:
            output[position] = "[MASK]" if word == MASK else vocab_words[word]
    positions.sort()
    return output, positions, [tokens[position] for position in positions]


def put_masks(
    tokens: np.ndarray,
    firsts: np.ndarray,
    drawn: Sequence[Masks],
    words: np.ndarray,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Replaces the masked tokens of some sequences in place.

    Args:
      tokens: The ids of all sequences, which are changed, [T].
      firsts: Where each sequence begins in `tokens`, in ascending order, [B].
      drawn: The result of `Masking.draw` for each sequence.
      words: The result of `words_of`.

    Returns:
      The number of masked tokens of each sequence, [B]; and, sequence by sequence in ascending
      order, the position of each masked token and its id before, [M].
    """
    counts = np.fromiter((len(positions) for positions, _ in drawn), np.int64, len(drawn))
    columns, numbers = (
        np.fromiter(itertools.chain.from_iterable(masks[index] for masks in drawn), np.int64)
        for index in range(2)
    )
    places = np.repeat(firsts, counts) + columns
    order = np.argsort(places)
    columns, numbers, places = columns[order], numbers[order], places[order]
    labels = tokens[places]
    tokens[places] = np.where(numbers == ITSELF, labels, words[numbers])
    return counts, columns, labels


def _split_words(candidates: Sequence[int], kinds: bytes) -> tuple[list[int], dict[int, list[int]]]:
    """Returns the first position of each word, and by it the positions of its other tokens."""
    followers: dict[int, list[int]] = {}
    firsts = list(candidates[:1])
    for position in candidates[1:]:
        # Faithful: pieces that begin segment b, its front cut off, go with the last word of a.
        if kinds[position] == FOLLOWING:
            followers.setdefault(firsts[-1], []).append(position)
        else:
            firsts.append(position)
    return firsts, followers


def _choose(
    candidates: Sequence[int], followers: Mapping[int, Sequence[int]], num_to_predict: int
) -> list[int]:
    """Returns the first candidates with their followers, leaving out words too long to fit."""
    if not followers:
        return list(candidates[:num_to_predict])
    positions: list[int] = []
    for first in candidates:
        word = [first, *followers.get(first, ())]
        if len(positions) + len(word) <= num_to_predict:
            positions += word
    return positions


def shuffle(items: list[int], rng: random.Random, num_last: int | None = None) -> None:
    """Shuffles as `rng.shuffle(items)` does, with the same draws, in less time.

    With `num_last`, only that many items at the end are drawn.
    """
    getrandbits = rng.getrandbits
    count = max(len(items) - 1, 0)
    steps = _steps(count.bit_length())
    for last, bits in steps[len(steps) - count :][:num_last]:
        other = getrandbits(bits)
        while other > last:
            other = getrandbits(bits)
        items[last], items[other] = items[other], items[last]


@functools.cache
def _steps(bits: int) -> list[tuple[int, int]]:
    """Returns (n, bits of n + 1) for every n of at most `bits` bits, from the largest down to 1."""
    return [(last, (last + 1).bit_length()) for last in range((1 << bits) - 1, 0, -1)]


class KeyedRandom(random.Random):
    """Random numbers that depend on a key alone: the same in any process and any order of work."""


def generator(*numbers: int) -> KeyedRandom:
    """Returns a random generator whose draws depend only on these numbers."""
    name = " ".join(map(str, numbers)).encode()
    digest = hashlib.blake2b(name, digest_size=8).digest()
    return KeyedRandom(int.from_bytes(digest, "big"))


def below(limit: int, rng: random.Random) -> int:
    """Returns what `rng.randint(0, limit - 1)` returns, with the same draws, in less time.

    Raises:
      ValueError: where there is no such number.
    """
    if limit < 1:
        raise ValueError(f"There must be something to draw from. Received {limit} items.")
    # NumPy's integers have no `bit_length`.
    limit = int(limit)
    bits = limit.bit_length()
    number = rng.getrandbits(bits)
    while number >= limit:
        number = rng.getrandbits(bits)
    return number


class SpacedTokenizer(tokenization.FullTokenizer):
    """A tokenizer whose `tokenize_lines_to_ids` marks the tokens that continue a word.

    A word is everything between two spaces. The id of a token that continues one is larger by
    `offset`. `of` returns such a tokenizer.

    Attributes:
      inv_vocab: The token of each id, the larger ones included.
      offset: A number larger than every id of the vocabulary.
    """

    offset: int

    @classmethod
    def of(cls, tokenizer: tokenization.FullTokenizer) -> "SpacedTokenizer":
        """Returns a tokenizer with the vocabulary and the options of another.

        Raises:
          OptionError: where an added token has a space, so that it is in no word.
        """
        contents = [token.content for token in tokenizer.added_tokens]
        if wide := [text for text in contents if tokenization.split_at_spaces(text) != [text]]:
            must = Message("be %r for a model whose added tokens have spaces", PIECES)
            raise OptionError("words", must, Message("%r, and the tokens %s", SPACES, wide))
        spaced = cls.__new__(cls)
        vars(spaced).update(tokenizer.__getstate__())
        spaced.offset = max(tokenizer.inv_vocab) + 1
        larger = {number + spaced.offset: t for number, t in tokenizer.inv_vocab.items()}
        spaced.inv_vocab = tokenizer.inv_vocab | larger
        return spaced

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

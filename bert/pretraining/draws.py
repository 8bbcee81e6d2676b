"""Draws of pre-training that depend on nothing but the seed and on what they are for.

Each use of a document has a generator of its own, and so has each instance. So any part of them can
be drawn by any process, on any machine, in any order, and a document's instances are the same.
"""

import dataclasses
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

import tokenization
from bert.pretraining.corpus import kinds_of
from bert.pretraining.instances import Drawn, InstanceTable
from bert.pretraining.masking import Masking, generator, parse_ratios
from bert.pretraining.pairs import (
    SHORTEST_TARGET,
    Pair,
    Plan,
    cut_document,
    draw_plans,
    finish_pair,
)
from bert.pretraining.spaced_words import PIECES, find_kinds

_KEY_BITS = 64

# [CLS], two [SEP], and a token in each segment.
_SHORTEST_SEQUENCE = 5

# What the numbers may be at least and, if anything, at most.
RANGES: Mapping[str, tuple[float, ...]] = {
    "max_seq_length": (_SHORTEST_SEQUENCE,),
    "max_predictions_per_seq": (1,),
    "dupe_factor": (1,),
    "masked_lm_prob": (0, 1),
    "short_seq_prob": (0, 1),
}


def check_numbers(values: Any) -> None:
    """Checks that what a `Draws` has, or flags of the same names, can be.

    Raises:
      ValueError: naming what cannot.
    """
    for name, bounds in RANGES.items():
        check_range(name, getattr(values, name), *bounds)
    parse_ratios(values.mask_ratios)


def check_range(name: str, value: float, low: float, high: float = math.inf) -> None:
    """Raises `ValueError` where a number is out of range."""
    if not low <= value <= high:
        most = f" and at most {high}" if high < math.inf else ""
        raise ValueError(f"`{name}` must be at least {low}{most}. Received {value}.")


def check_vocabulary(vocab: Mapping[str, int]) -> None:
    """Checks that a vocabulary has what instances are made of.

    Raises:
      ValueError: naming what it lacks.
    """
    missing = [token for token in ("[CLS]", "[SEP]", "[MASK]") if token not in vocab]
    if missing:
        raise ValueError(
            "The vocabulary must hold '[CLS]', '[SEP]' and '[MASK]'. Received one without "
            f"{missing}."
        )


class Seed(NamedTuple):
    """An instance before the other document is asked.

    Attributes:
      key: A random number of 64 bits, which seeds all that is drawn for the instance from then on.
        The records are in its order.
      plan: What its own document tells.
    """

    key: int
    plan: Plan


@dataclasses.dataclass(frozen=True, kw_only=True)
class Draws(Masking):
    """How instances are drawn, as the flags of the same names have it."""

    random_seed: int
    dupe_factor: int
    max_seq_length: int
    short_seq_prob: float
    next_sentence: bool = True
    mask_at_training: bool = False
    words: str = PIECES

    @property
    def most_masks(self) -> int:
        """Masked tokens of a record at most."""
        return 0 if self.mask_at_training else self.max_predictions_per_seq

    @property
    def budget(self) -> int:
        """Tokens that both segments, or the only one, may have together."""
        return self.max_seq_length - self.num_special

    @property
    def num_special(self) -> int:
        """[CLS] and each [SEP] of a sequence."""
        return 3 if self.next_sentence else 2

    def most_instances(self, num_documents: Any, num_sentences: Any, num_tokens: Any) -> Any:
        """Returns how many instances some documents have at most, each used once.

        Args:
          num_documents: Their number, or an array of such, as all that follow.
          num_sentences: Of all of them.
          num_tokens: Of all of them.
        """
        if self.next_sentence:
            # Each uses up a sentence at least.
            return num_sentences
        shortest = SHORTEST_TARGET if self.short_seq_prob else self.budget
        # Of each, the first may have a single token, and the last need not be full.
        return num_documents + (num_tokens + num_documents * (shortest - 2)) // shortest

    def plans(
        self, bounds: Sequence[int], document: int, num_documents: int, rng: random.Random
    ) -> Iterator[Plan]:
        """Yields what a document alone tells of the instances of one use of it.

        Args:
          bounds: Where its sentences begin, and where the last ends.
          document: Its number among all.
          num_documents: All documents, of which others are drawn.
          rng: As everywhere.
        """
        if self.next_sentence:
            return draw_plans(
                bounds, document, num_documents, self.budget, self.short_seq_prob, rng
            )
        return cut_document(bounds, document, self.budget, self.short_seq_prob, rng)

    def seeds(
        self, bounds: Sequence[int], document: int, num_documents: int, uses: Sequence[int]
    ) -> Iterator[Seed]:
        """Yields the instances of some uses of a document.

        Args:
          bounds: As for `plans`.
          document: As there.
          num_documents: As there.
          uses: Their numbers.
        """
        for use in uses:
            rng = generator(self.random_seed, document, use)
            for plan in self.plans(bounds, document, num_documents, rng):
                yield Seed(rng.getrandbits(_KEY_BITS), plan)

    def pair(self, seed: Seed, other: Sequence[int]) -> tuple[Pair, random.Random]:
        """Returns the pair of an instance, and the generator from which its masks are drawn.

        Args:
          seed: The instance.
          other: As for `finish_pair`.
        """
        rng = random.Random(seed.key)
        return finish_pair(seed.plan, other, self.budget, rng), rng

    def mask(
        self,
        pair: Pair,
        kinds: bytes,
        num_words: int,
        rng: random.Random,
        *,
        sparing: bool = False,
    ) -> Drawn:
        """Returns an instance with its masks, if these are not left to training.

        Args:
          pair: Its segments.
          kinds: What masking asks of each of its tokens.
          num_words: The words of the vocabulary.
          rng: As everywhere.
          sparing: As for `draw_masks`.
        """
        if self.mask_at_training:
            return Drawn(pair, (), ())
        return Drawn(pair, *self.draw(kinds, num_words, rng, sparing=sparing))


class Builder:
    """Makes a table of instances from the ids of their segments, wherever these come from.

    Args:
      draws: How masks are drawn.
      tokenizer: Whose ids they are.
    """

    def __init__(self, draws: Draws, tokenizer: tokenization.FullTokenizer) -> None:
        self._draws = draws
        self._tokenizer = tokenizer
        self._kinds = find_kinds(tokenizer)
        self.begin()

    def begin(self) -> None:
        """Drops what was added."""
        self._parts: list[np.ndarray] = []
        self._pairs: list[tuple[Pair, random.Random]] = []
        self._size = 0

    def add(self, pair: Pair, a: np.ndarray, b: np.ndarray, rng: random.Random) -> None:
        """Adds an instance.

        Args:
          pair: As `Draws.pair` returns it.
          a: The ids of its first segment.
          b: The ids of its second segment.
          rng: As `Draws.pair` returns it.
        """
        start, middle = self._size, self._size + len(a)
        self._size = stop = middle + len(b)
        self._pairs.append((Pair(start, middle, middle, stop, *pair[4:]), rng))
        self._parts += (a, b)

    def build(self) -> InstanceTable:
        """Returns the instances in the order of adding, with masks, and begins anew."""
        draws, tokenizer = self._draws, self._tokenizer
        table = InstanceTable(tokenizer, draws.max_seq_length, draws.most_masks)
        if self._pairs:
            ids = np.concatenate(self._parts)
            kinds, num_words = self._kinds[ids].tobytes(), len(tokenizer.vocab)
            drawn = [
                draws.mask(pair, kinds_of(kinds, pair), num_words, rng, sparing=True)
                for pair, rng in self._pairs
            ]
            table.extend(ids, drawn)
        self.begin()
        return table


def part_of(keys: Any, num_parts: int) -> Any:
    """Returns in which of so many parts each key is; the parts follow each other as the keys do.

    So shards joined are the same, however many there are.
    """
    return (keys >> 32) * num_parts >> 32

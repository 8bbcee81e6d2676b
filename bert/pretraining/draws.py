"""Draws pairs of segments and masks for pre-training instances.

The original draws everything from one generator in its order (create_pretraining_data.py). Several
processes or machines seed a generator for each use of a document and for each instance
(`Draws.seeds`, `Draws.pair`), so that the instances of a document are the same wherever and in
whichever order they are drawn.
"""

import dataclasses
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

import tokenization
from bert.options import Message, Option, OptionError, check_bounds, option
from bert.pretraining.corpus import kinds_of
from bert.pretraining.instances import Drawn, InstanceTable
from bert.pretraining.masking import PIECES, KeyedRandom, Masking, generator
from bert.pretraining.pairs import (
    SHORTEST_TARGET,
    Pair,
    Plan,
    draw_plans,
    draw_single_segments,
    finish_pair,
)
from bert.pretraining.spaced_words import find_kinds

_KEY_BITS = 64


class Seed(NamedTuple):
    """An instance before the document of its second segment is read.

    Attributes:
      key: A random number of 64 bits, which seeds all later draws of the instance. Records are in
        the order of the keys.
      plan: The part of the pair that the first document determines.
    """

    key: int
    plan: Plan


@dataclasses.dataclass(frozen=True, kw_only=True)
class Draws(Masking):
    """How instances are drawn."""

    # [CLS], two [SEP], and a token in each segment.
    max_seq_length: int = option(
        128,
        "Tokens per sequence, including [CLS] and [SEP]. Use the same value for training.",
        low=5,
    )
    next_sentence: bool = option(
        True,
        Message(
            "Make pairs of segments: half of the time, the second follows the first; otherwise, it "
            "is from elsewhere. %s makes sequences of one segment, each right after the one "
            "before, with no token left out: for %s, left_to_right and bilstm_lm of "
            "run_pretraining.py.",
            *(Option("next_sentence", False), Option("objective", "masked_lm")),
        ),
    )
    dupe_factor: int = option(
        10, "Number of times to use each document, with other pairs and masks.", low=1
    )
    mask_at_training: bool = option(
        False,
        Message(
            "Leave the tokens as they are: run_pretraining.py masks them anew whenever it reads a "
            "record, as set by the flags here. %s is then enough.",
            Option("dupe_factor", 1),
        ),
    )
    short_seq_prob: float = option(
        0.1,
        "Fraction of documents to cut into sequences of a random, shorter length.",
        low=0,
        high=1,
    )

    def validate(self) -> None:
        """Checks the options.

        Raises:
          OptionError: naming one that has a wrong value.
        """
        check_bounds(self)
        _ = self.ratios
        if self.words != PIECES and not self.do_whole_word_mask:
            must = Message("be %r without %s", PIECES, Option("do_whole_word_mask"))
            raise OptionError("words", must, self.words, "It defines whole words.")

    @property
    def most_masks(self) -> int:
        """The most masked tokens of a record."""
        return 0 if self.mask_at_training else self.max_predictions_per_seq

    @property
    def budget(self) -> int:
        """The most tokens that both segments, or the only one, have together."""
        return self.max_seq_length - self.num_special

    @property
    def num_special(self) -> int:
        """The number of [CLS] and [SEP] of a sequence."""
        return 3 if self.next_sentence else 2

    def most_instances(self, num_documents: Any, num_sentences: Any, num_tokens: Any) -> Any:
        """Returns how many instances one use of each of some documents gives at most.

        Args:
          num_documents: The number of documents, or an array, like the arguments that follow.
          num_sentences: The number of all their sentences.
          num_tokens: The number of all their tokens.
        """
        if self.next_sentence:
            # Each instance uses up at least one sentence.
            return num_sentences
        shortest = SHORTEST_TARGET if self.short_seq_prob else self.budget
        # The first instance of a document may have one token, and the last need not be full.
        return num_documents + (num_tokens + num_documents * (shortest - 2)) // shortest

    def plans(
        self, bounds: Sequence[int], document: int, num_documents: int, rng: random.Random
    ) -> Iterator[Plan]:
        """Yields the plans of the instances of one use of a document.

        Args:
          bounds: Where the sentences of the document begin, and where the last ends.
          document: The number of the document.
          num_documents: The number of documents from which second segments are drawn.
          rng: The source of random numbers.
        """
        options = (self.budget, self.short_seq_prob, rng)
        if self.next_sentence:
            return draw_plans(bounds, document, num_documents, *options)
        return draw_single_segments(bounds, document, *options)

    def mask(self, pair: Pair, kinds: bytes, num_words: int, rng: random.Random) -> Drawn:
        """Returns an instance with its masks, if these are not left to training.

        Args:
          pair: The segments of the instance.
          kinds: The kind of each token.
          num_words: The number of words of the vocabulary.
          rng: The source of random numbers.
        """
        if self.mask_at_training:
            return Drawn(pair, (), ())
        return Drawn(pair, *self.draw(kinds, num_words, rng))

    def seeds(
        self, bounds: Sequence[int], document: int, num_documents: int, uses: Sequence[int]
    ) -> Iterator[Seed]:
        """Yields the seeds of the instances of some uses of a document.

        Args:
          bounds: As for `plans`.
          document: The number of the document.
          num_documents: The number of documents.
          uses: The numbers of the uses.
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
        rng = KeyedRandom(seed.key)
        return finish_pair(seed.plan, other, self.budget, rng), rng


def check_vocabulary(vocab: Mapping[str, int]) -> None:
    """Checks that a vocabulary has the special tokens of instances.

    Raises:
      ValueError: naming the missing tokens.
    """
    missing = [token for token in ("[CLS]", "[SEP]", "[MASK]") if token not in vocab]
    if missing:
        raise ValueError(
            "The vocabulary must hold '[CLS]', '[SEP]' and '[MASK]'. Received one without "
            f"{missing}."
        )


class Builder:
    """Makes a table of instances from the ids of their segments.

    Args:
      draws: How masks are drawn.
      tokenizer: The tokenizer of the ids.
    """

    def __init__(self, draws: Draws, tokenizer: tokenization.FullTokenizer) -> None:
        self._draws = draws
        self._tokenizer = tokenizer
        self._kinds = find_kinds(tokenizer)
        self.begin()

    def begin(self) -> None:
        """Drops all instances that were added."""
        self._parts: list[np.ndarray] = []
        self._pairs: list[tuple[Pair, random.Random]] = []
        self._size = 0

    def add(self, pair: Pair, a: np.ndarray, b: np.ndarray, rng: random.Random) -> None:
        """Adds an instance.

        Args:
          pair: A pair of `Draws.pair`.
          a: The ids of its first segment.
          b: The ids of its second segment.
          rng: The generator of `Draws.pair`.
        """
        start, middle = self._size, self._size + len(a)
        self._size = stop = middle + len(b)
        self._pairs.append((Pair(start, middle, middle, stop, *pair[4:]), rng))
        self._parts += (a, b)

    def build(self) -> InstanceTable:
        """Returns the added instances in their order, with masks, and starts over."""
        draws, tokenizer = self._draws, self._tokenizer
        table = InstanceTable(tokenizer, draws.max_seq_length, draws.most_masks)
        if self._pairs:
            ids = np.concatenate(self._parts)
            kinds, num_words = self._kinds[ids].tobytes(), len(tokenizer.vocab)
            drawn = [
                draws.mask(pair, kinds_of(kinds, pair), num_words, rng) for pair, rng in self._pairs
            ]
            table.extend(ids, drawn)
        self.begin()
        return table


def part_of(keys: Any, num_parts: int) -> Any:
    """Returns the part of each key, of `num_parts` ranges of the keys in ascending order.

    Concatenated shards are therefore the same for any number of shards.
    """
    return (keys >> 32) * num_parts >> 32

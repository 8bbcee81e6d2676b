"""Draws pairs of segments and their masks for pre-training instances (paper, 3.1 and A.2).

An instance without next-sentence prediction has one segment; the second is empty. There is one
sampler of pairs and one of masks, with two sources of random numbers: the original draws everything
from one generator in its order (create_pretraining_data.py). Several processes or machines seed a
generator for each use of a document and for each instance (`Draws.seeds`, `Draws.pair`), so that
the instances of a document are the same wherever and in whichever order they are drawn.
"""

import dataclasses
import random
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from bert.options import Message, Option, OptionError, option
from bert.pretraining.masking import (
    PIECES,
    SPECIAL,
    KeyedRandom,
    Masking,
    Masks,
    below,
    generator,
)

# The shortest target length of short sequences, in tokens.
_SHORTEST_TARGET = 2
_KEY_BITS = 64
_SPECIAL = bytes([SPECIAL])


class Pair(NamedTuple):
    """Two segments that fit into a sequence, as ranges of tokens of their documents.

    Attributes:
      a_start: Where `a` begins.
      a_stop: Where `a` ends.
      b_start: Where `b` begins, in its document.
      b_stop: Where `b` ends; where it begins, if there is no `b`.
      is_random_next: Whether `b` is random text, rather than what follows `a`.
      num_truncated: The number of tokens cut off to fit.
      b_document: The number of the document of `b`.
    """

    a_start: int
    a_stop: int
    b_start: int
    b_stop: int
    is_random_next: bool
    num_truncated: int
    b_document: int

    def kinds(self, kinds: bytes) -> bytes:
        """Returns the kinds of `[CLS] a [SEP] b [SEP]`, or of `[CLS] a [SEP]` if there is no `b`.

        Args:
          kinds: The kinds of the tokens of the document.
        """
        a, b = kinds[self.a_start : self.a_stop], kinds[self.b_start : self.b_stop]
        first = _SPECIAL + a + _SPECIAL
        return first + b + _SPECIAL if b else first


class Cut(NamedTuple):
    """The part of a pair that the document of `a` determines.

    Attributes:
      a_start: Where `a` begins, before anything is cut off.
      a_stop: Where `a` ends.
      stop: Where the text after `a` ends, if it is to be `b`; otherwise where `a` ends.
      target: The number of tokens that both segments should have together.
      is_random_next: Whether `b` is random text, rather than what follows `a`.
      b_document: The number of the document of `b`.
    """

    a_start: int
    a_stop: int
    stop: int
    target: int
    is_random_next: bool
    b_document: int


# An instance as it is drawn from a corpus: its segments, and the result of `Masking.draw`.
Drawn = tuple[Pair, Masks]


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
            Option("next_sentence", False),
            Option("objective", "masked_lm"),
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
        shortest = _SHORTEST_TARGET if self.short_seq_prob else self.budget
        # The first instance of a document may have one token, and the last need not be full.
        return num_documents + (num_tokens + num_documents * (shortest - 2)) // shortest

    def cuts(
        self, bounds: Sequence[int], document: int, num_documents: int, rng: random.Random
    ) -> Iterator[Cut]:
        """Yields the cuts of the instances of one use of a document.

        A cut is drawn when it is requested, so that its pair can be finished before the next draw.
        Some sequences are short, so that the short inputs of fine-tuning are not new to the model.

        Args:
          bounds: Where the sentences of the document begin, and where the last ends.
          document: The number of the document.
          num_documents: The number of documents from which second segments are drawn.
          rng: The source of random numbers.
        """
        target = self.budget
        if rng.random() < self.short_seq_prob:
            target = _SHORTEST_TARGET + below(self.budget + 1 - _SHORTEST_TARGET, rng)
        if self.next_sentence:
            return _draw_pairs(bounds, document, num_documents, target, rng)
        return _draw_single_segments(bounds, document, target, rng)

    def finish(self, cut: Cut, other: Sequence[int], rng: random.Random) -> Pair:
        """Returns the pair of a cut.

        Args:
          cut: The part of the pair that the document of `a` determines.
          other: Where the sentences of `b_document` begin, and where the last ends. Only the length
            and a slice are read, and nothing where `b` follows `a`.
          rng: The source of random numbers.
        """
        a_start, a_stop, b_start, b_stop = cut.a_start, cut.a_stop, cut.a_stop, cut.stop
        if cut.is_random_next:
            first = below(len(other) - 1, rng)
            target = cut.target - (a_stop - a_start)
            # No more bounds are needed, for a sentence has at least one token.
            near = other[first : first + max(target, 1) + 1]
            b_start, b_stop = near[0], near[_end_of_chunk(near, 0, target)]
        excess = a_stop - a_start + b_stop - b_start - self.budget
        if excess > 0:
            a_start, a_stop, b_start, b_stop = truncate(
                a_start, a_stop, b_start, b_stop, excess, rng
            )
        is_random_next, b_document = cut.is_random_next, cut.b_document
        return Pair(a_start, a_stop, b_start, b_stop, is_random_next, max(excess, 0), b_document)

    def mask(self, pair: Pair, kinds: bytes, num_words: int, rng: random.Random) -> Drawn:
        """Returns an instance with its masks, if these are not left to training.

        Args:
          pair: The segments of the instance.
          kinds: The kinds of the tokens of the documents.
          num_words: The number of words of the vocabulary.
          rng: The source of random numbers.
        """
        if self.mask_at_training:
            return pair, ((), ())
        return pair, self.draw(pair.kinds(kinds), num_words, rng)

    def seeds(
        self, bounds: Sequence[int], document: int, num_documents: int, uses: Sequence[int]
    ) -> Iterator[tuple[int, Cut]]:
        """Yields the key and the cut of each instance of some uses of a document.

        A key is a random number of 64 bits, which seeds all later draws of the instance. Records
        are in the order of the keys.

        Args:
          bounds: As for `cuts`.
          document: The number of the document.
          num_documents: The number of documents.
          uses: The numbers of the uses.
        """
        for use in uses:
            rng = generator(self.random_seed, document, use)
            for cut in self.cuts(bounds, document, num_documents, rng):
                yield rng.getrandbits(_KEY_BITS), cut

    def pair(self, key: int, cut: Cut, other: Sequence[int]) -> tuple[Pair, random.Random]:
        """Returns the pair of an instance, and the generator from which its masks are drawn.

        Args:
          key: The key of the instance.
          cut: Its cut.
          other: As for `finish`.
        """
        rng = KeyedRandom(key)
        return self.finish(cut, other, rng), rng


def _draw_pairs(
    bounds: Sequence[int], document: int, num_documents: int, target: int, rng: random.Random
) -> Iterator[Cut]:
    """Yields the cuts of the pairs of one use of a document, as `Draws.cuts`."""
    start = 0
    while start < len(bounds) - 1:
        end = _end_of_chunk(bounds, start, target)
        middle = start + 1 if end - start == 1 else start + 1 + below(end - start - 1, rng)
        is_random_next = end - start == 1 or rng.random() < 0.5
        b_document = document
        if is_random_next:
            b_document = _other_document(num_documents, document, rng)
        yield Cut(bounds[start], bounds[middle], bounds[end], target, is_random_next, b_document)
        # Sentences that were replaced by random ones are used again.
        start = middle if is_random_next else end


def _draw_single_segments(
    bounds: Sequence[int], document: int, target: int, rng: random.Random
) -> Iterator[Cut]:
    """Yields the consecutive segments of one use of a document, without pairs, as `Draws.cuts`.

    No token is left out, and a sentence is split wherever a sequence is full. A document that does
    not fit into one sequence is first split at a random token, so that each use has other segments.
    """
    start, end = bounds[0], bounds[-1]
    stop = end
    if end - start > target:
        stop = start + 1 + below(target, rng)
    while start < end:
        yield Cut(start, stop, stop, target, False, document)
        start, stop = stop, min(stop + target, end)


def _end_of_chunk(bounds: Sequence[int], start: int, target: int) -> int:
    """Returns the sentence at which those from `start` on reach the target length, or the end."""
    return min(bisect_left(bounds, bounds[start] + target, start + 1), len(bounds) - 1)


def _other_document(num_documents: int, document_index: int, rng: random.Random) -> int:
    """Returns a random document.

    Faithful: after ten draws of the document itself, it is taken. A corpus of one document has
    nothing else.
    """
    for _ in range(10):
        other = below(num_documents, rng)
        if other != document_index:
            break
    return other


def truncate(
    a_start: int, a_stop: int, b_start: int, b_stop: int, excess: int, rng: random.Random
) -> tuple[int, int, int, int]:
    """Returns both segments with `excess` tokens cut off.

    Each token is cut from the longer one, `b` where they are equal, at either end by chance.
    """
    draw = rng.random
    longer = a_stop - a_start - (b_stop - b_start)
    for _ in range(excess):
        if longer > 0:
            longer -= 1
            if draw() < 0.5:
                a_start += 1
            else:
                a_stop -= 1
        else:
            longer += 1
            if draw() < 0.5:
                b_start += 1
            else:
                b_stop -= 1
    return a_start, a_stop, b_start, b_stop


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


def part_of(keys: Any, num_parts: int) -> Any:
    """Returns the part of each key, of `num_parts` ranges of the keys in ascending order.

    Concatenated shards are therefore the same for any number of shards.
    """
    return (keys >> 32) * num_parts >> 32

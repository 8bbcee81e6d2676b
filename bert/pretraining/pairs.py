"""Draws the pairs of segments of pre-training instances (paper, sections 3.1 and A.2).

An instance without next-sentence prediction has one segment; the second is empty. Everything is
drawn from the caller's generator, in the original's order.
"""

import random
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from bert.pretraining.masking import below

# The shortest target length of short sequences, in tokens.
SHORTEST_TARGET = 2


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


class Plan(NamedTuple):
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


def draw_plans(
    bounds: Sequence[int],
    document_index: int,
    num_documents: int,
    budget: int,
    short_seq_prob: float,
    rng: random.Random,
) -> Iterator[Plan]:
    """Yields the plans of the pairs of one use of a document.

    A plan is drawn when it is requested, so that its pair can be finished before the next draw.

    Args:
      bounds: Where the sentences of the document begin, and where the last ends.
      document_index: The number of the document.
      num_documents: The number of documents from which second segments are drawn.
      budget: The most tokens of both segments together.
      short_seq_prob: The probability that a document is split into shorter sequences.
      rng: The source of random numbers.
    """
    target = _draw_target(budget, short_seq_prob, rng)
    start = 0
    while start < len(bounds) - 1:
        end = _end_of_chunk(bounds, start, target)
        middle = start + 1 if end - start == 1 else start + 1 + below(end - start - 1, rng)
        is_random_next = end - start == 1 or rng.random() < 0.5
        b_document = document_index
        if is_random_next:
            b_document = _other_document(num_documents, document_index, rng)
        yield Plan(bounds[start], bounds[middle], bounds[end], target, is_random_next, b_document)
        # Sentences that were replaced by random ones are used again.
        start = middle if is_random_next else end


def draw_single_segments(
    bounds: Sequence[int],
    document_index: int,
    budget: int,
    short_seq_prob: float,
    rng: random.Random,
) -> Iterator[Plan]:
    """Yields the consecutive segments of one use of a document, without pairs.

    No token is left out, and a sentence is split wherever a sequence is full. A document that does
    not fit into one sequence is first split at a random token, so that each use has other segments.

    Args:
      bounds: Where the sentences of the document begin, and where the last ends.
      document_index: The number of the document.
      budget: The most tokens of a segment.
      short_seq_prob: The probability that a document is split into shorter sequences.
      rng: The source of random numbers.
    """
    target = _draw_target(budget, short_seq_prob, rng)
    start, end = bounds[0], bounds[-1]
    stop = end
    if end - start > target:
        stop = start + 1 + below(target, rng)
    while start < end:
        yield Plan(start, stop, stop, target, False, document_index)
        start, stop = stop, min(stop + target, end)


def _draw_target(budget: int, short_seq_prob: float, rng: random.Random) -> int:
    """Returns the target length of a document's sequences.

    Some are short, so that the short inputs of fine-tuning are not new to the model.
    """
    if rng.random() < short_seq_prob:
        return SHORTEST_TARGET + below(budget + 1 - SHORTEST_TARGET, rng)
    return budget


def finish_pair(plan: Plan, other: Sequence[int], budget: int, rng: random.Random) -> Pair:
    """Returns the pair of a plan.

    Args:
      plan: The part of the pair that the document of `a` determines.
      other: Where the sentences of `b_document` begin, and where the last ends. Only the length and
        a slice are read, and nothing where `b` follows `a`.
      budget: As for `draw_plans`.
      rng: The source of random numbers.
    """
    a_start, a_stop, b_start, b_stop = plan.a_start, plan.a_stop, plan.a_stop, plan.stop
    if plan.is_random_next:
        first = below(len(other) - 1, rng)
        target = plan.target - (a_stop - a_start)
        # No more bounds are needed, for a sentence has at least one token.
        near = other[first : first + max(target, 1) + 1]
        b_start, b_stop = near[0], near[_end_of_chunk(near, 0, target)]
    excess = a_stop - a_start + b_stop - b_start - budget
    if excess > 0:
        a_start, a_stop, b_start, b_stop = truncate(a_start, a_stop, b_start, b_stop, excess, rng)
    is_random_next, b_document = plan.is_random_next, plan.b_document
    return Pair(a_start, a_stop, b_start, b_stop, is_random_next, max(excess, 0), b_document)


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

"""Which segments of documents make up an instance of pre-training (paper, sections 3.1, A.2).

An instance without next-sentence prediction has one segment; of its second, nothing is left.
"""

import random
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple, overload

from bert.pretraining.masking import below

# Tokens that the sequences of a document should have at least, where these shall be short.
SHORTEST_TARGET = 2


class Pair(NamedTuple):
    """Two segments that fit into a sequence, as parts of their documents, in tokens.

    Attributes:
      a_start: Where `a` begins.
      a_stop: Where it ends.
      b_start: Where `b` begins, in its document.
      b_stop: Where it ends; where it begins, if there is no `b`.
      is_random_next: Whether `b` is from elsewhere, rather than what follows `a`.
      num_truncated: Tokens cut off to fit.
      b_document: The number of the document that has `b`.
    """

    a_start: int
    a_stop: int
    b_start: int
    b_stop: int
    is_random_next: bool
    num_truncated: int
    b_document: int


class Plan(NamedTuple):
    """What a document alone tells of a pair of which `a` is from it, in tokens.

    Attributes:
      a_start: Where `a` begins, before anything is cut off.
      a_stop: Where it ends.
      stop: Where what follows `a` ends, if that is to be `b`; where `a` ends, if nothing is.
      target: Tokens that both segments should have together.
      is_random_next: Whether `b` is from elsewhere, rather than what follows `a`.
      b_document: The number of the document that has `b`.
    """

    a_start: int
    a_stop: int
    stop: int
    target: int
    is_random_next: bool
    b_document: int


class Bounds(Sequence[list[int]]):
    """Where the sentences of each document begin, and the last ends, in tokens from its start."""

    def __init__(self, documents: Sequence[Sequence[Sequence[str]]]) -> None:
        self._documents = documents

    def __len__(self) -> int:
        return len(self._documents)

    @overload
    def __getitem__(self, index: int) -> list[int]: ...
    @overload
    def __getitem__(self, index: slice) -> list[list[int]]: ...
    def __getitem__(self, index: int | slice) -> list[int] | list[list[int]]:
        if isinstance(index, slice):
            return [self[each] for each in range(*index.indices(len(self)))]
        return list(accumulate(map(len, self._documents[index]), initial=0))


def draw_pairs(
    documents: Sequence[Sequence[int]],
    document_index: int,
    budget: int,
    short_seq_prob: float,
    rng: random.Random,
) -> Iterator[Pair]:
    """Yields the pairs of one use of a document.

    Each is drawn when it is asked for, so that its masks can be drawn before the next one, as the
    original does.

    Args:
      documents: For each, where its sentences begin, and where the last ends.
      document_index: Which one is used.
      budget: Tokens that both segments may have together.
      short_seq_prob: How often a document is cut into shorter ones.
      rng: As everywhere.
    """
    bounds = documents[document_index]
    for plan in draw_plans(bounds, document_index, len(documents), budget, short_seq_prob, rng):
        yield finish_pair(plan, documents[plan.b_document], budget, rng)


def draw_plans(
    bounds: Sequence[int],
    document_index: int,
    num_documents: int,
    budget: int,
    short_seq_prob: float,
    rng: random.Random,
) -> Iterator[Plan]:
    """Yields what a document alone tells of the pairs of one use of it.

    Each is drawn when it is asked for, so that the pair can be finished before the next one.

    Args:
      bounds: Where the sentences of the document begin, and where the last ends.
      document_index: Its number.
      num_documents: Of which the other one is drawn.
      budget: As for `draw_pairs`.
      short_seq_prob: As for `draw_pairs`.
      rng: As everywhere.
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
        # The sentences that were to follow are not used up where others came in their place.
        start = middle if is_random_next else end


def cut_document(
    bounds: Sequence[int],
    document_index: int,
    budget: int,
    short_seq_prob: float,
    rng: random.Random,
) -> Iterator[Plan]:
    """Yields the single segments of one use of a document, each right behind the one before.

    No token is left out, and sentences are cut wherever a sequence is full. A document that does
    not fit into one is first cut at a random place, so that each use has other cuts.

    Args:
      bounds: As for `draw_plans`.
      document_index: Its number.
      budget: Tokens that a segment may have.
      short_seq_prob: As for `draw_pairs`.
      rng: As everywhere.
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
    """Returns how long sequences shall be.

    Some are short, so that fine-tuning's short inputs are not new to the model.
    """
    if rng.random() < short_seq_prob:
        return SHORTEST_TARGET + below(budget + 1 - SHORTEST_TARGET, rng)
    return budget


def finish_pair(plan: Plan, other: Sequence[int], budget: int, rng: random.Random) -> Pair:
    """Returns the pair of a plan.

    Args:
      plan: What its first document tells.
      other: Where the sentences of its `b_document` begin, and where the last ends. It is asked for
        its length and a slice, and where `b` is what follows `a`, for nothing.
      budget: As for `draw_pairs`.
      rng: As everywhere.
    """
    a_start, a_stop, b_start, b_stop = plan.a_start, plan.a_stop, plan.a_stop, plan.stop
    if plan.is_random_next:
        first = below(len(other) - 1, rng)
        target = plan.target - (a_stop - a_start)
        # No more are needed, for a sentence has a token at least.
        near = other[first : first + max(target, 1) + 1]
        b_start, b_stop = near[0], near[_end_of_chunk(near, 0, target)]
    excess = a_stop - a_start + b_stop - b_start - budget
    if excess > 0:
        a_start, a_stop, b_start, b_stop = truncate(a_start, a_stop, b_start, b_stop, excess, rng)
    is_random_next, b_document = plan.is_random_next, plan.b_document
    return Pair(a_start, a_stop, b_start, b_stop, is_random_next, max(excess, 0), b_document)


def _end_of_chunk(bounds: Sequence[int], start: int, target: int) -> int:
    """Returns where sentences from `start` on reach the target length, or the document's end."""
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
    """Returns both segments with so many tokens cut off.

    Each time the longer one is cut, `b` where they are equal, at either end by chance.
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

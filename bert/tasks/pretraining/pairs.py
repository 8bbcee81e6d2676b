"""Which segments of documents make up an instance of pre-training (paper, sections 3.1, A.2)."""

import random
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple, overload

from bert.tasks.pretraining.masking import below


class Pair(NamedTuple):
    """Two segments that fit into a sequence, as parts of their documents, in tokens.

    Attributes:
      a_start: Where `a` begins.
      a_stop: Where it ends.
      b_start: Where `b` begins, in its document.
      b_stop: Where it ends.
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
    # Short sequences, so that fine-tuning's short inputs are not new to the model.
    target = 2 + below(budget - 1, rng) if rng.random() < short_seq_prob else budget
    start = 0
    while start < len(bounds) - 1:
        end = _end_of_chunk(bounds, start, target)
        middle = start + 1 if end - start == 1 else start + 1 + below(end - start - 1, rng)
        is_random_next = end - start == 1 or rng.random() < 0.5
        a_start, a_stop = bounds[start], bounds[middle]
        if is_random_next:
            b_document = _other_document(documents, document_index, rng)
            other = documents[b_document]
            first = below(len(other) - 1, rng)
            last = _end_of_chunk(other, first, target - (a_stop - a_start))
            b_start, b_stop = other[first], other[last]
            # The sentences that were to follow are not used up.
            start = middle
        else:
            b_document = document_index
            b_start, b_stop = a_stop, bounds[end]
            start = end
        excess = a_stop - a_start + b_stop - b_start - budget
        if excess > 0:
            a_start, a_stop, b_start, b_stop = truncate(
                a_start, a_stop, b_start, b_stop, excess, rng
            )
        yield Pair(a_start, a_stop, b_start, b_stop, is_random_next, max(excess, 0), b_document)


def _end_of_chunk(bounds: Sequence[int], start: int, target: int) -> int:
    """Returns where sentences from `start` on reach the target length, or the document's end."""
    return min(bisect_left(bounds, bounds[start] + target, start + 1), len(bounds) - 1)


def _other_document(documents: Sequence[object], document_index: int, rng: random.Random) -> int:
    """Returns a random document.

    Faithful: after ten draws of the document itself, it is taken. A corpus of one document has
    nothing else.
    """
    for _ in range(10):
        other = below(len(documents), rng)
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

"""Texts as a model takes them: a vocabulary that fits, batches of like lengths."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np

T = TypeVar("T")

# Lengths are rounded up to a multiple of this, so that there are few shapes.
LENGTH_STEP = 8


def round_up(length: Any) -> Any:
    """Returns a length, a number or a tensor, rounded up to a multiple of `LENGTH_STEP`."""
    return -(-length // LENGTH_STEP) * LENGTH_STEP


def chunk(items: Iterable[T], size: Callable[[T], int], limit: int) -> Iterator[list[T]]:
    """Yields lists of consecutive items, cut as soon as their sizes add up to the limit."""
    collected: list[T] = []
    total = 0
    for item in items:
        collected.append(item)
        total += size(item)
        if total >= limit:
            yield collected
            collected, total = [], 0
    if collected:
        yield collected


def bucket(lengths: Sequence[int], batch_size: int) -> list[list[int]]:
    """Returns batches of the items' numbers, items of like lengths together, the longest first.

    So little is padded, and what does not fit in memory fails at once.
    """
    order = sorted(range(len(lengths)), key=lambda item: -lengths[item])
    return [order[start : start + batch_size] for start in range(0, len(order), batch_size)]


def pad(
    input_ids: Sequence[Sequence[int]], segment_ids: Sequence[Sequence[int]], max_seq_length: int
) -> dict[str, np.ndarray]:
    """Returns a batch, int32 [B, S], padded to its longest, rounded up to `LENGTH_STEP`."""
    longest = max(map(len, input_ids))
    length = min(round_up(longest), max_seq_length)
    batch = {
        name: np.zeros((len(input_ids), length), np.int32)
        for name in ("input_ids", "input_mask", "segment_ids")
    }
    for row, (ids, segments) in enumerate(zip(input_ids, segment_ids, strict=True)):
        batch["input_ids"][row, : len(ids)] = ids
        batch["input_mask"][row, : len(ids)] = 1
        batch["segment_ids"][row, : len(ids)] = segments
    return batch

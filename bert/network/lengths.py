"""Batches of sequences of similar lengths, for little padding."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

# Lengths are rounded up to a multiple of this, so that there are few shapes.
LENGTH_STEP = 8
# The same for training on GPUs, where each shape is compiled.
_COMPILED_LENGTH_STEP = 32


def round_up(length: Any, step: int = LENGTH_STEP) -> Any:
    """Returns a length, a number or a tensor, rounded up to a multiple of `step`."""
    return -(-length // step) * step


def round_up_to_train(length: Any) -> Any:
    """Returns a length as `round_up` does; on a GPU, one of few."""
    return round_up(length, _COMPILED_LENGTH_STEP if _has_gpu() else LENGTH_STEP)


def by_length(
    arrays: Mapping[str, np.ndarray], names: Sequence[str], batch_size: int
) -> Iterator[tuple[np.ndarray, dict[str, np.ndarray]]]:
    """Yields batches of rows of about the same length, with the numbers of the rows.

    A GPU gets few shapes, for their lengths are rounded up. On a CPU that costs more than it saves.

    Args:
      arrays: By name, int [N, S] or [N, E, S] with 0 for padding, `input_mask` among them.
      names: The arrays to yield: int32, without the padding that all rows of a batch share.
      batch_size: Maximum rows.
    """
    mask = arrays["input_mask"]
    lengths = mask.reshape(len(mask), -1, mask.shape[-1]).sum(-1).max(-1)  # [N]
    for numbers in group_by_length(lengths, batch_size):
        longest = max(int(lengths[numbers].max()), 1)
        longest = round_up(longest) if _has_gpu() else longest
        yield (
            numbers,
            {name: arrays[name][numbers][..., :longest].astype(np.int32) for name in names},
        )


def sort_by_length(lengths: Sequence[int], batch_size: int) -> list[list[int]]:
    """Returns batches of the numbers of items of similar lengths, the longest first.

    Items that do not fit in memory fail at once.
    """
    order = sorted(range(len(lengths)), key=lambda item: -lengths[item])
    return [order[start : start + batch_size] for start in range(0, len(order), batch_size)]


def _has_gpu() -> bool:
    return bool(tf.config.list_physical_devices("GPU"))


# Tokens of a batch that keep a CPU busy outside training.
_ENOUGH_TOKENS = 1024
_ENOUGH_ROWS = 8


def group_by_length(lengths: np.ndarray, batch_size: int) -> Iterator[np.ndarray]:
    """Yields batches of the numbers of rows as `sort_by_length` does; on a CPU, smaller ones.

    A batch larger than what keeps a CPU busy only has more padding. A GPU gets the largest batches.

    Args:
      lengths: int [N].
      batch_size: Maximum rows.
    """
    order = np.argsort(-lengths, kind="stable")
    on_gpu = _has_gpu()
    while order.size:
        enough = max(_ENOUGH_ROWS, _ENOUGH_TOKENS // max(int(lengths[order[0]]), 1))
        size = batch_size if on_gpu else min(batch_size, enough)
        yield order[:size]
        order = order[size:]


def pad_sequences(
    input_ids: Sequence[Sequence[int]], segment_ids: Sequence[Sequence[int]], max_seq_length: int
) -> dict[str, np.ndarray]:
    """Returns a batch, int32 [B, S], padded to its longest, rounded up to `LENGTH_STEP`."""
    longest = max(map(len, input_ids), default=0)
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

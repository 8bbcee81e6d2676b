"""Shuffling of records by blocks of consecutive ones, which are read together.

Where a single random read is slow, as on disks and in object stores, this is faster than reading
records one by one. The blocks of an epoch are shuffled, and then the records of each window of some
blocks.
"""

import functools
import itertools
from collections.abc import Callable, Sequence

import numpy as np

# Blocks of a window, whose records are shuffled together.
WINDOW_BLOCKS = 16


class BlockOrder:
    """Permutations of records, one for each epoch, that are functions of the seed alone.

    The memory needed does not grow with the number of records.

    Args:
      count: The number of records.
      block: Records of a block; the last one may have fewer.
      seed: The seed of the permutations.
    """

    def __init__(self, count: int, block: int, seed: int) -> None:
        self._count = count
        self._block = block
        self._seed = seed
        self._windows = functools.lru_cache(maxsize=2)(self._deal)
        self._numbers = functools.lru_cache(maxsize=2)(self._mix)

    def numbers(self, epoch: int, places: np.ndarray) -> np.ndarray:
        """Returns the numbers of the records at these positions of an epoch, sorted.

        Workers share the records of a step in this order, so each reads few blocks.
        """
        _, first = self._windows(epoch)
        windows = np.searchsorted(first, places, side="right") - 1
        parts = [
            self._numbers(epoch, int(window))[places[windows == window] - first[window]]
            for window in np.unique(windows)
        ]
        return np.sort(np.concatenate(parts))

    def _deal(self, epoch: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns the order of the blocks of an epoch, and the position of each window."""
        # RandomState, because numpy promises that its stream never changes.
        blocks = np.random.RandomState([self._seed, epoch]).permutation(
            -(-self._count // self._block)
        )
        sizes = np.minimum(self._count - blocks * self._block, self._block)
        return blocks, (np.cumsum(sizes) - sizes)[::WINDOW_BLOCKS]

    def _mix(self, epoch: int, window: int) -> np.ndarray:
        """Returns the numbers of the records of a window, in their order."""
        blocks, _ = self._windows(epoch)
        first = blocks[window * WINDOW_BLOCKS :][:WINDOW_BLOCKS] * self._block
        numbers = (first[:, None] + np.arange(self._block)).ravel()
        rng = np.random.RandomState([self._seed, epoch, window])
        return rng.permutation(numbers[numbers < self._count])


class BlockReader:
    """Reads records by blocks, and caches the blocks that were used last.

    Args:
      read: Reads the records with some numbers, as `Records.read`.
      count: The number of records.
      block: Records of a block.
    """

    def __init__(
        self, read: Callable[[Sequence[int]], list[bytes]], count: int, block: int
    ) -> None:
        self._read = read
        self._count = count
        self._block = block
        self._cached: dict[int, list[bytes]] = {}

    def __call__(self, numbers: np.ndarray) -> list[bytes]:
        """Returns the records with these numbers."""
        wanted, places = np.divmod(np.asarray(numbers, np.int64), self._block)
        blocks = self._find(np.unique(wanted).tolist())
        return [blocks[b][place] for b, place in zip(wanted.tolist(), places.tolist(), strict=True)]

    def _find(self, wanted: Sequence[int]) -> dict[int, list[bytes]]:
        """Returns blocks by their numbers; blocks that are not cached are read together."""
        spans = [
            range(block * self._block, min((block + 1) * self._block, self._count))
            for block in wanted
            if block not in self._cached
        ]
        records = iter(self._read([*itertools.chain.from_iterable(spans)]))
        for span in spans:
            self._cached[span.start // self._block] = list(itertools.islice(records, len(span)))
        found = {block: self._cached.pop(block) for block in wanted}
        # The order of the cache is that of the last use.
        self._cached |= found
        # The previous window may still be in use.
        for block in list(self._cached)[: -2 * WINDOW_BLOCKS]:
            del self._cached[block]
        return found

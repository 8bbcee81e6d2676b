"""Blocks of consecutive records: an order that reads them whole, and the reading.

Where a single random read takes long, as on disks and in object stores, records that stand side by
side are to be read together. So the blocks of an epoch are shuffled, and then the records of some
blocks, a window, among each other.
"""

import functools
import itertools
from collections.abc import Callable, Sequence

import numpy as np

# Blocks whose records are mixed.
WINDOW_BLOCKS = 16


class BlockOrder:
    """Permutations of records, one for each epoch, that are functions of the seed alone.

    Nothing as long as the records is kept.

    Args:
      count: Of all records.
      block: Records of a block; the last one may have fewer.
      seed: Of the permutations.
    """

    def __init__(self, count: int, block: int, seed: int) -> None:
        self._count = count
        self._block = block
        self._seed = seed
        self._windows = functools.lru_cache(maxsize=2)(self._deal)
        self._numbers = functools.lru_cache(maxsize=2)(self._mix)

    def numbers(self, epoch: int, places: np.ndarray) -> np.ndarray:
        """Returns the numbers of the records at these places of an epoch, in rising order.

        So each of several workers, which share the records of a step in this order, reads a part of
        the blocks rather than something of each.
        """
        _, first = self._windows(epoch)
        windows = np.searchsorted(first, places, side="right") - 1
        parts = [
            self._numbers(epoch, int(window))[places[windows == window] - first[window]]
            for window in np.unique(windows)
        ]
        return np.sort(np.concatenate(parts))

    def _deal(self, epoch: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns an epoch's order of blocks, and at which places its windows begin."""
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
    """Reads records by blocks, and keeps those that it has read last.

    Args:
      read: Reads the records with some numbers, as `Records.read`.
      count: Of all records.
      block: Records of a block.
    """

    def __init__(
        self, read: Callable[[Sequence[int]], list[bytes]], count: int, block: int
    ) -> None:
        self._read = read
        self._count = count
        self._block = block
        self._kept: dict[int, list[bytes]] = {}

    def __call__(self, numbers: np.ndarray) -> list[bytes]:
        """Returns the records with these numbers."""
        wanted, places = np.divmod(np.asarray(numbers, np.int64), self._block)
        blocks = self._find(np.unique(wanted).tolist())
        return [blocks[b][place] for b, place in zip(wanted.tolist(), places.tolist(), strict=True)]

    def _find(self, wanted: Sequence[int]) -> dict[int, list[bytes]]:
        """Returns some blocks by their numbers; those that are not kept are read together."""
        spans = [
            range(block * self._block, min((block + 1) * self._block, self._count))
            for block in wanted
            if block not in self._kept
        ]
        records = iter(self._read([*itertools.chain.from_iterable(spans)]))
        for span in spans:
            self._kept[span.start // self._block] = list(itertools.islice(records, len(span)))
        found = {block: self._kept.pop(block) for block in wanted}
        # The last ones used come last.
        self._kept |= found
        # The window before may be in use still.
        for block in list(self._kept)[: -2 * WINDOW_BLOCKS]:
            del self._kept[block]
        return found

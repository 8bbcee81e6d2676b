"""Blocks are read whole and once, in an order that is mixed all the same."""

import numpy as np
import pytest

from bert.training.batches import WINDOW_BLOCKS, Batches, BlockOrder, BlockReader


class _Numbers:
    """Records that are their numbers, and which ranges of them were read."""

    def __init__(self, count):
        self.count = count
        self.ranges = []

    def __len__(self):
        return self.count

    def read(self, numbers):
        for part in np.split(numbers, np.flatnonzero(np.diff(numbers) != 1) + 1):
            self.ranges += [(int(part[0]), int(part[-1]) + 1)] if len(part) else []
        return [b"%d" % number for number in numbers]


def blocks_of(numbers, block):
    return {int(number) // block for number in numbers}


def test_order_never_changes_between_versions():
    # A run that is resumed with a later version must read what it would have read.
    batches = Batches(_Numbers(40), {}, 8, 12345, shuffle_block=2)
    assert [batches.numbers(step).tolist() for step in (0, 3, 4)] == [
        [0, 1, 8, 12, 17, 25, 29, 31],
        [3, 5, 15, 27, 30, 33, 36, 37],
        [6, 7, 18, 19, 34, 35, 38, 39],
    ]


def test_a_window_mixes_its_blocks_and_an_epoch_its_windows():
    order = BlockOrder(10_000, 10, seed=3)
    window = 10 * WINDOW_BLOCKS
    first = [order.numbers(0, np.array([place])).item() for place in range(window)]
    assert len(blocks_of(first, 10)) == WINDOW_BLOCKS
    assert len(set(first)) == window
    # By chance, one of ten records is followed by one of its block.
    assert np.mean(np.diff(np.array(first) // 10) == 0) < 0.2
    assert len(blocks_of(first[:WINDOW_BLOCKS], 10)) > WINDOW_BLOCKS / 3
    # The blocks come from all over the files.
    assert min(first) < 2_500 and max(first) > 7_500
    other = order.numbers(1, np.arange(window))
    assert blocks_of(other, 10) != blocks_of(first, 10)


@pytest.mark.parametrize("count", [4096, 4099])
def test_each_block_is_read_once_an_epoch_in_one_piece(count):
    records = _Numbers(count)
    batches = Batches(records, {}, 32, 7, shuffle_block=16)
    for step in range(count // 32):
        numbers = batches.numbers(step)
        assert batches._read(numbers) == [b"%d" % number for number in numbers]
    read = [number for each in records.ranges for number in range(*each)]
    assert sorted(read) == sorted(set(read))
    assert len(read) > 0.95 * count
    assert all(start % 16 == 0 for start, _ in records.ranges)


@pytest.mark.parametrize("num_workers", [2, 4])
def test_each_worker_reads_a_part_of_the_blocks(num_workers):
    count, size = 20_000, 256
    order = Batches(_Numbers(count), {}, size, 7, shuffle_block=40)
    share = size // num_workers
    for worker in range(num_workers):
        records = _Numbers(count)
        reader = BlockReader(records.read, count, 40)
        for step in range(count // size):
            numbers = order.numbers(step)[worker * share : (worker + 1) * share]
            assert reader(numbers) == [b"%d" % number for number in numbers]
        read = sum(end - start for start, end in records.ranges)
        assert read < 1.7 * count / num_workers


def test_blocks_of_windows_that_are_over_are_let_go():
    block, count, alive = 4, 4 * WINDOW_BLOCKS * 10, set()

    class Record(bytes):
        """A record that says how long it is in memory."""

        def __init__(self, _):
            alive.add(id(self))

        def __del__(self):
            alive.remove(id(self))

    def read(numbers):
        return [Record(b"%d" % number) for number in numbers]

    reader = BlockReader(read, count, block)
    batches = Batches(_Numbers(count), {}, 8, 7, shuffle_block=block)
    for step in range(count // 8):
        assert reader(batches.numbers(step)) == [b"%d" % each for each in batches.numbers(step)]
        assert len(alive) <= 2 * WINDOW_BLOCKS * block

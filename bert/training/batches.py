"""The order in which training and evaluation read records, and the batches of it.

Where a single random read is slow, as on disks and in object stores, training reads blocks of
consecutive records: the blocks of an epoch are shuffled, and then the records of each window of
some blocks.
"""

import copy
import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import tensorflow as tf

from bert.network.lengths import round_up_to_train
from bert.training.records import Feature, Records

# Batches whose records are sorted by length together: enough for hardly any padding, and few enough
# that batches differ between epochs.
_POOL_BATCHES = 50
# Blocks of a window, whose records are shuffled together.
WINDOW_BLOCKS = 16


# For functions that data sets map and AutoGraph need not convert.
as_it_is = tf.autograph.experimental.do_not_convert


def read_ahead(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Returns the dataset with prefetching."""
    options = tf.data.Options()
    # The thread that tunes a pipeline sleeps for up to a minute, which delays its end.
    options.autotune.enabled = False
    return dataset.prefetch(2).with_options(options)


class Batches:
    """Batches of records in an order that is a function of `seed` and the step alone.

    With a seed, for training, each epoch is a permutation of all records, and batches may contain
    records of two epochs. Without a seed, for evaluation, all records come once and in order, and
    the last batch may be smaller.

    Given lengths, the records of a batch have about the same length. In training, the permutation
    of each epoch is split into pools, each pool is sorted by length and split into batches, and the
    batches are shuffled. In evaluation, all records are sorted; see `numbers` for their order.

    Given a block, training reads blocks of consecutive records, as this module describes.

    Args:
      records: The records.
      features: The features of every record, which are checked when it is read.
      batch_size: Records per step, over all replicas.
      seed: Seed of the permutations, or None.
      lengths: Length of each record in tokens, or None.
      shuffle_block: Records of a block that are read together, where there are no lengths; 0 for
        reading records one by one.
      trim: Whether to remove the padding that all sequences of a batch share. This changes no
        result, up to rounding and dropout masks.
    """

    def __init__(
        self,
        records: Records,
        features: Mapping[str, Feature],
        batch_size: int,
        seed: int | None = None,
        *,
        lengths: np.ndarray | None = None,
        shuffle_block: int = 0,
        trim: bool = False,
    ) -> None:
        assert not shuffle_block or lengths is None
        self.records = records
        self.features = features
        self.batch_size = batch_size
        self.seed = seed
        self.lengths = lengths
        self.trim = trim
        # The batches of `every`.
        self._every, self._first = 1, 0
        self._permuted = functools.lru_cache(maxsize=2)(self._permutation)
        self._epoch_numbers = self._permuted_numbers
        self._block = min(shuffle_block, len(records)) if seed is not None else 0
        if seed is not None and self._block:
            self._epoch_numbers = BlockOrder(len(records), self._block, seed).numbers

    def _permutation(self, epoch: int) -> np.ndarray:
        assert self.seed is not None
        # RandomState, because numpy promises that its stream never changes.
        rng = np.random.RandomState([self.seed, epoch])
        count = len(self.records)
        order = np.arange(count, dtype=np.uint32 if count <= 1 << 32 else np.int64)
        rng.shuffle(order)
        if self.lengths is None:
            return order
        # The last epoch's last batch is completed first; this epoch's last one may stay incomplete.
        start = min(-epoch * len(order) % self.batch_size, len(order))
        end = len(order) - (len(order) - start) % self.batch_size
        size = self.batch_size * _POOL_BATCHES
        pools = [order[first : min(first + size, end)] for first in range(start, end, size)]
        by_length = [pool[np.argsort(self.lengths[pool], kind="stable")] for pool in pools]
        batches = np.concatenate([order[:0], *by_length]).reshape(-1, self.batch_size)
        return np.concatenate([order[:start], rng.permutation(batches).ravel(), order[end:]])

    def _permuted_numbers(self, epoch: int, places: np.ndarray) -> np.ndarray:
        return self._permuted(epoch)[places]

    @functools.cached_property
    def _evaluation_order(self) -> np.ndarray:
        if self.lengths is None:
            return np.arange(len(self.records))
        return np.argsort(self.lengths, kind="stable")

    @property
    def num_batches(self) -> int:
        """The number of batches of one pass, the last one included."""
        return len(range(self._first, -(-len(self.records) // self.batch_size), self._every))

    def every(self, count: int, first: int) -> "Batches":
        """Returns every `count`-th of these batches, from number `first` on."""
        part = copy.copy(self)
        part._every, part._first = self._every * count, self._first + self._every * first
        return part

    def numbers(self, step: int) -> np.ndarray:
        """Returns the numbers of the records that the step reads."""
        start = (self._first + step * self._every) * self.batch_size
        if self.seed is None:
            return self._evaluation_order[start : start + self.batch_size]
        epochs, places = np.divmod(np.arange(start, start + self.batch_size), len(self.records))
        return np.concatenate(
            [self._epoch_numbers(int(e), places[epochs == e]) for e in np.unique(epochs)]
        )

    def epochs(self, step: int) -> np.ndarray:
        """Returns the epoch, counted from 0, of each record that the step reads."""
        start = (self._first + step * self._every) * self.batch_size
        return np.arange(start, start + len(self.numbers(step))) // len(self.records)

    @functools.cached_property
    def _read(self) -> Callable[[np.ndarray], list[bytes]]:
        if self._block:
            return BlockReader(self.records.read, len(self.records), self._block)
        return self.records.read

    def serialized(self, step: int) -> list[bytes]:
        """Returns the records that the step reads."""
        return self.records.read(self.numbers(step))

    @property
    def signature(self) -> dict[str, tf.TensorSpec]:
        """The shapes and dtypes of a batch, None where batches differ."""
        # In training, all batches are of one size.
        size = self.batch_size if self.seed is not None else None
        specs = {}
        for name, feature in self.features.items():
            length = feature.length // max(feature.rows, 1)
            varies = self.trim and feature.per_token
            shape = [size, *([feature.rows] if feature.rows else []), None if varies else length]
            dtype = tf.float32 if feature.limit is None else tf.int32
            specs[name] = tf.TensorSpec(shape, dtype, name=name)
        return specs

    def iterate(
        self, first_step: int, end_step: int, strategy: tf.distribute.Strategy | None = None
    ) -> Iterator[dict[str, tf.Tensor]]:
        """Yields the batch of each step in [first_step, end_step). Integers are int32.

        With a strategy, for `strategy.run`: each replica gets its share of `batch_size` records.

        Raises:
          ValueError: where a record does not fit `features`.
        """

        def dataset(context: tf.distribute.InputContext) -> tf.data.Dataset:
            return self._dataset(context, first_step, end_step)

        if strategy is None:
            iterator = iter(dataset(tf.distribute.InputContext()))
        else:
            iterator = iter(strategy.distribute_datasets_from_function(dataset))
        for step in range(first_step, end_step):
            try:
                batch = next(iterator)
            # A message of TensorFlow's may quote bytes that are no text.
            except (tf.errors.OpError, UnicodeDecodeError):
                self.records.check(self.numbers(step), self.features)
                raise
            yield batch

    def _dataset(
        self, context: tf.distribute.InputContext, first_step: int, end_step: int
    ) -> tf.data.Dataset:
        replicas = context.num_replicas_in_sync
        here = replicas // context.num_input_pipelines
        share = context.get_per_replica_batch_size(self.batch_size)

        def read(index: np.int64) -> tuple[np.ndarray, np.ndarray]:
            step, replica = divmod(int(index), here)
            start = (context.input_pipeline_id * here + replica) * share
            part = slice(start, start + share)
            numbers = self.numbers(first_step + step)[part]
            visits = np.stack([self.epochs(first_step + step)[part], numbers], axis=1)
            return np.array(self._read(numbers), object), visits.astype(np.int64)

        indices = tf.data.Dataset.range((end_step - first_step) * here)
        read_parts = indices.map(
            as_it_is(lambda index: tf.numpy_function(read, [index], (tf.string, tf.int64)))
        )
        parsed = read_parts.map(
            as_it_is(lambda serialized, visits: self.finish(self.parse(serialized), visits))
        )
        return read_ahead(parsed)

    def finish(self, batch: dict[str, tf.Tensor], visits: tf.Tensor) -> dict[str, tf.Tensor]:
        """Returns the batch to yield for a parsed one; here, the same.

        Args:
          batch: A batch as `parse` returns it.
          visits: The epoch and the number of each record, int64 [B, 2].
        """
        del visits
        return batch

    def parse(self, serialized: tf.Tensor) -> dict[str, tf.Tensor]:
        """Returns the batch of serialized records, a string tensor [B], each checked."""
        parsed = tf.io.parse_example(
            tf.ensure_shape(serialized, [None]),
            {
                name: tf.io.FixedLenFeature([feature.length], feature.dtype)
                for name, feature in self.features.items()
            },
        )
        for name, feature in self.features.items():
            inside = tf.reduce_all(feature.allows(parsed[name]))
            with tf.control_dependencies([tf.debugging.Assert(inside, [name])]):
                dtype = tf.float32 if feature.limit is None else tf.int32
                parsed[name] = tf.cast(tf.identity(parsed[name]), dtype)
            if feature.rows:
                shape = [-1, feature.rows, feature.length // feature.rows]
                parsed[name] = tf.reshape(parsed[name], shape)
        return self._trimmed(parsed) if self.trim else parsed

    def _trimmed(self, parsed: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        mask = parsed["input_mask"]
        positions = tf.range(1, tf.shape(mask)[-1] + 1)
        # At least 1, for the share of a replica that has no records.
        longest = tf.maximum(tf.reduce_max(mask * positions), 1)
        longest = round_up_to_train(longest)
        return {
            name: values[..., :longest] if self.features[name].per_token else values
            for name, values in parsed.items()
        }


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
        # The cache is ordered by last use.
        self._cached |= found
        # The previous window may still be in use.
        for block in list(self._cached)[: -2 * WINDOW_BLOCKS]:
            del self._cached[block]
        return found

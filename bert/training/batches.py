"""Records: their features, their files, and the order in which training reads them.

A record is a serialized `tf.train.Example` in a TFRecord file (original: run_pretraining.py).
"""

import copy
import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from google.protobuf.message import DecodeError

from bert.files.machine import allow_open_files
from bert.files.paths import is_remote
from bert.files.processes import in_threads
from bert.files.records import encode_examples, write_records
from bert.log import logger
from bert.options import Message, MessageError, Option
from bert.training.blocks import BlockOrder, BlockReader
from bert.training.lengths import round_up
from bert.training.record_file import RecordFile

# Files that may be open besides those of records.
_OTHER_FILES = 256

# The option that sets the length of sequences.
LENGTH = Option("max_seq_length")


@dataclasses.dataclass(frozen=True)
class Feature:
    """The length, type and range of a feature of every record.

    Attributes:
      length: The number of values.
      length_source: The option or the text that sets the length, for messages.
      limit: Exclusive upper bound of the values, which are integers from 0; None for floats, which
        are finite.
      limit_source: The option, message or text that sets the limit, for messages.
      per_token: Whether the values belong to tokens, padding included, so that a batch may be
        trimmed to its longest sequence.
      rows: The number of equal rows that the values are split into, such as one for each choice;
        0 for none.
      is_weight: Whether the values are floats from 0.
    """

    length: int
    length_source: Option | str
    limit: int | None = None
    limit_source: Option | Message | str = ""
    per_token: bool = False
    rows: int = 0
    is_weight: bool = False

    @property
    def dtype(self) -> str:
        return "float32" if self.limit is None else "int64"

    @property
    def range(self) -> Message:
        """The range of the values, for messages."""
        if self.limit is None:
            return Message("finite" + " and at least 0" * self.is_weight)
        return Message("at least 0 and less than %d, as %s says", self.limit, self.limit_source)

    def allows(self, values: Any) -> Any:
        """Returns which values, of a tensor or an array, are in the range."""
        if self.limit is not None:
            return (values >= 0) & (values < self.limit)
        finite = tf.math.is_finite(values)
        return finite & (values >= 0) if self.is_weight else finite


def encoder_features(
    *, max_seq_length: int, vocab_size: int, type_vocab_size: int, rows: int = 0
) -> dict[str, Feature]:
    """Returns the features that the encoder reads; `rows` sequences each, unless 0."""

    def feature(limit: int, limit_source: Message | str) -> Feature:
        length = max_seq_length * max(rows, 1)
        return Feature(length, LENGTH, limit, limit_source, per_token=True, rows=rows)

    def size(name: str) -> Message:
        return Message("`%s` in %s", name, Option("bert_config_file"))

    return {
        "input_ids": feature(vocab_size, size("vocab_size")),
        "input_mask": feature(2, "a mask"),
        "segment_ids": feature(type_vocab_size, size("type_vocab_size")),
    }


def check_record(serialized: bytes, features: Mapping[str, Feature], place: str) -> None:
    """Checks that a record has the features.

    Raises:
      ValueError: naming the record, the feature, its values and the option to look at.
    """
    try:
        stored = tf.train.Example.FromString(serialized).features.feature
    except DecodeError as error:
        raise ValueError(
            f"{place} must be a tf.train.Example. It is {len(serialized)} bytes of something else."
        ) from error
    for name, feature in features.items():
        if name not in stored:
            raise ValueError(f"{place} must have the feature `{name}`. It has {sorted(stored)}.")
        kind = "float_list" if feature.limit is None else "int64_list"
        values = getattr(stored[name], kind).value
        if len(values) != feature.length:
            raise MessageError(
                "%s: `%s` must have %d values of %s, as %s says. It has %d; make the data and run "
                "with the same options.",
                *(place, name, feature.length, kind, feature.length_source, len(values)),
            )
        array = np.asarray(values)
        wrong = array[~np.asarray(feature.allows(array))]
        if len(wrong):
            hint = "; was the data made for another model?" if feature.limit is not None else "."
            raise MessageError(
                "%s: `%s` must be %s. It has %s%s", place, name, feature.range, wrong[0], hint
            )


class Records:
    """The records of some TFRecord files, with random access.

    Args:
      files: Paths that `tf.io.gfile` reads.

    Raises:
      ValueError: where a file is damaged, or there is no record at all.
    """

    def __init__(self, files: Sequence[str]) -> None:
        # The files of evaluation stay open beside those of training.
        allow_open_files(2 * len(files) + _OTHER_FILES)
        self.files = []
        for file in in_threads(RecordFile, files):
            self.files.append(file)
            logger.info("%s holds %d records.", file.path, len(file))
        self._first = np.cumsum([0, *map(len, self.files)])
        if not len(self):
            raise ValueError(f"The input files must hold records. There are none in {[*files]}.")

    def leave_indexes(self) -> None:
        """Writes an index beside each file that has no valid one, for the next start."""
        for file in self.files:
            file.leave_index()

    def __len__(self) -> int:
        return int(self._first[-1])

    def __getitem__(self, number: int) -> bytes:
        return self.read([number])[0]

    def read(self, numbers: Sequence[int] | np.ndarray) -> list[bytes]:
        """Returns the records with these numbers; consecutive records are read at once.

        Raises:
          ValueError: where a record cannot be read or is damaged.
        """
        if not len(numbers):
            return []
        wanted, places = np.unique(numbers, return_inverse=True)
        files = np.searchsorted(self._first, wanted, side="right") - 1
        cuts = np.flatnonzero((np.diff(wanted) > 1) | (np.diff(files) > 0)) + 1
        first = np.concatenate([[0], cuts])
        inside = wanted - self._first[files]
        ranges = zip(
            [self.files[index] for index in files[first].tolist()],
            inside[first].tolist(),
            (inside[np.append(cuts, len(wanted)) - 1] + 1).tolist(),
            strict=True,
        )
        # A remote file system takes most of the time until it begins to answer.
        waits = any(is_remote(file.path) for file in self.files)
        apply = in_threads if waits else map
        read = apply(lambda part: part[0].read(*part[1:]), ranges)
        records = list(itertools.chain.from_iterable(read))
        return [records[place] for place in places.tolist()]

    def place(self, number: int) -> str:
        """Returns the place of a record for messages; records of a file count from 0."""
        index = int(np.searchsorted(self._first, number, side="right")) - 1
        return f"Record {number - self._first[index]} of {self.files[index].path!r}"

    def check_first(self, features: Mapping[str, Feature]) -> None:
        """Checks the first record of every file."""
        self.check(self._first[:-1][np.diff(self._first) > 0], features)

    def check(self, numbers: np.ndarray, features: Mapping[str, Feature]) -> None:
        """Checks some records, as `check_record`."""
        for number, record in zip(numbers.tolist(), self.read(numbers), strict=True):
            check_record(record, features, self.place(number))


# Batches whose records are sorted by length together: enough for hardly any padding, and few enough
# that batches differ between epochs.
_POOL_BATCHES = 50


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

    Given a block, training reads blocks of consecutive records, as `blocks` describes.

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
        longest = round_up(longest)
        return {
            name: values[..., :longest] if self.features[name].per_token else values
            for name, values in parsed.items()
        }


def write_examples(path: str, arrays: Mapping[str, np.ndarray]) -> None:
    """Writes one record per row of the arrays, [N, ...] each, to a TFRecord file."""
    rows = {name: values.reshape(len(values), -1) for name, values in arrays.items()}
    count = len(rows["input_ids"])
    with write_records([path]) as (writer,):
        for start in range(0, count, 1000):
            part = {name: values[start : start + 1000] for name, values in rows.items()}
            for record in encode_examples(part):
                writer.write(record)

"""Functions that return batches, as the original's `input_fn_builder`s made them."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from bert.files.paths import is_file
from bert.log import logger
from bert.training.records import Feature, Records

Tensor = Any
InputFn = Callable[[Mapping[str, Any]], tf.data.Dataset]

_LARGEST = 1 << 31


def integers(length: int, length_source: str) -> Feature:
    """Returns a feature of `length` integers of 32 bits; `length_source` is for messages."""
    return Feature(length, length_source, _LARGEST, "int32")


def from_records(
    input_files: Sequence[str],
    features: Mapping[str, Feature],
    scalars: Sequence[str],
    *,
    is_training: bool,
    drop_remainder: bool,
) -> InputFn:
    """Returns a function that reads the records of files in batches.

    The function takes a mapping with `batch_size`, B, and returns a dataset of dictionaries of the
    features, int32 or float32 [B, length]. In training the dataset repeats forever, each epoch in
    another order; elsewhere it has all records once, in order.

    Args:
      input_files: TFRecord files.
      features: The features of every record by name.
      scalars: Names of features of shape [B].
      is_training: Whether to shuffle and repeat.
      drop_remainder: Whether to leave out a last batch that is smaller.

    Raises:
      ValueError: by the function, where the files do not hold such records.
    """

    def input_fn(params: Mapping[str, Any]) -> tf.data.Dataset:
        batch_size = _batch_size(params)
        for path in input_files:
            if not is_file(path):
                raise ValueError(f"`input_file` must exist. Received {path!r}.")
        records = Records(list(input_files))
        records.check_first(features)
        parsed = {
            name: tf.io.FixedLenFeature([] if name in scalars else [feature.length], feature.dtype)
            for name, feature in features.items()
        }
        dataset = tf.data.TFRecordDataset(list(input_files))
        dataset = batches(dataset, len(records), batch_size, is_training, drop_remainder)
        return dataset.map(lambda record: decode(record, parsed)).prefetch(tf.data.AUTOTUNE)

    return input_fn


def decode(serialized: Tensor, features: Mapping[str, Any]) -> dict[str, Tensor]:
    """Returns the features of a record or of a batch of them, integers as int32."""
    parse = tf.io.parse_example if serialized.shape.rank else tf.io.parse_single_example
    values = parse(serialized, features)
    return {
        name: tf.cast(value, tf.int32) if value.dtype == tf.int64 else value
        for name, value in values.items()
    }


def from_arrays(
    arrays: Mapping[str, np.ndarray], *, is_training: bool, drop_remainder: bool
) -> InputFn:
    """Returns a function that returns rows of arrays in batches, as `from_records` does."""

    def input_fn(params: Mapping[str, Any]) -> tf.data.Dataset:
        dataset = tf.data.Dataset.from_tensor_slices(dict(arrays))
        count = len(next(iter(arrays.values())))
        return batches(dataset, count, _batch_size(params), is_training, drop_remainder)

    return input_fn


def _batch_size(params: Mapping[str, Any]) -> int:
    batch_size = params.get("batch_size")
    if not isinstance(batch_size, int | np.integer) or batch_size < 1:
        raise ValueError(f'`params["batch_size"]` must be at least 1. Received {batch_size!r}.')
    return int(batch_size)


def batches(
    dataset: tf.data.Dataset, count: int, batch_size: int, is_training: bool, drop_remainder: bool
) -> tf.data.Dataset:
    """Returns `count` examples in batches; in training, shuffled and repeated."""
    if is_training:
        # Departs: the original repeats first and then shuffles 100 examples at a time, so that
        # epochs mix and data sorted by label stay nearly sorted.
        dataset = dataset.shuffle(count).repeat()
    elif drop_remainder and count % batch_size:
        logger.warning(
            "`drop_remainder` leaves out %d of %d examples, which do not fill a batch of %d.",
            count % batch_size,
            count,
            batch_size,
        )
    return dataset.batch(batch_size, drop_remainder=drop_remainder)


def check_lengths(features: Sequence[Any], names: Sequence[str], seq_length: int) -> None:
    """Checks that there are features, all of `seq_length`."""
    if not len(features):
        raise ValueError("`features` must hold at least one example. Received none.")
    for number, example in enumerate(features):
        lengths = {name: len(getattr(example, name)) for name in names}
        if set(lengths.values()) != {seq_length}:
            raise ValueError(
                f"`features` must have `seq_length` = {seq_length} values each. Received "
                f"{lengths} for example {number}, counted from 0."
            )

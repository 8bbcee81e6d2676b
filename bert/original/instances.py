"""The names of the original's create_pretraining_data.py that the script of today does not need.

Code written for it finds them as `create_pretraining_data.<name>`.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple


class MaskedLmInstance(NamedTuple):
    """A masked token: its position, and what stood there."""

    index: int  # type: ignore[assignment]  # hides the method of tuples, as in the original
    label: str


def create_int_feature(values: Sequence[int]) -> Any:
    """Returns a `tf.train.Feature` of integers."""
    # Only who makes records of his own waits for TensorFlow.
    import tensorflow as tf  # noqa: PLC0415

    return tf.train.Feature(int64_list=tf.train.Int64List(value=list(values)))


def create_float_feature(values: Sequence[float]) -> Any:
    """Returns a `tf.train.Feature` of floats."""
    import tensorflow as tf  # noqa: PLC0415

    return tf.train.Feature(float_list=tf.train.FloatList(value=list(values)))

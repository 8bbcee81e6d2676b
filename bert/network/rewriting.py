"""TensorFlow's rewriting of the graph of a training step."""

import contextlib
from collections.abc import Iterator

import tensorflow as tf


@contextlib.contextmanager
def without_remapping() -> Iterator[None]:
    """Disables TensorFlow's "remapping" in functions that are called within this context.

    Remapping joins operations whose intermediate results nobody reads, such as a matrix product
    with its bias and GELU. The gradient reads many of them; but nobody reads those of the first
    pass over a recomputed layer, which would then give other bits than a layer that is kept.
    """
    options = tf.config.optimizer.get_experimental_options()
    tf.config.optimizer.set_experimental_options({"remapping": False})
    try:
        yield
    finally:
        tf.config.optimizer.set_experimental_options({"remapping": options.get("remapping", True)})

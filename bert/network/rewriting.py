"""What TensorFlow may make of the graph of a training step."""

import contextlib
from collections.abc import Iterator

import tensorflow as tf


@contextlib.contextmanager
def without_remapping() -> Iterator[None]:
    """Within this context, functions that are called do not have operations joined by "remapping".

    It joins those between which nothing else is asked for, such as a matrix product with its bias
    and GELU. The gradient asks for much; but of a layer that is computed again for it, nothing is
    asked for in the first pass, which would so come to other bits than that of a layer that is
    kept.
    """
    options = tf.config.optimizer.get_experimental_options()
    tf.config.optimizer.set_experimental_options({"remapping": False})
    try:
        yield
    finally:
        tf.config.optimizer.set_experimental_options({"remapping": options.get("remapping", True)})

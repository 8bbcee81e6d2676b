"""What converters of models to other runtimes have in common."""

import contextlib
import logging
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

Tensor = Any
Arrays = Mapping[str, np.ndarray]
# From a model's inputs to its outputs, by name.
Runtime = Callable[[Arrays], dict[str, np.ndarray]]

# Those of the converters that write lines while they work.
_LOGGERS = ("", "tf2onnx")


def function_of(model: keras.Model) -> Any:
    """Returns a `tf.function` of a model's inputs, int32 of any size, in the order of their names.

    Args:
      model: Its inputs and outputs are dictionaries.
    """
    names = list(model.input)

    def call(*tensors: Tensor) -> dict[str, Tensor]:
        return model(dict(zip(names, tensors, strict=True)), training=False)

    specs = [tf.TensorSpec([None] * len(model.input[n].shape), tf.int32, name=n) for n in names]
    return tf.function(call, input_signature=specs, autograph=False)


@contextlib.contextmanager
def hushed() -> Iterator[None]:
    """Keeps what converters tell of their work from standard error; errors are raised all the same.

    TF_CPP_MIN_LOG_LEVEL=0 in the environment brings it back, as in `import_tensorflow`.
    """
    if os.environ.get("TF_CPP_MIN_LOG_LEVEL") == "0":
        yield
        return
    loggers = [logging.getLogger(name) for name in _LOGGERS]
    levels = [logger.level for logger in loggers]
    # MLIR writes to the file descriptor.
    stderr, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        yield
    finally:
        os.dup2(stderr, 2)
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
        os.close(stderr)
        os.close(nowhere)

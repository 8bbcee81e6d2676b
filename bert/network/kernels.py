"""Choice of the kernels of a model's layers by whoever trains it or predicts with it."""

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import keras

Replacement = tuple[keras.layers.Layer, str, Callable[..., Any]]

# Serves threads that trace graphs of one model.
_lock = threading.RLock()


def layers_of(model: keras.layers.Layer) -> list[keras.layers.Layer]:
    """Returns the model and all layers in it."""
    return model._flatten_layers()


@contextlib.contextmanager
def replaced(replacements: Iterable[Replacement]) -> Iterator[None]:
    """Replaces functions of layers within this context, in one thread at a time.

    Args:
      replacements: The layer, the name of its attribute and the function.
    """
    with _lock:
        before = []
        for layer, name, function in replacements:
            # Keras would track what is set as an attribute, which takes longer.
            attributes = vars(layer)
            before.append((attributes, name, attributes.get(name)))
            attributes[name] = function
        try:
            yield
        finally:
            for attributes, name, function in before:
                if function is None:
                    # The function is the class's.
                    del attributes[name]
                else:
                    attributes[name] = function

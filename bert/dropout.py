"""The numbers of dropout as functions of a seed, so that a resumed run drops out the same."""

import contextlib
import contextvars
import math
from collections.abc import Iterator
from typing import Any

import keras
from keras import ops

Tensor = Any

# The seed of the context `dropout_seed`, int32 [2]; None outside of any.
DROPOUT_SEED = contextvars.ContextVar[Tensor | None]("dropout_seed", default=None)


@contextlib.contextmanager
def dropout_seed(seed: Tensor) -> Iterator[None]:
    """Makes dropout a function of `seed` and each layer's path alone within this context.

    A training loop that derives the seed from its step can resume without changing any mask.
    Elsewhere dropout draws from Keras' own generators.

    Args:
      seed: int32 [2].
    """
    token = DROPOUT_SEED.set(seed)
    try:
        yield
    finally:
        DROPOUT_SEED.reset(token)


class _FixedSeed(keras.random.SeedGenerator):
    """A generator without state, which gives `keras.random` a fixed seed."""

    def __init__(self, seed: Tensor) -> None:
        self.seed = seed

    def next(self, ordered: bool = True) -> Tensor:
        return self.seed


def draw(inputs: Tensor, seed: Tensor) -> Tensor:
    """Returns a random int16 for each element of a tensor, by a seed, int32 [2]."""
    # Each draw of 32 bits serves two elements; 16 bits meet the rate to within 1e-5, also in half
    # precision, whose own numbers are too coarse.
    sizes = ops.shape(inputs)
    is_known = all(isinstance(size, int) for size in sizes)
    size = math.prod(sizes) if is_known else ops.size(inputs)
    drawn = keras.random.randint(
        ((size + 1) // 2, 1), -(2**31), 2**31 - 1, "int32", seed=_FixedSeed(seed)
    )
    numbers = ops.reshape(ops.view(drawn, "int16"), (-1,))[:size]
    return ops.reshape(numbers, ops.shape(inputs))

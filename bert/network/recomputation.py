"""Recomputation: a backward pass that keeps only the inputs of a layer."""

from collections.abc import Callable, Sequence
from typing import Any

import keras
from keras import ops

import modeling
from bert.dropout import DROPOUT_SEED, dropout_seed

Tensor = Any


def recompute(
    compute: Callable[[Tensor], Tensor], inputs: Tensor, dropouts: Sequence[modeling.Dropout]
) -> Tensor:
    """Returns `compute(inputs)`, which the backward pass computes again from `inputs`.

    Args:
      compute: A function of [B·S, H].
      inputs: [B·S, H].
      dropouts: A layer of dropout of each rate that `compute` uses.
    """
    seed = _mask_seed(dropouts)

    def seeded(inputs: Tensor) -> Tensor:
        if seed is None:
            return compute(inputs)
        # Adds 0, which only the values show. TensorFlow would find that masks of the seed alone are
        # the same in both passes, and keep them in between.
        zero = ops.cast(ops.sum(ops.abs(inputs[:1, :1])) < 0, "int32")
        with dropout_seed(seed + zero):
            return compute(inputs)

    return keras.remat(seeded)(inputs)


def _mask_seed(dropouts: Sequence[modeling.Dropout]) -> Tensor | None:
    """Returns a seed for all masks of a call, int32 [2]; None where nothing is dropped out.

    The context `dropout_seed` gives it; without a context, the generator of a layer.
    """
    generators = [dropout.seed_generator for dropout in dropouts if dropout.rate]
    seed = DROPOUT_SEED.get()
    if seed is None and generators:
        return ops.cast(generators[0].next(), "int32")
    return seed if generators else None

"""Chains of elementwise operations, compiled to one pass over memory forward and one backward.

TensorFlow runs each operation of a chain by itself, on tensors that leave the cache between.
"""

import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf

Tensor = Any

# Smaller tensors stay in the cache, where a kernel's start costs more than it saves.
_SMALLEST = 2**16


def fuse(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Returns the function, compiled where its tensors' shapes are known and large.

    The gradient computes the chain again from its arguments, the only tensors that are kept for it.

    Args:
      function: Takes tensors by place, of which the first is the largest, and constants by name;
        returns one tensor.
    """

    @functools.wraps(function)
    def fused(*tensors: Tensor, **constants: float) -> Tensor:
        tensors = tuple(map(tf.convert_to_tensor, tensors))
        # Where lengths differ from batch to batch, each would be compiled anew.
        is_known = all(tensor.shape.is_fully_defined() for tensor in tensors)
        if not is_known or tensors[0].shape.num_elements() < _SMALLEST:
            return function(*tensors, **constants)
        return _compiled(function, **constants)(*tensors)

    return fused


# One kernel serves all layers of a shape.
@functools.cache
def _compiled(function: Callable[..., Tensor], **constants: float) -> Callable[..., Tensor]:
    def chain(*tensors: Tensor) -> Tensor:
        # Half precision is rounded once, at the end; XLA takes long to round each operation.
        wide = [tf.cast(each, tf.float32) if each.dtype.is_floating else each for each in tensors]
        return tf.cast(function(*wide, **constants), tensors[0].dtype)

    forward = tf.function(chain, jit_compile=True, autograph=False)

    @functools.partial(tf.function, jit_compile=True, autograph=False)
    def backward(upstream: Tensor, *tensors: Tensor) -> list[Tensor]:
        sources = [tensor for tensor in tensors if tensor.dtype.is_floating]
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(sources)
            output = chain(*tensors)
        return tape.gradient(output, sources, upstream)

    @tf.custom_gradient
    def compiled(*tensors: Tensor) -> tuple[Tensor, Callable[[Tensor], list[Tensor | None]]]:
        def gradient(upstream: Tensor) -> list[Tensor | None]:
            gradients = iter(backward(upstream, *tensors))
            return [next(gradients) if each.dtype.is_floating else None for each in tensors]

        return forward(*tensors), gradient

    return compiled

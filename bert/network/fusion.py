"""Chains of elementwise operations, compiled to one pass over memory forward and one backward.

TensorFlow runs each operation of a chain by itself, on tensors that leave the cache between.
"""

import contextlib
import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

import modeling

Tensor = Any

# Smaller tensors stay in the cache, where a kernel's start costs more than it saves.
_SMALLEST = 2**16


def fused_chains(variables: Sequence[Tensor]) -> contextlib.AbstractContextManager[None]:
    """Returns a context in which the chains of a network with these variables are compiled.

    Elsewhere than on a CPU nothing was measured, and nothing is.
    """
    if not all("CPU" in variable.device for variable in variables):
        return contextlib.nullcontext()
    return modeling.computing(**_FORMS)


def _fuse(function: Callable[..., Tensor]) -> Callable[..., Tensor | None]:
    """Returns the function, compiled where its tensors' shapes are known and large, else for None.

    The gradient computes the chain again from its arguments, the only tensors that are kept for it.

    Args:
      function: Takes tensors by place, of which the first is the largest, and constants by name;
        returns one tensor.
    """

    def fused(*tensors: Tensor, **constants: float) -> Tensor | None:
        tensors = tuple(map(tf.convert_to_tensor, tensors))
        # Where lengths differ from batch to batch, each would be compiled anew.
        is_known = all(tensor.shape.is_fully_defined() for tensor in tensors)
        if not is_known or tensors[0].shape.num_elements() < _SMALLEST:
            return None
        return _compiled(function, **constants)(*tensors)

    return fused


_CHAINS = (modeling.gelu, modeling.gelu_erf, modeling.drop)
_FORMS = {each.__name__: _fuse(inspect.unwrap(each)) for each in _CHAINS}


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

"""Chains of elementwise operations, compiled to one pass over memory forward and one backward.

TensorFlow runs each operation of a chain separately, on tensors that leave the cache in between.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import keras
import tensorflow as tf

import modeling
from bert.network.kernels import Replacement, layers_of, replaced

Tensor = Any

# Smaller tensors stay in the cache, where starting a kernel costs more than it saves.
_SMALLEST = 2**16


def fused_chains(model: keras.layers.Layer) -> contextlib.AbstractContextManager[None]:
    """Returns a context in which the chains of a model are compiled, for training.

    The compiled chains were measured on CPUs alone; models on other devices stay as they are.
    """
    if not all("CPU" in variable.value.device for variable in model.trainable_variables):
        return contextlib.nullcontext()
    return replaced(_replacements(model))


def _replacements(model: keras.layers.Layer) -> Iterator[Replacement]:
    for layer in layers_of(model):
        if isinstance(layer, modeling.Dropout):
            yield layer, "drop", fused_drop
        elif getattr(layer, "activation", None) in _ACTIVATIONS:
            yield layer, "activation", _ACTIVATIONS[layer.activation]


def _fuse(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Returns the function, compiled for tensors whose shapes are known and large.

    The gradient computes the chain again from its arguments, the only tensors that are kept for it.

    Args:
      function: Takes positional tensors, of which the first is the largest, and constants by name;
        returns one tensor.
    """

    def fused(*arguments: Tensor, **constants: float) -> Tensor:
        tensors = tuple(map(tf.convert_to_tensor, arguments))
        # Where lengths differ from batch to batch, every length would be compiled.
        is_known = all(tensor.shape.is_fully_defined() for tensor in tensors)
        if not is_known or tensors[0].shape.num_elements() < _SMALLEST:
            return function(*arguments, **constants)
        return _compiled(function, **constants)(*tensors)

    return fused


fused_gelu = _fuse(modeling.gelu)
fused_gelu_erf = _fuse(modeling.gelu_erf)
fused_drop = _fuse(modeling.drop)
_ACTIVATIONS = {modeling.gelu: fused_gelu, modeling.gelu_erf: fused_gelu_erf}


# One kernel serves all layers of a shape.
@functools.cache
def _compiled(function: Callable[..., Tensor], **constants: float) -> Callable[..., Tensor]:
    def chain(*tensors: Tensor) -> Tensor:
        # Half precision is rounded once, at the end; XLA takes long to round each operation.
        wide = [
            tf.cast(tensor, tf.float32) if tensor.dtype.is_floating else tensor
            for tensor in tensors
        ]
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
            return [next(gradients) if tensor.dtype.is_floating else None for tensor in tensors]

        return forward(*tensors), gradient

    return compiled

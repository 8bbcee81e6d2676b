"""Faster kernels for a model's layers, chosen by whoever trains it or predicts with it.

Dimension key: `R` rows, `H` hidden.
"""

import contextlib
import functools
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import keras
import tensorflow as tf

import modeling

Tensor = Any

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


def infer(model: keras.Model, inputs: Any) -> Any:
    """Returns the outputs of `model(inputs, training=False)` within rounding.

    The graph suits the machine that traces it: cuDNN has no normalization with this epsilon.

    Args:
      model: A model of layers of `modeling`.
      inputs: The inputs of the model.
    """
    if tf.executing_eagerly() or not _has_kernel():
        return model(inputs, training=False)
    norms = [layer for layer in layers_of(model) if isinstance(layer, modeling.LayerNorm)]
    with replaced(
        (norm, "normalize", functools.partial(_fused_layer_norm, norm)) for norm in norms
    ):
        return model(inputs, training=False)


def _fused_layer_norm(layer: modeling.LayerNorm, inputs: Tensor) -> Tensor:
    """Normalizes each row, [R, H], in a form for which oneDNN has one kernel.

    TensorFlow's optimizer of graphs replaces these operations by that kernel: batch normalization
    in training, of a batch whose channels are the rows, then scale and shift. The kernel passes
    over the activations once, where each of Keras' nine operations does so.

    Where the number of rows is known, the optimizer folds the pattern that it looks for; there, and
    for other types, Keras' own form is used.
    """
    if inputs.dtype not in (tf.float32, tf.bfloat16) or inputs.shape[0] is not None:
        return modeling.LayerNorm.normalize(layer, inputs)
    rows, width = tf.shape(inputs)[0], inputs.shape[1]
    none = tf.constant([], tf.float32)
    normalized = tf.raw_ops.FusedBatchNormV3(
        x=tf.reshape(inputs, [1, rows, width, 1]),
        scale=tf.fill([rows], 1.0),
        offset=tf.fill([rows], 0.0),
        mean=none,
        variance=none,
        epsilon=modeling.LAYER_NORM_EPSILON,
        data_format="NCHW",
        is_training=True,
    ).y
    normalized = tf.reshape(normalized, tf.shape(inputs))
    gamma, beta = (tf.cast(weight, inputs.dtype) for weight in (layer.gamma, layer.beta))
    return beta + normalized * gamma


@functools.cache
def _has_kernel() -> bool:
    if tf.config.list_physical_devices("GPU"):
        return False
    # TensorFlow has no public name for it.
    try:
        from tensorflow.python.util import _pywrap_util_port  # noqa: PLC0415
    except ImportError:
        return False
    return bool(_pywrap_util_port.IsMklEnabled())

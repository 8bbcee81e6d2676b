"""Faster kernels for a model's layers, chosen by whoever trains it or predicts with it.

Dimension key: `R` rows, `H` hidden.
"""

import contextlib
import functools
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import modeling
from bert.dropout import DROPOUT_SEED, dropout_seed

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
    return replaced(_replacements(model)) if is_on("CPU", model) else contextlib.nullcontext()


def is_on(kind: str, model: keras.layers.Layer) -> bool:
    """Returns whether devices of a kind, CPU or GPU, hold all weights of a model."""
    return all(kind in variable.value.device for variable in model.trainable_variables)


class CompiledLayers:
    """The Transformer layers of a model, compiled by XLA for training.

    All layers of an encoder share what is compiled, so that it takes as long as for one. Operations
    one by one keep a GPU waiting for the next one.

    Args:
      model: The model.
    """

    def __init__(self, model: keras.layers.Layer) -> None:
        self._stacks = [
            (encoder.transformer_layers, _compile_layer(encoder.transformer_layers[0]))
            for encoder in layers_of(model)
            # A compiled layer would keep what is to be recomputed.
            if isinstance(encoder, modeling.Encoder) and not encoder.gradient_checkpointing
        ]

    def used(self) -> contextlib.AbstractContextManager[None]:
        """Returns a context in which the compiled layers are used, within `dropout_seed`."""
        return replaced(
            (layer, "call", functools.partial(_call_compiled, layer, compiled, _values(layer)))
            for layers, compiled in self._stacks
            for layer in layers
        )


def _values(layer: keras.layers.Layer) -> list[Any]:
    """Returns the variables of a layer, not rounded as they are within its call."""
    return [weight.value for weight in layer.weights]


def _dropouts_of(layer: keras.layers.Layer) -> list[modeling.Dropout]:
    return [each for each in layers_of(layer) if isinstance(each, modeling.Dropout)]


def _compile_layer(template: modeling.TransformerLayer) -> Callable[..., Tensor]:
    """Returns a function that calls any layer like `template`, given its weights and salts."""

    def call(
        weights: list[Tensor], salts: list[Tensor], seed: Tensor, inputs: Sequence[Tensor]
    ) -> Tensor:
        salted = [
            (dropout, "salt", functools.partial(tf.identity, salt))
            for dropout, salt in zip(_dropouts_of(template), salts, strict=True)
        ]
        queries, tokens, mask = inputs
        given = zip(template.weights, weights, strict=True)
        with (
            replaced([*_replacements(template), *salted]),
            keras.StatelessScope(state_mapping=given),
            dropout_seed(seed),
        ):
            return modeling.TransformerLayer.call(template, queries, tokens, mask, training=True)

    return tf.function(call, jit_compile=True, autograph=False)


def _call_compiled(
    layer: modeling.TransformerLayer,
    compiled: Callable[..., Tensor],
    variables: list[Any],
    queries: Tensor,
    inputs: Tensor,
    input_mask: Tensor,
    training: bool | None = False,
) -> Tensor:
    """Calls a layer; in training, by its compiled function."""
    if not training:
        return modeling.TransformerLayer.call(layer, queries, inputs, input_mask, training)
    weights = [tf.convert_to_tensor(variable) for variable in variables]
    salts = [tf.constant(dropout.salt(), tf.int32) for dropout in _dropouts_of(layer)]
    return compiled(weights, salts, DROPOUT_SEED.get(), (queries, inputs, input_mask))


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


def check_finite(values: np.ndarray) -> np.ndarray:
    """Returns the values that a model has computed.

    Raises:
      ValueError: where one is infinite or not a number.
    """
    # An exported model may answer with texts.
    if values.dtype != object and not np.isfinite(values).all():
        raise ValueError(
            "The outputs of the model must be finite. Received infinity or NaN. If it computes in "
            "float16, large values overflow: give another precision. Otherwise its weights are "
            "broken."
        )
    return values

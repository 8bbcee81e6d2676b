"""The forward pass of a model that is not trained, as fast as TensorFlow's kernels make it.

Dimension key: `R` rows, `H` hidden.
"""

import functools
from typing import Any

import keras
import tensorflow as tf

import modeling
from bert.network.kernels import layers_of, replaced

Tensor = Any


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

"""The forward pass of a model that is not trained, as fast as TensorFlow's kernels make it.

Dimension key: `R` rows, `H` hidden.
"""

import functools
from typing import Any

import keras
import tensorflow as tf

import modeling

Tensor = Any


def infer(model: keras.Model, inputs: Any) -> Any:
    """Returns a model's outputs, as `model(inputs, training=False)` does within rounding.

    The graph is for the machine that makes it: cuDNN has no normalization of this epsilon.

    Args:
      model: Of layers of `modeling`.
      inputs: As the model takes them.
    """
    with modeling.computing(layer_norm=_fused_layer_norm):
        return model(inputs, training=False)


def _fused_layer_norm(layer: modeling.LayerNorm, inputs: Tensor) -> Tensor | None:
    """Normalizes each row, [R, H], in a form for which oneDNN has one kernel.

    TensorFlow's optimizer of graphs puts that kernel in the place of these operations: batch
    normalization in training, of a batch whose channels are the rows, then scale and shift. It
    passes over the activations once where Keras' nine operations do so each.

    Where the number of rows is known, the optimizer folds what it looks for; other types, eager
    tensors, GPUs and TensorFlow without oneDNN are served better by Keras, too: for them there is
    None.
    """
    is_fit = inputs.dtype in (tf.float32, tf.bfloat16) and not tf.executing_eagerly()
    if not is_fit or inputs.shape[0] is not None or not _has_kernel():
        return None
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
    gamma, beta = (tf.cast(each, inputs.dtype) for each in (layer.gamma, layer.beta))
    return beta + normalized * gamma


@functools.cache
def _has_kernel() -> bool:
    if tf.config.list_physical_devices("GPU"):
        return False
    # TensorFlow does not tell it by a public name.
    try:
        from tensorflow.python.util import _pywrap_util_port  # noqa: PLC0415
    except ImportError:
        return False
    return bool(_pywrap_util_port.IsMklEnabled())

"""Muon: the weights of dense layers move along the orthogonal matrix nearest to their momentum.

Jordan and others, Muon: An optimizer for hidden layers in neural networks (2024). Updates have the
size of Liu and others, Muon is Scalable for LLM Training (2025), section 2.2, so that learning
rates and the weight decay of Adam fit.
"""

import re
from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from optimization import AdamWeightDecayOptimizer, Changes

Tensor = Any

MOMENTUM = 0.95
# About the root mean square of Adam's updates.
UPDATE_SIZE = 0.2
# Factors of x, x^3 and x^5, and how often: singular values between 0.001 and 1 come close to 1.
COEFFICIENTS = (3.4445, -4.7750, 2.0315)
NUM_ITERATIONS = 5
# Of an LSTM, a kernel holds the matrices of four gates.
_KERNEL = re.compile(r"/(query|key|value|dense)/kernel$")


class MuonOptimizer(AdamWeightDecayOptimizer):
    """Muon for the kernels of dense layers; Adam for embeddings, outputs, biases and LayerNorm.

    The arguments are those of `AdamWeightDecayOptimizer`. Checkpoints have the same variables: the
    momentum is `adam_m`, and `adam_v` of a kernel stays zero.
    """

    def build(self, variables: Sequence[keras.Variable]) -> None:
        super().build(variables)
        self._is_kernel = [bool(_KERNEL.search(variable.path)) for variable in variables]

    def choose_changes(self, index: int) -> Changes:
        return _changes if self._is_kernel[index] else super().choose_changes(index)


# By the value of the option.
OPTIMIZERS = {"adam": AdamWeightDecayOptimizer, "muon": MuonOptimizer}


def _changes(
    values: tuple[Tensor, Tensor, Tensor],
    gradient: Tensor,
    constants: tuple[float, float, float],
    weight_decay_rate: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """As `optimization.adam_changes`, whose constants and second moment play no part."""
    weight, momentum, unused = values
    momentum = MOMENTUM * momentum + gradient
    change = orthogonalize(gradient + MOMENTUM * momentum)
    change *= UPDATE_SIZE * max(weight.shape) ** 0.5
    return momentum, unused, change + weight_decay_rate * weight


def orthogonalize(matrix: Tensor) -> Tensor:
    """Returns a matrix with the same singular vectors, whose singular values are 0.7 to 1.2.

    Newton-Schulz iterations; singular values below a thousandth of the norm stay smaller. Those of
    a long matrix are made on the square matrix of its inner products, which is less work.

    Args:
      matrix: float32 [rows, columns].
    """
    matrix /= tf.norm(matrix) + 1e-7
    rows, columns = matrix.shape
    is_tall = rows > columns
    # The factor of a long matrix by itself would not be precise enough in the TF32 of GPUs.
    if rows == columns or tf.config.list_physical_devices("GPU"):
        for _ in range(NUM_ITERATIONS):
            factor = _polynomial(_inner_products(matrix))
            matrix = tf.matmul(matrix, factor) if is_tall else tf.matmul(factor, matrix)
        return matrix
    square = _inner_products(matrix)
    factor = change = _polynomial(square)
    for _ in range(NUM_ITERATIONS - 1):
        square = tf.matmul(tf.matmul(change, square), change)
        change = _polynomial(square)
        factor = tf.matmul(change, factor)
    return tf.matmul(matrix, factor) if is_tall else tf.matmul(factor, matrix)


def _inner_products(matrix: Tensor) -> Tensor:
    """Returns the products of the rows with each other; of the columns where they are fewer."""
    is_tall = matrix.shape[0] > matrix.shape[1]
    return tf.matmul(matrix, matrix, transpose_a=is_tall, transpose_b=not is_tall)


def _polynomial(square: Tensor) -> Tensor:
    """Returns what an iteration multiplies a matrix by, of its inner products."""
    first, third, fifth = COEFFICIENTS
    identity = tf.eye(square.shape[0])
    return first * identity + third * square + fifth * tf.matmul(square, square)

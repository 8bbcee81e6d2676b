"""The optimizer in graphs of `tf.compat.v1`: operations that a Session runs.

`optimization.AdamWeightDecayOptimizer` and `optimization.create_optimizer` call these functions
where a graph is built.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import tensorflow as tf

from bert.original.graph import in_graph
from optimization import SLOTS, AdamWeightDecayOptimizer, adam_changes, clip_scale, dense

Tensor = Any
Pair = tuple[Tensor | None, Any]


def apply_gradients(
    optimizer: AdamWeightDecayOptimizer,
    grads_and_vars: Iterable[Pair],
    global_step: Tensor | None,
    name: str | None,
) -> tf.Operation:
    """Returns the operation that updates variables; pairs with None change nothing."""
    rate = optimizer.given_learning_rate
    if callable(rate):
        step = tf.compat.v1.train.get_or_create_global_step()
        rate = rate(tf.identity(step if global_step is None else global_step))
    updates = []
    for gradient, variable in grads_and_vars:
        if gradient is not None and variable is not None:
            updates += _updates(optimizer, tf.convert_to_tensor(gradient), variable, rate)
    return tf.group(*updates, name=name)


def _updates(
    optimizer: AdamWeightDecayOptimizer, gradient: Tensor, variable: tf.Variable, rate: Tensor
) -> list[Any]:
    """Returns the operations that update a variable and its moments, which are created."""
    path = optimizer._get_variable_name(variable.name)
    moments = tuple(
        tf.compat.v1.get_variable(
            f"{path}/{slot}",
            variable.shape.as_list(),
            initializer=tf.compat.v1.zeros_initializer(),
            trainable=False,
        )
        for slot in SLOTS
    )
    constants = (optimizer.beta_1, optimizer.beta_2, optimizer.epsilon)
    decay = optimizer.weight_decay_rate if optimizer._do_use_weight_decay(path) else 0.0
    m, v, change = adam_changes((variable, *moments), gradient, constants, decay)
    rate *= optimizer.learning_rate_scales.get(path, 1.0)
    return [moments[0].assign(m), moments[1].assign(v), variable.assign_sub(rate * change)]


def compute_gradients(loss: Tensor, var_list: Sequence[Any] | None) -> list[Pair]:
    """Returns pairs of a gradient and its variable; of all trainable variables where None.

    Raises:
      ValueError: where no graph is built.
    """
    if not in_graph():
        raise ValueError(
            "`loss` must be a tensor in a graph of `tf.compat.v1`. Elsewhere, take gradients "
            "with tf.GradientTape, and give them to `apply_gradients`."
        )
    variables = tf.compat.v1.trainable_variables() if var_list is None else [*var_list]
    return [*zip(dense(tf.gradients(loss, variables)), variables, strict=True)]


def train_op(loss: Tensor, optimizer: AdamWeightDecayOptimizer) -> tf.Operation:
    """Returns the operation of a training step, which increases the global step.

    Raises:
      ValueError: where no graph is built.
    """
    if not in_graph():
        raise ValueError(
            "`loss` must be a function of no arguments that returns the loss, or a tensor in a "
            f"graph of `tf.compat.v1`. Received {loss!r}. Give `lambda: ...` with what computes "
            "it, or build the graph under `tf.Graph().as_default()`."
        )
    global_step = tf.compat.v1.train.get_or_create_global_step()
    variables = tf.compat.v1.trainable_variables()
    gradients = dense(tf.gradients(loss, variables))
    scale = clip_scale(tf.linalg.global_norm(gradients))
    clipped = [None if gradient is None else gradient * scale for gradient in gradients]
    update = optimizer.apply_gradients(zip(clipped, variables, strict=True), global_step)
    with tf.control_dependencies([update]):
        return tf.group(tf.compat.v1.assign_add(global_step, 1))

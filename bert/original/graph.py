"""Layers and the optimizer behind the functions of the original, also in graphs of `tf.compat.v1`.

Keras 3 does not support such graphs: it would create new variables in every call, and draw a
dropout mask once. In them, variables are `tf.compat.v1.get_variable`'s, so that scopes, reuse,
savers and `tf.compat.v1.train.init_from_checkpoint` treat them as in the original, and every run of
the Session draws new masks.

The Keras layers are those that the functions of `bert.original.modeling` create. A saved model with
such layers loads where this module has been imported.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf
from keras import ops

import modeling
from bert.dropout import dropout_seed
from modeling import BertConfig
from optimization import SLOTS, AdamWeightDecayOptimizer, adam_changes, clip_scale, dense

Tensor = Any


def in_graph() -> bool:
    """Returns whether operations are added to a graph for a Session, and not run or traced."""
    return not tf.compat.v1.executing_eagerly_outside_functions()


def call_layer(
    make_layer: Callable[[], keras.layers.Layer],
    *inputs: Any,
    initializer_range: float = 0.02,
    scope: str = "",
    **kwargs: Any,
) -> Any:
    """Returns the outputs of a layer; in a graph, with variables of the current variable scope.

    Args:
      make_layer: Makes the layer, whose `build` ignores shapes.
      *inputs: The inputs of the layer.
      initializer_range: In a graph, the initial standard deviation of matrices.
      scope: In a graph, a prefix to remove from the variables' names, since the current variable
        scope takes its place.
      **kwargs: Keyword arguments of the layer.
    """
    if not in_graph():
        return make_layer()(*inputs, **kwargs)
    # Keras' variables are in a graph that is never run: only their names and shapes are used.
    with tf.Graph().as_default():
        layer = make_layer()
        if not layer.built:
            layer.build(None)
    values = [
        (v, tf.identity(_get_variable(v, v.path.removeprefix(scope), initializer_range)))
        for v in layer.weights
    ]
    with keras.StatelessScope(state_mapping=values), dropout_seed(draw_seed()):
        outputs = layer(*inputs, **kwargs)
        # A variable among the outputs becomes the value that it has in this scope.
        return tf.nest.map_structure(tf.convert_to_tensor, outputs)


def _get_variable(like: keras.Variable, name: str, initializer_range: float) -> tf.Variable:
    """Returns a variable of the current scope; matrices are random, biases 0 and scales 1.

    `tf.compat.v1.set_random_seed` sets the random numbers.
    """
    initializer = tf.compat.v1.truncated_normal_initializer(stddev=initializer_range)
    if len(like.shape) == 1:
        start = 1.0 if name.endswith("gamma") else 0.0
        initializer = tf.compat.v1.constant_initializer(start)
    shape = [int(size) for size in like.shape]
    return tf.compat.v1.get_variable(name, shape, like.dtype, initializer=initializer)


def draw_seed() -> Tensor:
    """Returns a seed for dropout, int32 [2], which differs in each run of a Session."""
    return tf.compat.v1.random_uniform([2], *tf.int32.limits, dtype=tf.int32)


_INPUTS = ("input_ids", "input_mask", "segment_ids")


def init_and_call(
    model: modeling.BertModel,
    config: modeling.BertConfig,
    tensors: Sequence[Tensor | None],
    is_training: bool | None,
    scope: str | None,
    *,
    name: str,
    gradient_checkpointing: bool,
    **kwargs: Any,
) -> Mapping[str, Any]:
    """Initializes a `BertModel`, calls it at once as the original did, and returns its outputs.

    In a graph, the model has outputs alone.

    Args:
      model: The model; its `__init__` has not been called.
      config: The shape of the model; may be changed.
      tensors: The original's `input_ids`, `input_mask` and `token_type_ids`.
      is_training: Whether the model drops out.
      scope: In a graph, the scope of the variables; elsewhere the layer's name.
      name: The layer's name where there is no `scope`.
      gradient_checkpointing: As of the model; not in a graph.
      **kwargs: Keras' arguments of every layer.

    Raises:
      ValueError: where `input_ids` or `is_training` is None, or layers of a graph are to be
        computed again.
    """
    input_ids = tensors[0]
    if is_training is None or input_ids is None:
        raise ValueError(
            "`is_training` and `input_ids` must be given together, or neither. Received "
            f"{is_training!r} and {input_ids!r}."
        )
    inputs = {
        key: tensor for key, tensor in zip(_INPUTS, tensors, strict=True) if tensor is not None
    }
    if not is_training:
        config.hidden_dropout_prob = config.attention_probs_dropout_prob = 0.0
    if in_graph():
        if gradient_checkpointing:
            raise ValueError(
                "`gradient_checkpointing` must be false in a graph of `tf.compat.v1`, where layers "
                "that are computed again have no gradients."
            )
        modeling.ConfiguredLayer.__init__(model, config, name=name, **kwargs)
        return _encode(config, inputs, scope)
    modeling.ConfiguredLayer.__init__(model, config, name=scope or name, **kwargs)
    model.add_layers()
    model.gradient_checkpointing = gradient_checkpointing
    # Symbolic outputs follow the phase of the functional model that they become part of.
    return model(inputs, training=not isinstance(input_ids, keras.KerasTensor))


def _encode(
    config: modeling.BertConfig, inputs: Mapping[str, Tensor], scope: str | None
) -> dict[str, Any]:
    """Returns the outputs of a `BertModel` with variables of a scope of the graph.

    Without `scope`, it is "bert", or "bert_1" where there is one already, as in the original.
    """
    with tf.compat.v1.variable_scope(scope, default_name="bert"):
        return call_layer(
            lambda: modeling.BertModel(config),
            inputs,
            training=True,
            initializer_range=config.initializer_range,
            scope="bert/",
        )


Activation = Callable[[Tensor], Tensor] | str | None


def _activation(saved: Any) -> Callable[[Tensor], Tensor]:
    return keras.activations.get(modeling.get_activation(saved))


# Each layer creates its variables in `__init__`, under the caller's name scope and not its own, so
# that variables have the original's names while Keras gives the layer any free name.


class _Table(keras.layers.Layer):
    """A table of embeddings [`size`, `width`]."""

    def __init__(
        self, size: int, width: int, initializer_range: float, table_name: str, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.table = keras.Variable(
            modeling.create_initializer(initializer_range),
            shape=(size, width),
            dtype=self.variable_dtype,
            name=table_name,
        )
        self.built = True


@keras.saving.register_keras_serializable("bert")
class TokenEmbeddings(_Table):
    """Returns embeddings and the table: [B, S] to [B, S, width], [B, S, n] to [B, S, n·width]."""

    def call(self, ids: Tensor, one_hot: bool = False) -> tuple[Tensor, Tensor]:
        table = ops.convert_to_tensor(self.table)
        size, width = self.table.shape
        *shape, last = ops.shape(ids)
        shape = (*shape, last, width) if len(shape) == 1 else (*shape, last * width)
        if one_hot:
            flat = ops.one_hot(ops.reshape(ids, (-1,)), size, dtype=table.dtype)
            rows = ops.matmul(flat, table)
        else:
            rows = ops.take(table, ids, axis=0)
        return ops.reshape(rows, shape), table


@keras.saving.register_keras_serializable("bert")
class PositionEmbeddings(_Table):
    """Adds row s of the table to every embedding at position s: [B, S, width]."""

    def call(self, inputs: Tensor) -> Tensor:
        length, limit = ops.shape(inputs)[1], self.table.shape[0]
        if isinstance(length, int) and length > limit:
            raise ValueError(
                f"`seq_length` must be at most {limit}, the `max_position_embeddings`. "
                f"Received {length}."
            )
        return inputs + self.table[:length]


@keras.saving.register_keras_serializable("bert")
class LayerNorm(keras.layers.Layer):
    """Normalizes the last axis, of that width, with variables under `scope`."""

    def __init__(self, width: int, scope: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.layer_norm = keras.layers.LayerNormalization(
            epsilon=modeling.LAYER_NORM_EPSILON, name=scope, dtype=self.dtype_policy
        )
        self.layer_norm.build((None, width))
        self.built = True

    def call(self, inputs: Tensor) -> Tensor:
        return self.layer_norm(inputs)


@keras.saving.register_keras_serializable("bert")
class CrossAttention(modeling.SelfAttention):
    """Attends from [B, Q, `from_width`] to [B, K, `to_width`] under a mask [B, Q, K]: [B·Q, H].

    `activations` are those of query, key and value.
    """

    def __init__(
        self,
        config: BertConfig,
        from_width: int,
        to_width: int,
        activations: Sequence[Activation],
        **kwargs: Any,
    ) -> None:
        super().__init__(config, **kwargs)
        self.widths = (from_width, to_width, to_width)
        for projection, width, activation in zip(
            self.projections, self.widths, activations, strict=True
        ):
            projection.activation = _activation(activation)
            projection.build((None, width))
        self.activations = activations
        self.dropout.build(None)
        self.built = True

    def get_config(self) -> dict[str, Any]:
        from_width, to_width, _ = self.widths
        widths = {"from_width": from_width, "to_width": to_width}
        return {**super().get_config(), **widths, "activations": list(self.activations)}

    def call(  # type: ignore[override]  # two sequences in place of one
        self,
        from_tensor: Tensor,
        to_tensor: Tensor,
        attention_mask: Tensor,
        training: bool | None = False,
    ) -> Tensor:
        query, key, value = (
            self.split_heads(projection(inputs), ops.shape(inputs)[1])
            for projection, inputs in zip(
                self.projections, (from_tensor, to_tensor, to_tensor), strict=True
            )
        )
        return self.attend(query, key, value, attention_mask, training)


@keras.saving.register_keras_serializable("bert")
class TransformerStack(modeling.Encoder):
    """`modeling.Encoder` without its own name in its variables' names, and of any activation."""

    def __init__(self, config: BertConfig, activation: Activation, **kwargs: Any) -> None:
        super().__init__(config, **kwargs)
        self.activation = activation
        for layer in self.transformer_layers:
            layer.intermediate.dense.activation = _activation(activation)
            layer.build(None)
        self.built = True

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "activation": self.activation}


@keras.saving.register_keras_serializable("bert")
class Dimension(keras.layers.Layer):
    """The size of one axis, int32 []."""

    def __init__(self, axis: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.axis = axis

    def call(self, inputs: Tensor) -> Tensor:
        return ops.convert_to_tensor(ops.shape(inputs)[self.axis], "int32")


@keras.saving.register_keras_serializable("bert")
class DynamicReshape(keras.layers.Layer):
    """Reshapes to `dimensions`, where each None is replaced by the next of `sizes`, int32 []."""

    def __init__(self, dimensions: Sequence[int | None], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.dimensions = dimensions

    def call(self, inputs: Tensor, sizes: Sequence[Tensor]) -> Tensor:
        rest = iter(sizes)
        return ops.reshape(inputs, [next(rest) if d is None else d for d in self.dimensions])


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

"""Layers in graphs of `tf.compat.v1`, for code that builds one and runs it in a Session.

Keras 3 does not support such graphs: it would create new variables in every call, and draw a
dropout mask once. Here variables are `tf.compat.v1.get_variable`'s, so that scopes, reuse, savers
and `tf.compat.v1.train.init_from_checkpoint` treat them as in the original, and every run of the
Session draws new masks.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

import modeling

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
    with keras.StatelessScope(state_mapping=values), modeling.dropout_seed(draw_seed()):
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
      **kwargs: Keras' arguments of every layer.

    Raises:
      ValueError: where `input_ids` or `is_training` is None.
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
        modeling.ConfiguredLayer.__init__(model, config, name=name, **kwargs)
        return _encode(config, inputs, scope)
    modeling.ConfiguredLayer.__init__(model, config, name=scope or name, **kwargs)
    model.add_layers()
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

"""Functions of the original's modeling.py, with its arguments, results and variable names.

Code written for the original finds these names as `modeling.<name>`; the network in `modeling` does
not need them. Where the original created variables, these functions create the Keras layers of
`bert.original.graph`: on `keras.Input` tensors, layers of a functional model; in a graph of
`tf.compat.v1`, layers with variables of its scopes (`bert.original.graph`); on other tensors, fresh
layers that are used once. Outside of graphs, `keras.name_scope` takes the place of
`tf.variable_scope`. A saved model with such layers loads where this module has been imported.
"""

import re
from collections.abc import Collection, Sequence
from typing import Any

import keras
import tensorflow as tf
from keras import ops

import modeling
from bert.original import graph
from bert.original.graph import (
    Activation,
    CrossAttention,
    Dimension,
    DynamicReshape,
    LayerNorm,
    PositionEmbeddings,
    TokenEmbeddings,
    TransformerStack,
)
from bert.weights.checkpoint import Stored
from bert.weights.readers import find_format
from modeling import BertConfig

Tensor = Any


def _training(tensor: Tensor) -> bool:
    # Departs: the original applies dropout wherever a probability is not 0, and builds one graph to
    # train and another to predict. A functional model does both, so it follows Keras' phase.
    return not isinstance(tensor, keras.KerasTensor)


def _activation_name(activation: Activation) -> Activation:
    """Returns the original's name of an activation, which a saved model stores."""
    names = {function: name for name, function in modeling.ACTIVATIONS.items()}
    return activation if isinstance(activation, str) else names.get(activation, activation)


def dropout(input_tensor: Tensor, dropout_prob: float | None) -> Tensor:
    """Returns the tensor with elements dropped at that probability; None is 0."""
    if not dropout_prob:
        return input_tensor
    return graph.call_layer(
        lambda: modeling.Dropout(dropout_prob), input_tensor, training=_training(input_tensor)
    )


def layer_norm(input_tensor: Tensor, name: str | None = None) -> Tensor:
    """Returns the tensor normalized over its last axis, with variables under `name`.

    Departs: without a name, the variables are under "LayerNorm" each time. The original numbers
    the names in a scope from the second on, as this function does in a graph.
    """
    width = ops.shape(input_tensor)[-1]
    if not graph.in_graph():
        return LayerNorm(width, name or "LayerNorm")(input_tensor)
    with tf.compat.v1.variable_scope(name, default_name="LayerNorm"):
        return graph.call_layer(
            lambda: LayerNorm(width, "LayerNorm"), input_tensor, scope="LayerNorm/"
        )


def layer_norm_and_dropout(
    input_tensor: Tensor, dropout_prob: float | None, name: str | None = None
) -> Tensor:
    """Returns the tensor normalized, then dropped out."""
    return dropout(layer_norm(input_tensor, name), dropout_prob)


def embedding_lookup(
    input_ids: Tensor,
    vocab_size: int,
    embedding_size: int = 128,
    initializer_range: float = 0.02,
    word_embedding_name: str = "word_embeddings",
    use_one_hot_embeddings: bool = False,
) -> tuple[Tensor, Tensor]:
    """Returns the embeddings of the ids and the table they come from.

    Args:
      input_ids: int32 [B, S], or [B, S, n], whose n embeddings are concatenated.
      vocab_size: Rows of the table.
      embedding_size: Columns of the table.
      initializer_range: Standard deviation of the initializer.
      word_embedding_name: Name of the variable.
      use_one_hot_embeddings: Look up by a matrix product.

    Returns:
      [B, S, embedding_size], or [B, S, n·embedding_size]; and [vocab_size, embedding_size].
    """
    return graph.call_layer(
        lambda: TokenEmbeddings(vocab_size, embedding_size, initializer_range, word_embedding_name),
        input_ids,
        one_hot=use_one_hot_embeddings,
        initializer_range=initializer_range,
    )


def embedding_postprocessor(  # noqa: PLR0913, PLR0917 (the original's arguments)
    input_tensor: Tensor,
    use_token_type: bool = False,
    token_type_ids: Tensor | None = None,
    token_type_vocab_size: int = 16,
    token_type_embedding_name: str = "token_type_embeddings",
    use_position_embeddings: bool = True,
    position_embedding_name: str = "position_embeddings",
    initializer_range: float = 0.02,
    max_position_embeddings: int = 512,
    dropout_prob: float | None = 0.1,
) -> Tensor:
    """Returns word plus segment and position embeddings, normalized and with dropout.

    Args:
      input_tensor: float [B, S, H], like the result.
      use_token_type: Add segment embeddings.
      token_type_ids: int32 [B, S].
      token_type_vocab_size: Number of segment types.
      token_type_embedding_name: Name of the variable.
      use_position_embeddings: Add position embeddings.
      position_embedding_name: Name of the variable.
      initializer_range: Standard deviation of the initializer.
      max_position_embeddings: Rows of the position table; S may not be more.
      dropout_prob: None is 0.

    Raises:
      ValueError: where segment ids are missing, or the sequence is too long.
    """
    assert_rank(input_tensor, 3)
    width = ops.shape(input_tensor)[-1]
    if use_token_type:
        if token_type_ids is None:
            raise ValueError("`token_type_ids` must be given where `use_token_type` is true.")
        segments, _ = embedding_lookup(
            token_type_ids,
            token_type_vocab_size,
            width,
            initializer_range,
            token_type_embedding_name,
            use_one_hot_embeddings=True,
        )
        input_tensor = input_tensor + segments
    if use_position_embeddings:
        input_tensor = graph.call_layer(
            lambda: PositionEmbeddings(
                max_position_embeddings, width, initializer_range, position_embedding_name
            ),
            input_tensor,
            initializer_range=initializer_range,
        )
    return layer_norm_and_dropout(input_tensor, dropout_prob)


def create_attention_mask_from_input_mask(from_tensor: Tensor, to_mask: Tensor) -> Tensor:
    """Returns the mask with which every query may attend to the real keys.

    Args:
      from_tensor: [B, Q, ...]; only the shape is used.
      to_mask: int32 [B, K], 1 for real tokens and 0 for padding.

    Returns:
      float32 [B, Q, K].
    """
    assert_rank(from_tensor, (2, 3))
    assert_rank(to_mask, 2)
    queries = ops.expand_dims(_ones(from_tensor), 2)  # [B, Q, 1]
    return queries * ops.expand_dims(ops.cast(to_mask, "float32"), 1)  # [B, Q, K]


def _ones(tensor: Tensor) -> Tensor:
    """Returns float32 ones, [B, S], for a tensor [B, S] or [B, S, H]."""
    tokens = tensor if len(tensor.shape) == 2 else tensor[:, :, 0]
    return ops.ones_like(tokens, dtype="float32")


def attention_layer(  # noqa: PLR0913, PLR0917 (the original's arguments)
    from_tensor: Tensor,
    to_tensor: Tensor,
    attention_mask: Tensor | None = None,
    num_attention_heads: int = 1,
    size_per_head: int = 512,
    query_act: Activation = None,
    key_act: Activation = None,
    value_act: Activation = None,
    attention_probs_dropout_prob: float | None = 0.0,
    initializer_range: float = 0.02,
    do_return_2d_tensor: bool = False,
    batch_size: Tensor | None = None,
    from_seq_length: Tensor | None = None,
    to_seq_length: Tensor | None = None,
) -> Tensor:
    """Returns the context of multi-head attention (Vaswani et al., section 3.2), [B, Q, N·D].

    `from_tensor`, float [B, Q, H], makes the queries, and `to_tensor`, float [B, K, H'], keys and
    values. Both may be matrices, [B·Q, H] and [B·K, H'], with `batch_size` B, `from_seq_length` Q
    and `to_seq_length` K. `attention_mask`, [B, Q, K], is 1 where the query may attend to the key
    and 0 elsewhere. There are `num_attention_heads` N of `size_per_head` D, and a probability of
    None is 0. With `do_return_2d_tensor`, the context is a matrix [B·Q, N·D].

    Raises:
      ValueError: where the ranks differ, or matrices come without their dimensions.
    """
    from_shape, to_shape = _sequence_shapes(
        from_tensor, to_tensor, batch_size, from_seq_length, to_seq_length
    )
    if len(from_tensor.shape) == 2:
        from_tensor, to_tensor = _reshape(from_tensor, from_shape), _reshape(to_tensor, to_shape)
    if attention_mask is None:
        attention_mask = create_attention_mask_from_input_mask(from_tensor, _ones(to_tensor))
    width = num_attention_heads * size_per_head
    config = BertConfig(
        vocab_size=1,
        hidden_size=width,
        num_attention_heads=num_attention_heads,
        attention_probs_dropout_prob=attention_probs_dropout_prob or 0.0,
        initializer_range=initializer_range,
    )
    activations = [_activation_name(act) for act in (query_act, key_act, value_act)]
    context = graph.call_layer(
        lambda: CrossAttention(config, from_shape[-1], to_shape[-1], activations),
        from_tensor,
        to_tensor,
        attention_mask,
        training=_training(from_tensor),
        initializer_range=initializer_range,
    )
    return context if do_return_2d_tensor else _reshape(context, [*from_shape[:2], width])


def _sequence_shapes(
    from_tensor: Tensor,
    to_tensor: Tensor,
    batch_size: Tensor | None,
    from_seq_length: Tensor | None,
    to_seq_length: Tensor | None,
) -> tuple[list[Tensor], list[Tensor]]:
    """Returns the dimensions [B, Q, H] and [B, K, H'] of two tensors that may be matrices."""
    from_shape = get_shape_list(from_tensor, expected_rank=(2, 3), name="from_tensor")
    to_shape = get_shape_list(to_tensor, expected_rank=(2, 3), name="to_tensor")
    if len(from_shape) != len(to_shape):
        raise ValueError(
            "`from_tensor` and `to_tensor` must have the same rank. Received "
            f"{len(from_shape)} and {len(to_shape)}."
        )
    if len(from_shape) == 3:
        return from_shape, to_shape
    if batch_size is None or from_seq_length is None or to_seq_length is None:
        raise ValueError(
            "`batch_size`, `from_seq_length` and `to_seq_length` must be given with matrices. "
            f"Received {batch_size!r}, {from_seq_length!r} and {to_seq_length!r}."
        )
    return [batch_size, from_seq_length, from_shape[-1]], [batch_size, to_seq_length, to_shape[-1]]


def transformer_model(  # noqa: PLR0913, PLR0917 (the original's arguments)
    input_tensor: Tensor,
    attention_mask: Tensor | None = None,
    hidden_size: int = 768,
    num_hidden_layers: int = 12,
    num_attention_heads: int = 12,
    intermediate_size: int = 3072,
    intermediate_act_fn: Activation = modeling.gelu,
    hidden_dropout_prob: float | None = 0.1,
    attention_probs_dropout_prob: float | None = 0.1,
    initializer_range: float = 0.02,
    do_return_all_layers: bool = False,
) -> Tensor | list[Tensor]:
    """Returns the output of the last Transformer layer, or the list of all layers' outputs.

    `input_tensor` and the outputs are float [B, S, H], with `hidden_size` H. `attention_mask`,
    [B, S, S], is 1 where the query may attend to the key and 0 elsewhere. `intermediate_act_fn` is
    the activation of the feed-forward layer, and a probability of None is 0; the others are as in
    `BertConfig`. With `do_return_all_layers`, the result is the list.

    Raises:
      ValueError: where the width of the input is not H, or a number cannot describe a layer.
    """
    shape = get_shape_list(input_tensor, expected_rank=3)
    if shape[-1] != hidden_size:
        raise ValueError(
            f"The width of `input_tensor` must be `hidden_size`. Received {shape[-1]} and "
            f"{hidden_size}."
        )
    config = BertConfig(
        vocab_size=1,
        hidden_size=hidden_size,
        num_hidden_layers=num_hidden_layers,
        num_attention_heads=num_attention_heads,
        intermediate_size=intermediate_size,
        hidden_dropout_prob=hidden_dropout_prob or 0.0,
        attention_probs_dropout_prob=attention_probs_dropout_prob or 0.0,
        initializer_range=initializer_range,
    )
    outputs = graph.call_layer(
        lambda: TransformerStack(config, _activation_name(intermediate_act_fn)),
        reshape_to_matrix(input_tensor),
        _ones(input_tensor) if attention_mask is None else attention_mask,
        training=_training(input_tensor),
        initializer_range=initializer_range,
    )
    if do_return_all_layers:
        return [reshape_from_matrix(output, shape) for output in outputs]
    return reshape_from_matrix(outputs[-1], shape)


def get_shape_list(
    tensor: Tensor, expected_rank: int | Collection[int] | None = None, name: str | None = None
) -> list[Any]:
    """Returns the dimensions of a tensor: integers where they are known, else scalar tensors.

    Raises:
      ValueError: where the rank is not `expected_rank`, or not in it.
    """
    if expected_rank is not None:
        assert_rank(tensor, expected_rank, name)
    sizes = enumerate(ops.shape(tensor))
    return [Dimension(axis)(tensor) if size is None else size for axis, size in sizes]


def reshape_to_matrix(input_tensor: Tensor) -> Tensor:
    """Returns a tensor of rank 2 or more as the matrix of its last axis.

    Raises:
      ValueError: where the rank is less than 2.
    """
    rank = len(input_tensor.shape)
    if rank < 2:
        raise ValueError(f"`input_tensor` must have rank 2 or more. Received {input_tensor.shape}.")
    return (
        input_tensor if rank == 2 else ops.reshape(input_tensor, (-1, ops.shape(input_tensor)[-1]))
    )


def reshape_from_matrix(output_tensor: Tensor, orig_shape_list: Sequence[Tensor]) -> Tensor:
    """Returns a matrix in its original shape, whose last dimension may have changed."""
    if len(orig_shape_list) == 2:
        return output_tensor
    return _reshape(output_tensor, [*orig_shape_list[:-1], ops.shape(output_tensor)[-1]])


def _reshape(tensor: Tensor, dimensions: Sequence[Tensor]) -> Tensor:
    if sizes := [size for size in dimensions if isinstance(size, keras.KerasTensor)]:
        known = [None if isinstance(size, keras.KerasTensor) else int(size) for size in dimensions]
        return DynamicReshape(known)(tensor, sizes=sizes)
    return ops.reshape(tensor, dimensions)


def assert_rank(
    tensor: Tensor, expected_rank: int | Collection[int], name: str | None = None
) -> None:
    """Checks the rank of a tensor; `name` is for the message.

    Raises:
      ValueError: where the rank is not `expected_rank`, or not in it.
    """
    expected = {expected_rank} if isinstance(expected_rank, int) else set(expected_rank)
    rank = len(tensor.shape)
    if rank not in expected:
        raise ValueError(
            f"The rank of `{name or 'tensor'}` must be among {sorted(expected)}. Received {rank}, "
            f"of shape {tuple(tensor.shape)}."
        )


def get_assignment_map_from_checkpoint(
    tvars: Sequence[Any], init_checkpoint: str
) -> tuple[dict[str, Any], dict[str, int]]:
    """Returns the variables that a checkpoint has; `Stored.assign` also assigns them.

    Args:
      tvars: Variables of Keras, found by their path, or of TensorFlow, found by their name.
      init_checkpoint: What `Stored.open` takes.

    Returns:
      The names that both have, each mapped to itself, or in a graph to the variable, as
      `tf.compat.v1.train.init_from_checkpoint` takes them; and each of them, with and without the
      ":0" of a TensorFlow name, mapped to 1.

    Raises:
      ValueError: where there is no checkpoint, it does not store variables by name, or in a graph
        it has all of them under other names.
    """
    variables = {
        re.sub(r":\d+$", "", getattr(variable, "path", variable.name)): variable
        for variable in tvars
    }
    stored = Stored.open(init_checkpoint)
    named = found = sorted(variables.keys() & stored.shapes.keys())
    if graph.in_graph():
        # These are the names by which TensorFlow restores variables.
        is_other = find_format(stored.prefix) is not None
        in_file = {} if is_other else dict(tf.train.list_variables(stored.prefix))
        found = sorted(variables.keys() & in_file.keys())
    if named and not found:
        raise ValueError(
            "`init_checkpoint` must have the variables under their own names to restore them in a "
            f"graph. {stored.prefix!r} has other names; convert_checkpoint.py --format=tf writes "
            "a checkpoint with these."
        )
    initialized = {key: 1 for name in found for key in (name, f"{name}:0")}
    return {name: variables[name] if graph.in_graph() else name for name in found}, initialized

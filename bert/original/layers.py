"""The Keras layers that the functions of `bert.original.modeling` create.

A saved model with such layers loads where this module has been imported.
"""

from collections.abc import Callable, Sequence
from typing import Any

import keras
from keras import ops

import modeling
from modeling import BertConfig

Tensor = Any
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

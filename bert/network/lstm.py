"""Bidirectional LSTMs, ELMo's encoder and a layer on top of any, and the pooling of their outputs.

Dimension key as in `modeling`; also `U`, the width of one direction, H/2.
"""

from typing import Any

import keras
from keras import ops

import modeling
from bert.network.heads import end_positions, pooled_positions
from bert.network.recomputation import recompute
from modeling import BertConfig, gather_tokens

Tensor = Any


def pool(config: BertConfig, encodings: Tensor, input_mask: Tensor, *, is_gathered: bool) -> Tensor:
    """Returns the encoding of a sequence, [B, H].

    Args:
      config: The configuration of the model.
      encodings: [B, S, H], or [B, Q, H] of which the first are at `pooled_positions`.
      input_mask: [B, S].
      is_gathered: Whether the encodings are [B, Q, H].
    """
    if not is_gathered:
        _, length, width = ops.shape(encodings)
        positions = pooled_positions(config, input_mask)
        rows = gather_tokens(ops.reshape(encodings, (-1, width)), positions, length)
        encodings = ops.reshape(rows, (ops.shape(positions)[0], -1, width))
    return join_ends(encodings) if config.is_bilstm else encodings[:, 0]


def join_ends(encodings: Tensor) -> Tensor:
    """Returns the first half of the first token and the second half of the second: [B, H]."""
    half = encodings.shape[-1] // 2
    return ops.concatenate([encodings[:, 0, :half], encodings[:, 1, half:]], axis=-1)


class Lstm(modeling.ConfiguredLayer):
    """An LSTM over sequences: [B, S, `input_size`] to [B, S, U], where U is H/2.

    It computes in float32 under any policy: a state to which every token is added loses too much in
    16 bits (Hochreiter and Schmidhuber, 1997). The bias of forget gates starts at 1 (Jozefowicz et
    al., 2015).
    """

    def __init__(self, config: modeling.BertConfig, input_size: int, **kwargs: Any) -> None:
        super().__init__(config, **kwargs)
        self.input_size = input_size
        self.units = config.hidden_size // 2

    def build(self, *_: Any) -> None:
        def new(name: str, shape: tuple[int, ...], initializer: Any) -> keras.Variable:
            return self.add_weight(name=name, shape=shape, initializer=initializer, autocast=False)

        # The gates are concatenated: input, forget, candidate, output.
        width = 4 * self.units
        self.kernel = new("kernel", (self.input_size, width), "glorot_uniform")
        self.recurrent_kernel = new("recurrent_kernel", (self.units, width), "orthogonal")
        self.bias = new("bias", (width,), _forget_bias)

    def call(self, inputs: Tensor) -> Tensor:
        gates = ops.matmul(ops.cast(inputs, "float32"), self.kernel) + self.bias  # [B, S, 4·U]

        def step(state: tuple[Tensor, Tensor], gates: Tensor) -> tuple[Any, Any]:
            output, cell = state
            gates += ops.matmul(output, self.recurrent_kernel)
            input_gate, forget_gate, candidate, output_gate = ops.split(gates, 4, axis=-1)
            cell = ops.sigmoid(forget_gate) * cell + ops.sigmoid(input_gate) * ops.tanh(candidate)
            state = (ops.sigmoid(output_gate) * ops.tanh(cell), cell)
            # Keras requires that the output of a step has the structure of the state.
            return state, state

        zeros = ops.zeros_like(gates[:, 0, : self.units])
        _, (outputs, _) = ops.scan(step, (zeros, zeros), ops.swapaxes(gates, 0, 1))
        return ops.cast(ops.swapaxes(outputs, 0, 1), self.compute_dtype)


def _forget_bias(shape: tuple[int, ...], dtype: Any = None) -> Tensor:
    """Returns 1 for the forget gates, the second quarter, and 0 for the others."""
    indices = ops.arange(shape[0])
    return ops.cast((indices >= shape[0] // 4) & (indices < shape[0] // 2), dtype or "float32")


class BilstmLayer(modeling.ConfiguredLayer):
    """Two independent LSTMs, forward and backward: [2, B, S, D] to [2, B, S, U].

    The inputs are the sequences and the reversed sequences; U is H/2, and D is `input_size`. Where
    D is U, the input is added to the output (Peters et al., Deep contextualized word
    representations, 3.1 and 3.4).
    """

    def __init__(self, config: modeling.BertConfig, input_size: int, **kwargs: Any) -> None:
        super().__init__(config, **kwargs)
        self.lstms = [
            Lstm(config, input_size, name=name, dtype=self.dtype_policy)
            for name in ("forward", "backward")
        ]
        self.dropout = self.new_dropout(config.hidden_dropout_prob)
        self.is_residual = input_size == config.hidden_size // 2

    def call(self, inputs: Tensor, training: bool | None = False) -> Tensor:
        outputs = ops.stack([lstm(inputs[index]) for index, lstm in enumerate(self.lstms)])
        outputs = self.dropout(outputs, training=training)
        return outputs + inputs if self.is_residual else outputs


class LstmEncoder(modeling.ConfiguredLayer):
    """ELMo's bidirectional LSTMs, with the inputs, outputs and attributes of `modeling.Encoder`.

    The first half of a token's output is of an LSTM that has read the sequence up to the token, the
    second of an LSTM that has read from the last real token back to it. Each half of a layer reads
    the same half of the layer below, so that neither direction sees the other side of a token.
    """

    def __init__(self, config: modeling.BertConfig, **kwargs: Any) -> None:
        super().__init__(config, **kwargs)
        widths = [config.hidden_size, *[config.hidden_size // 2] * (config.num_hidden_layers - 1)]
        self.lstm_layers = [
            BilstmLayer(config, width, name=f"layer_{index}", dtype=self.dtype_policy)
            for index, width in enumerate(widths)
        ]
        self.gradient_checkpointing = False

    def call(
        self,
        inputs: Tensor,
        input_mask: Tensor,
        positions: Tensor | None = None,
        training: bool | None = False,
    ) -> list[Tensor]:
        order = reversed_positions(input_mask)
        hidden = both_ways(inputs, order)
        outputs = []
        for layer in self.lstm_layers:
            hidden = self._call_layer(layer, hidden, training)
            outputs.append(side_by_side(hidden, order))
        if positions is not None:
            outputs[-1] = modeling.gather_tokens(outputs[-1], positions, ops.shape(input_mask)[1])
        return outputs

    def _call_layer(self, layer: BilstmLayer, hidden: Tensor, training: bool | None) -> Tensor:
        def compute(hidden: Tensor) -> Tensor:
            return layer(hidden, training=training)

        if self.gradient_checkpointing and training:
            return recompute(compute, hidden, [layer.dropout])
        return compute(hidden)


def reversed_positions(input_mask: Tensor) -> Tensor:
    """Returns the positions that reverse each sequence: int32 [B, S].

    The real tokens of a sequence, which come before padding, are reversed; padding stays.
    """
    positions = ops.arange(ops.shape(input_mask)[1], dtype="int32")
    lengths = ops.sum(ops.cast(input_mask, "int32"), axis=1, keepdims=True)  # [B, 1]
    return ops.where(positions < lengths, lengths - 1 - positions, positions)


def both_ways(inputs: Tensor, order: Tensor) -> Tensor:
    """Returns sequences, [B·S, D], and their reverse by the order, int32 [B, S]: [2, B, S, D]."""
    batch, length = ops.shape(order)
    both = ops.stack([inputs, modeling.gather_tokens(inputs, order, length)])
    return ops.reshape(both, (2, batch, length, inputs.shape[-1]))


def side_by_side(outputs: Tensor, order: Tensor) -> Tensor:
    """Concatenates the directions, of which the second is reversed: [2, B, S, U] to [B·S, H]."""
    forward, backward = (ops.reshape(outputs[i], (-1, outputs.shape[-1])) for i in range(2))
    return ops.concatenate(
        [forward, modeling.gather_tokens(backward, order, ops.shape(order)[1])], axis=-1
    )


@keras.saving.register_keras_serializable("bert")
class AddedBilstm(BilstmLayer):
    """A BiLSTM on the encoder (paper, table 5, "+ BiLSTM").

    Takes encodings [B, S, H] and `input_mask` [B, S]; gives `sequence_output` [B, S, H], and
    `pooled_output` [B, H], the forward half of the last real token and the backward half of the
    first, which have read the complete sequence. Padding has no influence.
    """

    def __init__(self, config: modeling.BertConfig, **kwargs: Any) -> None:
        super().__init__(config, config.hidden_size, **kwargs)

    def call(  # type: ignore[override]  # It takes the mask, too.
        self, inputs: Tensor, input_mask: Tensor, training: bool | None = False
    ) -> dict[str, Tensor]:
        batch, length, width = ops.shape(inputs)
        order = reversed_positions(input_mask)
        both = both_ways(ops.reshape(inputs, (-1, inputs.shape[-1])), order)
        tokens = side_by_side(super().call(both, training=training), order)
        ends = modeling.gather_tokens(tokens, end_positions(input_mask), length)
        return {
            "sequence_output": ops.reshape(tokens, (batch, length, width)),
            "pooled_output": join_ends(ops.reshape(ends, (batch, 2, width))),
        }

    def compute_output_spec(
        self, inputs: Tensor, input_mask: Tensor, training: bool | None = False
    ) -> dict[str, Tensor]:
        """Returns what `call` gives for symbolic inputs."""
        batch, length, width = inputs.shape
        return {
            "sequence_output": keras.KerasTensor((batch, length, width), self.compute_dtype),
            "pooled_output": keras.KerasTensor((batch, width), self.compute_dtype),
        }

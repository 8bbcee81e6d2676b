"""A bidirectional LSTM over words, for BERT's layers as fixed features (paper, section 5.3).

Dimension key as in `modeling.py`; also `W` words of a window, `D` width of a feature, `U` units,
`C` labels.
"""

from typing import Any

import keras
from keras import ops

import modeling

Tensor = Any

# The paper names none.
DROPOUT_PROB = 0.3


@keras.saving.register_keras_serializable("bert")
class LSTM(keras.layers.Layer):
    """Long short-term memory: float32 [B, W, D] to [B, W, U] (Hochreiter and Schmidhuber, 1997).

    Gates, their order and the initial values are those of `keras.layers.LSTM`. That layer adds up
    the gradient of its weights word by word; here it is one product over all words.

    Args:
      units: U.
      **kwargs: Keras' arguments of every layer.
    """

    def __init__(self, units: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.units = units

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        units = self.units
        self.kernel = self.add_weight(
            name="kernel", shape=(input_shape[-1], 4 * units), initializer="glorot_uniform"
        )
        self.recurrent_kernel = self.add_weight(
            name="recurrent_kernel", shape=(units, 4 * units), initializer="orthogonal"
        )
        self.bias = self.add_weight(name="bias", shape=(4 * units,), initializer="zeros")
        # What was remembered is kept at first (Jozefowicz et al., 2015).
        self.bias.assign(ops.concatenate([ops.zeros(units), ops.ones(units), ops.zeros(2 * units)]))

    def call(self, inputs: Tensor) -> Tensor:
        projected = ops.matmul(inputs, self.kernel) + self.bias
        outputs = _recur(ops.swapaxes(projected, 0, 1), ops.copy(self.recurrent_kernel))
        return ops.swapaxes(outputs, 0, 1)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "units": self.units}


def _gates(summed: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Returns input, forget and output gate, and the candidate between the latter two."""
    i, f, candidate, o = ops.split(summed, 4, axis=-1)
    return ops.sigmoid(i), ops.sigmoid(f), ops.tanh(candidate), ops.sigmoid(o)


@ops.custom_gradient
def _recur(projected: Tensor, kernel: Tensor) -> Any:
    """Returns the hidden state after each word, [W, B, U].

    Args:
      projected: float32 [W, B, 4·U], what the gates get from the inputs.
      kernel: float32 [U, 4·U], which gives what they get from the state before.
    """
    zeros = ops.zeros_like(projected[0])
    start = ops.split(zeros, 4, axis=-1)[0]  # [B, U]

    def step(carry: tuple[Tensor, ...], inputs: Tensor) -> tuple[Any, Any]:
        state, memory, _ = carry
        summed = inputs + ops.matmul(state, kernel)
        i, f, candidate, o = _gates(summed)
        memory = f * memory + i * candidate
        after = (o * ops.tanh(memory), memory, summed)
        return after, after

    # `ops.scan` keeps for each step what it carries, so it carries all that is to be kept.
    _, (states, memories, summed) = ops.scan(step, (start, start, zeros), projected)

    def gradient(upstream: Tensor) -> tuple[Tensor, Tensor]:
        before = [ops.concatenate([start[None], each[:-1]]) for each in (states, memories)]
        transposed = ops.transpose(kernel)
        borders = [count * kernel.shape[0] for count in (1, 2, 3)]

        def step_back(carry: tuple[Tensor, ...], inputs: Tensor) -> tuple[Any, Any]:
            to_state, to_memory, _ = carry
            upstream, memory, memory_before, summed = ops.split(inputs, borders, axis=-1)
            i, f, candidate, o = _gates(summed)
            to_state += upstream
            squashed = ops.tanh(memory)
            to_memory += to_state * o * (1.0 - ops.square(squashed))
            parts = [
                to_memory * candidate * i * (1.0 - i),
                to_memory * memory_before * f * (1.0 - f),
                to_memory * i * (1.0 - ops.square(candidate)),
                to_state * squashed * o * (1.0 - o),
            ]
            to_summed = ops.concatenate(parts, axis=-1)
            after = (ops.matmul(to_summed, transposed), to_memory * f, to_summed)
            return after, after

        # `ops.scan` takes several inputs only where their length is known beforehand.
        inputs = ops.concatenate([upstream, memories, before[1], summed], axis=-1)
        _, kept = ops.scan(step_back, (start, start, zeros), inputs, reverse=True)
        rows = ops.reshape(kept[2], (-1, kernel.shape[1]))
        to_kernel = ops.matmul(ops.transpose(ops.reshape(before[0], (-1, kernel.shape[0]))), rows)
        return kept[2], to_kernel

    return states, gradient


@keras.saving.register_keras_serializable("bert")
class BiLSTM(keras.layers.Layer):
    """An LSTM in either direction: float32 [B, W, D] to [B, W, 2·U].

    Also takes `lengths`, int32 [B]: whatever comes after that many words of a row changes nothing.

    Args:
      units: U, of each direction.
      **kwargs: Keras' arguments of every layer.
    """

    def __init__(self, units: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.units = units
        self.forward_lstm = LSTM(units, name="forward", dtype=self.dtype_policy)
        self.backward_lstm = LSTM(units, name="backward", dtype=self.dtype_policy)

    def build(self, input_shape: tuple[int | None, ...], *_: Any) -> None:
        self.forward_lstm.build(input_shape)
        self.backward_lstm.build(input_shape)

    def call(self, inputs: Tensor, lengths: Tensor) -> Tensor:
        places = ops.arange(ops.shape(inputs)[1])[None]  # [1, W]
        # From a row's last word to its first; padding stays where it is.
        places = ops.where(places < lengths[:, None], lengths[:, None] - 1 - places, places)
        places = places[:, :, None]
        reversed_inputs = ops.take_along_axis(inputs, places, axis=1)
        backward = ops.take_along_axis(self.backward_lstm(reversed_inputs), places, axis=1)
        return ops.concatenate([self.forward_lstm(inputs), backward], axis=-1)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "units": self.units}


@keras.saving.register_keras_serializable("bert")
class LayerMix(keras.layers.Layer):
    """A weighted mean of layers, times a scale: float32 [B, W, L, D] to [B, W, D].

    Weights, a softmax, and scale are learned (Peters et al., 2018, equation 1).
    """

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        self.layer_weights = self.add_weight(
            name="layer_weights", shape=(input_shape[-2],), initializer="zeros"
        )
        self.scale = self.add_weight(name="scale", shape=(), initializer="ones")

    def call(self, inputs: Tensor) -> Tensor:
        weights = ops.softmax(self.layer_weights) * self.scale
        return ops.sum(inputs * weights[:, None], axis=-2)


@keras.saving.register_keras_serializable("bert")
class WordTagger(keras.layers.Layer):
    """Two bidirectional LSTMs and a dense layer: features of words to float32 [B, W, C].

    Takes `features`, float32 [B, W, D], or [B, W, L, D] to learn a mix of layers; and `lengths`,
    int32 [B], the number of words. What stands at further places changes nothing.

    Args:
      units: U, of each direction of each LSTM.
      num_labels: C.
      **kwargs: Keras' arguments of every layer.
    """

    def __init__(self, units: int, num_labels: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.units = units
        self.num_labels = num_labels
        self.mix = LayerMix(name="mix", dtype=self.dtype_policy)
        self.lstms = [BiLSTM(units, name=f"layer_{i}", dtype=self.dtype_policy) for i in range(2)]
        self.dropouts = [
            modeling.Dropout(DROPOUT_PROB, name=f"dropout_{i}", dtype=self.dtype_policy)
            for i in range(3)
        ]
        self.dense = keras.layers.Dense(num_labels, name="output", dtype=self.dtype_policy)

    def build(self, features_shape: tuple[int | None, ...], *_: Any) -> None:
        if len(features_shape) == 4:
            self.mix.build(features_shape)
        width: int | None = features_shape[-1]
        for lstm in self.lstms:
            lstm.build((None, None, width))
            width = 2 * self.units
        for dropout in self.dropouts:
            dropout.build(None)
        self.dense.build((None, None, width))

    def call(self, features: Tensor, lengths: Tensor, training: bool | None = False) -> Tensor:
        hidden = self.mix(features) if len(features.shape) == 4 else features
        for dropout, lstm in zip(self.dropouts, self.lstms, strict=False):
            hidden = lstm(dropout(hidden, training=training), lengths)
        return self.dense(self.dropouts[-1](hidden, training=training))

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "units": self.units, "num_labels": self.num_labels}

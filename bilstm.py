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


def bidirectional_lstm(units: int, name: str, dtype: Any) -> keras.layers.Layer:
    """Returns an LSTM in either direction: float32 [B, W, D] to [B, W, 2·U], `mask` bool [B, W]."""
    # The other implementation, for GPUs, takes no row without a word.
    lstm = keras.layers.LSTM(
        units, return_sequences=True, use_cudnn=False, name="lstm", dtype=dtype
    )
    return keras.layers.Bidirectional(lstm, name=name, dtype=dtype)


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
        self.lstms = [bidirectional_lstm(units, f"layer_{i}", self.dtype_policy) for i in range(2)]
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
        is_word = ops.arange(ops.shape(features)[1])[None] < lengths[:, None]  # [B, W]
        for dropout, lstm in zip(self.dropouts, self.lstms, strict=False):
            hidden = lstm(dropout(hidden, training=training), mask=is_word)
        # A copy, since Keras would hand the mask on to layers that know of none.
        return ops.copy(self.dense(self.dropouts[-1](hidden, training=training)))

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "units": self.units, "num_labels": self.num_labels}

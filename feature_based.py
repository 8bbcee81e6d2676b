"""A tagger on the layers of a frozen BERT (paper, section 5.3 and table 7).

Training reads features that were computed once; prediction goes from tokens to labels. Both use the
same layers, so the same checkpoint serves either.
"""

from collections.abc import Mapping
from typing import Any

import keras
from keras import ops

import bilstm
import layer_features
import modeling

Tensor = Any

# Weights for the layers, which are learned with the tagger.
WEIGHTED = "weighted"
FEATURE_LAYERS = (*layer_features.COMBINATIONS, WEIGHTED)


def check_layers(name: str, config: modeling.BertConfig, *, flag: str = "feature_layers") -> None:
    """Checks that a model has the layers that one of `FEATURE_LAYERS` needs.

    Raises:
      ValueError: naming the flag.
    """
    if name != WEIGHTED:
        layer_features.parse_layers(name, config, flag=flag)


def feature_model(bert: modeling.BertModel, layers: str) -> keras.Model:
    """Returns a model of `encoder_inputs` with `features`, float32.

    Args:
      bert: The encoder.
      layers: One of `FEATURE_LAYERS`. The features are [B, S, D]; for `WEIGHTED`, which is over
        Transformer layers as `sum_all` is, [B, S, L, H].
    """
    inputs = modeling.encoder_inputs()
    encoded = bert(inputs)
    if layers == WEIGHTED:
        features = ops.stack(encoded["encoder_layers"], axis=2)
    else:
        features = layer_features.combine(encoded, layers)
    return keras.Model(inputs, {"features": ops.cast(features, "float32")}, name=layers)


class FeatureTagger:
    """A frozen encoder, and a `WordTagger` of what it gives.

    Args:
      config: The shape of the encoder.
      num_labels: C.
      layers: One of `FEATURE_LAYERS`.
      lstm_size: Units of each LSTM in each direction.
      dtype: Name of the encoder's dtype policy; the tagger computes in float32.

    Attributes:
      layers: As given.
      encoder: A `feature_model`.
      model: A model of `features`, as `encoder` gives them, but a word in each place; and
        `label_mask`, int32 [B, W], 1 where there is a word, at the beginning of each row. It has
        `logits`, float32 [B, W, C]. Among its weights are those of the encoder, so that a
        checkpoint of it holds everything.
    """

    def __init__(
        self,
        config: modeling.BertConfig,
        num_labels: int,
        *,
        layers: str,
        lstm_size: int,
        dtype: str = "float32",
    ) -> None:
        check_layers(layers, config)
        self.layers = layers
        bert = modeling.BertModel(config, dtype=dtype)
        self.encoder = feature_model(bert, layers)
        bert.trainable = False
        self.tagger = bilstm.WordTagger(lstm_size, num_labels, name="bilstm", dtype="float32")
        shape = self.encoder.output["features"].shape
        inputs = {
            "features": keras.Input(shape[1:], dtype="float32", name="features"),
            "label_mask": keras.Input((None,), dtype="int32", name="label_mask"),
        }
        lengths = ops.sum(inputs["label_mask"], axis=-1)
        logits = self.tagger(inputs["features"], lengths)
        self.model = keras.Model(inputs, {"logits": logits}, name="tagging")
        # Keras tracks it there.
        self.model.bert = bert

    def whole_model(self) -> keras.Model:
        """Returns a model of `encoder_inputs` and `label_mask` with `logits`, float32 [B, S, C].

        `label_mask` is 1 at those tokens that stand for a word; elsewhere, logits are 0.
        """
        inputs = modeling.encoder_inputs()
        features = self.encoder(inputs)["features"]
        mask = keras.Input((None,), dtype="int32", name="label_mask")
        words, lengths, places = WordsFirst(name="words_first")(features, mask)
        logits = WordsBack(name="words_back")(self.tagger(words, lengths), places, mask)
        return keras.Model({**inputs, "label_mask": mask}, {"logits": logits}, name="tagging")


@keras.saving.register_keras_serializable("bert")
class WordsFirst(keras.layers.Layer):
    """Moves words to the beginning of their rows.

    Takes features [B, S, ...] and `label_mask`, int32 [B, S], 1 where a word is. Gives them as
    [B, W, ...], W being the largest number of words; the number of words of each row, int32 [B];
    and for each token the place to which it has moved, int32 [B, S].
    """

    def call(self, features: Tensor, label_mask: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        length = ops.shape(label_mask)[1]
        keys = (1 - label_mask) * length + ops.arange(length, dtype="int32")[None]
        order = ops.cast(ops.argsort(keys, axis=1), "int32")
        lengths = ops.sum(label_mask, axis=1)
        longest = ops.maximum(ops.max(lengths), 1)
        numbers = ops.reshape(order[:, :longest], (-1, longest, *[1] * (len(features.shape) - 2)))
        words = ops.take_along_axis(features, numbers, axis=1)
        return words, lengths, ops.cast(ops.argsort(order, axis=1), "int32")


@keras.saving.register_keras_serializable("bert")
class WordsBack(keras.layers.Layer):
    """Undoes `WordsFirst`: from [B, W, C], the places and the mask to [B, S, C], 0 at no word."""

    def call(self, words: Tensor, places: Tensor, label_mask: Tensor) -> Tensor:
        places = ops.minimum(places, ops.shape(words)[1] - 1)
        tokens = ops.take_along_axis(words, places[:, :, None], axis=1)
        return tokens * ops.cast(label_mask, tokens.dtype)[:, :, None]


def feature_shape(encoder: keras.Model) -> tuple[int, ...]:
    """Returns the shape of what an encoder gives of a word: (D,), or (L, H)."""
    outputs: Mapping[str, Tensor] = encoder.output
    return tuple(outputs["features"].shape[2:])

"""A tagger on the features of a frozen encoder (paper, section 5.3 and table 7).

Training reads features that are computed once; prediction starts from tokens. Both use the same
Keras layers and the same checkpoint.

Dimension key as in `modeling.py`; also `W` words of a window, `D` width of a feature, `U` units,
`C` labels.
"""

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import keras
import tensorflow as tf
from keras import ops

import modeling
import tokenization
from bert.network.crf import Crf, word_order
from bert.tasks.answering import stored_field
from bert.tasks.layers import WEIGHTED, check_layers, combine
from bert.tasks.tagging.text_tagger import TextTagger

if TYPE_CHECKING:
    from typing_extensions import Self

Tensor = Any


class _WordTable(modeling.ConfiguredLayer):
    """The vectors of words: int32 [B, S] to float32 [B, S, H]."""

    def build(self, *_: Any) -> None:
        self.table = self.add_table("word_embeddings", self.config.vocab_size, autocast=False)

    def call(self, input_ids: Tensor) -> Tensor:
        return ops.take(self.table, input_ids, axis=0)


class WordVectors(modeling.ConfiguredLayer):
    """A table of word vectors with the interface of `BertModel`.

    Returns `embedding_output`, float32 [B, S, H], and `encoder_layers`, which is empty.
    """

    def __init__(self, config: modeling.BertConfig, **kwargs: Any) -> None:
        super().__init__(config, name="bert", **kwargs)
        self.embeddings = _WordTable(config, name="embeddings", dtype=self.dtype_policy)

    def build(self, *_: Any) -> None:
        self.embeddings.build()

    def call(self, inputs: Mapping[str, Tensor], training: bool | None = False) -> dict[str, Any]:
        return {"embedding_output": self.embeddings(inputs["input_ids"]), "encoder_layers": []}


def feature_model(bert: modeling.BertModel | WordVectors, layers: str) -> keras.Model:
    """Returns a model of `encoder_inputs` with `features`, float32.

    Args:
      bert: The encoder.
      layers: One of `FEATURE_LAYERS`. The features are [B, S, D]; for `WEIGHTED`, which has all
        Transformer layers, [B, S, L, H].
    """
    inputs = modeling.encoder_inputs()
    encoded = bert(inputs)
    if layers == WEIGHTED:
        features = ops.stack(encoded["encoder_layers"], axis=2)
    else:
        features = combine(encoded, layers)
    return keras.Model(inputs, {"features": ops.cast(features, "float32")}, name=layers)


# The paper does not name its dropout.
DROPOUT_PROB = 0.3


def bidirectional_lstm(units: int, name: str, dtype: Any) -> keras.layers.Layer:
    """Returns a bidirectional LSTM, float32 [B, W, D] to [B, W, 2·U], with `mask`, bool [B, W]."""
    # cuDNN does not support rows without a word.
    lstm = keras.layers.LSTM(
        units, return_sequences=True, use_cudnn=False, name="lstm", dtype=dtype
    )
    return keras.layers.Bidirectional(lstm, name=name, dtype=dtype)


@keras.saving.register_keras_serializable("bert")
class LayerMix(keras.layers.Layer):
    """A weighted mean of layers, times a scale: float32 [B, W, L, D] to [B, W, D].

    The weights, a softmax, and the scale are learned (Peters et al., 2018, equation 1).
    """

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        self.layer_weights = self.add_weight(
            name="layer_weights", shape=(input_shape[-2],), initializer="zeros"
        )
        self.scale = self.add_weight(name="scale", shape=(), initializer="ones")

    def call(self, inputs: Tensor) -> Tensor:
        # The softmax of Keras warns of a single layer.
        weights = tf.nn.softmax(self.layer_weights) * self.scale
        return ops.sum(inputs * weights[:, None], axis=-2)


@keras.saving.register_keras_serializable("bert")
class WordTagger(keras.layers.Layer):
    """Two bidirectional LSTMs and a dense layer: features of words to float32 [B, W, C].

    Takes `features`, float32 [B, W, D], or [B, W, L, D] to learn a mix of layers; and `lengths`,
    int32 [B], the number of words. Positions after the last word are ignored.

    Args:
      units: U, the units of each direction of each LSTM.
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

    @property
    def layer_shares(self) -> list[float] | None:
        """The weight of each layer in the learned mix; None without a mix."""
        if not self.mix.built:
            return None
        return [float(share) for share in tf.nn.softmax(self.mix.layer_weights)]

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
        # A copy, since Keras would pass the mask to layers that do not support masks.
        return ops.copy(self.dense(self.dropouts[-1](hidden, training=training)))

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "units": self.units, "num_labels": self.num_labels}


class FeatureTagger:
    """A frozen encoder, and a `WordTagger` on its features.

    Args:
      config: The shape of the encoder.
      num_labels: C.
      layers: One of `FEATURE_LAYERS`.
      lstm_size: Units of each LSTM in each direction.
      dtype: The encoder's dtype policy; the tagger computes in float32.
      add_crf: Whether the models have the `transitions` of a `Crf`, too.

    Attributes:
      layers: The name of the layers.
      encoder: A `feature_model`.
      model: The trained model, from `features`, [B, W, ...] with one position per word, and
        `label_mask`, int32 [B, W], 1 for words, which are at the beginning of each row, to
        `logits`, float32 [B, W, C]. Its checkpoints include the encoder.
    """

    def __init__(
        self,
        config: modeling.BertConfig,
        num_labels: int,
        *,
        layers: str,
        lstm_size: int,
        dtype: str = "float32",
        add_crf: bool = False,
    ) -> None:
        check_layers(layers, config)
        self.layers = layers
        kind = WordVectors if config.is_word_vectors else modeling.BertModel
        bert = kind(config, dtype=dtype)
        self.encoder = feature_model(bert, layers)
        bert.trainable = False
        self.tagger = WordTagger(lstm_size, num_labels, name="bilstm", dtype="float32")
        shape = self.encoder.output["features"].shape
        inputs = {
            "features": keras.Input(shape[1:], dtype="float32", name="features"),
            "label_mask": keras.Input((None,), dtype="int32", name="label_mask"),
        }
        lengths = ops.sum(inputs["label_mask"], axis=-1)
        self.crf = Crf(name="crf", dtype="float32") if add_crf else None
        outputs = self._outputs(self.tagger(inputs["features"], lengths))
        self.model = keras.Model(inputs, outputs, name="tagging")
        # Keras tracks attributes, so that checkpoints include the encoder.
        self.model.bert = bert

    def _outputs(self, logits: Tensor) -> dict[str, Tensor]:
        transitions = {"transitions": self.crf(logits)} if self.crf else {}
        return {"logits": logits, **transitions}

    def whole_model(self) -> keras.Model:
        """Returns a model of `encoder_inputs` and `label_mask` with `logits`, float32 [B, S, C].

        `label_mask` is 1 at the tokens that represent words; the other logits are 0.
        """
        inputs = modeling.encoder_inputs()
        features = self.encoder(inputs)["features"]
        mask = keras.Input((None,), dtype="int32", name="label_mask")
        words, lengths, places = WordsFirst(name="words_first")(features, mask)
        logits = WordsBack(name="words_back")(self.tagger(words, lengths), places, mask)
        return keras.Model({**inputs, "label_mask": mask}, self._outputs(logits), name="tagging")


@keras.saving.register_keras_serializable("bert")
class WordsFirst(keras.layers.Layer):
    """Moves words to the beginning of their rows.

    Takes features [B, S, ...] and `label_mask`, int32 [B, S], 1 for words. Returns the features of
    words, [B, W, ...], where W is the largest number of words; the number of words of each row,
    int32 [B]; and the new position of each token, int32 [B, S].
    """

    def call(self, features: Tensor, label_mask: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        order, lengths = word_order(label_mask)
        longest = ops.maximum(ops.max(lengths), 1)
        numbers = ops.reshape(order[:, :longest], (-1, longest, *[1] * (len(features.shape) - 2)))
        words = ops.take_along_axis(features, numbers, axis=1)
        return words, lengths, ops.cast(ops.argsort(order, axis=1), "int32")


@keras.saving.register_keras_serializable("bert")
class WordsBack(keras.layers.Layer):
    """Undoes `WordsFirst`: from [B, W, C], positions and mask to [B, S, C], 0 where no word is."""

    def call(self, words: Tensor, places: Tensor, label_mask: Tensor) -> Tensor:
        places = ops.minimum(places, ops.shape(words)[1] - 1)
        tokens = ops.take_along_axis(words, places[:, :, None], axis=1)
        return tokens * ops.cast(label_mask, tokens.dtype)[:, :, None]


@dataclasses.dataclass(frozen=True, kw_only=True)
class FeatureTextTagger(TextTagger):
    """A tagger on the layers of a frozen BERT.

    Attributes:
      layers: The layers, one of `bert.tasks.layers.FEATURE_LAYERS`.
      lstm_size: Units of each LSTM in each direction.
      made: The tagger of the latest `make_model`.
    """

    layers: str
    lstm_size: int
    made: list[FeatureTagger] = dataclasses.field(default_factory=list, init=False, repr=False)

    @classmethod
    def from_stored(
        cls,
        stored: Mapping[str, Any],
        config: modeling.BertConfig,
        tokenizer: tokenization.FullTokenizer,
        **own: Any,
    ) -> "Self":
        own["layers"] = stored_field(stored, "feature_layers", str)
        own["lstm_size"] = stored_field(stored, "lstm_size", int)
        return super().from_stored(stored, config, tokenizer, **own)

    def stored(self) -> dict[str, Any]:
        return {
            **super().stored(),
            "feature_based": True,
            "feature_layers": self.layers,
            "lstm_size": self.lstm_size,
        }

    def make_model(self, precision: str) -> keras.Model:
        tagger = FeatureTagger(
            self.config,
            len(self.tag_set.labels),
            layers=self.layers,
            lstm_size=self.lstm_size,
            dtype=precision,
            add_crf=self.add_crf,
        )
        self.made[:] = [tagger]
        return tagger.model

    def whole_model(self, model: keras.Model) -> keras.Model:
        return self.made[0].whole_model()

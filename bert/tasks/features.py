"""Layers of a frozen encoder as features, and a tagger on them (paper, section 5.3 and table 7).

Training reads features that were computed once; prediction goes from tokens to labels. Both use the
same layers, so the same checkpoint serves either.

Dimension key as in `modeling.py`; also `W` words of a window, `D` width of a feature, `U` units,
`C` labels.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import ops

import modeling
import tokenization
from bert.network.inference import infer
from bert.tasks.layers import WEIGHTED, check_layers, combine
from bert.training.lengths import pad_sequences, sort_by_length

Tensor = Any


class _WordTable(modeling.ConfiguredLayer):
    """The vectors of words: int32 [B, S] to float32 [B, S, H]."""

    def build(self, *_: Any) -> None:
        self.table = self.add_table("word_embeddings", self.config.vocab_size, autocast=False)

    def call(self, input_ids: Tensor) -> Tensor:
        return ops.take(self.table, input_ids, axis=0)


class WordVectors(modeling.ConfiguredLayer):
    """What a model of word vectors has in place of a `BertModel`: their table alone.

    Takes what that does, and gives `embedding_output`, float32 [B, S, H]; `encoder_layers` is
    empty.
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
      layers: One of `FEATURE_LAYERS`. The features are [B, S, D]; for `WEIGHTED`, which is over
        Transformer layers as `sum_all` is, [B, S, L, H].
    """
    inputs = modeling.encoder_inputs()
    encoded = bert(inputs)
    if layers == WEIGHTED:
        features = ops.stack(encoded["encoder_layers"], axis=2)
    else:
        features = combine(encoded, layers)
    return keras.Model(inputs, {"features": ops.cast(features, "float32")}, name=layers)


def feature_shape(encoder: keras.Model) -> tuple[int, ...]:
    """Returns the shape of what an encoder gives of a word: (D,), or (L, H)."""
    outputs: Mapping[str, Tensor] = encoder.output
    return tuple(outputs["features"].shape[2:])


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
        # Keras would warn where there is a single layer.
        weights = tf.nn.softmax(self.layer_weights) * self.scale
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

    @property
    def layer_shares(self) -> list[float] | None:
        """The share of each layer in the mix that is learned; None where there is none."""
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
        # A copy, since Keras would hand the mask on to layers that know of none.
        return ops.copy(self.dense(self.dropouts[-1](hidden, training=training)))

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "units": self.units, "num_labels": self.num_labels}


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


@dataclasses.dataclass(frozen=True, slots=True)
class Line:
    """A text, or a pair of texts, as the model takes it.

    Attributes:
      tokens: `[CLS] a [SEP] (b [SEP])`.
      input_ids: Of the tokens.
      segment_ids: 0 up to the first [SEP], then 1.
      num_cut: Tokens left out to fit.
    """

    tokens: Sequence[str]
    input_ids: Sequence[int]
    segment_ids: Sequence[int]
    num_cut: int


def read_line(
    texts: Sequence[str], tokenizer: tokenization.FullTokenizer, max_seq_length: int
) -> Line:
    """Returns a text and another, which may be empty, cut to the length in tokens."""
    a, b = map(tokenizer.tokenize, texts)
    tokens, segment_ids = tokenization.pack(a, b, max_length=max_seq_length)
    num_cut = len(a) + len(b) + (3 if b else 2) - len(tokens)
    return Line(tokens, tokenizer.convert_tokens_to_ids(tokens), segment_ids, num_cut)


class Extractor:
    """Computes layers of the encoder, and pools them over tokens.

    Args:
      bert: The encoder.
      layers: As `parse_layers` gives them.
      pooling: "none", "cls", "mean" or "max".
    """

    def __init__(self, bert: modeling.BertModel, layers: Sequence[int | str], pooling: str) -> None:
        self.layers = layers
        self.pooling = pooling
        inputs = modeling.encoder_inputs()
        encoded = bert(inputs)
        outputs = [combine(encoded, layer) for layer in layers]
        self.model = keras.Model(inputs, outputs)
        # One trace serves all shapes. TensorFlow leaves out what no output needs.
        signature = {name: tf.TensorSpec((None, None), tf.int32) for name in inputs}
        self._compute = tf.function(self._pooled, input_signature=[signature], autograph=False)

    def _pooled(self, batch: dict[str, Any]) -> list[Any]:
        """Returns each layer, [B, S, W], pooled [B, 1, W]."""
        # Of a single output, Keras makes no list.
        outputs = tf.nest.flatten(infer(self.model, batch))
        outputs = [tf.cast(output, tf.float32) for output in outputs]
        if self.pooling == "none":
            return outputs
        if self.pooling == "cls":
            return [output[:, :1] for output in outputs]
        mask = tf.cast(batch["input_mask"], tf.float32)[:, :, None]
        if self.pooling == "mean":
            num_tokens = tf.reduce_sum(mask, axis=1, keepdims=True)
            sums = [tf.reduce_sum(output * mask, axis=1, keepdims=True) for output in outputs]
            return [each / num_tokens for each in sums]
        masked = [tf.where(mask > 0, output, output.dtype.min) for output in outputs]
        return [tf.reduce_max(each, axis=1, keepdims=True) for each in masked]

    def num_rows(self, num_tokens: int) -> int:
        """Returns the number of rows that a line of so many tokens gives."""
        return num_tokens if self.pooling == "none" else 1

    def __call__(
        self,
        lines: Sequence[Line],
        *,
        batch_size: int,
        max_seq_length: int,
        between: Callable[[], None] = lambda: None,
    ) -> list[list[np.ndarray]]:
        """Returns float32 [`num_rows`, W] for each line and layer.

        Args:
          lines: The lines.
          batch_size: Of them that go through the model together.
          max_seq_length: Tokens at most.
          between: Called behind each batch; what it raises ends the work.
        """
        results: list[list[np.ndarray]] = [[] for _ in lines]
        lengths = [len(line.tokens) for line in lines]
        for batch in sort_by_length(lengths, batch_size):
            inputs = pad_sequences(
                [lines[number].input_ids for number in batch],
                [lines[number].segment_ids for number in batch],
                max_seq_length,
            )
            outputs = [output.numpy() for output in self._compute(inputs)]
            between()
            for row, number in enumerate(batch):
                num_rows = self.num_rows(lengths[number])
                results[number] = [output[row, :num_rows] for output in outputs]
        return results

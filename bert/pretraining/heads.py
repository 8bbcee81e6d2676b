"""The pre-training task: both heads, their losses and metrics (paper, section 3.1).

Dimension key and conventions as in `modeling.py`.
"""

from collections.abc import Mapping
from typing import Any

import keras
from keras import ops

import modeling
from bert.network.heads import Blend, cross_entropy, named_layers, num_pooled, pooled_positions

Tensor = Any


class PredictionTransform(modeling.ConfiguredLayer):
    """A dense layer and LayerNorm before the output weights: [..., D] to [B·P, H]."""

    def __init__(
        self, config: modeling.BertConfig, input_size: int | None = None, **kwargs: Any
    ) -> None:
        super().__init__(config, **kwargs)
        self.input_size = input_size or config.hidden_size
        self.dense = self.new_dense(config.hidden_size, "dense", config.hidden_act)
        self.layer_norm = self.new_layer_norm()

    def build(self, *_: Any) -> None:
        self.dense.build((None, self.input_size))
        self.layer_norm.build((None, self.config.hidden_size))

    def call(self, inputs: Tensor) -> Tensor:
        return self.layer_norm(self.dense(ops.reshape(inputs, (-1, self.input_size))))


class NeighborTransform(modeling.ConfiguredLayer):
    """A `PredictionTransform` for each direction of LSTMs: [B, P, H] to [B·P, H].

    The first half of the positions predicts the tokens that follow, from the forward half of their
    encodings; the second half predicts the tokens that precede, from the backward half (Peters et
    al., 2018, 3.1).
    """

    def __init__(self, config: modeling.BertConfig, **kwargs: Any) -> None:
        super().__init__(config, **kwargs)
        self.transforms = [
            PredictionTransform(config, config.hidden_size // 2, name=name, dtype=self.dtype_policy)
            for name in ("forward", "backward")
        ]

    def build(self, *_: Any) -> None:
        for transform in self.transforms:
            transform.build(None)

    def call(self, inputs: Tensor) -> Tensor:
        batch, count, width = ops.shape(inputs)
        to_next, to_previous = self.transforms
        transformed = (
            to_next(inputs[:, : count // 2, : width // 2]),
            to_previous(inputs[:, count // 2 :, width // 2 :]),
        )
        both = [ops.reshape(each, (batch, -1, width)) for each in transformed]
        return ops.reshape(ops.concatenate(both, axis=1), (-1, width))


class MaskedLanguageModel(modeling.ConfiguredLayer):
    """Predicts the tokens at the masked positions alone (paper, section 3.1, task 1).

    With LSTMs, the neighbors of the positions are predicted; see `NeighborTransform`. Takes the
    encodings of the positions [B, P, H] and `embedding_table` [V, H], which serves as output
    weights; returns float32 logits [B, P, V].
    """

    def __init__(self, config: modeling.BertConfig, **kwargs: Any) -> None:
        super().__init__(config, **kwargs)
        transform = NeighborTransform if config.is_bilstm else PredictionTransform
        self.transform = transform(config, name="transform", dtype=self.dtype_policy)

    def build(self, *_: Any) -> None:
        self.transform.build(None)
        self.output_bias = self.add_weight(
            name="output_bias", shape=(self.config.vocab_size,), initializer="zeros", autocast=False
        )

    def call(self, encodings: Tensor, embedding_table: Tensor) -> Tensor:
        logits = _tied_logits(self.transform(encodings), embedding_table)
        logits = ops.cast(logits, "float32") + ops.cast(self.output_bias, "float32")
        return ops.reshape(logits, (ops.shape(encodings)[0], -1, self.config.vocab_size))


@ops.custom_gradient
def _tied_logits(hidden: Tensor, table: Tensor) -> tuple[Tensor, Any]:
    """Returns [R, H] times [V, H] transposed: [R, V]; the gradient transposes no table."""

    def gradient(upstream: Tensor) -> tuple[Tensor, Tensor]:
        return ops.matmul(upstream, table), ops.matmul(ops.transpose(upstream), hidden)

    return ops.matmul(hidden, ops.transpose(table)), gradient


class NextSentence(modeling.ConfiguredLayer):
    """Predicts whether segment B follows segment A (paper, section 3.1, task 2).

    Takes `pooled_output` [B, H]; returns float32 logits [B, 2] of "is next" and "is random".
    """

    def build(self, *_: Any) -> None:
        self.output_weights = self.add_table("output_weights", 2)
        self.output_bias = self.add_weight(
            name="output_bias", shape=(2,), initializer="zeros", autocast=False
        )

    def call(self, pooled_output: Tensor) -> Tensor:
        logits = ops.matmul(pooled_output, ops.transpose(self.output_weights))
        return ops.cast(logits, "float32") + ops.cast(self.output_bias, "float32")


@keras.saving.register_keras_serializable("bert")
class PretrainingHeads(modeling.ConfiguredLayer):
    """Both pre-training heads on the outputs of `BertModel` (original: run_pretraining.py).

    Takes the outputs of `BertModel` for the positions of `pooled_positions` and the P of
    `MaskedLanguageModel`; returns `masked_lm_logits` float32 [B, P, V] and `next_sentence_logits`
    float32 [B, 2].
    """

    def __init__(self, config: modeling.BertConfig, name: str = "cls", **kwargs: Any) -> None:
        super().__init__(config, name=name, **kwargs)
        self.predictions = MaskedLanguageModel(config, name="predictions", dtype=self.dtype_policy)
        self.seq_relationship = NextSentence(
            config, name="seq_relationship", dtype=self.dtype_policy
        )

    def build(self, *_: Any) -> None:
        self.predictions.build(None)
        self.seq_relationship.build(None)

    def call(self, encoded: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {
            "masked_lm_logits": self.predictions(
                encoded["sequence_output"][:, num_pooled(self.config) :],
                encoded["embedding_table"],
            ),
            "next_sentence_logits": self.seq_relationship(encoded["pooled_output"]),
        }


def pretraining_model(
    config: modeling.BertConfig, dtype: Any = None, *, gives_layers: bool = False
) -> keras.Model:
    """Returns the encoder under both pre-training heads.

    Args:
      config: The shape of the model.
      dtype: A Keras dtype policy or its name, such as "mixed_bfloat16"; Keras' global one if None.
      gives_layers: Whether the outputs have all layers of the encoder, too, [B, S, H] each, by
        `layer_name`. The logits are the same.

    Returns:
      A functional model from `input_ids`, `input_mask`, `segment_ids` [B, S] and
      `masked_lm_positions` [B, P] to the outputs of `PretrainingHeads`.
    """
    inputs = modeling.encoder_inputs()
    masked = keras.Input((None,), dtype="int32", name="masked_lm_positions")
    pooled = pooled_positions(config, inputs["input_mask"])
    positions = ops.concatenate([pooled, masked], axis=1)
    bert = modeling.BertModel(config, dtype=dtype)
    layers = {}
    if gives_layers:
        encoded = bert(inputs)
        layers = named_layers(encoded)
        sequence = encoded["sequence_output"]
        gathered = ops.take_along_axis(sequence, positions[:, :, None], axis=1)
        encoded = {**encoded, "sequence_output": gathered}
    else:
        encoded = bert(inputs, positions=positions)
    outputs = PretrainingHeads(config, dtype=dtype)(encoded)
    return keras.Model({**inputs, "masked_lm_positions": masked}, {**outputs, **layers})


def loss_weights(batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Returns the divisor of each loss: the number of masked tokens, or of examples."""
    return {
        "masked_lm_loss": ops.sum(batch["masked_lm_weights"]),
        "next_sentence_loss": ops.cast(ops.size(batch["next_sentence_labels"]), "float32"),
    }


def losses(
    outputs: Mapping[str, Tensor],
    batch: Mapping[str, Tensor],
    weights: Mapping[str, Tensor],
    blend: Blend | None = None,
) -> dict[str, Tensor]:
    """Returns this batch's share of the losses whose sum is minimized (paper, appendix A.2).

    Args:
      outputs: The outputs of `pretraining_model` for the batch.
      batch: `masked_lm_ids` int32 and `masked_lm_weights` float32 [B, P], 0 for padding, and
        `next_sentence_labels` int32 [B, 1], 0 where segment B follows A.
      weights: The `loss_weights` of the step, of which the batch is all or a part.
      blend: From the loss of each predicted token, float32 [B·P], its logits [B·P, V] and the batch
        to what counts in its place.
    """
    masked_lm, next_sentence = _cross_entropies(outputs, batch, blend)
    return {
        # Faithful: the original guards a batch without masked tokens by 1e-5.
        "masked_lm_loss": ops.sum(masked_lm) / (weights["masked_lm_loss"] + 1e-5),
        "next_sentence_loss": ops.sum(next_sentence) / weights["next_sentence_loss"],
    }


def metrics(
    outputs: Mapping[str, Tensor], batch: Mapping[str, Tensor]
) -> dict[str, tuple[Tensor, Tensor]]:
    """Returns (sum, weight) of each metric over this batch; arguments as `losses`.

    Sums and weights add up over batches, so that the batch size does not change the result.
    """
    masked_lm, next_sentence = _cross_entropies(outputs, batch)
    num_masked, num_examples = loss_weights(batch).values()
    hits = _hits(outputs["masked_lm_logits"], batch["masked_lm_ids"])
    next_hits = _hits(outputs["next_sentence_logits"], batch["next_sentence_labels"][:, 0])
    return {
        "masked_lm_loss": (ops.sum(masked_lm), num_masked),
        "masked_lm_accuracy": (ops.sum(hits * batch["masked_lm_weights"]), num_masked),
        "next_sentence_loss": (ops.sum(next_sentence), num_examples),
        "next_sentence_accuracy": (ops.sum(next_hits), num_examples),
    }


def _cross_entropies(
    outputs: Mapping[str, Tensor], batch: Mapping[str, Tensor], blend: Blend | None = None
) -> tuple[Tensor, Tensor]:
    """Returns the weighted loss of every masked token [B, P] and the loss of every pair [B]."""
    logits = outputs["masked_lm_logits"]
    weights = batch["masked_lm_weights"]
    rows = ops.reshape(logits, (-1, logits.shape[-1]))  # [B·P, V]
    masked_lm = cross_entropy(rows, ops.reshape(batch["masked_lm_ids"], (-1,)))
    if blend:
        masked_lm = blend(masked_lm, rows, batch)
    next_sentence = cross_entropy(
        outputs["next_sentence_logits"], batch["next_sentence_labels"][:, 0]
    )
    return ops.reshape(masked_lm, ops.shape(weights)) * weights, next_sentence


def _hits(logits: Tensor, labels: Tensor) -> Tensor:
    return ops.cast(ops.equal(ops.argmax(logits, axis=-1), ops.cast(labels, "int32")), "float32")

"""The model, batches and loss of each pre-training objective (paper, sections 3.1 and 5.1).

Masks may be drawn as records are read (`mask_at_training`). They depend only on a seed, the pass
over all records and the record's number: they are the same in any batch, on any device, and however
often a training run resumes.
"""

import copy
import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import modeling
from bert.network.heads import Blend
from bert.options import Message, Option, OptionError
from bert.pretraining import heads
from bert.pretraining.masking import (
    GOES_ON,
    Masking,
    generator,
    kinds_of_ids,
    place_in_words,
    put_masks,
    words_of,
)
from bert.pretraining.options import GOALS, Goal
from bert.training.batches import Batches
from bert.training.loop import Batch, Objective
from bert.training.records import LENGTH, Feature, Records, encoder_features
from bert.weights.checkpoint import Stored
from bert.weights.provenance import find_learned

Tensor = Any

# The features that only masked records have.
MASKS = ("masked_lm_positions", "masked_lm_ids", "masked_lm_weights")
# The original's, of batches with masks.
OBJECTIVE = Objective(heads.loss_weights, heads.losses)


def pretraining_features(
    *, max_seq_length: int, max_predictions_per_seq: int, vocab_size: int, type_vocab_size: int
) -> dict[str, Feature]:
    """Returns the features of a pre-training record (original: create_pretraining_data.py)."""
    sequence = (max_seq_length, LENGTH)
    predictions = (max_predictions_per_seq, Option("max_predictions_per_seq"))
    encoder = encoder_features(
        max_seq_length=max_seq_length, vocab_size=vocab_size, type_vocab_size=type_vocab_size
    )
    ids = encoder["input_ids"]
    return {
        **encoder,
        "masked_lm_positions": Feature(*predictions, *sequence),
        "masked_lm_ids": Feature(*predictions, ids.limit, ids.limit_source),
        "masked_lm_weights": Feature(*predictions, is_weight=True),
        "next_sentence_labels": Feature(1, "next-sentence prediction", 2, "a label"),
    }


def plain_features(features: Mapping[str, Feature]) -> dict[str, Feature]:
    """Returns the features of records without masks."""
    return {name: feature for name, feature in features.items() if name not in MASKS}


def mask_specs(size: int | None, most: int) -> dict[str, tf.TensorSpec]:
    """Returns the shapes and dtypes of the tokens to predict in a batch.

    Args:
      size: The number of examples; None where batches differ.
      most: The most predicted tokens of an example.
    """
    dtypes = (tf.int32, tf.int32, tf.float32)
    return {
        name: tf.TensorSpec((size, most), dtype, name=name)
        for name, dtype in zip(MASKS, dtypes, strict=True)
    }


class Masker:
    """Masks batches of records.

    Args:
      masking: How the records are masked; its seed is that of evaluations, so that all models are
        evaluated on the same masks.
      vocab: The vocabulary of the records.
    """

    def __init__(self, masking: Masking, vocab: Mapping[str, int]) -> None:
        self.masking = masking
        self._kinds = kinds_of_ids(vocab)
        self._num_words = len(vocab)
        self._words = words_of(vocab)

    def mask(
        self,
        ids: np.ndarray,
        lengths: np.ndarray,
        goes_on: np.ndarray,
        seed: int,
        visits: np.ndarray,
    ) -> tuple[np.ndarray, ...]:
        """Returns the ids with masks, and the masked positions, ids and weights.

        Args:
          ids: int32 [B, S].
          lengths: The number of tokens of each record without padding, [B].
          goes_on: Whether each token continues a word, bool [B, S], where records have it.
          seed: The seed of all draws.
          visits: The pass over all records and the number of each record, [B, 2].

        Returns:
          The ids, int32 [B, S]; the masked positions in ascending order and the ids before
          masking, int32 [B, P], padded with 0; and the weights, float32 [B, P], 1 for a mask.
        """
        kinds = self._kinds[ids]
        if self.masking.has_words:
            kinds = place_in_words(kinds, goes_on)
        drawn = [
            self.masking.draw(row[:length].tobytes(), self._num_words, generator(seed, *visit))
            for row, length, visit in zip(kinds, lengths.tolist(), visits.tolist(), strict=True)
        ]
        masked = ids.copy()
        firsts = np.arange(len(ids)) * ids.shape[1]
        counts, places, labels = put_masks(masked.reshape(-1), firsts, drawn, self._words)
        is_label = np.arange(self.masking.max_predictions_per_seq) < counts[:, None]  # [B, P]
        positions, hidden = np.zeros((2, *is_label.shape), np.int32)
        positions[is_label], hidden[is_label] = places, labels
        return masked, positions, hidden, is_label.astype(np.float32)


class MaskedBatches(Batches):
    """Batches of records without masks, with other masks in every pass over the records.

    Evaluation draws masks from the seed of the records, so that they are the same for all models.

    Args:
      records: The records, as for `Batches`.
      features: The features without masks.
      batch_size: The number of examples of a batch.
      seed: The seed of the order and of the masks of training; None for evaluation.
      shuffle_block: The number of records that are shuffled together.
      masker: Draws the masks.
    """

    def __init__(
        self,
        records: Records,
        features: Mapping[str, Feature],
        batch_size: int,
        seed: int | None = None,
        *,
        shuffle_block: int = 0,
        masker: Masker,
    ) -> None:
        if masker.masking.has_words:
            length = features["input_ids"].length
            features = {**features, GOES_ON: Feature(length, LENGTH, 2, "a mask")}
        super().__init__(records, features, batch_size, seed, shuffle_block=shuffle_block)
        self.masker = masker

    @property
    def signature(self) -> dict[str, tf.TensorSpec]:
        """The shapes and dtypes of a batch."""
        specs = super().signature
        specs.pop(GOES_ON, None)
        size = specs["input_ids"].shape[0]
        return specs | mask_specs(size, self.masker.masking.max_predictions_per_seq)

    def finish(self, batch: dict[str, Tensor], visits: Tensor) -> dict[str, Tensor]:
        """Returns a batch with masks."""
        ids = batch["input_ids"]
        lengths = tf.reduce_sum(batch["input_mask"], axis=1)
        goes_on = batch.pop(GOES_ON, tf.zeros([0]))
        specs = mask_specs(None, self.masker.masking.max_predictions_per_seq)
        dtypes = [ids.dtype, *(spec.dtype for spec in specs.values())]
        masked, *hidden = tf.numpy_function(self._mask, [ids, lengths, goes_on, visits], dtypes)
        shapes = [spec.shape for spec in specs.values()]
        shaped = dict(zip(specs, map(tf.ensure_shape, hidden, shapes), strict=True))
        return {**batch, "input_ids": tf.ensure_shape(masked, ids.shape), **shaped}

    def _mask(
        self, ids: np.ndarray, lengths: np.ndarray, goes_on: np.ndarray, visits: np.ndarray
    ) -> tuple[np.ndarray, ...]:
        seed = self.masker.masking.random_seed
        if self.seed is not None:
            # The passes of training count from 1, so that none is the pass of an evaluation.
            seed, visits = self.seed, visits + np.array([1, 0])
        return self.masker.mask(ids, lengths, goes_on, seed, visits)


_NEXT_SENTENCE = "next_sentence"
_MASKED = "masked_lm"

_CONFIG = Option("bert_config_file")


@dataclasses.dataclass(frozen=True)
class PretrainingObjective(Goal):
    """A pre-training objective with its model, batches and loss."""

    def fit(self, config: modeling.BertConfig) -> modeling.BertConfig:
        """Returns the configuration of the objective's model.

        Raises:
          OptionError: where `config` describes a decoder or LSTMs, and the objective needs another
            encoder.
        """
        if config.is_decoder and not self.is_decoder:
            must = Message("be left_to_right for a %s with `is_decoder`", _CONFIG)
            remedy = "Take `is_decoder` out for a model that reads both sides."
            raise OptionError("objective", must, self.name, remedy)
        if config.is_bilstm and self.encoder_type != config.encoder_type:
            must = Message("be bilstm_lm for a %s of the `encoder_type` 'bilstm'", _CONFIG)
            remedy = "Take `encoder_type` out for a Transformer."
            raise OptionError("objective", must, self.name, remedy)
        config = copy.copy(config)
        config.is_decoder = self.is_decoder
        config.encoder_type = self.encoder_type
        config.check()
        return config

    def make_model(
        self, config: modeling.BertConfig, dtype: Any = None, *, gives_layers: bool = False
    ) -> keras.Model:
        """Returns `heads.pretraining_model`; weights on which no loss depends are not trained."""
        model = heads.pretraining_model(config, dtype=dtype, gives_layers=gives_layers)
        if not self.has_next_sentence:
            model.get_layer("bert").pooler.trainable = False
            model.get_layer("cls").seq_relationship.trainable = False
        return model

    def make_batches(
        self,
        records: Records,
        features: Mapping[str, Feature],
        batch_size: int,
        seed: int | None = None,
        *,
        shuffle_block: int = 0,
        masker: Masker | None = None,
    ) -> Batches:
        """Returns the batches of the model's inputs; with a masker, from records without masks."""
        if masker is not None:
            features = plain_features(features)
        arguments = (records, features, batch_size, seed)
        if masker is not None and not self.directions:
            return MaskedBatches(*arguments, shuffle_block=shuffle_block, masker=masker)
        kind = {0: Batches, 1: NextTokenBatches, 2: NeighborBatches}[len(self.directions)]
        return kind(*arguments, shuffle_block=shuffle_block)

    def make_loss(self, blend: Blend | None = None) -> Objective:
        """Returns the losses and their weights for the training loop; `blend` as `heads.losses`."""
        return Objective(self._weights, functools.partial(self._losses, blend=blend))

    def check_trained(self, model: keras.Model, weights: Stored) -> None:
        """Checks that weights to evaluate were trained for the objective, and have all its heads.

        Args:
          model: The model of the objective.
          weights: The weights, whose training run is in their folder.
        """
        learned = find_learned(weights.folder)
        if self.has_next_sentence and learned != self.name:
            raise OptionError(
                "objective",
                f"be {learned} to evaluate the model in {weights.folder!r}, which was trained with "
                "that and has learned nothing of next sentences",
                self.name,
                Message("Give %s.", Option("objective", learned)),
            )
        lacking = [each.path for each in model.trainable_weights if each.path not in weights.shapes]
        if names := sorted({"/".join(path.split("/")[:2]) for path in lacking}):
            raise OptionError(
                weights.option,
                Message("hold the heads, cls/*, to be evaluated without %s", Option("do_train")),
                remedy=Message(
                    "%r lacks weights of %s; was it fine-tuned, or stripped of its heads? Without "
                    "a next-sentence head, %s can be evaluated.",
                    weights.prefix,
                    names,
                    Option("objective", "masked_lm"),
                ),
            )

    def metrics(
        self, outputs: Mapping[str, Tensor], batch: Batch
    ) -> dict[str, tuple[Tensor, Tensor]]:
        """Returns (sum, weight) of each metric, as `heads.metrics` does."""
        return self._own(heads.metrics(outputs, batch))

    def _weights(self, batch: Batch) -> dict[str, Tensor]:
        return self._own(heads.loss_weights(batch))

    def _losses(
        self,
        outputs: Mapping[str, Tensor],
        batch: Batch,
        weights: Batch,
        blend: Blend | None = None,
    ) -> dict[str, Tensor]:
        # A head that is not trained has no weight.
        of_heads = {
            name: weights.get(self._own_name(name), weight)
            for name, weight in heads.loss_weights(batch).items()
        }
        return self._own(heads.losses(outputs, batch, of_heads, blend))

    def _own(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the values of the objective's heads, under the objective's names."""
        return {
            self._own_name(name): value
            for name, value in values.items()
            if self.has_next_sentence or not name.startswith(_NEXT_SENTENCE)
        }

    def _own_name(self, name: str) -> str:
        """Returns the objective's name of a value of the heads."""
        return name.replace(_MASKED, self.tokens)


OBJECTIVES: Mapping[str, PretrainingObjective] = {
    name: PretrainingObjective(**dataclasses.asdict(goal)) for name, goal in GOALS.items()
}


class NextTokenBatches(Batches):
    """Batches in which every token but the first is to be predicted from those before it.

    Masks of the records are removed. The `masked_lm_*` of a batch, [B, S - 1], are every position,
    the token that follows, and whether there is one.
    """

    # The number of predictions for each token but one.
    num_predictions = 1

    def parse(self, serialized: Tensor) -> dict[str, Tensor]:
        """Returns the batch of serialized records."""
        return predict_next(super().parse(serialized))

    @property
    def signature(self) -> dict[str, tf.TensorSpec]:
        """The shapes and dtypes of a batch."""
        specs = super().signature
        size, length = specs["input_ids"].shape
        return specs | mask_specs(size, self.num_predictions * (length - 1))


class NeighborBatches(NextTokenBatches):
    """Batches in which every token is to be predicted from those before and from those after it.

    The `masked_lm_*`, [B, 2·(S - 1)], are those of `NextTokenBatches`, and then every position but
    the first, the token before it, and whether that position is a real token's.
    """

    num_predictions = 2

    def parse(self, serialized: Tensor) -> dict[str, Tensor]:
        """Returns the batch of serialized records."""
        batch = super().parse(serialized)
        ids, positions = batch["input_ids"], batch["masked_lm_positions"]
        weights = batch["masked_lm_weights"]
        before = ids[:, :-1] * tf.cast(weights, ids.dtype)
        return {
            **batch,
            "masked_lm_positions": tf.concat([positions, positions + 1], axis=1),
            "masked_lm_ids": tf.concat([batch["masked_lm_ids"], before], axis=1),
            "masked_lm_weights": tf.concat([weights, weights], axis=1),
        }


def predict_next(batch: Batch) -> dict[str, Tensor]:
    """Returns a batch with every following token to predict; see `NextTokenBatches`."""
    ids = unmask(batch) if MASKS[0] in batch else batch["input_ids"]
    size, length = tf.shape(ids)[0], ids.shape[1]
    follows = batch["input_mask"][:, 1:]
    return {
        **batch,
        "input_ids": ids,
        "masked_lm_positions": tf.tile(tf.range(length - 1)[None], [size, 1]),
        "masked_lm_ids": ids[:, 1:] * follows,
        "masked_lm_weights": tf.cast(follows, tf.float32),
    }


def unmask(batch: Batch) -> Tensor:
    """Returns the ids before masking, int32 [B, S]."""
    ids, positions = batch["input_ids"], batch["masked_lm_positions"]
    seen = tf.gather(ids, positions, batch_dims=1)
    # Padding of the masked positions is no token.
    hidden = tf.where(batch["masked_lm_weights"] > 0, batch["masked_lm_ids"], seen)
    rows = tf.broadcast_to(tf.range(tf.shape(ids)[0])[:, None], tf.shape(positions))
    return tf.tensor_scatter_nd_update(ids, tf.stack([rows, positions], axis=-1), hidden)

"""Batches of pre-training whose masks are drawn as records are read (`mask_at_training`).

The masks of a record depend only on a seed, the pass over all records and the record's number: they
are the same in any batch, on any device, and however often a training run resumes.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from bert.pretraining.masking import (
    GOES_ON,
    Masking,
    generator,
    kinds_of_ids,
    put_masks,
    words_of,
)
from bert.pretraining.spaced_words import place_in_words
from bert.training.batches import Batches
from bert.training.records import LENGTH, Feature, Records

Tensor = Any

# The features that only masked records have.
MASKS = ("masked_lm_positions", "masked_lm_ids", "masked_lm_weights")


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

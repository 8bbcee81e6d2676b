"""Batches of pre-training whose masks are drawn as the records are read."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from bert.pretraining.late_masking import MASKS, Masker
from bert.pretraining.masking import GOES_ON
from bert.training.batches import LENGTH, Batches, Feature, Records

Tensor = Any


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


class MaskedBatches(Batches):
    """Batches of records without masks, each masked anew in every pass over them.

    Batches to evaluate on have the seed of the records, so that their masks are the same for all
    models.

    Args:
      records: As for `Batches`, like the arguments that follow.
      features: The features without masks.
      batch_size: The number of examples of a batch.
      seed: The seed of the order and of the masks of training.
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

"""Masks that are drawn as records are read, which hold none (`mask_at_training`).

The masks of a record depend on a seed, on the pass over all records and on the record's number
alone: they are the same in any batch, on any device, and however often a training run resumes.
"""

from collections.abc import Mapping

import numpy as np

from bert.pretraining.masking import Masking, generator, kinds_of_ids, put_masks, words_of
from bert.pretraining.spaced_words import place_in_words

# The features of records that are already masked, besides plain ids.
MASKS = ("masked_lm_positions", "masked_lm_ids", "masked_lm_weights")


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
          The ids, int32 [B, S]; in ascending order, padded with 0, the masked positions and their
          ids before, int32 [B, P]; and 1 for each, float32 [B, P].
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

"""Masks that are drawn as records are read, which hold none (`--mask_at_training`).

What is drawn for a record depends on a seed, on the pass over all records and on its number among
them alone: it is the same in whichever batch, on whichever device, and however often a training is
resumed.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from bert.pretraining.masking import (
    Masking,
    generator,
    kinds_of_ids,
    put_masks,
    words_of,
)
from bert.pretraining.spaced_words import PIECES, SPACES, place_in_words

# What records hold beside plain ids where they are masked already.
MASKS = ("masked_lm_positions", "masked_lm_ids", "masked_lm_weights")


@dataclasses.dataclass(frozen=True, kw_only=True)
class LateMasking(Masking):
    """How records are masked as they are read.

    Attributes:
      random_seed: That of their making, which seeds the masks of evaluations, so that these are the
        same for all models.
      words: What is a word, where whole ones are masked.
    """

    random_seed: int
    words: str = PIECES

    @property
    def has_words(self) -> bool:
        """Whether records tell which tokens go on with a word."""
        return self.words == SPACES

    @classmethod
    def of(cls, flags: Mapping[str, Any]) -> "LateMasking":
        """Returns that of records that were made with some flags."""
        names = [field.name for field in dataclasses.fields(cls)]
        return cls(**{name: flags[name] for name in names if name in flags})

    def __str__(self) -> str:
        units = "whole words" if self.do_whole_word_mask else "single tokens"
        units += " between spaces" * self.has_words
        return (
            f"{100 * self.masked_lm_prob:g} % of the tokens, {self.max_predictions_per_seq} at "
            f"most, {units}, {self.ratios}"
        )


class Masker:
    """Masks batches of records.

    Args:
      masking: How.
      vocab: That of the records.
    """

    def __init__(self, masking: LateMasking, vocab: Mapping[str, int]) -> None:
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
        """Returns the ids with masks, and what they hide.

        Args:
          ids: int32 [B, S].
          lengths: Tokens of each record, padding apart, [B].
          goes_on: Whether each token goes on with a word, bool [B, S], where records tell that.
          seed: Of all draws.
          visits: For each record, the pass over all in which it is read, and its number: [B, 2].

        Returns:
          The ids, int32 [B, S]; and in the order of their positions, padded with 0, these and the
          ids that stood there, int32 [B, P], and 1 for each, float32 [B, P].
        """
        kinds = self._kinds[ids]
        if self.masking.has_words:
            kinds = place_in_words(kinds, goes_on)
        drawn = [
            self.masking.draw(
                row[:length].tobytes(), self._num_words, generator(seed, *visit), sparing=True
            )
            for row, length, visit in zip(kinds, lengths.tolist(), visits.tolist(), strict=True)
        ]
        masked = ids.copy()
        firsts = np.arange(len(ids)) * ids.shape[1]
        counts, places, labels = put_masks(masked.reshape(-1), firsts, drawn, self._words)
        is_label = np.arange(self.masking.max_predictions_per_seq) < counts[:, None]  # [B, P]
        positions, hidden = np.zeros((2, *is_label.shape), np.int32)
        positions[is_label], hidden[is_label] = places, labels
        return masked, positions, hidden, is_label.astype(np.float32)

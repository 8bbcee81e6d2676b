"""Lists of tokens of different lengths, and where windows over long texts start."""

import dataclasses

import numpy as np


@dataclasses.dataclass(frozen=True)
class Ragged:
    """Concatenated lists of numbers: list `i` is `values[starts[i] : starts[i + 1]]`."""

    values: np.ndarray
    starts: np.ndarray

    @classmethod
    def of(cls, values: np.ndarray, lengths: np.ndarray) -> "Ragged":
        """Returns lists with these lengths, which are concatenated in `values`."""
        starts = np.zeros(len(lengths) + 1, np.int64)
        np.cumsum(lengths, out=starts[1:])
        return cls(values, starts)

    @property
    def lengths(self) -> np.ndarray:
        return np.diff(self.starts)

    def __getitem__(self, index: int) -> np.ndarray:
        return self.values[self.starts[index] : self.starts[index + 1]]

    def take(self, indices: np.ndarray) -> "Ragged":
        """Returns some of the lists."""
        lengths = self.lengths[indices]
        return Ragged.of(self.values[ranges(self.starts[indices], lengths)], lengths)

    def truncate(self, limit: int) -> "Ragged":
        """Returns the lists, truncated to a length."""
        lengths = np.minimum(self.lengths, limit)
        return Ragged.of(self.values[ranges(self.starts[:-1], lengths)], lengths)


def ranges(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Returns the concatenation of `range(start, start + length)` for each start and length."""
    before = np.cumsum(lengths) - lengths
    return np.arange(int(lengths.sum())) + np.repeat(starts - before, lengths)


def slide(num_tokens: np.ndarray, room: np.ndarray, doc_stride: int) -> Ragged:
    """Returns the starts of the windows over each text, in tokens.

    Args:
      num_tokens: The tokens of each text, int [E]. An empty one has no window.
      room: The maximum tokens of the text in a window, int [E].
      doc_stride: Tokens from the start of one window to the start of the next; at most `room` is
        used, so that no token is skipped.
    """
    step = np.minimum(room, doc_stride)
    num_more = -(-np.maximum(num_tokens - room, 0) // step)
    counts = np.where(num_tokens > 0, 1 + num_more, 0)
    number = ranges(np.zeros_like(counts), counts)
    return Ragged.of((number * np.repeat(step, counts)).astype(np.int32), counts)

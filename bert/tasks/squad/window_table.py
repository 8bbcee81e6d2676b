"""A table of windows over paragraphs, which may be longer than the model's sequences.

A window is `[CLS] question [SEP] part of the paragraph [SEP]` (paper, section 4.2); the next window
starts `doc_stride` tokens later (original: run_squad.py, convert_examples_to_features). The table
stores each question and paragraph once, and of a window only its start.
"""

import dataclasses
import functools

import numpy as np

from bert.log import logger

FIRST_UNIQUE_ID = 1000000000


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
    """Returns the starts of each example's windows, in tokens of its paragraph.

    Args:
      num_tokens: The tokens of each example's paragraph, int [E]. An empty one has no window.
      room: The maximum tokens of the paragraph in a window, int [E].
      doc_stride: Tokens from the start of one window to the start of the next; at most `room` is
        used, so that no token is skipped.
    """
    step = np.minimum(room, doc_stride)
    num_more = -(-np.maximum(num_tokens - room, 0) // step)
    counts = np.where(num_tokens > 0, 1 + num_more, 0)
    number = ranges(np.zeros_like(counts), counts)
    return Ragged.of((number * np.repeat(step, counts)).astype(np.int32), counts)


def context_scores(before: np.ndarray, length: int) -> np.ndarray:
    """Returns the score of the context that tokens have in a part of a paragraph.

    The score is the minimum of the numbers of tokens before and after, plus a little for length.

    Args:
      before: The number of tokens before each token in the part, int [...].
      length: The number of tokens of the part.
    """
    # Faithful: this very arithmetic, since its rounding decides which windows are equal.
    return np.minimum(before, length - 1 - before) + 0.01 * length


@dataclasses.dataclass(frozen=True, kw_only=True)
class WindowTable:
    """The windows of all examples, in order.

    Attributes:
      max_seq_length: Tokens per window, including padding.
      special_ids: The ids of [CLS] and [SEP].
      question_ids: The ids of each example's question.
      paragraph_ids: The ids of each paragraph's tokens.
      paragraph_words: The index of the word of each token of each paragraph.
      paragraphs: The index of each example's paragraph, int [E].
      doc_starts: The starts of each example's windows, from `slide`.
      answers: For training, the first and last token of the answer in its paragraph, or -1 and -1,
        int [E, 2].
      impossible: For training, whether each question has no answer, bool [E].
    """

    max_seq_length: int
    special_ids: tuple[int, int]
    question_ids: Ragged
    paragraph_ids: Ragged
    paragraph_words: Ragged
    paragraphs: np.ndarray
    doc_starts: Ragged
    answers: np.ndarray | None = None
    impossible: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.doc_starts.values)

    @property
    def num_examples(self) -> int:
        return len(self.paragraphs)

    def windows_of(self, example: int) -> range:
        """Returns the indices of an example's windows."""
        return range(*self.doc_starts.starts[example : example + 2].tolist())

    @functools.cached_property
    def examples(self) -> np.ndarray:
        """The index of each window's example, int64 [W]."""
        return np.repeat(np.arange(self.num_examples), self.doc_starts.lengths)

    @functools.cached_property
    def parts(self) -> np.ndarray:
        """The part of its paragraph in each window, int64 [W, 3].

        The columns are the position in the window of the part's first token, the index of this
        token in the paragraph, and the number of tokens.
        """
        firsts = self.question_ids.lengths[self.examples] + 2
        starts = self.doc_starts.values.astype(np.int64)
        remaining = self.paragraph_ids.lengths[self.paragraphs[self.examples]] - starts
        lengths = np.minimum(remaining, self.max_seq_length - 1 - firsts)
        return np.stack([firsts, starts, lengths], axis=1)

    def lengths(self) -> np.ndarray:
        """Returns the number of tokens of each window, without padding, int64 [W]."""
        return self.parts[:, 0] + self.parts[:, 2] + 1

    def features(self, start: int, stop: int) -> dict[str, np.ndarray]:
        """Returns the features of the windows from `start` to `stop`, each [B, values]."""
        windows = np.arange(start, min(stop, len(self)))
        examples = self.examples[start:stop]
        firsts, doc_starts, lengths = self.parts[start:stop].T
        positions = np.arange(self.max_seq_length)
        begins, ends = firsts[:, None], (firsts + lengths)[:, None]  # [B, 1]
        inside = positions <= ends  # [B, S]
        segment = inside & (positions >= begins)
        cls_id, sep_id = self.special_ids
        input_ids = np.zeros(inside.shape, np.int32)
        input_ids[:, 0] = cls_id
        input_ids[(positions >= 1) & (positions < begins - 1)] = self.question_ids.take(
            examples
        ).values
        first_tokens = self.paragraph_ids.starts[self.paragraphs[examples]] + doc_starts
        input_ids[segment & (positions < ends)] = self.paragraph_ids.values[
            ranges(first_tokens, lengths)
        ]
        for separators in (begins - 1, ends):
            np.put_along_axis(input_ids, separators, sep_id, axis=1)
        features = {
            "unique_ids": FIRST_UNIQUE_ID + windows[:, None],
            "input_ids": input_ids,
            "input_mask": inside,
            "segment_ids": segment,
        }
        if self.answers is not None and self.impossible is not None:
            spans = self.answers[examples] + (firsts - doc_starts)[:, None]
            has_answer = (self.answers[examples, 0] >= 0) & (spans[:, 0] >= firsts)
            has_answer &= spans[:, 1] < firsts + lengths
            # [CLS] is the answer of a window that does not contain it.
            spans = np.where(has_answer[:, None], spans, 0)
            features["start_positions"], features["end_positions"] = spans[:, :1], spans[:, 1:]
            features["is_impossible"] = self.impossible[examples][:, None]
        return features

    def part_ids(self, window: int) -> np.ndarray:
        """Returns the ids of the tokens of the paragraph in a window."""
        return self._part(self.paragraph_ids, window)

    def part_words(self, window: int) -> np.ndarray:
        """Returns the index of the word of each token of the paragraph in a window."""
        return self._part(self.paragraph_words, window)

    def _part(self, values: Ragged, window: int) -> np.ndarray:
        _, start, length = self.parts[window].tolist()
        return values[self.paragraphs[self.examples[window]]][start : start + length]

    def max_context(self, example: int) -> list[np.ndarray]:
        """Returns whether each token of the paragraph has its maximum context in a window.

        The first of several windows with equal context counts (original: run_squad.py,
        _check_is_max_context). The list has an array, bool [tokens], for each window of an example.
        """
        windows = self.windows_of(example)
        spans = self.parts[windows.start : windows.stop, 1:].tolist()
        num_tokens = sum(spans[-1]) if spans else 0
        best_scores = np.full(num_tokens, -np.inf)
        best_windows = np.zeros(num_tokens, np.int64)
        for index, (start, length) in enumerate(spans):
            scores = context_scores(np.arange(length), length)
            better = np.flatnonzero(scores > best_scores[start : start + length])
            best_scores[start + better] = scores[better]
            best_windows[start + better] = index
        return [
            best_windows[start : start + length] == index
            for index, (start, length) in enumerate(spans)
        ]

    def log_summary(self) -> None:
        """Logs the number of windows, and warns of answers without tokens."""
        logger.info(
            "%d questions make %d windows of at most %d tokens; the longest has %d.",
            self.num_examples,
            len(self),
            self.max_seq_length,
            self.lengths().max(initial=0),
        )
        if self.answers is None or self.impossible is None:
            return
        num_empty = int(((self.answers[:, 0] < 0) & ~self.impossible).sum())
        if num_empty:
            logger.warning("%d training questions have an answer that has no tokens.", num_empty)

"""The inputs of a classifier: examples as arrays of ids (paper, figure 2)."""

import logging
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

import tokenization
from bert.files.display import Progress
from bert.log import logger
from bert.options import Message, Option
from bert.tasks.classification.examples import ClassificationTask, InputExample
from bert.tasks.classification.long_texts import CUT_AT_ENDS, LongTexts
from bert.tasks.windows import slide

# The share of truncated examples beyond which a warning suggests a greater length.
_MANY_CUT = 0.05
# Words that may be entries of the vocabulary which no text is split into, such as [MASK].
_ENTRIES_SHOWN = 5
_BRACKETED = re.compile(r"\[[^\[\]\s]+\]")

# The name of the numbers of the rows' examples, where these may have several rows.
WINDOW_OF = "window_of"
# Where texts are cut, by the option `truncation`.
_PLACES = {"head": "at their ends", "tail": "at their beginnings", "head_tail": "in their middles"}
# Different numbers of windows that are logged.
_COUNTS_SHOWN = 10

# The number of examples whose features are made together.
_FEATURES_AT_ONCE = 10_000


def make_features(
    examples: Sequence[InputExample],
    task: ClassificationTask,
    tokenizer: tokenization.FullTokenizer,
    max_seq_length: int,
    *,
    long_texts: LongTexts = CUT_AT_ENDS,
    logs: bool = True,
) -> dict[str, np.ndarray]:
    """Returns the features of examples, in their order.

    Args:
      examples: The examples.
      task: The task.
      tokenizer: The tokenizer of the model.
      max_seq_length: Tokens per row; longer texts are truncated, or have several rows.
      long_texts: Which, and how.
      logs: Whether to log counts of unusual texts.

    Returns:
      `input_ids`, `input_mask` and `segment_ids`, int32 [B, S]; `is_real_example`, int32 [B, 1],
      all 1; `label_ids`: int32 [B, 1], or int32 [B, C] with 1 for each label of a multi-label task,
      or float32 [B, 1] for regression; 0 where the label is None. For windows also `window_of`,
      int32 [B, 1], the number of the example of each row, which ascends.
    """
    least = 5 if task.is_pair else 3
    if max_seq_length < least:
        raise ValueError(
            f"`max_seq_length` must be at least {least}, to hold a token of each text and what "
            f"surrounds them. Received {max_seq_length}."
        )
    label_ids = _label_ids(examples, task)
    count = len(examples)
    packer = _Packer(tokenizer, max_seq_length, long_texts)
    progress = Progress("Tokenizing", count)
    for start in range(0, count, _FEATURES_AT_ONCE):
        packer.add(examples[start : start + _FEATURES_AT_ONCE])
        progress(start + _FEATURES_AT_ONCE)
    if logs:
        packer.report(count)
    features = packer.features()
    if long_texts.doc_stride is not None:
        numbers = np.repeat(np.arange(count, dtype=np.int32), packer.counts)
        features[WINDOW_OF], label_ids = numbers[:, None], label_ids[numbers]
    is_real = np.ones((len(label_ids), 1), np.int32)
    return {**features, "label_ids": label_ids, "is_real_example": is_real}


def first_rows(arrays: Mapping[str, np.ndarray]) -> Any:
    """Returns the index of the first row of each example in the arrays of `make_features`."""
    if WINDOW_OF not in arrays:
        return slice(None)
    return np.unique(arrays[WINDOW_OF], return_index=True)[1]


def count_windows(arrays: Mapping[str, np.ndarray]) -> np.ndarray | None:
    """Returns the number of windows of each example, int [N]; None where texts have none."""
    return np.bincount(arrays[WINDOW_OF][:, 0]) if WINDOW_OF in arrays else None


def pool_windows(
    logits: np.ndarray, arrays: Mapping[str, np.ndarray], window_pooling: str
) -> np.ndarray:
    """Returns the logits of examples, float32 [N, C], from those of rows, float32 [B, C]."""
    if WINDOW_OF not in arrays or not len(logits):
        return logits
    firsts = first_rows(arrays)
    if window_pooling == "max":
        return np.maximum.reduceat(logits, firsts)
    counts = np.diff([*firsts, len(logits)])[:, None]
    return (np.add.reduceat(logits.astype(np.float64), firsts) / counts).astype(np.float32)


class _Packer:
    """Turns texts into rows of ids, and counts unusual texts.

    Attributes:
      counts: The number of rows of each example.
    """

    def __init__(
        self, tokenizer: tokenization.FullTokenizer, max_seq_length: int, long_texts: LongTexts
    ) -> None:
        self.counts: list[int] = []
        self._tokenizer = tokenizer
        self._max_seq_length = max_seq_length
        self._long_texts = long_texts
        self._rows = [np.zeros(0, np.int32)]
        # The ends of both segments of each row.
        self._ends = [np.zeros((0, 2), np.int32)]
        self._first, self._separator, self._unknown = tokenizer.convert_tokens_to_ids(
            ["[CLS]", "[SEP]", "[UNK]"]
        )
        self._added = {token.content for token in getattr(tokenizer, "added_tokens", ())}
        self._num_truncated = 0
        self._bracketed: list[str] = []
        self._entries: set[str] = set()
        self._empty: list[str] = []
        self._mostly_unknown: list[str] = []

    def add(self, examples: Sequence[InputExample]) -> None:
        """Adds the rows of examples: `[CLS] a [SEP]`, with or without `b [SEP]` (figure 2)."""
        rows: list[int] = []
        ends = []
        for example in examples:
            parts = self._parts(example)
            for a, b in parts:
                rows += [self._first, *a, self._separator]
                # Faithful: a second text without tokens does not get a separator.
                rows += [*b, self._separator] if b else []
                ends.append((len(a) + 2, len(a) + 2 + (len(b) + 1 if b else 0)))
            self.counts.append(len(parts))
        self._rows.append(np.array(rows, np.int32))
        self._ends.append(np.array(ends, np.int32).reshape(-1, 2))

    def features(self) -> dict[str, np.ndarray]:
        """Returns `input_ids`, `input_mask` and `segment_ids`, int32 [B, S], of all rows."""
        ends = np.concatenate(self._ends)[:, :, None]  # [B, 2, 1]
        places = np.arange(self._max_seq_length, dtype=np.int32)
        inside = places < ends[:, 1]
        input_ids = np.zeros(inside.shape, np.int32)
        input_ids[inside] = np.concatenate(self._rows)
        second = inside & (places >= ends[:, 0])
        return {
            "input_ids": input_ids,
            "input_mask": inside.astype(np.int32),
            "segment_ids": second.astype(np.int32),
        }

    def _parts(self, example: InputExample) -> list[tuple[list[Any], list[Any]]]:
        """Returns the ids of both texts in each row of an example."""
        a = self._ids(example.text_a, example.guid)
        b = [] if example.text_b is None else self._ids(example.text_b, example.guid)
        room = self._max_seq_length - (3 if b else 2)
        if len(a) + len(b) <= room:
            return [(a, b)]
        stride, most = self._long_texts.doc_stride, self._long_texts.max_windows
        if stride is not None:
            starts = slide(np.array([len(a)]), np.array([room]), stride).values.tolist()
            self._num_truncated += most is not None and len(starts) > most
            return [(a[start : start + room], b) for start in starts[:most]]
        self._num_truncated += 1
        if example.text_b is not None:
            short_a, short_b = tokenization.truncate_pair(a, b, budget=room)
            return [([*short_a], [*short_b])]
        head, tail = self._long_texts.num_kept(room)
        return [([*a[:head], *a[len(a) - tail :]], b)]

    def _ids(self, text: str, guid: str) -> list[Any]:
        ids = self._tokenizer.tokenize_to_ids(text)
        if not ids:
            self._empty.append(guid)
        elif 2 * ids.count(self._unknown) > len(ids):
            self._mostly_unknown.append(guid)
        found = {*_BRACKETED.findall(text)} - self._added if "[" in text else ()
        if entries := {word for word in found if word in self._tokenizer.vocab}:
            self._bracketed.append(guid)
            self._entries |= entries
        return ids

    def _report_windows(self, count: int) -> None:
        numbers = sorted(Counter(self.counts).items())
        shown = [f"{texts} with {windows}" for windows, texts in numbers[:_COUNTS_SHOWN]]
        if more := sum(texts for _, texts in numbers[_COUNTS_SHOWN:]):
            shown.append(f"{more} with more, up to {numbers[-1][0]}")
        logger.info(
            "%d texts have %d windows: %s.", count, sum(self.counts), ", ".join(shown) or "none"
        )
        if self._num_truncated:
            logger.warning(
                "%d of %d texts are longer than %s: what comes after is not read.",
                self._num_truncated,
                count,
                Option("max_windows", self._long_texts.max_windows),
            )

    def report(self, count: int) -> None:
        """Logs the counts of unusual texts; `count` is the number of all examples."""
        if self._long_texts.doc_stride is not None:
            self._report_windows(count)
        elif self._num_truncated:
            are_many = self._num_truncated > _MANY_CUT * count
            logger.log(
                logging.WARNING if are_many else logging.INFO,
                "%d of %d examples were longer than %d tokens and were cut %s.%s",
                self._num_truncated,
                count,
                self._max_seq_length,
                _PLACES[self._long_texts.truncation],
                Message(
                    " A larger %s keeps more of them, up to what the model takes, often 512; "
                    "docs/classification.md has more under Long texts.",
                    Option("max_seq_length"),
                )
                if are_many
                else "",
            )
        if self._entries:
            logger.warning(
                "%d texts of %d examples, such as %r, contain %s, which the vocabulary has but "
                "which are split into pieces like any other text, as in the original. Only added "
                "tokens stay whole: those of a tokenizer.json, or marks such as [E1] of "
                "extend_vocab.py.",
                len(self._bracketed),
                count,
                self._bracketed[0],
                ", ".join(sorted(self._entries)[:_ENTRIES_SHOWN]),
            )
        for guids, what in (
            (self._empty, "have no token"),
            (self._mostly_unknown, "are mostly [UNK]: is this the right vocabulary?"),
        ):
            if guids:
                logger.warning(
                    "%d texts of %d examples, such as %r, %s", len(guids), count, guids[0], what
                )


def _label_ids(examples: Sequence[InputExample], task: ClassificationTask) -> np.ndarray:
    labels: list[Any] = [example.label for example in examples]
    if task.task_type == "regression":
        return np.array([label or 0.0 for label in labels], np.float32)[:, None]
    numbers = {label: index for index, label in enumerate(task.labels)}
    if task.task_type == "classification":
        known = [0 if label is None else numbers[label] for label in labels]
        return np.array(known, np.int32)[:, None]
    label_ids = np.zeros((len(labels), len(numbers)), np.int32)
    for row, several in zip(label_ids, labels, strict=True):
        row[[numbers[label] for label in several or ()]] = 1
    return label_ids

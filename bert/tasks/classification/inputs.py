"""The inputs of a classifier: examples as arrays of ids (paper, figure 2)."""

import logging
import math
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

import tokenization
from bert.files.display import Progress
from bert.log import logger
from bert.options import Message, Option
from bert.tasks.classification.examples import ClassificationTask, InputExample

# The share of truncated examples beyond which a warning suggests a greater length.
_MANY_CUT = 0.05
# Words that may be entries of the vocabulary which no text is split into, such as [MASK].
_ENTRIES_SHOWN = 5
_BRACKETED = re.compile(r"\[[^\[\]\s]+\]")

# The number of examples whose features are made together.
_FEATURES_AT_ONCE = 10_000


def make_features(
    examples: Sequence[InputExample],
    task: ClassificationTask,
    tokenizer: tokenization.FullTokenizer,
    max_seq_length: int,
    *,
    logs: bool = True,
) -> dict[str, np.ndarray]:
    """Returns the features of examples, in their order.

    Args:
      examples: The examples.
      task: The task.
      tokenizer: The tokenizer of the model.
      max_seq_length: Tokens per example; longer ones are truncated.
      logs: Whether to log counts of unusual texts.

    Returns:
      `input_ids`, `input_mask` and `segment_ids`, int32 [B, S]; `is_real_example`, int32 [B, 1],
      all 1; `label_ids`: int32 [B, 1], or int32 [B, C] with 1 for each label of a multi-label task,
      or float32 [B, 1] for regression; 0 where the label is None.
    """
    least = 5 if task.is_pair else 3
    if max_seq_length < least:
        raise ValueError(
            f"`max_seq_length` must be at least {least}, to hold a token of each text and what "
            f"surrounds them. Received {max_seq_length}."
        )
    label_ids = _label_ids(examples, task)
    count = len(examples)
    names = ("input_ids", "input_mask", "segment_ids")
    features = {name: np.zeros((count, max_seq_length), np.int32) for name in names}
    packer = _Packer(tokenizer, max_seq_length)
    progress = Progress("Tokenizing", count)
    for start in range(0, count, _FEATURES_AT_ONCE):
        lot = slice(start, start + _FEATURES_AT_ONCE)
        for name, values in packer.pack(examples[lot]).items():
            features[name][lot] = values
        progress(lot.stop)
    if logs:
        packer.report(count)
    return {**features, "label_ids": label_ids, "is_real_example": np.ones((count, 1), np.int32)}


class _Packer:
    """Turns texts into rows of ids, and counts unusual texts."""

    def __init__(self, tokenizer: tokenization.FullTokenizer, max_seq_length: int) -> None:
        self._tokenizer = tokenizer
        self._max_seq_length = max_seq_length
        self._first, self._separator, self._unknown = tokenizer.convert_tokens_to_ids(
            ["[CLS]", "[SEP]", "[UNK]"]
        )
        self._added = {token.content for token in getattr(tokenizer, "added_tokens", ())}
        self._num_truncated = 0
        self._bracketed: list[str] = []
        self._entries: set[str] = set()
        self._empty: list[str] = []
        self._mostly_unknown: list[str] = []

    def pack(self, examples: Sequence[InputExample]) -> dict[str, np.ndarray]:
        """Returns `input_ids`, `input_mask` and `segment_ids`, each [B, S]."""
        rows: list[int] = []
        lengths = []
        for example in examples:
            first, second = self._segments(example)
            rows += first
            rows += second
            lengths.append((len(first), len(first) + len(second)))
        ends = np.array(lengths)[:, :, None]  # [B, 2, 1]
        places = np.arange(self._max_seq_length)
        inside = places < ends[:, 1]
        input_ids = np.zeros(inside.shape, np.int32)
        input_ids[inside] = rows
        return {
            "input_ids": input_ids,
            "input_mask": inside,
            "segment_ids": inside & (places >= ends[:, 0]),
        }

    def _segments(self, example: InputExample) -> tuple[list[Any], list[Any]]:
        """Returns the ids of `[CLS] a [SEP]` and of `b [SEP]`, or nothing (paper, figure 2)."""
        a = self._ids(example.text_a, example.guid)
        # Faithful: a second text without tokens does not get a separator.
        b = [] if example.text_b is None else self._ids(example.text_b, example.guid)
        budget = self._max_seq_length - (3 if b else 2)
        if len(a) + len(b) > budget:
            self._num_truncated += 1
            a, b = map(list, tokenization.truncate_pair(a, b, budget=budget))
        return [self._first, *a, self._separator], [*b, self._separator] if b else []

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

    def report(self, count: int) -> None:
        """Logs the counts of unusual texts; `count` is the number of all examples."""
        if self._num_truncated:
            are_many = self._num_truncated > _MANY_CUT * count
            logger.log(
                logging.WARNING if are_many else logging.INFO,
                "%d of %d examples were longer than %d tokens and were cut at their ends.%s",
                *(self._num_truncated, count, self._max_seq_length),
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
                *(len(self._bracketed), count, self._bracketed[0]),
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
    if task.task_type == "regression":
        scores = [[_number(example)] for example in examples]
        return np.array(scores, np.float32).reshape(-1, 1)
    numbers = {label: index for index, label in enumerate(task.labels)}
    is_multi_label = task.task_type == "multi_label"
    label_ids = np.zeros((len(examples), task.num_outputs if is_multi_label else 1), np.int32)
    for row, example in zip(label_ids, examples, strict=True):
        label: Any = example.label
        if label is None:
            continue
        try:
            if is_multi_label:
                row[[numbers[name] for name in label]] = 1
            else:
                row[0] = numbers[label]
        except (KeyError, TypeError):
            kind = "a tuple of labels" if is_multi_label else "a label"
            raise ValueError(
                f"Example {example.guid!r} must have {kind} among {list(task.labels)}. "
                f"Received {label!r}."
            ) from None
    return label_ids


def _number(example: InputExample) -> float:
    if example.label is None:
        return 0.0
    if not isinstance(example.label, int | float) or not math.isfinite(example.label):
        raise ValueError(
            f"Example {example.guid!r} must have a finite number as its label. "
            f"Received {example.label!r}."
        )
    return float(example.label)

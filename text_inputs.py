"""Texts as a model takes them: a vocabulary that fits, batches of like lengths."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
from absl import logging

import tokenization
from bert.files.paths import is_remote, open_file

T = TypeVar("T")

# Lengths are rounded up to a multiple of this, so that there are few shapes.
LENGTH_STEP = 8


def load_tokenizer(
    vocab_file: str, do_lower_case: bool, vocab_size: int, special_tokens: Sequence[str]
) -> tokenization.FullTokenizer:
    """Returns the tokenizer of a model.

    Args:
      vocab_file: A path that `tf.io.gfile` reads.
      do_lower_case: Whether the model is uncased.
      vocab_size: What `bert_config.json` says.
      special_tokens: Tokens that the vocabulary must hold.

    Raises:
      ValueError: where the vocabulary does not fit.
    """
    if is_remote(vocab_file):
        with open_file(vocab_file) as lines:
            tokenizer = tokenization.FullTokenizer(lines, do_lower_case)
    else:
        tokenizer = tokenization.FullTokenizer(vocab_file, do_lower_case)
    check_vocabulary(tokenizer.vocab, vocab_file, vocab_size, special_tokens)
    return tokenizer


def check_vocabulary(
    vocab: Mapping[str, int], vocab_file: str, vocab_size: int, special_tokens: Sequence[str]
) -> None:
    """Checks that a vocabulary has the special tokens and fits the model.

    Args:
      vocab: The id of every token.
      vocab_file: Where it is from, for messages.
      vocab_size: What `bert_config.json` says.
      special_tokens: Tokens that it must hold.

    Raises:
      ValueError: where it does not.
    """
    if missing := [token for token in special_tokens if token not in vocab]:
        raise ValueError(
            f"`--vocab_file` must hold {list(special_tokens)}. {vocab_file!r} lacks {missing}."
        )
    size = max(vocab.values()) + 1
    if size > vocab_size:
        raise ValueError(
            f"`--vocab_file` must have at most {vocab_size} tokens, the `vocab_size` in "
            f"--bert_config_file. {vocab_file!r} has {size}; do they belong together?"
        )
    if size < vocab_size:
        logging.warning(
            "%r has %d tokens, but `vocab_size` in --bert_config_file is %d. Do they belong "
            "together?",
            vocab_file,
            size,
            vocab_size,
        )


def round_up(length: Any) -> Any:
    """Returns a length, a number or a tensor, rounded up to a multiple of `LENGTH_STEP`."""
    return -(-length // LENGTH_STEP) * LENGTH_STEP


def chunk(items: Iterable[T], size: Callable[[T], int], limit: int) -> Iterator[list[T]]:
    """Yields lists of consecutive items, cut as soon as their sizes add up to the limit."""
    collected: list[T] = []
    total = 0
    for item in items:
        collected.append(item)
        total += size(item)
        if total >= limit:
            yield collected
            collected, total = [], 0
    if collected:
        yield collected


def bucket(lengths: Sequence[int], batch_size: int) -> list[list[int]]:
    """Returns batches of the items' numbers, items of like lengths together, the longest first.

    So little is padded, and what does not fit in memory fails at once.
    """
    order = sorted(range(len(lengths)), key=lambda item: -lengths[item])
    return [order[start : start + batch_size] for start in range(0, len(order), batch_size)]


def pad(
    input_ids: Sequence[Sequence[int]], segment_ids: Sequence[Sequence[int]], max_seq_length: int
) -> dict[str, np.ndarray]:
    """Returns a batch, int32 [B, S], padded to its longest, rounded up to `LENGTH_STEP`."""
    longest = max(map(len, input_ids))
    length = min(round_up(longest), max_seq_length)
    batch = {
        name: np.zeros((len(input_ids), length), np.int32)
        for name in ("input_ids", "input_mask", "segment_ids")
    }
    for row, (ids, segments) in enumerate(zip(input_ids, segment_ids, strict=True)):
        batch["input_ids"][row, : len(ids)] = ids
        batch["input_mask"][row, : len(ids)] = 1
        batch["segment_ids"][row, : len(ids)] = segments
    return batch

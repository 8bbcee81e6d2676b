"""Sequences of tokens in the form that BERT reads (paper, figure 2)."""

from collections.abc import Sequence


def truncate_pair(
    a: Sequence[str], b: Sequence[str], *, budget: int
) -> tuple[Sequence[str], Sequence[str]]:
    """Returns both sequences truncated to `budget` tokens in total, the longer one first.

    Of equally long sequences, `b` is truncated (original: run_classifier.py, _truncate_seq_pair).
    """
    if budget < 0:
        raise ValueError(f"`budget` must not be negative. Received {budget}.")
    half = budget // 2
    return a[: max(budget - len(b), budget - half)], b[: max(budget - len(a), half)]


def pack(
    a: Sequence[str], b: Sequence[str] = (), *, max_length: int
) -> tuple[list[str], list[int]]:
    """Returns `[CLS] a [SEP] (b [SEP])` and its segment ids (paper, figure 2)."""
    a, b = truncate_pair(a, b, budget=max_length - (3 if b else 2))
    first = ["[CLS]", *a, "[SEP]"]
    second = [*b, "[SEP]"] if b else []
    return first + second, [0] * len(first) + [1] * len(second)

"""Labelled examples and unknown tokens, which several tasks count."""

from collections.abc import Sequence
from typing import Any

from bert.log import logger
from bert.options import Option

_MANY = 0.05


def find_labelled(examples: Sequence[Any]) -> list[int]:
    """Returns the places of the examples whose `label` is known: only these are scored."""
    return [place for place, example in enumerate(examples) if example.label is not None]


def warn_of_unknown(num_unknown: int, count: int, what: str) -> None:
    """Warns where many pieces are [UNK], which the vocabulary of another text makes likely.

    Args:
      num_unknown: The number of pieces that are [UNK].
      count: The number of all pieces.
      what: What the pieces are, such as "words".
    """
    if num_unknown > _MANY * count:
        logger.warning(
            "%.1f %% of the %s are [UNK]. Are %s and %s the right ones?",
            *(100 * num_unknown / count, what, Option("vocab_file"), Option("do_lower_case")),
        )

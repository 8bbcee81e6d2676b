"""Scored examples and their scores, as several tasks report them."""

from collections.abc import Mapping, Sequence
from typing import Any

from bert.log import logger
from bert.options import Option
from bert.tasks.task import Inputs, Part
from bert.training.scores import save_results, save_scores

_MANY = 0.05


def find_labelled(examples: Sequence[Any]) -> list[int]:
    """Returns the places of the examples whose `label` is known: only these are scored."""
    return [place for place, example in enumerate(examples) if example.label is not None]


def find_scored(inputs: Inputs) -> list[int]:
    """Returns the places of the labelled examples, and warns where only some have a label."""
    known = find_labelled(inputs.examples)
    if 0 < len(known) < len(inputs.examples):
        logger.warning(
            "Scored are the %d of %d %s examples that have a label.",
            *(len(known), len(inputs.examples), inputs.part.split),
        )
    return known


def write_scores(
    folder: str, step: int, part: Part, scores: Mapping[str, Any], names: Sequence[str]
) -> None:
    """Writes all scores to `<part>_results.json`, and the named ones to `<part>_results.txt`."""
    kind = {"dev": "eval", "test": "test"}[part.split]
    file_name = f"{kind}_results{part.suffix}"
    # Faithful: the original's eval_results.txt has the loss under two names.
    results = {f"{kind}_{name}": scores[name] for name in (*names, "loss")}
    save_results(folder, step, {**results, "loss": scores["loss"]}, file_name)
    save_scores(folder, step, scores, file_name)


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

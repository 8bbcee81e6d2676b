"""The scored examples of a part, and the files of its scores."""

from collections.abc import Mapping, Sequence
from typing import Any

from bert.log import logger
from bert.tasks.examples import find_labelled
from bert.tasks.task import Inputs, Part
from bert.training.scores import save_results, save_scores


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

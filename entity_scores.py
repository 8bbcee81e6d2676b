"""Precision, recall and F1 of entities, as conlleval computes them (paper, section 5.3).

An entity is right where its first word, its last word and its type are.
"""

import collections
from collections.abc import Iterable, Sequence
from typing import Any

import entity_tags


def score(gold: Iterable[Sequence[str]], predicted: Iterable[Sequence[str]]) -> dict[str, Any]:
    """Returns the scores of predicted tags, sentence by sentence.

    Both must be in one scheme for the accuracy to mean something; all else does not depend on it.

    Returns:
      `precision`, `recall`, `f1` over all entities, `accuracy` of the tags of words; their numbers
      `num_words`, `num_gold`, `num_found` and `num_correct`; and for each type in `types`, a
      dictionary of the same without accuracy and words.

    Raises:
      ValueError: where the two do not have the same words.
    """
    counts = {name: collections.Counter[str]() for name in ("gold", "found", "correct")}
    num_words = num_right = 0
    for truth, guess in zip(gold, predicted, strict=True):
        if len(truth) != len(guess):
            raise ValueError(
                f"Each word must have one tag. Received {len(guess)} for {len(truth)} words."
            )
        num_words += len(truth)
        num_right += sum(map(str.__eq__, truth, guess))
        true_entities = set(entity_tags.find_entities(truth))
        found_entities = set(entity_tags.find_entities(guess))
        for name, entities in (
            ("gold", true_entities),
            ("found", found_entities),
            ("correct", true_entities & found_entities),
        ):
            counts[name].update(entity.type for entity in entities)
    types = sorted(counts["gold"] | counts["found"])
    return {
        **_rates(*(sum(counter.values()) for counter in counts.values())),
        "accuracy": num_right / num_words if num_words else 0.0,
        "num_words": num_words,
        "types": {kind: _rates(*(counter[kind] for counter in counts.values())) for kind in types},
    }


def _rates(num_gold: int, num_found: int, num_correct: int) -> dict[str, float]:
    # Faithful: conlleval gives 0 where there is nothing to divide by.
    return {
        "precision": num_correct / num_found if num_found else 0.0,
        "recall": num_correct / num_gold if num_gold else 0.0,
        "f1": 2 * num_correct / (num_gold + num_found) if num_correct else 0.0,
        "num_gold": num_gold,
        "num_found": num_found,
        "num_correct": num_correct,
    }


def format_report(scores: dict[str, Any]) -> str:
    """Returns the scores as conlleval prints them; the last number of a type counts those found."""
    lines = [
        f"processed {scores['num_words']} tokens with {scores['num_gold']} phrases; "
        f"found: {scores['num_found']} phrases; correct: {scores['num_correct']}.",
        f"accuracy: {100 * scores['accuracy']:6.2f}%; {_format_rates(scores)}",
    ]
    for kind, rates in scores["types"].items():
        lines.append(f"{kind:>17}: {_format_rates(rates)}  {rates['num_found']}")
    return "\n".join(lines) + "\n"


def _format_rates(rates: dict[str, Any]) -> str:
    return (
        f"precision: {100 * rates['precision']:6.2f}%; recall: {100 * rates['recall']:6.2f}%; "
        f"FB1: {100 * rates['f1']:6.2f}"
    )

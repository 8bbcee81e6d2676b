"""Scores of entities, and of tags that are not entities, such as parts of speech."""

import collections
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from bert.tasks.tagging.entities import find_entities

_RATES = ("precision", "recall", "f1")


def score_entities(
    gold: Iterable[Sequence[str]], predicted: Iterable[Sequence[str]]
) -> dict[str, Any]:
    """Returns the scores of the tags of sentences; the accuracy requires that schemes are equal.

    Returns:
      `precision`, `recall`, `f1`, and the numbers `num_gold`, `num_found` and `num_correct` of
      entities; `accuracy` of the tags of words, and `num_words`; and `types`, which has the rates
      and numbers of the entities of each type.

    Raises:
      ValueError: if a gold and a predicted sentence differ in length.
    """
    counts = {name: collections.Counter[str]() for name in ("gold", "found", "correct")}
    num_words = num_right = 0
    for gold_tags, tags in zip(gold, predicted, strict=True):
        if len(gold_tags) != len(tags):
            raise ValueError(
                f"Each word must have one tag. Received {len(tags)} for {len(gold_tags)} words."
            )
        num_words += len(tags)
        num_right += sum(map(str.__eq__, gold_tags, tags))
        expected, found = set(find_entities(gold_tags)), set(find_entities(tags))
        for name, entities in zip(counts, (expected, found, expected & found), strict=True):
            counts[name].update(entity.type for entity in entities)
    types = sorted(counts["gold"] | counts["found"])
    return {
        **_rates(*(counter.total() for counter in counts.values())),
        "accuracy": num_right / num_words if num_words else 0.0,
        "num_words": num_words,
        "types": {kind: _rates(*(counter[kind] for counter in counts.values())) for kind in types},
    }


def _rates(num_gold: int, num_found: int, num_correct: int) -> dict[str, float]:
    # Faithful: conlleval gives 0 for a division by 0.
    return {
        "precision": num_correct / num_found if num_found else 0.0,
        "recall": num_correct / num_gold if num_gold else 0.0,
        "f1": 2 * num_correct / (num_gold + num_found) if num_correct else 0.0,
        "num_gold": num_gold,
        "num_found": num_found,
        "num_correct": num_correct,
    }


def score_tags(gold: Sequence[str], predicted: Sequence[str]) -> dict[str, Any]:
    """Returns the scores of the tags of words, each tag being a class.

    Returns:
      `accuracy`; `macro_f1`, the mean F1 of the gold tags; `num_words`; `baseline`, the accuracy of
      always predicting the most frequent tag; and `tags`, which has the `precision`, `recall`, `f1`
      and `support`, the number of words, of each tag.
    """
    from sklearn import metrics  # noqa: PLC0415

    tags = sorted({*gold, *predicted})
    columns = metrics.precision_recall_fscore_support(
        gold, predicted, labels=tags, average=None, zero_division=0
    )
    rates = {
        tag: {**dict(zip(_RATES, map(float, row), strict=True)), "support": int(support)}
        for tag, *row, support in zip(tags, *columns, strict=True)
    }
    counts = collections.Counter(gold)
    return {
        "accuracy": sum(map(str.__eq__, gold, predicted)) / len(gold),
        "macro_f1": sum(rates[tag]["f1"] for tag in counts) / len(counts),
        "num_words": len(gold),
        "tags": rates,
        "baseline": max(counts.values()) / len(gold),
    }


def format_report(scores: Mapping[str, Any]) -> str:
    """Returns scores as lines: of entities as conlleval prints them; else a table of tags."""
    lines = _format_tags(scores) if "tags" in scores else _format_entities(scores)
    return "\n".join(lines) + "\n"


def _format_entities(scores: Mapping[str, Any]) -> list[str]:
    return [
        f"processed {scores['num_words']} tokens with {scores['num_gold']} phrases; "
        f"found: {scores['num_found']} phrases; correct: {scores['num_correct']}.",
        f"accuracy: {100 * scores['accuracy']:6.2f}%; {_format_rates(scores)}",
        *(
            f"{kind:>17}: {_format_rates(rates)}  {rates['num_found']}"
            for kind, rates in scores["types"].items()
        ),
    ]


def _format_rates(rates: Mapping[str, Any]) -> str:
    precision, recall, f1 = (100 * rates[name] for name in _RATES)
    return f"precision: {precision:6.2f}%; recall: {recall:6.2f}%; FB1: {f1:6.2f}"


def _format_tags(scores: Mapping[str, Any]) -> list[str]:
    width = max(map(len, scores["tags"]))
    lines = [
        f"{scores['num_words']} words; accuracy: {100 * scores['accuracy']:.2f}%, macro F1: "
        f"{100 * scores['macro_f1']:.2f}; always giving the most frequent tag: "
        f"{100 * scores['baseline']:.2f}%.",
        f"{'':{width}}  {'precision':>9}  {'recall':>6}  {'F1':>6}  {'words':>7}",
    ]
    for tag, rates in sorted(scores["tags"].items(), key=lambda item: -item[1]["support"]):
        precision, recall, f1 = (100 * rates[name] for name in _RATES)
        lines.append(
            f"{tag:{width}}  {precision:9.2f}  {recall:6.2f}  {f1:6.2f}  {rates['support']:7d}"
        )
    return lines

"""Tags that are no entities, such as parts of speech: how well each was told."""

import collections
from collections.abc import Mapping, Sequence
from typing import Any

_RATES = ("precision", "recall", "f1")


def score(gold: Sequence[str], predicted: Sequence[str]) -> dict[str, Any]:
    """Returns the scores of the tags of words.

    Returns:
      `accuracy`; `macro_f1`, the mean F1 of the tags that words have; `num_words`; `baseline`, the
      accuracy of always giving the most frequent tag; and for each tag in `tags`, `precision`,
      `recall`, `f1` and `support`, the number of its words.
    """
    from sklearn import metrics  # noqa: PLC0415

    tags = sorted({*gold, *predicted})
    columns = metrics.precision_recall_fscore_support(
        gold, predicted, labels=tags, average=None, zero_division=0
    )
    rates = {
        tag: {**dict(zip(_RATES, map(float, each), strict=True)), "support": int(support)}
        for tag, *each, support in zip(tags, *columns, strict=True)
    }
    counts = collections.Counter(gold)
    num_right = sum(map(str.__eq__, gold, predicted))
    return {
        "accuracy": num_right / len(gold),
        "macro_f1": sum(rates[tag]["f1"] for tag in counts) / len(counts),
        "num_words": len(gold),
        "tags": rates,
        "baseline": max(counts.values()) / len(gold),
    }


def format_report(scores: Mapping[str, Any]) -> str:
    """Returns the scores as a table, the most frequent tags first."""
    tags = sorted(scores["tags"].items(), key=lambda item: -item[1]["support"])
    width = max(map(len, scores["tags"]))
    lines = [
        f"{scores['num_words']} words; accuracy: {100 * scores['accuracy']:.2f}%, macro F1: "
        f"{100 * scores['macro_f1']:.2f}; always giving the most frequent tag: "
        f"{100 * scores['baseline']:.2f}%.",
        f"{'':{width}}  {'precision':>9}  {'recall':>6}  {'F1':>6}  {'words':>7}",
    ]
    for tag, rates in tags:
        precision, recall, f1 = (100 * rates[name] for name in _RATES)
        lines.append(
            f"{tag:{width}}  {precision:9.2f}  {recall:6.2f}  {f1:6.2f}  {rates['support']:7d}"
        )
    return "\n".join(lines) + "\n"

"""The official scores of SQuAD 1.1 and 2.0 (Rajpurkar et al. 2016, section 6.1; 2018, section 5.1).

Answers are compared word by word, without case, punctuation and articles. Sums follow the order of
the file and the official scripts' arithmetic, so that every digit is the same. Integers stay
integers for the same reason: from Python 3.12 on, `sum` adds them in another way than floats.
"""

import collections
import re
import string
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

Golds = Mapping[str, Sequence[str]]

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_WITHOUT_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalize_answer(text: str) -> str:
    """Returns the text in lower case, without ASCII punctuation, articles and further spaces."""
    text = text.lower().translate(_WITHOUT_PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", text).split())


def exact_match(prediction: str, gold: str) -> int:
    """Returns 1 for two answers with the same normalized text, else 0."""
    return int(normalize_answer(prediction) == normalize_answer(gold))


def f1(prediction: str, gold: str) -> float:
    """Returns the harmonic mean of precision and recall of words; 0 without a common word."""
    words, gold_words = normalize_answer(prediction).split(), normalize_answer(gold).split()
    num_same = sum((collections.Counter(words) & collections.Counter(gold_words)).values())
    if not num_same:
        return 0
    precision, recall = 1.0 * num_same / len(words), 1.0 * num_same / len(gold_words)
    return (2 * precision * recall) / (precision + recall)


def f1_or_none(prediction: str, gold: str) -> float:
    """Returns `f1`, or 1 if neither answer has words, as in SQuAD 2.0."""
    if not normalize_answer(prediction) and not normalize_answer(gold):
        return 1
    return f1(prediction, gold)


def best_score(
    measure: Callable[[str, str], float], prediction: str, golds: Sequence[str]
) -> float:
    """Returns the highest score of a prediction among the gold answers."""
    return max(measure(prediction, gold) for gold in golds)


def golds_to_compare(golds: Sequence[str]) -> Sequence[str]:
    """Returns SQuAD 2.0's gold answers that have words; an empty one if there is none."""
    return [gold for gold in golds if normalize_answer(gold)] or [""]


def evaluate_v1(
    golds: Collection[tuple[str, Sequence[str]]], predictions: Mapping[str, str]
) -> dict[str, float]:
    """Returns SQuAD 1.1's `exact_match` and `f1`, in percent.

    Args:
      golds: The id of each question and its gold answers, at least one, in the order of the file.
        Questions may share an id, and so a prediction.
      predictions: The predicted answer by question id.
    """
    # The script for SQuAD 1.1 adds one by one, not by `sum`.
    exact_total = f1_total = 0.0
    for qas_id, answers in golds:
        exact_total += best_score(exact_match, predictions[qas_id], answers)
        f1_total += best_score(f1, predictions[qas_id], answers)
    return {
        "exact_match": 100.0 * exact_total / len(golds),
        "f1": 100.0 * f1_total / len(golds),
    }


def evaluate_v2(
    golds: Golds,
    predictions: Mapping[str, str],
    null_odds: Mapping[str, float] | None = None,
    null_threshold: float = 1.0,
) -> dict[str, float]:
    """Returns SQuAD 2.0's scores, in percent, with the names and order of the official script.

    Args:
      golds: The gold answers by question id, in the order of the file; none without an answer.
      predictions: The predicted answer by question id; empty for "no answer".
      null_odds: The odds of "no answer" by question id. They add the best scores of all thresholds
        on the odds, and these thresholds.
      null_threshold: The odds above which any prediction counts as "no answer"; 1 in the official
        script (--na-prob-thresh).
    """
    raw = {
        name: {
            qas_id: best_score(measure, predictions[qas_id], golds_to_compare(answers))
            for qas_id, answers in golds.items()
        }
        for name, measure in (("exact", exact_match), ("f1", f1_or_none))
    }
    unanswered = {qas_id for qas_id, odds in (null_odds or {}).items() if odds > null_threshold}
    applied = {
        name: {
            qas_id: float(not golds[qas_id]) if qas_id in unanswered else score
            for qas_id, score in scores.items()
        }
        for name, scores in raw.items()
    }
    results = _mean_scores(golds, applied)
    if null_odds is not None:
        impossible = {qas_id for qas_id, answers in golds.items() if not answers}
        for name, scores in raw.items():
            best, threshold = best_threshold(scores, predictions, null_odds, impossible)
            results[f"best_{name}"] = best
            results[f"best_{name}_thresh"] = threshold
    return results


def _mean_scores(golds: Golds, scores: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """Returns mean scores, in percent: of all questions, of those with an answer, and without.

    Args:
      golds: The gold answers by question id.
      scores: The scores by measure and question id.
    """
    groups = {
        "": list(golds),
        "HasAns_": [qas_id for qas_id, answers in golds.items() if answers],
        "NoAns_": [qas_id for qas_id, answers in golds.items() if not answers],
    }
    results: dict[str, float] = {}
    for prefix, qas_ids in groups.items():
        if qas_ids:
            for name, by_id in scores.items():
                total = sum(by_id[qas_id] for qas_id in qas_ids)
                results[prefix + name] = 100.0 * total / len(qas_ids)
            results[prefix + "total"] = len(qas_ids)
    return results


def best_threshold(
    scores: Mapping[str, float],
    predictions: Mapping[str, str],
    null_odds: Mapping[str, float],
    impossible: Collection[str],
) -> tuple[float, float]:
    """Returns the best score of all thresholds, in percent, and the first threshold that gives it.

    A question is answered as predicted up to the threshold, and not answered above.

    Args:
      scores: The score of each prediction by question id, in the order of the file.
      predictions: The predicted answer by question id.
      null_odds: The odds of "no answer" by question id.
      impossible: The ids of questions without an answer.
    """
    current = best = float(len(impossible))
    threshold = 0.0
    for qas_id in sorted(null_odds, key=lambda name: null_odds[name]):
        if qas_id not in scores:
            continue
        if qas_id not in impossible:
            current += scores[qas_id]
        elif predictions[qas_id]:
            current -= 1
        if current > best:
            best, threshold = current, null_odds[qas_id]
    return 100.0 * best / len(scores), threshold


def without_baseline(scores: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the official scores, which are all that files and pages show."""
    return {name: value for name, value in scores.items() if not name.startswith("baseline")}

"""Losses and scores of tasks that label texts, in double precision (GLUE's metrics, and more).

What would be divided by nothing, such as the precision of a label that is never predicted, is 0; so
are correlations where one side is constant. scikit-learn and SciPy would warn of that each time.
"""

import math
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

_PER_CLASS = ("precision", "recall", "f1", "support")

# Labels up to which a confusion matrix is readable in a log.
_MATRIX_LABELS = 12


def log_softmax(logits: np.ndarray) -> np.ndarray:
    """Returns the logarithm of each label's probability [B, C]."""
    logits = logits - logits.max(axis=1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))


def score_choice(
    labels: Sequence[str], logits: np.ndarray, label_ids: np.ndarray
) -> dict[str, Any]:
    """Returns the scores where one of several labels is right.

    Args:
      labels: Their names.
      logits: float64 [B, C].
      label_ids: int32 [B].

    Returns:
      `loss`, the mean cross entropy; `accuracy`; `matthews`; `f1`, of two labels that of "1", or of
      the second if none is called so, of more the mean over those that occur; `per_class`; and
      `confusion_matrix`, with true labels as rows and predicted ones as columns.
    """
    from sklearn import metrics  # noqa: PLC0415

    predicted = logits.argmax(axis=1)
    places = np.arange(len(labels))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        columns = metrics.precision_recall_fscore_support(
            label_ids, predicted, labels=places, zero_division=0
        )
        matthews = metrics.matthews_corrcoef(label_ids, predicted)
    rows = zip(*[column.tolist() for column in columns], strict=True)
    per_class = {
        label: dict(zip(_PER_CLASS, row, strict=True))
        for label, row in zip(labels, rows, strict=True)
    }
    if len(labels) == 2:
        f1 = per_class["1" if "1" in labels else labels[1]]["f1"]
    else:
        f1 = float(metrics.f1_score(label_ids, predicted, average="macro", zero_division=0))
    losses = -np.take_along_axis(log_softmax(logits), label_ids[:, None], axis=1)
    return {
        "loss": float(losses.mean()),
        "accuracy": float((label_ids == predicted).mean()),
        "f1": f1,
        "matthews": float(matthews),
        "per_class": per_class,
        "confusion_matrix": metrics.confusion_matrix(label_ids, predicted, labels=places).tolist(),
    }


def score_multi_label(
    labels: Sequence[str], logits: np.ndarray, label_ids: np.ndarray
) -> dict[str, Any]:
    """Returns the scores where any number of labels is right.

    Args:
      labels: Their names.
      logits: float64 [B, C].
      label_ids: [B, C], 1 for the right ones and 0 for the others.

    Returns:
      `loss`, the mean over examples and labels of the sigmoid cross entropy; `accuracy`, the part
      of the examples with no label wrong; `micro_f1`, of all decisions; `macro_f1`, the mean over
      labels; `per_class`; and `confusion_matrices`, by label, with rows and columns for absent and
      present.
    """
    from sklearn import metrics  # noqa: PLC0415

    predicted = (logits > 0).astype(np.int32)
    per_class = {}
    matrices = {}
    for label, true, guessed in zip(labels, label_ids.T, predicted.T, strict=True):
        columns = metrics.precision_recall_fscore_support(
            true, guessed, labels=[1], zero_division=0
        )
        row = [column.item() for column in columns]
        per_class[label] = dict(zip(_PER_CLASS, row, strict=True))
        matrices[label] = metrics.confusion_matrix(true, guessed, labels=[0, 1]).tolist()
    losses = np.logaddexp(0, logits) - logits * label_ids
    return {
        "loss": float(losses.mean()),
        "accuracy": float((label_ids == predicted).all(axis=1).mean()),
        "micro_f1": float(metrics.f1_score(label_ids.ravel(), predicted.ravel(), zero_division=0)),
        "macro_f1": float(np.mean([row["f1"] for row in per_class.values()])),
        "per_class": per_class,
        "confusion_matrices": matrices,
    }


def score_regression(predicted: np.ndarray, true: np.ndarray) -> dict[str, Any]:
    """Returns the scores of numbers [B]: `loss`, which is `mse`, `pearson` and `spearman`."""
    from scipy import stats  # noqa: PLC0415

    error = float(np.square(predicted - true).mean())
    scores = {"loss": error, "pearson": 0.0, "spearman": 0.0, "mse": error}
    if len(true) > 1:
        for name, function in (("pearson", stats.pearsonr), ("spearman", stats.spearmanr)):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                value = float(function(predicted, true)[0])
            # NaN where one side is constant.
            scores[name] = value if math.isfinite(value) else 0.0
    return scores


def format_scores(labels: Sequence[str], scores: Mapping[str, Any]) -> str:
    """Returns scores as a table of several lines."""
    numbers = {name: value for name, value in scores.items() if isinstance(value, float)}
    lines = [f"{name:<10} {numbers[name]:.4f}" for name in sorted(numbers)]
    width = max(map(len, labels), default=0)
    if "per_class" in scores:
        lines += ["", " " * width + "".join(f"{name:>11}" for name in _PER_CLASS)]
        for label, row in scores["per_class"].items():
            cells = "".join(f"{row[name]:11.4f}" for name in _PER_CLASS[:-1])
            lines.append(f"{label:{width}}{cells}{row['support']:11}")
    if "confusion_matrix" in scores and len(labels) <= _MATRIX_LABELS:
        matrix = scores["confusion_matrix"]
        cell = 2 + max(width, *[len(str(number)) for row in matrix for number in row])
        lines += ["", "Confusion matrix: true labels as rows, predicted ones as columns"]
        lines.append(" " * width + "".join(f"{label:>{cell}}" for label in labels))
        for label, row in zip(labels, matrix, strict=True):
            lines.append(f"{label:{width}}" + "".join(f"{number:{cell}}" for number in row))
    return "\n".join(lines)

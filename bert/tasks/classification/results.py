"""Scores and predictions of tasks that label texts (GLUE's metrics, and more).

Scores are computed in double precision. A score that would divide by zero, such as the precision of
a label that is never predicted, is 0; so are correlations where one side is constant. scikit-learn
and SciPy would warn each time.

Calibration divides logits by one number, a temperature, so that no answer changes, only how sure
the model is of it. Source: Guo et al., On Calibration of Modern Neural Networks, 2017, section 4.2.
"""

import itertools
import math
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy.optimize import minimize_scalar

from bert.files.display import visible
from bert.files.row_writer import write_tsv
from bert.log import logger
from bert.options import OptionError
from bert.tasks.classification.decisions import KEYS, decide, log_softmax, probabilities
from bert.tasks.classification.examples import (
    ClassificationTask,
    InputExample,
    Label,
    positive_label,
)
from bert.tasks.examples import find_labelled

# Of fewer examples, the temperature is mostly chance.
MIN_CALIBRATION = 50
# The logarithms of the least and the greatest temperature.
_BOUNDS = (-3.0, 3.0)


def score(task: ClassificationTask, logits: np.ndarray, label_ids: np.ndarray) -> dict[str, Any]:
    """Returns the loss and all scores of a task, fit for JSON.

    Args:
      task: The task, with the names of the labels.
      logits: float [B, C].
      label_ids: The labels, as `make_features` returns them.
    """
    logits, label_ids = np.asarray(logits, np.float64), np.asarray(label_ids)
    if task.task_type == "multi_label":
        return score_multi_label(task.labels, logits, label_ids)
    label_ids = label_ids.reshape(-1)
    if task.task_type == "regression":
        return score_regression(logits[:, 0], label_ids.astype(np.float64))
    return score_choice(task.labels, logits, label_ids)


def baseline(task: ClassificationTask, label_ids: np.ndarray) -> float:
    """Returns the best that the task's metric gives for the same answer to every example.

    A run that does not exceed it has failed to train. The answers tried are the frequent labels;
    for multi-label the most frequent one, two, ... together; for regression the mean.
    """
    return _score_constant(task, label_ids)[task.metric]


def _score_constant(task: ClassificationTask, label_ids: np.ndarray) -> dict[str, Any]:
    """Returns the scores of the best constant answer."""
    label_ids = np.asarray(label_ids)
    count = len(label_ids)
    if task.task_type == "regression":
        answers = [np.full(1, label_ids.mean())]
    elif task.task_type == "multi_label":
        order = np.argsort(-label_ids.sum(axis=0), kind="stable")
        answers = [np.where(np.isin(order.argsort(), range(k)), 1.0, -1.0) for k in range(9)]
    else:
        counts = np.bincount(label_ids.reshape(-1), minlength=task.num_outputs)
        frequent = np.argsort(-counts, kind="stable")[:8]
        answers = [np.eye(task.num_outputs)[label] for label in frequent]
    scores = [score(task, np.tile(answer, (count, 1)), label_ids) for answer in answers]
    return max(scores, key=lambda values: values[task.metric])


def describe_baseline(task: ClassificationTask, scores: Mapping[str, Any]) -> str:
    """Returns a sentence about the baseline, with its accuracy beside another metric.

    Args:
      task: The task.
      scores: The scores of a model, with `baseline`.
    """
    reached = f"{task.metric} {scores['baseline']:.4f}"
    if task.task_type == "regression":
        others = (f"{name} {value:.4f}" for name, value in scores["baseline_scores"].items())
        return f"Always answering the mean would reach {reached}, {', '.join(others)}."
    sentence = f"Always giving the same answer would reach {reached}."
    if task.task_type != "classification":
        return sentence
    counts = [row["support"] for row in scores["per_class"].values()]
    if task.metric == "accuracy":
        error = _standard_error(scores["accuracy"], sum(counts))
        more = f"On {sum(counts):,} examples, an accuracy is uncertain by {2 * error:.2g}"
        return f"{sentence} {more} (two standard errors)."
    constant = _score_constant(task, np.repeat(np.arange(len(counts)), counts))
    given = max(constant["per_class"], key=lambda name: constant["per_class"][name]["recall"])
    return f"Always answering {given!r} would reach {reached}, accuracy {constant['accuracy']:.4f}."


def _standard_error(accuracy: float, count: int) -> float:
    """Returns the standard error of an accuracy (Agresti and Coull, 1998), above 0 at 0 and 1."""
    center = (accuracy * count + 2) / (count + 4)
    return float(np.sqrt(center * (1 - center) / (count + 4)))


def balanced_weights(task: ClassificationTask, label_ids: np.ndarray) -> list[float]:
    """Returns the weight of an example of each label with which all labels count alike.

    The mean over examples is 1 (scikit-learn's "balanced"); a label without examples has 0.
    """
    counts = np.bincount(np.asarray(label_ids).reshape(-1), minlength=task.num_outputs)
    present = np.maximum(counts, 1) * np.count_nonzero(counts)
    return np.where(counts > 0, counts.sum() / present, 0.0).tolist()


def write_test_results(path: str, task: ClassificationTask, logits: np.ndarray) -> None:
    """Writes the probabilities, a line for each example, without a header (original: the same)."""
    write_tsv(path, (map(str, row) for row in probabilities(task, logits)))


def write_predictions(
    path: str, task: ClassificationTask, examples: Sequence[InputExample], logits: np.ndarray
) -> None:
    """Writes a table with a header: id, texts, prediction, a probability for each label, and gold.

    The gold column is there where examples have labels. Several labels are joined with commas. Tabs
    and line breaks within texts become spaces.
    """
    has_gold = any(example.label is not None for example in examples)
    header = ["id", "text_a", *["text_b"] * task.is_pair, f"predicted_{KEYS[task.task_type]}"]
    header += [f"probability_{label}" for label in task.labels] + ["gold"] * has_gold
    answers = zip(examples, decide(task, logits), probabilities(task, logits), strict=True)
    rows = (
        [
            *(example.guid, example.text_a, *[example.text_b or ""] * task.is_pair),
            *(_join(decision), *map(str, row[: len(task.labels)])),
            *[_join(example.label)] * has_gold,
        ]
        for example, decision, row in answers
    )
    write_tsv(path, itertools.chain([header], rows))


def write_submission(path: str, task: ClassificationTask, logits: np.ndarray) -> None:
    """Writes the file that gluebenchmark.com takes: index and prediction, with a header."""
    predictions = decide(task, logits)
    if task.task_type == "regression":
        # The only such task of GLUE, STS-B, has scores from 0 to 5.
        predictions = [f"{min(max(value, 0.0), 5.0):.3f}" for value in predictions]
    rows = ([str(index), prediction] for index, prediction in enumerate(predictions))
    write_tsv(path, itertools.chain([["index", "prediction"]], rows))


def _join(label: Label | Sequence[str] | None) -> str:
    if label is None:
        return ""
    return ",".join(label) if isinstance(label, tuple | list) else str(label)


_PER_CLASS = ("precision", "recall", "f1", "support")
# Labels up to which a confusion matrix is readable in a log.
_MATRIX_LABELS = 12


def score_choice(
    labels: Sequence[str], logits: np.ndarray, label_ids: np.ndarray
) -> dict[str, Any]:
    """Returns the scores of a task with one right label per example.

    Args:
      labels: The names of the labels.
      logits: float64 [B, C].
      label_ids: int32 [B].

    Returns:
      `loss`, the mean cross entropy; `accuracy`; `matthews`; `f1`, for two labels that of "1" or
      else of the second, for more the mean over those that occur; `per_class`; and
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
    # Where no answer is right, scikit-learn counts in floating point.
    per_class = {
        label: dict(zip(_PER_CLASS, (*map(float, row), int(support)), strict=True))
        for label, *row, support in zip(labels, *columns, strict=True)
    }
    if len(labels) == 2:
        f1 = per_class[positive_label(labels)]["f1"]
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
    """Returns the scores of a task with any number of right labels per example.

    Args:
      labels: The names of the labels.
      logits: float64 [B, C].
      label_ids: [B, C], 1 for the right ones and 0 for the others.

    Returns:
      `loss`, the mean over examples and labels of the sigmoid cross entropy; `accuracy`, the part
      of the examples without a wrong label; `micro_f1`, of all decisions; `macro_f1`, the mean over
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
        row = [*(column.item() for column in columns[:-1]), int(columns[-1].item())]
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
    """Returns the scores of predicted numbers, float64 [B].

    Returns:
      `loss` and `mse`, the same number; `pearson`; `spearman`; `mae`; `r2`; `baseline_scores`, the
      errors of always answering the mean; and `standard_deviations`.
    """
    from scipy import stats  # noqa: PLC0415

    errors = _errors(predicted, true)
    scores: dict[str, Any] = {"loss": errors["mse"], "pearson": 0.0, "spearman": 0.0, **errors}
    scores["baseline_scores"] = _errors(np.full(len(true), true.mean()), true)
    deviations = {"predictions": float(predicted.std()), "labels": float(true.std())}
    scores["standard_deviations"] = deviations
    if len(true) > 1:
        for name, function in (("pearson", stats.pearsonr), ("spearman", stats.spearmanr)):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                value = float(function(predicted, true)[0])
            # NaN where one side is constant.
            scores[name] = value if math.isfinite(value) else 0.0
    return scores


def _errors(predicted: np.ndarray, true: np.ndarray) -> dict[str, float]:
    """Returns the mean squared and absolute errors, and the explained part of the variance."""
    errors = predicted - true
    mse, variance = float(np.square(errors).mean()), float(true.var())
    r2 = 1 - mse / variance if variance else 0.0
    return {"mse": mse, "mae": float(np.abs(errors).mean()), "r2": r2}


def format_scores(labels: Sequence[str], scores: Mapping[str, Any]) -> str:
    """Returns scores as a table of several lines."""
    labels = [visible(label) for label in labels]
    numbers = {name: value for name, value in scores.items() if isinstance(value, float)}
    # `describe_baseline` names it with its metric.
    numbers.pop("baseline", None)
    lines = [f"{name:<10} {numbers[name]:.4f}" for name in sorted(numbers)]
    width = max(map(len, labels), default=0)
    if "per_class" in scores:
        lines += ["", " " * width + "".join(f"{name:>11}" for name in _PER_CLASS)]
        for label, row in scores["per_class"].items():
            cells = "".join(f"{row[name]:11.4f}" for name in _PER_CLASS[:-1])
            lines.append(f"{visible(label):{width}}{cells}{row['support']:11}")
    if "confusion_matrix" in scores and len(labels) <= _MATRIX_LABELS:
        matrix = scores["confusion_matrix"]
        cell = 2 + max(width, *[len(str(number)) for row in matrix for number in row])
        lines += ["", "Confusion matrix: true labels as rows, predicted ones as columns"]
        lines.append(" " * width + "".join(f"{label:>{cell}}" for label in labels))
        for label, row in zip(labels, matrix, strict=True):
            lines.append(f"{label:{width}}" + "".join(f"{number:{cell}}" for number in row))
    return "\n".join(lines)


def check_enough(examples: Sequence[InputExample]) -> None:
    """Checks that enough examples of a dev set have a label."""
    count = len(find_labelled(examples))
    if count < MIN_CALIBRATION:
        raise OptionError(
            "calibrate",
            f"have {MIN_CALIBRATION} examples with a label in the dev set",
            f"{count}",
            "Give a larger one, or leave it out.",
        )


def calibrate(
    task: ClassificationTask,
    examples: Sequence[InputExample],
    label_ids: np.ndarray,
    logits: np.ndarray,
    earlier: float = 1.0,
) -> float:
    """Returns the temperature that fits a dev set.

    Args:
      task: The labels, and the type of the task.
      examples: The dev set.
      label_ids: Its labels, as `make_features` returns them.
      logits: float [B, C], the predictions for it.
      earlier: The temperature by which the logits are divided already.
    """
    known = find_labelled(examples)
    label_ids = label_ids[known]
    logits = np.asarray(logits, np.float64)[known] * earlier
    temperature = fit_temperature(task.task_type, logits, label_ids)
    before, after = (score(task, logits / each, label_ids)["loss"] for each in (1.0, temperature))
    logger.info(
        "A temperature of %.3f fits the %d examples of the dev set: their loss is %.4f instead of "
        "%.4f.",
        temperature,
        len(known),
        after,
        before,
    )
    if abs(math.log(temperature)) > _BOUNDS[1] - 0.01:
        logger.warning(
            "That is the %s temperature that is tried, as where answers are %s: such a dev set "
            "does not say how sure the model may be. Calibrate it with other examples.",
            *(("least", "all right") if temperature < 1 else ("greatest", "mere guesses")),
        )
    return temperature


def fit_temperature(task_type: str, logits: np.ndarray, label_ids: np.ndarray) -> float:
    """Returns the temperature of the least loss.

    Args:
      task_type: "classification" or "multi_label".
      logits: float64 [B, C].
      label_ids: int [B, 1], or [B, C] of a multi-label task.
    """

    def loss(log_temperature: float) -> float:
        scaled = logits / np.exp(log_temperature)
        if task_type == "multi_label":
            return float((np.logaddexp(0, scaled) - scaled * label_ids).mean())
        right = np.take_along_axis(scaled, label_ids, axis=1)[:, 0]
        return float((np.logaddexp.reduce(scaled, axis=1) - right).mean())

    found = minimize_scalar(loss, bounds=_BOUNDS, method="bounded", options={"xatol": 1e-4})
    return round(float(np.exp(found.x)), 4)

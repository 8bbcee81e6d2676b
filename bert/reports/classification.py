"""What a page shows of labelled texts: where the model errs, the texts, and its probabilities.

Source: Guo et al., On Calibration of Modern Neural Networks, 2017: the expected calibration error
and the reliability diagram. The curves of two labels are those of Fawcett, An Introduction to ROC
Analysis, 2006.
"""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy.special import log_softmax

from bert.reports.page import (
    UNKNOWN,
    Bar,
    Bars,
    Block,
    Cell,
    Chart,
    Curves,
    Example,
    Examples,
    Matrix,
    Scatter,
    Section,
    Series,
    Table,
    Text,
    filter_link,
    shorten,
    worst_first,
)
from bert.reports.run import thin
from bert.tasks.classification import decisions
from bert.tasks.classification.examples import ClassificationTask, InputExample, positive_label
from bert.tasks.examples import find_labelled

# Labels up to which a confusion matrix is readable; of more, the most frequent confusions.
_MATRIX_LABELS = 25
_CONFUSIONS = 40
# Of more examples of a regression, every n-th is a point.
_MAX_POINTS = 3_000
# Answers shown of an example, besides the right one.
_ANSWERS = 4
_COLUMNS = {"precision": "precision", "recall": "recall", "f1": "F1", "support": "examples"}
_ERRORS = {"mse": "mean squared error", "mae": "mean absolute error", "r2": "R²"}
NUM_BINS = 10
# Groups of texts by their length.
_LENGTHS = 4
# Examples below which the curves are mostly chance.
MIN_EXAMPLES = 20
# The minimum probabilities of the curve of what is answered.
_THRESHOLDS = np.linspace(0.0, 1.0, 51)
_CLICK = "A click on a number shows its examples."


def make_sections(
    task: ClassificationTask,
    part: str,
    examples: Sequence[InputExample],
    label_ids: np.ndarray,
    logits: np.ndarray,
    scores: Mapping[str, Any],
    windows: np.ndarray | None = None,
) -> list[Section]:
    """Returns what a page shows.

    Args:
      task: What was decided.
      part: Whose the examples are, such as "dev".
      examples: The examples; those without a label are shown, and count nowhere.
      label_ids: As `make_features` gives them.
      logits: float [B, C].
      scores: As `results.score` gives them.
      windows: As `count_windows` gives them.
    """
    logits = np.asarray(logits, np.float64)
    counts = _count_texts(part, windows)
    if task.task_type == "regression":
        numbers = np.asarray(label_ids)[:, 0], logits[:, 0]
        points, shown = _regression(part, examples, *numbers)
        return [points, _beside_the_mean(part, scores), *counts, shown]
    right, labelled = np.asarray(label_ids), find_labelled(examples)
    trusted: Sequence[Section] = []
    if task.task_type == "multi_label":
        losses = (np.logaddexp(0, logits) - logits * right).mean(axis=1)
        chosen = logits > 0
    else:
        losses = -np.take_along_axis(log_softmax(logits, axis=1), right, axis=1)[:, 0]
        chosen = np.eye(len(task.labels), dtype=bool)[logits.argmax(axis=1)]
        chances = decisions.probabilities(task, logits)[labelled]
        trusted = probability_charts(part, task.labels, chances, right[labelled, 0])
        right = np.eye(len(task.labels), dtype=bool)[right[:, 0]]
    known = np.zeros(len(examples), bool)
    known[labelled] = True
    losses = np.where(known, losses, UNKNOWN)
    rows: list[list[Cell]] = [
        [filter_link(label, part, right=label), *(row[name] for name in _COLUMNS)]
        for label, row in scores["per_class"].items()
    ]
    table = Table(f"Labels of the {part} set", ["label", *_COLUMNS.values()], rows)
    is_right = (chosen == (right > 0)).all(axis=1)
    lengths = _by_length(part, examples, is_right, known)
    shown = _examples(task, part, examples, (right > 0) & known[:, None], chosen, losses, logits)
    return [*_confusions(task, part, scores), table, *lengths, *trusted, *counts, shown]


def _by_length(
    part: str, examples: Sequence[InputExample], is_right: np.ndarray, is_known: np.ndarray
) -> list[Section]:
    """Returns a table of the accuracy by the length of texts; none for few of them.

    Args:
      part: Whose the examples are.
      examples: The examples.
      is_right: Whether all labels are right, bool [B].
      is_known: Whether the example has a label, bool [B].
    """
    if is_known.sum() < _LENGTHS * MIN_EXAMPLES:
        return []
    lengths = np.array([len(each.text_a) + len(each.text_b or "") for each in examples])[is_known]
    # Texts of one length stay together.
    edges = np.unique(np.quantile(lengths, np.linspace(0, 1, _LENGTHS + 1), method="lower"))
    groups = np.searchsorted(edges[1:-1], lengths, side="left")
    rows: list[list[Cell]] = []
    for group in np.unique(groups):
        own = lengths[groups == group]
        span = f"{own.min():,} to {own.max():,}"
        rows.append([span, len(own), float(is_right[is_known][groups == group].mean())])
    columns = ["characters", "examples", "accuracy"]
    return [Table(f"Accuracy on the {part} set by length", columns, rows)]


def _count_texts(part: str, windows: np.ndarray | None) -> list[Section]:
    """Returns a table of how many texts have how many windows, int [N]; none without windows."""
    if windows is None:
        return []
    rows = np.stack(np.unique(windows, return_counts=True), axis=1).tolist()
    return [Table(f"Windows of the texts of the {part} set", ["windows", "texts"], rows)]


def _confusions(task: ClassificationTask, part: str, scores: Mapping[str, Any]) -> list[Section]:
    if "confusion_matrix" not in scores:
        return []
    counts = scores["confusion_matrix"]
    if len(task.labels) <= _MATRIX_LABELS:
        return [Matrix(f"Confusions of the {part} set", task.labels, counts, part, _CLICK)]
    pairs = itertools.permutations(range(len(task.labels)), 2)
    most = sorted(pairs, key=lambda pair: -counts[pair[0]][pair[1]])[:_CONFUSIONS]
    rows: list[list[Cell]] = []
    for number, said_number in most:
        if count := counts[number][said_number]:
            right, said = task.labels[number], task.labels[said_number]
            rows.append([right, said, filter_link(f"{count:,}", part, right=right, said=said)])
    title = f"The most frequent confusions of the {part} set"
    return [Table(title, ["right", "said", "examples"], rows, _CLICK)]


def _examples(
    task: ClassificationTask,
    part: str,
    examples: Sequence[InputExample],
    right: np.ndarray,
    chosen: np.ndarray,
    losses: np.ndarray,
    logits: np.ndarray,
) -> Examples:
    """Returns the examples; `right` and `chosen` are bool [B, C], and `losses` the ranks."""
    chances = decisions.probabilities(task, logits)
    order = np.argsort(-chances, axis=1, kind="stable")
    labels = task.labels
    shown = []
    for number, example in enumerate(examples):
        picked = right[number] | chosen[number]
        picked[order[number, :_ANSWERS]] = True
        bars = [
            Bar(
                labels[label],
                float(chances[number, label]),
                bool(right[number, label]),
                bool(chosen[number, label]),
            )
            for label in order[number]
            if picked[label]
        ]
        is_known = bool(losses[number] != UNKNOWN)
        shown.append(
            Example(
                number,
                float(losses[number]),
                bool((right[number] == chosen[number]).all()) if is_known else None,
                [*[f"loss {losses[number]:.3f}"] * is_known, example.guid],
                [*_texts(example), Bars(bars)],
                list(itertools.compress(labels, right[number])),
                list(itertools.compress(labels, chosen[number])),
            )
        )
    return worst_first(part, f"Examples of the {part} set", shown, order="loss", labels=labels)


def _texts(example: InputExample) -> list[Block]:
    if example.text_b is None:
        return [Text(shorten(example.text_a))]
    return [Text(shorten(example.text_a), "A"), Text(shorten(example.text_b), "B")]


def _beside_the_mean(part: str, scores: Mapping[str, Any]) -> Table:
    """Returns a table of the errors, and of those of always answering the mean."""
    rows: list[list[Cell]] = [
        [_ERRORS[name], scores[name], value] for name, value in scores["baseline_scores"].items()
    ]
    return Table(f"Errors on the {part} set", ["", "the model", "always the mean"], rows)


def _regression(
    part: str, examples: Sequence[InputExample], right: np.ndarray, said: np.ndarray
) -> list[Section]:
    shown, points = [], []
    pairs = zip(right.tolist(), said.tolist(), strict=True)
    for number, (example, (true, answer)) in enumerate(zip(examples, pairs, strict=True)):
        rank, facts = UNKNOWN, [f"said {answer:.4g}", example.guid]
        if example.label is not None:
            rank, error = abs(answer - true), f"error {answer - true:+.4g}"
            facts = [f"right {true:.6g}", f"said {answer:.4g}", error, example.guid]
            points.append([true, answer, number])
        shown.append(Example(number, rank, None, facts, _texts(example)))
    listed = worst_first(part, f"Examples of the {part} set", shown, order="error")
    every = -(-len(points) // _MAX_POINTS)
    note = (
        "On the dashed lines, what was said is what is right, and the error is 0. A click on a "
        "point shows its example."
    )
    return [Scatter(f"Said and right, {part} set", points[::every], part, note), listed]


def calibration_error(probabilities: np.ndarray, is_right: np.ndarray) -> float:
    """Returns the expected calibration error, from 0 to 1.

    It is the mean over examples of how far the accuracy in a bin of `NUM_BINS` equal ones is from
    the mean probability there.

    Args:
      probabilities: float [N], of the label that was said.
      is_right: bool [N].
    """
    gaps = np.bincount(_bins(probabilities), probabilities - is_right)
    return float(np.abs(gaps).sum()) / max(len(probabilities), 1)


def _bins(probabilities: np.ndarray) -> np.ndarray:
    return np.minimum((probabilities * NUM_BINS).astype(int), NUM_BINS - 1)


def probability_charts(
    part: str, labels: Sequence[str], probabilities: np.ndarray, right: np.ndarray
) -> list[Curves]:
    """Returns the charts of a part of the data, none where it has few examples.

    Args:
      part: The name of the part, such as "dev".
      labels: The labels.
      probabilities: float [N, C].
      right: int [N], the index of the right label.
    """
    if len(right) < MIN_EXAMPLES:
        return []
    best = probabilities.max(axis=1)
    is_right = probabilities.argmax(axis=1) == right
    charts = [_reliability(best, is_right), _coverage(best, is_right)]
    if len(labels) == 2:
        positive = positive_label(labels)
        index = labels.index(positive)
        charts += _error_curves(positive, probabilities[:, index], right == index)
    error = calibration_error(best, is_right)
    note = (
        f"The expected calibration error is {error:.3f}, of 1: on average, the probability of what "
        "was said is that far from how often it is right. The left chart shows where: on the "
        "line from corner to corner they are equal. The right one shows, if only what has a "
        "minimum probability is answered, the share that is, and how much of it is right."
    )
    return [Curves(f"Probabilities on the {part} set", charts, note)]


def _reliability(best: np.ndarray, is_right: np.ndarray) -> Chart:
    bins = _bins(best)
    groups = [bins == number for number in np.unique(bins)]
    points = [[float(best[group].mean()), float(is_right[group].mean())] for group in groups]
    ends = [[0.0, 0.0], [1.0, 1.0]]
    lines = [Series("this model", points), Series("exact", ends, is_reference=True)]
    return Chart("Reliability", lines, "accuracy, of 1", "probability")


def _coverage(best: np.ndarray, is_right: np.ndarray) -> Chart:
    answered = [best >= threshold for threshold in _THRESHOLDS]
    shares = [[float(t), float(each.mean())] for t, each in zip(_THRESHOLDS, answered, strict=True)]
    accuracies = [
        [float(t), float(is_right[each].mean())]
        for t, each in zip(_THRESHOLDS, answered, strict=True)
        if each.any()
    ]
    lines = [Series("share answered", shares), Series("accuracy among these", accuracies)]
    return Chart("What is answered", lines, "share, of 1", "minimum probability")


def _error_curves(label: str, probabilities: np.ndarray, is_positive: np.ndarray) -> list[Chart]:
    """Returns the curves over all thresholds of the probability of a label; none without both."""
    from sklearn import metrics  # noqa: PLC0415

    if is_positive.all() or not is_positive.any():
        return []
    false_rate, true_rate, _ = metrics.roc_curve(is_positive, probabilities)
    precision, recall, thresholds = metrics.precision_recall_curve(is_positive, probabilities)
    roc = [
        Series(f"area {metrics.auc(false_rate, true_rate):.3f}", _points(false_rate, true_rate)),
        Series("chance", [[0.0, 0.0], [1.0, 1.0]], is_reference=True),
    ]
    by_threshold = [
        Series("precision", _points(thresholds, precision)),
        Series("recall", _points(thresholds, recall)),
    ]
    return [
        Chart(f"ROC of {label!r}", roc, "true positive rate, of 1", "false positive rate"),
        Chart(f"Precision and recall of {label!r}", by_threshold, "of 1", "threshold"),
    ]


def _points(xs: np.ndarray, ys: np.ndarray) -> list[list[float]]:
    # The last precision and recall are beyond all thresholds.
    points = thin(list(zip(xs.tolist(), ys[: len(xs)].tolist(), strict=True)))
    return [point[:2] for point in points]

"""Whether a classifier's probabilities can be trusted: reliability, coverage, and error curves.

Source: Guo et al., On Calibration of Modern Neural Networks, 2017: the expected calibration error
and the reliability diagram. The curves of two labels are those of Fawcett, An Introduction to ROC
Analysis, 2006.
"""

from collections.abc import Sequence

import numpy as np

from bert.reports.curves import thin
from bert.reports.sections import Chart, Curves, Series

NUM_BINS = 10
# Examples below which the curves are mostly chance.
MIN_EXAMPLES = 20
# The minimum probabilities of the curve of what is answered.
_THRESHOLDS = np.linspace(0.0, 1.0, 51)


def calibration_error(probabilities: np.ndarray, is_right: np.ndarray) -> float:
    """Returns the expected calibration error, from 0 to 1.

    It is the mean over examples of how far the accuracy in a bin of `NUM_BINS` equal ones is from
    the mean probability there.

    Args:
      probabilities: float [N], of the label that was said.
      is_right: bool [N].
    """
    bins = _bins(probabilities)
    gaps = [
        abs(float(np.sum(probabilities[bins == n] - is_right[bins == n]))) for n in range(NUM_BINS)
    ]
    return sum(gaps) / max(len(probabilities), 1)


def _bins(probabilities: np.ndarray) -> np.ndarray:
    return np.minimum((probabilities * NUM_BINS).astype(int), NUM_BINS - 1)


def make_section(
    part: str, labels: Sequence[str], probabilities: np.ndarray, right: np.ndarray
) -> list[Curves]:
    """Returns the charts of a part of the data, none where it has few examples.

    Args:
      part: The name of the part, such as "dev".
      labels: The labels; of two, the second is the positive one, or the one called "1".
      probabilities: float [N, C].
      right: int [N], the index of the right label.
    """
    if len(right) < MIN_EXAMPLES:
        return []
    best = probabilities.max(axis=1)
    is_right = probabilities.argmax(axis=1) == right
    charts = [_reliability(best, is_right), _coverage(best, is_right)]
    if len(labels) == 2:
        positive = labels.index("1") if "1" in labels else 1
        charts += _error_curves(labels[positive], probabilities[:, positive], right == positive)
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
    filled = [n for n in range(NUM_BINS) if (bins == n).any()]
    points = [[float(best[bins == n].mean()), float(is_right[bins == n].mean())] for n in filled]
    ends = [[0.0, 0.0], [1.0, 1.0]]
    lines = [Series("this model", points), Series("exact", ends)]
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
    area = metrics.auc(false_rate, true_rate)
    precision, recall, thresholds = metrics.precision_recall_curve(is_positive, probabilities)
    roc = [
        Series(f"area {area:.3f}", _points(false_rate, true_rate)),
        Series("chance", [[0.0, 0.0], [1.0, 1.0]]),
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

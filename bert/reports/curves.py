"""The curves of a training, from the files in its folder."""

import itertools
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from bert.files.json_text import parse_json
from bert.files.paths import is_file, read_file
from bert.log import logger
from bert.reports.sections import Chart, Curves, Series
from bert.training.options import EVALUATIONS, TRAIN_LOG

# Points of a line; of more, each is the mean of several.
MAX_POINTS = 300
_LOSS = "loss"
# In the names of what is no score: counts, thresholds, and the loss by another name.
_COUNTS = ("num_", "total", "thresh", "mse")


def read_curves(folder: str) -> list[Curves]:
    """Returns the curves of the training in a folder, none where there is none."""
    train = _read_lines(os.path.join(folder, TRAIN_LOG))
    scores = _read_lines(os.path.join(folder, EVALUATIONS))
    charts = [*_loss_chart(train, scores), *_score_charts(scores), *_other_charts(train)]
    if not charts:
        return []
    is_thinned = max(len(train), len(scores)) > MAX_POINTS
    note = "A line is the mean of several steps, and its shade their least and greatest."
    return [Curves("Training", charts, note * is_thinned)]


def _read_lines(path: str) -> list[dict[str, Any]]:
    """Returns the objects on the lines of a file, none where it is not there."""
    if not is_file(path):
        return []
    lines = []
    for number, line in enumerate(read_file(path).splitlines(), start=1):
        try:
            value = parse_json(line)
        except ValueError:
            value = None
        if isinstance(value, dict) and type(value.get("step")) is int:
            lines.append(value)
        else:
            logger.warning("%s:%d is not an object with a `step`; no curve shows it.", path, number)
    return lines


def _loss_chart(
    train: Sequence[Mapping[str, Any]], scores: Sequence[Mapping[str, Any]]
) -> list[Chart]:
    names = [name for name in _names(train) if name == _LOSS or name.endswith(f"_{_LOSS}")]
    series = [
        _series("loss in training" if name == _LOSS else _title(name), train, name)
        for name in names
    ]
    if series and any(_LOSS in line for line in scores):
        series.append(_series("loss on the dev set", scores, _LOSS))
    return [Chart("Loss", series, "loss")] if series else []


def _score_charts(scores: Sequence[Mapping[str, Any]]) -> list[Chart]:
    names = _names(scores)
    # The scores of SQuAD are in percent. A value above 1 is no score of another task.
    most = 100.0 if any(name.startswith("exact") for name in names) else 1.0
    lines = [
        _series(_title(name), scores, name)
        for name in names
        if name != _LOSS and not any(count in name for count in _COUNTS)
    ]
    # A single evaluation has its scores at the head of the page.
    shown = [
        line
        for line in lines
        if len(line.points) > 1 and max(abs(y) for _, y, *_ in line.points) <= most
    ]
    return [Chart("Scores on the dev set", shown, f"score, of {most:g}")] if shown else []


def _other_charts(train: Sequence[Mapping[str, Any]]) -> list[Chart]:
    names = [name for name in _names(train) if not name.endswith(_LOSS)]
    names.sort(key=lambda name: name != "learning_rate")
    lines = [_series(_title(name), train, name) for name in names]
    return [Chart(line.name.capitalize(), [line], line.name) for line in lines if line.points]


def _names(lines: Iterable[Mapping[str, Any]]) -> list[str]:
    """Returns the names of all numbers but the step, in the order of their first line."""
    found = {
        name: None
        for line in lines
        for name, value in line.items()
        if type(value) in (int, float) and name != "step"
    }
    return list(found)


def _title(name: str) -> str:
    return name.replace("grad_", "gradient_").replace("_", " ")


def _series(title: str, lines: Iterable[Mapping[str, Any]], name: str) -> Series:
    points = [
        (line["step"], line[name])
        for line in lines
        if type(line.get(name)) in (int, float) and math.isfinite(line[name])
    ]
    return Series(title, thin(points))


def thin(points: Sequence[tuple[float, float]], most: int = MAX_POINTS) -> list[list[float]]:
    """Returns at most so many points: where there are more, [x, mean, least, greatest] of several.

    The x is the last one of those that make a point.
    """
    if len(points) <= most:
        return [list(point) for point in points]
    ends = [len(points) * number // most for number in range(most + 1)]
    parts = [points[start:end] for start, end in itertools.pairwise(ends)]
    values = [[y for _, y in part] for part in parts]
    return [
        [part[-1][0], math.fsum(ys) / len(ys), min(ys), max(ys)]
        for part, ys in zip(parts, values, strict=True)
    ]

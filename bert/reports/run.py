"""`report.html` of a run: its scores, curves and examples, as a page to look at.

The pages of equal runs differ in the name of the folder and in the date alone.
"""

import datetime
import itertools
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from bert.files.owned import claim, is_of_model_folder
from bert.files.paths import is_file, parse_json, read_file
from bert.log import logger
from bert.reports.page import (
    Cell,
    Chart,
    Curves,
    Examples,
    Figure,
    Link,
    Page,
    Section,
    Series,
    Table,
    write_page,
)
from bert.training.options import EVALUATIONS, TRAIN_LOG

REPORT = "report.html"

# Options that describe a run; each script has some of them.
_OPTIONS = (
    *("init_checkpoint", "word_vectors", "task_name", "data_dir", "train_file", "input_file"),
    "learning_rate",
    *("train_batch_size", "num_train_epochs", "num_train_steps", "time_budget"),
    *("warmup_proportion", "num_warmup_steps", "max_seq_length", "precision", "seed"),
)
_MOST_FIGURES = 8
_NAMES = {
    "HasAns_exact": "exact match, with answer",
    "HasAns_f1": "F1, with answer",
    "NoAns_exact": "exact match, without answer",
    "NoAns_f1": "F1, without answer",
    "accuracy": "accuracy",
    "best_exact": "best exact match",
    "best_f1": "best F1",
    "exact": "exact match",
    "f1": "F1",
    "mae": "mean absolute error",
    "macro_f1": "macro F1",
    "masked_lm_accuracy": "masked LM accuracy",
    "masked_lm_loss": "masked LM loss",
    "matthews": "Matthews' correlation",
    "micro_f1": "micro F1",
    "mse": "mean squared error",
    "pearson": "Pearson's correlation",
    "r2": "R²",
    "spearman": "Spearman's correlation",
}
_CORRELATIONS = ("matthews", "pearson", "spearman")
_ERRORS = ("loss", "mae", "mse", "perplexity")
_SHARES = ("accuracy", "exact", "exact_match", "f1", "precision", "recall")
# The scores of SQuAD's own script are in percent.
_IN_PERCENT = ("exact", "exact_match")
# Points of a line; of more, each is the mean of several.
MAX_POINTS = 300
_LOSS = "loss"
# In the names of what is no score: counts, thresholds, and the loss by another name.
_COUNTS = ("num_", "total", "thresh", "mse")


def write_report(
    folder: str,
    title: str,
    options: Mapping[str, Any],
    step: int,
    figures: Sequence[Figure],
    sections: Sequence[Section],
    baselines: Mapping[str, float],
) -> None:
    """Writes the page of a run into its folder: results, then curves, then examples.

    Args:
      folder: The folder of the run.
      title: As `title_of` returns it.
      options: The options of the training run; none where the model was not trained.
      step: The step of the weights.
      figures: As `make_figures` returns them.
      sections: What the page shows of each part of the data.
      baselines: By score, what the same answer for all examples would reach.
    """
    facts: dict[str, Any] = {"step of the weights": step}
    described = {name: options.get(name) for name in _OPTIONS}
    facts |= {
        f"--{name}": value
        for name, value in described.items()
        if value is not None and not is_of_model_folder(value)
    }
    examples = [section for section in sections if isinstance(section, Examples)]
    results = [section for section in sections if not isinstance(section, Examples)]
    shown = [*results, *read_curves(folder, baselines), *examples]
    _write(folder, Page(title, shown, figures, facts, subtitle_of(folder)))


def title_of(kind: str, path: str | None = None) -> str:
    """Returns the title of a page: the kind of a task, and the name of its data."""
    name = os.path.basename((path or "").rstrip("/"))
    return kind.replace("_", " ").capitalize() + f": {name}" * bool(name.strip("."))


def subtitle_of(folder: str) -> str:
    """Returns the name of a run's folder, and the date."""
    name = os.path.basename(os.path.normpath(folder))
    return ", ".join(filter(None, (name.strip("."), datetime.date.today().isoformat())))


def _write(folder: str, page: Page) -> None:
    path = claim(folder, REPORT)
    write_page(path, page)
    logger.info("Wrote %s, to look at in a browser.", path)


def make_runs_tables(
    metric: str, points: Sequence[Mapping[str, Any]], best: Mapping[str, Any]
) -> list[Table]:
    """Returns the tables of several runs, with links to the page of each.

    Args:
      metric: The score that decides.
      points: Each with its runs, as `search.run` returns them; `point` is empty without a grid.
      best: The `folder` of the best run.
    """
    names = sorted(points[0]["mean"], key=lambda name: name != metric)
    titles = [name_score(name) for name in names]
    flags = list(points[0]["point"])
    means: list[list[Cell]] = [
        [*map(str, point["point"].values()), *(mean_text(point, name) for name in names)]
        for point in points
    ]
    rows: list[list[Cell]] = []
    for point in points:
        for run in point["runs"]:
            link = Link(run["folder"], f"{run['folder']}/{REPORT}")
            values = [*map(str, point["point"].values()), str(run["seed"])]
            remark = _remark(point, run, best)
            rows.append([link, *values, remark, *(run["scores"][name] for name in names)])
    return [
        Table("Mean and standard deviation", [*flags, *titles], means),
        Table("Runs", ["run", *flags, "seed", "", *titles], rows),
    ]


def write_runs_report(
    folder: str, metric: str, points: Sequence[Mapping[str, Any]], best: Mapping[str, Any]
) -> None:
    """Writes the page of several runs, of which none has its model in the folder.

    Args:
      folder: The folder that contains the folders of the runs.
      metric: The score that decides.
      points: As for `make_runs_tables`.
      best: The `folder` of the best run.
    """
    tables = make_runs_tables(metric, points, best)
    [score] = (
        run["scores"][metric]
        for point in points
        for run in point["runs"]
        if run["folder"] == best["folder"]
    )
    figures = [Figure(name_score(metric), score, f"the best run, {best['folder']}")]
    title = f"{len(tables[-1].rows)} runs"
    _write(folder, Page(title, tables, figures, subtitle=subtitle_of(folder)))


def mean_text(point: Mapping[str, Any], name: str) -> str:
    """Returns the mean of a score at a point, with its standard deviation if there is one."""
    deviation = point["standard_deviation"].get(name)
    return f"{point['mean'][name]:.4f}" + ("" if deviation is None else f" ± {deviation:.4f}")


def _remark(point: Mapping[str, Any], run: Mapping[str, Any], best: Mapping[str, Any]) -> str:
    if run["seed"] in point["failed"]:
        return "no better than one answer for all"
    return "the best" if run["folder"] == best["folder"] else ""


def make_figures(
    scores: Mapping[str, Any],
    metric: str,
    names: Mapping[str, str] | None = None,
    baselines: Mapping[str, float] | None = None,
) -> list[Figure]:
    """Returns the main scores, the metric first.

    Args:
      scores: All scores of a run; those of a test set begin with `test_`.
      metric: The score that decides, or "".
      names: What a score is called on the page, where the usual name does not say enough.
      baselines: By score, what the same answer for all examples would reach.
    """
    values = {
        name: value
        for name, value in scores.items()
        if isinstance(value, float) and name != "baseline" and not name.endswith("_thresh")
    }
    chosen = [name for name in values if not name.startswith("test_")]
    chosen = sorted(chosen, key=lambda name: name != metric)[:_MOST_FIGURES]
    if f"test_{metric}" in values:
        chosen.insert(1, f"test_{metric}")
    most = 100 if any(name in scores for name in _IN_PERCENT) else 1
    return [
        Figure(
            name_score(name, names),
            values[name],
            _note(name, most, (baselines or {}).get(name)),
        )
        for name in chosen
    ]


def name_score(name: str, names: Mapping[str, str] | None = None) -> str:
    """Returns what a score is called on a page."""
    base = name.removeprefix("test_")
    shown = {**_NAMES, **(names or {})}.get(base, base.replace("_", " "))
    return f"{shown}, test set" if base != name else shown


def _note(name: str, most: int, baseline: float | None) -> str:
    scale = _scale(name.removeprefix("test_"), most)
    same = f"one answer for all: {baseline:.4g}" if baseline is not None else ""
    return "; ".join(filter(None, (scale, same)))


def _scale(name: str, most: int) -> str:
    last = name.rpartition("_")[2]
    if last in _CORRELATIONS:
        return "from −1 to 1"  # noqa: RUF001
    if last in _ERRORS:
        return "less is better"
    if name == "r2":
        return "at most 1"
    return f"of {most}" if last in _SHARES or name in _SHARES else ""


def read_curves(folder: str, baselines: Mapping[str, float]) -> list[Curves]:
    """Returns the curves of the training in a folder, with baselines by score; none without one."""
    train = _read_lines(os.path.join(folder, TRAIN_LOG))
    scores = _read_lines(os.path.join(folder, EVALUATIONS))
    charts = [*_loss_chart(train, scores), *_score_charts(scores, baselines), *_other_charts(train)]
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


def _score_charts(
    scores: Sequence[Mapping[str, Any]], baselines: Mapping[str, float]
) -> list[Chart]:
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
    known = {line.name for line in shown}
    for name, value in baselines.items():
        if _title(name) in known:
            ends = [[float(scores[place]["step"]), value] for place in (0, -1)]
            shown.append(Series(f"{_title(name)} of one answer for all", ends, is_reference=True))
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

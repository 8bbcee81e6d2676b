"""`report.html` of a run: its curves, its scores and its examples, as a page to look at.

Equal runs make equal pages: nothing on it tells of times, or of the folder that it lies in.
"""

import os
from collections.abc import Mapping, Sequence
from typing import Any

from absl import logging

from bert.files.owned import claim, is_of_model_folder
from bert.reports.curves import read_curves
from bert.reports.page import Figure, Page, write_page
from bert.reports.sections import Cell, Link, Section, Table

REPORT = "report.html"

# Flags of some runner or other that tell what was done.
_TOLD = (
    *("init_checkpoint", "word_vectors", "task_name", "data_dir", "train_file", "input_file"),
    "learning_rate",
    *("train_batch_size", "num_train_epochs", "num_train_steps", "time_budget"),
    *("warmup_proportion", "num_warmup_steps", "max_seq_length", "precision", "seed"),
)
_MOST_FIGURES = 8


def write_report(
    folder: str,
    options: Mapping[str, Any],
    title: str,
    step: int,
    results: Mapping[str, Any],
    sections: Sequence[Section],
    metric: str = "",
) -> None:
    """Writes the page of a run into its folder.

    Args:
      folder: The folder of the run.
      options: The options of the training run; none where the model was not trained.
      title: As `title_of` returns it.
      step: That of the weights.
      results: All scores.
      sections: What the task shows.
      metric: The score that counts, if any does.
    """
    facts: dict[str, Any] = {"step of the weights": step}
    shown = {name: options.get(name) for name in _TOLD}
    facts |= {
        f"--{name}": each
        for name, each in shown.items()
        if each is not None and not is_of_model_folder(each)
    }
    page = Page(
        title,
        [*read_curves(folder), *sections],
        _figures(results, metric),
        facts,
    )
    _write(folder, page)


def title_of(kind: str, data_dir: str | None = None) -> str:
    """Returns the title of a page: the kind of a task, and the name of its data set."""
    data = os.path.basename((data_dir or "").rstrip("/"))
    return kind.replace("_", " ").capitalize() + f": {data}" * bool(data.strip("."))


def _write(folder: str, page: Page) -> None:
    path = claim(folder, REPORT)
    write_page(path, page)
    logging.info("Wrote %s, to look at in a browser.", path)


def _figures(results: Mapping[str, Any], metric: str) -> list[Figure]:
    """Returns the main scores, the metric first."""
    scores = {name: value for name, value in results.items() if isinstance(value, float)}
    baseline = scores.pop("baseline", 0.0)
    note = f"one answer for all: {baseline:.4g}" if baseline else ""
    names = [name for name in scores if not name.startswith("test_")]
    names = sorted(names, key=lambda name: name != metric)[:_MOST_FIGURES]
    if f"test_{metric}" in scores:
        names.insert(1, f"test_{metric}")
    return [Figure(name.replace("_", " "), scores[name], note * (name == metric)) for name in names]


def make_runs_tables(
    metric: str, points: Sequence[Mapping[str, Any]], best: Mapping[str, Any]
) -> list[Table]:
    """Returns what a page shows of several runs, with the ways to those of each.

    Args:
      metric: The score that counts.
      points: Each with its runs, as `search.run` returns them; `point` is empty without a grid.
      best: The `folder` of the best run.
    """
    names = sorted(points[0]["mean"], key=lambda name: name != metric)
    titles = [name.replace("_", " ") for name in names]
    flags = list(points[0]["point"])
    means: list[list[Cell]] = [
        [*map(str, point["point"].values()), *(_mean_text(point, name) for name in names)]
        for point in points
    ]
    rows: list[list[Cell]] = []
    for point in points:
        for run in point["runs"]:
            link = Link(run["folder"], f"{run['folder']}/{REPORT}")
            told = [*map(str, point["point"].values()), str(run["seed"]), _remark(point, run, best)]
            rows.append([link, *told, *(run["scores"][name] for name in names)])
    return [
        Table("Mean and standard deviation", [*flags, *titles], means),
        Table("Runs", ["run", *flags, "seed", "", *titles], rows),
    ]


def write_runs_report(
    folder: str, metric: str, points: Sequence[Mapping[str, Any]], best: Mapping[str, Any]
) -> None:
    """Writes the page of several runs, of which none has its model in the folder.

    Args:
      folder: In which the folders of the runs are.
      metric: As for `make_runs_tables`, like the others.
      points: Each with its runs.
      best: The `folder` of the best run.
    """
    tables = make_runs_tables(metric, points, best)
    [score] = (
        run["scores"][metric]
        for point in points
        for run in point["runs"]
        if run["folder"] == best["folder"]
    )
    figures = [Figure(metric.replace("_", " "), score, f"the best run, {best['folder']}")]
    _write(folder, Page(f"{len(tables[-1].rows)} runs", tables, figures))


def _mean_text(point: Mapping[str, Any], name: str) -> str:
    deviation = point["standard_deviation"].get(name)
    return f"{point['mean'][name]:.4f}" + ("" if deviation is None else f" ± {deviation:.4f}")


def _remark(point: Mapping[str, Any], run: Mapping[str, Any], best: Mapping[str, Any]) -> str:
    if run["seed"] in point["failed"]:
        return "no better than one answer for all"
    return "the best" if run["folder"] == best["folder"] else ""

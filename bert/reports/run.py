"""`report.html` of a run: its scores, curves and examples, as a page to look at.

The pages of equal runs differ in the name of the folder and in the date alone.
"""

import datetime
import os
from collections.abc import Mapping, Sequence
from typing import Any

from bert.files.owned import claim, is_of_model_folder
from bert.log import logger
from bert.reports.curves import read_curves
from bert.reports.figures import name_score
from bert.reports.page import Figure, Page, write_page
from bert.reports.sections import Cell, Examples, Link, Section, Table

REPORT = "report.html"

# Options that describe a run; each script has some of them.
_OPTIONS = (
    *("init_checkpoint", "word_vectors", "task_name", "data_dir", "train_file", "input_file"),
    "learning_rate",
    *("train_batch_size", "num_train_epochs", "num_train_steps", "time_budget"),
    *("warmup_proportion", "num_warmup_steps", "max_seq_length", "precision", "seed"),
)


def write_report(
    folder: str,
    title: str,
    options: Mapping[str, Any],
    step: int,
    figures: Sequence[Figure],
    sections: Sequence[Section],
) -> None:
    """Writes the page of a run into its folder: results, then curves, then examples.

    Args:
      folder: The folder of the run.
      title: As `title_of` returns it.
      options: The options of the training run; none where the model was not trained.
      step: The step of the weights.
      figures: As `make_figures` returns them.
      sections: What the page shows of each part of the data.
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
    shown = [*results, *read_curves(folder), *examples]
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

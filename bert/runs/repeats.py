"""A training, or several: with several seeds, and at each point of a grid of flags' values.

Small sets make BERT's fine-tuning unstable: some seeds learn nothing (paper, section 4.1). Which
learning rate, batch size and number of epochs suit a task is tried out (paper, appendix A.3).
"""

import contextlib
import dataclasses
import gc
import itertools
import json
import math
import os
import statistics
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Generic, TypeVar

import tensorflow as tf
from absl import logging

from bert.commands.settings import FileSettings, FineTuningSettings
from bert.files import owned
from bert.files.durable import replace_files, write_text
from bert.files.json_text import finite
from bert.files.outputs import make_folder
from bert.files.paths import is_file, read_file
from bert.files.weight_names import SUFFIXES, WEIGHTS
from bert.options import read_grid
from bert.reports.sections import Table
from bert.runs import exports, finetuning, fit, precision, tuning
from bert.runs.finetuning import OpenTask
from bert.runs.identity import flags_of
from bert.runs.report import make_runs_tables, write_runs_report
from bert.runs.resumption import check_apart
from bert.runs.training import open_strategy
from bert.tasks.task import Inputs, Task
from bert.training import strategies
from bert.training.keeper import NonFiniteLossError
from bert.training.options import AUTO
from bert.training.seeds import seeded
from bert.weights import checkpoint, provenance, saving
from bert.weights.folder import ModelFolder
from bert.weights.model_files import MODEL_FILES

Settings = FineTuningSettings
SettingsType = TypeVar("SettingsType", bound=Settings)

# What `--output_dir` holds in the end, for programs and for people.
SUMMARY, TABLE = "runs.json", "runs.txt"

_BASELINE = "baseline"


@dataclasses.dataclass(frozen=True)
class OneOfSeveral(Generic[SettingsType]):
    """A run among several.

    Attributes:
      point: Its values of the flags that have several, by name.
      settings: Its own, with a folder within `--output_dir`.
    """

    point: Mapping[str, float]
    settings: SettingsType

    @property
    def folder(self) -> str:
        """The name of its folder."""
        return os.path.basename(self.settings.output_dir)

    @property
    def has_ended(self) -> bool:
        """Whether it is trained to its end."""
        return bool(provenance.read(self.settings.output_dir).get("ended"))


def list_runs(settings: SettingsType) -> list[OneOfSeveral[SettingsType]]:
    """Returns the runs that the settings ask for, point by point, at each point seed by seed.

    A folder's name tells the point by the flags that have several values, so that these can get
    more, and what is trained already stays. A single run has `--output_dir` itself.
    """
    grid = read_grid(settings)
    varied = [name for name, values in grid.items() if len(values) > 1]
    runs = []
    for values in itertools.product(*grid.values()):
        chosen = dict(zip(grid, values, strict=True))
        point = {name: chosen[name] for name in varied}
        parts = [f"{name}_{_value_text(value)}" for name, value in point.items()]
        for index in range(settings.num_runs):
            folder = os.path.join(settings.output_dir, "-".join([*parts, f"run_{index + 1}"]))
            own = {**chosen, "output_dir": folder, "seed": settings.seed + index}
            if isinstance(settings, FileSettings) and settings.split_seed is None:
                # Their scores are of the same examples.
                own["split_seed"] = settings.seed
            runs.append(OneOfSeveral(point, dataclasses.replace(settings, **own)))
    if len(runs) > 1:
        return runs
    return [OneOfSeveral({}, dataclasses.replace(settings, **chosen))]


def _value_text(value: float) -> str:
    return repr(value).removesuffix(".0")


def _point_text(point: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {_value_text(value)}" for name, value in point.items())


@seeded
def run(settings: SettingsType, open_task: OpenTask[SettingsType]) -> dict[str, Any]:
    """Does what `finetuning.run` does, once or several times, as the settings say.

    Several runs have folders of their own. What the best one has learned is kept in `--output_dir`
    itself, where it is evaluated, predicts and is exported again.

    Returns:
      What `finetuning.run` returns; of several runs, what `runs.json` holds. That is, for each
      point of a grid, its `point`; its `runs`, each with seed, folder and scores; `mean` and
      `standard_deviation` (of the sample, where there are several) of each score; and `failed`, the
      seeds whose runs are no better than guessing. Beside these, `metric`, the name of the score
      that counts, and the `folder` and `seed` of the `best` run. Where there is no grid, there is
      one point, and what is told of it stands beside `metric` itself.

    Raises:
      ValueError: before the expensive part, where settings, files and model do not fit.
    """
    finetuning.check_verbs(settings)
    folders = [each.settings.output_dir for each in list_runs(settings)]
    settings = _with_precision(settings, folders)
    runs = list_runs(settings)
    if len(runs) == 1:
        return finetuning.run(runs[0].settings, open_task)
    check_apart(settings.output_dir, finetuning.read_paths(settings))
    # As `finetuning.run`.
    is_chief = strategies.is_chief(open_strategy(settings))
    several = _Several(settings, runs, open_task)
    # What is wrong with task or data is said before a folder is made.
    several.check()
    make_folder(settings.output_dir)
    # Of several workers, each would keep out the others.
    with owned.lock(settings.output_dir) if is_chief else contextlib.nullcontext():
        return several(is_chief)


def _with_precision(settings: SettingsType, folders: Sequence[str]) -> SettingsType:
    """Returns the settings with the precision to train in, which the chief of workers chooses."""
    if settings.precision != AUTO:
        return settings
    strategy = open_strategy(settings)
    chosen = choose_precision(settings, folders) if strategies.is_chief(strategy) else ""
    return dataclasses.replace(settings, precision=strategies.of_chief(strategy, chosen))


def choose_precision(settings: Settings, folders: Sequence[str]) -> str:
    """Returns what `auto` stands for."""
    begins_anew = settings.do_train and settings.overwrite_output_dir
    places = [] if begins_anew else [settings.output_dir, *folders]
    return precision.choose(
        places, ModelFolder.named_by(settings, output_dir=settings.output_dir).config
    )


class _Several(Generic[SettingsType]):
    """Several runs.

    Args:
      settings: Those of the script.
      runs: As `list_runs` gives them.
      open_task: As `finetuning.run` takes it.
    """

    def __init__(
        self,
        settings: SettingsType,
        runs: Sequence[OneOfSeveral[SettingsType]],
        open_task: OpenTask[SettingsType],
    ) -> None:
        self._settings = settings
        self._runs = runs
        self._open_task = open_task
        self._source = ModelFolder.of(settings, settings, settings.output_dir)
        self._keeps_best = may_keep_best(settings)

    def check(self) -> None:
        """Checks all that can be checked before inputs are made."""
        settings, source = self._settings, self._source
        num_replicas = open_strategy(settings).num_replicas_in_sync
        for each in self._runs:
            fit.check_settings(each.settings, source, num_replicas)
        task = self._open_task(settings, source.config, source.load_tokenizer())
        if self._keeps_best:
            finetuning.check_same(settings, source, finetuning.fixed(settings, task))
        task.read(finetuning.wanted_splits(settings))

    def __call__(self, is_chief: bool) -> dict[str, Any]:
        """Runs all and sums up, which the chief alone writes down."""
        results = []
        exported: dict[str, Sequence[exports.Parity]] = {}
        metric = ""
        diverged: NonFiniteLossError | None = None
        for number, each in enumerate(self._runs, start=1):
            # The first one's, when there is room for it.
            if is_chief and number > 1:
                owned.claim_folder(self._settings.output_dir, each.folder)
            _log_run(number, len(self._runs), each)
            # The model of the run before: Keras' own way also resets the caller's random numbers.
            gc.collect()
            ready = self._check_others if number == 1 else None
            scores: Mapping[str, Any] = {}
            try:
                metric, scores, exported[each.folder] = finetuning.run_once(
                    each.settings, self._source, self._open_task, ready
                )
            except NonFiniteLossError as error:
                # Other workers may not have come as far.
                if each.settings.strategy == "multi_worker":
                    raise
                logging.warning("This run has no score, and the others go on without it: %s", error)
                diverged = error
            results.append({"seed": each.settings.seed, "folder": each.folder, "scores": scores})
        if diverged and not any(each["scores"] for each in results):
            raise diverged
        _fill_scores(results)
        points = _group([each.point for each in self._runs], results)
        summary = {"metric": metric, **_sum_up(points, metric)}
        best = summary["best"]
        if not is_chief:
            return summary
        if self._keeps_best:
            tables = make_runs_tables(metric, points, best)
            exported[best["folder"]] = self._use_best(best["folder"], tables)
        _tell(self._settings, summary, points)
        if not self._keeps_best:
            write_runs_report(self._settings.output_dir, metric, points, best)
        # What another run loses by its export ends no search.
        exports.check_refused(exported[best["folder"]])
        return summary

    def _check_others(self, task: Task, made: Sequence[Inputs]) -> None:
        """Checks the runs behind the first, which is about to begin, and makes room for them."""
        num_examples = finetuning.count_examples(made)
        for each in self._runs[1:]:
            if (
                tf.io.gfile.isdir(each.settings.output_dir)
                and not self._settings.overwrite_output_dir
            ):
                kept = finetuning.fixed(each.settings, task)
                finetuning.check_same(each.settings, self._source, kept)
                finetuning.plan_of(each.settings, self._source, made)
            tuning.count_steps(each.settings, num_examples)
        if not strategies.is_chief(tf.distribute.get_strategy()):
            return
        folder = self._settings.output_dir
        if self._settings.overwrite_output_dir:
            # The first run is at work in its folder, and clears it by itself. All others go before
            # anything is trained, so that who resumes these finds none of an older making.
            first = f"{self._runs[0].folder}/{owned.LIST_FILE}"
            owned.clear(folder, but=[*MODEL_FILES, first])
        elif self._keeps_best and not all(each.has_ended for each in self._runs):
            # They are of other runs: a prediction must not take them for the best of these.
            saving.remove(os.path.join(folder, WEIGHTS))
        owned.claim_folder(folder, self._runs[0].folder)

    def _use_best(self, name: str, tables: Sequence[Table]) -> Sequence[exports.Parity]:
        """Keeps the model of a run, and does with it what is asked for but training.

        Returns its exports.

        Args:
          name: The folder of the run.
          tables: What the page shows of all runs.
        """
        [best] = (each.settings for each in self._runs if each.folder == name)
        folder = self._settings.output_dir
        keep_model(best.output_dir, folder)
        provenance.copy(best.output_dir, folder, flags_of(vars(self._settings)))
        logging.info("***** The best run, %s *****", name)
        changes: dict[str, Any] = {"do_train": False, "num_runs": 1, "early_stopping_patience": 0}
        if best.strategy == "multi_worker":
            changes["strategy"] = "one_device"
        settings = dataclasses.replace(best, output_dir=folder, **changes)
        gc.collect()
        return finetuning.run_once(settings, self._source, self._open_task, first=tables)[-1]


def _log_run(number: int, count: int, each: OneOfSeveral[Any]) -> None:
    point = f"{_point_text(each.point)}, " if each.point else ""
    logging.info("***** Run %d of %d, %sseed %d *****", number, count, point, each.settings.seed)


def may_keep_best(settings: Settings) -> bool:
    """Returns whether `--output_dir` has room for the best model, and warns where it has not.

    There is none beside other weights: those that somebody put there, or of a training there.
    """
    folder, overwrites = settings.output_dir, settings.overwrite_output_dir
    names = owned.read_names(folder)
    is_of_one = not overwrites and _is_of_one(folder)
    others = [
        name
        for name in checkpoint.weight_files(folder)
        if name not in names
        or is_of_one
        or (checkpoint.step_of(name) is not None and not overwrites)
    ]
    if others:
        logging.warning(
            "%r has weights of its own, %r: those of the best run stay in the folder of that run.",
            folder,
            others[0],
        )
    return not others


def _is_of_one(folder: str) -> bool:
    """Returns whether a training by itself has left what is in a folder, and not several runs."""
    flags = provenance.read(folder).get("ran_with", {}).get("flags")
    if flags is None:
        return False
    return flags.get("--num_runs", 1) == 1 and not any(
        isinstance(value, list) and len(value) > 1 for value in flags.values()
    )


def keep_model(source: str, folder: str) -> None:
    """Copies the model that a training has left from its folder to another; weights come last."""
    weights = os.path.join(folder, WEIGHTS)
    stored = ModelFolder(source).stored
    index = f"{weights}.index"
    # It holds checksums of all tensors.
    if not tf.io.gfile.exists(index) or read_file(index) != read_file(f"{stored.prefix}.index"):
        saving.remove(weights)
    for name in MODEL_FILES:
        path, text = os.path.join(folder, name), read_file(os.path.join(source, name))
        if not is_file(path) or read_file(path) != text:
            with replace_files([owned.claim(folder, name)]) as (file,):
                file.write(text)
    if not tf.io.gfile.exists(index):
        owned.claim_all(folder, [WEIGHTS + suffix for suffix in SUFFIXES])
        saving.save_tensors(weights, stored.read())


def _fill_scores(results: Sequence[dict[str, Any]]) -> None:
    """Gives runs that have diverged the names of the others' scores, none of them a number."""
    numbers = {
        name: math.nan
        for each in results
        for name, value in each["scores"].items()
        if isinstance(value, int | float)
    }
    for each in results:
        each["scores"] = each["scores"] or dict(numbers)


def _group(
    points: Sequence[Mapping[str, float]], results: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Returns the results at each point, summed up."""
    grouped: list[tuple[Mapping[str, float], list[Mapping[str, Any]]]] = []
    for point, result in zip(points, results, strict=True):
        if not grouped or grouped[-1][0] != point:
            grouped.append((point, []))
        grouped[-1][1].append(result)
    return [{"point": dict(point), **_average(runs)} for point, runs in grouped]


def _average(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    names = [name for name, value in runs[0]["scores"].items() if isinstance(value, int | float)]
    values = {name: [run["scores"][name] for run in runs] for name in names}
    several = {name: _deviation(each) for name, each in values.items() if len(each) > 1}
    return {
        "runs": [dict(run) for run in runs],
        "mean": {name: statistics.fmean(each) for name, each in values.items()},
        "standard_deviation": several,
    }


def _deviation(values: Sequence[float]) -> float:
    return statistics.stdev(values) if all(map(math.isfinite, values)) else math.nan


def _sum_up(points: Sequence[dict[str, Any]], metric: str) -> dict[str, Any]:
    """Returns what is told of all points: themselves, and the best one's best run.

    Best is the highest mean, and there the highest score; of equals, the first.
    """
    for each in points:
        scores = {run["seed"]: run["scores"] for run in each["runs"]}
        failed = [seed for seed, of in scores.items() if not _has_learned(of, metric)]
        each["failed"] = failed
    point = max(points, key=lambda each: _rank(each["mean"][metric]))
    best = max(point["runs"], key=lambda run: _rank(run["scores"][metric]))
    told = {name: best[name] for name in ("folder", "seed")}
    if not point["point"]:
        return {**{name: point[name] for name in point if name != "point"}, "best": told}
    return {"points": list(points), "best": {**point["point"], **told}}


def _has_learned(scores: Mapping[str, Any], metric: str) -> bool:
    """Returns whether a run is better than guessing, as far as there is a score of guessing."""
    return not (math.isnan(scores[metric]) or scores[metric] <= scores[_BASELINE])


def _rank(score: float) -> float:
    return -math.inf if math.isnan(score) else score


def _tell(settings: Settings, summary: Mapping[str, Any], points: Sequence[dict[str, Any]]) -> None:
    """Logs and keeps what came of all runs."""
    metric = summary["metric"]
    if points[0]["point"]:
        title, lines = f"{len(points)} points", _table(points, metric, summary["best"])
    else:
        title = f"{len(points[0]['runs'])} runs: mean and standard deviation"
        lines = _lines(points[0])
    logging.info("***** %s *****", title)
    for line in lines:
        logging.info("  %s", line)
    said = _say_best(points, metric, summary["best"])
    logging.info("%s", said)
    _warn_of_failed(points, metric)
    texts = {
        SUMMARY: json.dumps(finite(summary), indent=2, ensure_ascii=False),
        TABLE: "\n".join([title, "", *lines, "", said]),
    }
    for name, text in texts.items():
        write_text(owned.claim(settings.output_dir, name), f"{text}\n")


def _lines(point: Mapping[str, Any]) -> list[str]:
    """Returns what came of several runs, a line for each score."""
    lines = []
    for name, mean in point["mean"].items():
        each = ", ".join(f"{run['scores'][name]:.4f}" for run in point["runs"])
        lines.append(f"{name} = {mean:.4f} ± {point['standard_deviation'][name]:.4f}  ({each})")
    return lines


def _table(points: Sequence[Mapping[str, Any]], metric: str, best: Mapping[str, Any]) -> list[str]:
    """Returns a line for each point, below one of the columns' names; the best has a mark."""
    names = [metric, *(name for name in points[0]["mean"] if name == f"test_{metric}")]
    rows = [["", *points[0]["point"], *names, "learned nothing"]]
    for each in points:
        mark = "*" if each["point"].items() <= best.items() else ""
        failed = f"{len(each['failed'])} of {len(each['runs'])}" if each["failed"] else ""
        values = map(_value_text, each["point"].values())
        rows.append([mark, *values, *(_score_text(each, name) for name in names), failed])
    if not any(row[-1] for row in rows[1:]):
        rows = [row[:-1] for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


def _score_text(point: Mapping[str, Any], name: str) -> str:
    deviation = point["standard_deviation"].get(name)
    return f"{point['mean'][name]:.4f}" + ("" if deviation is None else f" ± {deviation:.4f}")


def _say_best(points: Sequence[Mapping[str, Any]], metric: str, best: Mapping[str, Any]) -> str:
    """Returns which run is the best, and by what."""
    means = [_rank(each["mean"][metric]) for each in points]
    chosen = points[means.index(max(means))]
    scores = [_rank(run["scores"][metric]) for run in chosen["runs"]]
    parts = []
    if len(points) > 1:
        parts.append(f"{_point_text(chosen['point'])}{_first_of(means)}")
    if len(scores) > 1:
        parts.append(f"seed {best['seed']}{_first_of(scores)}")
    return f"Best by {metric} on the dev set: {', '.join(parts)}, in {best['folder']}."


def _first_of(scores: Collection[float]) -> str:
    count = [*scores].count(max(scores))
    return f" (the first of {count} equals)" if count > 1 else ""


def _warn_of_failed(points: Sequence[Mapping[str, Any]], metric: str) -> None:
    failed = sorted({seed for each in points for seed in each["failed"]})
    if not failed:
        return
    runs = [run for each in points for run in each["runs"]]
    # Of a run that has diverged, there is none.
    baselines = list(filter(math.isfinite, (run["scores"][_BASELINE] for run in runs)))
    logging.warning(
        "%d of %d runs did not learn: %s is no better than guessing (%.4f) with the seeds %s. "
        "A smaller --learning_rate or more --num_train_epochs may help.",
        sum(len(each["failed"]) for each in points),
        len(runs),
        metric,
        statistics.fmean(baselines) if baselines else math.nan,
        failed,
    )

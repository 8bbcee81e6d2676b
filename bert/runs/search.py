"""A search: runs with several seeds, and at each point of a grid of options.

Fine-tuning on small sets is unstable: some seeds learn nothing (paper, section 4.1). The learning
rate, the batch size and the number of epochs that suit a task are tried (paper, appendix A.3).
"""

import dataclasses
import functools
import gc
import itertools
import json
import math
import operator
import os
import statistics
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import tensorflow as tf

from bert.files import owned
from bert.files.durable import write_text
from bert.files.outputs import make_folder
from bert.files.paths import finite, is_file, read_file
from bert.files.process import same_random_state
from bert.files.stored_models import SUFFIXES, TASK_FILE, WEIGHTS
from bert.log import logger
from bert.options import Option, OptionError
from bert.parts import GOOD, Parts
from bert.reports.run import make_runs_tables, mean_text, write_runs_report
from bert.runs import finetuning, finetuning_run, identity, plans
from bert.runs.diagnosis import has_one_answer
from bert.runs.finetuning import FineTuningPlan
from bert.runs.finetuning_run import TEMPERATURE
from bert.runs.identity import FolderState, check_apart
from bert.runs.plans import Plan, Result
from bert.runs.recipes import Search, Trial, value_text
from bert.training import loop, strategies
from bert.training.loop import NonFiniteLossError
from bert.training.options import RUNS, Output
from bert.weights import checkpoint, provenance, readers, saving
from bert.weights.folder import ModelFolder
from bert.weights.model_files import MODEL_FILES

# The results for people; `RUNS` has them for programs.
TABLE = "runs.txt"

_BASELINE = "baseline"


@dataclasses.dataclass(frozen=True, kw_only=True)
class SearchPlan(Plan):
    """The verified plans of the runs of a search.

    Attributes:
      recipe: The search, with the precision.
      plans: The plan of each run.
    """

    recipe: Search
    plans: Sequence[FineTuningPlan]

    @property
    def folders(self) -> list[str]:
        """The folders of all runs."""
        return [trial.recipe.output.output_dir for trial in self.recipe.trials]

    @property
    def obstacle(self) -> str:
        """Why no steps can be tried; "" where they can be."""
        return self.plans[0].obstacle

    def restore(self) -> int:
        """Returns the step of the weights that a run without training would use."""
        return self.plans[0].restore()

    def try_steps(self) -> str:
        """Takes a few steps; returns an estimate of the time of all runs that have not ended."""
        left = [plan for plan in self.plans if not plan.has_run()] or self.plans
        sizes = [plan.recipe.schedule.train_batch_size for plan in left]
        steps = [plan.training.last_step for plan in left if plan.training]
        num_examples = sum(size * count for size, count in zip(sizes, steps, strict=True))
        return left[0].try_steps(num_examples / sizes[0])


def plan(
    recipe: Search, limit: int | None = None, strategy: tf.distribute.Strategy | None = None
) -> SearchPlan:
    """Returns the plan of a search; as `bert.runs.plan.plan`."""
    shared, output = recipe.shared, recipe.shared.output
    parts = Parts(is_muted=limit is not None)
    text = f"{len(recipe.trials)} in all; then the best is used"
    parts("runs", may_keep_best, output, shows=lambda _: text)
    if shared.steps.do_train:
        # The plan of each run checks its own folder alone.
        parts("paths", check_apart, output.output_dir, shared.read_paths(), shows=lambda _: "")
    plans = finetuning.plan(recipe, limit, strategy, parts)
    parts.add(GOOD, "ended runs", f"{sum(each.has_run() for each in plans)} of {len(plans)}")
    compute = plans[0].recipe.compute
    planned = zip(recipe.trials, plans, strict=True)
    return SearchPlan(
        recipe=dataclasses.replace(
            recipe,
            shared=dataclasses.replace(shared, compute=compute),
            trials=tuple(Trial(trial.point, plan.recipe) for trial, plan in planned),
        ),
        lines=tuple(parts.lines),
        strategy=plans[0].strategy,
        limit=limit,
        state=FolderState.of(output.output_dir),
        has_memory=plans[0].has_memory,
        training=plans[0].training,
        plans=plans,
    )


def run(plan: SearchPlan, observers: Sequence[loop.Observer] = ()) -> Result:
    """Runs a search, one run after another; as `bert.runs.run.run`.

    The runs have folders of their own. The model of the best run is copied to the output folder
    itself, where it is evaluated, predicts and is exported again.

    Returns:
      As scores, the contents of `runs.json`: for each point of a grid, its `point`; its `runs`,
      each with seed, folder and scores; `mean` and `standard_deviation` (of the sample, where there
      are several) of each score; and `failed`, the seeds whose runs are no better than the
      baseline. Beside these, `metric`, the name of the score that counts, and the `folder` and
      `seed` of the `best` run. Where there is no grid, there is one point, and its values are
      beside `metric` itself.
    """
    search, folder = plan.recipe, plan.recipe.shared.output.output_dir
    is_chief = strategies.is_chief(plan.strategy)
    metric, step = plan.plans[0].task.metric, 0
    results: list[dict[str, Any]] = []
    refusals: dict[str, OptionError | None] = {}
    make_folder(folder)
    with plan.locked(folder):
        keeps_best, before = may_keep_best(search.shared.output), _read_model(folder)
        is_outdated = keeps_best and not all(each.has_run() for each in plan.plans)
        for number, (trial, planned) in enumerate(
            zip(search.trials, plan.plans, strict=True), start=1
        ):
            if is_chief:
                owned.claim_folder(folder, trial.folder)
            point = f"{_point_text(trial.point)}, " if trial.point else ""
            seed, count = trial.recipe.seed, len(search.trials)
            logger.info("***** Run %d of %d, %sseed %d *****", number, count, point, seed)
            # Frees the model of the last run; Keras' own way resets the caller's random numbers.
            gc.collect()
            scores: Mapping[str, Any] = {}
            try:
                with same_random_state(seed):
                    result, refusals[trial.folder] = finetuning_run.run(
                        planned.renewed(),
                        observers,
                        clear=functools.partial(
                            _remove_replaced,
                            search.shared.output,
                            plan.folders[:number],
                            is_outdated,
                        ),
                    )
                scores, step = result.scores, result.step
            except NonFiniteLossError as error:
                has_none = number == count and not any(run["scores"] for run in results)
                # Other workers may be at another step.
                if has_none or trial.recipe.compute.strategy == "multi_worker":
                    raise
                logger.warning("This run has no score, and the others go on without it: %s", error)
            results.append({"seed": seed, "folder": trial.folder, "scores": scores})
        _fill_scores(results)
        points = _group([trial.point for trial in search.trials], results, metric)
        summary, sentence = _sum_up(points, metric)
        if is_chief:
            best = summary["best"]
            if keeps_best:
                source = os.path.join(folder, best["folder"])
                flags = {**search.shared.options(), "num_runs": search.num_runs}
                keep_model(source, folder)
                provenance.copy(source, folder, identity.flags_of(flags))
                logger.info("***** The best run, %s *****", best["folder"])
                tables = make_runs_tables(metric, points, best)
                recipe = search.use_of(best["folder"])
                gc.collect()
                with same_random_state(recipe.seed):
                    [planned] = finetuning.plan(recipe)
                    result, refusals[best["folder"]] = finetuning_run.run(
                        planned, first=tables, is_other=_is_other(before, _read_model(folder))
                    )
                step = result.step
            _write_summary(folder, summary, points, sentence)
            if not keeps_best:
                write_runs_report(folder, metric, points, best)
            # A refused export of another run does not end the search.
            if refusal := refusals[best["folder"]]:
                raise refusal
    return Result(summary, step, plans.list_files(folder))


def _remove_replaced(output: Output, begun: Sequence[str], is_outdated: bool) -> None:
    """Removes what the runs replace, before anything is trained.

    Args:
      output: The output of the search.
      begun: The folders of the runs that have begun.
      is_outdated: Whether the best model there is not the best of these runs.
    """
    if output.overwrite_output_dir:
        # The lists of their files stay, so that a resumed search finds no older run.
        lists = [f"{os.path.basename(each)}/{owned.LIST_FILE}" for each in begun]
        owned.clear(output.output_dir, but=[*MODEL_FILES, *lists])
    elif is_outdated:
        # A prediction must not take the best model of other runs for the best of these.
        saving.remove(os.path.join(output.output_dir, WEIGHTS))


def _point_text(point: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value_text(value)}" for name, value in point.items())


def may_keep_best(output: Output) -> bool:
    """Returns whether the best model may be copied to the output folder; warns where it may not.

    It may not where the folder has other weights: of a single training run, or not of any run.
    """
    folder, overwrites = output.output_dir, output.overwrite_output_dir
    names = owned.read_names(folder)
    is_of_one = not overwrites and _is_of_one(folder)
    others = [
        name
        for name in readers.weight_files(folder)
        if name not in names
        or is_of_one
        or (checkpoint.step_of(name) is not None and not overwrites)
    ]
    if others:
        logger.warning(
            "%r has weights of its own, %r: those of the best run stay in the folder of that run.",
            folder,
            others[0],
        )
    return not others


def _is_of_one(folder: str) -> bool:
    """Returns whether the files in a folder are of a single training run, not of a search."""
    flags = provenance.read(folder).get("ran_with", {}).get("flags")
    if flags is None:
        return False
    return flags.get("--num_runs", 1) == 1 and not any(
        isinstance(value, list) and len(value) > 1 for value in flags.values()
    )


def keep_model(source: str, folder: str) -> None:
    """Copies the model of a training run from its folder to another; the weights come last."""
    weights = os.path.join(folder, WEIGHTS)
    stored = ModelFolder(source).stored
    index = f"{weights}.index"
    names = list(MODEL_FILES)
    # The index has checksums of all tensors.
    if not tf.io.gfile.exists(index) or read_file(index) != read_file(f"{stored.prefix}.index"):
        saving.remove(weights)
    elif TEMPERATURE in ModelFolder(folder).task and TEMPERATURE not in ModelFolder(source).task:
        # The model was calibrated since.
        names.remove(TASK_FILE)
    ModelFolder(folder).write({name: read_file(os.path.join(source, name)) for name in names})
    if not tf.io.gfile.exists(index):
        owned.claim_all(folder, [WEIGHTS + suffix for suffix in SUFFIXES])
        saving.save_tensors(weights, stored.read())


def _read_model(folder: str) -> tuple[Any, bytes | None, bytes | None]:
    """Returns what tells the model in a folder from another: identity, checksums, `task.json`."""
    paths = (os.path.join(folder, name) for name in (f"{WEIGHTS}.index", TASK_FILE))
    index, task = (read_file(path) if is_file(path) else None for path in paths)
    return provenance.read(folder).get("made_of"), index, task


def _is_other(before: tuple[Any, ...], after: tuple[Any, ...]) -> bool:
    """Returns whether a model is another than before, from the results of `_read_model`."""
    # A search that was killed has removed the weights; its `run.json` still says which they were.
    return before[::2] != after[::2] or before[1] not in (None, after[1])


def _fill_scores(results: Sequence[dict[str, Any]]) -> None:
    """Sets all scores of runs that have diverged to NaN."""
    numbers = {
        name: math.nan
        for run in results
        for name, value in run["scores"].items()
        if isinstance(value, int | float)
    }
    for run in results:
        run["scores"] = run["scores"] or dict(numbers)


def _group(
    points: Sequence[Mapping[str, float]], results: Sequence[Mapping[str, Any]], metric: str
) -> list[dict[str, Any]]:
    """Returns what `_sum_up_point` says of each point."""
    pairs = zip(points, results, strict=True)
    return [
        _sum_up_point(point, [result for _, result in group], metric)
        for point, group in itertools.groupby(pairs, key=operator.itemgetter(0))
    ]


def _sum_up_point(
    point: Mapping[str, float], runs: Sequence[Mapping[str, Any]], metric: str
) -> dict[str, Any]:
    """Returns the runs of a point, with their mean scores and the seeds that learned nothing."""
    names = [name for name, value in runs[0]["scores"].items() if isinstance(value, int | float)]
    values = {name: [run["scores"][name] for run in runs] for name in names}
    several = {name: _deviation(scores) for name, scores in values.items() if len(scores) > 1}
    return {
        "point": dict(point),
        "runs": [dict(run) for run in runs],
        "mean": {name: statistics.fmean(scores) for name, scores in values.items()},
        "standard_deviation": several,
        # NaN, the score of a run that has diverged, is not above a baseline, either.
        "failed": [
            run["seed"]
            for run in runs
            if not run["scores"][metric] > run["scores"][_BASELINE]
            and not has_one_answer(run["scores"])
        ],
    }


def _deviation(values: Sequence[float]) -> float:
    return statistics.stdev(values) if all(map(math.isfinite, values)) else math.nan


def _sum_up(points: Sequence[dict[str, Any]], metric: str) -> tuple[dict[str, Any], str]:
    """Returns the results of all points with the best run, and a sentence on it.

    The best point has the highest mean, its best run the highest score, the first of equals. Where
    a run of each point has diverged, the point of the highest score is the best.
    """
    ranks = [_rank_point(point, metric) for point in points]
    point = points[ranks.index(max(ranks))]
    scores = [_rank(run["scores"][metric]) for run in point["runs"]]
    run = point["runs"][scores.index(max(scores))]
    best = {**point["point"], "folder": run["folder"], "seed": run["seed"]}
    parts = []
    if len(points) > 1:
        parts.append(f"{_point_text(point['point'])}{_first_of(ranks)}")
    if len(scores) > 1:
        parts.append(f"seed {run['seed']}{_first_of(scores)}")
    sentence = f"Best by {metric} on the dev set: {', '.join(parts)}, in {run['folder']}."
    results: dict[str, Any] = {"points": list(points)}
    if not point["point"]:
        results = {name: value for name, value in point.items() if name != "point"}
    return {"metric": metric, **results, "best": best}, sentence


def _first_of(scores: Collection[Any]) -> str:
    count = [*scores].count(max(scores))
    return f" (the first of {count} equals)" if count > 1 else ""


def _rank(score: float) -> float:
    return -math.inf if math.isnan(score) else score


def _rank_point(point: Mapping[str, Any], metric: str) -> tuple[float, float]:
    """Returns the mean, and where a run has diverged the highest score, which come after means."""
    mean = point["mean"][metric]
    if not math.isnan(mean):
        return mean, 0.0
    return -math.inf, max(_rank(run["scores"][metric]) for run in point["runs"])


def _write_summary(
    folder: str, summary: Mapping[str, Any], points: Sequence[dict[str, Any]], sentence: str
) -> None:
    """Logs and writes the results of all runs."""
    metric = summary["metric"]
    if points[0]["point"]:
        title, lines = f"{len(points)} points", _table(points, metric, summary["best"])
    else:
        title = f"{len(points[0]['runs'])} runs: mean and standard deviation"
        lines = _lines(points[0])
    logger.info("***** %s *****", title)
    for line in lines:
        logger.info("  %s", line)
    logger.info("%s", sentence)
    _warn_of_failed(points, metric)
    texts = {
        RUNS: json.dumps(finite(summary), indent=2, ensure_ascii=False),
        TABLE: "\n".join([title, "", *lines, "", sentence]),
    }
    for name, text in texts.items():
        write_text(owned.claim(folder, name), f"{text}\n")


def _lines(point: Mapping[str, Any]) -> list[str]:
    """Returns a line for each score of several runs."""
    lines = []
    for name, mean in point["mean"].items():
        scores = ", ".join(f"{run['scores'][name]:.4f}" for run in point["runs"])
        lines.append(f"{name} = {mean:.4f} ± {point['standard_deviation'][name]:.4f}  ({scores})")
    return lines


def _table(points: Sequence[Mapping[str, Any]], metric: str, best: Mapping[str, Any]) -> list[str]:
    """Returns a header and a line for each point; the best point has a mark."""
    names = [metric, *(name for name in points[0]["mean"] if name == f"test_{metric}")]
    rows = [["", *points[0]["point"], *names, "learned nothing"]]
    for point in points:
        mark = "*" if point["point"].items() <= best.items() else ""
        failed = f"{len(point['failed'])} of {len(point['runs'])}" if point["failed"] else ""
        values = map(value_text, point["point"].values())
        rows.append([mark, *values, *(mean_text(point, name) for name in names), failed])
    if not any(row[-1] for row in rows[1:]):
        rows = [row[:-1] for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


def _warn_of_failed(points: Sequence[Mapping[str, Any]], metric: str) -> None:
    failed = sorted({seed for point in points for seed in point["failed"]})
    if not failed:
        return
    runs = [run for point in points for run in point["runs"]]
    # A run that has diverged has no baseline.
    baselines = list(filter(math.isfinite, (run["scores"][_BASELINE] for run in runs)))
    logger.warning(
        "%d of %d runs did not learn: %s is no better than guessing (%.4f) with the seeds %s. "
        "A smaller %s or more %s may help.",
        sum(len(point["failed"]) for point in points),
        len(runs),
        metric,
        statistics.fmean(baselines) if baselines else math.nan,
        failed,
        Option("learning_rate"),
        Option("num_train_epochs"),
    )

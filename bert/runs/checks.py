"""What `--check` shows before a training: whether its run would begin, and how long it would take.

All is done by what the run calls, but that nothing is written but examples for a few steps, to a
temporary folder.
"""

import dataclasses
import os
import statistics
import tempfile
import time
from collections.abc import Sequence
from typing import Any

import tensorflow as tf
from absl import logging

from bert.commands.checks import FAILED, UNCHECKED, Checks, Messages, check_model, check_vocabulary
from bert.commands.settings import TrainingSettings
from bert.files import owned
from bert.files.progress import clock as time_of
from bert.runs import finetuning, fit, tuning
from bert.runs.finetuning import OpenTask, Settings
from bert.runs.repeats import OneOfSeveral, choose_precision, list_runs, may_keep_best
from bert.runs.resumption import Training
from bert.runs.training import TrainingRun, log_disk, log_memory, open_strategy
from bert.tasks.task import ExampleFile, Inputs, Part, Task
from bert.training.batches import Batches
from bert.training.clock import is_last
from bert.training.cluster import find_cluster
from bert.training.options import AUTO
from bert.training.validation import check_batch_size, check_length
from bert.weights.folder import ModelFolder
from bert.weights.variables import count_parameters
from modeling import BertConfig

# Inputs are made of so many examples of a set; the run makes them of all.
_MOST_EXAMPLES = 20_000
# Steps to try, the first of which builds the graph, and the seconds after which no other is tried.
_STEPS = 6
_SECONDS = 8.0
# Without a GPU, a step is tried on as much of a batch as takes about so many operations.
_OPERATIONS = 4e11


@dataclasses.dataclass(frozen=True)
class _Made:
    """A part of the data, and inputs of as many of its examples as are looked at."""

    inputs: Inputs
    num_examples: int

    @property
    def share(self) -> float:
        return len(self.inputs.examples) / self.num_examples


def check_fine_tuning(
    checks: Checks, settings: Settings, open_task: OpenTask[Any], *, takes_steps: bool = True
) -> None:
    """Checks what `finetuning.run` needs.

    Args:
      checks: Show what is found.
      settings: Those of the script.
      open_task: As `finetuning.run` takes it; `FAILED` where it cannot be called.
      takes_steps: Whether a few steps are tried, to tell how long the training takes.
    """
    flags = checks("flags", finetuning.check_verbs, settings, tells=lambda _: verbs_text(settings))
    strategy, num_replicas = check_devices(checks, settings)
    source, config = check_model(checks, settings)
    tokenizer = check_vocabulary(checks, settings, source, config)
    folders = [each.settings.output_dir for each in list_runs(settings)]
    settings = check_precision(checks, settings, folders)
    runs = list_runs(settings)
    if len(runs) > 1:
        runs = _check_runs(checks, settings, runs)
    _check_fit(checks, runs, config, num_replicas)
    # Of several, the first that is not trained yet; the others are as it is.
    asked, settings = settings, runs[0].settings
    told = "of the shape that the configuration asks for" if settings.init_checkpoint else ""
    checks("weights", fit.check_weights, settings, source, config, tells=lambda _: told)
    task = checks("task", _open, open_task, asked, config, tokenizer, tells=_describe_task)
    made = [
        checks(f"{split} set", _make_inputs, task, split, tells=_describe_made)
        for split in finetuning.wanted_splits(settings)
    ]
    check_folder(checks, settings, finetuning.check_output)
    told = "of the same task, if there is any"
    checks("model there", _check_same, runs, source, task, tells=lambda _: told)
    if not settings.do_train:
        checks("model", _load, settings, source, task, strategy, tells=lambda step: f"step {step}")
        return
    parts = FAILED if FAILED in made else [each for parts in made for each in parts]
    plans = checks("steps", _plan_all, runs, source, parts, flags, tells=_describe_plans)
    rows = 1 if parts is FAILED else _count_rows(parts)
    largest = max((each.settings for each in runs), key=lambda each: each.train_batch_size)
    fits = check_needs(checks, largest, config, num_replicas, plans, rows)
    if not takes_steps:
        checks.add(UNCHECKED, "time", "not measured, for features are computed first")
    elif fits:
        arguments = (runs, task, plans, parts, strategy, config)
        checks("time", _try, *arguments, tells=lambda text: text)


def _check_runs(
    checks: Checks, settings: Settings, runs: Sequence[OneOfSeveral[Any]]
) -> list[OneOfSeveral[Any]]:
    """Shows what several runs there will be; returns those that are left, or all if none is."""
    left = [each for each in runs if not each.has_ended]
    text = f"{len(runs)} in all, {len(runs) - len(left)} of them ended; then the best is used"
    checks("runs", may_keep_best, settings, tells=lambda _: text)
    return left or [*runs]


def check_precision(checks: Checks, settings: Settings, folders: Sequence[str] = ()) -> Settings:
    """Shows what `--precision=auto` stands for, and returns the settings with that."""
    if settings.precision != AUTO:
        return settings
    chosen = checks("precision", choose_precision, settings, folders)
    chosen = "float32" if chosen is FAILED else chosen
    return dataclasses.replace(settings, precision=chosen)


def check_devices(checks: Checks, settings: TrainingSettings) -> tuple[Any, Any]:
    """Shows the devices; returns their strategy and their number."""
    strategy = checks("devices", _open_strategy, settings, tells=_describe_devices)
    if strategy is FAILED:
        return FAILED, FAILED
    return strategy, strategy.num_replicas_in_sync


def _open_strategy(settings: TrainingSettings) -> tf.distribute.Strategy:
    if settings.strategy != "multi_worker" or settings.use_tpu:
        return open_strategy(settings)
    if cluster := find_cluster(os.environ):
        logging.warning(
            "Of %d workers, only %s is checked, as if it were alone.",
            len(cluster.workers),
            cluster.name(cluster.index),
        )
    return tf.distribute.get_strategy()


def _describe_devices(strategy: tf.distribute.Strategy) -> str:
    gpus = len(tf.config.list_physical_devices("GPU"))
    used = strategy.num_replicas_in_sync
    return f"{used} used, of {gpus} GPUs and {os.cpu_count()} CPU cores"


def verbs_text(settings: TrainingSettings) -> str:
    """Returns what is to be done."""
    verbs = ("do_train", "do_eval", "do_predict", "do_export")
    return " ".join(f"--{verb}" for verb in verbs if getattr(settings, verb, False))


def _check_fit(
    checks: Checks, runs: Sequence[OneOfSeveral[Any]], config: Any, num_replicas: Any
) -> None:
    settings = runs[0].settings
    length, precision = settings.max_seq_length, settings.precision
    checks("lengths", check_length, length, config, tells=lambda _: f"up to {length} tokens")
    by_size = {each.settings.train_batch_size: each.settings for each in runs}
    for each in by_size.values():
        checks(
            "batch",
            _check_batch,
            each,
            num_replicas,
            tells=lambda size: f"{size} examples, in {precision}",
        )
    if settings.freeze_layers is not None:
        checks("frozen layers", fit.check_frozen_layers, settings, config)


def _check_batch(settings: Settings, num_replicas: int) -> int:
    if settings.do_train:
        parts = settings.gradient_accumulation_steps
        check_batch_size(settings.train_batch_size, parts, num_replicas)
    return settings.train_batch_size


def _open(open_task: OpenTask[Any], *arguments: Any) -> Task:
    return open_task(*arguments)


def _describe_task(task: Task) -> str:
    labels = task.stored().get("task", {}).get("labels") or ()
    return task.kind.replace("_", " ") + (f", labels: {', '.join(labels)}" if labels else "")


def _make_inputs(task: Task, split: str) -> list[_Made]:
    return [
        _Made(task.make_inputs(part, examples[:_MOST_EXAMPLES]), len(examples))
        for part, examples in task.read([split]).items()
    ]


def _describe_made(parts: Sequence[_Made]) -> str:
    return "; ".join(_describe_part(each) for each in parts)


def _describe_part(made: _Made) -> str:
    part = made.inputs.part
    text = f"{made.num_examples:,} examples{part.suffix.replace('_', ' ')}"
    return text if made.share == 1 else f"{text}, of which {_MOST_EXAMPLES:,} are looked at"


def check_folder(checks: Checks, settings: TrainingSettings, opens: Any) -> None:
    """Shows the output folder and its lock.

    Args:
      checks: Show what is found.
      settings: Those of the script.
      opens: Checks the folder.
    """
    folder = settings.output_dir
    there = "is there" if tf.io.gfile.isdir(folder) else "is new"
    checks("output folder", opens, settings, tells=lambda _: f"{folder!r} {there}")
    if settings.do_train:
        checks("lock", owned.check_lock, folder, tells=lambda _: "nothing else trains there")


def _check_same(runs: Sequence[OneOfSeveral[Any]], source: ModelFolder, task: Task) -> None:
    for each in runs:
        finetuning.check_same(each.settings, source, finetuning.fixed(each.settings, task))


def _load(
    settings: Settings, source: ModelFolder, task: Task, strategy: tf.distribute.Strategy
) -> int:
    with strategy.scope():
        return tuning.load(settings, source, task.make_model(settings.precision))


def _plan(settings: Settings, source: ModelFolder, parts: Sequence[_Made]) -> Training:
    train = _training_part(parts)
    if all(each.share == 1 for each in parts):
        return finetuning.plan_of(settings, source, [each.inputs for each in parts])
    count = int(finetuning.count_examples([train.inputs]) / train.share)
    steps = tuning.count_steps(settings, count)
    tuning.warn_of_patience(settings, steps, count)
    # What is not read as a whole is not compared.
    return finetuning.plan_steps(settings, source, steps, {})


def _plan_all(
    runs: Sequence[OneOfSeveral[Any]],
    source: ModelFolder,
    parts: Sequence[_Made],
    flags: None = None,
) -> list[Training]:
    del flags  # They must be right.
    return [_plan(each.settings, source, parts) for each in runs]


def _describe_plans(plans: Sequence[Training]) -> str:
    steps = [plan.last_step for plan in plans]
    if len(steps) == 1:
        return describe_plan(plans[0])
    each = f"{min(steps):,}" + (f" to {max(steps):,}" if len({*steps}) > 1 else "")
    return f"{sum(steps):,} in all, {each} a run"


def _training_part(parts: Sequence[_Made]) -> _Made:
    [train] = (each for each in parts if each.inputs.part == Part("train"))
    return train


def describe_plan(plan: Training) -> str:
    """Returns what a plan comes to."""
    steps = plan.num_train_steps
    return "as many as there is time for" if steps is None else f"{steps:,} in all"


def _count_rows(parts: Sequence[_Made]) -> int:
    ids = _training_part(parts).inputs.arrays["input_ids"]
    return ids.shape[1] if ids.ndim > 2 else 1


def check_needs(
    checks: Checks, settings: Any, config: Any, num_replicas: Any, plans: Any, rows: int = 1
) -> bool:
    """Shows memory and disk; returns whether steps may be tried, which may also be refused."""
    fits = checks("memory", log_memory, settings, config, num_replicas, rows)
    checks(
        "disk",
        lambda config, plans: log_disk(settings, config, *(each.num_train_steps for each in plans)),
        config,
        plans,
    )
    if fits is False:
        checks.add(UNCHECKED, "time", "not measured, for there is too little memory")
    return fits is not False


def _try(
    runs: Sequence[OneOfSeveral[Any]],
    task: Task,
    plans: Sequence[Training],
    parts: Sequence[_Made],
    strategy: tf.distribute.Strategy,
    config: BertConfig,
) -> str:
    """Begins the first training and takes a few steps; returns how long it, and all, will take."""
    settings, plan = runs[0].settings, plans[0]
    if plan.has_ended:
        return "the training there has ended: nothing to train"
    inputs = _training_part(parts).inputs
    size = rows_to_try(settings, config, strategy.num_replicas_in_sync, _count_rows(parts))
    few = _few(task, inputs, _STEPS * size)
    with tempfile.TemporaryDirectory(prefix="bert-check-") as folder, strategy.scope():
        file = ExampleFile(
            os.path.join(folder, "train.tf_record"),
            size,
            settings.seed,
            trim=not settings.pad_to_max_length,
        )
        model = task.make_model(settings.precision)
        batches = task.open_inputs(few, file).batches
        assert batches is not None
        run = tuning.begin(settings, plan, model, task.objective(inputs), batches)
        return time_text(settings, run, plan, batches, _work(runs, plans))


def _work(runs: Sequence[OneOfSeveral[Any]], plans: Sequence[Training]) -> float:
    """Returns how many steps of the first of several runs all come to; 0 where there is one."""
    if len(runs) == 1:
        return 0.0
    sizes = [each.settings.train_batch_size for each in runs]
    examples = [plan.last_step * size for plan, size in zip(plans, sizes, strict=True)]
    return sum(examples) / sizes[0]


def _few(task: Task, inputs: Inputs, count: int) -> Inputs:
    # What is wrong with them has been told.
    with Messages().kept():
        return task.make_inputs(inputs.part, inputs.examples[:count])


def rows_to_try(settings: Any, config: BertConfig, num_replicas: int, rows: int = 1) -> int:
    """Returns how many examples of a batch a step is tried on, so that it takes some seconds."""
    size: int = settings.train_batch_size
    if settings.use_tpu or tf.config.list_physical_devices("GPU"):
        return size
    # Two for a multiplication and an addition, three times: forward, and twice as much backward.
    each = 6 * count_parameters(config) * settings.max_seq_length * rows
    parts = num_replicas * settings.gradient_accumulation_steps
    return min(size, max(int(_OPERATIONS / each) // parts, 1) * parts)


def time_text(
    settings: Any, run: TrainingRun, plan: Training, batches: Batches, all_steps: float = 0.0
) -> str:
    """Takes a few steps, of which nothing is kept; returns how long the training may take.

    Args:
      settings: Those of the script.
      run: The training before its first step.
      plan: Its plan.
      batches: Those to try.
      all_steps: That several trainings come to.
    """
    clock = run.trainer.clock
    if is_last(run.first_step, plan.num_train_steps, clock):
        return f"step {run.first_step:,} is reached already: nothing to train"
    seconds: list[float] = []
    for batch in batches.iterate(0, _STEPS, run.trainer.strategy):
        start = time.monotonic()
        run.trainer.train_step(batch)
        seconds.append(time.monotonic() - start)
        if len(seconds) > 1 and sum(seconds) > _SECONDS:
            break
    scale = settings.train_batch_size / batches.batch_size
    each = scale * statistics.median(seconds[1:])
    count = len(seconds) - 1
    steps = "1 step" if count == 1 else f"{count} steps"
    part = f" on {batches.batch_size} of {settings.train_batch_size} examples" if scale > 1 else ""
    total = f"about {time_of(each * all_steps)} for all runs, " if all_steps else ""
    if clock:
        left = clock.budget - clock.spent
        will_be = f"{time_of(left)} from step {run.first_step:,} on, about {left / each:,.0f} steps"
    else:
        left = each * (plan.last_step - run.first_step)
        will_be = f"about {time_of(left)} from step {run.first_step:,} on"
    return f"{total}{will_be}, evaluations apart: {each:.3g} s a step, estimated by {steps}{part}"

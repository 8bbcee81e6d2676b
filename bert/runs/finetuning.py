"""Fine-tuning: planned, and tried for a few steps (paper, section 4).

The output folder holds all that a later prediction needs: `task.json`, `vocab.txt`,
`bert_config.json` and the weights, `bert_model.ckpt`. While training, it also holds checkpoints to
resume from; `best/` keeps the weights of the best evaluation.
"""

import contextlib
import dataclasses
import functools
import os
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from bert.export.formats import check_exports, read_exports
from bert.files import fingerprints
from bert.files.outputs import check_saved_model
from bert.options import MessageError, Option, joined
from bert.parts import FAILED, UNCHECKED, Parts, recorded_messages
from bert.runs import identity, resources, trial, tuning
from bert.runs.opening import fixed_options, open_task
from bert.runs.plans import Plan
from bert.runs.recipes import EvaluatedSteps, FineTuning, Steps
from bert.runs.resumption import Training, find_weights, plan_training
from bert.runs.state import FolderState
from bert.runs.training import TrainingRun
from bert.tasks.options import Prediction, Teacher
from bert.tasks.squad.options import SquadData
from bert.tasks.task import Arrays, ExampleFile, Inputs, Part, Task
from bert.training import strategies
from bert.training.batches import Batches
from bert.training.objective import Objective
from bert.training.options import Output
from bert.training.validation import (
    check_batch_size,
    check_frozen_layers,
    check_length,
    check_precision,
)
from bert.weights import checkpoint
from bert.weights.checkpoint import Stored, describe_weights
from bert.weights.folder import ModelFolder

# How the files of a split's examples are called.
FILE_NAMES = {"train": "train", "dev": "eval", "test": "predict"}


@dataclasses.dataclass(frozen=True)
class Made:
    """The inputs of a part of the data, or of its first examples.

    Attributes:
      inputs: The inputs.
      num_examples: How many examples there are in all.
    """

    inputs: Inputs
    num_examples: int

    @property
    def share(self) -> float:
        """The share of the examples that the inputs are of."""
        return len(self.inputs.examples) / self.num_examples


@dataclasses.dataclass(frozen=True, kw_only=True)
class FineTuningPlan(Plan):
    """A fine-tuning run whose options, data and model fit.

    Attributes:
      recipe: With the precision.
      source: The folder of the model to start from.
      task: What is learned.
      made: The inputs of each part of the data.
      training: How far training goes, and from where; None for none.
    """

    recipe: FineTuning
    source: ModelFolder
    task: Task
    made: Sequence[Made]
    training: Training | None


def plan(
    recipe: FineTuning, limit: int | None = None, strategy: tf.distribute.Strategy | None = None
) -> FineTuningPlan:
    """Returns the plan of a fine-tuning run; as `bert.runs.plan.plan`."""
    parts = Parts(is_muted=limit is not None)
    [planned] = plan_all(parts, [recipe], recipe, limit, strategy)
    return planned


def plan_all(
    parts: Parts,
    recipes: Sequence[FineTuning],
    recipe: FineTuning,
    limit: int | None = None,
    strategy: tf.distribute.Strategy | None = None,
    *,
    num_runs: int = 1,
    scored: Sequence[str] = (),
) -> list[FineTuningPlan]:
    """Returns the plans of runs whose model, task and data are the same.

    Args:
      parts: Records what is found.
      recipes: The runs.
      recipe: What they have in common, with the folder that holds all of them.
      limit: As `plan`.
      strategy: As `plan`.
      num_runs: How many runs there are, of which some may have ended.
      scored: The options in use that need scores.
    """
    first, steps, output = recipes[0], recipe.steps, recipe.output
    if isinstance(recipe.data, SquadData):
        check = recipe.check_questions
        files = parts("files", check, shows=lambda _: "can be read")
    else:
        files = None
    flags = parts("flags", check_steps, recipe, scored, shows=lambda _: steps.describe())
    strategy, num_replicas = resources.open_devices(
        parts, recipe.compute, recipe.options(), strategy, is_trial=limit is not None
    )
    source, config = resources.open_model(
        parts, recipe.model, output.output_dir, fetches=limit is None
    )
    tokenizer = resources.open_vocabulary(parts, recipe.model, source, config)
    if limit is None:
        resources.log_found(recipe.model, source)
    recipes = _with_precision(parts, recipes, recipe, config, strategy)
    first = recipes[0]
    _check_fit(parts, recipes, config, num_replicas)
    told = resources.describe_init(recipe.model.init_checkpoint)
    parts(
        "weights",
        functools.partial(
            resources.check_weights,
            is_given=bool(recipe.model.init_checkpoint),
            is_trained=steps.do_train,
        ),
        *(source, config, first.output.output_dir),
        shows=lambda _: told,
    )
    if limit is None:
        # What reads the data comes last.
        parts.check()
    task = parts(
        "task",
        open_task,
        first,
        config,
        tokenizer,
        scored,
        limit is None,
        files,
        shows=_describe_task,
    )
    made = _make_all_inputs(parts, task, steps, strategy, limit)
    _check_folder(parts, recipes, recipe, source, task)
    trainings: Any = [None] * len(recipes)
    has_memory = True
    if steps.do_train:
        trainings = parts(
            "steps",
            # The flags must be right.
            lambda source, made, _: [_plan_training(each, source, made) for each in recipes],
            *(source, made, flags),
            shows=_describe_trainings,
        )
        has_memory = _add_needs(parts, recipes, config, num_replicas, made, trainings)
    parts.check(later="time" if steps.do_train else "model")
    if limit is None:
        shared = _shared(first, source, made, trainings[0])
        strategies.agree(strategy, shared)
    return [
        FineTuningPlan(
            recipe=each,
            lines=tuple(parts.lines),
            strategy=strategy,
            limit=limit,
            state=FolderState.of(each.output.output_dir),
            has_memory=has_memory,
            source=source,
            task=task,
            made=made,
            training=training,
        )
        for each, training in zip(recipes, trainings, strict=True)
    ]


def check_steps(recipe: FineTuning, scored: Sequence[str]) -> None:
    """Checks that something is to be done, and that what goes by scores has some."""
    steps = recipe.steps
    names = [
        name for name in ("do_train", "do_eval", "do_predict", "do_export") if hasattr(steps, name)
    ]
    if not any(getattr(steps, name) for name in names):
        *others, last = map(Option, names)
        raise MessageError("At least one of %s and %s must be given.", joined(others), last)
    check_exports(recipe.export, is_exported=steps.do_export)
    if steps.do_train and steps.scores:
        return
    patience = ["early_stopping_patience"] * (recipe.evaluation.early_stopping_patience > 0)
    if wrong := [*patience, *scored]:
        is_grid = wrong[0] not in ("early_stopping_patience", "num_runs")
        scoring = "do_eval" if isinstance(steps, EvaluatedSteps) else "do_predict"
        raise MessageError(
            "%s%s needs %s and %s.",
            *(Option(wrong[0]), " of several values" * is_grid),
            *(Option("do_train"), Option(scoring)),
        )


def _with_precision(
    parts: Parts, recipes: Sequence[FineTuning], recipe: FineTuning, config: Any, strategy: Any
) -> list[FineTuning]:
    """Returns the recipes with the precision to train in."""
    begins_anew = recipe.steps.do_train and recipe.output.overwrite_output_dir
    folders = [recipe.output.output_dir, *(each.output.output_dir for each in recipes)]
    given = recipe.compute.precision
    folders = [] if begins_anew else folders
    precision = resources.choose_precision(parts, given, folders, config, strategy)
    compute = dataclasses.replace(recipe.compute, precision=precision)
    return [dataclasses.replace(each, compute=compute) for each in recipes]


def _check_fit(parts: Parts, recipes: Sequence[FineTuning], config: Any, num_replicas: Any) -> None:
    """Adds the lengths, the sizes of batches and the frozen layers."""
    first = recipes[0]
    length, compute = first.lengths.max_seq_length, first.compute
    parts("lengths", check_length, length, config, shows=lambda _: f"up to {length} tokens")

    def check(num_replicas: int, size: int) -> str:
        if first.steps.do_train:
            check_batch_size(size, compute.gradient_accumulation_steps, num_replicas)
            check_precision(compute.precision, num_replicas)
        return f"{size} examples, in {compute.precision}"

    for size in dict.fromkeys(each.schedule.train_batch_size for each in recipes):
        parts("batch", check, num_replicas, size, shows=str)
    if first.schedule.freeze_layers is not None:
        parts("frozen layers", check_frozen_layers, first.schedule.freeze_layers, config)


def _describe_task(task: Task) -> str:
    labels = task.stored().get("task", {}).get("labels") or ()
    return task.kind.replace("_", " ") + (f", labels: {', '.join(labels)}" if labels else "")


def _make_all_inputs(
    parts: Parts, task: Any, steps: Steps, strategy: Any, limit: int | None
) -> Any:
    """Adds each set of the data; returns the inputs of all, or `FAILED`."""
    wanted = [split for split, is_wanted in steps.splits.items() if is_wanted]
    examples: Any = None
    if limit is None and wanted:
        examples = parts("examples", lambda task: task.read(wanted), task, shows=_count)

    def make(task: Task, split: str, examples: Any) -> list[Made]:
        found = task.read([split]) if examples is None else examples
        with strategy.scope() if strategy is not FAILED else contextlib.nullcontext():
            return [
                Made(task.make_inputs(part, each[:limit]), len(each))
                for part, each in found.items()
                if part.split == split
            ]

    made = [
        parts(f"{split} set", make, task, split, examples, shows=_describe_made) for split in wanted
    ]
    return FAILED if FAILED in made else [each for found in made for each in found]


def _count(examples: Mapping[Part, Sequence[Any]]) -> str:
    return ", ".join(
        f"{len(each):,} to {FILE_NAMES[part.split]}" for part, each in examples.items()
    )


def _describe_made(made: Sequence[Made]) -> str:
    return "; ".join(map(_describe_part, made))


def _describe_part(made: Made) -> str:
    suffix = made.inputs.part.suffix.replace("_", " ")
    text = f"{made.num_examples:,} examples{suffix}"
    count = len(made.inputs.examples)
    return text if made.share == 1 else f"{text}, of which {count:,} are looked at"


def _check_folder(
    parts: Parts, recipes: Sequence[FineTuning], recipe: FineTuning, source: Any, task: Any
) -> None:
    """Adds the output folder, and what is in it."""
    output, steps = recipes[0].output, recipe.steps
    there = ModelFolder(output.output_dir)

    def check_fillable() -> None:
        if steps.do_train:
            there.check_fillable(overwrites=output.overwrite_output_dir)
        for export in read_exports(recipe.export) if steps.do_export else ():
            check_saved_model(os.path.join(output.output_dir, export.name), export.file)

    resources.add_folder(parts, output.output_dir, check_fillable, is_training=steps.do_train)

    def check_same(source: ModelFolder, task: Task) -> None:
        for each in recipes:
            _check_same(each.steps, each.output, each.model.init_checkpoint, source, task)

    same = "of the same task, if there is any"
    parts("model there", check_same, source, task, shows=lambda _: same)


def _check_same(
    steps: Steps, output: Output, init_checkpoint: str | None, source: ModelFolder, task: Task
) -> None:
    """Checks that what is to stay in the output folder belongs to the same task."""
    fixed = fixed_options(task, is_training=steps.do_train)
    if not (output.overwrite_output_dir and steps.do_train):
        ModelFolder(output.output_dir).check_same(source.config, source.vocabulary, fixed)
    if steps.do_train or not init_checkpoint:
        return
    labels = fixed.get("task", {}).get("labels")
    if not find_weights(output, source.stored) and labels:
        source.check_labels(labels)


def _plan_training(recipe: FineTuning, source: ModelFolder, made: Sequence[Made]) -> Training:
    """Returns the training run, checked against the one in the output folder."""
    schedule, patience = recipe.schedule, recipe.evaluation.early_stopping_patience
    [train] = (each for each in made if each.inputs.part == Part("train"))
    count = int(count_examples(train.inputs) / train.share)
    num_steps = tuning.count_steps(schedule, count)
    every = recipe.output.save_checkpoints_steps
    tuning.warn_of_patience(patience, every, num_steps, count // schedule.train_batch_size)
    data: dict[str, Any] = {}
    # What is not read as a whole is not compared.
    if all(each.share == 1 for each in made):
        arrays = {each.inputs.part: each.inputs.arrays for each in made}
        # What the best weights are depends on what they are tried on.
        names = ("train", "dev") if patience else ("train",)
        data = {f"the {name} set": _describe(arrays[Part(name)]) for name in names}
        if recipe.teacher:
            data["--teacher"] = _describe_teacher(recipe.teacher)
    init = source.stored if recipe.model.init_checkpoint else None
    made_of = identity.of_training(recipe.shaping_options(), init, data)
    return plan_training(recipe.output, num_steps, init, made_of, recipe.read_paths())


def _describe_teacher(teacher: Teacher) -> dict[str, str] | None:
    if not teacher.teacher:
        return None
    return describe_weights(Stored.open(teacher.teacher, "teacher"))


def _describe(arrays: Arrays) -> dict[str, Any]:
    num_records = len(next(iter(arrays.values())))
    return {"records": f"{num_records} records", "sha256": fingerprints.of_arrays(arrays)}


def count_examples(train: Inputs) -> int:
    """Returns how many examples there are to train on."""
    return train.num_examples or len(next(iter(train.arrays.values())))


def _describe_trainings(trainings: Sequence[Training]) -> str:
    steps = [training.last_step for training in trainings]
    if len(steps) == 1:
        return trainings[0].describe()
    each = f"{min(steps):,}" + (f" to {max(steps):,}" if len({*steps}) > 1 else "")
    return f"{sum(steps):,} in all, {each} a run"


def _add_needs(
    parts: Parts,
    recipes: Sequence[FineTuning],
    config: Any,
    num_replicas: Any,
    made: Any,
    trainings: Any,
) -> bool:
    """Adds memory and disk, of the run that needs the most."""
    largest = max(recipes, key=lambda each: each.schedule.train_batch_size)
    rows = 1 if made is FAILED else count_rows(made)
    batch = resources.Batch(
        largest.schedule.train_batch_size * rows,
        largest.lengths.max_seq_length,
        num_weights_alone=1 + 2 * evaluates(largest.steps, largest.evaluation),
    )
    num_steps = FAILED if trainings is FAILED else [each.num_train_steps for each in trainings]
    return resources.add_needs(
        parts, largest.compute, largest.output, config, num_replicas, batch, num_steps
    )


def count_rows(made: Sequence[Made]) -> int:
    """Returns how many sequences an example has."""
    [train] = (each.inputs for each in made if each.inputs.part == Part("train"))
    ids = train.arrays["input_ids"]
    return ids.shape[1] if ids.ndim > 2 else 1


def evaluates(steps: Steps, evaluation: Prediction) -> bool:
    """Returns whether the dev set is scored while training."""
    if isinstance(steps, EvaluatedSteps):
        return steps.do_eval
    return evaluation.early_stopping_patience > 0


def _shared(
    recipe: FineTuning, source: ModelFolder, made: Sequence[Made], training: Training | None
) -> dict[str, Any]:
    """Returns by name what all workers must have in common, where there are several."""
    if recipe.compute.strategy != "multi_worker":
        return {}
    # Of another training run, files may be listed that were deleted.
    begins_anew = training is not None and training.begins_anew
    trained = None if begins_anew else checkpoint.find_trained(recipe.output.output_dir)
    parts = {f"{each.inputs.part.split} set{each.inputs.part.suffix}": each for each in made}
    return {
        "the configuration": source.config.to_dict(),
        "the vocabulary": fingerprints.of_bytes(source.vocabulary),
        "the weights in --output_dir": os.path.basename(trained or ""),
        **(training.made_of if training else {}),
        **{f"the {name}": _describe(each.inputs.arrays) for name, each in parts.items()},
    }


def estimate(plan: FineTuningPlan, parts: Parts, others: Sequence[FineTuningPlan] = ()) -> None:
    """Adds the weights of a model that is not trained, or how long training takes.

    Args:
      plan: The plan, with a limit.
      parts: Records what is found.
      others: The plans of other runs of the same search.
    """
    recipe, training = plan.recipe, plan.training
    size = recipe.schedule.train_batch_size

    def make_model() -> keras.Model:
        return plan.task.make_model(recipe.compute.precision)

    def restore() -> int:
        is_given = bool(recipe.model.init_checkpoint)
        return tuning.load(recipe.output, plan.source, make_model(), is_given=is_given)

    def try_steps() -> str:
        assert training is not None
        if training.has_ended:
            return "the training there has ended: nothing to train"
        [train] = (each.inputs for each in plan.made if each.inputs.part == Part("train"))
        tokens = recipe.lengths.max_seq_length * count_rows(plan.made)
        tried = trial.count_examples(recipe.compute, size, tokens, plan.source.config)
        # What is wrong with them has been recorded.
        with recorded_messages():
            few = plan.task.make_inputs(train.part, train.examples[: trial.STEPS * tried])
        with tempfile.TemporaryDirectory(prefix="bert-check-") as folder:
            path = os.path.join(folder, "train.tf_record")
            trim = not recipe.lengths.pad_to_max_length
            model = make_model()
            batches = plan.task.open_inputs(
                few, ExampleFile(path, tried, recipe.seed, trim)
            ).batches
            assert batches is not None
            run = begin_training(recipe, training, model, plan.task.objective(train), batches)
            examples = [
                each.training.last_step * each.recipe.schedule.train_batch_size
                for each in others
                if each.training
            ]
            return trial.time_steps(run, size, batches, sum(examples) / size)

    if training and recipe.features and recipe.features.feature_based:
        parts.add(UNCHECKED, "time", "not measured, for features are computed first")
        return
    trial.add(parts, plan.strategy, training, restore, try_steps, plan.has_memory)


def begin_training(
    recipe: FineTuning,
    training: Training,
    model: keras.Model,
    objective: Objective,
    batches: Batches,
) -> TrainingRun:
    """Returns the training run before its first step, its weights read."""
    trainer = tuning.make_trainer(
        model,
        objective,
        *(recipe.schedule, recipe.compute),
        seed=recipe.seed,
        num_train_steps=training.last_step,
        signature=batches.signature,
    )
    return tuning.begin(recipe.output, trainer, training)

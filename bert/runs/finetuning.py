"""The plan of fine-tuning runs (paper, section 4).

The output folder holds all that a later prediction needs: `task.json`, `vocab.txt`,
`bert_config.json` and the weights, `bert_model.ckpt`. While training, it also holds checkpoints to
resume from; `best/` keeps the weights of the best evaluation.
"""

import contextlib
import dataclasses
import functools
import os
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import keras
import tensorflow as tf

from bert.export.formats import read_exports
from bert.files import owned
from bert.log import logger
from bert.options import Message, Option, OptionError
from bert.parts import FAILED, Parts, recorded_messages
from bert.runs import identity
from bert.runs.finetuning_steps import describe_teacher, describe_trainings, plan_trainings
from bert.runs.identity import FolderState, find_weights
from bert.runs.plans import Opening, Plan, check_scored, has_run
from bert.runs.recipes import FineTuning, Search, Steps
from bert.tasks.examples import Inputs, Part, find_inputs
from bert.tasks.options import Evaluation
from bert.tasks.squad.options import SquadData
from bert.tasks.task import ExampleFile, Task
from bert.training import strategies
from bert.training.batches import Batches
from bert.training.loop import Objective, Observer
from bert.training.options import (
    Compute,
    Output,
    check_frozen_layers,
    check_step,
)
from bert.training.trackers import Trackers
from bert.weights.folder import ModelFolder
from bert.weights.model_files import TOKENIZER
from bert.weights.options import ModelSource
from bert.weights.tokenizers import options_of
from bert.weights.variables import check_length

if TYPE_CHECKING:
    from bert.runs.training import TrainingRun
    from bert.training.evaluation import EarlyStopping

# The name of the examples' file, by split.
FILE_NAMES = {"train": "train", "dev": "eval", "test": "predict"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class FineTuningPlan(Plan):
    """The verified plan of a fine-tuning run.

    Attributes:
      recipe: The recipe, with the precision.
      source: The folder of the model to start from.
      task: The task.
      inputs: The inputs of each part of the data.
    """

    recipe: FineTuning
    source: ModelFolder
    task: Task
    inputs: Sequence[Inputs]

    @property
    def obstacle(self) -> str:
        """Why no steps can be tried; "" where they can be."""
        if self.recipe.is_feature_based:
            return "features are computed first"
        return super().obstacle

    def has_run(self) -> bool:
        """Returns whether the training run that has ended in the folder is the planned one."""
        folder, training = self.recipe.output.output_dir, self.training
        return training is not None and has_run(folder, training)

    def renewed(self) -> "FineTuningPlan":
        """Returns the plan for the folder as it is now, with a task that holds no model yet."""
        state = FolderState.of(self.recipe.output.output_dir)
        task = dataclasses.replace(self.task)  # type: ignore[type-var]
        return dataclasses.replace(self, task=task, state=state)

    def restore(self) -> int:
        """Returns the step of the weights that a run without training would use."""
        return self.load(self.task.make_model(self.recipe.compute.precision))

    def load(self, model: keras.Model) -> int:
        """Sets the weights of a model that is not trained; returns their step."""
        is_given = bool(self.recipe.model.init_checkpoint)
        return identity.load_weights(self.recipe.output, self.source, model, is_given=is_given)

    def try_steps(self, all_steps: float = 0.0) -> str:
        """Takes a few steps of training; returns an estimate of the time that training takes.

        Args:
          all_steps: The steps of all runs of a search, of this run's batch size.
        """
        from bert.runs.training import TRIED_STEPS, count_tried_examples  # noqa: PLC0415

        recipe = self.recipe
        assert self.training is not None
        may_end_early = self.recipe.evaluation.early_stopping_patience > 0
        if self.training.has_ended or (may_end_early and self.has_run()):
            return "the training there has ended: nothing to train"
        size, train = recipe.schedule.train_batch_size, find_inputs(self.inputs, "train")
        num_tokens = recipe.lengths.max_seq_length * train.num_sequences
        tried = count_tried_examples(recipe.compute, size, num_tokens, self.source.config)
        # The messages about these examples have been recorded already.
        with recorded_messages():
            few = self.task.make_inputs(train.part, train.examples[: TRIED_STEPS * tried])
        with tempfile.TemporaryDirectory(prefix="bert-check-") as folder:
            path = os.path.join(folder, "train.tf_record")
            trim = not recipe.lengths.pad_to_max_length
            model = self.task.make_model(recipe.compute.precision)
            file = ExampleFile(path, tried, recipe.seed, trim)
            batches = self.task.open_inputs(few, file).batches
            assert batches is not None
            run = self.begin_training(model, self.task.objective(train), batches)
            return run.time_steps(size, batches, all_steps)

    def train_or_load(
        self,
        model: keras.Model,
        inputs: Sequence[Inputs],
        trackers: Trackers,
        evaluation: "EarlyStopping | None",
        observers: Sequence[Observer],
    ) -> tuple[int, bool]:
        """Trains a model, or sets its weights where nothing is to be trained.

        Args:
          model: The model of `Task.make_model`.
          inputs: The inputs of all parts, with batches.
          trackers: The open trackers.
          evaluation: The evaluation during training, if any.
          observers: As `bert.runs.run.run`.

        Returns:
          The step of the weights, and whether they are others than those in the folder.
        """
        if self.training is None or self.training.has_ended:
            return self.load(model), False
        train = find_inputs(inputs, "train")
        batches, objective = train.batches, self.task.objective(train)
        assert batches is not None
        with strategies.together(self.strategy):
            begun = self.begin_training(model, objective, batches)
        begun.trackers = trackers
        options = identity.describe(self.recipe.options(), self.strategy)
        schedule, count = self.recipe.schedule, train.num_examples or train.num_rows
        step = begun.fine_tune(schedule, batches, options, count, evaluation, observers)
        return step, begun.trainer.step > begun.first_step

    def begin_training(
        self, model: keras.Model, objective: Objective, batches: Batches
    ) -> "TrainingRun":
        """Returns the training run before its first step, with its initial weights."""
        # A run that only predicts loads no loop.
        from bert.runs import training  # noqa: PLC0415

        assert self.training is not None
        trainer = training.make_trainer(
            model,
            objective,
            self.recipe.schedule,
            self.recipe.compute,
            seed=self.recipe.seed,
            num_train_steps=self.training.last_step,
            signature=batches.signature,
        )
        return training.TrainingRun(self.recipe.output, trainer, self.training)

    def example_file(self, part: Part, folder: str, is_chief: bool) -> ExampleFile:
        """Returns the file of a part's examples in a folder."""
        evaluation = self.recipe.evaluation
        sizes = {"train": self.recipe.schedule.train_batch_size}
        if isinstance(evaluation, Evaluation):
            sizes["dev"] = evaluation.eval_batch_size
        return ExampleFile(
            owned.claim(folder, f"{FILE_NAMES[part.split]}{part.suffix}.tf_record"),
            sizes.get(part.split, evaluation.predict_batch_size),
            self.recipe.seed if part.split == "train" else None,
            trim=not self.recipe.lengths.pad_to_max_length,
            is_kept=is_chief,
        )


def plan(
    recipe: FineTuning | Search,
    limit: int | None = None,
    strategy: tf.distribute.Strategy | None = None,
    parts: Parts | None = None,
) -> list[FineTuningPlan]:
    """Returns the plan of a fine-tuning run, or the plans of all runs of a search.

    The runs of a search have the same model, task and data, which are opened once.

    Args:
      recipe: As `bert.runs.plan.plan`.
      limit: As `bert.runs.plan.plan`.
      strategy: As `bert.runs.plan.plan`.
      parts: Records what is found; absent, new ones.
    """
    opening = Opening(limit, parts)
    parts = opening.parts
    if isinstance(recipe, Search):
        shared, runs = recipe.shared, [run.recipe for run in recipe.trials]
        scored = recipe.scored_options()
    else:
        shared, runs, scored = recipe, [recipe], []
    steps, patience = shared.steps, shared.evaluation.early_stopping_patience
    model, output = shared.model, shared.output
    files = None
    if isinstance(shared.data, SquadData) or shared.unread_paths():
        files = parts("files", shared.check_files, shows="can be read")
    requested = (steps, shared.export, patience, scored)
    flags = parts("flags", check_scored, *requested, shows=steps.describe())
    # Devices and model.
    opening.open_devices(shared.compute, shared.options(), strategy)
    tokenizer = opening.open_model(model, model, output.output_dir)
    source, config = opening.source, opening.config
    outputs = [run.output for run in runs]
    compute = opening.choose_precision(shared.compute, [output, *outputs], steps)
    runs = [dataclasses.replace(run, compute=compute) for run in runs]
    length, schedule = shared.lengths.max_seq_length, runs[0].schedule
    parts("lengths", check_length, length, config, shows=f"up to {length} tokens")
    sizes = dict.fromkeys(run.schedule.train_batch_size for run in runs)
    _check_batch_sizes(parts, sizes, compute, opening.num_replicas, is_trained=steps.do_train)
    if schedule.freeze_layers is not None:
        parts("frozen layers", check_frozen_layers, schedule.freeze_layers, config)
    init = opening.find_init(model, outputs[0].output_dir, steps)
    if limit is None:
        # Reading the data takes long, so all faults so far are raised before.
        parts.check()
    # Task and data.
    task = parts(
        "task",
        lambda config, tokenizer, _: runs[0].open_task(config, tokenizer, scored, limit is None),
        config,
        tokenizer,
        files,
        shows=_describe_task,
    )
    most = {"train": schedule.max_train_samples, "dev": shared.evaluation.max_eval_samples}
    data = _make_all_inputs(parts, task, steps, opening.strategy, most, limit)
    # Output folder.
    exports = read_exports(shared.export) if steps.do_export else []
    opening.add_folder(outputs[0], steps, exports)
    parts(
        "model there",
        lambda source, task: _check_model_there(outputs, steps, model, source, task),
        source,
        task,
        shows="of the same task, if there is any",
    )
    trainings: Any = [None] * len(runs)
    if steps.do_train:
        # Schedule and identity.
        trainings = parts(
            "steps",
            lambda init, data, task, _: plan_trainings(
                [(run.schedule, run.output, run.shaping_options()) for run in runs],
                patience,
                describe_teacher(shared.teacher, task),
                shared.read_paths(),
                init,
                data,
            ),
            init,
            data,
            task,
            flags,
            shows=describe_trainings,
        )
        opening.add_needs(
            compute,
            outputs,
            trainings,
            num_weights_alone=1 + 2 * steps.evaluates(patience),
            num_sequences=max(sizes) * (1 if data is FAILED else data[0].num_sequences),
            length=length,
            teacher=getattr(getattr(task, "teacher", None), "step_config", None),
        )
    parts.check(later="time" if steps.do_train else "model")
    opening.check_same(
        source.vocabulary,
        trainings[0],
        outputs[0].output_dir,
        lambda: {name: value for each in data for name, value in each.describe().items()},
    )
    return [
        FineTuningPlan(
            recipe=run,
            lines=tuple(parts.lines),
            strategy=opening.strategy,
            limit=limit,
            state=FolderState.of(run.output.output_dir),
            has_memory=opening.has_memory,
            source=source,
            task=task,
            inputs=data,
            training=training,
        )
        for run, training in zip(runs, trainings, strict=True)
    ]


def _check_batch_sizes(
    parts: Parts, sizes: Iterable[int], compute: Compute, num_replicas: Any, *, is_trained: bool
) -> None:
    """Adds the batch size of each run."""

    def check(num_replicas: int, size: int) -> str:
        if is_trained:
            check_step(size, compute, num_replicas)
        return f"{size} examples, in {compute.precision}"

    for size in sizes:
        parts("batch", check, num_replicas, size, shows=str)


def _describe_task(task: Task) -> str:
    labels = task.stored().get("task", {}).get("labels") or ()
    return task.kind.replace("_", " ") + (f", labels: {', '.join(labels)}" if labels else "")


def _make_all_inputs(
    parts: Parts,
    task: Any,
    steps: Steps,
    strategy: Any,
    most: Mapping[str, int | None],
    limit: int | None,
) -> Any:
    """Adds each set of the data; returns the inputs of all parts, or `FAILED`.

    Args:
      parts: Records what is found.
      task: The task, or `FAILED`.
      steps: The steps of the run.
      strategy: The devices, or `FAILED`.
      most: By split, the number of examples that the run uses at most.
      limit: The number of examples of each part that are looked at; None for all.
    """
    splits, examples = steps.splits, None

    def read(task: Task, splits: Sequence[str]) -> dict[Part, Sequence[Any]]:
        found = task.read(splits).items()
        return {part: _first(task, part, values, most.get(part.split)) for part, values in found}

    if limit is None and splits:
        examples = parts("examples", read, task, splits, shows=_count)

    def make(task: Task, split: str, examples: Any) -> list[Inputs]:
        found = read(task, [split]) if examples is None else examples
        with strategy.scope() if strategy is not FAILED else contextlib.nullcontext():
            return [
                dataclasses.replace(task.make_inputs(part, values[:limit]), total=len(values))
                for part, values in found.items()
                if part.split == split
            ]

    describe = functools.partial(_describe_made, task)
    data = [parts(f"{split} set", make, task, split, examples, shows=describe) for split in splits]
    return FAILED if FAILED in data else [inputs for found in data for inputs in found]


def _first(task: Any, part: Part, examples: Sequence[Any], most: int | None) -> Sequence[Any]:
    """Returns the first examples of a part, with all that only a teacher labels, which are last."""
    count = len(examples) - _num_unlabeled(task, part)
    if most is None:
        return examples
    if most >= count:
        logger.info("The %s set has %d examples: all are used.", part.name, count)
        return examples
    if part.split == "dev" and not task.can_score(examples[:most]):
        must = "leave examples that can be scored, which the first ones cannot"
        raise OptionError("max_eval_samples", must, most)
    logger.info("Using the first %d of the %d examples of the %s set.", most, count, part.name)
    return [*examples[:most], *examples[count:]]


def _num_unlabeled(task: Any, part: Part) -> int:
    return len(task.unlabeled) if part.split == "train" else 0


def _count(examples: Mapping[Part, Sequence[Any]]) -> str:
    return ", ".join(
        f"{len(values):,} to {FILE_NAMES[part.split]}" for part, values in examples.items()
    )


def _describe_made(task: Any, data: Sequence[Inputs]) -> str:
    texts = []
    for inputs in data:
        count, more = inputs.total or 0, _num_unlabeled(task, inputs.part)
        text = f"{count - more:,} examples{inputs.part.suffix.replace('_', ' ')}"
        text += f" and {more:,} that only the teacher labels" * (more > 0)
        looked_at = f", of which {len(inputs.examples):,} are looked at" * (inputs.share < 1)
        texts.append(text + looked_at)
    return "; ".join(texts)


def _check_model_there(
    outputs: Sequence[Output], steps: Steps, model: ModelSource, source: ModelFolder, task: Task
) -> None:
    """Checks that models in the output folders are of the same task and shape."""
    stored = stored_task(task)
    # What no later run in the folder may change.
    names = (*task.fixed(is_training=steps.do_train), TOKENIZER)
    fixed = {name: stored[name] for name in names}
    for output in outputs:
        if not (output.overwrite_output_dir and steps.do_train):
            folder = ModelFolder(output.output_dir)
            folder.check_same(source.config, source.vocabulary, fixed)
        if steps.do_train or not model.init_checkpoint or find_weights(output, source.stored):
            continue
        if getattr(task, "calibrates", False):
            must = Message("be given with a trained %s, which keeps it", Option("output_dir"))
            raise OptionError("calibrate", must, remedy="This folder has no weights.")
        if labels := fixed.get("task", {}).get("labels"):
            source.check_labels(labels)


def stored_task(task: Task) -> dict[str, Any]:
    """Returns the contents of `task.json`."""
    return {**task.stored(), TOKENIZER: options_of(task.tokenizer)}

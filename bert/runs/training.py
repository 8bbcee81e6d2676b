"""The training run in an output folder: it starts, trains, logs its progress, and saves weights."""

import functools
import os
import re
import statistics
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

import optimization
from bert.files import owned
from bert.files.display import clock as time_of
from bert.files.display import counted
from bert.files.process import Stop, deferred_stop
from bert.files.stored_models import SUFFIXES, WEIGHTS
from bert.log import logger
from bert.options import Message, MessageError, Option, OptionError
from bert.runs.identity import Training, without_folders
from bert.tasks.options import CRF_LEARNING_RATE, Schedule
from bert.training import strategies
from bert.training.batches import Batches
from bert.training.evaluation import EarlyStopping
from bert.training.loop import Objective, Observer, train
from bert.training.observers import begin_saving, user_observers
from bert.training.options import Compute, Output, read_trackers
from bert.training.progress import ProgressLog, TrainLog, steps_between_points
from bert.training.trackers import TRACKED, Trackers
from bert.training.trainer import Trainer, initialize
from bert.weights import provenance, saving
from bert.weights.variables import count_parameters
from modeling import BertConfig

# The number of steps to try, the first of which builds the graph, and the most seconds for them.
TRIED_STEPS = 6
_SECONDS = 8.0
# The operations of a step that is tried without a GPU, on a part of a batch.
_OPERATIONS = 4e11


class TrainingRun:
    """A training run in an output folder.

    Args:
      output: The output folder, and what is saved in it.
      trainer: The trainer; its state is set to the latest checkpoint in the folder, or else to the
        initial weights of the plan.
      plan: How far training goes, and from where.
      length: The option that says how far.

    Attributes:
      checkpoints: The checkpoints in the folder.
      trackers: The open trackers, which get the results and the scores; none by default.
      first_step: The step that training starts after.

    Raises:
      OptionError: where the checkpoint in the folder is beyond the last step.
    """

    def __init__(
        self, output: Output, trainer: Trainer, plan: Training, length: str = "num_train_epochs"
    ) -> None:
        self.output = output
        self.plan = plan
        self.trainer = trainer
        self.trackers = Trackers()
        self.checkpoints = saving.Checkpoints(output.output_dir, output.keep_checkpoint_max)
        try:
            self.first_step = initialize(
                trainer.model,
                trainer.state(),
                None if plan.starts_over else self.checkpoints,
                plan.init,
            )
        except OptionError as error:
            if not plan.changes:
                raise
            text = "%s It resumes without these changes: %s."
            raise MessageError(text, error, "; ".join(plan.changes)) from error
        last_step = plan.num_train_steps
        if last_step is not None and self.first_step > last_step:
            raise OptionError(
                length,
                Message("reach step %d, where %r is", self.first_step, output.output_dir),
                remedy=Message(
                    "It ends at step %d; give more, or another %s, or %s.",
                    last_step,
                    *map(Option, ("output_dir", "overwrite_output_dir")),
                ),
            )

    def time_steps(self, batch_size: int, batches: Batches, all_steps: float = 0.0) -> str:
        """Takes a few steps, and saves nothing; returns how long training may take.

        Args:
          batch_size: Examples of a batch of the run.
          batches: The batches to try.
          all_steps: The steps of all training runs of a search; 0 for a single run.
        """
        clock = self.trainer.clock
        if self.trainer.is_last(self.first_step, self.plan.num_train_steps):
            return f"step {self.first_step:,} is reached already: nothing to train"
        seconds: list[float] = []
        for batch in batches.iterate(0, TRIED_STEPS, self.trainer.strategy):
            start = time.monotonic()
            self.trainer.train_step(batch)
            seconds.append(time.monotonic() - start)
            if len(seconds) > 1 and sum(seconds) > _SECONDS:
                break
        scale = batch_size / batches.batch_size
        each = scale * statistics.median(seconds[1:])
        part = f" on {batches.batch_size} of {batch_size} examples" if scale > 1 else ""
        total = f"about {time_of(each * all_steps)} for all runs, " if all_steps else ""
        if clock:
            left = clock.budget - clock.spent
            will_be = (
                f"{time_of(left)} from step {self.first_step:,} on, about {left / each:,.0f} steps"
            )
        else:
            left = each * (self.plan.last_step - self.first_step)
            will_be = f"about {time_of(left)} from step {self.first_step:,} on"
        return (
            f"{total}{will_be}, evaluations apart: {each:.3g} s a step, estimated by "
            f"{counted(len(seconds) - 1, 'step')}{part}"
        )

    def train(
        self,
        batches: Batches,
        environment: Mapping[str, Any],
        observers: Sequence[Observer] = (),
        evaluation: Observer | None = None,
    ) -> None:
        """Trains to the last step; the chief logs progress and writes `run.json`.

        Args:
          batches: As `batches.Batches`.
          environment: What `run.json` records as `ran_with`.
          observers: The user's.
          evaluation: Called before the user's observers.
        """
        output, num_train_steps = self.output, self.plan.num_train_steps
        writes = strategies.is_chief(self.trainer.strategy)
        reach: dict[str, Any] = {"first_step": self.first_step, "num_train_steps": num_train_steps}
        if writes and not self.trainer.is_last(self.first_step, num_train_steps):
            # A prediction must not use the weights of an earlier run; unknown ones are renamed.
            owned.claim_all(output.output_dir, [WEIGHTS + suffix for suffix in SUFFIXES])
            saving.remove(os.path.join(output.output_dir, WEIGHTS))
            self.plan.record(output.output_dir, environment)
        # In the order in which they are called.
        watching: list[Observer] = []
        if writes:
            watching.append(
                ProgressLog(
                    output.output_dir,
                    **reach,
                    batch_size=batches.batch_size,
                    every=steps_between_points(output.log_every_steps, num_train_steps),
                    clock=self.trainer.clock,
                    report=functools.partial(self.trackers.log, "train"),
                )
            )
        if evaluation:
            watching.append(evaluation)
        watching += user_observers(self.trainer.strategy, observers)
        try:
            watching = begin_saving(
                self.trainer,
                num_train_steps=num_train_steps,
                checkpoints=self.checkpoints,
                save_checkpoints_steps=output.save_checkpoints_steps,
                log=TrainLog(output.output_dir, **reach) if writes else None,
                observers=watching,
            )
            train(self.trainer, batches, num_train_steps, watching)
        except Stop as stop:
            if not output.overwrite_output_dir:
                raise
            # The same command would delete what this one has saved.
            text = "Stopped at step %d; the same command without %s goes on."
            message = Message(text, self.trainer.step, Option("overwrite_output_dir"))
            raise Stop(stop.number, message) from None

    def fine_tune(
        self,
        schedule: Schedule,
        batches: Batches,
        environment: Mapping[str, Any],
        num_examples: int,
        evaluation: EarlyStopping | None = None,
        observers: Sequence[Observer] = (),
    ) -> int:
        """Fine-tunes the model, saves its weights, and returns their step.

        With early stopping, the best weights are saved; else the last.

        Args:
          schedule: How long the model is trained.
          batches: The batches to train on.
          environment: As for `train`.
          num_examples: The number of examples of an epoch, which may have several records each.
          evaluation: Is called every `save_checkpoints_steps` and at the end, if there is one.
          observers: As for `train`.
        """
        output, trainer, num_train_steps = self.output, self.trainer, self.plan.last_step
        writes = strategies.is_chief(trainer.strategy)
        if evaluation:
            evaluation.report = functools.partial(self.trackers.log, "eval")
            evaluation.open(output.output_dir, trainer.model, self.first_step, writes=writes)
            # A resumed run may evaluate here; all workers read the best weights once saved.
            with strategies.together(trainer.strategy):
                evaluation.at_steps(output.save_checkpoints_steps, num_train_steps)
        if evaluation and evaluation.is_over:
            logger.warning("Nothing to train: early stopping ended it at step %d.", self.first_step)
        else:
            epochs = counted(schedule.num_train_epochs, "epoch")
            examples, size = counted(num_examples, "example"), schedule.train_batch_size
            text = "Training to step %d: %s of %s in batches of %d."
            logger.info(text, num_train_steps, epochs, examples, size)
            self.train(batches, environment, observers, evaluation=evaluation)
        with deferred_stop():
            step = _save_weights(output.output_dir, trainer.model, trainer.step, evaluation)
            self.end()
        return step

    def end(self) -> None:
        """Records that training has ended, once all its results are written."""
        if strategies.is_chief(self.trainer.strategy):
            provenance.end(self.output.output_dir)


def prepare_folder(
    output: Output,
    trackers: Trackers,
    options: Mapping[str, Any],
    model_files: Collection[str],
    clear: Callable[[], None] = lambda: None,
) -> None:
    """Opens the trackers of a training run, and deletes what it overwrites.

    Args:
      output: The output folder, and whether its files are deleted.
      trackers: The trackers, which get the options but the folder.
      options: The options of the run.
      model_files: The names of the files in the folder that the run may have read.
      clear: Deletes what the run overwrites elsewhere.

    Raises:
      OptionError: where a tracker cannot be opened; nothing is deleted then.
    """
    folder, overwrites = output.output_dir, output.overwrite_output_dir
    kinds = read_trackers(output.report_to)
    trackers.open(kinds, folder, without_folders(options), begins_anew=overwrites)
    clear()
    if overwrites:
        owned.clear(folder, but=[*model_files, TRACKED])


def count_tried_examples(
    compute: Compute, batch_size: int, num_tokens: int, config: BertConfig
) -> int:
    """Returns the number of examples of a batch to try a step on, so that it takes some seconds.

    Args:
      compute: The devices.
      batch_size: Examples of a batch.
      num_tokens: Tokens of an example.
      config: The shape of the model.
    """
    if compute.use_tpu or tf.config.list_physical_devices("GPU"):
        return batch_size
    # A multiplication and an addition, forward and twice as many backward.
    each = 6 * count_parameters(config) * num_tokens
    parts = tf.distribute.get_strategy().num_replicas_in_sync * compute.gradient_accumulation_steps
    return min(batch_size, max(int(_OPERATIONS / each) // parts, 1) * parts)


def freeze(model: keras.Model, num_layers: int | None) -> None:
    """Freezes the embeddings and the first layers of the encoder; None freezes nothing."""
    if num_layers is None:
        return
    bert = model.get_layer("bert")
    for layer in [bert.embeddings, *bert.stacked_layers[:num_layers]]:
        layer.trainable = False


def learning_rate_scales(model: keras.Model, decay: float) -> dict[str, float]:
    """Returns by path the factors of the learning rate: `decay` once per layer from the top.

    The head and the pooler have 1, the top layer `decay`, the one below its square, and so on down
    to the embeddings (Clark et al., ELECTRA, appendix B).
    """
    num_layers = len(model.get_layer("bert").stacked_layers)
    scales = {}
    for variable in model.weights:
        if match := re.match(r"bert/encoder/layer_(\d+)/", variable.path):
            scales[variable.path] = decay ** (num_layers - int(match[1]))
        elif variable.path.startswith("bert/embeddings/"):
            scales[variable.path] = decay ** (num_layers + 1)
    return scales


def make_trainer(
    model: keras.Model,
    objective: Objective,
    schedule: Schedule,
    compute: Compute,
    *,
    seed: int,
    num_train_steps: int,
    signature: Mapping[str, tf.TensorSpec] | None = None,
) -> Trainer:
    """Returns a trainer of a model on a schedule, which may freeze some of its layers."""
    freeze(model, schedule.freeze_layers)
    optimizer = optimization.bert_optimizer(
        schedule.learning_rate,
        num_train_steps,
        int(num_train_steps * schedule.warmup_proportion),
    )
    scales: dict[str, float] = {}
    if schedule.layerwise_lr_decay != 1.0:
        scales = learning_rate_scales(model, schedule.layerwise_lr_decay)
    if schedule.learning_rate:
        crf_scale = CRF_LEARNING_RATE / schedule.learning_rate
        scales |= {v.path: crf_scale for v in model.weights if v.path.startswith("crf/")}
    optimizer.learning_rate_scales = scales
    return Trainer.of(compute, model, optimizer, objective, seed=seed, signature=signature)


def _save_weights(
    output_dir: str, model: keras.Model, step: int, evaluation: EarlyStopping | None
) -> int:
    """Writes the weights-only checkpoint; with early stopping, with the best weights."""
    weights = {variable.path: variable for variable in model.weights}
    if evaluation and evaluation.patience and evaluation.best_weights:
        step = saving.Checkpoints(output_dir).restore(weights, evaluation.best_weights)
        logger.info("The weights are those of step %d, the best.", step)
    if strategies.is_chief(tf.distribute.get_strategy()):
        prefix = os.path.join(output_dir, WEIGHTS)
        saving.save_variables(prefix, weights, step)
        logger.info("Saved the weights without the optimizer's slots to %s.", prefix)
    return step

"""The training run in an output folder: it starts, trains, logs its progress and ends."""

import os
import statistics
import time
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from bert.files.progress import clock as time_of
from bert.log import logger
from bert.options import Option, typed_flags
from bert.runs.resumption import Training
from bert.training import strategies
from bert.training.batches import Batches
from bert.training.loop import Observer
from bert.training.observers import train_and_save, user_observers
from bert.training.options import Compute, Output
from bert.training.progress import ProgressLog, TrainLog, steps_between_points
from bert.training.trainer import Trainer, initialize
from bert.weights import checkpoint, provenance
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

    Attributes:
      checkpoints: The checkpoints in the folder.
      first_step: The step that training starts after.
    """

    def __init__(self, output: Output, trainer: Trainer, plan: Training) -> None:
        self.output = output
        self.plan = plan
        self.trainer = trainer
        self.checkpoints = checkpoint.Checkpoints(output.output_dir, output.keep_checkpoint_max)
        self.first_step = initialize(
            trainer.model,
            trainer.state(),
            None if plan.starts_over else self.checkpoints,
            plan.init,
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
        count = len(seconds) - 1
        steps = "1 step" if count == 1 else f"{count} steps"
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
            f"{total}{will_be}, evaluations apart: {each:.3g} s a step, estimated by {steps}{part}"
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
        reach: Mapping[str, Any]
        reach = {"first_step": self.first_step, "num_train_steps": num_train_steps}
        if writes and not self.trainer.is_last(self.first_step, num_train_steps):
            self.plan.record(output.output_dir, environment)
        evaluations = [evaluation] if evaluation else []
        progress: list[Observer] = []
        if writes:
            progress.append(
                ProgressLog(
                    output.output_dir,
                    **reach,
                    batch_size=batches.batch_size,
                    every=steps_between_points(output.log_every_steps, num_train_steps),
                    clock=self.trainer.clock,
                )
            )
        train_and_save(
            self.trainer,
            batches,
            num_train_steps=num_train_steps,
            checkpoints=self.checkpoints,
            save_checkpoints_steps=output.save_checkpoints_steps,
            log=TrainLog(output.output_dir, **reach) if writes else None,
            observers=[*progress, *evaluations, *user_observers(self.trainer.strategy, observers)],
        )

    def end(self) -> None:
        """Records that training has ended, once all its results are written."""
        if strategies.is_chief(self.trainer.strategy):
            provenance.end(self.output.output_dir)


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


def log_set_up(model: keras.Model, compute: Compute, changed: Mapping[str, Any]) -> None:
    """Logs the devices, the size of the model and the given options, once at the start.

    Args:
      model: The model.
      compute: How it computes.
      changed: The options that differ from their defaults.
    """
    strategy = tf.distribute.get_strategy()
    used = strategy.num_replicas_in_sync
    gpus = len(tf.config.list_physical_devices("GPU"))
    logger.info(
        "Devices: %d used%s; this machine has %d GPUs and %d CPU cores.",
        used,
        f" by {type(strategy).__name__}" if tf.distribute.has_strategy() else "",
        gpus,
        os.cpu_count(),
    )
    if gpus > used:
        logger.warning(
            "%d GPUs are idle: %s uses all.", gpus - used, Option("strategy", "mirrored")
        )
    if used == 1 and compute.all_reduce_precision != "float32":
        logger.warning(
            "%s has no effect on one device.",
            Option("all_reduce_precision", compute.all_reduce_precision),
        )
    logger.info(
        "Model: %s parameters, computing in %s.",
        f"{model.count_params():,}",
        compute.precision,
    )
    logger.info("Flags: %s; the others have their defaults.", " ".join(typed_flags(changed)))

"""The training run in an output folder: how it starts, trains, logs its progress and ends.

`TrainingRun` takes the group `Output`, a trainer and a plan. The functions below it take the flat
settings of a script apart for `bert.training`, which knows groups and plain arguments alone.
"""

import os
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf
from absl import logging

from bert.commands.settings import TrainingSettings
from bert.options import Option, typed_flags
from bert.runs import identity
from bert.runs.resumption import Training
from bert.training import memory, strategies
from bert.training.loop import Observer
from bert.training.observers import UserObservers, train_and_save
from bert.training.options import Compute, Output
from bert.training.progress import ProgressLog, steps_between_points
from bert.training.train_log import TrainLog
from bert.training.trainer import Trainer, initialize
from bert.weights import checkpoint, provenance
from modeling import BertConfig


class TrainingRun:
    """A training run in an output folder.

    Args:
      output: The folder, and what is saved in it when.
      trainer: Gets its initial values: those of the folder's latest checkpoint, or of the plan.
      plan: What is to be done.

    Attributes:
      trainer: As given.
      plan: As given.
      checkpoints: The checkpoints of the folder.
      first_step: The step that training starts after.
    """

    def __init__(self, output: Output, trainer: Trainer, plan: Training) -> None:
        self._output = output
        self.plan = plan
        self.trainer = trainer
        self.checkpoints = checkpoint.Checkpoints(output.output_dir, output.keep_checkpoint_max)
        self.first_step = initialize(
            trainer.model,
            trainer.state(),
            None if plan.begins_anew else self.checkpoints,
            plan.init,
        )

    def train(
        self,
        batches: Any,
        environment: Mapping[str, Any],
        observers: Sequence[Observer] = (),
        evaluation: Observer | None = None,
    ) -> None:
        """Trains up to the plan's last step; the chief logs progress and writes `run.json`.

        Args:
          batches: As `batches.Batches`.
          environment: What `run.json` records as `ran_with`.
          observers: The user's.
          evaluation: Called before the user's observers.
        """
        output, num_train_steps = self._output, self.plan.num_train_steps
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
            observers=[*progress, *evaluations, UserObservers(self.trainer, observers)],
        )

    def end(self) -> None:
        """Records that training has ended, once all its results are written."""
        if strategies.is_chief(self.trainer.strategy):
            provenance.end(self._output.output_dir)


def open_strategy(settings: TrainingSettings) -> tf.distribute.Strategy:
    """Returns the strategy of the settings, shared by all workers, and logs the GPUs.

    Raises:
      ValueError: where other workers have other options or versions, naming them.
    """
    strategy = strategies.open_strategy(settings)
    strategies.agree(strategy, identity.shared_by_workers(vars(settings)))
    return strategy


def log_training(settings: TrainingSettings, run: TrainingRun, batches: Any) -> None:
    """Logs what a training run needs of memory and disk, and warns where there is less."""
    if not strategies.is_chief(run.trainer.strategy):
        return
    num_replicas = run.trainer.strategy.num_replicas_in_sync
    for bert in memory.encoders_of(run.trainer.model):
        rows = max(batches.features["input_ids"].rows, 1)
        log_memory(settings, bert.config, num_replicas, rows)
        log_disk(settings, bert.config, run.plan.num_train_steps)


def log_memory(
    settings: TrainingSettings, config: BertConfig, num_replicas: int, rows: int = 1
) -> bool:
    """Logs the memory that training needs; returns whether there is enough, and warns if not."""
    values = vars(settings)
    return memory.log_training_memory(
        settings,
        config,
        num_sequences=values["train_batch_size"] * rows,
        num_replicas=num_replicas,
        length=values["max_seq_length"],
        num_predictions=getattr(settings, "num_predictions", 0),
    )


def log_disk(settings: TrainingSettings, config: BertConfig, *num_train_steps: int | None) -> None:
    """Logs the space that the checkpoints of one or several runs need, and warns if it is less."""
    memory.log_disk(settings, config, num_train_steps, count_weights_alone(settings))


def count_weights_alone(settings: TrainingSettings) -> int:
    """Returns how many checkpoints a run writes that hold weights without the optimizer's slots.

    These are the finished weights of a fine-tuned model, and where there are evaluations on the
    way, the best ones and the next best.
    """
    if not hasattr(settings, "num_train_epochs"):
        return 0
    return 1 + 2 * settings.evaluates_in_training()  # type: ignore[attr-defined]


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
    logging.info(
        "Devices: %d used%s; this machine has %d GPUs and %d CPU cores.",
        used,
        f" by {type(strategy).__name__}" if tf.distribute.has_strategy() else "",
        gpus,
        os.cpu_count(),
    )
    if gpus > used:
        logging.warning(
            "%d GPUs are idle: %s uses all.", gpus - used, Option("strategy", "mirrored")
        )
    if used == 1 and compute.all_reduce_precision != "float32":
        logging.warning(
            "%s has no effect on one device.",
            Option("all_reduce_precision", compute.all_reduce_precision),
        )
    logging.info(
        "Model: %s parameters, computing in %s.",
        f"{model.count_params():,}",
        compute.precision,
    )
    logging.info("Flags: %s; the others are as by default.", " ".join(typed_flags(changed)))

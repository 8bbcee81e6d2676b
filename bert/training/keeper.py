"""What a training has reached is saved, however it ends."""

import contextlib
import signal
from collections.abc import Iterator
from typing import Any

import tensorflow as tf
from absl import logging

from bert.files.signals import Stop, deferred_stop, stop_signal, take_signals_again
from bert.training.train_log import TrainLog
from bert.weights.checkpoint import Checkpoints, UnsoundError

REMEDY = (
    "Try a smaller --learning_rate or a longer warm-up (--num_warmup_steps in run_pretraining.py, "
    "--warmup_proportion elsewhere); with --resume_with_changes, the training goes on from the "
    "last checkpoint."
)


class NonFiniteLossError(ArithmeticError):
    """The loss or the norm of its gradients is infinite or not a number."""


class Keeper:
    """Saves the steps of a training, the last one however the training ends.

    Args:
      trainer: As `loop.Trainer`.
      checkpoints: Where to save, None for nowhere.
      has_several_workers: Whether other processes take the same steps.
      log: Written before the checkpoint that it belongs to, so that none is without it.
      pending: As `results.Results`; what it has not read yet is read before the last save.
    """

    def __init__(
        self,
        trainer: Any,
        checkpoints: Checkpoints | None,
        *,
        has_several_workers: bool,
        log: TrainLog | None = None,
        pending: Any = None,
    ) -> None:
        self._trainer = trainer
        self._pending = pending
        self._checkpoints = checkpoints
        self._log = log
        self._has_several_workers = has_several_workers
        self._saved = trainer.step
        # The step that the weights are of, None while they are changing.
        self._reached: int | None = self._saved
        self._together = contextlib.ExitStack()

    def __enter__(self) -> "Keeper":
        if self._has_several_workers:
            take_signals_again()
            # None may leave the others, who would wait for it.
            self._together.enter_context(deferred_stop())
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, KeyboardInterrupt) and self._reached is None:
            # It comes before a step or after it.
            self._reached = self._trainer.step
        if error:
            try:
                if self._reached is not None and self._pending:
                    self._pending.read()
                # What led to the end is seen there even if that step is not to be saved.
                self._write_log()
                self.save()
            except (OSError, ArithmeticError, tf.errors.OpError) as other:
                logging.error("Step %d could not be saved: %s", self._trainer.step, other)
        self._together.__exit__(kind, error, trace)
        if isinstance(error, Stop):
            step = self._trainer.step
            raise Stop(error.number, f"Stopped at step {step}; the same command goes on.") from None

    @contextlib.contextmanager
    def taking_step(self, step: int) -> Iterator[None]:
        """Lets a step end; then raises `Stop` if a signal asked for it, on all workers alike.

        Args:
          step: Its number; to ask the trainer for it would wait until a GPU has done the step.
        """
        with deferred_stop():
            self._reached = None
            yield
            self._reached = step
        if self._trainer.is_stop_agreed:
            raise Stop(stop_signal() or signal.SIGTERM)

    def save(self) -> None:
        """Saves the step that is reached, unless it is saved."""
        reached = self._reached
        if reached in (self._saved, None) or self._checkpoints is None:
            return
        with deferred_stop():
            self._reached = None
            self._write_log()
            try:
                prefix = self._checkpoints.save(self._trainer.state(), reached)
            except UnsoundError as error:
                raise NonFiniteLossError(
                    f"The weights must stay finite. At step {reached}: {error} The checkpoints "
                    f"before it are kept. {REMEDY}"
                ) from error
            logging.info("Saved %s.", prefix)
            self._saved = self._reached = reached

    def _write_log(self) -> None:
        if self._log:
            self._log.write()

"""The observers of a training run, in the order in which they are called.

1. `Signals`: a signal that arrives within a step ends training after it.
2. `Results`: the results of all steps go to the log, unread ones at the end.
3. The log of the process and TensorBoard (`progress.py`).
4. Evaluation, which may end training early (`evaluation.py`).
5. The observers of the library's user.
6. `Saving`, the last: the last step is saved however training ends.

Before all of them, workers leave the block that they run together, since saving must not hold up
the others when one has failed. After all of them, an exception `Stop` gets its message.
"""

import contextlib
import signal
from collections.abc import Iterator, Mapping, Sequence

import tensorflow as tf

from bert.files.process import Stop, deferred_stop, stop_signal
from bert.log import logger
from bert.training.loop import NonFiniteLossError, Observer
from bert.training.progress import TrainLog
from bert.training.strategies import has_several_workers, is_chief
from bert.training.trainer import Trainer
from bert.weights.formats import UnsoundError
from bert.weights.saving import Checkpoints


class Signals(Observer):
    """Defers a signal until the end of a step; then raises `Stop`, on all workers alike."""

    def __init__(self, trainer: Trainer) -> None:
        self._trainer = trainer

    @contextlib.contextmanager
    def around_step(self, step: int) -> Iterator[None]:
        with deferred_stop():
            yield
        if self._trainer.is_stop_agreed:
            raise Stop(stop_signal() or signal.SIGTERM)

    def at_end(self, error: BaseException | None) -> None:
        if isinstance(error, KeyboardInterrupt) and self._trainer.reached is None:
            # The signal arrived between two steps.
            self._trainer.reached = self._trainer.step


class Results(Observer):
    """Adds the results of all steps to the log, whose file `Saving` writes.

    Args:
      trainer: The trainer, which may have unread results when training ends.
      log: The log; None on workers that write nothing.
    """

    def __init__(self, trainer: Trainer, log: TrainLog | None) -> None:
        self._trainer = trainer
        self._log = log

    def after_step(self, step: int, results: Mapping[str, float]) -> None:
        if self._log:
            self._log.add(step, results)

    def at_end(self, error: BaseException | None) -> None:
        with _logged_beside(error, self._trainer):
            for step, results in self._trainer.finish_steps():
                self.after_step(step, results)
        if error and self._log:
            # The file shows what led to the error even if its step cannot be saved.
            with _logged_beside(error, self._trainer):
                self._log.write()


class _UserObserver(Observer):
    """An observer of the library's user, which is named where it raises an exception.

    Args:
      observer: The observer.
      is_alone: Whether this is the only worker. Several workers must read results at the same steps
        and end together, so that an observer of the chief can decide neither.
    """

    def __init__(self, observer: Observer, is_alone: bool) -> None:
        self._observer = observer
        self._is_alone = is_alone

    @contextlib.contextmanager
    def _named(self) -> Iterator[None]:
        try:
            yield
        except Exception:
            logger.error("The observer %s has failed.", type(self._observer).__name__)
            raise

    def needs_results(self, step: int) -> bool:
        with self._named():
            needs = self._observer.needs_results(step)
        return needs and self._is_alone

    @contextlib.contextmanager
    def around_step(self, step: int) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            with self._named():
                stack.enter_context(self._observer.around_step(step))
            yield

    def after_step(self, step: int, results: Mapping[str, float]) -> bool | None:
        with self._named():
            ends = self._observer.after_step(step, results)
            if ends and not self._is_alone:
                raise ValueError("An observer must not end a run of several workers.")
        return ends

    def at_end(self, error: BaseException | None) -> None:
        with self._named():
            self._observer.at_end(error)


def user_observers(
    strategy: tf.distribute.Strategy, observers: Sequence[Observer]
) -> list[Observer]:
    """Returns the observers of the library's user for the loop: none in workers but the chief."""
    is_alone = not has_several_workers(strategy)
    return (
        [_UserObserver(observer, is_alone) for observer in observers] if is_chief(strategy) else []
    )


class Saving(Observer):
    """Saves checkpoints during training, and the last step however training ends.

    Args:
      trainer: The trainer, whose state is saved.
      checkpoints: The checkpoints of the run; None on workers that write nothing.
      first_step: The step that training starts after.
      every: Steps between checkpoints.
      num_train_steps: The last step; None where there is a clock.
      log: Written before the checkpoint of the same step, so that none is without it.
    """

    def __init__(
        self,
        trainer: Trainer,
        checkpoints: Checkpoints | None,
        *,
        first_step: int,
        every: int,
        num_train_steps: int | None,
        log: TrainLog | None,
    ) -> None:
        self._trainer = trainer
        self._checkpoints = checkpoints
        self._every = every
        self._num_train_steps = num_train_steps
        self._log = log
        self._saved = trainer.reached = first_step

    def needs_results(self, step: int) -> bool:
        return step % self._every == 0 or step == self._num_train_steps

    def after_step(self, step: int, results: Mapping[str, float]) -> None:
        is_due = self.needs_results(step) or self._trainer.is_last(step, self._num_train_steps)
        if is_due and step == self._trainer.reached:
            self._save()

    def at_end(self, error: BaseException | None) -> None:
        with _logged_beside(error, self._trainer):
            self._save()
        if isinstance(error, Stop):
            step = self._trainer.step
            raise Stop(error.number, f"Stopped at step {step}; the same command goes on.") from None

    def _save(self) -> None:
        """Saves the current step, unless it is saved already."""
        reached = self._trainer.reached
        if reached in (self._saved, None) or self._checkpoints is None:
            return
        with deferred_stop():
            self._trainer.reached = None
            if self._log:
                self._log.write()
            try:
                prefix = self._checkpoints.save(self._trainer.state(), reached)
            except UnsoundError as error:
                raise NonFiniteLossError.at(reached, "weights", error) from error
            logger.info("Saved %s.", prefix)
            self._saved = self._trainer.reached = reached


@contextlib.contextmanager
def _logged_beside(error: BaseException | None, trainer: Trainer) -> Iterator[None]:
    """Logs an error of saving, rather than raising it, where another exception ends training."""
    try:
        yield
    except (OSError, ArithmeticError, tf.errors.OpError) as other:
        if error is None:
            raise
        # An evaluation may have found the same weights.
        if not all(isinstance(each, NonFiniteLossError) for each in (error, other)):
            logger.error("Step %d could not be saved: %s", trainer.step, other)


def begin_saving(
    trainer: Trainer,
    *,
    num_train_steps: int | None,
    checkpoints: Checkpoints,
    save_checkpoints_steps: int,
    log: TrainLog | None = None,
    observers: Sequence[Observer] = (),
) -> list[Observer]:
    """Saves the weights of step 0; returns all observers of a training run, in their order.

    With these, `loop.train` saves its last step however training ends, except after an exception
    within a step, which may have changed a part of the weights. It raises `NonFiniteLossError` with
    the step and where its batch was written, and saves nothing after it; and after a signal `Stop`
    with the step.

    Args:
      trainer: As `loop.train`.
      num_train_steps: As `loop.train`.
      checkpoints: The checkpoints of the run; only the chief worker saves.
      save_checkpoints_steps: Steps between checkpoints.
      log: Records the results of the steps that are saved.
      observers: Called after the results are in the log and before a step is saved.
    """
    saves = is_chief(trainer.strategy)
    start = trainer.step
    if saves and start == 0:
        with deferred_stop():
            checkpoints.save(trainer.state(), start)
    trainer.folder = checkpoints.folder if saves else None
    return [
        Signals(trainer),
        Results(trainer, log),
        *observers,
        Saving(
            trainer,
            checkpoints if saves else None,
            first_step=start,
            every=save_checkpoints_steps,
            num_train_steps=num_train_steps,
            log=log,
        ),
    ]

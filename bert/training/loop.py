"""The training loop: read a batch, take a step, call the observers (paper, appendix A.2).

Everything else in a training run is an observer: see `observers.py` for the observers that log,
save and react to signals, and for the order in which they are called.
"""

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from bert.options import MessageError, Option

Tensor = Any
Batch = Mapping[str, Tensor]


@dataclasses.dataclass(frozen=True)
class Objective:
    """The objective of a training run, as a sum of parts.

    Attributes:
      weights: Returns for a batch what the sum of each part is divided by.
      losses: Returns the share of a batch of each part, from the outputs of the model, the batch
        and the weights of the whole step.
    """

    weights: Callable[[Batch], dict[str, Tensor]]
    losses: Callable[[Mapping[str, Tensor], Batch, Mapping[str, Tensor]], dict[str, Tensor]]


class NonFiniteLossError(MessageError, ArithmeticError):
    """The loss, the norm of its gradients or a weight is infinite or not a number."""

    @classmethod
    def at(cls, step: int, what: str, found: object) -> "NonFiniteLossError":
        """Returns the error of a step, of which `found` is a sentence."""
        options = ("learning_rate", "num_warmup_steps", "warmup_proportion", "resume_with_changes")
        return cls(
            "The %s must stay finite. At step %d: %s The checkpoints before it are kept. Try a "
            "smaller %s or a longer warm-up (%s in run_pretraining.py, %s elsewhere); with %s, "
            "training resumes from the last checkpoint.",
            what,
            step,
            found,
            *map(Option, options),
        )


class Observer:
    """A base class of callbacks around the steps of a training run.

    An observer that sends the loss somewhere:

        class Send(Observer):
            def after_step(self, step, results):
                send(step, results["loss"])
    """

    def needs_results(self, step: int) -> bool:
        """Returns whether all results must be read before the next step starts.

        Called before each step. Otherwise results may be read later, so that a GPU need not wait.
        """
        del step
        return False

    def around_step(self, step: int) -> contextlib.AbstractContextManager[Any]:
        """Returns a context in which a step is taken."""
        del step
        return contextlib.nullcontext()

    def after_step(self, step: int, results: Mapping[str, float]) -> bool | None:
        """Receives the results of a step, in order; a true value ends training.

        Args:
          step: The number of the step. The next step may already have started, except where
            `needs_results` of an observer returned true.
          results: `loss`, its parts, `learning_rate` and `gradient_norm`.
        """
        del step, results
        return None

    def at_end(self, error: BaseException | None) -> None:
        """Called once when training ends.

        Args:
          error: The exception that ended it, if any.
        """
        del error


def train(
    trainer: Any, batches: Any, num_train_steps: int | None, observers: Sequence[Observer]
) -> None:
    """Trains up to a step, or until the time budget of the trainer's clock is spent.

    Args:
      trainer: A `trainer.Trainer` that is already initialized; training resumes from its step.
      batches: As `batches.Batches`.
      num_train_steps: The last step, steps of earlier runs included; None where there is a clock.
      observers: Their methods are called in this order.
    """
    with trainer.deferring_signals(), _ending(observers), trainer.together():
        for step, batch in trainer.read(batches, num_train_steps):
            reads_all = any([observer.needs_results(step) for observer in observers])
            with _around_step(observers, step):
                trainer.take_step(step, batch, 0 if reads_all else trainer.num_unread)
            trainer.rest(step)
            ends = trainer.is_last(step, num_train_steps)
            for results in trainer.pop_results():
                ends |= any([observer.after_step(*results) for observer in observers])
            if ends:
                # A step may have started before an observer ended training.
                for results in trainer.finish_steps():
                    for observer in observers:
                        observer.after_step(*results)
                return


@contextlib.contextmanager
def _around_step(observers: Sequence[Observer], step: int) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        for observer in observers:
            stack.enter_context(observer.around_step(step))
        yield


@contextlib.contextmanager
def _ending(observers: Sequence[Observer]) -> Iterator[None]:
    """Calls `at_end` of all observers, also of those after one that raises an exception."""
    with contextlib.ExitStack() as stack:
        for observer in reversed(observers):
            stack.push(functools.partial(_end, observer))
        yield


def _end(observer: Observer, kind: Any, error: BaseException | None, trace: Any) -> None:
    del kind, trace
    observer.at_end(error)

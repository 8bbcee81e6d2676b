"""A training that goes by the clock: its schedule follows the time that it has trained.

Izsak, Berchansky and Levy, How to Train BERT with an Academic Budget (2021), section 3.
"""

import time
from collections.abc import Callable

import keras

import optimization

# Of what is counted, in a second.
_UNIT = 1_000_000
# The names of what a checkpoint keeps of a clock.
CLOCK_STATE = ("training_time", "training_time/last_step")


class TrainingClock:
    """Counts the time that is spent in training, of a budget.

    What counts is the time from step to step, data included; saving and evaluating do not, nor what
    is between two runs. The first step of a run builds its graph, too, so it counts as long as the
    step before it, and the very first one not at all.

    To be made under `strategy.scope()`.

    Args:
      budget: Seconds.
      now: Returns the time in seconds, from any beginning.

    Attributes:
      budget: As given.
    """

    def __init__(self, budget: float, now: Callable[[], float] = time.monotonic) -> None:
        self.budget = budget
        self._now = now
        self._since: float | None = None
        self._is_first = True
        # Seconds after the last step's end until that was kept.
        self._late = 0.0
        # Whole numbers add up to the same however often a training is stopped.
        self._spent, self._last_step = (
            keras.Variable(0, trainable=False, dtype="int64", name=name)
            for name in ("spent", "last_step")
        )
        # What they hold: to read them would wait for the steps that a GPU is at.
        self._known: tuple[int, int] | None = None

    def state(self) -> dict[str, keras.Variable]:
        """Returns what a resumed run needs, by its name in a checkpoint; in microseconds."""
        return dict(zip(CLOCK_STATE, (self._spent, self._last_step), strict=True))

    @property
    def spent(self) -> float:
        """The seconds that are spent."""
        return self._counted()[0] / _UNIT

    def _counted(self) -> tuple[int, int]:
        return self._known or (int(self._spent.numpy()), int(self._last_step.numpy()))

    @property
    def share(self) -> float:
        """The part of the budget that is spent, at most 1."""
        return min(self.spent / self.budget, 1.0)

    @property
    def is_over(self) -> bool:
        """Whether the budget is spent."""
        return self.share >= 1.0

    def optimizer(
        self, learning_rate: float, warmup_proportion: float
    ) -> optimization.AdamWeightDecayOptimizer:
        """Returns the optimizer whose schedule is of the time that is spent, in place of steps."""
        return optimization.bert_optimizer(
            learning_rate,
            round(self.budget * _UNIT),
            round(self.budget * _UNIT * warmup_proportion),
            step=lambda: self._spent,
        )

    def go(self) -> None:
        """Counts from here on."""
        self._since = self._now()

    def take(self) -> bool:
        """Counts up to here, where a step has ended; returns whether the budget is spent."""
        assert self._since is not None
        now = self._now()
        spent, last_step = self._counted()
        if not self._is_first:
            last_step = round((now - self._since + self._late) * _UNIT)
        self._is_first, self._since = False, now
        self._known = spent + last_step, last_step
        self._spent.assign(spent + last_step)
        self._last_step.assign(last_step)
        # A GPU may have let these wait for what it is at, which counts with the next step.
        self._late = self._now() - now
        return self.is_over

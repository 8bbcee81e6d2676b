"""Training within a time budget: the schedule follows the time spent in training.

Izsak, Berchansky and Levy, How to Train BERT with an Academic Budget (2021), section 3.
"""

import time
from collections.abc import Callable

import keras

import optimization

# Units of the counted time per second.
_UNIT = 1_000_000
# The names of the state of a clock in a checkpoint.
CLOCK_STATE = ("training_time", "training_time/last_step")


class TrainingClock:
    """Counts the time that is spent in training, out of a budget.

    The time from step to step counts, including reading data; saving, evaluating and the time
    between two runs do not. The first step of a run also builds the graph, so it counts as long as
    the last step of the run before, and the very first step not at all.

    Must be created under `strategy.scope()`.

    Args:
      budget: The time budget in seconds.
      now: Returns the time in seconds since any fixed moment.

    Attributes:
      budget: As given.
    """

    def __init__(self, budget: float, now: Callable[[], float] = time.monotonic) -> None:
        self.budget = budget
        self._now = now
        self._since: float | None = None
        self._is_first = True
        # Seconds that it took to assign the time of the last step.
        self._late = 0.0
        # Sums of integers are the same however often training is interrupted.
        self._spent, self._last_step = (
            keras.Variable(0, trainable=False, dtype="int64", name=name)
            for name in ("spent", "last_step")
        )
        # The values of both variables; reading these would wait for the steps on a GPU.
        self._known: tuple[int, int] | None = None

    def state(self) -> dict[str, keras.Variable]:
        """Returns the variables of a checkpoint by name; their values are microseconds."""
        return dict(zip(CLOCK_STATE, (self._spent, self._last_step), strict=True))

    @property
    def spent(self) -> float:
        """The seconds spent in training."""
        return self._counted()[0] / _UNIT

    def _counted(self) -> tuple[int, int]:
        return self._known or (int(self._spent.numpy()), int(self._last_step.numpy()))

    @property
    def share(self) -> float:
        """The fraction of the budget that is spent, at most 1."""
        return min(self.spent / self.budget, 1.0)

    @property
    def is_over(self) -> bool:
        """Whether the budget is spent."""
        return self.share >= 1.0

    def optimizer(
        self,
        learning_rate: float,
        warmup_proportion: float,
        kind: type[optimization.AdamWeightDecayOptimizer],
    ) -> optimization.AdamWeightDecayOptimizer:
        """Returns an optimizer whose schedule follows the time spent instead of the steps."""
        return optimization.bert_optimizer(
            learning_rate,
            round(self.budget * _UNIT),
            round(self.budget * _UNIT * warmup_proportion),
            step=lambda: self._spent,
            kind=kind,
        )

    def start(self) -> None:
        """Starts counting the time of a step."""
        self._since = self._now()

    def end_step(self) -> bool:
        """Counts the time of the step that ends now; returns whether the budget is spent."""
        assert self._since is not None
        now = self._now()
        spent, last_step = self._counted()
        if not self._is_first:
            last_step = round((now - self._since + self._late) * _UNIT)
        self._is_first, self._since = False, now
        self._known = spent + last_step, last_step
        self._spent.assign(spent + last_step)
        self._last_step.assign(last_step)
        # The assignments may have waited for a GPU; that time counts with the next step.
        self._late = self._now() - now
        return self.is_over

"""The progress of the workers of a training run, and which of them holds up the others.

Workers take each step together, and each batch of an evaluation. A worker that hangs, because a
file system does not answer, say, still sends its heartbeat: a time limit keeps the others from
waiting for it forever.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

# The environment variable with the time limit of a step, in seconds.
LIMIT = "BERT_STEP_TIMEOUT"
SECONDS_OF_A_STEP = 1800.0

# Seconds until a worker that hangs within a step ends after the loss of another one. The chief,
# which saves, has the seconds of an environment variable.
SECONDS_TO_END = 120.0
SAVE_LIMIT = "BERT_SAVE_TIMEOUT"
SECONDS_TO_SAVE = 600.0

# The parts of a step: the worker reads its batch; takes the step together with the others; and does
# whatever follows the step, such as saving.
READS, TAKES, RESTS = range(3)


class Place(NamedTuple):
    """How far a worker is; later places compare as greater.

    Attributes:
      step: The step, counted from 1; 0 outside training.
      part: `READS`, `TAKES` or `RESTS`.
      evaluated: Grows with each batch that is evaluated in this part; odd within an evaluation.
    """

    step: int
    part: int
    evaluated: int = 0

    @property
    def is_evaluating(self) -> bool:
        """Whether the worker evaluates or predicts."""
        return self.evaluated % 2 == 1

    @property
    def is_unlimited(self) -> bool:
        """Whether a worker may stay here for any time, such as to save."""
        return self.part == RESTS and not self.is_evaluating


# The place of a worker that takes no steps.
NOWHERE = Place(0, READS)


def seconds_of(environment: Mapping[str, str], name: str, default: float) -> float:
    """Returns the seconds in an environment variable.

    Raises:
      ValueError: where its value is not a positive number.
    """
    text = environment.get(name) or f"{default:g}"
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 < seconds < threading.TIMEOUT_MAX:
        raise ValueError(f"`{name}` must be a number of seconds. Received {text!r}.")
    return seconds


class Late(NamedTuple):
    """The workers that exceed the time limit.

    Attributes:
      indexes: The workers.
      step: The step that they have not completed; 0 outside training.
      seconds: The seconds since they began it.
      is_evaluating: Whether they evaluate or predict.
    """

    indexes: Sequence[int]
    step: int
    seconds: float
    is_evaluating: bool = False

    def describe(self, names: Sequence[str]) -> str:
        """Returns a message, given the names of all workers."""
        if len(self.indexes) == len(names):
            who, others = "No worker has", ""
        else:
            who = " and ".join(names[index] for index in self.indexes)
            who += " has not" if len(self.indexes) == 1 else " have not"
            others = ", where the others wait"
        what, where = "step", f"step {self.step}"
        if self.is_evaluating:
            what, where = "batch", "a batch of an evaluation or prediction"
            where += f" after step {self.step}" if self.step else ""
        return (
            f"{who} got beyond {where} in {self.seconds:.0f} s{others}. Where a {what} takes so "
            f"long, {LIMIT} gives more."
        )


class Pace:
    """The places of all workers, and which of them exceed the time limit.

    Args:
      limit: Maximum seconds for which a worker may stay at a place while another one waits for it,
        and for which all workers may stay at the same place within a step.
      clock: Returns the time in seconds.

    Attributes:
      place: The place of this worker.
    """

    def __init__(
        self, limit: float = SECONDS_OF_A_STEP, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.limit = limit
        self._clock = clock
        # By worker, each place and the time when it was reached.
        self._places: dict[int, tuple[Place, float]] = {}
        self.place = NOWHERE

    def at(self, step: int, part: int) -> None:
        """Sets the place of this worker."""
        self.place = Place(step, part)

    @contextlib.contextmanager
    def evaluating(self) -> Iterator[None]:
        """Marks an evaluation or prediction, also outside training; see `next_batch`."""
        is_outside = self.place == NOWHERE
        if is_outside:
            self.at(0, RESTS)
        try:
            yield
        finally:
            if is_outside:
                self.close()
            elif self.place.is_evaluating:
                self._advance(1)

    def next_batch(self) -> None:
        """Marks that this worker has read the next batch to evaluate."""
        self._advance(2 if self.place.is_evaluating else 1)

    def _advance(self, count: int) -> None:
        self.place = self.place._replace(evaluated=self.place.evaluated + count)

    def is_limited(self) -> bool:
        """Returns whether the time limit applies to the place of this worker."""
        return self.place != NOWHERE and not self.place.is_unlimited

    def close(self) -> None:
        """Marks that this worker takes no more steps."""
        self.place = NOWHERE

    def record(self, index: int, place: Place) -> None:
        """Records the place that a worker has reported."""
        if self._places.get(index, (None, 0.0))[0] != place:
            self._places[index] = place, self._clock()

    def find_late(self) -> Late | None:
        """Returns the workers that exceed the limit; None where there is none.

        There is none as long as any worker takes no steps.
        """
        places = dict(self._places)
        if len(places) < 2 or any(place == NOWHERE for place, _ in places.values()):
            return None
        first, last = min(places.values())[0], max(places.values())[0]
        if first == last and first.is_unlimited:
            return None
        # The time runs from when the first worker waits, or from when the last one has arrived.
        since = min(when for place, when in places.values() if place == last)
        since = max(since, *(when for place, when in places.values() if place == first))
        seconds = self._clock() - since
        if seconds <= self.limit:
            return None
        indexes = sorted(index for index, (place, _) in places.items() if place == first)
        is_evaluating = first[:2] == last[:2] and (first.is_evaluating or last.is_evaluating)
        return Late(indexes, first.step, seconds, is_evaluating)

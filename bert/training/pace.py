"""How far the workers of a training are, and which of them holds the others up.

Workers take each step together, and each batch of an evaluation, so that none is far ahead. One
that reads from a file system that does not answer, say, lives and tells so, and the others would
wait for it for ever.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

# The environment variable with the seconds that a step may take.
LIMIT = "BERT_STEP_TIMEOUT"
SECONDS_OF_A_STEP = 1800.0

# Where a worker is lost, the others end. One that stands still at a step cannot go on, and has so
# many seconds; the chief, which saves what there is, as many as an environment variable says.
SECONDS_TO_END = 120.0
SAVE_LIMIT = "BERT_SAVE_TIMEOUT"
SECONDS_TO_SAVE = 600.0

# Where a worker is at a step: it reads its batch; it takes it, together with the others; it does
# what comes behind it, such as to save.
READS, TAKES, RESTS = range(3)
_NOWHERE = 0
# A mark is three times the step and the part, and behind that so many bits. They grow with each
# batch that is evaluated there, and are odd as long as there may be another one.
_BITS = 32


def mark_of(step: int, part: int, passed: int = 0) -> int:
    """Returns the mark of a place: a step, a part of it, and what was evaluated there."""
    return (3 * step + part) << _BITS | passed


def _step_of(mark: int) -> int:
    return (mark >> _BITS) // 3


def _is_passing(mark: int) -> bool:
    return mark % 2 == 1


def _rests(mark: int) -> bool:
    """Returns whether somebody may stay at a place for any time, such as to save."""
    return (mark >> _BITS) % 3 == RESTS and not _is_passing(mark)


def seconds_of(environment: Mapping[str, str], name: str, default: float) -> float:
    """Returns the seconds that an environment variable says.

    Raises:
      ValueError: where it says something else than a number of them.
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
    """Who does not get on.

    Attributes:
      indexes: The workers.
      step: What they have not got beyond, 0 where there was no step before what they do.
      seconds: For how long.
      is_passing: Whether they evaluate or predict.
    """

    indexes: Sequence[int]
    step: int
    seconds: float
    is_passing: bool = False

    def told(self, names: Sequence[str]) -> str:
        """Returns a line, given what all workers are called."""
        if len(self.indexes) == len(names):
            who, others = "No worker has", ""
        else:
            who = " and ".join(names[index] for index in self.indexes)
            who += " has not" if len(self.indexes) == 1 else " have not"
            others = ", where the others wait"
        what, where = "step", f"step {self.step}"
        if self.is_passing:
            what, where = "batch", "a batch of an evaluation or prediction"
            where += f" after step {self.step}" if self.step else ""
        return (
            f"{who} got beyond {where} in {self.seconds:.0f} s{others}. Where a {what} takes so "
            f"long, {LIMIT} gives more."
        )


class Pace:
    """The places of all workers, as each tells its own.

    Whoever is behind while another one waits has until `limit`; so have all, where none gets beyond
    a step.

    Args:
      limit: Seconds in which each part of a step must end.
      clock: Gives the time in seconds.

    Attributes:
      mark: The own place, a number that grows; 0 where it takes no steps.
    """

    def __init__(
        self, limit: float = SECONDS_OF_A_STEP, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.limit = limit
        self._clock = clock
        self._places: dict[int, tuple[int, float]] = {}
        self.mark = _NOWHERE

    def at(self, step: int, part: int) -> None:
        """Says where this worker is: at a step, counted from 1, in one of its parts."""
        self.mark = mark_of(step, part)

    @contextlib.contextmanager
    def passing(self) -> Iterator[None]:
        """Says that all evaluate or predict some batches, each of which `passes` begins.

        Outside a training, too.
        """
        is_outside = self.mark == _NOWHERE
        if is_outside:
            self.at(0, RESTS)
        try:
            yield
        finally:
            if is_outside:
                self.close()
            elif _is_passing(self.mark):
                self.mark += 1

    def passes(self) -> None:
        """Says that it has read another batch of those."""
        self.mark += 2 if _is_passing(self.mark) else 1

    def waits(self) -> bool:
        """Returns whether this worker is where the others may keep it: not at a save, say."""
        return self.mark != _NOWHERE and not _rests(self.mark)

    def close(self) -> None:
        """Says that it takes no more steps."""
        self.mark = _NOWHERE

    def heard(self, index: int, mark: int) -> None:
        """Keeps what a worker says of its place."""
        if self._places.get(index, (None, 0.0))[0] != mark:
            self._places[index] = mark, self._clock()

    def late(self) -> Late | None:
        """Returns who does not get on; None where all do, or somebody takes no steps."""
        places = dict(self._places)
        if len(places) < 2 or any(mark == _NOWHERE for mark, _ in places.values()):
            return None
        first, last = min(places.values())[0], max(places.values())[0]
        # What all do behind a step may take any time.
        if first == last and _rests(first):
            return None
        # Since the first of the others has waited; since the last one has come, where all do.
        since = min(when for mark, when in places.values() if mark == last)
        since = max(since, *(when for mark, when in places.values() if mark == first))
        seconds = self._clock() - since
        if seconds <= self.limit:
            return None
        indexes = sorted(index for index, (mark, _) in places.items() if mark == first)
        is_passing = first >> _BITS == last >> _BITS and (_is_passing(first) or _is_passing(last))
        return Late(indexes, _step_of(first), seconds, is_passing)

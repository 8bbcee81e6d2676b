"""The connected workers of a training run: heartbeats, collectives, and the loss of a worker.

Each worker sends a heartbeat every second. The system of a killed worker closes its connection at
once; a worker that is stopped or cut off is lost after some silence. Workers take each step
together, and each batch of an evaluation: a worker that hangs, because a file system does not
answer, say, still sends its heartbeat, and a time limit keeps the others from waiting for it
forever.
"""

import contextlib
import json
import queue
import struct
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from bert.training.cluster import Cluster
from bert.training.link import (
    BEAT,
    LOSS,
    PART,
    SECONDS_OF_SILENCE,
    SECONDS_TO_COME,
    LostWorkerError,
    connect,
    shortened,
)

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

# After an error of TensorFlow, which notices a loss before its connection ends, this much silence
# is enough to suspect a worker.
_SECONDS_SUSPECT = 5.0
_SECONDS_TO_NAME = 20.0
_SECONDS_BETWEEN_BEATS = 1.0
_SECONDS_BETWEEN_LOOKS = 0.2
# Maximum characters of an error that other workers receive.
_LONGEST_REASON = 1000

_REMEDY = "Unless it overwrites, the same command resumes from the last checkpoint."

_PLACE = struct.Struct("!QQQ")


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


# The cluster of a single worker, which does not use its address.
ALONE = Cluster(("localhost:1",), 0)

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


class Meeting:
    """All workers of a cluster, once they are connected.

    Args:
      cluster: The workers; by default, this one alone.
      seconds: The time limit for connecting.
      pace: The places of the workers and their time limit; None for the default limit.
      token: The secret of all workers.

    Attributes:
      cluster: As given.
      pace: The places of the workers.
      wake: Called from another thread when a worker is lost within `together`.

    Raises:
      LostWorkerError: as `connect`.
      ValueError: as `connect`.
    """

    def __init__(
        self,
        cluster: Cluster = ALONE,
        seconds: float = SECONDS_TO_COME,
        pace: Pace | None = None,
        token: str = "",
    ) -> None:
        self.cluster = cluster
        self.pace = pace or Pace()
        self.wake: Callable[[str], None] | None = None
        self._is_together = False
        self._lost = ""
        self._turn = threading.Lock()
        self._links = connect(cluster, seconds, token)
        self._inbox: dict[int, queue.Queue[bytes | None]] = {i: queue.Queue() for i in self._links}
        for index in self._links:
            threading.Thread(target=self._listen, args=(index,), daemon=True).start()
        if self._links:
            threading.Thread(target=self._beat, daemon=True).start()

    @property
    def index(self) -> int:
        """The number of this worker."""
        return self.cluster.index

    @property
    def count(self) -> int:
        """The number of workers."""
        return len(self.cluster.workers)

    def all_gather(self, content: bytes) -> list[bytes]:
        """Returns the contents of all workers, in their order, once all have called this.

        Raises:
          LostWorkerError: where a worker is lost meanwhile.
        """
        if self.index:
            self._check()
            self._send_all(PART, content)
            return [self._take(0) for _ in range(self.count)]
        parts = [content, *(self._take(index) for index in sorted(self._links))]
        # With the lock: a worker may leave as soon as it has all parts, and the others must have
        # theirs before they hear of that.
        with self._turn:
            for part in parts:
                self._send_all(PART, part)
        return parts

    def check_same(self, values: Mapping[str, Any]) -> None:
        """Checks that all workers have the same values, by name.

        Raises:
          ValueError: on all workers alike, naming the workers that differ from the chief and how.
          LostWorkerError: as `all_gather`.
        """
        parts = self.all_gather(json.dumps(values, default=str).encode())
        chief, *others = (json.loads(part) for part in parts)
        different = [
            f"{self.cluster.name(index)} has {'; '.join(differences)}"
            for index, other in enumerate(others, start=1)
            if (differences := _differences(chief, other))
        ]
        if different:
            raise ValueError(
                "All workers must train with the same values. Other than the chief, "
                f"{'. '.join(different)}. Give all the same flags, files and versions."
            )

    @contextlib.contextmanager
    def together(self, symptom: type[Exception]) -> Iterator[None]:
        """Runs a block on all workers: none leaves it before all have finished it.

        Args:
          symptom: The exception that the loss of another worker may cause.

        Raises:
          LostWorkerError: naming the worker that is lost.
        """
        before, self._is_together = self._is_together, True
        try:
            self._check()
            yield
        except LostWorkerError:
            raise
        except Exception as error:
            # Who is alone loses nobody.
            if isinstance(error, symptom) and self._links:
                self._find_lost()
            reason = (str(error).splitlines() or [type(error).__name__])[0][:_LONGEST_REASON]
            reason = reason.rstrip(".")
            self._send_all(LOSS, f"{self._name(self.index)} has failed: {reason}.".encode())
            raise
        finally:
            self._is_together = before
        self.all_gather(b"")

    def close(self) -> None:
        """Disconnects this worker; the others lose it if they still need it."""
        self._lost = self._lost or "This worker has left."
        for link in self._links.values():
            link.close()

    def _find_lost(self) -> None:
        """Raises `LostWorkerError` as soon as it is clear which worker is lost, if any is."""
        end = time.monotonic() + _SECONDS_TO_NAME
        while time.monotonic() < end:
            self._check()
            for index, link in self._links.items():
                if (silence := time.monotonic() - link.heard) > _SECONDS_SUSPECT:
                    self._lose_silent(index, silence)
            time.sleep(_SECONDS_BETWEEN_LOOKS)

    def _name(self, index: int) -> str:
        name = self.cluster.name(index)
        return name[0].upper() + name[1:]

    def _check(self) -> None:
        if self._lost:
            raise LostWorkerError(f"{self._lost} {_REMEDY}")

    def _take(self, index: int) -> bytes:
        content = self._inbox[index].get()
        if content is None:
            # The next call must find it, too.
            self._inbox[index].put(None)
            self._check()
        assert content is not None
        return content

    def _listen(self, index: int) -> None:
        """Receives the messages of a worker until its connection ends."""
        link = self._links[index]
        try:
            while True:
                kind, content = link.receive()
                if kind == LOSS:
                    self._lose(content.decode(errors="replace"))
                elif kind == BEAT:
                    self.pace.record(index, Place(*_PLACE.unpack(content)))
                else:
                    self._inbox[index].put(content)
        except TimeoutError:
            self._lose_silent(index, SECONDS_OF_SILENCE)
        except (OSError, struct.error) as error:
            reason = getattr(error, "strerror", None) or error
            self._lose(f"{self._name(index)} is gone ({reason}).")

    def _lose_silent(self, index: int, seconds: float) -> None:
        self._lose(f"{self._name(index)} has not been heard of for {seconds:.0f} s.")

    def _lose(self, text: str) -> None:
        """Records the first loss of a worker; the chief reports it to the others."""
        with self._turn:
            if self._lost:
                return
            if self.index == 0:
                # Before the chief ends, which they would take for the loss.
                self._send_all(LOSS, text.encode())
            self._lost = text
        for inbox in self._inbox.values():
            inbox.put(None)
        if self._is_together and self.wake:
            self.wake(text)

    def _send_all(self, kind: bytes, content: bytes = b"") -> None:
        """Sends a message on all links; `_listen` notices which connection has ended."""
        for link in self._links.values():
            with contextlib.suppress(OSError):
                link.send(kind, content)

    def _beat(self) -> None:
        while not self._lost:
            place = self.pace.place
            self.pace.record(self.index, place)
            for link in self._links.values():
                with contextlib.suppress(OSError):
                    link.beat(_PLACE.pack(*place))
            # Only the chief knows the places of all.
            if self.index == 0 and (late := self.pace.find_late()):
                self._lose(late.describe([*map(self._name, range(self.count))]))
            time.sleep(_SECONDS_BETWEEN_BEATS)


def _differences(chief: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """Returns the values of a worker that differ from the chief's, for a message."""
    return [
        f"{name} {shortened(other.get(name))}, not {shortened(chief.get(name))}"
        for name in dict.fromkeys([*chief, *other])
        if _compared(other.get(name)) != _compared(chief.get(name))
    ]


def _compared(value: Any) -> Any:
    """Returns the part of a value that is compared: the content of files, not their names."""
    return value.get("sha256", value) if isinstance(value, Mapping) else value

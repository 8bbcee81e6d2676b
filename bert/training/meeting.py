"""The connected workers of a training run: heartbeats, collectives, and the loss of a worker.

Each worker sends a heartbeat every second. The system of a killed worker closes its connection at
once; a worker that is stopped or cut off is lost after some silence.
"""

import contextlib
import json
import queue
import struct
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from bert.training.cluster import Cluster
from bert.training.link import ALL, BEAT, LOSS, PART, pack, unpack
from bert.training.pace import Pace, Place
from bert.training.rendezvous import (
    SECONDS_OF_SILENCE,
    SECONDS_TO_COME,
    LostWorkerError,
    connect,
    shortened,
)

# After an error of TensorFlow, which notices a loss before its connection ends, this much silence
# is enough to suspect a worker.
_SECONDS_SUSPECT = 5.0
_SECONDS_TO_NAME = 20.0
_SECONDS_BETWEEN_BEATS = 1.0
_SECONDS_BETWEEN_LOOKS = 0.2
# Maximum characters of an error that other workers receive.
_LONGEST_REASON = 1000

_REMEDY = "The same command resumes from the last checkpoint."

_PLACE = struct.Struct("!QQQ")


class Meeting:
    """All workers of a cluster, once they are connected.

    Args:
      cluster: The workers.
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
        cluster: Cluster,
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
        if not self._links:
            return [content]
        if self.index:
            self._check()
            self._send_all(PART, content)
            return unpack(self._take(0))
        parts = [content, *(self._take(index) for index in sorted(self._links))]
        # With the lock: a worker may leave as soon as it has all parts, and the others must have
        # theirs before they hear of that.
        with self._turn:
            self._send_all(ALL, pack(parts))
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
            if isinstance(error, symptom):
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
            self._send_all(BEAT, _PLACE.pack(*place))
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

"""The connections between the workers of a training run: rendezvous, heartbeats, collectives.

All other workers connect to the chief, at the port that TensorFlow will listen at: it is free until
all have connected, and connections outlive the socket that accepted them. From then on, each sends
a heartbeat every second. The system of a killed worker closes its connection at once; a worker that
is stopped or cut off is lost after some silence.

Where all workers are on this machine, the chief listens at the loopback interface alone. A greeting
carries a proof that its sender knows the secret token of these workers; without a token, the proof
is of the empty one.
"""

import contextlib
import hmac
import json
import queue
import secrets
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from bert.log import logger
from bert.training.cluster import Cluster
from bert.training.link import (
    ALL,
    BEAT,
    HELLO,
    LOSS,
    PART,
    PROOF_BYTES,
    REFUSED,
    TOKEN,
    Link,
    pack,
    prove,
    unpack,
)
from bert.training.pace import Pace, Place, seconds_of

# The exit status of a worker that has lost another one: all may be restarted.
LOST = 75

# The environment variable with the seconds that workers wait for each other at the start.
TIMEOUT = "BERT_WORKER_TIMEOUT"
SECONDS_TO_COME = 600.0
# The maximum silence of a live worker, which may be within a call that holds Python's lock. After
# an error of TensorFlow, which notices a loss sooner, less silence is enough to suspect a worker.
SECONDS_OF_SILENCE = 60.0
_SECONDS_SUSPECT = 5.0
_SECONDS_TO_NAME = 20.0
_SECONDS_BETWEEN_BEATS = 1.0
_SECONDS_BETWEEN_TRIES = 0.2
_SECONDS_TO_GREET = 5.0
_SECONDS_BETWEEN_LOOKS = 0.05
# Maximum connections without a greeting. A further one takes the place of the oldest: a worker
# greets at once.
_MOST_GUESTS = 100
# Maximum characters of an error that other workers receive.
_LONGEST_REASON = 1000

_REMEDY = "The same command resumes from the last checkpoint."

_PLACE = struct.Struct("!QQQ")


def seconds_to_come(environment: Mapping[str, str]) -> float:
    """Returns how long workers wait for each other at the start.

    Raises:
      ValueError: where the environment variable is not a positive number.
    """
    return seconds_of(environment, TIMEOUT, SECONDS_TO_COME)


class LostWorkerError(ConnectionError):
    """Another worker has not connected, or is lost, so that this one cannot continue.

    Attributes:
      exit_status: The exit status of the script.
    """

    exit_status = LOST


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
      LostWorkerError: naming the workers that have not connected.
      ValueError: where workers have different lists of workers or tokens, or nothing can listen at
        the port.
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
        # The chief has a link to each other worker, which has one to the chief alone.
        if len(cluster.workers) == 1:
            self._links: dict[int, Link] = {}
        elif cluster.index == 0:
            self._links = _Reception(cluster, seconds, token).links
        else:
            self._links = {0: _visit(cluster, seconds, token)}
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
            time.sleep(_SECONDS_BETWEEN_TRIES)

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


class _Reception:
    """The chief until all other workers are connected.

    Attributes:
      links: The link to each other worker.
    """

    def __init__(self, cluster: Cluster, seconds: float, token: str) -> None:
        self._cluster, self._token = cluster, token
        self.links: dict[int, Link] = {}
        self._guests: list[Link] = []
        self._greetings: queue.Queue[tuple[Link, bytes]] = queue.Queue()
        self._refused: set[str] = set()
        try:
            with _open(cluster) as listening:
                self._receive(listening, time.monotonic() + seconds)
        except TimeoutError:
            missing = {*range(1, len(cluster.workers))} - {*self.links}
            self._send_away(LostWorkerError(_missing(cluster, missing, seconds)))
        finally:
            for guest in self._guests:
                guest.close()
        for link in self.links.values():
            link.limit(SECONDS_OF_SILENCE)
            # `Meeting` notices a worker that has disconnected again.
            with contextlib.suppress(OSError):
                link.send(HELLO)

    def _receive(self, listening: socket.socket, end: float) -> None:
        listening.settimeout(_SECONDS_BETWEEN_LOOKS)
        while len(self.links) < len(self._cluster.workers) - 1:
            if time.monotonic() > end:
                raise TimeoutError
            with contextlib.suppress(OSError):
                self._admit(Link(listening.accept()[0], _SECONDS_TO_GREET))
            while not self._greetings.empty():
                self._welcome(*self._greetings.get())

    def _admit(self, guest: Link) -> None:
        """Waits for a greeting in a separate thread, so that no guest holds up the others."""
        self._guests.append(guest)
        if len(self._guests) > _MOST_GUESTS:
            self._guests.pop(0).close()
        threading.Thread(target=self._hear, args=(guest,), daemon=True).start()

    def _hear(self, guest: Link) -> None:
        kind, content = b"", b""
        with contextlib.suppress(OSError):
            kind, content = guest.receive()
        self._greetings.put((guest, content if kind == HELLO else b""))

    def _welcome(self, link: Link, greeting: bytes) -> None:
        if link in self._guests:
            self._guests.remove(link)
        proof, content = greeting[:PROOF_BYTES], greeting[PROOF_BYTES:]
        try:
            if not hmac.compare_digest(proof, prove(self._token, HELLO, content)):
                self._refuse(link, is_greeting=bool(greeting))
            hello = json.loads(content)
            index, workers = int(hello["index"]), hello["workers"]
            if not 0 < index < len(self._cluster.workers):
                raise ValueError
            link.send(BEAT, prove(self._token, BEAT, content))
        except (OSError, ValueError, TypeError, KeyError, OverflowError, RecursionError):
            # Not a worker: any program may connect.
            link.close()
            return
        if workers != [*self._cluster.workers]:
            self._send_away(
                ValueError(
                    "All workers must have the same list of workers, in the same order. That of "
                    f"worker {index} is {_short(workers)}, that of the chief "
                    f"{_short([*self._cluster.workers])}."
                ),
                link,
            )
        if before := self.links.get(index):
            # A worker may have died and been restarted while others were awaited.
            if not before.is_closed():
                self._send_away(
                    ValueError(
                        f"Each worker must have a number of its own. Two say that they are {index}."
                    ),
                    link,
                )
            before.close()
        self.links[index] = link

    def _refuse(self, link: Link, *, is_greeting: bool) -> None:
        """Raises `ValueError`; tells a guest with another token why, and logs its host once."""
        if is_greeting and (host := link.peer()) not in self._refused:
            self._refused.add(host)
            logger.warning(
                "A process at %s has another %s than the chief, or none. It is refused, and the "
                "workers are still awaited.",
                host,
                TOKEN,
            )
        if is_greeting:
            link.send(REFUSED)
        raise ValueError

    def _send_away(self, error: Exception, *others: Link) -> None:
        """Raises an error, on the connected workers and `others`, too."""
        for link in (*self.links.values(), *others):
            with contextlib.suppress(OSError):
                link.send(LOSS, str(error).encode())
            link.close()
        raise error


def _open(cluster: Cluster) -> socket.socket:
    """Returns the socket of the chief, at the port that TensorFlow will use."""
    host, port = cluster.address(0)
    is_dual = socket.has_dualstack_ipv6() and not cluster.is_local
    is_ipv6 = is_dual or (cluster.is_local and ":" in host)
    try:
        return socket.create_server(
            (host if cluster.is_local else "", port),
            family=socket.AF_INET6 if is_ipv6 else socket.AF_INET,
            dualstack_ipv6=is_dual,
        )
    except OSError as error:
        raise ValueError(
            f"The chief must be able to listen at port {port}. {error.strerror}. Free it, or give "
            "another port to all workers."
        ) from error


def _visit(cluster: Cluster, seconds: float, token: str) -> Link:
    """Returns the link to the chief, once all workers are connected."""
    end = time.monotonic() + seconds
    reason: object = "no answer"
    while (left := end - time.monotonic()) > 0:
        try:
            link = _greet(cluster, left, token)
        except OSError as error:
            reason = error.strerror or error
            time.sleep(_SECONDS_BETWEEN_TRIES)
            continue
        try:
            link.limit(seconds + _SECONDS_TO_GREET)
            _await(link, HELLO)
        except OSError as error:
            link.close()
            raise LostWorkerError(str(error)) from error
        link.limit(SECONDS_OF_SILENCE)
        return link
    raise LostWorkerError(f"{_missing(cluster, [0], seconds)} ({reason})")


def _greet(cluster: Cluster, seconds: float, token: str) -> Link:
    """Returns a link to the chief, which has proved that it knows the token."""
    connection = socket.create_connection(cluster.address(0), timeout=seconds)
    link = Link(connection, _SECONDS_TO_GREET)
    try:
        # The nonce ties the answer to this greeting.
        hello = {"index": cluster.index, "workers": cluster.workers, "nonce": secrets.token_hex()}
        content = json.dumps(hello).encode()
        link.send(HELLO, prove(token, HELLO, content) + content)
        # Another program at this port, or the chief of an earlier run, does not answer so.
        if not hmac.compare_digest(_await(link, BEAT), prove(token, BEAT, content)):
            raise OSError(f"the chief's {TOKEN} is another one")
    except (OSError, ValueError):
        link.close()
        raise
    return link


def _await(link: Link, awaited: bytes) -> bytes:
    kind, content = link.receive()
    if kind == LOSS:
        raise LostWorkerError(content.decode(errors="replace"))
    if kind == REFUSED:
        raise ValueError(
            f"All workers must have the same {TOKEN} and the same version of the project. Those of "
            "the chief differ."
        )
    if kind != awaited:
        raise OSError("the answer is not that of a chief")
    return content


def _missing(cluster: Cluster, missing: Iterable[int], seconds: float) -> str:
    names = ", ".join(cluster.name(index) for index in sorted(missing))
    return (
        f"All {len(cluster.workers)} workers must connect within {seconds:g} s, or as many as "
        f"{TIMEOUT} says. Missing: {names}. Start the same command there, and check that other "
        "machines reach that one."
    )


def _differences(chief: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """Returns the values of a worker that differ from the chief's, for a message."""
    return [
        f"{name} {_short(other.get(name))}, not {_short(chief.get(name))}"
        for name in dict.fromkeys([*chief, *other])
        if _compared(other.get(name)) != _compared(chief.get(name))
    ]


def _compared(value: Any) -> Any:
    """Returns the part of a value that is compared: the content of files, not their names."""
    return value.get("sha256", value) if isinstance(value, Mapping) else value


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}..."

"""Workers that meet before they train, compare what they train with, and miss one that is lost.

All others connect to the chief, at the port that TensorFlow will listen at: it is free until all
have come, and connections outlive the socket that took them, so that no port is needed besides.
Each then tells the chief every second that it lives. A worker that is killed is missed at once, for
its system closes the connection; one that is stopped, or cut off, after some silence.

Where all are on this machine, the chief listens at the loopback interface alone. Each greeting
carries a proof that its sender knows the secret of these workers; who has none shares the empty
one with everybody.
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
from bert.training.pace import Pace, seconds_of

# The exit status of a worker that has lost another one: all may be started again.
LOST = 75

# The environment variable with the seconds that workers wait for one another at the start.
TIMEOUT = "BERT_WORKER_TIMEOUT"
SECONDS_TO_COME = 600.0
# In which a worker that lives may not once have been heard: it may be busy with a single call that
# lets no other thread run. TensorFlow, which notices sooner, asks for whom to name after fewer.
SECONDS_OF_SILENCE = 60.0
_SECONDS_SUSPECT = 5.0
_SECONDS_TO_NAME = 20.0
_SECONDS_BETWEEN_BEATS = 1.0
_SECONDS_BETWEEN_TRIES = 0.2
_SECONDS_TO_GREET = 5.0
_SECONDS_BETWEEN_LOOKS = 0.05
# How many may have connected without a greeting. Where another one comes, the first has to go: a
# worker greets at once.
_MOST_GUESTS = 100
# The longest reason that the others hear, in characters.
_LONGEST_REASON = 1000

_REMEDY = "The same command goes on from the last checkpoint."

_MARK = struct.Struct("!Q")


def seconds_to_come(environment: Mapping[str, str]) -> float:
    """Returns how long workers wait for one another at the start.

    Raises:
      ValueError: where the environment says so in other words than a number.
    """
    return seconds_of(environment, TIMEOUT, SECONDS_TO_COME)


class LostWorkerError(ConnectionError):
    """Another worker has not come, or is gone, so that this one cannot go on.

    Attributes:
      exit_status: With which a script ends.
    """

    exit_status = LOST


class Meeting:
    """All workers of a cluster, from when they have met.

    Args:
      cluster: Who they are.
      seconds: How long to wait for them.
      pace: How far they are, where it is not to be the usual one.
      token: The secret of all workers.

    Attributes:
      cluster: As given.
      pace: How far all are, which each says of itself.
      wake: Called, by another thread, where one is lost while all work together.

    Raises:
      LostWorkerError: where one has not come, naming it.
      ValueError: where others were told of other workers or another token, or nothing can listen
        at the port.
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
        # Of the chief, a link to each other worker; of another, that to the chief.
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

    def share(self, content: bytes) -> list[bytes]:
        """Returns what each worker gives, in their order; all wait for one another.

        Raises:
          LostWorkerError: where one is lost meanwhile.
        """
        if not self._links:
            return [content]
        if self.cluster.index:
            self._check()
            # Where the chief is gone, it is missed by who listens.
            self._tell(PART, content)
            return unpack(self._take(0))
        parts = [content, *(self._take(index) for index in sorted(self._links))]
        # One that has all may leave before another one has: to that one, it is not lost.
        with self._turn:
            self._tell(ALL, pack(parts))
        return parts

    def agree(self, values: Mapping[str, Any]) -> None:
        """Compares what the workers have, by name.

        Raises:
          ValueError: on all workers alike, where it is not the same, naming who has what.
          LostWorkerError: as `share`.
        """
        parts = self.share(json.dumps(values, default=str).encode())
        chief, *others = (json.loads(part) for part in parts)
        told = [
            f"{self.cluster.name(index)} has {'; '.join(differences)}"
            for index, own in enumerate(others, start=1)
            if (differences := _differences(chief, own))
        ]
        if told:
            raise ValueError(
                f"All workers must train with the same. Other than the chief, {'. '.join(told)}. "
                "Give all the same flags, files and versions."
            )

    @contextlib.contextmanager
    def together(self, symptom: type[Exception]) -> Iterator[None]:
        """Does what all workers do together: none leaves before all are done.

        Args:
          symptom: What is raised where another worker may be lost.

        Raises:
          LostWorkerError: where one is, naming it.
        """
        before, self._is_together = self._is_together, True
        try:
            self._check()
            yield
        except LostWorkerError:
            raise
        except symptom as error:
            self._find_lost()
            self._tell_failure(error)
            raise
        except Exception as error:
            self._tell_failure(error)
            raise
        finally:
            self._is_together = before
        self.share(b"")

    def close(self) -> None:
        """Leaves it, so that the others lose this worker if they still need it."""
        self._lost = self._lost or "This worker has left."
        for link in self._links.values():
            link.close()

    def _find_lost(self) -> None:
        """Raises `LostWorkerError` as soon as it is clear who is lost, if anybody is."""
        end = time.monotonic() + _SECONDS_TO_NAME
        while time.monotonic() < end:
            self._check()
            for index, link in self._links.items():
                silence = time.monotonic() - link.heard
                if silence > _SECONDS_SUSPECT:
                    self._lose(f"{self._name(index)} has not been heard of for {silence:.0f} s.")
            time.sleep(_SECONDS_BETWEEN_TRIES)

    def _tell_failure(self, error: Exception) -> None:
        reason = (str(error).splitlines() or [type(error).__name__])[0][:_LONGEST_REASON]
        reason = reason.rstrip(".")
        self._tell(LOSS, f"{self._name(self.cluster.index)} has failed: {reason}.".encode())

    def _name(self, index: int) -> str:
        name = self.cluster.name(index)
        return name[0].upper() + name[1:]

    def _check(self) -> None:
        if self._lost:
            raise LostWorkerError(f"{self._lost} {_REMEDY}")

    def _take(self, index: int) -> bytes:
        content = self._inbox[index].get()
        if content is None:
            # For whoever asks next.
            self._inbox[index].put(None)
            self._check()
        assert content is not None
        return content

    def _listen(self, index: int) -> None:
        """Takes what comes from a worker, until nothing does."""
        link = self._links[index]
        try:
            while True:
                kind, content = link.receive()
                if kind == LOSS:
                    self._lose(content.decode(errors="replace"))
                elif kind == BEAT:
                    # One of an older version says no more than that it lives.
                    is_mark = len(content) == _MARK.size
                    self.pace.heard(index, *(_MARK.unpack(content) if is_mark else (0,)))
                else:
                    self._inbox[index].put(content)
        except TimeoutError:
            self._lose(f"{self._name(index)} has not been heard of for {SECONDS_OF_SILENCE:.0f} s.")
        except OSError as error:
            reason = getattr(error, "strerror", None) or error
            self._lose(f"{self._name(index)} is gone ({reason}).")

    def _lose(self, text: str) -> None:
        """Keeps that a worker is lost, the first time; the chief tells it to the others."""
        with self._turn:
            if self._lost:
                return
            if self.cluster.index == 0:
                # Before it ends itself, which they would take for the loss.
                self._tell(LOSS, text.encode())
            self._lost = text
        for each in self._inbox.values():
            each.put(None)
        if self._is_together and self.wake:
            self.wake(text)

    def _tell(self, kind: bytes, content: bytes = b"") -> None:
        """Sends a message on all links; who is gone is missed by who listens."""
        for link in self._links.values():
            with contextlib.suppress(OSError):
                link.send(kind, content)

    def _beat(self) -> None:
        while not self._lost:
            mark = self.pace.mark
            self.pace.heard(self.cluster.index, mark)
            self._tell(BEAT, _MARK.pack(mark))
            # The others know of themselves and of the chief alone.
            if self.cluster.index == 0 and (late := self.pace.late()):
                self._lose(late.told([*map(self._name, range(len(self.cluster.workers)))]))
            time.sleep(_SECONDS_BETWEEN_BEATS)


class _Reception:
    """The chief, as long as not all have come.

    Attributes:
      links: To each other worker.
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
            self._send_away(LostWorkerError(_not_come(cluster, missing, seconds)))
        finally:
            for guest in self._guests:
                guest.close()
        for link in self.links.values():
            link.limit(SECONDS_OF_SILENCE)
            # Who is gone again is missed by who listens.
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
        """Waits for a greeting in a thread of its own, so that nobody holds up the others."""
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
            told = json.loads(content)
            index, workers = int(told["index"]), told["workers"]
            if not 0 < index < len(self._cluster.workers):
                raise ValueError
            # It may stay longer than its predecessor, which has died while others were awaited.
            link.send(BEAT, prove(self._token, BEAT, content))
        except (OSError, ValueError, TypeError, KeyError, OverflowError, RecursionError):
            # Anybody may connect.
            link.close()
            return
        if workers != [*self._cluster.workers]:
            self.links[-1] = link
            self._send_away(
                ValueError(
                    "All workers must be told of the same workers, in the same order. Worker "
                    f"{index} was told of {_short(workers)}, the chief of "
                    f"{_short([*self._cluster.workers])}."
                )
            )
        if before := self.links.get(index):
            if not before.is_closed():
                self.links[-1] = link
                self._send_away(
                    ValueError(
                        f"Each worker must have a number of its own. Two say that they are {index}."
                    )
                )
            before.close()
        self.links[index] = link

    def _refuse(self, link: Link, *, is_greeting: bool) -> None:
        """Raises `ValueError`; says why to whoever has greeted with another token."""
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

    def _send_away(self, error: Exception) -> None:
        for link in self.links.values():
            with contextlib.suppress(OSError):
                link.send(LOSS, str(error).encode())
            link.close()
        raise error


def _open(cluster: Cluster) -> socket.socket:
    """Returns the socket of the chief, at the port that TensorFlow will have."""
    host, _, digits = cluster.workers[0].rpartition(":")
    port = int(digits)
    try:
        if cluster.is_local:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            return socket.create_server((host.strip("[]"), port), family=family)
        if socket.has_dualstack_ipv6():
            return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
        return socket.create_server(("", port))
    except OSError as error:
        raise ValueError(
            f"The chief must be able to listen at port {port}. {error.strerror}. Free it, or give "
            "another port to all workers."
        ) from error


def _visit(cluster: Cluster, seconds: float, token: str) -> Link:
    """Returns the link to the chief, once all have come."""
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
    raise LostWorkerError(f"{_not_come(cluster, [0], seconds)} ({reason})")


def _greet(cluster: Cluster, seconds: float, token: str) -> Link:
    """Returns a link to the chief, which has answered."""
    host, _, port = cluster.workers[0].rpartition(":")
    address = (host.strip("[]"), int(port))
    link = Link(socket.create_connection(address, timeout=seconds), _SECONDS_TO_GREET)
    try:
        # The nonce makes the answer one to this greeting.
        hello = {"index": cluster.index, "workers": cluster.workers, "nonce": secrets.token_hex()}
        content = json.dumps(hello).encode()
        link.send(HELLO, prove(token, HELLO, content) + content)
        # Whoever else listens there does not answer so: the chief before, or nobody's.
        if not hmac.compare_digest(_await(link, BEAT), prove(token, BEAT, content)):
            raise OSError(f"what answers is no chief with this {TOKEN}")
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
            f"All workers must have the same {TOKEN}, and the same version of the project. That of "
            "the chief is another one."
        )
    if kind != awaited:
        raise OSError("what answers is no chief")
    return content


def _not_come(cluster: Cluster, missing: Iterable[int], seconds: float) -> str:
    names = ", ".join(cluster.name(index) for index in sorted(missing))
    return (
        f"All {len(cluster.workers)} workers must come within {seconds:g} s, or as many as "
        f"{TIMEOUT} says. Not there: {names}. Start the same command there, and see that others "
        "reach that machine."
    )


def _differences(chief: Mapping[str, Any], own: Mapping[str, Any]) -> list[str]:
    """Returns what a worker has otherwise, for a message."""
    names = dict.fromkeys([*chief, *own])
    return [
        f"{name} {_short(own.get(name))}, not {_short(chief.get(name))}"
        for name in names
        if _compared(own.get(name)) != _compared(chief.get(name))
    ]


def _compared(value: Any) -> Any:
    """Returns what counts of a value: of files, what is in them, however they are called."""
    return value.get("sha256", value) if isinstance(value, Mapping) else value


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}..."

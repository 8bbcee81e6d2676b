"""Workers that meet before they train, compare what they train with, and miss one that is lost.

All others connect to the chief, at the port that TensorFlow will listen at: it is free until all
have come, and connections outlive the socket that took them, so that no port is needed besides.
Each then tells the chief every second that it lives. A worker that is killed is missed at once, for
its system closes the connection; one that is stopped, or cut off, after some silence.

Messages are blocks of bytes behind their kind and their length. There is no secret among them and
nobody is asked who it is, as TensorFlow itself does not: it is for networks that can be trusted.
"""

import contextlib
import json
import queue
import select
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from bert.workers.cluster import Cluster
from bert.workers.pace import Pace, seconds_of

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

_REMEDY = "The same command goes on from the last checkpoint."

_HEADER = struct.Struct("!cQ")
_MARK = struct.Struct("!Q")
# A worker says who it is, and the chief that it has heard; that it lives, and where it is; its part
# of what is shared; the parts of all; that one is lost.
_HELLO, _BEAT, _PART, _ALL, _LOST = b"H", b"B", b"P", b"A", b"L"


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


class _Link:
    """A connection, on which any thread sends whole messages.

    Attributes:
      heard: When something last came.
    """

    def __init__(self, connection: socket.socket, timeout: float) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.settimeout(timeout)
        self._socket = connection
        self._turn = threading.Lock()
        self.heard = time.monotonic()

    def send(self, kind: bytes, content: bytes = b"") -> None:
        """Sends a message.

        Raises:
          OSError: where it cannot be sent; then nothing can be, for a part of it may have been.
        """
        with self._turn:
            try:
                self._socket.sendall(_HEADER.pack(kind, len(content)) + content)
            except OSError:
                # What has come is still read, such as why the other one has left.
                with contextlib.suppress(OSError):
                    self._socket.shutdown(socket.SHUT_RDWR)
                raise

    def receive(self) -> tuple[bytes, bytes]:
        """Returns the kind and the content of the next message.

        Raises:
          OSError: where nothing comes in time, or no message, or no more.
        """
        kind, length = _HEADER.unpack(self._read(_HEADER.size))
        if kind not in (_HELLO, _BEAT, _PART, _ALL, _LOST):
            raise OSError("what comes is of no worker")
        return kind, self._read(length)

    def _read(self, length: int) -> bytes:
        parts = bytearray()
        while len(parts) < length:
            part = self._socket.recv(min(length - len(parts), 1 << 20))
            if not part:
                raise ConnectionResetError("its connection has ended")
            parts += part
            self.heard = time.monotonic()
        return bytes(parts)

    def limit(self, seconds: float) -> None:
        """Sets the time in which something must come."""
        self._socket.settimeout(seconds)

    def is_closed(self) -> bool:
        """Returns whether the other end is, where nothing more is to be read."""
        try:
            readable = select.select([self._socket], [], [], 0)[0]
            return bool(readable) and not self._socket.recv(1, socket.MSG_PEEK)
        except OSError:
            return True

    def close(self) -> None:
        """Closes it, for who listens, too."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


class Meeting:
    """All workers of a cluster, from when they have met.

    Args:
      cluster: Who they are.
      seconds: How long to wait for them.
      pace: How far they are, where it is not to be the usual one.

    Attributes:
      cluster: As given.
      pace: How far all are, which each says of itself.
      wake: Called, by another thread, where one is lost while all work together.

    Raises:
      LostWorkerError: where one has not come, naming it.
      ValueError: where others were told of other workers, or nothing can listen at the port.
    """

    def __init__(
        self, cluster: Cluster, seconds: float = SECONDS_TO_COME, pace: Pace | None = None
    ) -> None:
        self.cluster = cluster
        self.pace = pace or Pace()
        self.wake: Callable[[str], None] | None = None
        self._is_together = False
        self._lost = ""
        self._turn = threading.Lock()
        # Of the chief, a link to each other worker; of another, that to the chief.
        if len(cluster.workers) == 1:
            self._links: dict[int, _Link] = {}
        elif cluster.index == 0:
            self._links = _Reception(cluster, seconds).links
        else:
            self._links = {0: _visit(cluster, seconds)}
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
            self._tell(_PART, content)
            return _unpack(self._take(0))
        parts = [content, *(self._take(index) for index in sorted(self._links))]
        # One that has all may leave before another one has: to that one, it is not lost.
        with self._turn:
            self._tell(_ALL, _pack(parts))
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
        reason = (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
        self._tell(_LOST, f"{self._name(self.cluster.index)} has failed: {reason}.".encode())

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
                if kind == _LOST:
                    self._lose(content.decode())
                elif kind == _BEAT:
                    # One of an older version says no more than that it lives.
                    self.pace.heard(index, *(_MARK.unpack(content) if content else (0,)))
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
                self._tell(_LOST, text.encode())
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
            self._tell(_BEAT, _MARK.pack(mark))
            # The others know of themselves and of the chief alone.
            if self.cluster.index == 0 and (late := self.pace.late()):
                self._lose(late.told([*map(self._name, range(len(self.cluster.workers)))]))
            time.sleep(_SECONDS_BETWEEN_BEATS)


class _Reception:
    """The chief, as long as not all have come.

    Attributes:
      links: To each other worker.
    """

    def __init__(self, cluster: Cluster, seconds: float) -> None:
        self._cluster = cluster
        self.links: dict[int, _Link] = {}
        end = time.monotonic() + seconds
        try:
            with _open(cluster) as listening:
                while len(self.links) < len(cluster.workers) - 1:
                    listening.settimeout(max(end - time.monotonic(), 0.001))
                    self._welcome(listening.accept()[0])
        except TimeoutError:
            missing = {*range(1, len(cluster.workers))} - {*self.links}
            self._send_away(LostWorkerError(_not_come(cluster, missing, seconds)))
        for link in self.links.values():
            link.limit(SECONDS_OF_SILENCE)
            # Who is gone again is missed by who listens.
            with contextlib.suppress(OSError):
                link.send(_HELLO)

    def _welcome(self, connection: socket.socket) -> None:
        link = _Link(connection, _SECONDS_TO_GREET)
        try:
            kind, content = link.receive()
            told = json.loads(content) if kind == _HELLO else {}
            index, workers = int(told["index"]), told["workers"]
            # It may stay longer than its predecessor, which has died while others were awaited.
            link.send(_BEAT)
        except (OSError, ValueError, TypeError, KeyError):
            # Anybody may connect.
            link.close()
            return
        if workers != [*self._cluster.workers]:
            self.links[-1] = link
            self._send_away(
                ValueError(
                    "All workers must be told of the same workers, in the same order. Worker "
                    f"{index} was told of {workers}, the chief of {[*self._cluster.workers]}."
                )
            )
        if index in self.links and not self.links[index].is_closed():
            self.links[-1] = link
            self._send_away(
                ValueError(
                    f"Each worker must have a number of its own. Two say that they are {index}."
                )
            )
        self.links[index] = link

    def _send_away(self, error: Exception) -> None:
        for link in self.links.values():
            with contextlib.suppress(OSError):
                link.send(_LOST, str(error).encode())
            link.close()
        raise error


def _open(cluster: Cluster) -> socket.socket:
    """Returns the socket of the chief, at the port that TensorFlow will have."""
    port = int(cluster.workers[0].rpartition(":")[2])
    try:
        if socket.has_dualstack_ipv6():
            return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
        return socket.create_server(("", port))
    except OSError as error:
        raise ValueError(
            f"The chief must be able to listen at port {port}. {error.strerror}. Free it, or give "
            "another port to all workers."
        ) from error


def _visit(cluster: Cluster, seconds: float) -> _Link:
    """Returns the link to the chief, once all have come."""
    end = time.monotonic() + seconds
    reason: object = "no answer"
    while (left := end - time.monotonic()) > 0:
        try:
            link = _greet(cluster, left)
        except OSError as error:
            reason = error.strerror or error
            time.sleep(_SECONDS_BETWEEN_TRIES)
            continue
        try:
            link.limit(seconds + _SECONDS_TO_GREET)
            _await(link, _HELLO)
        except OSError as error:
            link.close()
            raise LostWorkerError(str(error)) from error
        link.limit(SECONDS_OF_SILENCE)
        return link
    raise LostWorkerError(f"{_not_come(cluster, [0], seconds)} ({reason})")


def _greet(cluster: Cluster, seconds: float) -> _Link:
    """Returns a link to the chief, which has answered."""
    host, _, port = cluster.workers[0].rpartition(":")
    address = (host.strip("[]"), int(port))
    link = _Link(socket.create_connection(address, timeout=seconds), _SECONDS_TO_GREET)
    try:
        hello = {"index": cluster.index, "workers": cluster.workers}
        link.send(_HELLO, json.dumps(hello).encode())
        # Whoever else listens there does not answer so: the chief before, or nobody's.
        _await(link, _BEAT)
    except OSError:
        link.close()
        raise
    return link


def _await(link: _Link, awaited: bytes) -> None:
    kind, content = link.receive()
    if kind == _LOST:
        raise LostWorkerError(content.decode())
    if kind != awaited:
        raise OSError("what answers is no chief")


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


def _pack(parts: Sequence[bytes]) -> bytes:
    lengths = struct.pack(f"!{len(parts)}Q", *map(len, parts))
    return b"".join([struct.pack("!Q", len(parts)), lengths, *parts])


def _unpack(content: bytes) -> list[bytes]:
    [count] = struct.unpack_from("!Q", content)
    parts, place = [], 8 * (count + 1)
    for length in struct.unpack_from(f"!{count}Q", content, 8):
        parts.append(content[place : place + length])
        place += length
    return parts

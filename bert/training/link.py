"""The connections between workers, and how all of them connect to the chief at the start.

A message is a kind, a length and its content, with a maximum size and a deadline. Nothing is
encrypted. A greeting carries a proof that its sender knows the secret token of these workers, which
keeps out other programs that connect; without a token, the proof is of the empty one.

The chief listens at the port that TensorFlow will listen at, which is free until all workers have
connected; connections outlive the socket that accepted them. Where all workers are on this machine,
it listens at the loopback interface alone.
"""

import contextlib
import hmac
import json
import os
import queue
import secrets
import select
import socket
import struct
import threading
import time
from collections.abc import Iterable
from typing import Any

from bert.log import logger
from bert.training.cluster import Cluster

# The environment variable with the secret token.
TOKEN = "BERT_WORKERS_TOKEN"

_HEADER = struct.Struct("!cQ")
# Kinds of messages: the greeting of a worker, and the chief's signal that all are connected; a
# heartbeat with the place of its sender; the content of one worker for `all_gather`; the loss of a
# worker; the refusal of a greeting.
HELLO, BEAT, PART, LOSS, REFUSED = b"H", b"B", b"P", b"L", b"R"
# Maximum bytes of each kind. A part may hold the outputs of a batch of an evaluation.
_LARGEST = {HELLO: 1 << 20, BEAT: 64, PART: 1 << 32, LOSS: 1 << 16, REFUSED: 0}
# The minimum speed of a message.
_BYTES_PER_SECOND = 100_000

PROOF_BYTES = 32

# The exit status of a worker that has lost another one: all may be restarted.
LOST = 75

# The environment variable with the seconds that workers wait for each other at the start.
TIMEOUT = "BERT_WORKER_TIMEOUT"
SECONDS_TO_COME = 600.0
# The maximum silence of a live worker, which may be within a call that holds Python's lock.
SECONDS_OF_SILENCE = 60.0
_SECONDS_BETWEEN_TRIES = 0.2
_SECONDS_TO_GREET = 5.0
_SECONDS_BETWEEN_LOOKS = 0.05
# Maximum connections without a greeting. A further one takes the place of the oldest: a worker
# greets at once.
_MOST_GUESTS = 100


def prove(token: str, kind: bytes, content: bytes) -> bytes:
    """Returns the proof for a message that its sender knows the token."""
    return hmac.digest(os.fsencode(token), kind + content, "sha256")


class Link:
    """A connection, on which any thread may send complete messages.

    Attributes:
      heard: When bytes last arrived.
    """

    def __init__(self, connection: socket.socket, timeout: float) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = connection
        self._turn = threading.Lock()
        self.heard = time.monotonic()
        self.limit(timeout)

    def beat(self, content: bytes) -> None:
        """Sends a heartbeat, unless another message is being sent, whose bytes are heard, too.

        Raises:
          OSError: as `send`.
        """
        if self._turn.acquire(blocking=False):
            try:
                self._write(BEAT, content)
            finally:
                self._turn.release()

    def send(self, kind: bytes, content: bytes = b"") -> None:
        """Sends a message.

        Raises:
          OSError: where it cannot be sent completely; then no other message can be sent, either.
        """
        with self._turn:
            self._write(kind, content)

    def _write(self, kind: bytes, content: bytes) -> None:
        try:
            left = memoryview(_HEADER.pack(kind, len(content)) + content)
            while left:
                # `sendall` would apply the time limit to the complete message.
                left = left[self._socket.send(left) :]
        except OSError:
            # Messages that have arrived are still read, such as why the other end has left.
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)
            raise

    def receive(self) -> tuple[bytes, bytes]:
        """Returns the kind and the content of the next message.

        Raises:
          OSError: where no message arrives in time, or the connection has ended.
        """
        kind, length = _HEADER.unpack(self._read(_HEADER.size))
        if length > _LARGEST.get(kind, -1):
            raise OSError("its message is not that of a worker")
        return kind, self._read(length)

    def _read(self, length: int) -> bytes:
        end = time.monotonic() + self._seconds + length / _BYTES_PER_SECOND
        parts = bytearray()
        while len(parts) < length:
            # A message that arrives byte by byte never exceeds the timeout of the socket.
            if parts and time.monotonic() > end:
                raise OSError("its message takes too long")
            part = self._socket.recv(min(length - len(parts), 1 << 20))
            if not part:
                raise ConnectionResetError("its connection has ended")
            parts += part
            self.heard = time.monotonic()
        return bytes(parts)

    def limit(self, seconds: float) -> None:
        """Sets the time within which a message must begin to arrive."""
        self._seconds = seconds
        self._socket.settimeout(seconds)

    def peer(self) -> str:
        """Returns the address at the other end."""
        try:
            return str(self._socket.getpeername()[0]).removeprefix("::ffff:")
        except OSError:
            return "an unknown address"

    def is_closed(self) -> bool:
        """Returns whether the other end has closed the connection and nothing is left to read."""
        try:
            readable = select.select([self._socket], [], [], 0)[0]
            return bool(readable) and not self._socket.recv(1, socket.MSG_PEEK)
        except OSError:
            return True

    def close(self) -> None:
        """Closes the connection, also for a thread that receives."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


def check_port(port: int) -> None:
    """Checks that TensorFlow will be able to listen at the port of this worker.

    Raises:
      ValueError: where another program listens at it.
    """
    with socket.socket() as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind(("", port))
        except OSError as error:
            raise ValueError(
                f"This worker must be able to listen at port {port}. {error.strerror}. Free it, or "
                "give another port to all workers."
            ) from error


def hide_from_other_machines(port: int) -> bool:
    """Restricts this process's sockets that listen at a port to the loopback device.

    TensorFlow listens at all interfaces, whatever the addresses of the workers are.

    Returns:
      Whether there is such a socket and the system, Linux since 5.7, can do so.
    """
    hidden = False
    with contextlib.suppress(FileNotFoundError):
        for number in os.listdir("/proc/self/fd"):
            with contextlib.suppress(OSError, AttributeError):
                hidden |= _hide(int(number), port)
    return hidden


def _hide(number: int, port: int) -> bool:
    opened = socket.socket(fileno=number)
    try:
        if opened.family not in (socket.AF_INET, socket.AF_INET6):
            return False
        listens = opened.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
        if not listens or opened.getsockname()[1] != port:
            return False
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"lo\0")
        return True
    finally:
        # Without this, the socket would be closed.
        opened.detach()


class LostWorkerError(ConnectionError):
    """Another worker has not connected, or is lost, so that this one cannot continue.

    Attributes:
      exit_status: The exit status of the script.
    """

    exit_status = LOST


def connect(cluster: Cluster, seconds: float, token: str) -> dict[int, Link]:
    """Returns the link to each worker that this one is connected to, once all are connected.

    The chief is connected to each other worker, which is connected to the chief alone.

    Args:
      cluster: The workers.
      seconds: The time limit.
      token: The secret of all workers.

    Raises:
      LostWorkerError: naming the workers that have not connected.
      ValueError: where workers have different lists of workers or tokens, or nothing can listen at
        the port.
    """
    if len(cluster.workers) == 1:
        return {}
    if cluster.index == 0:
        return _Reception(cluster, seconds, token).links
    return {0: _visit(cluster, seconds, token)}


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
                    f"worker {index} is {shortened(workers)}, that of the chief "
                    f"{shortened([*self._cluster.workers])}."
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
        """Raises `ValueError`; answers a greeting with another token, and logs its host once."""
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


def shortened(value: Any) -> str:
    """Returns a value as text of limited length, for messages."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}..."

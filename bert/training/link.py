"""Connections between workers, whose messages have a maximum size and a deadline.

A message is a kind, a length and its content. Nothing is encrypted. A secret token of all workers,
where there is one, keeps out other programs that connect.
"""

import contextlib
import hmac
import os
import select
import socket
import struct
import threading
import time
from collections.abc import Sequence

# The environment variable with the secret token.
TOKEN = "BERT_WORKERS_TOKEN"

_HEADER = struct.Struct("!cQ")
# Kinds of messages: the greeting of a worker, and the chief's signal that all are connected; a
# heartbeat with the place of its sender; the content of one worker for `all_gather`, and of all;
# the loss of a worker; the refusal of a greeting.
HELLO, BEAT, PART, ALL, LOSS, REFUSED = b"H", b"B", b"P", b"A", b"L", b"R"
# Maximum bytes of each kind. A part may hold the outputs of a batch of an evaluation.
_LARGEST = {HELLO: 1 << 20, BEAT: 64, PART: 1 << 32, ALL: 1 << 36, LOSS: 1 << 16, REFUSED: 0}
# The minimum speed of a message.
_BYTES_PER_SECOND = 100_000

PROOF_BYTES = 32


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

    def send(self, kind: bytes, content: bytes = b"") -> None:
        """Sends a message.

        Raises:
          OSError: where it cannot be sent completely; then no other message can be sent, either.
        """
        with self._turn:
            try:
                self._socket.sendall(_HEADER.pack(kind, len(content)) + content)
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


def pack(parts: Sequence[bytes]) -> bytes:
    """Returns several contents as one."""
    lengths = struct.pack(f"!{len(parts)}Q", *map(len, parts))
    return b"".join([struct.pack("!Q", len(parts)), lengths, *parts])


def unpack(content: bytes) -> list[bytes]:
    """Returns the contents that `pack` has joined."""
    [count] = struct.unpack_from("!Q", content)
    parts, place = [], 8 * (count + 1)
    for length in struct.unpack_from(f"!{count}Q", content, 8):
        parts.append(content[place : place + length])
        place += length
    return parts


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

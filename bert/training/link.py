"""Connections between workers, whose messages have a largest size and a deadline.

A message is a kind, a length and so many bytes. Nothing is encrypted. A secret that all workers
have, where there is one, keeps out whoever connects and does not know it.
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

# The environment variable with the secret.
TOKEN = "BERT_WORKERS_TOKEN"

_HEADER = struct.Struct("!cQ")
# A worker says who it is, and the chief that it has heard; that it lives, and where it is; its part
# of what is shared; the parts of all; that one is lost; that the chief refuses who is no worker.
HELLO, BEAT, PART, ALL, LOSS, REFUSED = b"H", b"B", b"P", b"A", b"L", b"R"
# The most bytes of each kind. A part is what a batch of an evaluation gives.
_LARGEST = {HELLO: 1 << 20, BEAT: 64, PART: 1 << 32, ALL: 1 << 36, LOSS: 1 << 16, REFUSED: 0}
# The least speed of a message.
_BYTES_PER_SECOND = 100_000

PROOF_BYTES = 32


def prove(token: str, kind: bytes, content: bytes) -> bytes:
    """Returns what only those who know the token can add to a message."""
    return hmac.digest(os.fsencode(token), kind + content, "sha256")


class Link:
    """A connection, on which any thread sends complete messages.

    Attributes:
      heard: When something last came.
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
        if length > _LARGEST.get(kind, -1):
            raise OSError("what comes is of no worker")
        return kind, self._read(length)

    def _read(self, length: int) -> bytes:
        end = time.monotonic() + self._seconds + length / _BYTES_PER_SECOND
        parts = bytearray()
        while len(parts) < length:
            # A message that comes byte by byte never meets the limit of the socket.
            if parts and time.monotonic() > end:
                raise OSError("its message takes too long")
            part = self._socket.recv(min(length - len(parts), 1 << 20))
            if not part:
                raise ConnectionResetError("its connection has ended")
            parts += part
            self.heard = time.monotonic()
        return bytes(parts)

    def limit(self, seconds: float) -> None:
        """Sets the time in which something must come."""
        self._seconds = seconds
        self._socket.settimeout(seconds)

    def peer(self) -> str:
        """Returns the address at the other end."""
        try:
            return str(self._socket.getpeername()[0]).removeprefix("::ffff:")
        except OSError:
            return "an unknown address"

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


def pack(parts: Sequence[bytes]) -> bytes:
    """Returns parts as one content."""
    lengths = struct.pack(f"!{len(parts)}Q", *map(len, parts))
    return b"".join([struct.pack("!Q", len(parts)), lengths, *parts])


def unpack(content: bytes) -> list[bytes]:
    """Returns the parts of a content."""
    [count] = struct.unpack_from("!Q", content)
    parts, place = [], 8 * (count + 1)
    for length in struct.unpack_from(f"!{count}Q", content, 8):
        parts.append(content[place : place + length])
        place += length
    return parts


def check_port(port: int) -> None:
    """Checks that TensorFlow will be able to listen at the port of this worker.

    Raises:
      ValueError: where another program does.
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
    """Makes the sockets of this process that listen at a port hear the loopback device alone.

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
    each = socket.socket(fileno=number)
    try:
        if each.family not in (socket.AF_INET, socket.AF_INET6):
            return False
        listens = each.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
        if not listens or each.getsockname()[1] != port:
            return False
        each.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"lo\0")
        return True
    finally:
        # The socket belongs to whoever opened it.
        each.detach()

"""The connections of a server: their maximum number, and the time limit for the head of a request.

The connection that has been idle longest makes room for a new one, so that idle clients cannot
block the server. A head that arrives too slowly is refused, like a slow body.
"""

import asyncio
import contextlib
import http
import json
from collections.abc import Callable, Iterator

import aiohttp
from aiohttp import web

from bert.files.machine import allow_open_files

# Files that are open beside connections: libraries, the weights, the log.
_OTHER_FILES = 256
# A connection that was opened or answered within this time does not make room for another one: its
# next request may be under way.
_YOUNG_SECONDS = 1.0
# How long a refused connection stays open, so that its client can read the reason, and the maximum
# number of such connections.
_LINGERING_SECONDS = 1.0
_MAX_LINGERING = 64
# How long a client may leave an answer unread while no more of it can be written.
_STALLED_SECONDS = 75.0


def fit_open_files(num_connections: int) -> int:
    """Raises the process's limit of open files, and returns how many connections fit into it."""
    most = allow_open_files(num_connections + _OTHER_FILES)
    if most is None:
        return num_connections
    return min(num_connections, max(most - _OTHER_FILES, most // 2))


class Connections:
    """Makes the protocol of each connection that is accepted.

    Args:
      serve: Returns a protocol that answers the requests of a connection.
      limit: Connections that may be open at a time.
      head_seconds: Seconds within which the head of a request must arrive, from the opening of the
        connection, or from its first byte on a connection that has had a request.
      refuse: Called with the status of a connection that is refused before it has a request.
    """

    def __init__(
        self,
        serve: Callable[[], asyncio.Protocol],
        limit: int,
        head_seconds: float,
        refuse: Callable[[int], None],
    ) -> None:
        self.serve = serve
        self.head_seconds = head_seconds
        self.refuse = refuse
        self.limit = limit
        self.num_lingering = 0
        self._open: set[_Connection] = set()
        # Connections without and with earlier requests, in the order in which they became idle.
        self._idle: tuple[dict[_Connection, float], dict[_Connection, float]] = ({}, {})

    def __call__(self) -> asyncio.Protocol:
        """Returns the protocol of a new connection."""
        return _Connection(self)

    @contextlib.contextmanager
    def busy(self, request: web.BaseRequest) -> Iterator[None]:
        """Marks the connection as one with a request under way, which nothing closes."""
        transport = request.transport
        connection = transport.get_protocol() if transport else None  # type: ignore[attr-defined]
        if not isinstance(connection, _Connection):
            yield
            return
        connection.begin(request)
        self.forget(connection)
        try:
            yield
        finally:
            if connection.end():
                self.rest(connection)

    def admit(self, connection: "_Connection") -> bool:
        """Returns whether a new connection may stay open."""
        if len(self._open) >= self.limit and not self._make_room():
            return False
        self._open.add(connection)
        self.rest(connection)
        return True

    def _make_room(self) -> bool:
        now = asyncio.get_running_loop().time()
        for idle in self._idle:
            for connection, since in idle.items():
                if now - since < _YOUNG_SECONDS:
                    break
                self.remove(connection)
                # A close would wait until the client has read its answer, which it may never do.
                connection.abort()
                return True
        return False

    def rest(self, connection: "_Connection") -> None:
        """Marks an open connection as idle from now on."""
        if connection in self._open:
            now = asyncio.get_running_loop().time()
            self._idle[connection.has_had_requests][connection] = now

    def forget(self, connection: "_Connection") -> None:
        """Marks a connection as not idle."""
        for idle in self._idle:
            idle.pop(connection, None)

    def remove(self, connection: "_Connection") -> None:
        """Marks a connection as closed."""
        self._open.discard(connection)
        self.forget(connection)


class _Connection(asyncio.Protocol):
    """Passes data to the protocol that answers, and enforces the time limits."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._inner: asyncio.Protocol | None = None
        self._transport: asyncio.Transport | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._stalled: asyncio.TimerHandle | None = None
        # The body of the last request, which may be answered before all of it has arrived.
        self._body: aiohttp.StreamReader | None = None
        self._has_part = False
        self._num_requests = 0
        self._is_refused = False
        self.has_had_requests = False

    def begin(self, request: web.BaseRequest) -> None:
        self._body = request.content
        self._num_requests += 1
        self.has_had_requests = True
        self._has_part = False
        self._stop_watching()

    def end(self) -> bool:
        """Returns whether no other request is under way."""
        self._num_requests -= 1
        return not self._num_requests

    def close(self) -> None:
        if self._transport:
            self._transport.close()

    def abort(self) -> None:
        if self._transport:
            self._transport.abort()

    def _watch(self) -> None:
        if self._deadline is None:
            loop = asyncio.get_running_loop()
            self._deadline = loop.call_later(self._connections.head_seconds, self._expire)

    def _stop_watching(self) -> None:
        if self._deadline:
            self._deadline.cancel()
            self._deadline = None

    def _expire(self) -> None:
        self._deadline = None
        if not self._has_part:
            self.close()
            return
        seconds = self._connections.head_seconds
        self._refuse(408, f"The head of a request must be sent within {seconds:g} s.")

    def _refuse(self, status: int, reason: str) -> None:
        assert self._transport
        self._connections.refuse(status)
        body = json.dumps({"error": reason}).encode()
        again = "Retry-After: 1\r\n" if status == 503 else ""
        head = (
            f"HTTP/1.1 {status} {http.HTTPStatus(status).phrase}\r\n"
            "Content-Type: application/json; charset=utf-8\r\n"
            f"Content-Length: {len(body)}\r\n{again}Connection: close\r\n\r\n"
        )
        self._transport.write(head.encode() + body)
        self._is_refused = True
        if self._connections.num_lingering >= _MAX_LINGERING or not self._transport.can_write_eof():
            self.close()
            return
        self._transport.write_eof()
        self._connections.num_lingering += 1
        asyncio.get_running_loop().call_later(_LINGERING_SECONDS, self._end_lingering)

    def _end_lingering(self) -> None:
        self._connections.num_lingering -= 1
        self.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        if not self._connections.admit(self):
            limit = self._connections.limit
            self._refuse(503, f"At most {limit} connections must be open. Ask later.")
            return
        self._inner = self._connections.serve()
        self._inner.connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        if self._inner is None or self._is_refused:
            return
        if not self._num_requests and (self._body is None or self._body.is_eof()):
            self._has_part = True
            self._watch()
        self._inner.data_received(data)

    def eof_received(self) -> bool | None:
        return self._inner.eof_received() if self._inner else None

    def pause_writing(self) -> None:
        self._stalled = asyncio.get_running_loop().call_later(_STALLED_SECONDS, self.abort)
        if self._inner:
            self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._end_stall()
        if self._inner:
            self._inner.resume_writing()

    def _end_stall(self) -> None:
        if self._stalled:
            self._stalled.cancel()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_watching()
        self._end_stall()
        self._connections.remove(self)
        if self._inner:
            self._inner.connection_lost(exc)

"""A server that listens, bounds its connections, and ends without losing a request.

The connection that has been idle longest makes room for a new one, so that idle clients cannot
block the server. The head of a request that arrives too slowly is refused, like a slow body.
"""

import asyncio
import contextlib
import http
import json
import logging
import socket
import threading
from collections.abc import Callable, Collection, Coroutine, Iterator
from typing import Any

import aiohttp
from aiohttp import web

from bert.files.machine import allow_open_files
from bert.log import logger
from bert.options import Message, MessageError, Option, OptionError
from bert.serving.app import Application, Metrics
from bert.serving.batching import Batcher
from bert.serving.options import Batching, Limits
from bert.serving.served import Served
from bert.training.cluster import is_loopback

# Connections that wait to be accepted.
_BACKLOG = 1024
# An idle connection is closed after this time. Proxies reuse connections for a minute.
_IDLE_SECONDS = 75.0
# Minimum time between log lines of failures outside requests.
_SECONDS_BETWEEN_FAILURES = 10
# How long requests on their way are still accepted when the server ends.
_ENDING_SECONDS = 0.5
# How long the rest of a refused request is read, so that its client can read the reason.
_LINGERING_SECONDS = 2.0
# Files that are open beside connections: libraries, the weights, the log.
_OTHER_FILES = 256
# A connection that was opened or answered within this time does not make room for another one: its
# next request may be under way.
_YOUNG_SECONDS = 1.0
# How long a refused connection stays open, so that its client can read the reason, and the maximum
# number of such connections.
_REFUSED_SECONDS = 1.0
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
                connection.transport.abort()
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
        self._deadline: asyncio.TimerHandle | None = None
        self._stalled: asyncio.TimerHandle | None = None
        # The body of the last request, which may be answered before all of it has arrived.
        self._body: aiohttp.StreamReader | None = None
        self._has_part = False
        self._num_requests = 0
        self._is_refused = False
        self.has_had_requests = False
        # From when the connection is made.
        self.transport: asyncio.Transport

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
            self.transport.close()
            return
        seconds = self._connections.head_seconds
        self._refuse(408, f"The head of a request must be sent within {seconds:g} s.")

    def _refuse(self, status: int, reason: str) -> None:
        self._connections.refuse(status)
        body = json.dumps({"error": reason}).encode()
        again = "Retry-After: 1\r\n" if status == 503 else ""
        head = (
            f"HTTP/1.1 {status} {http.HTTPStatus(status).phrase}\r\n"
            "Content-Type: application/json; charset=utf-8\r\n"
            f"Content-Length: {len(body)}\r\n{again}Connection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        self._is_refused = True
        if self._connections.num_lingering >= _MAX_LINGERING or not self.transport.can_write_eof():
            self.transport.close()
            return
        self.transport.write_eof()
        self._connections.num_lingering += 1
        asyncio.get_running_loop().call_later(_REFUSED_SECONDS, self._end_lingering)

    def _end_lingering(self) -> None:
        self._connections.num_lingering -= 1
        self.transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
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
        loop = asyncio.get_running_loop()
        self._stalled = loop.call_later(_STALLED_SECONDS, self.transport.abort)
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


def bind(host: str, port: int) -> socket.socket:
    """Returns a socket that is bound to an address, but does not listen yet.

    Args:
      host: A host name or an IP address.
      port: The port; 0 for any free port.

    Raises:
      MessageError: where the address is not of this machine, or taken.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found[0]
        bound = socket.socket(family, kind, protocol)
    except OSError as error:
        received = Message("%r: %s", host, error.strerror)
        raise OptionError("host", "be an address of this machine", received) from error
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
    except (OSError, OverflowError) as error:
        bound.close()
        raise _not_free(host, port, error) from error
    return bound


def _not_free(host: str, port: int, error: Exception) -> MessageError:
    return MessageError(
        "%s and %s must be an address of this machine that is free. Received %r and %d: %s.",
        Option("host"),
        Option("port"),
        host,
        port,
        getattr(error, "strerror", error),
    )


class Server:
    """Serves a model from its own thread; `with` ends it.

    Args:
      served: The model.
      bound: The socket, as `bind` returns it.
      limits: The limits of requests.
      batching: How inputs share batches.
      allowed_hosts: Host names that requests to a loopback address may use, besides localhost.
      logs_requests: Whether a line is logged for each request.

    Attributes:
      host: The IP address of the server.
      port: The port of the server.
    """

    def __init__(
        self,
        served: Served,
        bound: socket.socket,
        limits: Limits,
        batching: Batching,
        allowed_hosts: Collection[str] = (),
        logs_requests: bool = False,
    ) -> None:
        self.host, self.port = bound.getsockname()[:2]
        # Other machines may have any name for this one.
        names = allowed_hosts if is_loopback(self.host) else None
        self._loop = asyncio.new_event_loop()
        counts = Metrics(lambda: self._batcher.num_waiting)
        self._batcher = Batcher(
            served.answer,
            count=counts.count_batch,
            max_batch_size=batching.max_batch_size,
            max_waiting=limits.max_waiting,
            wait_seconds=batching.batch_wait_ms / 1000,
            deliver=self._loop.call_soon_threadsafe,
        )
        self._application = Application(served, self._batcher, limits, counts, names, logs_requests)
        self._socket = bound
        self._limits = limits
        self._closed = threading.Event()
        self._next_failure_line = 0.0
        self._thread = threading.Thread(target=self._loop.run_forever, name="http", daemon=True)
        self._thread.start()
        self._runner = self._run(self._start())

    def __enter__(self) -> "Server":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def address(self) -> str:
        """The URL of the server for a browser on this machine."""
        host = {"0.0.0.0": "localhost", "::": "localhost"}.get(self.host, self.host)
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}/"

    def wait(self) -> None:
        """Serves until an exception, such as of a signal, ends the waiting."""
        # After an exception within `Thread.join`, Python would take the thread for ended.
        while not self._closed.wait(1.0):
            pass

    def close(self) -> None:
        """Answers the requests in progress, and ends."""
        if self._closed.is_set():
            return
        self._closed.set()
        self._run(self._end())
        self._batcher.close()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _start(self) -> web.AppRunner:
        application = web.Application(client_max_size=self._limits.max_request_bytes)
        application.router.add_route("*", r"/{path:[\s\S]*}", self._answer)
        # Faults of a request are reported to its client alone.
        silent = logging.getLogger("bert.serving.http")
        silent.setLevel(logging.CRITICAL)
        runner = web.AppRunner(
            application,
            access_log=None,
            logger=silent,
            # The work for a client that has disconnected is cancelled.
            handler_cancellation=True,
            keepalive_timeout=_IDLE_SECONDS,
            lingering_time=_LINGERING_SECONDS,
            # A compressed body could become too large; `Application` refuses it.
            auto_decompress=False,
            shutdown_timeout=self._limits.read_timeout + self._limits.request_timeout + 1,
        )
        await runner.setup()
        assert runner.server
        limit = fit_open_files(self._limits.max_connections)
        if limit < self._limits.max_connections:
            logger.warning("The limit of open files leaves room for %d connections.", limit)
        self._connections = Connections(
            runner.server, limit, self._limits.read_timeout, self._application.count_refused
        )
        self._loop.set_exception_handler(self._log_failure)
        try:
            self._listener = await self._loop.create_server(
                self._connections, sock=self._socket, backlog=_BACKLOG
            )
        except OSError as error:
            # Two sockets may be bound to a port; the first that listens has it.
            await runner.cleanup()
            raise _not_free(self.host, self.port, error) from error
        return runner

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        with self._connections.busy(request):
            return await self._application.answer(request)

    async def _end(self) -> None:
        self._application.is_ending = True
        await asyncio.sleep(_ENDING_SECONDS)
        self._listener.close()
        await self._runner.cleanup()

    def _log_failure(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Logs failures outside requests, such as too many open files, at a limited rate."""
        if self._loop.time() >= self._next_failure_line:
            self._next_failure_line = self._loop.time() + _SECONDS_BETWEEN_FAILURES
            logger.warning("%s: %s", context["message"], context.get("exception"))

"""A server that listens, and ends without losing a request."""

import asyncio
import logging
import socket
import threading
from collections.abc import Collection, Coroutine
from typing import Any

from aiohttp import web

from bert.log import logger
from bert.options import Message, MessageError, Option, OptionError
from bert.serving.app import Application
from bert.serving.batching import Batcher
from bert.serving.connections import Connections, fit_open_files
from bert.serving.metrics import Metrics
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
        *(Option("host"), Option("port"), host, port, getattr(error, "strerror", error)),
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
        counts = Metrics(lambda: self._batcher.num_waiting)
        self._batcher = Batcher(
            served.answer,
            count=counts.count_batch,
            max_batch_size=batching.max_batch_size,
            max_waiting=limits.max_waiting,
            wait_seconds=batching.batch_wait_ms / 1000,
        )
        self._application = Application(served, self._batcher, limits, counts, names, logs_requests)
        self._socket = bound
        self._limits = limits
        self._closed = threading.Event()
        self._loop = asyncio.new_event_loop()
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

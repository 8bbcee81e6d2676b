"""A server that listens, and ends without losing a request."""

import asyncio
import logging as standard_logging
import socket
import threading
from collections.abc import Collection, Coroutine
from typing import Any

from absl import logging
from aiohttp import web

from bert.serving.app import Application, Limits
from bert.serving.batching import Batcher
from bert.serving.connections import Connections, fit_open_files
from bert.serving.metrics import Metrics
from bert.serving.served import Served
from bert.training.cluster import is_loopback

# Connections that wait to be taken.
_BACKLOG = 1024
# A connection is closed after so long without a further request. Proxies keep theirs for a minute.
_IDLE_SECONDS = 75.0
# Failures that no request is told of are logged so often.
_SECONDS_BETWEEN_FAILURES = 10
# How long requests that are on their way are still taken where the server is to end.
_ENDING_SECONDS = 0.5
# How long what a refused request still sends is read, so that its sender can read why.
_LINGERING_SECONDS = 2.0


def bind(host: str, port: int) -> socket.socket:
    """Returns a socket that has the address, but does not listen yet.

    Args:
      host: A name or a number.
      port: 0 for any that is free.

    Raises:
      ValueError: where the address is not to be had.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found[0]
        bound = socket.socket(family, kind, protocol)
    except OSError as error:
        raise ValueError(
            f"`--host` must be an address of this machine. Received {host!r}: {error.strerror}."
        ) from error
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
    except (OSError, OverflowError) as error:
        bound.close()
        raise _not_free(host, port, error) from error
    return bound


def _not_free(host: str, port: int, error: Exception) -> ValueError:
    return ValueError(
        f"`--host` and `--port` must be an address of this machine that is free. Received "
        f"{host!r} and {port}: {getattr(error, 'strerror', error)}."
    )


class Server:
    """Serves a model from a thread of its own; `with` ends it.

    Args:
      served: The model.
      bound: As `bind` gives it.
      limits: Those of requests.
      allowed_hosts: Names by which a server at a loopback address may be asked, beside localhost.
      logs_requests: Whether a line is logged for each request.
      **batching: For `Batcher`.

    Attributes:
      host: Where it is.
      port: Likewise.
    """

    def __init__(
        self,
        served: Served,
        bound: socket.socket,
        limits: Limits,
        allowed_hosts: Collection[str] = (),
        logs_requests: bool = False,
        **batching: Any,
    ) -> None:
        self.host, self.port = bound.getsockname()[:2]
        # Others than this machine name it as they like.
        names = allowed_hosts if is_loopback(self.host) else None
        counts = Metrics(lambda: self._batcher.num_waiting)
        self._batcher = Batcher(served.answer, tell=counts.count_batch, **batching)
        self._application = Application(served, self._batcher, limits, counts, names, logs_requests)
        self._socket = bound
        self._limits = limits
        self._closed = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="http", daemon=True)
        self._thread.start()
        self._runner = self._run(self._start())

    def __enter__(self) -> "Server":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def address(self) -> str:
        """Where a browser finds it."""
        host = {"0.0.0.0": "localhost", "::": "localhost"}.get(self.host, self.host)
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}/"

    def wait(self) -> None:
        """Serves until an exception, such as that of a signal, ends the waiting."""
        # An exception within `Thread.join` would make Python take the thread for ended.
        while not self._closed.wait(1.0):
            pass

    def close(self) -> None:
        """Answers what is under way, and ends."""
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
        # What is wrong with a request is told to its sender alone.
        silent = standard_logging.getLogger("bert.serving.http")
        silent.setLevel(standard_logging.CRITICAL)
        runner = web.AppRunner(
            application,
            access_log=None,
            logger=silent,
            # Nobody is answered who has gone.
            handler_cancellation=True,
            keepalive_timeout=_IDLE_SECONDS,
            lingering_time=_LINGERING_SECONDS,
            # Nothing is unpacked before it is known how large it becomes; see `Application`.
            auto_decompress=False,
            shutdown_timeout=self._limits.read_seconds + self._limits.request_seconds + 1,
        )
        await runner.setup()
        assert runner.server
        limit = fit_open_files(self._limits.max_connections)
        if limit < self._limits.max_connections:
            logging.warning("The limit of open files leaves room for %d connections.", limit)
        self._connections = Connections(
            runner.server, limit, self._limits.read_seconds, self._application.count_refused
        )
        self._loop.set_exception_handler(_log_failure)
        try:
            self._listener = await self._loop.create_server(
                self._connections, sock=self._socket, backlog=_BACKLOG
            )
        except OSError as error:
            # Two may be bound to a port, of which the first one that listens has it.
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


def _log_failure(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Logs what went wrong beside a request, such as too many open files, but not without end."""
    logging.log_every_n_seconds(
        logging.WARNING,
        "%s: %s",
        _SECONDS_BETWEEN_FAILURES,
        context["message"],
        context.get("exception"),
    )

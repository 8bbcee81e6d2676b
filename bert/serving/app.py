"""The application behind a server's URLs: its answers, its page and its metrics.

Errors are `{"error": "..."}`, one line that says what must hold and what was received: 400 for a
malformed request, 403 for a host name that is not the server's, 404 and 405 for unknown URLs
and methods, 408 for a client that sends too slowly, 413 for a body that is too large, 415 for a
compressed body, 429 where too many inputs wait, 503 while there are too many requests or
connections, the server ends or the model's threads have ended, 504 for a timeout.
"""

import asyncio
import ipaddress
import json
import re
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any

import prometheus_client
from aiohttp import web
from prometheus_client import Counter, Gauge, Histogram
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from bert.log import logger
from bert.reports.page import fill_page, read_part
from bert.serving import apis, rest
from bert.serving.batching import Batcher, ClosedError, FullError
from bert.serving.options import NAME, Limits, host_name
from bert.serving.served import DEFAULT, Served
from bert.tasks.examples import LISTS

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Metrics:
    """Counts requests and batches.

    Args:
      num_waiting: Returns how many inputs wait or are being answered.
    """

    def __init__(self, num_waiting: Callable[[], int]) -> None:
        # Creation times would double the number of lines.
        prometheus_client.disable_created_metrics()
        self._registry = registry = prometheus_client.CollectorRegistry()
        prometheus_client.ProcessCollector(registry=registry)
        prometheus_client.PlatformCollector(registry=registry)
        self._requests = Counter(
            "bert_requests",
            "Requests that were answered, by what was asked and the HTTP status.",
            ["what", "status"],
            registry=registry,
        )
        self._seconds = Histogram(
            "bert_request_seconds",
            "Seconds from a request's head to its answer, by what was asked.",
            ["what"],
            buckets=_SECONDS,
            registry=registry,
        )
        self._batch_rows = Histogram(
            "bert_batch_inputs", "Inputs of a batch.", buckets=_ROWS, registry=registry
        )
        self._batch_seconds = Histogram(
            "bert_batch_seconds", "Seconds that a batch took.", buckets=_SECONDS, registry=registry
        )
        waiting = Gauge(
            "bert_waiting_inputs", "Inputs that wait or are being answered.", registry=registry
        )
        waiting.set_function(num_waiting)

    def count_request(self, what: str, status: int, seconds: float) -> None:
        """Counts a request."""
        self._requests.labels(what, status).inc()
        self._seconds.labels(what).observe(seconds)

    def count_batch(self, rows: int, seconds: float) -> None:
        """Counts a batch."""
        self._batch_rows.observe(rows)
        self._batch_seconds.observe(seconds)

    def format(self) -> bytes:
        """Returns all metrics as text."""
        return prometheus_client.generate_latest(self._registry)


def make_page(served: Served, max_list: int) -> str:
    """Returns the page as HTML.

    Args:
      served: The model; the page requests the signature `DEFAULT`.
      max_list: Maximum number of text fields for a list of texts.
    """
    signature = served.signatures[DEFAULT]
    content = {
        "name": served.name,
        "version": served.version,
        "kind": served.kind,
        "fields": [
            {
                "name": name,
                "is_list": name in LISTS,
                "is_optional": name in signature.optional,
            }
            for name in signature.fields
        ],
        "max_list": max_list,
    }
    parts = {name: read_part(f"page.{name}", __package__) for name in ("html", "css", "js")}
    # The style of the reports.
    style = read_part("page.css") + parts["css"]
    return fill_page(parts["html"], style, parts["js"], served.name, content)


_MODEL = re.compile(
    rf"/(?P<api>v[12])/models/(?P<name>{NAME})"
    r"(/versions/(?P<version>[0-9]{1,18}))?(?P<verb>:predict|/metadata|/infer|/ready)?"
)
_WHAT = {
    "/": "page",
    "/healthz": "health",
    "/readyz": "readiness",
    "/metrics": "metrics",
    "/v1/embeddings": "embeddings",
    **dict.fromkeys(("/rerank", "/v1/rerank", "/v2/rerank"), "rerank"),
    "/v2": "v2_server",
    "/v2/health/live": "v2_live",
    "/v2/health/ready": "v2_ready",
}
_VERBS = {
    ("v1", None): "status",
    ("v1", ":predict"): "predict",
    ("v1", "/metadata"): "metadata",
    ("v2", None): "v2_metadata",
    ("v2", "/infer"): "v2_infer",
    ("v2", "/ready"): "v2_model_ready",
}
# What is requested with a body.
_PARSERS = {
    "predict": rest.parse_predict,
    "embeddings": apis.parse_embeddings,
    "rerank": apis.parse_rerank,
    "v2_infer": apis.parse_infer,
}
# What is requested without one: about the model, and about the server.
_DESCRIPTIONS = {
    "status": rest.status,
    "metadata": rest.metadata,
    "v2_server": lambda _: {"name": "bert", "version": "1", "extensions": []},
    "v2_metadata": apis.describe_model,
}
_STATES = {
    "v2_live": lambda _: {"live": True},
    "v2_ready": lambda _: {"ready": True},
    "v2_model_ready": lambda served: {"name": served.name, "ready": True},
}
# A browser neither guesses another content type, nor shows an answer within other pages.
_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "frame-ancestors 'none'",
    "Cache-Control": "no-store",
}
_AGAIN = {"Retry-After": "1"}
# Maximum characters of a client's text in a message.
_SHOWN = 80


class RefusedError(Exception):
    """The response to a request that is refused.

    Args:
      status: The HTTP status.
      reason: The message for the client.
      headers: Headers of the response.

    Attributes:
      status: As given.
      headers: As given.
    """

    def __init__(self, status: int, reason: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(reason)
        self.status = status
        self.headers = headers


class Application:
    """Answers the HTTP requests to a model.

    Args:
      served: The model.
      batcher: Answers inputs in batches.
      limits: The limits of requests.
      counts: The metrics of requests.
      names: Host names that requests may use, besides localhost and IP addresses; None for any.
      logs_requests: Whether a line is logged for each request.

    Attributes:
      is_ending: Whether the server accepts no more requests.
    """

    def __init__(
        self,
        served: Served,
        batcher: Batcher,
        limits: Limits,
        counts: Metrics,
        names: Collection[str] | None = None,
        logs_requests: bool = False,
    ) -> None:
        self._logs_requests = logs_requests
        self._served = served
        self._batcher = batcher
        self._limits = limits
        self._counts = counts
        self._names = names
        self._num_requests = 0
        self._page = make_page(served, max_list=20)
        self.is_ending = False

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answers any request, also a malformed one."""
        begun = time.monotonic()
        what, match = _find(request.path)
        self._num_requests += what in _PARSERS
        try:
            response = await self._answer(request, what, match)
        except RefusedError as error:
            response = _as_json(_error(what, str(error), error.status), error.status, error.headers)
        except Exception:
            logger.exception("A request could not be answered.")
            response = _as_json(_error(what, _FAILED, 500), 500)
        finally:
            self._num_requests -= what in _PARSERS
        response.headers.update(_HEADERS)
        if self.is_ending:
            response.force_close()
        seconds = time.monotonic() - begun
        self._counts.count_request(what, response.status, seconds)
        if self._logs_requests:
            _log_request(request, response, seconds)
        return response

    def count_refused(self, status: int) -> None:
        """Counts a connection that was refused before its first request."""
        self._counts.count_request("other", status, 0.0)
        if self._logs_requests:
            logger.info(
                "A connection was refused: %d.", status, extra={"fields": {"status": status}}
            )

    async def _answer(
        self, request: web.BaseRequest, what: str, match: re.Match[str] | None
    ) -> web.Response:
        host = request.headers.get("Host", "")
        if self._names is not None and not _is_own(host, self._names):
            raise RefusedError(
                403,
                "A server of this machine alone must be asked as localhost, by a number or by one "
                f"of the names that it was given. Received {_shown(host)}.",
            )
        if _is_of_another_site(request):
            raise RefusedError(
                403,
                "A browser must ask from a page of this server. Received a request of a page of "
                "another site (Sec-Fetch-Site: cross-site).",
            )
        if what == "other":
            raise RefusedError(404, f"{_shown(request.path)} must be one of {self._addresses()}.")
        methods = ("POST",) if what in _PARSERS else ("GET", "HEAD")
        if request.method not in methods:
            received = f"Received {_shown(request.method)}."
            reason = f"{_shown(request.path)} must be asked by {methods[0]}. {received}"
            raise RefusedError(405, reason, {"Allow": ", ".join(methods)})
        if match:
            self._check_model(match["name"], match["version"])
        if what in _PARSERS:
            return _as_json(await self._predict(request, what))
        return self._respond(what)

    def _respond(self, what: str) -> web.Response:
        """Returns the response to a request without a body."""
        if what == "page":
            return web.Response(text=self._page, content_type="text/html")
        if what == "metrics":
            body = self._counts.format()
            return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE_LATEST})
        if what in _DESCRIPTIONS:
            return _as_json(_DESCRIPTIONS[what](self._served))
        if not self._batcher.is_alive():
            raise RefusedError(
                503, "The model's threads must be alive. They have ended; restart the server."
            )
        if what not in ("health", "v2_live") and self.is_ending:
            raise RefusedError(503, "The server must be ready. It ends.", _AGAIN)
        if what in _STATES:
            return _as_json(_STATES[what](self._served))
        return web.Response(text="ok\n")

    def _addresses(self) -> str:
        model = f"/v1/models/{self._served.name}"
        infer = f"/v2/models/{self._served.name}/infer"
        return ", ".join([f"{model}:predict", model, f"{model}/metadata", infer, *_WHAT])

    def _check_model(self, name: str, version: str | None) -> None:
        served = self._served
        if name != served.name:
            raise RefusedError(404, f"The model must be {served.name!r}. Received {_shown(name)}.")
        if version is not None and int(version) != served.version:
            raise RefusedError(404, f"The version must be {served.version}. Received {version}.")

    async def _predict(self, request: web.BaseRequest, what: str) -> Any:
        limits = self._limits
        if self._num_requests > limits.max_requests:
            raise RefusedError(
                503, f"At most {limits.max_requests} requests must be under way. Ask later.", _AGAIN
            )
        if (encoding := request.headers.get("Content-Encoding", "identity")).lower() != "identity":
            raise RefusedError(
                415,
                f"The body must be sent as it is, without a Content-Encoding. Received "
                f"{_shown(encoding)}.",
                {"Accept-Encoding": "identity"},
            )
        body = await self._read(request)
        try:
            question = rest.read_question(
                body, _PARSERS[what], self._served, limits.max_inputs, limits.max_characters
            )
        except ValueError as error:
            raise RefusedError(400, str(error)) from error
        self._check_model(question.model or self._served.name, None)
        return question.format(await self._wait_for_answers(question))

    async def _read(self, request: web.BaseRequest) -> bytes:
        limit, seconds = self._limits.max_request_bytes, self._limits.read_timeout
        too_large = f"The body must have at most {limit} bytes."
        if (request.content_length or 0) > limit:
            raise RefusedError(413, f"{too_large} Received {request.content_length}.")
        try:
            if request.content.is_eof():
                return await request.read()
            return await asyncio.wait_for(request.read(), seconds)
        except web.HTTPRequestEntityTooLarge as error:
            raise RefusedError(413, f"{too_large} Received more.") from error
        except asyncio.TimeoutError as error:
            raise RefusedError(408, f"The body must be sent within {seconds:g} s.") from error
        except (web.RequestPayloadError, ConnectionError) as error:
            raise RefusedError(400, "The body must be whole.") from error

    async def _wait_for_answers(self, question: rest.Question) -> list[Any]:
        seconds = self._limits.request_timeout
        loop = asyncio.get_running_loop()
        answers = loop.create_future()
        # Cheaper than `asyncio.wait_for`.
        timer = loop.call_later(seconds, _expire, answers)
        try:
            given = (question.signature, question.rows, question.num_characters)
            self._batcher.submit(*given, question.num_inputs, answers)
            return await answers
        except FullError as error:
            raise RefusedError(
                429, "The server must have room. Too much waits already; ask later.", _AGAIN
            ) from error
        except ClosedError as error:
            raise RefusedError(503, "The server must be ready. It ends.", _AGAIN) from error
        except asyncio.TimeoutError as error:
            reason = f"The answer must take at most {seconds:g} s. Ask for less at once, or later."
            raise RefusedError(504, reason) from error
        except ValueError as error:
            reason = " ".join(str(error)[: 10 * _SHOWN].split())
            raise RefusedError(400, reason) from error
        except Exception as error:
            # The batcher has logged the error.
            raise RefusedError(500, _FAILED) from error
        finally:
            timer.cancel()


def _expire(future: "asyncio.Future[Any]") -> None:
    if not future.done():
        future.set_exception(asyncio.TimeoutError())


_FAILED = "The server could not answer. Its log says why."


def _is_own(host: str, names: Collection[str]) -> bool:
    """Returns whether the header `Host` names this server.

    A page of another site whose name resolves to this machine could read the answers to a browser
    (DNS rebinding). IP addresses are safe, and browsers always send the header.
    """
    name = host_name(host)
    if name is None:
        return False
    if name in ("", "localhost", *names):
        return True
    try:
        return bool(ipaddress.ip_address(name))
    except ValueError:
        return False


def _is_of_another_site(request: web.BaseRequest) -> bool:
    """Returns whether a page of another site sent the request, other than by a followed link.

    Such a page could not read the answer, but could keep the model busy.
    """
    site, mode, shown_as = (
        request.headers.get(f"Sec-Fetch-{name}", "").lower() for name in ("Site", "Mode", "Dest")
    )
    is_link = request.method in ("GET", "HEAD") and (mode, shown_as) == ("navigate", "document")
    return site == "cross-site" and not is_link


def _find(path: str) -> tuple[str, re.Match[str] | None]:
    """Returns what a path requests, and the model that it names."""
    match = _MODEL.fullmatch(path)
    if match:
        return _VERBS.get((match["api"], match["verb"]), "other"), match
    return _WHAT.get(path, "other"), None


def _error(what: str, reason: str, status: int) -> dict[str, Any]:
    """Returns the body of an error, as OpenAI has it for its address."""
    if what != "embeddings":
        return {"error": reason}
    kind = "invalid_request_error" if status < 500 else "server_error"
    return {"error": {"message": reason, "type": kind, "param": None, "code": None}}


def _as_json(
    value: Any, status: int = 200, headers: Mapping[str, str] | None = None
) -> web.Response:
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    # Half a character of a client's text goes back as it came.
    body = text.encode(errors="backslashreplace")
    return web.Response(body=body, status=status, headers=headers, content_type="application/json")


def _log_request(request: web.BaseRequest, response: web.StreamResponse, seconds: float) -> None:
    """Logs client, method, path and status of a request, but nothing of its texts."""
    client = request.remote or ""
    method, path = request.method[:_SHOWN], request.path[:_SHOWN]
    fields = {
        "client": client,
        "method": method,
        "path": path,
        "status": response.status,
        "seconds": round(seconds, 6),
        "request_bytes": request.content_length,
        "response_bytes": response.content_length,
    }
    shown = (client, method, path, response.status, seconds)
    logger.info("%s %s %s: %d, %.3f s", *shown, extra={"fields": fields})


def _shown(text: str) -> str:
    """Returns a client's text for a message, truncated."""
    return ascii(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}...")

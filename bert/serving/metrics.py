"""Metrics of a server, in the format of Prometheus."""

from collections.abc import Callable

import prometheus_client
from prometheus_client import Counter, Gauge, Histogram
from prometheus_client.exposition import CONTENT_TYPE_LATEST

CONTENT_TYPE = CONTENT_TYPE_LATEST

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

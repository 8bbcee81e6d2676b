"""Answers waiting requests in batches, in the order of their arrival.

Short requests and long requests have a thread each, so that long ones do not delay short ones.
"""

import asyncio
import collections
import contextlib
import dataclasses
import functools
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from bert.log import logger

# Returns an answer for each row. Its arguments are the name of a signature, the rows, and a
# function to call between parts of the work; it raises `AbandonedError` where no client waits.
Answer = Callable[[str, Sequence[Any], Callable[[], None]], Sequence[Any]]


class FullError(Exception):
    """The maximum number of inputs waits."""


class ClosedError(Exception):
    """The batcher has ended."""


class AbandonedError(Exception):
    """No client waits for the answers."""


@dataclasses.dataclass(frozen=True)
class _Request:
    signature: str
    rows: Sequence[Any]
    size: int
    num_inputs: int
    arrived: float
    answers: "asyncio.Future[Any]"


class Batcher:
    """Answers requests in batches.

    Args:
      answer: Answers rows. A `ValueError` refuses the rows of one request; the other requests of
        the batch are answered all the same.
      max_batch_size: Maximum inputs of a batch. A larger request is a batch of its own.
      max_batch_characters: Maximum characters of a batch. A request with more is a long one.
      wait_seconds: How long the first request of a batch waits for others while the model is idle.
      max_waiting: Maximum inputs that wait or are being answered. Long requests may have half of
        them, or a single long request all of them.
      count: Called after each batch with its number of inputs and its seconds.
      deliver: Calls a function that settles the futures of a batch, in the thread that they need.
    """

    def __init__(
        self,
        answer: Answer,
        *,
        max_batch_size: int,
        max_waiting: int,
        max_batch_characters: int = 100_000,
        wait_seconds: float = 0.0,
        count: Callable[[int, float], None] = lambda num_inputs, seconds: None,
        deliver: Callable[[Callable[[], None]], Any] = lambda settle: settle(),
    ) -> None:
        self._answer = answer
        self._max_batch_size = max_batch_size
        self._max_batch_characters = max_batch_characters
        self._max_waiting = max_waiting
        self._wait_seconds = wait_seconds
        self._count = count
        self._deliver = deliver
        # Short requests and long requests.
        self._queues: tuple[collections.deque[_Request], ...] = (
            collections.deque(),
            collections.deque(),
        )
        lock = threading.Lock()
        # A request wakes the thread that answers it alone.
        self._changed = (threading.Condition(lock), threading.Condition(lock))
        # Inputs of short requests and of long requests.
        self._num_waiting = [0, 0]
        self._is_closed = False
        self._threads = [
            threading.Thread(target=self._work, args=(is_long,), name="batches", daemon=True)
            for is_long in (False, True)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def num_waiting(self) -> int:
        """Inputs that wait or are being answered."""
        return sum(self._num_waiting)

    def is_alive(self) -> bool:
        """Returns whether requests are answered."""
        return all(thread.is_alive() for thread in self._threads) and not self._is_closed

    def submit(
        self,
        signature: str,
        rows: Sequence[Any],
        size: int,
        num_inputs: int,
        answers: "asyncio.Future[Any]",
    ) -> None:
        """Lets a request wait for its answers.

        Args:
          signature: The name of the requested signature.
          rows: The inputs.
          size: The number of characters of the inputs.
          num_inputs: The number of inputs that count for the limits.
          answers: The future of the answers, of the event loop that `deliver` calls; cancelling it
            abandons the request.

        Raises:
          FullError: where too many inputs would wait.
          ClosedError: after `close`.
        """
        request = _Request(signature, rows, size, num_inputs, time.monotonic(), answers)
        is_long = size > self._max_batch_characters
        with self._changed[is_long]:
            if self._is_closed:
                raise ClosedError
            num_long = is_long and self._num_waiting[True]
            if self.num_waiting + num_inputs > self._max_waiting:
                raise FullError
            if num_long and num_long + num_inputs > self._max_waiting // 2:
                raise FullError
            self._num_waiting[is_long] += num_inputs
            self._queues[is_long].append(request)
            self._changed[is_long].notify()

    def close(self) -> None:
        """Answers the waiting requests, and ends."""
        for changed in self._changed:
            with changed:
                self._is_closed = True
                changed.notify()
        for thread in self._threads:
            thread.join()

    def _work(self, is_long: bool) -> None:
        while batch := self._take(is_long):
            begun = time.monotonic()
            open_requests = [request for request in batch if not request.answers.done()]
            settled = []
            if open_requests:
                settled = self._serve(open_requests)
                num_inputs = sum(request.num_inputs for request in open_requests)
                self._count(num_inputs, time.monotonic() - begun)
            with self._changed[is_long]:
                self._num_waiting[is_long] -= sum(request.num_inputs for request in batch)
            # All at once, and last: the other thread wakes at this.
            self._deliver(functools.partial(_settle, settled))

    def _take(self, is_long: bool) -> list[_Request]:
        """Returns the requests of the next batch, none after `close`."""
        queue, changed = self._queues[is_long], self._changed[is_long]
        with changed:
            while not queue and not self._is_closed:
                changed.wait()
            if not queue:
                return []
            until = queue[0].arrived + self._wait_seconds
            while not self._is_closed and self.num_waiting < self._max_batch_size:
                left = until - time.monotonic()
                if left <= 0:
                    break
                changed.wait(left)
            return self._split(queue)

    def _split(self, queue: collections.deque[_Request]) -> list[_Request]:
        """Removes the first request and the next ones that fit into a batch with it."""
        batch = [queue.popleft()]
        num_inputs, size = batch[0].num_inputs, batch[0].size
        while queue:
            request = queue[0]
            num_inputs, size = num_inputs + request.num_inputs, size + request.size
            if request.signature != batch[0].signature:
                break
            if num_inputs > self._max_batch_size or size > self._max_batch_characters:
                break
            batch.append(queue.popleft())
        return batch

    def _serve(self, batch: Sequence[_Request]) -> list[tuple["asyncio.Future[Any]", Any]]:
        """Returns futures with their answers or errors.

        After an error, each half of the batch is tried.
        """

        def check() -> None:
            if all(request.answers.done() for request in batch):
                raise AbandonedError

        rows = [row for request in batch for row in request.rows]
        try:
            answers = list(self._answer(batch[0].signature, rows, check))
            assert len(answers) == len(rows), "Each row has an answer."
        except AbandonedError:
            return []
        except Exception as error:
            if len(batch) > 1:
                middle = len(batch) // 2
                return self._serve(batch[:middle]) + self._serve(batch[middle:])
            if not isinstance(error, ValueError):
                logger.exception("A request could not be answered.")
            return [(batch[0].answers, error)]
        settled = []
        for request in batch:
            count = len(request.rows)
            settled.append((request.answers, answers[:count]))
            answers = answers[count:]
        return settled


def _settle(settled: Sequence[tuple["asyncio.Future[Any]", Any]]) -> None:
    for future, value in settled:
        # The client may have disconnected at this moment.
        with contextlib.suppress(asyncio.InvalidStateError):
            if isinstance(value, Exception):
                future.set_exception(value)
            else:
                future.set_result(value)

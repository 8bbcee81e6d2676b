"""Requests that wait for a model are answered in batches, in the order of their coming.

One thread answers the short ones, another the long ones, which so hold up nobody but each other.
"""

import collections
import dataclasses
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, InvalidStateError
from typing import Any

from absl import logging

# Answers rows, one each, for the signature of that name; it may call what it is given between its
# parts, which raises `AbandonedError` where nobody waits for any of them any more.
Answer = Callable[[str, Sequence[Any], Callable[[], None]], Sequence[Any]]


class FullError(Exception):
    """As much waits as may."""


class ClosedError(Exception):
    """Nothing is taken any more."""


class AbandonedError(Exception):
    """Nobody waits for the answers."""


@dataclasses.dataclass(frozen=True)
class _Request:
    signature: str
    rows: Sequence[Any]
    size: int
    num_inputs: int
    came: float
    answers: "Future[list[Any]]" = dataclasses.field(default_factory=Future)


class Batcher:
    """Answers requests in batches.

    Args:
      answer: What answers. `ValueError` refuses the rows: whoever sent others of their batch does
        not notice.
      max_batch_size: Inputs of a batch. A request of more is a batch of its own.
      max_batch_characters: Characters of a batch, likewise. A request of more is a long one.
      wait_seconds: How long the first request of a batch may wait for others, while there is
        nothing else to do.
      max_waiting: Inputs that wait or are being answered, at most. Those of long requests are at
        most half as many, or those of a single one.
      tell: Is told of each batch: how many inputs it had, and how many seconds it took.
    """

    def __init__(
        self,
        answer: Answer,
        *,
        max_batch_size: int,
        max_waiting: int,
        max_batch_characters: int = 100_000,
        wait_seconds: float = 0.0,
        tell: Callable[[int, float], None] = lambda num_inputs, seconds: None,
    ) -> None:
        self._answer = answer
        self._max_batch_size = max_batch_size
        self._max_batch_characters = max_batch_characters
        self._max_waiting = max_waiting
        self._wait_seconds = wait_seconds
        self._tell = tell
        # The short ones and the long ones.
        self._queues: tuple[collections.deque[_Request], ...] = (
            collections.deque(),
            collections.deque(),
        )
        self._changed = threading.Condition()
        # Of the short ones and the long ones.
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
        return all(each.is_alive() for each in self._threads) and not self._is_closed

    def submit(
        self, signature: str, rows: Sequence[Any], size: int = 0, num_inputs: int | None = None
    ) -> "Future[list[Any]]":
        """Returns what will have the answers; who cancels it no longer waits for them.

        Args:
          signature: Which one is asked.
          rows: Its inputs.
          size: Their characters.
          num_inputs: What they count as; None where each is one.

        Raises:
          FullError: where so many would wait that they are too many.
          ClosedError: behind `close`.
        """
        num_inputs = len(rows) if num_inputs is None else num_inputs
        request = _Request(signature, rows, size, num_inputs, time.monotonic())
        with self._changed:
            if self._is_closed:
                raise ClosedError
            is_long = size > self._max_batch_characters
            num_long = is_long and self._num_waiting[True]
            if self.num_waiting + num_inputs > self._max_waiting:
                raise FullError
            if num_long and num_long + num_inputs > self._max_waiting // 2:
                raise FullError
            self._num_waiting[is_long] += num_inputs
            self._queues[is_long].append(request)
            self._changed.notify_all()
        return request.answers

    def close(self) -> None:
        """Answers what waits, and ends."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    def _work(self, is_long: bool) -> None:
        while batch := self._take(self._queues[is_long]):
            begun = time.monotonic()
            asked = [each for each in batch if not each.answers.done()]
            if asked:
                self._serve(asked)
                self._tell(sum(each.num_inputs for each in asked), time.monotonic() - begun)
            with self._changed:
                self._num_waiting[is_long] -= sum(each.num_inputs for each in batch)

    def _take(self, queue: collections.deque[_Request]) -> list[_Request]:
        """Returns the requests of the next batch, none where there will be no more."""
        with self._changed:
            while not queue and not self._is_closed:
                self._changed.wait()
            if not queue:
                return []
            until = queue[0].came + self._wait_seconds
            while not self._is_closed and self.num_waiting < self._max_batch_size:
                left = until - time.monotonic()
                if left <= 0:
                    break
                self._changed.wait(left)
            return self._cut(queue)

    def _cut(self, queue: collections.deque[_Request]) -> list[_Request]:
        """Takes the first request and those behind it that fit into a batch with it."""
        batch = [queue.popleft()]
        num_inputs, size = batch[0].num_inputs, batch[0].size
        while queue:
            each = queue[0]
            num_inputs, size = num_inputs + each.num_inputs, size + each.size
            if each.signature != batch[0].signature:
                break
            if num_inputs > self._max_batch_size or size > self._max_batch_characters:
                break
            batch.append(queue.popleft())
        return batch

    def _serve(self, batch: Sequence[_Request]) -> None:
        """Answers the requests of a batch; where that fails, parts of it are asked about."""

        def check() -> None:
            if all(each.answers.done() for each in batch):
                raise AbandonedError

        rows = [row for each in batch for row in each.rows]
        try:
            answers = list(self._answer(batch[0].signature, rows, check))
            assert len(answers) == len(rows), "Each row has an answer."
        except AbandonedError:
            return
        except Exception as error:
            if len(batch) > 1:
                middle = len(batch) // 2
                self._serve(batch[:middle])
                self._serve(batch[middle:])
                return
            if not isinstance(error, ValueError):
                logging.exception("A request could not be answered.")
            _settle(batch[0].answers.set_exception, error)
            return
        for each in batch:
            own, answers = answers[: len(each.rows)], answers[len(each.rows) :]
            _settle(each.answers.set_result, own)


def _settle(settle: Callable[[Any], None], value: Any) -> None:
    # Whoever waited may have gone in this moment.
    try:
        settle(value)
    except InvalidStateError:
        logging.debug("Nobody waits for an answer any more.")

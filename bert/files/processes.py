"""Work on many items in several processes or threads, its results in order."""

import collections
import contextlib
import multiprocessing
import os
import signal
import sys
import threading
import types
from collections.abc import Callable, Iterable, Iterator
from concurrent import futures
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import Connection, wait
from typing import Any, TypeVar

from bert.files.signals import STOP_SIGNALS

Item = TypeVar("Item")
Result = TypeVar("Result")

# Items in progress or done ahead of the next result, per process.
_AHEAD = 3
# Threads, which mostly wait for disks or networks.
_THREADS = 16


def in_threads(function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
    """Yields `function(item)` for each item, in order, computed in several threads.

    Of several exceptions, the one of the first item is raised, and no more items are begun.
    """
    pool = futures.ThreadPoolExecutor(_THREADS)
    try:
        yield from _in_order(lambda item: pool.submit(function, item), items, _THREADS + 1)
    finally:
        pool.shutdown(cancel_futures=True)


def _in_order(
    submit: Callable[[Item], futures.Future[Result]], items: Iterable[Item], limit: int
) -> Iterator[Result]:
    """Yields the results of submitted items in order, with at most `limit` items submitted."""
    waiting: collections.deque[futures.Future[Result]] = collections.deque()
    for item in items:
        waiting.append(submit(item))
        if len(waiting) >= limit:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()


def usable_cores() -> int:
    """Returns the number of processor cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class Workers:
    """A pool of processes that hold `state` and call functions on it and an item.

    With one process, this process does the work. A worker imports the modules of what it receives,
    and not the script that was started. Workers end with this process, however it ends, and at once
    where the block ends with an exception. They ignore signals to stop, which this process handles.

    Args:
      num_processes: At least 1.
      state: The first argument of every function; each process receives it once.
    """

    def __init__(self, num_processes: int, state: Any) -> None:
        if num_processes < 1:
            raise ValueError(f"`num_processes` must be at least 1. Received {num_processes}.")
        self._state = state
        self._limit = num_processes * _AHEAD
        self._executor = None
        if num_processes > 1:
            # A copy of a process in which TensorFlow has begun its threads may hang.
            context = multiprocessing.get_context("spawn")
            self._end, self._ends = context.Pipe(duplex=False)
            self._executor = futures.ProcessPoolExecutor(
                num_processes,
                mp_context=context,
                initializer=_set_up,
                initargs=(state, self._end),
            )

    def __enter__(self) -> "Workers":
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if self._executor is not None:
            if kind:
                self._ends.close()
            self._executor.shutdown(cancel_futures=True)
            self._ends.close()
            self._end.close()

    def map(
        self, function: Callable[[Any, Item], Result], items: Iterable[Item]
    ) -> Iterator[Result]:
        """Yields `function(state, item)` for each item, in order; items are taken as needed.

        Raises:
          OSError: where a process ended before its work was done.
        """
        if self._executor is None:
            for item in items:
                yield function(self._state, item)
            return
        executor = self._executor

        def submit(item: Item) -> futures.Future[Result]:
            with _script_hidden(), _signals_blocked():
                return executor.submit(_call, function, item)

        try:
            yield from _in_order(submit, items, self._limit)
        except BrokenProcessPool as error:
            raise OSError(
                "One of the processes ended before its work was done. Where the system stopped it "
                "for want of memory, use fewer."
            ) from error


@contextlib.contextmanager
def _script_hidden() -> Iterator[None]:
    """Prevents a new process from importing the script, and TensorFlow with it."""
    script = sys.modules["__main__"]
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = script


@contextlib.contextmanager
def _signals_blocked() -> Iterator[None]:
    """Blocks signals to stop in a new process, and in this process until the new one is there."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


_process_state: Any = None


def _set_up(state: Any, end: Connection) -> None:
    global _process_state  # noqa: PLW0603
    _process_state = state
    threading.Thread(target=_end_with_parent, args=(end,), daemon=True).start()


def _end_with_parent(end: Connection) -> None:
    """Ends this process when its parent has ended, even by a kill, or closes the pipe."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel, end])
        os._exit(1)


def _call(function: Callable[[Any, Any], Any], item: Any) -> Any:
    return function(_process_state, item)

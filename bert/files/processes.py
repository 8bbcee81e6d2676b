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

# Items that wait or are done ahead of the one asked for, per process.
_AHEAD = 3


# Threads that wait for disks or networks.
_WAITING = 16


def in_threads(function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
    """Yields what a function that mostly waits makes of each item, several at a time, in order.

    Of several exceptions, that of the first item is raised, and no more items are begun.
    """
    waiting: collections.deque[futures.Future[Result]] = collections.deque()
    pool = futures.ThreadPoolExecutor(_WAITING)
    try:
        for item in items:
            waiting.append(pool.submit(function, item))
            if len(waiting) > _WAITING:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


def usable_cores() -> int:
    """Returns the number of processor cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class Workers:
    """Processes that each hold `state` and call functions on it and an item.

    With one process, this one does the work. Others import the modules of what they are sent, and
    not the script that was started. They end with this process, however it ends, and at once where
    the block ends with an exception. Signals to stop are for this process to answer.

    Args:
      num_processes: From 1.
      state: What every function is given first; it is sent to each process once.
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
        try:
            yield from self._map(self._executor, function, items)
        except BrokenProcessPool as error:
            raise OSError(
                "One of the processes ended before its work was done. Where the system stopped it "
                "for want of memory, use fewer."
            ) from error

    def _map(
        self,
        executor: futures.Executor,
        function: Callable[[Any, Item], Result],
        items: Iterable[Item],
    ) -> Iterator[Result]:
        waiting: collections.deque[futures.Future[Result]] = collections.deque()
        for item in items:
            with _script_hidden(), _signals_kept():
                waiting.append(executor.submit(_call, function, item))
            if len(waiting) >= self._limit:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


@contextlib.contextmanager
def _script_hidden() -> Iterator[None]:
    """Keeps a process that begins from importing the script, and TensorFlow with it."""
    script = sys.modules["__main__"]
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = script


@contextlib.contextmanager
def _signals_kept() -> Iterator[None]:
    """Keeps signals to stop from a process that begins; here they wait until it has begun."""
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
    """Ends this process when its parent is gone, even where that was killed, or wants no more."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel, end])
        os._exit(1)


def _call(function: Callable[[Any, Any], Any], item: Any) -> Any:
    return function(_process_state, item)

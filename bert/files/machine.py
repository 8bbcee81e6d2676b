"""This machine: memory, GPUs, disk space, open files, and work in several processes or threads."""

import collections
import contextlib
import multiprocessing
import os
import platform
import shutil
import signal
import subprocess
import sys
import threading
import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent import futures
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, TypeVar

from bert.files.paths import file_size, is_remote
from bert.files.process import STOP_SIGNALS

_UNITS = ("bytes", "KB", "MB", "GB", "TB", "PB")


def size_text(count: float) -> str:
    """Returns a number of bytes for a message, such as 1.3 GB."""
    unit = 0
    while count >= 999.5 and unit < len(_UNITS) - 1:
        count /= 1000
        unit += 1
    return f"{count:.3g} {_UNITS[unit]}"


def describe_files(files: Sequence[str]) -> str:
    """Returns the name of a file, or the number of several, with the size in all."""
    size = size_text(sum(map(file_size, files)))
    return f"{files[0]!r}, {size}" if len(files) == 1 else f"{len(files)} files, {size} in all"


def total_memory(root: str = "/") -> int | None:
    """Returns the bytes of memory, swap included, that this process may use; None if unknown.

    Args:
      root: The folder with `proc` and `sys`.
    """
    values = _read_meminfo(root)
    if "MemTotal" not in values:
        return _installed_memory()
    limits = [limit for limit, _ in _cgroup_limits(root)]
    return min([values["MemTotal"], *limits]) + values.get("SwapTotal", 0)


def free_memory(root: str = "/") -> int | None:
    """Returns the bytes of memory that are or can be made free, without swap; None if unknown."""
    values = _read_meminfo(root)
    if "MemAvailable" not in values:
        return _installed_memory()
    left = [max(limit - used, 0) for limit, used in _cgroup_limits(root)]
    return min([values["MemAvailable"], *left])


def _installed_memory() -> int | None:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return None


def _read_meminfo(root: str) -> dict[str, int]:
    lines = _read(Path(root, "proc/meminfo")).splitlines()
    rows = (line.split() for line in lines)
    return {row[0].rstrip(":"): int(row[1]) * 1024 for row in rows if row[2:] == ["kB"]}


def _cgroup_limits(root: str) -> Iterator[tuple[int, int]]:
    """Yields the limit and the use of memory of each control group of this process, in bytes."""
    for line in _read(Path(root, "proc/self/cgroup")).splitlines():
        _, controllers, path = line.split(":", 2)
        if not controllers:
            names, mount = ("memory.max", "memory.current", "inactive_file"), "sys/fs/cgroup"
        elif "memory" in controllers.split(","):
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
            mount = "sys/fs/cgroup/memory"
        else:
            continue
        group = Path(path.lstrip("/"))
        for folder in (group, *group.parents):
            yield from _limit(Path(root, mount, folder), *names)


def _limit(folder: Path, limit: str, used: str, cached: str) -> Iterator[tuple[int, int]]:
    allowed, taken = _read(folder / limit).strip(), _read(folder / used).strip()
    if allowed.isdigit() and taken.isdigit():
        rows = (line.split() for line in _read(folder / "memory.stat").splitlines())
        stat = {row[0]: int(row[1]) for row in rows if len(row) == 2}
        # Memory that caches files is freed on demand.
        yield int(allowed), int(taken) - stat.get(cached, 0)


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def gpu_memory() -> list[int]:
    """Returns the bytes of memory of each GPU that `nvidia-smi` shows, [] without it."""
    command = shutil.which("nvidia-smi")
    if command is None:
        return []
    query = [command, "--query-gpu=memory.total", "--format=csv,noheader,nounits"]
    try:
        shown = subprocess.run(query, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    return [int(line) << 20 for line in shown.stdout.split() if line.isdigit()]


def has_nvidia_gpu(root: str = "/") -> bool:
    """Returns whether there is an NVIDIA GPU with its driver.

    Args:
      root: The folder with `proc`.
    """
    return bool(_read(Path(root, "proc/driver/nvidia/version")) or gpu_memory())


def free_disk(folder: str) -> int | None:
    """Returns the free bytes on the disk of a folder that may not exist yet; None if unknown."""
    if is_remote(folder):
        return None
    place = Path(os.path.realpath(folder))
    for folder_above in (place, *place.parents):
        if folder_above.exists():
            return shutil.disk_usage(folder_above).free
    return None


def allow_open_files(count: int) -> int | None:
    """Raises the limit on open files by `count`, or as far as the system allows.

    Returns:
      The limit where it is lower than needed, else None.
    """
    try:
        import resource  # noqa: PLC0415 (not everywhere)
    except ImportError:
        return None
    # If the system does not list open files, `count` has some to spare.
    with contextlib.suppress(OSError):
        count += len(os.listdir("/dev/fd"))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft in (-1, resource.RLIM_INFINITY) or soft >= count:
        return None
    if hard not in (-1, resource.RLIM_INFINITY) and hard < count:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        return hard
    resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))
    return None


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


def processor_name() -> str:
    """Returns the name of the processor."""
    lines = _read(Path("/proc/cpuinfo")).splitlines()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def usable_cores() -> int:
    """Returns the number of processor cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class Workers:
    """A pool of processes that hold `state` and call functions on it and an item.

    With one process, this process does the work, unless `is_apart`. A worker imports the modules of
    what it receives, and not the script that was started. Workers end with this process, however it
    ends, and at once where the block ends with an exception. They ignore signals to stop, which
    this process handles.

    Args:
      num_processes: At least 1.
      state: The first argument of every function; each process receives it once.
      is_apart: Whether a single process is another one than this.
    """

    def __init__(self, num_processes: int, state: Any, *, is_apart: bool = False) -> None:
        if num_processes < 1:
            raise ValueError(f"`num_processes` must be at least 1. Received {num_processes}.")
        self._state = state
        self._limit = num_processes * _AHEAD
        self._executor = None
        if num_processes > 1 or is_apart:
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
                "A process ended before its work was done. Where the system stopped it for want of "
                "memory, run fewer processes at a time, or free memory."
            ) from error


# Held while the script is hidden: of two threads, the second would take the other's replacement for
# the script, and put it back for good.
_hiding = threading.Lock()


@contextlib.contextmanager
def _script_hidden() -> Iterator[None]:
    """Prevents a new process from importing the script, and TensorFlow with it."""
    with _hiding:
        script = sys.modules["__main__"]
        sys.modules["__main__"] = types.ModuleType("__main__")
        try:
            yield
        finally:
            sys.modules["__main__"] = script


@contextlib.contextmanager
def _signals_blocked() -> Iterator[None]:
    """Blocks signals to stop in a new process, and in this process until the new one is there."""
    if not hasattr(signal, "pthread_sigmask"):  # On Windows.
        yield
        return
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

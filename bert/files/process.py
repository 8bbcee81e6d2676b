"""The process: signals that stop it, its garbage collector, and its import of TensorFlow."""

import contextlib
import gc
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

from bert.options import Message

# Signals that end a script; not all systems have all of them.
STOP_SIGNALS = tuple(
    getattr(signal, name)
    for name in ("SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1")
    if hasattr(signal, name)
)

# Packages in whose code signals do not raise `Stop`.
_NOT_INTERRUPTED = ("tensorflow", "keras")

# A signal may come twice, since some programs send it to a process and to its group.
_SECONDS_OF_ONE_SIGNAL = 0.5


class Stop(KeyboardInterrupt):
    """A signal to stop the script.

    Args:
      number: The number of the signal.
      message: The last line that the script shows.
    """

    def __init__(self, number: int, message: str | Message = "") -> None:
        super().__init__(message or f"Stopped by {signal.Signals(number).name}.")
        self.number = number


class _Signals:
    """Turns the first signal of `STOP_SIGNALS` into `Stop`; a second one ends the process."""

    def __init__(self) -> None:
        self.first: int | None = None
        self.num_deferring = 0
        self._is_raised = False
        self._taken: list[int] = []

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Makes a first signal raise `Stop` in a block, and a second one end the process.

        Ignored signals, as of nohup, stay ignored.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        self.first, self._is_raised = None, False
        before = {number: signal.getsignal(number) for number in STOP_SIGNALS}
        self._taken = [n for n, handler in before.items() if handler != signal.SIG_IGN]
        reader, writer = os.pipe()
        os.set_blocking(writer, False)
        old_writer = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        self.take()
        arguments = (reader, list(self._taken))
        threading.Thread(target=_end_at_second, args=arguments, daemon=True).start()
        try:
            yield
        finally:
            for number in self._taken:
                signal.signal(number, before[number])
            self.first, self._taken = None, []
            signal.set_wakeup_fd(old_writer)
            os.close(writer)

    def take(self) -> None:
        """Installs the handlers if the signals are watched.

        TensorFlow with several workers handles SIGTERM itself; this takes it back.
        """
        for number in self._taken:
            signal.signal(number, self._handle)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.first is None:
            self.first = number
            self._check_outside_tensorflow(frame)

    def _check_outside_tensorflow(self, frame: FrameType | None) -> None:
        """Calls `check` now, or when TensorFlow's code has returned.

        An exception within TensorFlow's code can be lost in a `__del__`, or leave a call into its
        library incomplete, which then frees memory that it does not own.
        """
        caller = frame
        while caller and _module_of(caller) in _NOT_INTERRUPTED:
            caller = caller.f_back
        if not caller or caller is frame:
            self.check()
            return

        def check_once(place: FrameType, *_: Any) -> None:
            sys.settrace(None)
            place.f_trace = None
            self.check()

        # Python calls `check_once` at the caller's next line, or when the caller returns.
        caller.f_trace = check_once
        sys.settrace(lambda *_: None)

    def check(self) -> None:
        """Raises `Stop` once after a signal, unless it is deferred."""
        if self.first is not None and not self._is_raised and not self.num_deferring:
            self._is_raised = True
            raise Stop(self.first)


def _module_of(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__")).partition(".")[0]


def _end_at_second(reader: int, numbers: list[int]) -> None:
    """Ends the process at a second signal, even while it runs code outside of Python."""
    first = None
    while byte := os.read(reader, 1):
        if byte[0] not in numbers:
            continue
        now = time.monotonic()
        first = first or now
        if now - first > _SECONDS_OF_ONE_SIGNAL:
            os._exit(128 + byte[0])
    os.close(reader)


_signals = _Signals()
watched_signals, take_signals_again = _signals.watched, _signals.take


def stop_signal() -> int | None:
    """Returns the signal that stopped the script, or None."""
    return _signals.first


@contextlib.contextmanager
def deferred_stop() -> Iterator[None]:
    """Defers a first signal during a block that must be complete; `Stop` is raised after it."""
    if threading.current_thread() is not threading.main_thread():
        # Python handles signals in the main thread.
        yield
        return
    _signals.num_deferring += 1
    try:
        yield
    finally:
        _signals.num_deferring -= 1
    _signals.check()


_is_script = False


def own_process() -> None:
    """Declares that the process runs a script of this project and no other program."""
    global _is_script  # noqa: PLW0603
    _is_script = True


def is_script() -> bool:
    """Returns whether the process runs a script of this project and no other program."""
    return _is_script


# TensorFlow keeps the memory of large tensors for the next ones, for which the system would have to
# clear new pages in each operation. The limit would be 64 GB.
_ALLOCATOR = {"TF_CPU_ALLOCATOR_USE_BFC": "true", "TF_CPU_BFC_MEM_LIMIT_IN_MB": str(1 << 24)}


def import_tensorflow() -> None:
    """Imports TensorFlow and Keras quickly, and without the lines that they print meanwhile.

    TF_CPP_MIN_LOG_LEVEL=0 in the environment brings all messages back.
    """
    if "keras" in sys.modules and "tensorflow" in sys.modules:
        return
    if is_script():
        for name, value in _ALLOCATOR.items():
            os.environ.setdefault(name, value)
    # An exception in the middle of the import might be swallowed.
    with deferred_stop(), same_random_state(), collector_off(), _without_sklearn(), hidden_stderr():
        import keras  # noqa: PLC0415
        import tensorflow  # noqa: F401, PLC0415

        del keras
    if is_script():
        # Modules stay until the end, so that the collector need not search them later. In another
        # program, this would also freeze objects that are garbage soon.
        gc.freeze()


@contextlib.contextmanager
def same_random_state(seed: int | None = None) -> Iterator[None]:
    """Restores the state of Python's generator after a block, which may draw from a seed.

    Initial weights are drawn from this generator, which gives Keras' initializers their seeds, and
    TensorFlow draws from it while it is imported; no other global generator is used.
    """
    state = random.getstate()
    if seed is not None:
        random.seed(seed)
    try:
        yield
    finally:
        random.setstate(state)


@contextlib.contextmanager
def collector_off() -> Iterator[None]:
    """Switches off the garbage collector in a block, or in a function that this decorates.

    Where very many objects without circles are made, the collector searches them again and again
    in vain.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


@contextlib.contextmanager
def _without_sklearn() -> Iterator[None]:
    """Hides scikit-learn from Keras, which would wrap its classes; scores import it later."""
    skips = is_script() and "sklearn" not in sys.modules
    if skips:
        sys.modules["sklearn"] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        if skips:
            del sys.modules["sklearn"]


class Shared:
    """A context of the process: the first thread enters it, and the last one leaves it.

    Otherwise a thread would take what another one has set for what was there before.

    Args:
      make: Returns the context.
    """

    def __init__(self, make: Callable[[], contextlib.AbstractContextManager[None]]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._num_inside = 0

    @contextlib.contextmanager
    def __call__(self) -> Iterator[None]:
        with self._lock:
            if not self._num_inside:
                self._context = self._make()
                self._context.__enter__()
            self._num_inside += 1
        try:
            yield
        finally:
            with self._lock:
                self._num_inside -= 1
                if not self._num_inside:
                    self._context.__exit__(None, None, None)


@contextlib.contextmanager
def hidden_stderr() -> Iterator[bool]:
    """Redirects standard error, to which TensorFlow 2.21 writes whatever its log level is.

    Yields False where TF_CPP_MIN_LOG_LEVEL=0 in the environment asks for all messages.
    """
    if os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3") == "0":
        yield False
        return
    with _redirected_stderr():
        yield True


@contextlib.contextmanager
def _redirect_stderr() -> Iterator[None]:
    try:
        stderr = os.dup(2)
    except OSError:
        # A program may have closed it, as daemons do.
        yield
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    os.close(nowhere)
    try:
        yield
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)


_redirected_stderr = Shared(_redirect_stderr)

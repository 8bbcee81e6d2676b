"""Signals that ask a script to end, and work that they must not interrupt."""

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from types import FrameType
from typing import Any

# Signals that end a script; not all systems have all of them.
STOP_SIGNALS = tuple(
    getattr(signal, name)
    for name in ("SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1")
    if hasattr(signal, name)
)

# Packages in whose code no signal raises `Stop`.
_NOT_INTERRUPTED = ("tensorflow", "keras")

# Some who stop a process send the signal to it and to its group, so that it comes twice.
_SECONDS_OF_ONE_SIGNAL = 0.5


class Stop(KeyboardInterrupt):
    """A signal asks the script to end, which it does as after any exception.

    Args:
      number: Of the signal.
      message: The last line to be seen.

    Attributes:
      number: As given.
    """

    def __init__(self, number: int, message: str = "") -> None:
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
        """Takes the signals over for a block, apart from those that are ignored, as nohup does."""
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
        """Takes the signals, if they are watched; again where somebody else has taken them."""
        for number in self._taken:
            signal.signal(number, self._handle)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.first is None:
            self.first = number
            self._check_outside_tensorflow(frame)

    def _check_outside_tensorflow(self, frame: FrameType | None) -> None:
        """Checks where an exception reaches the caller: now, or when TensorFlow has returned.

        What a signal raises within TensorFlow's own code can be lost, in a `__del__`, or leave a
        call into its library half done, which then frees memory that is not its own.
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

        # Python calls it at the caller's next line, or where the caller returns.
        caller.f_trace = check_once
        sys.settrace(lambda *_: None)

    def check(self) -> None:
        """Raises `Stop`, once, if a signal came, unless that is deferred."""
        if self.first is not None and not self._is_raised and not self.num_deferring:
            self._is_raised = True
            raise Stop(self.first)


def _module_of(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__")).partition(".")[0]


def _end_at_second(reader: int, numbers: list[int]) -> None:
    """Ends the process at a second signal, even while it is busy in code that is not Python's."""
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


def watched_signals() -> contextlib.AbstractContextManager[None]:
    """Makes a first signal raise `Stop` in a block, and a second one end the process."""
    return _signals.watched()


def take_signals_again() -> None:
    """Takes back what TensorFlow, with several workers, takes for itself: SIGTERM."""
    _signals.take()


def stop_signal() -> int | None:
    """Returns the signal that stopped the script, or None."""
    return _signals.first


@contextlib.contextmanager
def deferred_stop() -> Iterator[None]:
    """Defers a first signal during a block that must be complete; `Stop` is raised after it."""
    if threading.current_thread() is not threading.main_thread():
        # It ends the main thread alone, as Python has it.
        yield
        return
    _signals.num_deferring += 1
    try:
        yield
    finally:
        _signals.num_deferring -= 1
    _signals.check()

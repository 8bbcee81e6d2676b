"""Progress of work: a bar on a terminal, elsewhere a line of the log every ten seconds."""

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Protocol

from absl import logging

_SECONDS_BETWEEN_LINES = 10


class Bar(Protocol):
    """A bar on a terminal."""

    def show(self, now: float, done: float, describe: Callable[[], str]) -> None:
        """Draws the bar, if it is time; `describe` returns the text behind it."""
        ...

    def draw(self, done: float, text: str) -> None:
        """Draws the bar at once."""
        ...

    def close(self) -> None:
        """Removes the bar."""
        ...


def _no_bar(what: str, total: float) -> Bar | None:
    del what, total
    return None


_open_bar: Callable[[str, float], Bar | None] = _no_bar


def show_bars(open_bar: Callable[[str, float], Bar | None]) -> None:
    """Shows progress in the bars that `open_bar(what, total)` returns; None stands for no bar."""
    global _open_bar  # noqa: PLW0603
    _open_bar = open_bar


_num_hiding = 0


@contextlib.contextmanager
def no_bars() -> Iterator[None]:
    """Keeps bars away while something else is written to the terminal."""
    global _num_hiding  # noqa: PLW0603
    _num_hiding += 1
    try:
        yield
    finally:
        _num_hiding -= 1


class Progress:
    """Shows how far the work is and how long it may still take.

    On a terminal, a bar does; elsewhere, a line every 10 seconds.

    Args:
      what: What is done, to begin the line.
      total: How much there is to do, in any unit.
      done: How much of it was done before.
    """

    def __init__(self, what: str, total: float, done: float = 0) -> None:
        self._what = what
        self._total = total
        self._bar = None if _num_hiding else _open_bar(what, total)
        self.restart(done)

    def restart(self, done: float) -> None:
        """Goes by the speed from here on, where so much is done."""
        self._first = done
        self._start = self._last = time.monotonic()

    def __call__(self, done: float, describe: Callable[[], str] | None = None) -> None:
        """Takes how much of the total is done.

        Args:
          done: As it says.
          describe: Returns what to say instead of what is done and the share of it.
        """
        now = time.monotonic()
        is_over = done >= self._total
        if self._bar and is_over:
            self.close()
        elif self._bar:
            share = describe or (lambda: self._share(done))
            self._bar.show(now, done, lambda: share() + self._left(now, done))
        elif now - self._last >= _SECONDS_BETWEEN_LINES and self._first < done < self._total:
            said = describe() if describe else f"{self._what}: {self._share(done)}"
            self.write(f"{said}{self._left(now, done)}", now)

    def announce(self, text: str) -> None:
        """Shows a text at once, on a terminal, before the work begins."""
        if self._bar:
            self._bar.draw(self._first, text)

    def write(self, line: str, now: float | None = None) -> None:
        """Writes a line of its own, after which none is due for a while."""
        self._last = time.monotonic() if now is None else now
        logging.info("%s", line)

    def left(self, done: float) -> str:
        """Returns how long what is left may take, to end a line; "" where it is not known."""
        return self._left(time.monotonic(), done)

    def _share(self, done: float) -> str:
        return f"{100 * done / self._total:.0f} %"

    def _left(self, now: float, done: float) -> str:
        if not self._first < done < self._total:
            return ""
        each = (now - self._start) / (done - self._first)
        return f"  ETA {clock(each * (self._total - done))}"

    def close(self) -> None:
        """Removes the bar, if there is one."""
        if self._bar:
            self._bar.close()


def clock(seconds: float) -> str:
    """Returns a time as hours, minutes and seconds, such as 0:01:30."""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}"

"""What people see while they wait: progress, durations, and text without control characters.

Progress is a bar on a terminal or in a notebook, or a line every ten seconds.
"""

import abc
import contextlib
import html
import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from bert.log import logger

_SECONDS_BETWEEN_LINES = 10
# In a notebook; the first drawing comes after as long.
_SECONDS_BETWEEN_DRAWINGS = 0.5


class Bar(abc.ABC):
    """A bar, from when its work has lasted a moment until it is closed.

    Args:
      first: The seconds before the first drawing.
      between: The seconds between drawings.
    """

    def __init__(self, first: float, between: float) -> None:
        self._due = time.monotonic() + first
        self._between = between

    @abc.abstractmethod
    def draw(self, done: float, text: str) -> None:
        """Draws the bar at once, with a text after it."""

    @abc.abstractmethod
    def remove(self) -> None:
        """Removes the bar if it was drawn."""

    def show(self, now: float, done: float, describe: Callable[[], str]) -> None:
        """Draws the bar if it is due; `describe` returns the text after it."""
        if now >= self._due:
            self._due = now + self._between
            self.draw(done, describe())

    def close(self) -> None:
        """Removes the bar for good."""
        self.remove()
        self._due = float("inf")

    def __del__(self) -> None:
        # Work may end before its last step: by an exception, or since nobody reads its rest.
        with contextlib.suppress(Exception):
            self.close()


class _NotebookBar(Bar):
    """A bar below the cell of a notebook."""

    def __init__(self, what: str, total: float) -> None:
        super().__init__(_SECONDS_BETWEEN_DRAWINGS, _SECONDS_BETWEEN_DRAWINGS)
        self._what, self._total = html.escape(what), total
        self._output: Any = None

    def draw(self, done: float, text: str) -> None:
        bar = f'<progress value="{done}" max="{self._total}"></progress>'
        self._put(f"{self._what} {bar} {html.escape(text)}")

    def remove(self) -> None:
        if self._output:
            self._put("")
            self._output = None

    def _put(self, content: str) -> None:
        shown = {"text/html": content, "text/plain": ""}
        if self._output:
            self._output.update(shown, raw=True)
        else:
            from IPython.display import display  # noqa: PLC0415

            self._output = display(shown, raw=True, display_id=True)


def _open_in_notebook(what: str, total: float) -> Bar | None:
    # A kernel of Jupyter shows HTML; IPython on a terminal has none.
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return _NotebookBar(what, total) if hasattr(shell, "kernel") else None


_open_bar: Callable[[str, float], Bar | None] = _open_in_notebook


def show_bars(open_bar: Callable[[str, float], Bar | None]) -> None:
    """Sets the function that opens a bar; `open_bar(what, total)` may return None for no bar."""
    global _open_bar  # noqa: PLW0603
    _open_bar = open_bar


_num_hiding = 0


@contextlib.contextmanager
def no_bars() -> Iterator[None]:
    """Opens no bars during a block that writes to the terminal."""
    global _num_hiding  # noqa: PLW0603
    _num_hiding += 1
    try:
        yield
    finally:
        _num_hiding -= 1


class Progress:
    """Shows the progress of work and the time that it may still take.

    Args:
      what: The kind of work, to begin a line.
      total: The amount of work, in any unit.
      done: The amount that was done before.
    """

    def __init__(self, what: str, total: float, done: float = 0) -> None:
        self._what = what
        self._total = total
        self._bar = None if _num_hiding else _open_bar(what, total)
        self.restart(done)

    def restart(self, done: float) -> None:
        """Estimates the speed from now on, when `done` is done."""
        self._first = done
        self._start = self._last = time.monotonic()

    def __call__(self, done: float, describe: Callable[[], str] | None = None) -> None:
        """Shows progress if it is due.

        Args:
          done: The amount of work that is done.
          describe: Returns the text in place of the kind and share of the work.
        """
        now = time.monotonic()
        is_over = done >= self._total
        if self._bar and is_over:
            self.close()
        elif self._bar:
            share = describe or (lambda: self._share(done))
            self._bar.show(now, done, lambda: share() + self.left(done, now))
        elif now - self._last >= _SECONDS_BETWEEN_LINES and self._first < done < self._total:
            said = describe() if describe else f"{self._what}: {self._share(done)}"
            self.write(f"{said}{self.left(done, now)}", now)

    def announce(self, text: str) -> None:
        """Shows a text beside the bar, if there is one, before the work begins."""
        if self._bar:
            self._bar.draw(self._first, text)

    def write(self, line: str, now: float | None = None) -> None:
        """Logs a line at once; the next line is due ten seconds later."""
        self._last = time.monotonic() if now is None else now
        logger.info("%s", line)

    def _share(self, done: float) -> str:
        return f"{100 * done / self._total:.0f} %"

    def left(self, done: float, now: float | None = None) -> str:
        """Returns the remaining time, to end a line, or "" if it is unknown."""
        if not self._first < done < self._total:
            return ""
        now = time.monotonic() if now is None else now
        seconds = (now - self._start) / (done - self._first)
        return f"  ETA {clock(seconds * (self._total - done))}"

    def close(self) -> None:
        """Removes the bar."""
        if self._bar:
            self._bar.close()


def clock(seconds: float) -> str:
    """Returns a time as hours, minutes and seconds, such as 0:01:30."""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}"


def counted(number: float, noun: str, plural: str = "") -> str:
    """Returns a number with its noun: 1 word, 2 words; the plural may be another one."""
    text = f"{number:,}" if isinstance(number, int) else f"{number:g}"
    return f"{text} {noun if number == 1 else plural or f'{noun}s'}"


_UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0}
_NUMBER = r"([0-9]+(?:\.[0-9]+)?)"
_DURATION = re.compile("".join(rf"(?:{_NUMBER}{unit})?" for unit in _UNITS))


def read_duration(text: str) -> float:
    """Returns the seconds of a time such as 90s, 60m, 1.5h or 1h30m.

    Raises:
      ValueError: where the text is no time, or 0.
    """
    match = _DURATION.fullmatch(text)
    numbers = match.groups() if match else ()
    seconds = sum(
        float(number) * unit
        for number, unit in zip(numbers, _UNITS.values(), strict=False)
        if number
    )
    if not seconds:
        raise ValueError(
            f"a time must be hours, minutes and seconds, such as 90s, 60m, 1.5h or 1h30m, and more "
            f"than nothing. Received {text!r}"
        )
    return seconds


def duration_text(seconds: float) -> str:
    """Returns the text of a time, which `read_duration` reads; equal times have equal texts."""
    parts = []
    # 1.1 h, times 3600, are a bit more than 66 m.
    seconds = round(seconds, 6)
    for unit, size in _UNITS.items():
        count = seconds if unit == "s" else seconds // size
        if count:
            parts.append(f"{count:g}{unit}")
        seconds -= count * size
    return "".join(parts)


# Control characters, such as the escape and line breaks; line separators; characters that change
# the direction of text; and surrogates. Characters within words, such as joiners, are not escaped.
_CONTROLS = re.compile("[\x00-\x1f\x7f\x80-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_IN_LINES = re.compile(_CONTROLS.pattern.replace("\x00-\x1f", "\x00-\x08\x0b-\x1f"))


def visible(text: str) -> str:
    r"""Returns a text in one line: `\x1b` in place of an escape, `\n` in place of a line break."""
    return _CONTROLS.sub(_spell, text)


def visible_lines(text: str) -> str:
    """Returns a text with escapes for control characters, except line breaks and tabs."""
    return _IN_LINES.sub(_spell, text)


def _spell(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode()


class _Argument(str):
    """The `visible` text of an object, with the `repr` of the object, which has escapes."""

    _value: Any

    def __new__(cls, value: Any) -> "_Argument":
        made = super().__new__(cls, visible(str(value)))
        made._value = value
        return made

    def __repr__(self) -> str:
        return repr(self._value)


def as_argument(value: Any) -> Any:
    """Returns an argument of a message without line breaks and control characters."""
    return _Argument(value) if isinstance(value, str | BaseException | os.PathLike) else value

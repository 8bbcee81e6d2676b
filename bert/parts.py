"""The named parts of a plan: a line records what was opened, or what is wrong."""

import contextlib
import dataclasses
import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from bert.log import logger
from bert.options import Message, MessageError, Spelling, joined, spell

GOOD, WARNED, WRONG, UNCHECKED = "✓", "!", "✗", "–"  # noqa: RUF001

_NEEDS_OTHERS = "not checked, for it needs what is wrong above"

# The errors that a user can cause, besides those of TensorFlow; any other is a bug.
_FAULTS = (ValueError, ArithmeticError, OSError, MemoryError, RecursionError)


def is_fault(error: Exception) -> bool:
    """Returns whether an error may be caused by a user; otherwise it is a bug."""
    tf = sys.modules.get("tensorflow")
    return isinstance(error, _FAULTS) or bool(tf and isinstance(error, tf.errors.OpError))


class _Failed:
    """The value of a part that could not be opened, or was not checked."""


FAILED: Any = _Failed()


@dataclasses.dataclass(frozen=True)
class Line:
    """A line of a plan about one of its parts.

    Attributes:
      mark: The state of the part: `GOOD`, `WARNED`, `WRONG` or `UNCHECKED`.
      name: The name of the part.
      text: A description, or the exception that says what is wrong.
      warnings: The warnings that were logged.
    """

    mark: str
    name: str
    text: Any
    warnings: tuple[Any, ...] = ()

    def spell(self, spelling: Spelling) -> str:
        """Returns the text with its options as `spelling` gives them."""
        text, *warnings = (str(spell(part, spelling)) for part in (self.text, *self.warnings))
        if self.mark == WRONG:
            return text
        text = text.removeprefix(f"{self.name.capitalize()}: ")
        return ". ".join(part.rstrip(".") for part in (text, *warnings) if part)

    def __str__(self) -> str:
        """Returns the line with its options as Python spells them."""
        return f"{self.mark} {self.name:16} {self.spell(str)}".rstrip()


class PlanError(MessageError):
    """A run cannot be done as it is described.

    The text has a line for each fault.

    Attributes:
      faults: The faults, in the order in which they were found.
      lines: The lines of all parts.
    """

    def __init__(self, faults: Sequence[Exception], lines: Sequence[Line]) -> None:
        super().__init__("\n".join(["%s"] * len(faults)), *faults)
        self.faults = tuple(faults)
        self.lines = tuple(lines)


class _Messages(logging.Filter):
    """Records log messages, and lets them through unless they are muted."""

    def __init__(self, level: int, *, is_muted: bool) -> None:
        super().__init__()
        self._level = level
        self._is_muted = is_muted
        self.infos: list[Message] = []
        self.warnings: list[Message] = []

    def filter(self, record: logging.LogRecord) -> bool:
        """Records a message; returns whether it is logged, too."""
        if record.levelno >= logging.INFO:
            arguments = record.args if isinstance(record.args, tuple) else ()
            is_warning = record.levelno >= logging.WARNING
            messages = self.warnings if is_warning else self.infos
            messages.append(Message(str(record.msg), *arguments))
        return not self._is_muted and record.levelno >= self._level


@contextlib.contextmanager
def recorded_messages(*, is_muted: bool = True) -> Iterator[_Messages]:
    """Records the log messages of a block."""
    level = logger.level
    messages = _Messages(logger.getEffectiveLevel(), is_muted=is_muted)
    logger.addFilter(messages)
    logger.setLevel(min(logger.getEffectiveLevel(), logging.INFO))
    try:
        yield messages
    finally:
        logger.setLevel(level)
        logger.removeFilter(messages)


class Parts:
    """Opens parts by name.

    Args:
      is_muted: Whether log messages are only shown in lines.

    Attributes:
      lines: A line for each part so far.
      faults: The faults so far.
    """

    def __init__(self, *, is_muted: bool) -> None:
        self._is_muted = is_muted
        self.lines: list[Line] = []
        self.faults: list[Exception] = []

    def __call__(
        self,
        name: str,
        function: Callable[..., Any],
        *arguments: Any,
        shows: str | Message | Callable[[Any], str | Message] | None = None,
    ) -> Any:
        """Calls a function, records a line about it, and returns its value.

        Args:
          name: The name of the part.
          function: Raises where something is wrong; its warnings are part of the line.
          *arguments: The arguments of the function. If one is `FAILED`, it is not called.
          shows: The text of the line, or what returns it for the value; absent, what is logged.

        Returns:
          `FAILED` where there is no value.
        """
        if any(argument is FAILED for argument in arguments):
            self.add(UNCHECKED, name, _NEEDS_OTHERS)
            return FAILED
        try:
            with recorded_messages(is_muted=self._is_muted) as messages:
                value = function(*arguments)
            text = joined(messages.infos, " ") if shows is None else shows
            text = text(value) if callable(text) else text
        except Exception as error:
            # The loss of another worker is not a fault of this part.
            if hasattr(error, "exit_status") or not is_fault(error):
                raise
            self.faults.append(error)
            self.record(Line(WRONG, name, error))
            return FAILED
        mark = WARNED if messages.warnings else GOOD
        self.record(Line(mark, name, text, tuple(messages.warnings)))
        return value

    def add(self, mark: str, name: str, text: str) -> None:
        """Records a line about a part without calling a function."""
        self.record(Line(mark, name, text))

    def record(self, line: Line) -> None:
        """Records a line."""
        self.lines.append(line)

    def check(self, later: str = "") -> None:
        """Raises `PlanError` if anything is wrong.

        Args:
          later: The name of a part that would have been checked next.
        """
        if self.faults and later:
            self.add(UNCHECKED, later, _NEEDS_OTHERS)
        if self.faults:
            raise PlanError(self.faults, self.lines) from self.faults[0]

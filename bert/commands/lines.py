"""The lines that a script writes, and on a terminal the bars below those of standard error."""

import copy
import json
import logging
import os
import sys
import time
from typing import Any

from absl import flags
from absl import logging as absl_logging

from bert.files.display import Bar, as_argument, show_bars, visible_lines
from bert.log import logger
from bert.options import Option, OptionError, spell

_PREFIXES = (
    (logging.ERROR, "Error: ", "red"),
    (logging.WARNING, "Warning: ", "yellow"),
)

# A bar is drawn so often, and not before its work has taken so long.
_SECONDS_BETWEEN_DRAWINGS = 0.1
_SECONDS_BEFORE_A_BAR = 0.5


def is_terminal() -> bool:
    """Returns whether standard error is a terminal that can move its cursor."""
    stream = sys.stderr
    return bool(stream and stream.isatty()) and os.environ.get("TERM", "") not in ("", "dumb")


class LineHandler(logging.StreamHandler):
    """Writes what is logged: on a terminal as it is, elsewhere behind the time of the day.

    Warnings and errors are marked by their first word, on a terminal also by their colour.

    Args:
      as_json: Whether each line is a JSON object, with the fields of what is logged as
        `extra={"fields": ...}`.
    """

    def __init__(self, as_json: bool = False) -> None:
        super().__init__()
        self._as_json = as_json
        self.bars = _Bars() if is_terminal() and not as_json else None
        if self.bars:
            show_bars(open_bar)

    def emit(self, record: logging.LogRecord) -> None:
        """Writes a line, whatever it says."""
        if _is_chatter(record):
            return
        try:
            if self.bars:
                self.bars.write(*_text_and_colour(record))
            else:
                # Tests and notebooks exchange it.
                self.stream = sys.stderr
                super().emit(record)
        except Exception:
            self.handleError(record)

    def format(self, record: logging.LogRecord) -> str:
        """Returns the line."""
        if self._as_json:
            return _as_json(record)
        now = time.strftime("%H:%M:%S", time.localtime(record.created))
        return f"{now} {_text_and_colour(record)[0]}".rstrip()


def _text_and_colour(record: logging.LogRecord) -> tuple[str, str]:
    level = record.levelno
    prefix, colour = next((each[1:] for each in _PREFIXES if level >= each[0]), ("", ""))
    return prefix + _text(record), colour


def _text(record: logging.LogRecord) -> str:
    """Returns what a record says; what it says of users' texts is in no line of its own."""
    arguments = record.args
    if isinstance(arguments, tuple):
        record = copy.copy(record)
        record.args = tuple(as_argument(spell(each, Option.as_flag)) for each in arguments)
    text = record.getMessage()
    if record.exc_info:
        text += "\n" + logging.Formatter().formatException(record.exc_info)
    return visible_lines(text)


def _as_json(record: logging.LogRecord) -> str:
    now = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
    line = {
        "time": f"{now}.{int(record.msecs):03}Z",
        "level": record.levelname.lower(),
        "message": _text(record),
    }
    return json.dumps({**line, **getattr(record, "fields", {})})


def _is_chatter(record: logging.LogRecord) -> bool:
    """Returns whether a library reports its own work, which only --verbosity=1 shows."""
    is_ours = record.name.partition(".")[0] == logger.name
    is_needed = is_ours or record.levelno >= logging.WARNING
    return not is_needed and not logger.isEnabledFor(logging.DEBUG)


def print_text(text: str) -> None:
    """Prints a text; characters that standard output cannot show are escaped."""
    encoding = sys.stdout.encoding or "utf-8"
    print(text.encode(encoding, "backslashreplace").decode(encoding), flush=True)


def write_lines() -> None:
    """Makes a script write all log records as lines, in place of absl's handler."""
    root = logging.root
    root.removeHandler(absl_logging.get_absl_handler())
    if _line_handler() is None:
        root.addHandler(LineHandler())
    _silence_tensorflow()


def write_json_lines() -> None:
    """Makes a script write all that is logged as JSON, an object a line."""
    write_lines()
    root = logging.root
    for handler in [*root.handlers]:
        if isinstance(handler, LineHandler):
            root.removeHandler(handler)
    root.addHandler(LineHandler(as_json=True))


def begin_run(check: bool) -> None:
    """Begins the `run` of a script, which is no dry run; shows its log as `show_lines`.

    Raises:
      OptionError: where the option `check` is given: a program calls the function `check`.
    """
    if check:
        remedy = "The script's `check(settings, bert.commands.checks.Checks())` is the dry run."
        raise OptionError("check", "be left out of a run", check, remedy)
    show_lines()


def show_lines() -> None:
    """Shows the log of a run in a Python program or a notebook that has not configured logging.

    Either a handler or a level configures it; a verbosity of absl is the level.
    """
    root = logging.root
    # The notebooks of Colab start with a handler that shows warnings alone.
    is_colab = "google.colab" in sys.modules and root.level >= logging.WARNING
    if logger.handlers or (root.handlers and not is_colab):
        return
    handler = LineHandler()
    if not flags.FLAGS["verbosity"].using_default_value:
        logger.setLevel(absl_logging.get_absl_logger().level)
    elif logger.level == logging.NOTSET:
        logger.setLevel(logging.INFO)
    for each in (logger, absl_logging.get_absl_logger()):
        each.addHandler(handler)
        # absl adds a handler to the root at its first record, which would write each line again.
        each.propagate = False
    tensorflow = _silence_tensorflow()
    if tensorflow.handlers:
        tensorflow.propagate = False


def _silence_tensorflow() -> logging.Logger:
    """Hides TensorFlow's reports of its work; warnings and errors are shown once."""
    tensorflow = logging.getLogger("tensorflow")
    if tensorflow.level == logging.NOTSET and not logger.isEnabledFor(logging.DEBUG):
        tensorflow.setLevel(logging.WARNING)
    if logging.root.handlers:
        for handler in [*tensorflow.handlers]:
            tensorflow.removeHandler(handler)
    return tensorflow


def _line_handler() -> LineHandler | None:
    handlers = [*logging.root.handlers, *logger.handlers]
    return next((each for each in handlers if isinstance(each, LineHandler)), None)


class _TerminalBar(Bar):
    """A bar on a terminal.

    Args:
      display: Where it is drawn.
      what: What is done, before the bar.
      total: How much there is to do.
    """

    def __init__(self, display: Any, what: str, total: float) -> None:
        super().__init__(_SECONDS_BEFORE_A_BAR, _SECONDS_BETWEEN_DRAWINGS)
        self._display = display
        self._what = what
        self._total = total
        self._task: Any = None

    def draw(self, done: float, text: str) -> None:
        if self._task is None:
            self._task = self._display.add_task(self._what, total=self._total, told="")
            self._display.start()
        self._display.update(self._task, completed=done, told=text, refresh=True)

    def remove(self) -> None:
        if self._task is not None:
            self._display.remove_task(self._task)
            if self._display.tasks:
                self._display.refresh()
            else:
                self._display.stop()
            self._task = None


def open_bar(what: str, total: float) -> Bar | None:
    """Returns a bar; None where there is none, for what is logged goes to no terminal."""
    handler = _line_handler()
    if handler is None or handler.bars is None:
        return None
    return _TerminalBar(handler.bars.display, what, total)


class _Bars:
    """The display of all bars, and the lines that appear above them."""

    def __init__(self) -> None:
        # Only who sees bars waits for it.
        from rich import console, progress  # noqa: PLC0415

        class Console(console.Console):
            def show_cursor(self, show: bool = True) -> bool:
                # A process that is killed could not show it again.
                return False

        self._console = Console(stderr=True, highlight=False)
        self.display = progress.Progress(
            progress.TextColumn("{task.description}", markup=False),
            progress.BarColumn(bar_width=None),
            progress.TextColumn("{task.fields[told]}", markup=False),
            console=self._console,
            expand=True,
            # Nothing is drawn by a thread, which signals and processes could meet at work.
            auto_refresh=False,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )

    def write(self, text: str, colour: str) -> None:
        from rich.text import Text  # noqa: PLC0415

        self._console.print(Text(text, style=colour), soft_wrap=True)

"""How a script starts, and how far its work is."""

import itertools
import sys
import time
from collections.abc import Callable, Sequence

from absl import app, flags, logging

_SECONDS_BETWEEN_LINES = 10
_TRUTH_VALUES = {"true": True, "t": True, "1": True, "false": False, "f": False, "0": False}


class Progress:
    """Logs how far the work is and how long it may still take, every 10 seconds until it is done.

    Args:
      what: What is done, to begin the line.
      total: How much there is to do, in any unit.
    """

    def __init__(self, what: str, total: float) -> None:
        self._what = what
        self._total = total
        self._start = self._last = time.monotonic()

    def __call__(self, done: float) -> None:
        """Takes how much of the total is done."""
        now = time.monotonic()
        if now - self._last >= _SECONDS_BETWEEN_LINES and 0 < done < self._total:
            self._last = now
            left = (now - self._start) * (self._total / done - 1)
            logging.info("%s: %.0f %%  ETA %s", self._what, 100 * done / self._total, clock(left))


def clock(seconds: float) -> str:
    """Returns a time as hours, minutes and seconds, such as 0:01:30."""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}"


def run_script(main: Callable[[list[str]], None], *, takes_arguments: bool = False) -> None:
    """Runs `main`; what the user can mend ends as one line and exit status 1, not as a traceback.

    With --verbosity=1 the traceback is shown, too. `takes_arguments` allows what is not a flag.
    """

    def checked_main(arguments: list[str]) -> None:
        remedy = _remedy_for_spaces(arguments[1:])
        if remedy or (len(arguments) > 1 and not takes_arguments):
            raise app.UsageError(f"Arguments must be flags. Received {arguments[1:]}.{remedy}")
        try:
            main(arguments)
        except (ValueError, ArithmeticError, OSError) as error:
            logging.debug("The error arose here:", exc_info=True)
            logging.error("%s", error)
            sys.exit(1)

    app.run(checked_main)


def _remedy_for_spaces(arguments: Sequence[str]) -> str:
    """Returns how to write `--flag False`: the value of a boolean flag is no argument of its own.

    Args:
      arguments: Those that are no flags.
    """
    for before, word in itertools.pairwise(sys.argv):
        name, value = before.lstrip("-"), _TRUTH_VALUES.get(word.lower())
        if word not in arguments or value is None or not before.startswith("-"):
            continue
        if name in flags.FLAGS and flags.FLAGS[name].boolean:
            short = f"--{name}" if value else f"--no{name}"
            return f" Write `{before} {word}` as `--{name}={word.lower()}` or `{short}`."
    return ""

"""How a script starts, and how far its work is."""

import sys
import time
from collections.abc import Callable

from absl import app, logging

_SECONDS_BETWEEN_LINES = 10


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
        if len(arguments) > 1 and not takes_arguments:
            raise app.UsageError(f"Arguments must be flags. Received {arguments[1:]}.")
        try:
            main(arguments)
        except (ValueError, ArithmeticError, OSError) as error:
            logging.debug("The error arose here:", exc_info=True)
            logging.error("%s", error)
            sys.exit(1)

    app.run(checked_main)

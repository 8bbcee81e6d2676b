"""How far long work is, for the log."""

import time

from absl import logging

_SECONDS_BETWEEN_LINES = 10


class Progress:
    """Logs how far the work is and how long it may still take, every 10 seconds at most.

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
        if now - self._last >= _SECONDS_BETWEEN_LINES and done:
            self._last = now
            remaining = (now - self._start) * max(self._total / done - 1, 0)
            logging.info(
                "%s: %.0f %%, about %.0f s to go.", self._what, 100 * done / self._total, remaining
            )

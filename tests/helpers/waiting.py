"""Waiting for what other threads and processes do, but not for ever."""

import time

# Longer than anything takes that ends, also on a machine with much else to do.
LONGEST = 600.0


def wait_until(holds, seconds=30.0, *, pause=0.005, describe=str):
    """Returns what a condition gives once it holds.

    Args:
      holds: The condition.
      seconds: Fails after so many.
      pause: Seconds between two looks.
      describe: Returns what to show then, such as a log.
    """
    deadline = time.monotonic() + seconds
    while not (found := holds()):
        assert time.monotonic() < deadline, f"It did not hold within {seconds:g} s.\n{describe()}"
        time.sleep(pause)
    return found

"""What both workers of pretraining_step.py do: they answer requests, one a line, with numbers."""

import json
import sys
import time
from collections.abc import Callable
from typing import Any


def read_setting() -> dict[str, Any]:
    """Returns the fields of `pretraining_step.Setting` from the command line."""
    return json.loads(sys.argv[1])


def serve(measures: dict[str, Callable[[], float]]) -> None:
    """Answers each line of the standard input by the number that the measure of that name gives."""
    for line in sys.stdin:
        print(measures[line.strip()](), flush=True)


def seconds(step: Callable[[], Any]) -> float:
    """Returns how long one call takes."""
    started = time.perf_counter()
    step()
    return time.perf_counter() - started

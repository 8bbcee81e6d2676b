"""What the processes that are measured have in common: they answer requests, one a line.

Their side of `turns.py`. It runs in the environments of all programs that are compared, so it
imports nothing but Python's own library.
"""

import json
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any


def read_setting() -> dict[str, Any]:
    """Returns what `turns.Worker` was given, from the command line."""
    return json.loads(sys.argv[1])


def serve(measures: Mapping[str, Callable[..., Any]]) -> None:
    """Answers each line of the standard input by what the measure of that name returns."""
    answers, sys.stdout = sys.stdout, sys.stderr  # What libraries print is no answer.
    for line in sys.stdin:
        request = json.loads(line)
        answer = measures[request.pop("measure")](**request)
        print(json.dumps(answer), file=answers, flush=True)


def seconds(step: Callable[[], Any]) -> float:
    """Returns how long one call takes."""
    started = time.perf_counter()
    step()
    return time.perf_counter() - started


def memory(name: str) -> int:
    """Returns the bytes of memory that this process holds, "VmRSS", or held at most, "VmHWM"."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name))

"""Programs that are measured in turns, each in a process of its own, and tables of what they did.

What else a machine does meets all alike where the programs take turns. So speeds are compared
within a round, and a figure is a median over rounds.
"""

import json
import os
import platform
import statistics
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parent

# Threads of some libraries spin on after their work is done, for less than so many seconds.
PAUSE = 0.1


def peer_python(given: str | None = None) -> str:
    """Returns the Python that the programs of others run in.

    Args:
      given: The one that a flag names.

    Raises:
      ValueError: where there is none.
    """
    python = given or str(ROOT / ".venv-bench" / "bin" / "python")
    if not os.path.exists(python):
        raise ValueError(
            f"The programs that are measured beside must be installed. There is no {python!r}. "
            "`make .venv-bench` makes it."
        )
    return python


class Worker:
    """A process that measures what it is asked for, and waits otherwise.

    Args:
      python: What runs it.
      script: Its file in this folder.
      setting: What it is given, as JSON.
    """

    def __init__(self, python: str, script: str, setting: Mapping[str, Any]) -> None:
        threads = str(os.cpu_count())
        self.process = subprocess.Popen(
            [python, str(FOLDER / script), json.dumps(setting)],
            env={
                "OMP_NUM_THREADS": threads,
                "TF_CPP_MIN_LOG_LEVEL": "3",
                **os.environ,
                "PYTHONPATH": str(ROOT),
            },
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> "Worker":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.communicate("")

    def ask(self, measure: str, **arguments: Any) -> Any:
        """Returns what the worker's measure of that name does."""
        assert self.process.stdin
        assert self.process.stdout
        time.sleep(PAUSE)
        line = json.dumps({"measure": measure, **arguments})
        print(line, file=self.process.stdin, flush=True)
        answer = self.process.stdout.readline()
        if not answer:
            raise ValueError(f"{self.process.args!r} must answer. Its own message is above.")
        return json.loads(answer)


def describe(rounds: int) -> str:
    """Returns a line that tells what a table's figures are, and where they were measured."""
    return f"Medians of {rounds} rounds, {os.cpu_count()} cores, {platform.machine()}.\n"


def median_ratio(numbers: Sequence[float], reference: Sequence[float]) -> float:
    """Returns the median of what each round's number is, divided by the same round's reference."""
    return statistics.median(a / b for a, b in zip(numbers, reference, strict=True))


def format_table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Returns a table in Markdown that is one to the eye, too: first column left, others right."""
    cells = [list(titles), *(list(row) for row in rows)]
    widths = [max(3, *(len(row[place]) for row in cells)) for place in range(len(titles))]

    def line(row: Sequence[str]) -> str:
        first, *others = zip(row, widths, strict=True)
        padded = [first[0].ljust(first[1]), *(cell.rjust(width) for cell, width in others)]
        return "| " + " | ".join(padded) + " |"

    rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
    return "\n".join([line(cells[0]), line(rule), *map(line, cells[1:])]) + "\n"

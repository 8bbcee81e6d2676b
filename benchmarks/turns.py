"""Programs that are measured in turns, each in a process of its own, and tables of what they did.

What else a machine does meets all alike where the programs take turns. So speeds are compared
within a round, and a figure is a median over rounds.
"""

import contextlib
import json
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parent

# What is read where no text is named.
SAMPLE_TEXT = str(ROOT / "sample_text.txt")
SAMPLE_VOCABULARY = str(ROOT / "sample" / "vocab.txt")

# Threads of some libraries spin on after their work is done, for less than so many seconds.
PAUSE = 0.1


def peer_python(given: str | None = None) -> str:
    """Returns the Python that the programs of others run in.

    Args:
      given: The one that a flag names.

    Raises:
      SystemExit: where there is none.
    """
    python = given or str(ROOT / ".venv-bench" / "bin" / "python")
    if not os.path.exists(python):
        raise SystemExit(
            "The programs that are measured beside must be installed. There is no "
            f"{python!r}. `make .venv-bench` makes the one of benchmarks/requirements.txt."
        )
    return python


def run_quietly(command: Sequence[str], **options: Any) -> str:
    """Runs a program and returns what it writes to the standard output.

    Raises:
      ValueError: with what else it wrote, where it fails.
    """
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    if done.returncode:
        raise ValueError(f"{command!r} must succeed. It said:\n{done.stderr[-4000:]}")
    return done.stdout


class Worker:
    """A process that measures what it is asked for, and waits otherwise.

    Args:
      python: What runs it.
      script: Its file in this folder.
      setting: What it is given, as JSON.
    """

    def __init__(self, python: str, script: str, setting: Mapping[str, Any]) -> None:
        threads = str(os.cpu_count())
        # Libraries have much to say; it matters only when they fail.
        self._messages = tempfile.TemporaryFile()  # noqa: SIM115 (__exit__ closes it)
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
            stderr=self._messages,
            text=True,
        )

    def __enter__(self) -> "Worker":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.communicate("")
        self._messages.close()

    def ask(self, measure: str, **arguments: Any) -> Any:
        """Returns what the worker's measure of that name does."""
        assert self.process.stdin
        assert self.process.stdout
        time.sleep(PAUSE)
        line = json.dumps({"measure": measure, **arguments})
        with contextlib.suppress(BrokenPipeError):  # It has failed already.
            print(line, file=self.process.stdin, flush=True)
        answer = self.process.stdout.readline()
        if not answer:
            self.process.wait()
            self._messages.seek(0)
            messages = self._messages.read().decode(errors="replace")
            raise ValueError(f"{self.process.args!r} must answer. It said:\n{messages[-4000:]}")
        return json.loads(answer)


def describe(rounds: int, peaks: Mapping[str, Sequence[float]] | None = None) -> str:
    """Returns a line that tells what the figures are, and what the machine reached beside.

    Args:
      rounds: Of which they are medians.
      peaks: Of matrix products, in FLOP/s, by precision.
    """
    line = f"Medians of {rounds} rounds in turns, {os.cpu_count()} cores."
    if peaks:
        reached = [
            f"{statistics.median(each) / 1e9:.0f} GFLOP/s in {name}" for name, each in peaks.items()
        ]
        line += f" Peak of matrix products: {', '.join(reached)}."
    return f"{line}\n"


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

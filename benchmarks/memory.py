"""Measures the memory of a training step, and tells what batch fits into how much.

    python benchmarks/memory.py [--memory_gb=12] [--precision=float32] [--lengths=128,512]

Prints, for BERT-Base under a classifier and each length, the largest batch that fits, with and
without `--gradient_checkpointing`; under `--gradient_accumulation_steps`, it is the largest part
of a batch. The peak of the resident memory of a process that takes two steps is a constant and so
much for each example; both are found from two batches. Each measurement is a process of its own,
so what else the machine does changes nothing.
"""

import dataclasses
import sys
from collections.abc import Iterator
from typing import Any

from absl import app, flags
from turns import Worker

LENGTHS = ("64", "128", "256", "320", "384", "512")
# Tokens of the two batches that are measured. Where little is kept of each, only a large batch
# takes more than the optimizer does in its turn.
TOKENS, TOKENS_AGAIN = (1024, 3072), (8192, 16384)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setting:
    """A training; the worker gets it as JSON."""

    length: int
    batch_size: int
    gradient_checkpointing: bool
    gradient_accumulation_steps: int = 1
    precision: str = "float32"


def measure(setting: Setting) -> int:
    """Returns the peak in bytes of a process that trains so."""
    with Worker(sys.executable, "memory_worker.py", dataclasses.asdict(setting)) as process:
        return process.ask("peak")


def fit(length: int, precision: str, *, again: bool) -> tuple[float, float]:
    """Returns the bytes of a step, and those of each of its examples."""
    first, second = (tokens // length for tokens in (TOKENS_AGAIN if again else TOKENS))
    peaks = [
        measure(
            Setting(
                length=length, batch_size=size, gradient_checkpointing=again, precision=precision
            )
        )
        for size in (first, second)
    ]
    each = (peaks[1] - peaks[0]) / (second - first)
    return peaks[0] - first * each, each


def table(lengths: list[int], memory: float, precision: str) -> Iterator[str]:
    """Yields the lines of a table: the largest batches of each length in so many bytes."""
    yield "| length | a step, layers kept | largest batch | layers computed again | largest batch |"
    yield "|---|---|---|---|---|"
    for length in lengths:
        cells = [str(length)]
        for again in (False, True):
            step, each = fit(length, precision, again=again)
            cells.append(f"{step / 1e9:.1f} GB + {each / 1e6:.0f} MB an example")
            cells.append(str(int((memory - step) / each)))
        yield f"| {' | '.join(cells)} |"


def define_flags() -> None:
    """Defines the flags."""
    flags.DEFINE_float("memory_gb", 12.0, "Memory to fit into.", lower_bound=1.0)
    flags.DEFINE_list("lengths", list(LENGTHS), "Tokens per sequence.")
    flags.DEFINE_string("precision", "float32", "As --precision of the scripts.")


def main(_: Any) -> None:
    """Runs the script on its flags."""
    values = flags.FLAGS
    lengths = [int(length) for length in values.lengths]
    for line in table(lengths, values.memory_gb * 1e9, values.precision):
        print(line, flush=True)


if __name__ == "__main__":
    define_flags()
    app.run(main)

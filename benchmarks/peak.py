"""Measures the peak of matrix products: what TensorFlow reaches with nothing but them.

    python benchmarks/peak.py [--rounds=5] [--hidden_size=768]

The products are those of a layer of BERT: four of the hidden size by itself, and the two of the
feed-forward part, with 4,096 rows, which are 32 sequences of 128 tokens. The other benchmarks
measure it in turn with what they measure and tell which share of it was reached.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import worker
from turns import Worker, describe, format_table

ROWS = 4096
PRECISIONS = ("float32", "bfloat16")
# A turn takes so many seconds, or one call where that takes longer.
SECONDS = 0.5


def make_peak(precision: str, hidden_size: int) -> Callable[[], float]:
    """Returns a function that measures for a moment and returns FLOP/s.

    Args:
      precision: One of `PRECISIONS`.
      hidden_size: Width of the model whose products they are.
    """
    import tensorflow as tf  # noqa: PLC0415 (the importing process may not need it)

    hidden, wide = hidden_size, 4 * hidden_size
    shapes = [*[(hidden, hidden)] * 4, (hidden, wide), (wide, hidden)]
    matrices = [tf.cast(tf.random.normal(shape) * 0.02, precision) for shape in shapes]
    rows = tf.cast(tf.random.normal((ROWS, hidden)), precision)

    @tf.function(autograph=False)
    def multiply(x: Any) -> Any:
        for matrix in matrices:
            x = x @ matrix
        return x

    flops = 2 * ROWS * sum(height * width for height, width in shapes)

    def measure() -> float:
        calls, started = 0, time.perf_counter()
        while not calls or time.perf_counter() - started < SECONDS:
            multiply(rows)
            calls += 1
        return calls * flops / (time.perf_counter() - started)

    multiply(rows)
    return measure


def main() -> None:
    """Prints the medians; or, started by `turns.Worker`, answers with peaks."""
    if sys.argv[1:2] and sys.argv[1].startswith("{"):
        hidden_size = worker.read_setting()["hidden_size"]
        worker.serve({name: make_peak(name, hidden_size) for name in PRECISIONS})
        return
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5, help="Turns of each precision.")
    parser.add_argument("--hidden_size", type=int, default=768, help="Width of the model.")
    arguments = parser.parse_args()
    with Worker(sys.executable, "peak.py", {"hidden_size": arguments.hidden_size}) as peak:
        turns = [{name: peak.ask(name) for name in PRECISIONS} for _ in range(arguments.rounds)]
    rows = [
        (name, f"{statistics.median(turn[name] for turn in turns) / 1e9:.0f}")
        for name in PRECISIONS
    ]
    print(describe(arguments.rounds))
    print(format_table(("matrix products", "GFLOP/s"), rows))


if __name__ == "__main__":
    main()

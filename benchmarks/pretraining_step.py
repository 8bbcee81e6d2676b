"""Measures the speed of the pre-training step, beside the `transformers` library with torch.

    python benchmarks/pretraining_step.py [--rounds=9] [--settings=tiny/float32] [--peer_python=...]

Prints, for BERT-Base (batch 8) and a two-layer model (batch 32), length 128 with 20 predictions, in
float32 and bfloat16: examples per second of both, their ratio, and the share of the peak of matrix
products (peak.py) that this project's step reaches. Every number is a median over rounds in which
the two programs, each in its own process, and the peak take turns.

A step is the whole of it: forward with dropout 0.1, both losses, backward, clipping by the global
norm, update with weight decay. `transformers` computes logits at every position, not the masked
ones alone; that is part of the difference.

--peer_python names a Python that has torch and transformers; else it is that of .venv-bench, which
`make .venv-bench` makes.
"""

import dataclasses
import statistics
import sys
from typing import Any

from absl import app, flags
from turns import Worker, describe, format_table, median_ratio, peer_python

# The first steps compile and allocate.
WARM_UP = 2


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setting:
    """A model, its batch and its precision; the workers get it as JSON."""

    hidden_size: int
    num_layers: int
    num_heads: int
    batch_size: int
    precision: str
    vocab_size: int = 30522
    length: int = 128
    predictions: int = 20

    def flops(self) -> float:
        """Returns the multiplications and additions in one step's matrix products.

        The last layer and the masked-LM head are counted at the positions that are read. The
        backward pass has two products for each one of the forward pass.
        """
        tokens, hidden = self.batch_size * self.length, self.hidden_size
        predicted = self.batch_size * self.predictions
        queries = predicted + self.batch_size  # [CLS] as well
        keys = 2 * hidden**2  # and values
        others = 10 * hidden**2  # query and output: 2 H^2; feed-forward: 2 H * 4 H
        attention = 2 * self.length * hidden  # scores and weighted sums, each S * H
        whole = (self.num_layers - 1) * tokens * (keys + others + attention)
        last = tokens * keys + queries * (others + attention)
        heads = predicted * (hidden**2 + hidden * self.vocab_size) + self.batch_size * hidden**2
        return 3 * 2 * (whole + last + heads)


SETTINGS = {
    f"{name}/{precision}": Setting(precision=precision, **sizes)
    for name, sizes in {
        "base": {"hidden_size": 768, "num_layers": 12, "num_heads": 12, "batch_size": 8},
        "tiny": {"hidden_size": 128, "num_layers": 2, "num_heads": 2, "batch_size": 32},
    }.items()
    for precision in ("float32", "bfloat16")
}


def measure(setting: Setting, python: str, rounds: int) -> dict[str, list[float]]:
    """Returns of each round the examples per second of both programs, and the peak in FLOP/s."""
    given = dataclasses.asdict(setting)
    speeds: dict[str, list[float]] = {"bert": [], "transformers": [], "peak": []}
    with (
        Worker(sys.executable, "bert_worker.py", given) as bert,
        Worker(python, "transformers_worker.py", given) as peer,
        Worker(sys.executable, "peak.py", given) as peak,
    ):
        for number in range(rounds + WARM_UP):
            taken = {"bert": bert.ask("step"), "transformers": peer.ask("step")}
            reached = peak.ask(setting.precision)
            if number >= WARM_UP:
                speeds["peak"].append(reached)
                for name, seconds in taken.items():
                    speeds[name].append(setting.batch_size / seconds)
    return speeds


def make_row(name: str, speeds: dict[str, list[float]]) -> list[str]:
    """Returns the line of the table for a setting."""
    setting = SETTINGS[name]
    share = setting.flops() / setting.batch_size * median_ratio(speeds["bert"], speeds["peak"])
    return [
        name,
        f"{statistics.median(speeds['bert']):.2f}",
        f"{statistics.median(speeds['transformers']):.2f}",
        f"{median_ratio(speeds['bert'], speeds['transformers']):.2f}",
        f"{statistics.median(speeds['peak']) / 1e9:.0f}",
        f"{share:.0%}",
    ]


def define_flags() -> None:
    """Defines the flags."""
    flags.DEFINE_integer("rounds", 9, "Steps of each program per setting.", lower_bound=1)
    flags.DEFINE_multi_enum(
        "settings", list(SETTINGS), list(SETTINGS), "What to measure; may be repeated."
    )
    flags.DEFINE_string("peer_python", None, "A Python that has torch and transformers.")


def main(_: Any) -> None:
    """Prints the table."""
    values = flags.FLAGS
    python = peer_python(values.peer_python)
    rows = [
        make_row(name, measure(SETTINGS[name], python, values.rounds)) for name in values.settings
    ]
    titles = ["examples/s", "ours", "transformers", "ratio", "peak GFLOP/s", "of peak"]
    print(describe(values.rounds))
    print(format_table(titles, rows))


if __name__ == "__main__":
    define_flags()
    app.run(main)

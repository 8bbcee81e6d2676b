"""Measures the speed of the pre-training step, beside the `transformers` library with torch.

    python benchmarks/pretraining_step.py [--rounds=9] [--settings=tiny/float32] [--peer_python=...]

Prints, for BERT-Base (batch 8) and a two-layer model (batch 32), length 128 with 20 predictions, in
float32 and bfloat16: examples per second of both, their ratio, and the share of the matrix-product
peak that this project's step reaches. Every number is a median over rounds in which the two
programs, each in its own process, and the peak take turns, so that what else the machine does
meets all alike.

A step is the whole of it: forward with dropout 0.1, both losses, backward, clipping by the global
norm, update with weight decay. `transformers` computes logits at every position, not the masked
ones alone; that is part of the difference.

--peer_python names a Python that has torch and transformers. Without it one is made in
.venv-benchmark, once, from benchmarks/requirements.txt (200 MB from the network).
"""

import dataclasses
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from absl import app, flags

FOLDER = Path(__file__).resolve().parent
PEER_ENVIRONMENT = FOLDER.parent / ".venv-benchmark"


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


class Worker:
    """A process that measures what it is asked for, and waits otherwise."""

    def __init__(self, python: str, script: str, setting: Setting) -> None:
        self.process = subprocess.Popen(
            [python, str(FOLDER / script), json.dumps(dataclasses.asdict(setting))],
            env={**os.environ, "PYTHONPATH": str(FOLDER.parent)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.ask("step")  # The first steps compile and allocate.
        self.ask("step")

    def __enter__(self) -> "Worker":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.communicate("")

    def ask(self, what: str) -> float:
        """Returns the seconds of a "step", or the FLOP/s of a "peak"."""
        assert self.process.stdin
        assert self.process.stdout
        print(what, file=self.process.stdin, flush=True)
        answer = self.process.stdout.readline()
        if not answer:
            raise ValueError(f"{self.process.args!r} must answer. Its own message is above.")
        return float(answer)


def measure(setting: Setting, peer_python: str, rounds: int) -> dict[str, float]:
    """Returns the medians: examples per second of both programs, and the peak in FLOP/s."""
    samples: dict[str, list[float]] = {"bert": [], "transformers": [], "peak": []}
    with (
        Worker(sys.executable, "bert_worker.py", setting) as bert,
        Worker(peer_python, "transformers_worker.py", setting) as peer,
    ):
        for _ in range(rounds):
            samples["bert"].append(setting.batch_size / bert.ask("step"))
            samples["peak"].append(bert.ask("peak"))
            samples["transformers"].append(setting.batch_size / peer.ask("step"))
    return {name: statistics.median(values) for name, values in samples.items()}


def make_peer_environment() -> str:
    """Returns the Python of `PEER_ENVIRONMENT`, which it makes where there is none."""
    python = str(PEER_ENVIRONMENT / "bin" / "python")
    installed = PEER_ENVIRONMENT / "installed"
    if not installed.exists():
        subprocess.run([sys.executable, "-m", "venv", str(PEER_ENVIRONMENT)], check=True)
        requirements = str(FOLDER / "requirements.txt")
        subprocess.run([python, "-m", "pip", "install", "-r", requirements], check=True)
        installed.touch()  # Only now: an interrupted installation is done again.
    return python


def run(names: list[str], peer_python: str | None, rounds: int) -> dict[str, dict[str, float]]:
    """Measures the settings of those names, prints a line for each and returns the numbers."""
    python = peer_python or make_peer_environment()
    print(f"{os.cpu_count()} cores, medians of {rounds} rounds; speeds in examples per second")
    results = {}
    for name in names:
        setting = SETTINGS[name]
        numbers = results[name] = measure(setting, python, rounds)
        reached = setting.flops() * numbers["bert"] / setting.batch_size
        print(
            f"{name:14}  bert {numbers['bert']:7.2f}  transformers {numbers['transformers']:6.2f}  "
            f"ratio {numbers['bert'] / numbers['transformers']:4.1f}  "
            f"{reached / numbers['peak']:3.0%} of {numbers['peak'] / 1e9:.0f} GFLOP/s",
            flush=True,
        )
    return results


def define_flags() -> None:
    """Defines the flags."""
    flags.DEFINE_integer("rounds", 9, "Steps of each program per setting.", lower_bound=1)
    flags.DEFINE_multi_enum(
        "settings", list(SETTINGS), list(SETTINGS), "What to measure; may be given repeatedly."
    )
    flags.DEFINE_string("peer_python", None, "A Python that has torch and transformers.")


def main(_: Any) -> None:
    """Runs the script on its flags."""
    values = flags.FLAGS
    run(values.settings, values.peer_python, values.rounds)


if __name__ == "__main__":
    define_flags()
    app.run(main)

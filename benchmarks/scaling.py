"""Measures training by two processes beside one, each with one thread on a core of its own.

    python benchmarks/scaling.py [--shapes=tiny,base] [--sent=float32,bfloat16] \
      [--accumulation=1,4] [--steps=8] [--rounds=1]

One process, and two that sum their gradients, take turns; each process has as many examples. Prints
for each setting the examples a second of both, how many times as many those of two are, the
megabytes that a worker sends in a step, and the seconds by which summing makes a step longer, which
is the time that a worker waits.

`tiny` is L=2 H=128 with 32 sequences of 128 tokens, `base` L=12 H=768 with 8 of 64 tokens: much to
send, little to compute. With --accumulation, a step has so many times more, in parts. The bytes are
those of the loopback device, so nothing else may use it.
"""

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
from typing import Any

from turns import FOLDER, ROOT

# Hidden size, layers, heads, sequences, and tokens of each.
SHAPES = {"tiny": (128, 2, 2, 32, 128), "base": (768, 12, 12, 8, 64)}


def settings_of(shape: str, sent: str, accumulation: int, steps: int) -> dict[str, Any]:
    """Returns what the workers are given."""
    hidden, layers, heads, size, length = SHAPES[shape]
    return {
        "hidden_size": hidden,
        "num_layers": layers,
        "num_heads": heads,
        "vocab_size": 30522,
        "batch_size": size * accumulation,
        "length": length,
        "predictions": 10,
        "precision": "float32",
        "sent": sent,
        "accumulation": accumulation,
        "steps": steps,
    }


def run(setting: dict[str, Any], count: int) -> dict[str, float]:
    """Returns the figures of so many processes that train together."""
    sys.path.insert(0, str(ROOT))
    from bert.scale.launch import free_ports  # noqa: PLC0415

    workers = [f"localhost:{port}" for port in free_ports(count)]
    processes = []
    for index in range(count):
        cluster = {"cluster": {"worker": workers}, "task": {"type": "worker", "index": index}}
        strategy = "multi_worker" if count > 1 else "one_device"
        own = {**setting, "index": index, "strategy": strategy}
        processes.append(
            subprocess.Popen(
                [sys.executable, str(FOLDER / "scaling_worker.py"), json.dumps(own)],
                env={**os.environ, "PYTHONPATH": str(ROOT), "TF_CONFIG": json.dumps(cluster)},
                stdout=subprocess.PIPE,
                text=True,
            )
        )
    figures = [json.loads(process.communicate()[0].splitlines()[-1]) for process in processes]
    if len({each["loss"] for each in figures}) > 1:
        raise SystemExit(f"All workers must have the same loss. Received {figures}.")
    return {**figures[0], "bytes": figures[0]["bytes"] / count}


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shapes", default="tiny,base")
    parser.add_argument("--sent", default="float32,bfloat16")
    parser.add_argument("--accumulation", default="1,4")
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=1)
    arguments = parser.parse_args()
    kinds = itertools.product(
        arguments.shapes.split(","),
        map(int, arguments.accumulation.split(",")),
        arguments.sent.split(","),
    )
    columns = ("one", "two", "times", "MB", "step", "waits", "loss")
    print("".join(f"{name:>10}" for name in columns))
    for (shape, accumulation), group in itertools.groupby(kinds, key=lambda kind: kind[:2]):
        kept = [kind[2] for kind in group]
        rounds = []
        for _ in range(arguments.rounds):
            settings = {
                sent: settings_of(shape, sent, accumulation, arguments.steps) for sent in kept
            }
            one = run(settings[kept[0]], 1)
            rounds.append((one, {sent: run(each, 2) for sent, each in settings.items()}))
        for sent in kept:
            size = settings[sent]["batch_size"]
            rows = [
                (
                    size / one["seconds"],
                    2 * size / two[sent]["seconds"],
                    2 * one["seconds"] / two[sent]["seconds"],
                    two[sent]["bytes"] / 1e6,
                    two[sent]["seconds"],
                    two[sent]["seconds"] - one["seconds"],
                    two[sent]["loss"],
                )
                for one, two in rounds
            ]
            medians = [statistics.median(column) for column in zip(*rows, strict=True)]
            name = f"{shape}, {sent}, {accumulation} parts"
            print("".join(f"{value:10.4g}" for value in medians), f" {name}", flush=True)


if __name__ == "__main__":
    main()

"""Measures the speed of feature extraction, beside the `transformers` library with torch.

    python benchmarks/feature_speed.py --text='books/*.txt' --vocab_file=vocab.txt [--rounds=5]

Both programs, each in a process of its own, take turns with the same lines, BERT-Base in float32 at
random weights: the last four layers of every token, once as arrays alone and once as the JSON lines
of extract_features.py. The lines are those of the text that are not blank, from its middle on.
`transformers` takes them in their order, padded to the longest of each batch. Medians over rounds.
"""

import dataclasses
import glob
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from absl import app, flags
from pretraining_step import FOLDER, make_peer_environment

MEASURES = ("arrays", "jsonl")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setting:
    """What both workers get, as JSON."""

    text_file: str
    vocab_file: str
    output_file: str
    hidden_size: int
    num_layers: int
    batch_size: int = 32
    length: int = 128


def take_lines(pattern: str, count: int) -> list[str]:
    """Returns lines from the middle of all files on."""
    lines = []
    for path in sorted(glob.glob(pattern)):
        text = Path(path).read_text(encoding="utf-8", errors="replace")
        lines += [line for line in text.splitlines() if line.strip()]
    start = max((len(lines) - count) // 2, 0)
    return lines[start : start + count]


class Worker:
    """A process that answers with seconds."""

    def __init__(self, python: str, script: str, setting: Setting) -> None:
        self.process = subprocess.Popen(
            [python, str(FOLDER / script), json.dumps(dataclasses.asdict(setting))],
            env={**os.environ, "PYTHONPATH": str(FOLDER.parent)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> "Worker":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.communicate("")

    def ask(self, what: str) -> float:
        """Returns the seconds that one of `MEASURES` takes."""
        assert self.process.stdin
        assert self.process.stdout
        print(what, file=self.process.stdin, flush=True)
        return float(self.process.stdout.readline())


def measure(setting: Setting, peer_python: str, rounds: int) -> dict[str, dict[str, float]]:
    """Returns the median seconds of each measure and program."""
    seconds: dict[str, dict[str, list[float]]] = {name: {} for name in MEASURES}
    with (
        Worker(sys.executable, "bert_features.py", setting) as bert,
        Worker(peer_python, "transformers_features.py", setting) as peer,
    ):
        for number in range(rounds + 1):
            for name in MEASURES:
                for program, worker in (("bert", bert), ("transformers", peer)):
                    taken = worker.ask(name)
                    # The first round compiles and allocates.
                    if number:
                        seconds[name].setdefault(program, []).append(taken)
    return {
        name: {program: statistics.median(each) for program, each in programs.items()}
        for name, programs in seconds.items()
    }


def define_flags() -> None:
    """Defines the flags."""
    flags.DEFINE_string("text", None, "Pattern of text files.", required=True)
    flags.DEFINE_string("vocab_file", None, "Lower-cased WordPiece vocabulary.", required=True)
    flags.DEFINE_integer("lines", 256, "Lines a round.", lower_bound=1)
    flags.DEFINE_integer("rounds", 5, "Turns of each program.", lower_bound=1)
    flags.DEFINE_integer("hidden_size", 768, "Width of the model.", lower_bound=64)
    flags.DEFINE_integer("num_layers", 12, "Layers of the model.", lower_bound=4)
    flags.DEFINE_string("peer_python", None, "A Python that has torch and transformers.")


def main(_: Any) -> None:
    """Runs the script on its flags."""
    values = flags.FLAGS
    python = values.peer_python or make_peer_environment()
    lines = take_lines(values.text, values.lines)
    with tempfile.TemporaryDirectory() as folder:
        text_file = Path(folder) / "text.txt"
        text_file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        setting = Setting(
            text_file=str(text_file),
            vocab_file=values.vocab_file,
            output_file=str(Path(folder) / "features.jsonl"),
            hidden_size=values.hidden_size,
            num_layers=values.num_layers,
        )
        print(f"{os.cpu_count()} cores, medians of {values.rounds} rounds of {len(lines)} lines")
        for name, seconds in measure(setting, python, values.rounds).items():
            ours, theirs = (len(lines) / seconds[program] for program in ("bert", "transformers"))
            print(
                f"{name:6}  bert {ours:7.1f}  transformers {theirs:7.1f} lines a second  "
                f"ratio {ours / theirs:.2f}",
                flush=True,
            )


if __name__ == "__main__":
    define_flags()
    app.run(main)

"""Measures the speed of feature extraction, beside the `transformers` library with torch.

    python benchmarks/feature_speed.py [--text='books/*.txt' --vocab_file=vocab.txt] [--rounds=5]

Both programs, each in a process of its own, take turns with the same lines, BERT-Base in float32 at
random weights: the last four layers of every token, once as arrays alone and once as the JSON lines
of extract_features.py. The lines are those of the text that are not blank, from its middle on.
`transformers` takes them in their order, padded to the longest of each batch. Medians over rounds.
"""

import dataclasses
import glob
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from absl import app, flags
from turns import (
    SAMPLE_TEXT,
    SAMPLE_VOCABULARY,
    Worker,
    describe,
    format_table,
    median_ratio,
    peer_python,
)

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


def measure(
    setting: Setting, python: str, rounds: int
) -> tuple[dict[str, dict[str, list[float]]], list[float]]:
    """Returns the seconds of each measure, program and round, and the peak in FLOP/s."""
    given = dataclasses.asdict(setting)
    seconds: dict[str, dict[str, list[float]]]
    seconds = {name: {"bert": [], "transformers": []} for name in MEASURES}
    peaks = []
    with (
        Worker(sys.executable, "bert_features.py", given) as bert,
        Worker(python, "transformers_features.py", given) as peer,
        Worker(sys.executable, "peak.py", given) as peak,
    ):
        for number in range(rounds + 1):
            reached = peak.ask("float32")
            # The first round compiles and allocates.
            if number:
                peaks.append(reached)
            for name in MEASURES:
                for program, each in (("bert", bert), ("transformers", peer)):
                    taken = each.ask(name)
                    if number:
                        seconds[name][program].append(taken)
    return seconds, peaks


def define_flags() -> None:
    """Defines the flags."""
    flags.DEFINE_string("text", SAMPLE_TEXT, "Pattern of text files.")
    flags.DEFINE_string("vocab_file", SAMPLE_VOCABULARY, "Lower-cased WordPiece vocabulary.")
    flags.DEFINE_integer("lines", 256, "Lines a round.", lower_bound=1)
    flags.DEFINE_integer("rounds", 5, "Turns of each program.", lower_bound=1)
    flags.DEFINE_integer("hidden_size", 768, "Width of the model.", lower_bound=64)
    flags.DEFINE_integer("num_layers", 12, "Layers of the model.", lower_bound=4)
    flags.DEFINE_string("peer_python", None, "A Python that has torch and transformers.")


def main(_: Any) -> None:
    """Runs the script on its flags."""
    values = flags.FLAGS
    python = peer_python(values.peer_python)
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
        seconds, peaks = measure(setting, python, values.rounds)
    rows = []
    for name, taken in seconds.items():
        ours, theirs = ([len(lines) / each for each in times] for times in taken.values())
        medians = [f"{statistics.median(each):.1f}" for each in (ours, theirs)]
        rows.append([name, *medians, f"{median_ratio(ours, theirs):.2f}"])
    print(describe(values.rounds, {"float32": peaks}))
    print(format_table(["lines/s", "ours", "transformers", "ratio"], rows))


if __name__ == "__main__":
    define_flags()
    app.run(main)

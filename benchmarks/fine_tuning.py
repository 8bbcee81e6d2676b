"""Measures the time of fine-tuning on MRPC, whole processes, beside the `transformers` library.

    python benchmarks/fine_tuning.py [--data_dir=glue/MRPC --vocab_file=vocab.txt] \
      [--shapes=mini] [--rounds=1]

Three processes take turns, each training on the same examples from random weights with dropout 0.1:
run_classifier.py as it is by default, `transformers` padding every text to 128 tokens, and
`transformers` padding to the longest text of each batch (its DataCollatorWithPadding). Start,
tokenization and, here, the checkpoints count. `mini` is L=4 H=256 for three epochs, `base` is
BERT-Base for one, or, with --examples, for so many of its examples.
"""

import dataclasses
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from absl import app, flags
from turns import (
    FOLDER,
    ROOT,
    SAMPLE_VOCABULARY,
    Worker,
    describe,
    format_table,
    median_ratio,
    peer_python,
    run_quietly,
)

BATCH_SIZE = 32
LENGTH = 128


@dataclasses.dataclass(frozen=True)
class Shape:
    """A model and how long it is trained."""

    hidden_size: int
    num_layers: int
    epochs: float

    def config(self, vocab_size: int) -> dict[str, Any]:
        """Returns a `bert_config.json`."""
        return {
            "vocab_size": vocab_size,
            "hidden_size": self.hidden_size,
            "num_hidden_layers": self.num_layers,
            "num_attention_heads": self.hidden_size // 64,
            "intermediate_size": 4 * self.hidden_size,
            "hidden_dropout_prob": 0.1,
            "attention_probs_dropout_prob": 0.1,
            "max_position_embeddings": 512,
            "type_vocab_size": 2,
        }


SHAPES = {"mini": Shape(256, 4, 3.0), "base": Shape(768, 12, 1.0)}


def prepare(folder: Path, data_dir: str | None, examples: int | None) -> None:
    """Writes the first examples of MRPC's training file, or of pairs of remarks in its form."""
    if data_dir is None:
        lines = make_pairs()
    else:
        lines = (Path(data_dir) / "train.tsv").read_text(encoding="utf-8").splitlines(keepends=True)
    count = len(lines) if examples is None else examples + 1
    (folder / "train.tsv").write_text("".join(lines[:count]), encoding="utf-8")


def make_pairs() -> list[str]:
    """Returns lines as MRPC's: each remark beside ten others, 1 where both say the same."""
    text = (ROOT / "sample" / "remarks" / "train.tsv").read_text(encoding="utf-8")
    remarks = [line.split("\t") for line in text.splitlines()[1:]]
    lines = ["Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n"]
    for distance in range(1, 11):
        for number, (first, label) in enumerate(remarks):
            other = (number + distance) % len(remarks)
            second, its_label = remarks[other]
            alike = int(label == its_label)
            lines.append(f"{alike}\t{number}\t{other}\t{first}\t{second}\n")
    return lines


def commands(
    shape: Shape, folder: Path, vocab_file: str, precision: str, peer_python: str
) -> dict[str, list[str]]:
    """Returns by name the command of each process."""
    config_file = folder / "bert_config.json"
    with open(vocab_file, encoding="utf-8") as lines:
        config_file.write_text(json.dumps(shape.config(sum(1 for _ in lines))))
    ours = [
        sys.executable,
        str(FOLDER.parent / "run_classifier.py"),
        "--task_name=mrpc",
        f"--data_dir={folder}",
        f"--vocab_file={vocab_file}",
        f"--bert_config_file={config_file}",
        f"--output_dir={folder / 'output'}",
        "--do_train",
        "--overwrite_output_dir",
        f"--max_seq_length={LENGTH}",
        f"--train_batch_size={BATCH_SIZE}",
        f"--num_train_epochs={shape.epochs}",
        f"--precision={'mixed_bfloat16' if precision == 'bfloat16' else 'float32'}",
        "--verbosity=-1",
    ]
    peer = [peer_python, str(FOLDER / "transformers_fine_tuning.py")]
    setting = {
        "train_file": str(folder / "train.tsv"),
        "vocab_file": vocab_file,
        "config_file": str(config_file),
        "epochs": shape.epochs,
        "batch_size": BATCH_SIZE,
        "length": LENGTH,
        "precision": precision,
    }
    return {
        "bert": ours,
        "transformers, fixed padding": [*peer, json.dumps({**setting, "padding": "max_length"})],
        "transformers, dynamic padding": [*peer, json.dumps({**setting, "padding": "longest"})],
    }


def measure(lines: dict[str, list[str]], rounds: int) -> tuple[dict[str, list[float]], list[float]]:
    """Returns the seconds of each command in each round, and the peak in FLOP/s."""
    seconds: dict[str, list[float]] = {name: [] for name in lines}
    peaks = []
    with Worker(sys.executable, "peak.py", {"hidden_size": 768}) as peak:
        for _ in range(rounds):
            peaks.append(peak.ask("float32"))
            for name, line in lines.items():
                started = time.monotonic()
                run_quietly(line)
                seconds[name].append(time.monotonic() - started)
    return seconds, peaks


def define_flags() -> None:
    """Defines the flags."""
    flags.DEFINE_string("data_dir", None, "Folder with MRPC's train.tsv; absent, pairs of remarks.")
    flags.DEFINE_string("vocab_file", SAMPLE_VOCABULARY, "Lower-cased WordPiece vocabulary.")
    flags.DEFINE_multi_enum("shapes", list(SHAPES), list(SHAPES), "Models; may be repeated.")
    flags.DEFINE_enum("precision", "float32", ["float32", "bfloat16"], "Arithmetic of both.")
    flags.DEFINE_integer("examples", None, "Examples to train on; absent, all.", lower_bound=32)
    flags.DEFINE_integer("rounds", 1, "Turns of each process.", lower_bound=1)
    flags.DEFINE_string("peer_python", None, "A Python that has torch and transformers.")


def main(_: Any) -> None:
    """Prints a table for each model."""
    values = flags.FLAGS
    python = peer_python(values.peer_python)
    for name in values.shapes:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder)
            prepare(path, values.data_dir, values.examples)
            lines = commands(SHAPES[name], path, values.vocab_file, values.precision, python)
            seconds, peaks = measure(lines, values.rounds)
        ours = seconds["bert"]
        rows = [
            (program, f"{statistics.median(each):.1f}", f"{median_ratio(each, ours):.2f}")
            for program, each in seconds.items()
        ]
        print(describe(values.rounds, {"float32": peaks}))
        print(format_table((f"{name}, {values.precision}", "s", "times as long"), rows), flush=True)


if __name__ == "__main__":
    define_flags()
    app.run(main)

"""Measures how the time and memory of each command grow with its input.

    python benchmarks/growth.py [--most=1000000] [--commands=predict,create_vocab] [--limit=1800]

Each command runs on 1,000, 10,000, … rows of made-up words, with a model of random weights as small
as a model can be (L=1 H=16), so that what is measured is everything but the model. Prints the CPU
seconds, by what power of the rows they grow at the end (without those of the first size: 1 is
linear), and the memory of the largest process. A size whose time would pass --limit, by the size
before, is computed instead and marked with ~; the first two are always measured.
"""

import argparse
import json
import math
import random
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from turns import ROOT, run_quietly

FIRST = 1000
TEN = 10

# Commands, with the files that `prepare` and `write_rows` make.
COMMANDS = {
    "split_sentences": "--input_file={text} --output_file={out} --input_format=paragraphs",
    "create_vocab": "--input_file={text} --output_file={out} --vocab_size=2000",
    "create_pretraining_data": "--input_file={text} --output_file={out} --vocab_file={vocab} "
    "--max_seq_length=32 --max_predictions_per_seq=5 --dupe_factor=1",
    "create_pretraining_data --streaming": "--input_file={text} --output_file={out} "
    "--vocab_file={vocab} --max_seq_length=32 --max_predictions_per_seq=5 --dupe_factor=1",
    "create_word_vectors": "--input_file={text} --output_file={out} --epochs=1",
    "extract_features": "--input_file={text} --output_file={out} --init_checkpoint={model} "
    "--max_seq_length=16 --pooling=mean --layers=-1",
    "predict": "--input_file={table} --output_file={out} --model_dir={model}",
    "neighbours": "--input_file={text} --init_checkpoint={model} --query=ba --max_seq_length=16",
    "run_classifier": "--train_file={table} --dev_fraction=0.1 --init_checkpoint={model} "
    "--output_dir={out} --do_train --max_seq_length=16 --num_train_epochs=1",
}


def write_rows(folder: Path, rows: int) -> dict[str, str]:
    """Writes as many sentences of 8 words, as a text of documents of ten and as a table."""
    draw = random.Random(rows)
    syllables = [first + second for first in "bdfgklmnprst" for second in "aeiou"]
    words = ["".join(draw.choices(syllables, k=1 + number % 3)) for number in range(5000)]
    paths = {"text": folder / f"{rows}.txt", "table": folder / f"{rows}.csv"}
    with paths["text"].open("w") as text, paths["table"].open("w") as table:
        print("text,label", file=table)
        for row in range(rows):
            sentence = " ".join(words[int(5000 * draw.random() ** 3)] for _ in range(8))
            print(f"{sentence}.", end="\n\n" if row % TEN == TEN - 1 else "\n", file=text)
            print(f"{sentence},{'bad' if row % 2 else 'good'}", file=table)
    return {name: str(path) for name, path in paths.items()}


def run(command: str, flags: str, files: Mapping[str, str], out: Path) -> tuple[float, float]:
    """Returns the CPU seconds of a command with its processes, and the greatest memory, in MB."""
    script, *more = command.split()
    line = [sys.executable, str(ROOT / f"{script}.py"), *more]
    line += [flag.format(**files, out=out) for flag in flags.split()]
    # A process of its own, whose children are this command's alone.
    code = (
        "import resource, subprocess, sys, json\n"
        "done = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)\n"
        "assert done.returncode == 0, done.stderr.decode()[-3000:]\n"
        "used = resource.getrusage(resource.RUSAGE_CHILDREN)\n"
        "print(json.dumps([used.ru_utime + used.ru_stime, used.ru_maxrss / 1024]))"
    )
    seconds, megabytes = json.loads(run_quietly([sys.executable, "-c", code, *line]))
    return seconds, megabytes


def prepare(folder: Path) -> dict[str, str]:
    """Makes the vocabulary and the classifier that the commands are given."""
    files = {name: str(folder / name) for name in ("vocab", "model")}
    files |= write_rows(folder, FIRST)
    run("create_vocab", COMMANDS["create_vocab"], files, Path(files["vocab"]))
    size = len(Path(files["vocab"]).read_text(encoding="utf-8").splitlines())
    shape = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 1}
    config = {**shape, "intermediate_size": 16, "vocab_size": size, "max_position_embeddings": 32}
    (folder / "config.json").write_text(json.dumps(config))
    flags = "--train_file={table} --bert_config_file=%s --vocab_file={vocab} --output_dir={out} "
    flags += "--do_train --do_lower_case --max_seq_length=16 --num_train_epochs=1"
    run("run_classifier", flags % (folder / "config.json"), files, Path(files["model"]))
    return files


def compute(used: Sequence[float], limit: float) -> float | None:
    """Returns the seconds of the next size, where it would pass the limit; None to measure it."""
    if len(used) < 2 or TEN * used[-1] <= limit:
        return None
    return used[0] + TEN * (used[-1] - used[0])


def main() -> None:
    """Prints a line for each command and size."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--most", type=int, default=10**6, help="Rows at most, 100000 or more.")
    parser.add_argument("--commands", help="Names of commands, comma-separated. Default: all.")
    parser.add_argument("--limit", type=float, default=1800, help="Seconds that a size may take.")
    given = parser.parse_args()
    names = given.commands.split(",") if given.commands else [*COMMANDS]
    unknown = {*names} - COMMANDS.keys()
    if unknown or given.most < 100 * FIRST:
        parser.error(
            f"--commands must be among {', '.join(COMMANDS)}, and --most at least {100 * FIRST}. "
            f"Received {sorted(unknown)} and {given.most}."
        )
    sizes = [FIRST * TEN**n for n in range(int(math.log10(given.most / FIRST) + 1e-9) + 1)]
    heads = [f"{size:,}" for size in sizes]
    print(f"| CPU seconds for rows | {' | '.join(heads)} | exponent | first MB | most MB |")
    print("|---" * (len(sizes) + 4) + "|")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files = prepare(folder)
        rows_of = {size: write_rows(folder, size) for size in sizes}
        for command in names:
            print(f"| `{command}`", end="", flush=True)
            used: list[float] = []
            memory: list[float] = []
            for size in sizes:
                if computed := compute(used, given.limit):
                    used.append(computed)
                    print(f" | ~{used[-1]:.0f}", end="", flush=True)
                    continue
                out = folder / f"out_{command.replace(' ', '')}_{size}"
                figures = run(command, COMMANDS[command], {**files, **rows_of[size]}, out)
                used.append(figures[0])
                memory.append(figures[1])
                print(f" | {used[-1]:.1f}", end="", flush=True)
            last = math.log10((used[-1] - used[0]) / (used[-2] - used[0]))
            print(f" | {last:.2f} | {memory[0]:.0f} | {max(memory):.0f} |", flush=True)


if __name__ == "__main__":
    main()

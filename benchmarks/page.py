r"""Runs the benchmarks one after the other and writes what they print as one page in Markdown.

    python benchmarks/page.py [--rounds=3] [--quick] [--history] [prediction] [pretraining_step] ...

    python benchmarks/page.py --vocab_file=vocab.txt --texts='books/*.txt' \
      --sentences=SST-2/dev.tsv --mrpc=glue/MRPC --squad=train-v1.1.json

Without names, all of them, on this project's own samples or the files named here. --quick takes
small models and little text, for minutes rather than an hour. The page is also written to
benchmark_output/benchmarks.md, as far as it is, so that an interrupted run leaves what it has.
--history adds the ratios of the run to benchmarks/history.jsonl, and draws them (history.py).
"""

import argparse
import os
import shlex
import subprocess
import sys
from datetime import datetime, timezone

import history
from turns import FOLDER, ROOT

PAGE = ROOT / "benchmark_output" / "benchmarks.md"


# By benchmark: its flags by the flag here that gives their value, and its flags with --quick.
BENCHMARKS: dict[str, tuple[dict[str, str], tuple[str, ...]]] = {
    "peak": ({"rounds": "rounds"}, ()),
    "prediction": (
        {"rounds": "rounds", "texts": "sentences", "vocab_file": "vocab_file"},
        ("--sizes=small", "--seconds=0.3"),
    ),
    "pretraining_step": (
        {"rounds": "rounds"},
        ("--settings=tiny/float32", "--settings=tiny/bfloat16"),
    ),
    "fine_tuning": (
        {"rounds": "rounds", "data_dir": "mrpc", "vocab_file": "vocab_file", "shapes": "shapes"},
        ("--examples=320",),
    ),
    "tokenization_speed": (
        {"text": "texts", "vocab": "vocab_file", "megabytes": "megabytes"},
        (),
    ),
    "pretraining_data": (
        {"rounds": "rounds", "text": "texts", "vocab_file": "vocab_file"},
        ("--megabytes=1",),
    ),
    "squad_features_speed": ({"rounds": "rounds", "file": "squad", "vocab": "vocab_file"}, ()),
    "feature_speed": (
        {"rounds": "rounds", "text": "texts", "vocab_file": "vocab_file"},
        ("--hidden_size=256", "--num_layers=4"),
    ),
    "serving": (
        {"rounds": "rounds", "text": "sentences", "vocab": "vocab_file"},
        ("--seconds=0.5", "--connections=1,16", "--bad=100"),
    ),
    "memory": ({}, ("--lengths=128",)),
}


def flags_of(name: str, given: argparse.Namespace) -> list[str]:
    """Returns the flags of a benchmark that have a value."""
    named, quick = BENCHMARKS[name]
    # A round of `tokenization_speed` takes two megabytes.
    megabytes = 2 * given.rounds if given.quick else None
    values = {**vars(given), "shapes": "mini", "megabytes": megabytes}
    flags = [f"--{flag}={values[key]}" for flag, key in named.items() if values[key] is not None]
    return [*flags, *quick * given.quick]


def write(text: str) -> None:
    """Adds to the page, here and in its file."""
    print(text, end="", flush=True)
    with PAGE.open("a", encoding="utf-8") as file:
        file.write(text)


def run(name: str, given: argparse.Namespace) -> bool:
    """Runs a benchmark into the page; returns whether it succeeded."""
    flags = flags_of(name, given)
    write(f"\n## {name}\n\n`python {shlex.join(['benchmarks/' + name + '.py', *flags])}`\n\n")
    command = [sys.executable, str(FOLDER / f"{name}.py"), *flags]
    lines = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        for line in process.stdout:
            write(line)
            lines.append(line)
    if process.returncode:
        write(f"It failed with status {process.returncode}.\n")
    elif given.history:
        history.append(name, ["--quick"] * given.quick, "".join(lines))
    return process.returncode == 0


def main() -> None:
    """Writes the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("names", nargs="*", help=f"Among {', '.join(BENCHMARKS)}; none for all.")
    add("--rounds", type=int, default=3, help="Turns of each program.")
    add("--quick", action="store_true", help="Small models, little text.")
    add("--history", action="store_true", help="Keep the ratios, and draw them.")
    add("--vocab_file", help="Vocabulary of lower-cased text.")
    add("--texts", help="Pattern of text files to tokenize and encode.")
    add("--sentences", help="What to predict: a text a line, or a .tsv.")
    add("--mrpc", help="Folder with MRPC's train.tsv to fine-tune on.")
    add("--squad", help="Questions in SQuAD's JSON.")
    given = parser.parse_args()
    unknown = {*given.names} - {*BENCHMARKS}
    if unknown or given.rounds < 1:
        parser.error(
            f"names must be among {', '.join(BENCHMARKS)}, and --rounds at least 1. Received "
            f"{sorted(unknown)} and {given.rounds}."
        )
    sys.path.insert(0, str(ROOT))
    from bert.files.machine import processor_name  # noqa: PLC0415

    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text("", encoding="utf-8")
    now = datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    write(f"# Benchmarks\n\n{processor_name()}, {os.cpu_count()} cores, {now}.\n")
    names = given.names or BENCHMARKS
    failed = [name for name in names if not run(name, given)]
    if given.history:
        history.main()
    sys.exit(f"Failed: {', '.join(failed)}." if failed else 0)


if __name__ == "__main__":
    main()

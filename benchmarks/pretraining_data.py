"""Measures how fast `create_pretraining_data.py` makes records, as a whole process.

    python benchmarks/pretraining_data.py [--text='books/*.txt' --vocab_file=vocab.txt]

The files are read again from the first until there are so many megabytes of text, which become one
file, a sentence a line; `--dupe_factor` goes as it is given there. What is read from the disk is in
memory by then.
"""

import argparse
import glob
import itertools
import os
import resource
import statistics
import sys
import tempfile
import time
from pathlib import Path

from turns import (
    ROOT,
    SAMPLE_TEXT,
    SAMPLE_VOCABULARY,
    describe,
    format_table,
    run_quietly,
)


def write_text(path: Path, pattern: str, num_bytes: int) -> float:
    """Writes so much of the text of files; returns its megabytes."""
    lines = [
        line
        for name in sorted(glob.glob(pattern))
        for line in [*Path(name).read_bytes().splitlines(keepends=True), b"\n"]
    ]
    ends = itertools.accumulate(map(len, itertools.cycle(lines)))
    count = 1 + sum(1 for _ in itertools.takewhile(lambda end: end < num_bytes, ends))
    path.write_bytes(b"".join(itertools.islice(itertools.cycle(lines), count)))
    return path.stat().st_size / 1e6


def take_turn(text: Path, folder: str, given: argparse.Namespace) -> tuple[float, float, float]:
    """Returns seconds, seconds of the processor, and megabytes of records."""
    output = os.path.join(folder, "records")
    command = [
        *(sys.executable, str(ROOT / "create_pretraining_data.py"), f"--input_file={text}"),
        *(f"--output_file={output}", f"--vocab_file={given.vocab_file}", "--overwrite"),
        f"--dupe_factor={given.dupe_factor}",
    ]
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    run_quietly(command)
    seconds, after = time.monotonic() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return seconds, used, os.path.getsize(output) / 1e6


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    add = parser.add_argument
    add("--text", default=SAMPLE_TEXT, help="Pattern of text files.")
    add("--vocab_file", default=SAMPLE_VOCABULARY, help="Of lower-cased text.")
    add("--megabytes", type=float, default=4, help="Of text.")
    add("--dupe_factor", type=int, default=5, help="As the script's.")
    add("--rounds", type=int, default=3, help="Turns.")
    given = parser.parse_args()
    if not glob.glob(given.text):
        parser.error(f"--text must be a pattern of files. Received {given.text!r}, which has none.")
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder, "text.txt")
        size = write_text(text, given.text, int(given.megabytes * 1e6))
        turns = [take_turn(text, folder, given) for _ in range(given.rounds)]
    seconds, used, made = map(statistics.median, zip(*turns, strict=True))
    row = [size, seconds, used, size / used, given.dupe_factor, made]
    names = ["MB of text", "seconds", "of the processor", "MB/s of it", "times", "MB of records"]
    print(describe(given.rounds))
    print(format_table(names, [[f"{each:.4g}" for each in row]]))


if __name__ == "__main__":
    main()

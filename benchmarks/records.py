"""Measures what it takes to begin reading many records, and to read those of a step.

    python benchmarks/records.py [--records=10000000] [--files=500] [--folder=FOLDER] [--rounds=3]

Makes files of made-up records of about 50 bytes in FOLDER, where they are not there; by default it
is a temporary one. Then processes take turns, each of which opens the files as a training does, and
reads the records of some steps. The table tells the seconds until the first step can be read, and
what they went by with; the bytes of memory a record that are held then, and at most, beyond those
of the process with TensorFlow; and the milliseconds that reading a step of 256 records takes.

The system has the files in memory: what is measured is work, not a disk.
"""

import argparse
import os
import statistics
import sys
import tempfile
import time

import numpy as np
import worker
from turns import ROOT, Worker

RECORD_BYTES = 50
BATCH_SIZE = 256
STEPS = 300
# Whether there are indexes, and --shuffle_block.
KINDS = {
    "indexes": (True, 0),
    "indexes, blocks of 1000": (True, 1000),
    "no indexes": (False, 0),
}
COLUMNS = ("start", "open", "fingerprint", "order", "held", "peak", "step", "slowest step")


def make(folder: str, records: int, files: int) -> list[str]:
    """Returns the paths of the files, with their indexes, made where they are not there."""
    from bert.files.records import write_records  # noqa: PLC0415

    rng = np.random.default_rng(1)
    content = rng.bytes(2 * RECORD_BYTES)
    paths = [os.path.join(folder, f"{number:05}.tfrecord") for number in range(files)]
    for number, path in enumerate(paths):
        count = records // files + (number < records % files)
        # Of different lengths, as records are.
        lengths = rng.integers(RECORD_BYTES // 2, 3 * RECORD_BYTES // 2, count).tolist()
        if os.path.exists(path):
            continue
        with write_records([path], {}) as (writer,):
            for length in lengths:
                writer.write(content[:length])
    return paths


def measure(paths: list[str], shuffle_block: int) -> dict[str, float]:
    """Returns what one start took, by column."""
    from bert.files import fingerprints  # noqa: PLC0415
    from bert.files.process import import_tensorflow  # noqa: PLC0415
    from bert.training.batches import Batches, BlockReader  # noqa: PLC0415
    from bert.training.records import Records  # noqa: PLC0415

    import_tensorflow()
    before = worker.memory("VmRSS")
    clock = [time.perf_counter()]

    def lap() -> float:
        clock.append(time.perf_counter())
        return clock[-1] - clock[-2]

    records = Records(paths)
    figures = {"open": lap()}
    fingerprints.of_files(paths)
    figures["fingerprint"] = lap()
    batches = Batches(records, {}, BATCH_SIZE, 1, shuffle_block=shuffle_block)
    batches.numbers(0)
    figures["order"] = lap()
    figures["start"] = clock[-1] - clock[0]
    figures["held"] = (worker.memory("VmRSS") - before) / len(records)
    figures["peak"] = (worker.memory("VmHWM") - before) / len(records)
    read = BlockReader(records.read, len(records), shuffle_block) if shuffle_block else records.read
    lap()
    steps = []
    for step in range(STEPS):
        read(batches.numbers(step))
        steps.append(1000 * lap())
    return {**figures, "step": statistics.mean(steps), "slowest step": max(steps)}


def start(paths: list[str], kind: str) -> dict[str, float]:
    """Returns the figures of a process of its own."""
    from bert.files.paths import index_path  # noqa: PLC0415

    has_index, shuffle_block = KINDS[kind]
    hidden = [] if has_index else [index_path(path) for path in paths]
    for path in hidden:
        os.rename(path, f"{path}.hidden")
    try:
        with Worker(sys.executable, "records.py", {}) as process:
            return process.ask("start", paths=paths, shuffle_block=shuffle_block)
    finally:
        for path in hidden:
            os.rename(f"{path}.hidden", path)


def main() -> None:
    """Prints the table; or, started by `turns.Worker`, answers with the figures of one start."""
    if sys.argv[1:] == ["{}"]:
        worker.serve({"start": measure})
        return
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=10_000_000)
    parser.add_argument("--files", type=int, default=500)
    parser.add_argument("--folder")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    sys.path.insert(0, str(ROOT))
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.folder or temporary
        paths = make(folder, arguments.records, arguments.files)
        rounds = [{kind: start(paths, kind) for kind in KINDS} for _ in range(arguments.rounds)]
    print(f"{arguments.records:,} records in {arguments.files} files; medians of rounds.")
    print("seconds; bytes a record; milliseconds")
    print("".join(f"{name:>14}" for name in COLUMNS))
    for kind in KINDS:
        medians = (statistics.median(each[kind][name] for each in rounds) for name in COLUMNS)
        print("".join(f"{value:14.3g}" for value in medians), f" {kind}")


if __name__ == "__main__":
    main()

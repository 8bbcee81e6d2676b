"""Compares what the commands of two checkouts write, byte for byte.

    git worktree add ../before REVISION
    python benchmarks/same_bytes.py --before=../before [--only=squad,grid] [--keep=FOLDER]

Runs the commands below on the shipped sample, once with each checkout, in folders with the same
relative paths. Prints the files that only one of them wrote or that differ, and exits with 1 if
there are any. Not compared: the files of TensorBoard, a SavedModel's random identifier, and the
commit in run.json. A command that takes the output of an earlier one runs after it, and `--only`
runs those, too.
"""

import argparse
import concurrent.futures
import contextlib
import dataclasses
import hashlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DEADLINE = 900.0

# Each process writes its own: the files of TensorBoard and a SavedModel's random identifier, whose
# length counts in the bytes that parity.json states, and in the size in a report.
IGNORED = re.compile(r"tfevents|^fingerprint\.pb$|\.lock$|\.log$")
# What names or counts them, and the commit in run.json. The scores in that row of a report are in
# parity.json, too.
VOLATILE = re.compile(
    rb'events\.out\.tfevents[\w.]+|(?<="commit": )"[^"]*"|(?<="bytes": )\d+'
    rb'|\["saved_model"(?:,[^],]+){4}'
)

Runner = Callable[["Checkout"], None]


@dataclasses.dataclass(frozen=True)
class Checkout:
    """A checkout of the project and the folder that its commands run in."""

    root: Path
    folder: Path

    def start(self, name: str, *flags: str) -> "subprocess.Popen[bytes]":
        """Starts a script; what it prints is appended to `<name>.log`."""
        with open(self.folder / f"{name}.log", "ab") as log:
            command = [sys.executable, str(self.root / f"{name}.py"), *flags]
            return subprocess.Popen(command, cwd=self.folder, stdout=log, stderr=log)

    def run(self, name: str, *flags: str) -> None:
        """Runs a script to its end, which must be a success."""
        if status := finish(self.start(name, *flags)):
            log = (self.folder / f"{name}.log").read_text(errors="replace")
            raise SystemExit(f"{self.root}: {name} {flags} ended with {status}:\n{log[-3000:]}")


def finish(process: "subprocess.Popen[bytes]") -> int:
    """Returns the exit status of a process, which is killed at the deadline."""
    try:
        return process.wait(DEADLINE)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


def _script(name: str, *flags: str) -> Runner:
    return lambda checkout: checkout.run(name, *flags)


RECORDS = (
    "--input_file=inputs/sample_text.txt",
    "--vocab_file=vocab.txt",
    "--max_seq_length=32",
    "--max_predictions_per_seq=5",
    "--dupe_factor=5",
)
PRETRAINING = (
    "--input_file=records/train.tfrecord",
    "--output_dir=pretrained",
    "--bert_config_file=inputs/bert_config.json",
    "--do_train",
    "--do_eval",
    "--max_seq_length=32",
    "--max_predictions_per_seq=5",
    "--train_batch_size=16",
    "--learning_rate=1e-3",
    "--num_train_steps=120",
    "--num_warmup_steps=10",
    "--save_checkpoints_steps=40",
)
MODEL = (
    "--init_checkpoint=pretrained",
    "--vocab_file=vocab.txt",
    "--bert_config_file=inputs/bert_config.json",
    "--max_seq_length=48",
    "--train_batch_size=16",
    "--learning_rate=3e-4",
)
ALL_STEPS = ("--do_train", "--do_eval", "--do_predict", "--do_export")
REMARKS = ("--task_name=custom", "--data_dir=inputs/remarks", *MODEL, *ALL_STEPS)
ANSWERS = ("--model_dir=remarks", "--input_file=inputs/remarks/test.tsv", "--batch_size=2")


def resume(checkout: Checkout) -> None:
    """Kills pre-training after its first save, and lets the same command end it."""
    flags = [flag.replace("=pretrained", "=resumed") for flag in PRETRAINING]
    process = checkout.start("run_pretraining", *flags)
    deadline = time.monotonic() + DEADLINE
    while not (checkout.folder / "resumed" / "model.ckpt-40.index").exists():
        if process.poll() is not None or time.monotonic() > deadline:
            process.kill()
            raise SystemExit(f"{checkout.root}: pre-training saved nothing, or ended before.")
        time.sleep(0.005)
    process.kill()
    finish(process)
    checkout.run("run_pretraining", *flags)


def serve(checkout: Checkout) -> None:
    """Writes the answers of a server to a request of rows, one of columns and one of metadata."""
    with contextlib.closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = checkout.start("serve", "--model_dir=remarks", f"--port={port}")
    try:
        address = f"http://127.0.0.1:{port}/v1/models/remarks"
        _await(process, f"http://127.0.0.1:{port}/healthz")
        texts = ["The bread was warm.", "The bread was old and hard."]
        requests = ({"instances": texts}, {"inputs": {"text_a": texts}})
        answers = [_fetch(f"{address}:predict", json.dumps(body).encode()) for body in requests]
        (checkout.folder / "served.txt").write_bytes(
            b"\n".join([*answers, _fetch(f"{address}/metadata")])
        )
    finally:
        process.send_signal(signal.SIGTERM)
        finish(process)


def _fetch(url: str, body: bytes | None = None) -> bytes:
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as response:
        answer: bytes = response.read()
        return answer


def _await(process: "subprocess.Popen[bytes]", url: str) -> None:
    deadline = time.monotonic() + DEADLINE
    while process.poll() is None and time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            _fetch(url)
            return
        time.sleep(0.1)
    raise SystemExit(f"No server answers at {url}.")


def shards(checkout: Checkout) -> None:
    """Answers a table in two parts and joins them."""
    for number in (1, 2):
        part = f"--output_file=shards/part-{number}-of-2.csv"
        checkout.run("predict", *ANSWERS, part, f"--shard={number}/2")
    joined = ("--input_file=shards/part-*-of-2.csv", "--output_file=shards/joined.csv")
    checkout.run("join_shards", *joined)


def convert(checkout: Checkout) -> None:
    """Converts a classifier to Hugging Face's files and back."""
    for source, to, form in (("remarks", "hub", "huggingface"), ("hub", "back", "tf")):
        flags = (f"--input={source}", f"--output={to}", f"--format={form}")
        checkout.run("convert_checkpoint", *flags)


# Name: the commands that it needs, and what it runs.
COMMANDS: dict[str, tuple[tuple[str, ...], Runner]] = {
    "vocabulary": (
        (),
        _script(
            "create_vocab",
            "--input_file=inputs/sample_text.txt",
            "--output_file=vocab.txt",
            "--vocab_size=800",
        ),
    ),
    "records": (
        ("vocabulary",),
        _script("create_pretraining_data", *RECORDS, "--output_file=records/train.tfrecord"),
    ),
    "streaming": (
        ("vocabulary",),
        _script(
            "create_pretraining_data",
            *RECORDS,
            "--do_whole_word_mask",
            "--streaming",
            "--output_file=streamed/a.tfrecord,streamed/b.tfrecord",
        ),
    ),
    "pretraining": (("records",), _script("run_pretraining", *PRETRAINING)),
    "resume": (("records",), resume),
    "classifier": (
        ("pretraining",),
        _script("run_classifier", *REMARKS, "--output_dir=remarks", "--num_train_epochs=2"),
    ),
    "grid": (
        ("pretraining",),
        _script(
            "run_classifier",
            "--train_file=inputs/remarks/train.tsv",
            *MODEL,
            "--do_train",
            "--do_eval",
            "--learning_rate=1e-3,3e-4",
            "--num_runs=2",
            "--num_train_epochs=1",
            "--output_dir=grid",
        ),
    ),
    "squad": (
        ("pretraining",),
        _script(
            "run_squad",
            "--train_file=inputs/questions/train.json",
            "--predict_file=inputs/questions/dev.json",
            "--version_2_with_negative",
            *MODEL,
            "--do_train",
            "--do_predict",
            "--do_export",
            "--max_query_length=16",
            "--doc_stride=16",
            "--num_train_epochs=2",
            "--output_dir=squad",
        ),
    ),
    "tagger": (
        ("pretraining",),
        _script(
            "run_ner",
            "--data_dir=inputs/entities",
            *MODEL,
            *ALL_STEPS,
            "--num_train_epochs=2",
            "--output_dir=tagger",
        ),
    ),
    "choices": (
        ("pretraining",),
        _script(
            "run_swag",
            "--data_dir=inputs/endings",
            *MODEL,
            "--do_train",
            "--do_eval",
            "--do_export",
            "--num_train_epochs=2",
            "--output_dir=choices",
        ),
    ),
    "evaluation": (
        ("classifier",),
        _script(
            "run_classifier",
            *(flag for flag in REMARKS if flag not in ("--do_train", "--do_export")),
            "--output_dir=remarks",
        ),
    ),
    "portable": (
        ("classifier",),
        _script(
            "run_classifier",
            *(flag for flag in REMARKS if flag not in ALL_STEPS),
            "--do_export",
            "--export_format=tflite,onnx",
            "--output_dir=remarks",
        ),
    ),
    "prediction": (("classifier",), _script("predict", *ANSWERS, "--output_file=answers.csv")),
    "shards": (("classifier",), shards),
    "vectors": (
        ("pretraining",),
        _script(
            "extract_features",
            "--input_file=inputs/held_out_text.txt",
            "--init_checkpoint=pretrained",
            "--vocab_file=vocab.txt",
            "--bert_config_file=inputs/bert_config.json",
            "--output_file=features.jsonl",
            "--layers=-1,-2",
            "--max_seq_length=16",
        ),
    ),
    "masks": (
        ("pretraining",),
        _script(
            "fill_mask",
            "--checkpoint=pretrained",
            "--vocab_file=vocab.txt",
            "--bert_config_file=inputs/bert_config.json",
            "--input_file=inputs/masks.txt",
            "--output_file=masks.tsv",
        ),
    ),
    "conversion": (
        ("classifier",),
        convert,
    ),
    "serving": (("classifier",), serve),
}


def in_order(names: Iterable[str]) -> list[str]:
    """Returns the commands and those that they need, each after those."""
    found: dict[str, None] = {}

    def add(name: str) -> None:
        for needed in COMMANDS[name][0]:
            add(needed)
        found[name] = None

    for name in names:
        add(name)
    return list(found)


def digests(folder: Path) -> dict[str, str]:
    """Returns the digest of each file below a folder by its relative path."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if not path.is_file() or IGNORED.search(path.name) or name.startswith("inputs/"):
            continue
        content = path.read_bytes()
        if path.suffix in (".json", ".html"):
            content = VOLATILE.sub(b"", content)
        found[name] = hashlib.sha256(content).hexdigest()
    return found


def write_inputs(folder: Path) -> None:
    """Copies the sample of this checkout, which both checkouts read."""
    shutil.copytree(ROOT / "sample", folder / "inputs")
    shutil.copy(ROOT / "sample_text.txt", folder / "inputs")
    (folder / "inputs" / "masks.txt").write_text("The baker opens the [MASK].\n[MASK] rain fell.\n")
    for name in ("records", "streamed", "shards"):
        (folder / name).mkdir()


def run_all(checkout: Checkout, names: Sequence[str]) -> float:
    """Runs the commands; returns the seconds that they took."""
    start = time.monotonic()
    write_inputs(checkout.folder)
    for name in names:
        COMMANDS[name][1](checkout)
    return time.monotonic() - start


def main(options: argparse.Namespace) -> None:
    """Runs both, at the same time, and compares."""
    names = in_order(options.only.split(",") if options.only else COMMANDS)
    folder = Path(options.keep or tempfile.mkdtemp(prefix="same-bytes-"))
    roots = {"before": Path(options.before).resolve(), "after": Path(options.after).resolve()}
    checkouts = [Checkout(root, folder / name) for name, root in roots.items()]
    for checkout in checkouts:
        checkout.folder.mkdir(parents=True)
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
    with concurrent.futures.ThreadPoolExecutor() as pool:
        seconds = list(pool.map(run_all, checkouts, [names, names]))
    before, after = (digests(checkout.folder) for checkout in checkouts)
    different = sorted(name for name in before | after if before.get(name) != after.get(name))
    for name in different:
        words = "differs" if name in before and name in after else "is in one of them only"
        print(f"{name} {words}")
    print(
        f"{len(names)} commands, {len(before | after)} files, {len(different)} different; "
        f"{seconds[0]:.0f} and {seconds[1]:.0f} s"
    )
    if different:
        raise SystemExit(f"See {folder}")
    if not options.keep:
        shutil.rmtree(folder)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--before", required=True, help="Checkout to compare with.")
    parser.add_argument("--after", default=str(ROOT), help="Checkout to compare; this one.")
    parser.add_argument("--only", help=f"Some of {', '.join(COMMANDS)}, comma-separated.")
    parser.add_argument("--keep", help="New folder for all files, which stay there.")
    given = parser.parse_args()
    if unknown := {*given.only.split(",")} - {*COMMANDS} if given.only else ():
        parser.error(f"--only must be among {', '.join(COMMANDS)}. Received {sorted(unknown)}.")
    main(given)

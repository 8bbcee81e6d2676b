"""Trains on several machines made of network namespaces, kills one of them, and compares weights.

    python benchmarks/machines.py --text=book.txt [--machines=3] [--steps=300] [--loopback]

Each machine is a namespace of Linux with an interface and an address of its own, on a bridge; that
takes root. With --loopback, they are addresses of this one: 127.0.0.1, 127.0.0.2 and so on.

A model of two layers without dropout, for its masks differ from worker to worker, is pre-trained on
a text, by sentences one a line: by one process alone; on all machines; and on all machines, where
the one behind the chief is killed (SIGKILL) in the middle, the others end by themselves, and the
same commands are given again. The second and third must end with the same bytes; the first with the
same losses and weights to rounding.

The sums over a batch are then made in another order, so that a gradient differs by about 1e-7 of
the largest of its terms. Adam divides a gradient by the root of its mean square: where both are no
larger than that rounding, the quotient is as large as any, and a weight may move by the learning
rate otherwise in a step. So weights are compared with the learning rate, and losses with 1e-5 each
step's own size, times the steps before, as differences grow with them.

Prints what each worker said last and a table; exits with 1 where anything is otherwise.
"""

import argparse
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
VOCABULARY = ROOT / "sample/vocab.txt"
LENGTHS = ("--max_seq_length=64", "--max_predictions_per_seq=10")
LEARNING_RATE = 1e-4
# The exit status of a worker that has lost another one.
LOST = 75
# Seconds: longer than a run takes on a machine with much else to do.
LONGEST = 900.0


def call(*command: str) -> None:
    """Runs a command, which must succeed."""
    subprocess.run(command, check=True, cwd=ROOT)


@contextlib.contextmanager
def namespaces(count: int) -> Iterator[list[tuple[str, list[str]]]]:
    """Gives the address of each machine, and what a command on it begins with."""
    tag = f"{os.getpid() % 100000}"
    bridge = f"bb{tag}"
    with contextlib.ExitStack() as stack:
        call("ip", "link", "add", bridge, "type", "bridge")
        stack.callback(call, "ip", "link", "del", bridge)
        call("ip", "link", "set", bridge, "up")
        machines = []
        for number in range(count):
            name, outer, inner = f"bert{tag}-{number}", f"bo{tag}-{number}", f"bi{tag}-{number}"
            address = f"10.77.{int(tag) % 250}.{number + 1}"
            call("ip", "netns", "add", name)
            stack.callback(call, "ip", "netns", "del", name)
            call("ip", "link", "add", outer, "type", "veth", "peer", "name", inner, "netns", name)
            call("ip", "link", "set", outer, "master", bridge, "up")
            within = ["ip", "netns", "exec", name]
            call(*within, "ip", "address", "add", f"{address}/24", "dev", inner)
            call(*within, "ip", "link", "set", inner, "up")
            call(*within, "ip", "link", "set", "lo", "up")
            machines.append((f"{address}:2222", within))
        yield machines


@contextlib.contextmanager
def loopback(count: int) -> Iterator[list[tuple[str, list[str]]]]:
    """As `namespaces`, of addresses of this machine; TensorFlow listens at all, so ports differ."""
    first = 10000 + os.getpid() % 20000
    yield [(f"127.0.0.{number + 1}:{first + number}", []) for number in range(count)]


class Training:
    """A pre-training on some machines, which must be as many as it is begun on.

    Args:
      machines: Address and first words of each; none for one process alone.
      flags: Those of run_pretraining.py.
      folder: For what the workers say.
    """

    def __init__(
        self, machines: Sequence[tuple[str, list[str]]], flags: Sequence[str], folder: Path
    ) -> None:
        workers = ",".join(address for address, _ in machines)
        self.logs = [folder / f"worker_{index}.log" for index in range(len(machines) or 1)]
        self.processes = []
        for index, (log, (_, within)) in enumerate(
            zip(self.logs, machines or [("", [])], strict=True)
        ):
            told = {"BERT_WORKERS": workers, "BERT_WORKER": str(index)} if machines else {}
            several = ["--strategy=multi_worker"] if machines else []
            with log.open("w") as file:
                self.processes.append(
                    subprocess.Popen(
                        [*within, sys.executable, "run_pretraining.py", *several, *flags],
                        cwd=ROOT,
                        env={**os.environ, "TF_NUM_INTRAOP_THREADS": "1", **told},
                        stdout=file,
                        stderr=subprocess.STDOUT,
                    )
                )

    def wait_for(self, path: Path) -> None:
        """Returns when there is a file."""
        deadline = time.monotonic() + LONGEST
        while not path.exists():
            if any(process.poll() is not None for process in self.processes):
                sys.exit(f"A worker has ended too soon:\n{self.last_words()}")
            if time.monotonic() > deadline:
                sys.exit(f"{path} did not come within {LONGEST:g} s:\n{self.last_words()}")
            time.sleep(0.02)

    def wait(self) -> list[int]:
        """Returns the exit statuses."""
        return [process.wait() for process in self.processes]

    def last_words(self) -> str:
        """Returns the last line of each worker."""
        lines = [_lines(log)[-1:] or [""] for log in self.logs]
        return "\n".join(f"  worker {index}: {line[0]}" for index, line in enumerate(lines))


def make_records(text: str, folder: Path) -> list[str]:
    """Writes records and a configuration; returns the flags that name them."""
    call(
        sys.executable,
        "create_pretraining_data.py",
        f"--input_file={text}",
        f"--output_file={folder}/train.tfrecord",
        f"--vocab_file={VOCABULARY}",
        *LENGTHS,
        "--verbosity=-1",
        "--dupe_factor=2",
    )
    config = json.loads((ROOT / "sample/bert_config.json").read_text())
    config |= {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    (folder / "config.json").write_text(json.dumps(config))
    return [f"--input_file={folder}/train.tfrecord", f"--bert_config_file={folder}/config.json"]


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines()


def losses_of(folder: Path) -> list[float]:
    """Returns the loss of each step."""
    return [json.loads(line)["loss"] for line in _lines(folder / "train_log.jsonl")]


def largest_difference(one: Path, other: Path, steps: int) -> float:
    """Returns how far the weights of two trainings are apart."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import tensorflow as tf  # noqa: PLC0415

    readers = [tf.train.load_checkpoint(str(each / f"model.ckpt-{steps}")) for each in (one, other)]
    names = [
        name
        for name in readers[0].get_variable_to_shape_map()
        if not re.search("global_step|adam_", name)
    ]
    pairs = [[reader.get_tensor(name) for reader in readers] for name in names]
    return float(max(abs(mine - theirs).max() for mine, theirs in pairs))


def main() -> None:
    """Trains, kills and compares."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--text", required=True)
    parser.add_argument("--machines", type=int, default=3)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--loopback", action="store_true")
    asked = parser.parse_args()
    if asked.machines < 2:
        parser.error(f"--machines must be at least 2, as one is killed. Received {asked.machines}.")
    make = loopback if asked.loopback else namespaces
    with tempfile.TemporaryDirectory() as name, make(asked.machines) as machines:
        sys.exit(compare(machines, asked, Path(name)))


def compare(
    machines: Sequence[tuple[str, list[str]]], asked: argparse.Namespace, folder: Path
) -> int:
    """Returns the exit status."""
    every = max(asked.steps // 6, 1)
    flags = [
        *make_records(asked.text, folder),
        *("--do_train", *LENGTHS, f"--train_batch_size={8 * asked.machines}"),
        *(f"--eval_batch_size={8 * asked.machines}", f"--num_train_steps={asked.steps}"),
        *("--num_warmup_steps=10", f"--learning_rate={LEARNING_RATE}"),
        f"--save_checkpoints_steps={every}",
    ]
    alone, whole, cut = (folder / each for each in ("alone", "whole", "cut"))
    for made, on in ((alone, []), (whole, machines)):
        training = Training(on, [*flags, f"--output_dir={made}"], folder)
        if any(training.wait()):
            sys.exit(f"A training has failed:\n{training.last_words()}")
    training = Training(machines, [*flags, f"--output_dir={cut}"], folder)
    training.wait_for(cut / f"model.ckpt-{3 * every}.index")
    training.processes[1].send_signal(signal.SIGKILL)
    begin = time.monotonic()
    statuses = training.wait()
    print(f"Worker 1 at {machines[1][0]} was killed; {time.monotonic() - begin:.1f} s later:")
    print(training.last_words())
    name = f"Worker 1 at {machines[1][0]}"
    silent = [log for log in (training.logs[0], *training.logs[2:]) if name not in _lines(log)[-1]]
    again = Training(machines, [*flags, f"--output_dir={cut}"], folder)
    failed = any(again.wait())
    print(again.last_words())
    killed = largest_difference(whole, cut, asked.steps)
    rounded = largest_difference(alone, whole, asked.steps)
    losses = [
        abs(a - b) / (step * max(abs(a), 1.0))
        for step, (a, b) in enumerate(zip(losses_of(alone), losses_of(whole), strict=True), 1)
    ]
    rows = [
        (f"weights, {asked.machines} machines killed and left alone", killed, 0.0),
        (f"weights, {asked.machines} machines and one process", rounded, LEARNING_RATE),
        ("losses of these, over their step and their size", max(losses), 1e-5),
    ]
    for what, difference, bound in rows:
        print(f"{what:60} {difference:9.2e}  (at most {bound:.0e})")
    same = losses_of(whole) == losses_of(cut)
    ended = {*statuses[:1], *statuses[2:]} == {LOST} and statuses[1] == -signal.SIGKILL
    good = ended and not silent and not failed and same
    return 0 if good and all(difference <= bound for _, difference, bound in rows) else 1


if __name__ == "__main__":
    main()

"""Kills a training at random moments, again and again, and checks that nothing of it is lost.

    python benchmarks/kills.py --runner=run_squad [--kills=50] [--seed=1] [--signal=SIGTERM] \
      [--forked]

A small model is trained on made-up texts in the precisions in turn. Each training is first left
alone; then the same command is started in other folders, killed and started again, eight times
over, until it is let finish. What is in the folder then must be the same, byte for byte: weights,
slots, scores and predictions, and no files besides; curves are left out.

A moment is within the first seconds, in training, in a save, or behind the training, where
evaluation and prediction are. With SIGTERM the script must end with 143, as it must not when it
has not begun to listen yet, and go on from the step at which it says that it stopped.

With --forked, the script begins in a process that has TensorFlow loaded already, which takes half
the time.

Prints a line for each kill and a summary; exits with 1 where anything was lost.
"""

import argparse
import collections
import hashlib
import json
import os
import random
import re
import runpy
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SIGNALS = ("SIGKILL", "SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1")
PRECISIONS = ("float32", "mixed_bfloat16", "mixed_float16")
KILLS_UNTIL_THE_END = 8
# Seconds: longer than a run takes on a machine with much else to do.
LONGEST = 900.0
WORDS = [f"w{number}" for number in range(200)]
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", ".", *WORDS]
CONFIG = {
    "vocab_size": len(VOCABULARY),
    "hidden_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 32,
    "type_vocab_size": 2,
    "hidden_act": "gelu",
    "initializer_range": 0.1,
    "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.1,
}
# In a name, while something is written.
WRITING = re.compile(r"\.partial|\.tmp$")


def text(rng: random.Random, shortest: int, longest: int) -> str:
    """Returns random words."""
    return " ".join(rng.choices(WORDS, k=rng.randint(shortest, longest)))


def write_pretraining(folder: Path, rng: random.Random) -> list[str]:
    """Writes records; returns the flags to train on them, as the others below."""
    lines = [text(rng, 3, 9) + " ." if rng.random() < 0.9 else "" for _ in range(300)]
    (folder / "text.txt").write_text("\n".join(lines))
    made = ["--max_seq_length=24", "--max_predictions_per_seq=4"]
    subprocess.run(
        [
            sys.executable,
            "create_pretraining_data.py",
            f"--input_file={folder / 'text.txt'}",
            f"--output_file={folder / 'train.tfrecord'}",
            f"--vocab_file={folder / 'vocab.txt'}",
            "--dupe_factor=2",
            *made,
        ],
        cwd=ROOT,
        check=True,
        stderr=subprocess.DEVNULL,
    )
    made += [f"--input_file={folder / 'train.tfrecord'}", "--num_train_steps=300"]
    return [*made, "--num_warmup_steps=20", "--do_eval", "--train_batch_size=8"]


def write_classification(folder: Path, rng: random.Random) -> list[str]:
    """Writes a task of single texts."""
    for name, count in (("train", 160), ("dev", 40), ("test", 40)):
        rows = ["text\tlabel"]
        for _ in range(count):
            words = text(rng, 2, 12)
            rows.append(f"{words}\t{'yes' if int(words[1]) % 2 else 'no'}")
        (folder / f"{name}.tsv").write_text("\n".join(rows) + "\n")
    return ["--task_name=custom", "--num_train_epochs=15"]


def write_squad(folder: Path, rng: random.Random) -> list[str]:
    """Writes questions, every third of which has no answer."""
    for name, count in (("train", 160), ("dev", 40)):
        paragraphs = []
        for number in range(count):
            context = text(rng, 8, 30)
            words = context.split(" ")
            place = rng.randrange(len(words))
            start = len(" ".join([*words[:place], ""]))
            answers = [{"text": words[place], "answer_start": start}] if number % 3 else []
            question = {"id": f"q{number}", "question": f"{words[place]} .", "answers": answers}
            paragraphs.append(
                {"context": context, "qas": [{**question, "is_impossible": not answers}]}
            )
        content = {"version": "v2.0", "data": [{"title": "t", "paragraphs": paragraphs}]}
        (folder / f"{name}.json").write_text(json.dumps(content))
    made = [f"--train_file={folder / 'train.json'}", f"--predict_file={folder / 'dev.json'}"]
    made += ["--version_2_with_negative", "--doc_stride=8", "--max_query_length=6"]
    return [*made, "--num_train_epochs=15"]


def write_ner(folder: Path, rng: random.Random) -> list[str]:
    """Writes sentences in which every tenth word is a name."""
    for name, count in (("train", 160), ("dev", 40), ("test", 40)):
        lines = []
        for _ in range(count):
            words = text(rng, 2, 12).split(" ")
            lines += [f"{word} {'B-PER' if word.endswith('7') else 'O'}" for word in words] + [""]
        (folder / f"{name}.txt").write_text("\n".join(lines) + "\n")
    return ["--num_train_epochs=15"]


def write_swag(folder: Path, rng: random.Random) -> list[str]:
    """Writes contexts, of which the right ending repeats a word."""
    for name, count in (("train", 120), ("val", 40), ("test", 40)):
        lines = []
        for number in range(count):
            context, label = text(rng, 2, 8), rng.randrange(4)
            endings = [text(rng, 1, 5) for _ in range(4)]
            endings[label] += f" {context.split(' ')[0]}"
            row = {"id": f"r{number}", "context": context, "endings": endings, "label": label}
            lines.append(json.dumps(row) + "\n")
        (folder / f"{name}.jsonl").write_text("".join(lines))
    return ["--num_train_epochs=15"]


RUNNERS: dict[str, Callable[[Path, random.Random], list[str]]] = {
    "run_pretraining": write_pretraining,
    "run_classifier": write_classification,
    "run_squad": write_squad,
    "run_ner": write_ner,
    "run_swag": write_swag,
}


def write_task(folder: Path, runner: str, rng: random.Random) -> list[str]:
    """Writes all that a runner reads; returns its command, without folder and precision."""
    (folder / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n")
    (folder / "bert_config.json").write_text(json.dumps(CONFIG))
    command = [f"{runner}.py", *RUNNERS[runner](folder, rng), "--do_train"]
    command += [f"--bert_config_file={folder / 'bert_config.json'}", "--learning_rate=0.001"]
    command += ["--save_checkpoints_steps=10"]
    if runner == "run_pretraining":
        return command
    command += [f"--vocab_file={folder / 'vocab.txt'}", "--max_seq_length=24", "--do_predict"]
    command += ["--train_batch_size=8"]
    if runner != "run_squad":
        command += [f"--data_dir={folder}", "--do_eval"]
    return command


class Forked:
    """A script in a process that is forked from this one, as `subprocess.Popen`."""

    def __init__(self, arguments: list[str], log: Any) -> None:
        self._status: int | None = None
        self._process = os.fork()
        if self._process == 0:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            os.dup2(log.fileno(), 2)
            sys.argv, sys.path[0] = arguments, str(ROOT)
            # Ends as any script does, by an exception through all that is below.
            runpy.run_path(str(ROOT / arguments[0]), run_name="__main__")
            sys.exit()

    def poll(self) -> int | None:
        """Returns the exit status, None while there is none."""
        return self._wait(os.WNOHANG)

    def wait(self) -> int:
        """Returns the exit status when there is one."""
        status = self._wait(0)
        assert status is not None
        return status

    def _wait(self, options: int) -> int | None:
        if self._status is None:
            process, status = os.waitpid(self._process, options)
            self._status = os.waitstatus_to_exitcode(status) if process else None
        return self._status

    def send_signal(self, number: int) -> None:
        """Sends a signal unless the process has ended."""
        if self.poll() is None:
            os.kill(self._process, number)


class Run:
    """A script in a process of its own."""

    def __init__(self, command: list[str], output: Path) -> None:
        self.output = output
        self.log = output.with_suffix(".log")
        self.start = time.monotonic()
        arguments = [*command, f"--output_dir={output}"]
        with open(self.log, "w") as log:
            self.process: Forked | subprocess.Popen[bytes] = (
                Forked(arguments, log)
                if is_forked()
                else subprocess.Popen(
                    [sys.executable, *arguments], cwd=ROOT, stdout=subprocess.DEVNULL, stderr=log
                )
            )

    def wait_for(self, condition: Callable[[], bool]) -> bool:
        """Returns whether the condition came true while the process lived."""
        deadline = time.monotonic() + LONGEST
        while self.process.poll() is None:
            if condition():
                return True
            if time.monotonic() > deadline:
                self.process.send_signal(signal.SIGKILL)
                raise RuntimeError(f"The run hangs:\n{self.log.read_text()[-3000:]}")
            time.sleep(0.0005)
        return False

    def wait(self) -> int:
        """Returns the exit status."""
        self.wait_for(lambda: False)
        return self.process.wait()

    def has_said(self, words: str) -> bool:
        """Returns whether the log has these words."""
        return words in self.log.read_text()

    def finish(self) -> None:
        """Waits for the end, which must be a good one."""
        if self.wait():
            raise RuntimeError(f"The run failed:\n{self.log.read_text()[-3000:]}")


def files_of(folder: Path) -> dict[str, str]:
    """Returns checksums of all files but the curves, of which each process writes its own."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and "tfevents" not in path.name:
            content = path.read_bytes()
            if path.name == ".own_files.json":
                # It names the curves, too.
                content = b"\n".join(
                    line for line in content.split(b"\n") if b"tfevents" not in line
                )
            found[str(path.relative_to(folder))] = hashlib.sha256(content).hexdigest()
    return found


class Killer:
    """Waits for a moment of a run and kills it there.

    Args:
      rng: Chooses the moment.
      seconds: From a run's start to its first step.
      number: The signal.
    """

    def __init__(self, rng: random.Random, seconds: float, number: int) -> None:
        self._rng = rng
        self._seconds = seconds
        self._number = number

    def __call__(self, run: Run, kind: str) -> int | None:
        """Returns the exit status of the run, None where it had ended before it was killed."""
        strikes = getattr(self, f"_await_{kind}")(run)
        if strikes:
            run.process.send_signal(self._number)
        status = run.wait()
        return status or None

    def _sleep(self, run: Run, longest: float) -> bool:
        end = time.monotonic() + self._rng.uniform(0, longest)
        return run.wait_for(lambda: time.monotonic() >= end)

    def _await_start(self, run: Run) -> bool:
        return self._sleep(run, self._seconds)

    def _await_training(self, run: Run) -> bool:
        return run.wait_for(lambda: run.has_said("Saved ")) and self._sleep(run, 0.7)

    def _await_save(self, run: Run) -> bool:
        def is_writing() -> bool:
            if not run.output.exists():
                return False
            with os.scandir(run.output) as entries:
                return any(WRITING.search(entry.name) for entry in entries)

        if not run.wait_for(lambda: run.has_said("Saved ")) or not self._sleep(run, 0.3):
            return False
        return run.wait_for(is_writing) and self._sleep(run, 0.01)

    def _await_end(self, run: Run) -> bool:
        ends = ("Saved the weights", "Evaluation", "Evaluating", "is reached already")
        return run.wait_for(lambda: any(map(run.has_said, ends))) and self._sleep(run, 1.0)


def resumed_at(run: Run) -> int:
    """Returns the step at which a run says that it goes on; 0 where it began anew."""
    match = re.search(r"Resuming from step (\d+)", run.log.read_text())
    return int(match[1]) if match else 0


class Trial:
    """One training that is killed until it is let finish, and counts of all of them."""

    def __init__(self, number: int, rng: random.Random) -> None:
        self.counts: collections.Counter[str] = collections.Counter()
        self.problems: list[str] = []
        self._signal = number
        self._rng = rng

    def __call__(self, command: list[str], folder: Path, expected: tuple[Run, int]) -> None:
        """Kills, resumes and compares.

        Args:
          command: Of the runs.
          folder: For their files.
          expected: The run that was left alone, and how many kills are asked for.
        """
        whole, num_kills = expected
        output = folder / f"cut_{self.counts['trainings']}"
        kinds = self._rng.choices(["start", "training", "training", "save", "save"], k=num_kills)
        kinds[-1] = "end"
        kill = Killer(self._rng, first_step(whole), self._signal)
        stopped = None
        for kind in kinds:
            run = Run(command, output)
            status = kill(run, kind)
            self._look(run, stopped)
            if status is None:
                self.counts["ended before"] += 1
                break
            if status not in (128 + self._signal, -self._signal) or run.has_said("Traceback"):
                self.problems.append(f"{output}: status {status}: {run.log.read_text()[-1500:]}")
                break
            stopped = self._say(run, kind, status)
        self.counts["trainings"] += 1
        last = Run(command, output)
        if status := last.wait():
            self.problems.append(f"{output}: status {status}: {last.log.read_text()[-1500:]}")
            return
        self._look(last, stopped)
        self._compare(whole, output)

    def _say(self, run: Run, kind: str, status: int) -> int | None:
        """Counts a kill; returns the step at which the run says that it stopped, if it does."""
        within = any(map(WRITING.search, os.listdir(run.output) if run.output.exists() else []))
        match = re.search(r"Stopped at step (\d+); the same command", run.log.read_text())
        self.counts.update(["kills", f"in {kind}", f"status {status}"])
        self.counts["that left what was being written"] += within
        self.counts["that said where they stopped"] += bool(match)
        seconds = time.monotonic() - run.start
        where = "writing" if within else ""
        print(f"{run.output.name} {kind:8} {seconds:5.1f} s  status {status} {where}", flush=True)
        return int(match[1]) if match else None

    def _look(self, run: Run, stopped: int | None) -> None:
        reached = run.has_said("Resuming from step") or run.has_said("already")
        if stopped and reached and resumed_at(run) != stopped:
            self.problems.append(f"{run.output}: resumed at {resumed_at(run)}, not {stopped}")

    def _compare(self, whole: Run, output: Path) -> None:
        one, other = files_of(whole.output), files_of(output)
        different = sorted(name for name in one | other if one.get(name) != other.get(name))
        print(f"{output.name}: {len(one)} files compared, different: {different}", flush=True)
        if different:
            self.problems.append(f"{output}: {different}")
        else:
            shutil.rmtree(output)


def first_step(run: Run) -> float:
    """Returns the seconds from a finished run's start until its first step, at least about."""
    steps = re.search(r"Step 1 took (?:[^\n]*?)(\d+(?:\.\d+)?) s", run.log.read_text())
    return 4.0 + (float(steps[1]) if steps else 3.0)


def is_forked() -> bool:
    """Returns whether TensorFlow is loaded here, for others to begin with."""
    return "tensorflow" in sys.modules


def main(options: argparse.Namespace) -> None:
    """Kills until the number that is asked for is reached."""
    rng = random.Random(options.seed)
    folder = Path(tempfile.mkdtemp(prefix="kills-"))
    command = write_task(folder, options.runner, rng)
    if options.forked:
        import keras  # noqa: F401, PLC0415
        import tensorflow  # noqa: F401, PLC0415
    trial = Trial(getattr(signal, options.signal), rng)
    wholes: dict[str, Run] = {}
    while trial.counts["kills"] < options.kills:
        precision = PRECISIONS[trial.counts["trainings"] % len(PRECISIONS)]
        this = [*command, f"--precision={precision}"]
        if precision not in wholes:
            wholes[precision] = Run(this, folder / precision)
            wholes[precision].finish()
            seconds = time.monotonic() - wholes[precision].start
            print(f"left alone in {precision}: {seconds:.1f} s", flush=True)
        left = options.kills - trial.counts["kills"]
        trial(this, folder, (wholes[precision], min(left, KILLS_UNTIL_THE_END)))
    print(f"{options.runner}: {dict(trial.counts)}, lost: {len(trial.problems)}")
    if trial.problems:
        print("\n".join([*trial.problems, f"See {folder}"]))
        sys.exit(1)
    shutil.rmtree(folder)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--runner", choices=RUNNERS, required=True, help="Script to kill.")
    parser.add_argument("--kills", type=int, default=50, help="How many.")
    parser.add_argument("--seed", type=int, default=1, help="Of data and moments.")
    parser.add_argument("--signal", choices=SIGNALS, default="SIGKILL", help="What is sent.")
    parser.add_argument("--forked", action="store_true", help="Load TensorFlow once for all.")
    main(parser.parse_args())

"""The laws of several workers: what they train does not depend on how many they are, nor on who
dies, hangs or comes late; and who differs, or never comes, is named by all before anything is
written.
"""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from conftest import (
    LENGTH,
    PREDICTIONS,
    ROOT,
    free_ports,
    make_examples,
    read_tensors,
    write_examples,
)
from helpers import classifier_runs
from helpers.forks import Forked
from helpers.waiting import LONGEST, wait_until

import run_classifier
from bert.training.link import LOST

STEPS = 6


@pytest.fixture
def flags(tmp_path, still_config):
    """Returns the flags of a pre-training on this test's records, without dropout."""
    (tmp_path / "config.json").write_text(still_config.to_json_string())
    records = write_examples(tmp_path / "train.tfrecord", make_examples(still_config, 22))

    def flags(output, **changes):
        values = {
            "bert_config_file": tmp_path / "config.json",
            "input_file": records,
            "output_dir": tmp_path / output,
            "max_seq_length": LENGTH,
            "max_predictions_per_seq": PREDICTIONS,
            # What two and three can share.
            "train_batch_size": 12,
            "eval_batch_size": 6,
            "num_train_steps": STEPS,
            "num_warmup_steps": 2,
            "learning_rate": 0.01,
            "save_checkpoints_steps": 2,
            **changes,
        }
        return ["--do_train", "--do_eval", *(f"--{name}={value}" for name, value in values.items())]

    return flags


class Workers:
    """`run_pretraining.py` on several workers, each with flags of its own."""

    def __init__(self, tmp_path, flags, *, absent=(), scripts=None, **env):
        self._addresses = [f"localhost:{port}" for port in free_ports(len(flags))]
        self._folder, self._flags, self._env = tmp_path, flags, env
        self._scripts = scripts or {}
        self.processes = {}
        for index in {*range(len(flags))} - {*absent}:
            self.start(index)

    def start(self, index):
        cluster = {"worker": self._addresses}
        config = {"cluster": cluster, "task": {"type": "worker", "index": index}}
        script = self._scripts.get(index, ["run_pretraining.py"])
        arguments = [*script, "--strategy=multi_worker", *self._flags[index]]
        self.processes[index] = Forked(
            arguments,
            os.devnull,
            self._folder / f"worker_{index}.log",
            TF_CONFIG=json.dumps(config),
            **self._env,
        )

    def port(self, index):
        return int(self._addresses[index].rpartition(":")[2])

    def name(self, index):
        chief = " (the chief)" if index == 0 else ""
        return f"orker {index}{chief} at {self._addresses[index]}"

    def log(self, index):
        return self.processes[index].stderr.read_text()

    def last_lines(self):
        return {index: self.log(index).splitlines()[-1] for index in self.processes}

    def are_alive(self):
        return all(process.poll() is None for process in self.processes.values())

    def wait(self, but=()):
        """Returns the exit status of each, of those that must end."""
        end = time.monotonic() + 150
        return {
            index: process.wait(max(end - time.monotonic(), 0))
            for index, process in self.processes.items()
            if index not in but
        }


@pytest.fixture
def start(tmp_path):
    """Returns a function that starts `Workers`, of which none outlives the test."""
    started = []

    def start(flags, **options):
        started.append(Workers(tmp_path, flags, **options))
        return started[-1]

    yield start
    for workers in started:
        for process in workers.processes.values():
            process.kill()
            process.wait()


def results_of(folder):
    lines = (folder / "eval_results.txt").read_text().splitlines()
    results = dict(line.split(" = ") for line in lines)
    log = (folder / "train_log.jsonl").read_text().splitlines()
    losses = [json.loads(line)["loss"] for line in log]
    return {name: float(value) for name, value in results.items()}, losses


def weights_of(folder, step=STEPS):
    return read_tensors(folder / f"model.ckpt-{step}")


def assert_equal_to_rounding(one, other):
    """Compares two folders: the sums of a batch are rounded in another order, and no more.

    Adam divides each gradient by the root of its square: where both are about as small as their
    rounding, the quotient is not, and a weight moves by up to the learning rate another way.
    """
    for mine, theirs in zip(results_of(one), results_of(other), strict=True):
        assert mine == pytest.approx(theirs, abs=1e-5)
    mine, theirs = weights_of(one), weights_of(other)
    assert mine.keys() == theirs.keys()
    for name in mine:
        np.testing.assert_allclose(mine[name], theirs[name], atol=1e-4, err_msg=name)


def run_alone(tmp_path, flags):
    process = Forked(["run_pretraining.py", *flags("alone")], os.devnull, tmp_path / "alone.log")
    assert process.wait() == 0, process.stderr.read_text()


# Says at the end which device each of its sockets that listen is bound to.
LISTENING = """
import atexit, os, socket, sys
from bert.commands.console import run_script
import run_pretraining

def show():
    for number in os.listdir("/proc/self/fd"):
        try:
            each = socket.socket(fileno=int(number))
        except OSError:
            continue
        if each.family in (socket.AF_INET, socket.AF_INET6):
            if each.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                device = each.getsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, 16)
                print("Listens at", device.decode().strip(chr(0)), file=sys.stderr)
        each.detach()

atexit.register(show)
run_pretraining.define_flags()
run_script(run_pretraining.main)
"""


@pytest.mark.slow
@pytest.mark.parametrize("count", [2, pytest.param(3, marks=pytest.mark.exhaustive)])
def test_workers_equal_one_process_and_the_chief_alone_writes(tmp_path, flags, start, count):
    # Each has a disk of its own.
    scripts = {index: ["-c", LISTENING] for index in range(count)}
    workers = start([flags(f"disk_{index}") for index in range(count)], scripts=scripts)
    run_alone(tmp_path, flags)
    assert set(workers.wait().values()) == {0}, workers.log(0)
    for index in range(count):
        # TensorFlow's, too, can be reached from this machine alone.
        listens = [line for line in workers.log(index).splitlines() if "Listens at" in line]
        assert listens and {*listens} == {"Listens at lo"}
    assert_equal_to_rounding(tmp_path / "disk_0", tmp_path / "alone")
    names = {path.name for path in (tmp_path / "alone").iterdir() if "tfevents" not in path.name}
    assert names <= {path.name for path in (tmp_path / "disk_0").iterdir()}
    for index in range(1, count):
        written = [path for path in (tmp_path / f"disk_{index}").rglob("*") if path.is_file()]
        assert written == []


DIFFERENCES = {
    "learning rate": {"learning_rate": 0.02},
    "records": {"input_file": "other.tfrecord"},
    "configuration": {"bert_config_file": "other.json"},
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "what",
    [
        "records",
        *(
            pytest.param(name, marks=pytest.mark.exhaustive)
            for name in ("learning rate", "configuration")
        ),
    ],
)
def test_workers_that_differ_end_before_anything_is_written(
    tmp_path, flags, start, still_config, what
):
    write_examples(tmp_path / "other.tfrecord", make_examples(still_config, 23))
    other = {**still_config.to_dict(), "hidden_dropout_prob": 0.5}
    (tmp_path / "other.json").write_text(json.dumps(other))
    [(name, value)] = DIFFERENCES[what].items()
    changed = {name: value if what == "learning rate" else tmp_path / value}
    workers = start([flags("shared"), flags("shared", **changed)])
    assert workers.wait() == {0: 1, 1: 1}
    for line in workers.last_lines().values():
        assert f"Other than the chief, w{workers.name(1)} has " in line
        found = {"configuration": "the configuration"}.get(what, f"--{name}")
        assert f" {found} " in line
    assert not (tmp_path / "shared").exists()


@pytest.mark.slow
def test_worker_that_never_comes_is_named(tmp_path, flags, start):
    """Worker 2 comes, but another program has its port."""
    workers = start([flags("shared")] * 3, absent=[2], BERT_WORKER_TIMEOUT="4")
    with socket.create_server(("", workers.port(2))):
        workers.start(2)
        assert workers.wait() == {0: LOST, 1: LOST, 2: 1}
    *lines, last = workers.last_lines().values()
    assert all(f"Missing: w{workers.name(2)}. " in line for line in lines)
    assert f"This worker must be able to listen at port {workers.port(2)}. Address already" in last
    assert not (tmp_path / "shared").exists()


# So many that none ends before it is struck.
LONG = {"num_train_steps": 400, "save_checkpoints_steps": 50}
STRIKES = [(1, signal.SIGKILL), (0, signal.SIGSTOP), (2, signal.SIGSTOP), (0, signal.SIGKILL)]


def wait_for_save(folder, step, is_alive):
    path = folder / f"model.ckpt-{step}.index"
    wait_until(lambda: path.exists() or not is_alive(), LONGEST)
    assert path.exists()


@pytest.mark.slow
@pytest.mark.exhaustive
def test_worker_that_dies_or_hangs_is_named_and_the_same_command_goes_on(tmp_path, flags, start):
    for step, (victim, number) in zip(range(50, 400, 50), STRIKES, strict=False):
        workers = start([flags("cut", **LONG)] * 3)
        wait_for_save(tmp_path / "cut", step, workers.are_alive)
        workers.processes[victim].send_signal(number)
        begin = time.monotonic()
        statuses = workers.wait(but=[victim])
        assert set(statuses.values()) == {LOST}, workers.log(0)
        # TensorFlow misses one that hangs after ten seconds; the rest is for busy machines.
        assert time.monotonic() - begin < 60
        lines = workers.last_lines()
        assert all(f"W{workers.name(victim)} " in lines[index] for index in statuses), lines
        workers.processes[victim].kill()
        workers.processes[victim].wait()
    for output in ("cut", "whole"):
        workers = start([flags(output, **LONG)] * 3)
        assert set(workers.wait().values()) == {0}, workers.log(0)
        assert ("Resuming from step" in workers.log(0)) == (output == "cut")
    assert_same_bytes(tmp_path / "cut", tmp_path / "whole", 400)


# Dies where it is to make variables, which the others do with it.
DYING = """
import os, signal, sys
from bert.commands.console import run_script
from bert.pretraining.objectives import OBJECTIVES
from bert.runs.pretraining import PreTrainingPlan
import run_pretraining

def die(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)

if {where!r} == "model":
    for each in OBJECTIVES.values():
        type(each).make_model = die
else:
    PreTrainingPlan.start = die
run_pretraining.define_flags()
run_script(run_pretraining.main)
"""


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.parametrize("where", ["model", "start"])
def test_worker_that_dies_where_variables_are_made_is_named(tmp_path, flags, start, where):
    code = DYING.format(where=where)
    workers = start([flags("shared")] * 2, scripts={1: ["-c", code]})
    assert workers.wait() == {0: LOST, 1: -signal.SIGKILL}, workers.log(0)
    assert f"W{workers.name(1)} is gone" in workers.log(0).splitlines()[-1]


def assert_same_bytes(one, other, step):
    mine, theirs = weights_of(one, step), weights_of(other, step)
    for name in theirs:
        np.testing.assert_array_equal(mine[name], theirs[name], err_msg=name)


def worker_processes(launcher):
    """Returns the processes that a launcher has started, by the number of the worker."""
    found = {}
    children = Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split()
    for each in children:
        # It may have ended meanwhile, or may not have begun.
        with contextlib.suppress(OSError, StopIteration, ValueError):
            environment = Path(f"/proc/{each}/environ").read_bytes().decode().split("\0")
            config = next(value for value in environment if value.startswith("TF_CONFIG="))
            found[json.loads(config.removeprefix("TF_CONFIG="))["task"]["index"]] = int(each)
    return found


@pytest.mark.slow
def test_workers_wait_for_the_best_weights_of_an_evaluation_that_is_made_up_for(tmp_path, start):
    make = classifier_runs.settings_in(tmp_path)
    classifier_runs.write_task(tmp_path, lambda color: color, count=16)
    given = {"early_stopping_patience": 1, "num_train_epochs": 1.0}
    settings = make(do_train=True, do_eval=True, **given)
    run_classifier.run(settings)
    out = tmp_path / "out"
    index = (out / "bert_model.ckpt.index").read_bytes()
    # As where a signal came within the last step: that is saved, but not evaluated.
    for path in (out / "evaluations.jsonl", *out.glob("bert_model.*"), *(out / "best").iterdir()):
        path.unlink()
    names = [*given, "bert_config_file", "vocab_file", "data_dir", "task_name", "output_dir"]
    names += ["max_seq_length", "train_batch_size", "learning_rate"]
    flags = [f"--{name}={getattr(settings, name)}" for name in names]
    scripts = {index: ["run_classifier.py", "--do_train", "--do_eval"] for index in range(2)}
    workers = start([flags, flags], scripts=scripts)
    assert workers.wait() == {0: 0, 1: 0}, workers.last_lines()
    assert (out / "bert_model.ckpt.index").read_bytes() == index


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.parametrize("count", [2, 3])
def test_launcher_goes_on_by_itself_where_a_worker_is_killed(tmp_path, flags, count):
    def launch(output):
        command = ["-m", "bert", "launch", f"--workers={count}", "run_pretraining"]
        arguments = [sys.executable, *command, *flags(output, **LONG)]
        with (tmp_path / f"{output}.log").open("w") as log:
            return subprocess.Popen(arguments, cwd=ROOT, stderr=log)

    cut = launch("cut")
    for step, victim in ((50, 1), (150, 0)):
        wait_for_save(tmp_path / "cut", step, lambda: cut.poll() is None)
        os.kill(worker_processes(cut.pid)[victim], signal.SIGKILL)
    assert cut.wait() == 0, (tmp_path / "cut.log").read_text()
    assert launch("whole").wait() == 0
    told = (tmp_path / "cut.log").read_text()
    again = "was killed by SIGKILL. All are restarted, to resume from the last checkpoint"
    assert f"Worker 1 {again} (1 of 3)." in told
    assert f"Worker 0 (the chief) {again} (2 of 3)." in told
    assert told.count("Resuming from step") == 2
    assert_same_bytes(tmp_path / "cut", tmp_path / "whole", 400)


@pytest.mark.slow
@pytest.mark.exhaustive
def test_signal_to_the_launcher_saves_and_starts_nothing_again(tmp_path, flags):
    arguments = flags("cut", num_train_steps=100_000, save_checkpoints_steps=50_000)
    command = [sys.executable, "-m", "bert", "launch", "--workers=2", "run_pretraining", *arguments]
    seen = []
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) as process:
        for line in process.stderr:
            seen.append(line)
            if "Step 1 took" in line:
                process.send_signal(signal.SIGTERM)
    assert process.returncode == 128 + signal.SIGTERM
    assert any("the same command goes on" in line for line in seen)
    steps = [path.stem for path in (tmp_path / "cut").glob("model.ckpt-*.index")]
    assert len(steps) == 2
    assert not worker_processes_of(tmp_path)


def worker_processes_of(folder):
    """Returns the processes that still write to a folder of this test."""
    lines = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists()]
    return [line for line in lines if os.fsencode(folder) in line and b"multi_worker" in line]


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.parametrize("count", [2, 3])
def test_workers_that_send_each_other_bfloat16_train_almost_the_same(tmp_path, flags, start, count):
    workers = start([flags("rounded", all_reduce_precision="bfloat16")] * count)
    run_alone(tmp_path, flags)
    assert set(workers.wait().values()) == {0}, workers.log(0)
    mine, theirs = results_of(tmp_path / "rounded"), results_of(tmp_path / "alone")
    assert mine != theirs
    # A gradient is rounded to 8 bits, and so is each sum: a step of Adam is off by about 1/100.
    for results in zip(mine, theirs, strict=True):
        assert results[0] == pytest.approx(results[1], rel=1e-3, abs=1e-3)

import json
import sys
import time
import types

import numpy as np
import pytest
import tensorflow as tf

from bert.files import owned
from bert.files.display import Progress
from bert.training import progress
from bert.training.progress import ProgressLog, TrainLog, steps_between_points


@pytest.mark.parametrize(
    ("given", "steps", "every"),
    [(None, 1, 1), (None, 39, 1), (None, 343, 17), (None, 10**6, 100), (7, 343, 7), (500, 10, 500)],
)
def test_a_short_training_has_more_points(given, steps, every):
    assert steps_between_points(given, steps) == every


def test_skipped_steps_are_counted_and_in_no_mean(tmp_path, log):
    told = ProgressLog(str(tmp_path), first_step=0, num_train_steps=6, batch_size=8, every=2)
    norms = [1.0, 3.0, np.inf, 5.0, np.nan, np.inf]
    for step, norm in enumerate(norms, start=1):
        told.after_step(step, {"loss": float(step), "learning_rate": 0.5, "gradient_norm": norm})
    lines = [message for message in log.messages if "/6" in message]
    assert [line.partition("  loss ")[2].split("  ")[0] for line in lines] == ["1.5", "4", "5.5"]
    assert "gradient_norm 2  " in lines[0]
    assert "gradient_norm 5  skipped_steps 1  " in lines[1]
    assert "gradient_norm nan  skipped_steps 2  " in lines[2]
    assert "skipped" not in lines[0]


def test_the_speed_of_an_interval_that_seems_to_take_no_time_is_the_one_before(
    tmp_path, monkeypatch, log
):
    """The results of the last two steps are read together, as after a step left unread."""
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    progress = ProgressLog(str(tmp_path), first_step=0, num_train_steps=11, batch_size=8, every=5)
    for step in range(1, 12):
        now += 1.0 if step < 11 else 0.001
        progress.after_step(step, {"loss": 1.0, "learning_rate": 0.5})
    lines = [message for message in log.messages if "/11" in message]
    assert [line.split("  ")[0] for line in lines] == ["Step 5/11", "Step 10/11", "Step 11/11"]
    assert all("  8 examples/s" in line for line in lines)
    [events] = tmp_path.glob("events.out.tfevents.*")
    speeds = [
        float(tf.make_ndarray(value.tensor))
        for event in tf.compat.v1.train.summary_iterator(str(events))
        for value in event.summary.value
        if value.tag == "examples_per_second"
    ]
    assert speeds == [8.0, 8.0, 8.0]


@pytest.mark.parametrize(
    ("intervals", "speed"),
    [
        # Steps and seconds. What takes long once, such as an evaluation, is not the usual.
        ([(5, 1.0), (5, 16.0), (5, 1.0), (5, 1.0)], "40"),
        ([(5, 16.0), (5, 1.0), (5, 1.0)], "40"),
        ([(5, 1.0), (5, 160.0), (5, 1.0), (5, 160.0), (5, 1.0)], "40"),
        # One step is compared with one step.
        ([(20, 20.0), (20, 20.0), (1, 0.5)], "16"),
        ([(20, 20.0), (20, 20.0), (1, 0.05)], "8"),
    ],
)
def test_a_speed_is_the_last_one_of_which_a_step_takes_a_tenth_of_the_usual_time_at_least(
    tmp_path, monkeypatch, log, intervals, speed
):
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    every, _ = intervals[0]
    last = every + sum(steps for steps, _ in intervals)
    progress = ProgressLog(
        str(tmp_path), first_step=every - 1, num_train_steps=last, batch_size=8, every=every
    )
    seconds = [1.0, *(taken / steps for steps, taken in intervals for _ in range(steps))]
    for step, taken in enumerate(seconds, start=every):
        now += taken
        progress.after_step(step, {"loss": 1.0, "learning_rate": 0.5})
    assert log.messages[-1].startswith(f"Step {last}/{last}  ")
    assert log.messages[-1].endswith(f"  {speed} examples/s")


def test_a_slow_run_logs_every_ten_seconds(tmp_path, monkeypatch, log):
    """A step takes 4 seconds; the first one's time, 60 seconds, counts for nothing."""
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    progress = ProgressLog(str(tmp_path), first_step=2, num_train_steps=20, batch_size=8, every=10)
    for step in range(3, 21):
        now += 60.0 if step == 3 else 4.0
        progress.after_step(step, {"loss": float(step), "learning_rate": 0.5})
    assert log.messages == [
        "Step 3 took 60.0 s, most of it to build the graph; loss 3.0000.",
        "Step 6/20  loss 4.5  2 examples/s  ETA 0:00:56",
        "Step 9/20  loss 6  2 examples/s  ETA 0:00:44",
        "Step 10/20  loss 6.5  learning_rate 0.5  2 examples/s  ETA 0:00:40",
        "Step 13/20  loss 12  2 examples/s  ETA 0:00:28",
        "Step 16/20  loss 13.5  2 examples/s  ETA 0:00:16",
        "Step 19/20  loss 15  2 examples/s  ETA 0:00:04",
        "Step 20/20  loss 15.5  learning_rate 0.5  2 examples/s",
    ]


def test_event_files_that_were_there_are_not_the_runs_own(tmp_path):
    (tmp_path / "events.out.tfevents.1.others").write_text("")
    progress.open_summaries(str(tmp_path))
    [own] = owned.read_names(str(tmp_path))
    assert own.startswith("events.out.tfevents.") and not own.endswith("others")


RESULTS = {"loss": 0.5, "learning_rate": 1e-5, "gradient_norm": 2.0}


def train(folder, first, last, total):
    log = TrainLog(str(folder), first_step=first, num_train_steps=total)
    for step in range(first + 1, last + 1):
        log.add(step, {**RESULTS, "loss": 1.0 / step})
    log.write()


def read(folder):
    text = (folder / "train_log.jsonl").read_text()
    assert text.endswith("\n")
    return [json.loads(line) for line in text.splitlines()]


def test_each_step_has_a_line(tmp_path):
    train(tmp_path, 0, 3, 3)
    assert read(tmp_path) == [
        {"step": 1, "loss": 1.0, "learning_rate": 1e-05, "grad_norm": 2.0},
        {"step": 2, "loss": 0.5, "learning_rate": 1e-05, "grad_norm": 2.0},
        {"step": 3, "loss": 0.3333333, "learning_rate": 1e-05, "grad_norm": 2.0},
    ]


@pytest.mark.parametrize("resumed_at", [0, 1, 4, 6])
def test_a_resumed_training_leaves_the_file_of_one_left_alone(tmp_path, resumed_at):
    train(tmp_path / "whole", 0, 9, 9)
    train(tmp_path / "cut", 0, 6, 9)
    train(tmp_path / "cut", resumed_at, 9, 9)
    whole, cut = (tmp_path / name / "train_log.jsonl" for name in ("whole", "cut"))
    assert cut.read_bytes() == whole.read_bytes()


@pytest.mark.parametrize(("total", "steps"), [(4, [1, 2, 3, 4]), (5, [2, 4]), (9, [3, 6, 9])])
def test_a_long_training_leaves_steps_out(tmp_path, monkeypatch, total, steps):
    monkeypatch.setattr(progress, "MOST_LINES", 4)
    train(tmp_path, 0, total, total)
    assert [line["step"] for line in read(tmp_path)] == steps


@pytest.mark.parametrize("resumed_at", [4, 5, 8, 10])
def test_of_a_training_of_unknown_length_every_other_step_is_left_out_again(
    tmp_path, monkeypatch, resumed_at
):
    monkeypatch.setattr(progress, "MOST_LINES", 4)
    kept = {3: [1, 2, 3], 4: [1, 2, 3, 4], 5: [2, 4], 8: [2, 4, 6, 8], 9: [4, 8], 17: [8, 16]}
    for last, steps in kept.items():
        train(tmp_path / str(last), 0, last, None)
        assert [line["step"] for line in read(tmp_path / str(last))] == steps
    train(tmp_path / "cut", 0, resumed_at, None)
    train(tmp_path / "cut", resumed_at, 17, None)
    whole, cut = (tmp_path / name / "train_log.jsonl" for name in ("17", "cut"))
    assert cut.read_bytes() == whole.read_bytes()


def test_overflowed_values_are_null(tmp_path):
    log = TrainLog(str(tmp_path), first_step=0, num_train_steps=1)
    log.add(1, {"loss": 1.0, "gradient_norm": float("inf")})
    log.write()
    assert read(tmp_path) == [{"step": 1, "loss": 1.0, "grad_norm": None}]


@pytest.mark.parametrize("line", ["[]", '{"loss": 1}', '{"step": true}', '{"st', "\x00"])
def test_a_damaged_log_is_warned_of_and_starts_over(tmp_path, log, line):
    train(tmp_path, 0, 3, 5)
    path = tmp_path / "train_log.jsonl"
    path.write_text(path.read_text() + line + "\n")
    train(tmp_path, 3, 5, 5)
    assert [each["step"] for each in read(tmp_path)] == [4, 5]
    assert f"{path}:4 is not the results of a step" in log.messages[0]


def test_a_notebook_shows_the_training_as_a_bar_and_clears_it(tmp_path, monkeypatch):
    """A kernel of Jupyter has `get_ipython().kernel`, IPython on a terminal has not."""
    shown = []
    output = types.SimpleNamespace(update=lambda content, raw: shown.append(content["text/html"]))

    def display(content, *, raw, display_id):
        shown.append(content["text/html"])
        return output

    shell = types.SimpleNamespace()
    notebook = types.SimpleNamespace(get_ipython=lambda: shell)
    monkeypatch.setitem(sys.modules, "IPython", notebook)
    monkeypatch.setitem(sys.modules, "IPython.display", types.SimpleNamespace(display=display))
    for kernel in ({}, {"kernel": None}):
        vars(shell).update(kernel)
        assert shown == []
        log = ProgressLog(str(tmp_path), first_step=0, num_train_steps=2, batch_size=8, every=1)
        log.after_step(1, {"loss": 1.0, "learning_rate": 0.5})
        log.at_end(None)
    assert '<progress value="0" max="2">' in shown[0] and shown[-1] == ""
    progress = Progress("Predicting", 2)
    progress.announce("half of it")
    assert shown[-1].endswith("half of it")
    del progress  # As where nobody reads the rest.
    assert shown[-1] == ""

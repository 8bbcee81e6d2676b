import json

import pytest

from bert.training import train_log
from bert.training.train_log import TrainLog

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
    monkeypatch.setattr(train_log, "MOST_LINES", 4)
    train(tmp_path, 0, total, total)
    assert [line["step"] for line in read(tmp_path)] == steps


@pytest.mark.parametrize("resumed_at", [4, 5, 8, 10])
def test_of_a_training_of_unknown_length_every_other_step_is_left_out_again(
    tmp_path, monkeypatch, resumed_at
):
    monkeypatch.setattr(train_log, "MOST_LINES", 4)
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

"""`--precision=auto` is one of two precisions, and a resumed run has the same."""

import json
import time

import pytest
from conftest import eagerly
from helpers.checked_runs import check
from helpers.classifier_runs import settings_in, write_task

import run_classifier
import run_pretraining
from bert.training import devices
from bert.training.devices import measure, measure_times


def precision_in(folder):
    stored = json.loads((folder / "run.json").read_text())
    flags = stored["ran_with"]["flags"]
    assert flags["--precision"] == stored["ran_with"]["precision"]
    assert stored["made_of"]["--precision"] == flags["--precision"]
    return flags["--precision"]


def test_auto_is_the_faster_precision_and_measuring_changes_nothing(
    pretraining_run, tmp_path, tiny_config
):
    settings = pretraining_run(precision="auto", num_train_steps=1)
    faster = measure(tiny_config.hidden_size, tiny_config.intermediate_size)
    assert faster in ("float32", "mixed_bfloat16")
    [line] = [line for line in check(run_pretraining, settings) if line.name == "precision"]
    assert faster in line.text
    measure_times.cache_clear()
    with eagerly():
        run_pretraining.run(settings)
        chosen = precision_in(tmp_path / "output")
        same = {"precision": chosen, "output_dir": str(tmp_path / "same")}
        run_pretraining.run(pretraining_run(num_train_steps=1, **same))
    files = [f"{name}/model.ckpt-1.data-00000-of-00001" for name in ("output", "same")]
    assert len({(tmp_path / file).read_bytes() for file in files}) == 1


@pytest.mark.parametrize(
    ("seconds", "chosen"), [(0.89, "mixed_bfloat16"), (0.91, "float32"), (2.0, "float32")]
)
def test_auto_is_bfloat16_where_it_saves_a_tenth_of_the_time(monkeypatch, seconds, chosen):
    """The call that compiles and a slow one after it count for nothing."""
    now = 1000.0

    def make_step(dtype, _):
        times = iter([{"float32": 1.0, "mixed_bfloat16": 9.0}[dtype], 3.0])
        usual = {"float32": 1.0, "mixed_bfloat16": seconds}[dtype]

        def step():
            nonlocal now
            now += next(times, usual)

        return step

    monkeypatch.setattr(time, "perf_counter", lambda: now)
    monkeypatch.setattr(devices, "_make_step", make_step)
    monkeypatch.setattr(devices, "measure_times", measure_times.__wrapped__)
    assert measure(64, 256) == chosen


def test_a_resumed_run_has_the_precision_that_it_started_in(pretraining_run, tmp_path):
    """mixed_float16 is never chosen by itself."""
    with eagerly():
        run_pretraining.run(pretraining_run(precision="mixed_float16", num_train_steps=1))
        run_pretraining.run(pretraining_run(precision="auto", num_train_steps=1))
        assert precision_in(tmp_path / "output") == "mixed_float16"
        # A search was killed after its first run.
        write_task(tmp_path, lambda color: color, count=8)
        make = settings_in(tmp_path)
        verbs = {"do_train": True, "do_eval": True, "num_train_epochs": 1.0}
        first = str(tmp_path / "out/run_1")
        run_classifier.run(make(**verbs, precision="mixed_float16", output_dir=first))
        run_classifier.run(make(**verbs, precision="auto", num_runs=2, resume_with_changes=True))
    for name in ("run_1", "run_2"):
        assert precision_in(tmp_path / "out" / name) == "mixed_float16"

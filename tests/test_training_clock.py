import itertools
import json
import re
import signal
import types

import numpy as np
import pytest
from conftest import batches_in, change, exhaustive, make_examples, write_examples
from helpers.checked_runs import check, wrong_texts
from helpers.forks import fork_python
from helpers.observers import Call
from helpers.trainers import TRAIN_SOME_STEPS, assert_same, train_and_save, values_of

import optimization
import run_pretraining
from bert.pretraining import heads as pretraining_heads
from bert.pretraining.options import STEPS
from bert.training.clock import TrainingClock
from bert.training.muon import MuonOptimizer
from bert.training.progress import ProgressLog, TrainLog
from bert.training.trainer import Trainer, initialize
from bert.weights import saving

# Seconds that a test may take: one that never ends, because its budget is never spent, fails.
DEADLINE = 60
RATE, BUDGET, WARMUP = 0.01, 10.0, 0.3
# What a step takes, and what is not to count: building of the graph, saving, and evaluating.
STEP, BUILD, SAVE, EVALUATE = 0.75, 60.0, 500.0, 7000.0


class Day:
    """A time that passes as it is told."""

    def __init__(self) -> None:
        self.seconds = 1e6

    def now(self) -> float:
        return self.seconds


class SlowCheckpoints(saving.Checkpoints):
    """Takes time to save."""

    def __init__(self, folder, day):
        super().__init__(str(folder))
        self.day = day

    def save(self, *arguments):
        self.day.seconds += SAVE
        return super().save(*arguments)


class SlowBatches:
    """Batches each of which takes time, and the first of a run more."""

    def __init__(self, batches, day):
        self.day, self._batches = day, batches
        self.serialized = batches.serialized

    def iterate(self, *arguments):
        extra = BUILD
        for batch in self._batches.iterate(*arguments):
            self.day.seconds += STEP + extra
            extra = 0.0
            yield batch


@pytest.fixture(autouse=True)
def deadline():
    """Fails a test whose training run does not end."""

    def fail(*_):
        raise TimeoutError(f"still training after {DEADLINE} s")

    before = signal.signal(signal.SIGALRM, fail)
    signal.alarm(DEADLINE)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def test_the_schedule_by_time_is_for_any_optimizer():
    assert type(TrainingClock(BUDGET).optimizer(RATE, WARMUP, MuonOptimizer)) is MuonOptimizer


def begin(config, day, budget=BUDGET, warmup=WARMUP, kind=Trainer):
    model = pretraining_heads.pretraining_model(config)
    clock = TrainingClock(budget, day.now)
    optimizer = clock.optimizer(RATE, warmup, optimization.AdamWeightDecayOptimizer)
    trainer = kind(model, optimizer, run_pretraining.OBJECTIVE, seed=3)
    trainer.clock = clock
    return trainer


def train(trainer, batches, folder, day, stop_at=None):
    """Trains to the end, or to a step; returns the rate of each step."""
    rates = {}

    def observe(step, results):
        assert step <= 20, "the budget is spent and training goes on"
        day.seconds += EVALUATE
        rates[step] = results["learning_rate"]
        return step == stop_at

    train_and_save(
        trainer,
        SlowBatches(batches, day),
        num_train_steps=None,
        checkpoints=SlowCheckpoints(folder, day),
        save_checkpoints_steps=5,
        observers=[Call(observe)],
    )
    return rates


@pytest.fixture(scope="module")
def tiny_config(tiny_config):
    """One layer: how a model is trained does not depend on their number."""
    return change(tiny_config, num_hidden_layers=1)


@pytest.fixture(scope="module")
def whole(tiny_config, tmp_path_factory):
    """A training by the clock that nothing has stopped."""
    folder, day = tmp_path_factory.mktemp("whole"), Day()
    batches = batches_in(folder, tiny_config, 4)
    trainer = begin(tiny_config, day)
    initial = trainer.model.get_weights()
    rates = train(trainer, batches, folder / "out", day)
    return types.SimpleNamespace(
        batches=batches, trainer=trainer, initial=initial, rates=rates, values=values_of(trainer)
    )


def test_the_rate_rises_and_falls_with_the_time_that_counts(whole):
    """The first step counts nothing, so the 15th begins at 13 * 0.75 s and is the last."""
    assert [*whole.rates] == [*range(1, 16)]
    shares = np.maximum(np.arange(15) - 1, 0) * STEP / BUDGET
    expected = np.where(shares < WARMUP, shares / WARMUP, 1 - shares) * RATE
    # The schedule is computed in float32.
    np.testing.assert_allclose([*whole.rates.values()], expected, rtol=0, atol=1e-6 * RATE)
    assert whole.trainer.clock.spent == 14 * STEP >= BUDGET > 13 * STEP
    assert whole.trainer.clock.share == 1.0


@pytest.mark.parametrize("stop_at", [2, 14, *exhaustive(1)])
def test_a_resumed_schedule_equals_the_uninterrupted_one(whole, tiny_config, tmp_path, stop_at):
    day = Day()
    first = begin(tiny_config, day)
    first.model.set_weights(whole.initial)
    rates = train(first, whole.batches, tmp_path, day, stop_at)
    assert [*rates] == [*range(1, stop_at + 1)]
    # A night between, and a machine that has just been started.
    day = Day()
    second = begin(tiny_config, day)
    assert initialize(second.model, second.state(), saving.Checkpoints(str(tmp_path)), None)
    rates |= train(second, whole.batches, tmp_path, day)
    if stop_at > 1:
        assert rates == whole.rates
        assert_same(values_of(second), whole.values)
    else:
        # Of a training of one step, nobody knows how long steps take: another counts nothing.
        assert second.clock.spent == whole.trainer.clock.spent
        assert len(rates) == len(whole.rates) + 1


def test_time_of_steps_that_a_device_still_computes_counts(tiny_config, tmp_path):
    """It is told of a step at once and takes its time, for which whoever asks it waits."""
    day, launch = Day(), 0.01
    done = [day.seconds]

    class Device(Trainer):
        def start_step(self, batch):
            day.seconds += launch
            done.append(max(done[-1], day.seconds) + STEP)
            return len(done) - 1, super().start_step(batch)

        def read_results(self, started):
            number, results = started
            day.seconds = max(day.seconds, done[number])
            return super().read_results(results)

        @property
        def step(self):
            day.seconds = max(day.seconds, done[-1])
            return super().step

    trainer = begin(tiny_config, day, kind=Device)
    trainer.num_unread = 1
    began, seen = day.seconds, []
    train_and_save(
        trainer,
        batches_in(tmp_path, tiny_config, 4),
        num_train_steps=None,
        checkpoints=saving.Checkpoints(str(tmp_path / "out")),
        save_checkpoints_steps=1000,
        observers=[Call(lambda step, _: seen.append(step))],
        log=TrainLog(str(tmp_path / "out"), first_step=0, num_train_steps=None),
    )
    # The last step, with which the time is over, is observed and logged, too.
    assert seen == list(range(1, trainer.step + 1))
    lines = (tmp_path / "out" / "train_log.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == seen
    # Of the first step nothing counts, nor the end of the last one, with which the time is over.
    assert BUDGET <= trainer.clock.spent <= day.seconds - began <= trainer.clock.spent + 2 * STEP


def test_time_of_the_assignments_counts_with_the_next_step():
    clock = TrainingClock(BUDGET, now=itertools.count().__next__)
    for _ in range(4):
        clock.start()
        clock.end_step()
    # Each look takes a second: of three, the one from keeping a step to the next does not count.
    assert clock.spent == 3 * 2


def test_the_first_step_of_a_resumed_run_counts_as_long_as_the_last_one_before_it():
    day = Day()
    first, resumed = TrainingClock(100.0, day.now), TrainingClock(100.0, day.now)
    first.start()
    for seconds in (60.0, 1.0, 2.0, 4.0):
        day.seconds += seconds
        first.end_step()
    assert first.spent == 7.0
    for name, variable in resumed.state().items():
        variable.assign(first.state()[name])
    resumed.start()
    day.seconds += 60.0
    resumed.end_step()
    assert resumed.spent == 11.0


def test_a_budget_is_over_when_all_of_it_is_spent():
    day = Day()
    clock = TrainingClock(2.0, day.now)
    clock.start()
    ends = []
    for _ in range(3):
        day.seconds += 1.0
        ends.append((clock.end_step(), clock.share))
    assert ends == [(False, 0.0), (False, 0.5), (True, 1.0)]


def test_a_spent_budget_trains_no_further(whole, tiny_config, tmp_path, log):
    trainer = whole.trainer
    before = values_of(trainer)
    assert train(trainer, whole.batches, tmp_path, Day()) == {}
    assert_same(values_of(trainer), before)
    assert log.messages == [
        "Nothing to train: step 15 is reached already, and the time budget is spent."
    ]


def test_lines_show_the_share_of_the_budget_and_the_time_left(
    tiny_config, tmp_path, monkeypatch, log
):
    day = Day()
    monkeypatch.setattr("time.monotonic", day.now)
    clock = TrainingClock(100.0, day.now)
    told = ProgressLog(
        str(tmp_path), first_step=0, num_train_steps=None, batch_size=8, every=100, clock=clock
    )
    for step in range(1, 27):
        clock.start()
        day.seconds += 64.0 if step == 1 else 4.0
        clock.end_step()
        told.after_step(step, {"loss": float(step), "learning_rate": 0.5})
    assert log.messages[:4] == [
        "Step 1 took 64.0 s, most of it to build the graph; loss 1.0000.",
        "Step 3, 8 % of 1m40s  loss 2  learning_rate 0.5  2 examples/s  ETA 0:01:32",
        "Step 4, 12 % of 1m40s  loss 4  learning_rate 0.5  2 examples/s  ETA 0:01:28",
        "Step 5, 16 % of 1m40s  loss 5  learning_rate 0.5  2 examples/s  ETA 0:01:24",
    ]
    assert log.messages[-1] == "Step 26, 100 % of 1m40s  loss 26  learning_rate 0.5  2 examples/s"
    assert len(log.messages) == 21


def by_the_clock(pretraining_run, **changes):
    given = {**STEPS, "time_budget": "0.0001s"}
    return pretraining_run(**{**given, "warmup_proportion": 0.0, **changes})


@pytest.mark.usefixtures("eager")
def test_a_run_ends_with_its_time_and_is_then_a_finished_one(pretraining_run, tmp_path, log):
    """Of two steps, the first counts nothing and the second takes longer than there is time."""
    first = run_pretraining.run(by_the_clock(pretraining_run, do_eval=True))
    out = tmp_path / "output"
    assert saving.Checkpoints(str(out)).latest() == str(out / "model.ckpt-2")
    assert "In 0.0001s, it has made 2 steps, 0.4 epochs." in log.messages
    kept = json.loads((out / "run.json").read_text())
    assert kept["ended"] is True
    assert kept["made_of"]["--time_budget"] == "0.0001s"
    log.messages.clear()
    # Typed otherwise, it is the same.
    again = by_the_clock(pretraining_run, do_eval=True, time_budget="0h0.0001s")
    assert run_pretraining.run(again) == first
    assert any(message.startswith("Nothing to train: step 2") for message in log.messages)


@pytest.mark.usefixtures("eager")
def test_another_budget_is_another_training(pretraining_run, tmp_path, log):
    run_pretraining.run(by_the_clock(pretraining_run))
    with pytest.raises(ValueError, match=r"--time_budget is '0\.0001s' there and '1h' now"):
        run_pretraining.run(by_the_clock(pretraining_run, time_budget="60m"))
    with pytest.raises(ValueError, match=r"--warmup_proportion is 0\.0 there and 0\.1 now"):
        run_pretraining.run(by_the_clock(pretraining_run, warmup_proportion=None))
    with pytest.raises(ValueError, match="--num_train_steps is absent there and 4 now"):
        run_pretraining.run(pretraining_run())
    # A training that began with a number of steps goes on by the clock.
    steps = str(tmp_path / "steps")
    run_pretraining.run(pretraining_run(output_dir=steps, num_train_steps=1))
    by_clock = {"output_dir": steps, "time_budget": "0.1s", "resume_with_changes": True}
    run_pretraining.run(by_the_clock(pretraining_run, **by_clock))
    assert any(message.startswith("Resuming from step 1 ") for message in log.messages)
    assert any(message.startswith("In 0.1s, it has made ") for message in log.messages)
    log.clear()
    longer = by_the_clock(pretraining_run, time_budget="0.1s", resume_with_changes=True)
    run_pretraining.run(longer)
    assert any(message.startswith("In 0.1s, it has made ") for message in log.messages)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"time_budget": "60"}, "`time_budget`: a time must be .* Received '60'"),
        ({"time_budget": "0.00001s"}, "`time_budget` must be at least 0.0001s. Received"),
        ({"num_train_steps": 5}, "without `num_train_steps`.* Received '1h' and 5"),
        ({"num_warmup_steps": 0}, "without `num_warmup_steps`.*Give `warmup_proportion`"),
        ({"strategy": "multi_worker"}, "must be counted by one process"),
        ({"time_budget": None}, "`warmup_proportion` must be given with `time_budget`"),
    ],
)
def test_flags_that_do_not_go_together_are_told(pretraining_run, tmp_path, changes, message):
    settings = by_the_clock(pretraining_run, **{"time_budget": "1h", **changes})
    with pytest.raises(ValueError, match=message):
        run_pretraining.run(settings)
    assert not (tmp_path / "output").exists()


def test_the_check_tells_how_many_steps_there_is_time_for(pretraining_run, tmp_path, capsys):
    found = check(run_pretraining, by_the_clock(pretraining_run, time_budget="1h"))
    lines = {line.name: line.text for line in found}
    assert wrong_texts(found) == []
    assert lines["steps"] == "as many as there is time for"
    assert re.match(r"1:00:00 from step 0 on, about [\d,]+ steps, evaluations", lines["time"])
    wrong = check(run_pretraining, by_the_clock(pretraining_run, time_budget="1 h"))
    assert wrong[0].mark == "✗"
    assert "`--time_budget`: a time must be hours" in wrong[0].text


@pytest.mark.exhaustive
def test_replicas_go_by_the_same_clock(tmp_path, still_config):
    """Two steps, as the budget has no room for more; on two devices and on one, their loss."""
    (tmp_path / "config.json").write_text(still_config.to_json_string())
    path = write_examples(tmp_path / "train.tfrecord", make_examples(still_config, 20))
    settings = [
        {
            "bert_config_file": str(tmp_path / "config.json"),
            "input_file": path,
            "output_dir": str(tmp_path / strategy),
            "do_train": True,
            "do_eval": True,
            "train_batch_size": 4,
            "max_seq_length": 12,
            "max_predictions_per_seq": 3,
            "learning_rate": RATE,
            "time_budget": "0.0001s",
            "warmup_proportion": 0.0,
            "strategy": strategy,
        }
        for strategy in ("one_device", "mirrored")
    ]
    arguments = json.dumps({"devices": 2, "settings": settings})
    one, two = json.loads(fork_python("-c", TRAIN_SOME_STEPS, arguments).stdout.splitlines()[-1])
    assert two == pytest.approx(one, abs=1e-5)
    for strategy in ("one_device", "mirrored"):
        latest = saving.Checkpoints(str(tmp_path / strategy)).latest()
        assert latest == str(tmp_path / strategy / "model.ckpt-2")

import contextlib

import pytest
from conftest import change, exhaustive
from helpers.observers import Call
from helpers.trainers import assert_same, train_and_save, values_of

import optimization
import run_pretraining
from bert.files.process import Stop
from bert.options import Option, spell
from bert.pretraining import heads as pretraining_heads
from bert.runs.identity import Training
from bert.runs.training import TrainingRun
from bert.training import observers as observers_module
from bert.training.loop import Observer, train
from bert.training.observers import user_observers
from bert.training.options import Output
from bert.training.trainer import Trainer
from bert.weights import saving

pytestmark = pytest.mark.usefixtures("eager")


@pytest.fixture(scope="module")
def tiny_config(tiny_config):
    """One layer: how a model is trained does not depend on their number."""
    return change(tiny_config, num_hidden_layers=1)


@pytest.fixture
def trainer(tiny_config):
    model = pretraining_heads.pretraining_model(tiny_config)
    optimizer = optimization.bert_optimizer(0.01, 100, 0)
    return Trainer(model, optimizer, run_pretraining.OBJECTIVE)


def run_with(trainer, batches, folder, *observers, steps=4, save_every=100):
    train_and_save(
        trainer,
        batches,
        num_train_steps=steps,
        checkpoints=saving.Checkpoints(str(folder), 0),
        save_checkpoints_steps=save_every,
        observers=user_observers(trainer.strategy, observers),
    )


class Recorder(Observer):
    """Writes down which of its methods is called when."""

    def __init__(self, calls, name=""):
        self._calls = calls
        self._name = name

    def _add(self, *call):
        self._calls.append((*([self._name] if self._name else []), *call))

    def needs_results(self, step):
        self._add("needs", step)
        return False

    @contextlib.contextmanager
    def around_step(self, step):
        self._add("before", step)
        yield
        self._add("behind", step)

    def after_step(self, step, results):
        assert results["loss"] > 0
        self._add("after", step)

    def at_end(self, error):
        self._add("end", error)


def steps_of(*steps):
    parts = ("needs", "before", "behind", "after")
    return [(part, step) for step in steps for part in parts]


def test_an_observer_is_called_before_around_and_after_each_step(tmp_path, trainer, make_batches):
    calls = []
    run_with(trainer, make_batches(4), tmp_path, Recorder(calls), steps=2)
    assert calls == [*steps_of(1, 2), ("end", None)]


def test_the_loop_itself_needs_no_folder(trainer, make_batches):
    seen = []
    train(trainer, make_batches(4), 2, [Call(lambda step, results: seen.append(step))])
    assert seen == [1, 2] and trainer.step == 2


def test_results_come_a_step_later_unless_an_observer_needs_them(tmp_path, trainer, make_batches):
    trainer.num_unread = 1
    seen = []

    class Needs(Observer):
        def needs_results(self, step):
            return step == 2

        def after_step(self, step, results):
            seen.append((step, trainer.step))

    run_with(trainer, make_batches(4), tmp_path, Needs(), steps=5)
    assert seen == [(1, 2), (2, 2), (3, 4), (4, 5), (5, 5)]


def test_the_step_that_had_started_when_an_observer_ended_training_is_observed(
    tmp_path, trainer, make_batches
):
    trainer.num_unread = 1
    calls = []
    ending = Call(lambda step, _: step == 2)
    run_with(trainer, make_batches(4), tmp_path, Recorder(calls), ending, steps=5)
    assert [call for call in calls if call[0] in ("after", "end")] == [
        *[("after", step) for step in (1, 2, 3)],
        ("end", None),
    ]
    assert saving.Checkpoints(str(tmp_path)).latest() == str(tmp_path / "model.ckpt-3")


@pytest.mark.parametrize("num_unread", [0, *exhaustive(1)])
def test_an_observer_ends_a_run_which_resumes_as_if_nothing_had_been(
    tmp_path, trainer, make_batches, num_unread
):
    initial = trainer.model.get_weights()
    batches = make_batches(4)
    trainer.num_unread = num_unread
    run_with(trainer, batches, tmp_path / "ended", Call(lambda step, _: step == 2), steps=4)
    assert trainer.step == 2 + num_unread
    run_with(trainer, batches, tmp_path / "ended", steps=4)
    ended = values_of(trainer)
    for variable in trainer.state().values():
        variable.assign(variable * 0)
    trainer.model.set_weights(initial)
    run_with(trainer, batches, tmp_path / "whole", steps=4)
    assert_same(values_of(trainer), ended)


@pytest.mark.parametrize("hook", ["needs_results", "around_step", "after_step", "at_end"])
def test_an_exception_of_an_observer_ends_the_run_saved_and_named(
    tmp_path, trainer, make_batches, log, hook
):
    class Failing(Observer):
        pass

    def fail(self, step, *results):
        if step in (None, 3):
            raise RuntimeError("no network")
        return contextlib.nullcontext() if hook == "around_step" else False

    setattr(Failing, hook, fail)
    ends = []
    others = Recorder(ends), Failing(), Recorder(ends)
    with pytest.raises(RuntimeError, match="no network"):
        run_with(trainer, make_batches(4), tmp_path, *others, steps=4)
    last = {"needs_results": 2, "around_step": 2, "after_step": 3, "at_end": 4}[hook]
    latest = saving.Checkpoints(str(tmp_path)).latest()
    assert latest == str(tmp_path / f"model.ckpt-{last}")
    assert "Failing" in "".join(log.messages)
    # The others learn of it, too.
    assert [call[0] for call in ends].count("end") == 2


def test_observers_do_not_end_a_run_of_several_workers(trainer, make_batches, monkeypatch):
    monkeypatch.setattr(observers_module, "has_several_workers", lambda strategy: True)
    wanted = Recorder([])
    wanted.needs_results = lambda step: True
    given = [wanted, Call(lambda step, results: True)]
    needs, ends = user_observers(trainer.strategy, given)
    assert not needs.needs_results(1)
    with pytest.raises(ValueError, match="must not end a run of several workers"):
        ends.after_step(1, {"loss": 1.0})
    # Workers that write nothing have none.
    monkeypatch.setattr(observers_module, "is_chief", lambda strategy: False)
    assert user_observers(trainer.strategy, given) == []


def test_observers_of_the_library_come_before_those_of_its_user_and_saving_last(
    tmp_path, trainer, make_batches, log, monkeypatch
):
    calls = []
    save = saving.Checkpoints.save
    monkeypatch.setattr(
        saving.Checkpoints,
        "save",
        lambda *given: (calls.append(("saved", given[-1])), save(*given))[1],
    )
    output = Output(output_dir=str(tmp_path), save_checkpoints_steps=2)
    run = TrainingRun(output, trainer, Training(2, {}, None))
    run.train(make_batches(4), {}, [Recorder(calls, "user")], Recorder(calls, "evaluation"))
    after = [("evaluation", "after", 2), ("user", "after", 2), ("saved", 2)]
    ends = [("evaluation", "end", None), ("user", "end", None)]
    assert calls[0] == ("saved", 0)
    assert calls[-5:] == [*after, *ends]


@pytest.mark.parametrize(
    ("overwrites", "command"),
    [(False, "same command"), (True, "same command without `--overwrite_output_dir`")],
)
def test_a_stopped_run_says_which_command_goes_on(
    tmp_path, trainer, make_batches, overwrites, command
):
    def stop(step, results):
        raise Stop(2)

    output = Output(output_dir=str(tmp_path), overwrite_output_dir=overwrites)
    run = TrainingRun(output, trainer, Training(2, {}, None, starts_over=overwrites))
    with pytest.raises(Stop) as caught:
        run.train(make_batches(4), {}, [Call(stop)])
    [message] = caught.value.args
    assert spell(message, Option.as_flag) == f"Stopped at step 1; the {command} goes on."
    assert str(caught.value) == f"Stopped at step 1; the {command.replace('--', '')} goes on."
    assert (caught.value.number, (tmp_path / "model.ckpt-1.index").exists()) == (2, True)

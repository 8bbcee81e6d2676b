import pytest
from helpers import classifier_runs
from helpers.checked_runs import check, content, wrong_texts

import run_classifier
from bert.commands.checks import UNCHECKED, WARNED, WRONG
from bert.files import owned


def mark_of(lines, name):
    [mark] = [line.mark for line in lines if line.name == name]
    return mark


@pytest.fixture
def make_settings(tmp_path):
    make = classifier_runs.settings_in(tmp_path)
    classifier_runs.write_task(tmp_path, lambda color: color)
    return make


def test_all_that_is_wrong_is_shown_at_once(make_settings, tmp_path):
    settings = make_settings(
        do_train=True,
        do_eval=True,
        vocab_file="nowhere",
        init_checkpoint="nothing",
        freeze_layers=9,
        output_dir=str(tmp_path / "train.tsv" / "out"),
    )
    lines = check(run_classifier, settings)
    wrong = {line.name for line in lines if line.mark == WRONG}
    assert wrong == {"checkpoint", "vocabulary", "frozen layers", "output folder"}
    assert "train.tsv" in wrong_texts(lines)[-1]
    unchecked = {line.name for line in lines if line.mark == UNCHECKED}
    assert {"casing", "weights", "task", "train set", "dev set", "time"} <= unchecked


def test_weights_of_others_are_shown_whatever_else_is_wrong(make_settings, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out/bert_model.ckpt.index").write_bytes(b"")
    lines = check(run_classifier, make_settings(do_train=True, init_checkpoint="nothing"))
    assert mark_of(lines, "output folder") == WRONG


@pytest.mark.usefixtures("eager")
def test_check_passes_a_run_and_shows_its_steps(make_settings, tmp_path):
    settings = make_settings(do_train=True, do_eval=True, num_train_epochs=0.25)
    before = content(tmp_path)
    lines = check(run_classifier, settings)
    assert content(tmp_path) == before
    texts = {line.name: line.text for line in lines}
    assert wrong_texts(lines) == []
    assert "64 examples" in texts["train set"]
    assert texts["steps"].startswith("2 ")
    assert "from step 0" in texts["time"]
    assert "No checkpoint to start from" in texts["time"]
    run_classifier.run(settings)
    before = content(tmp_path)
    texts = {line.name: line.text for line in check(run_classifier, settings)}
    assert "step 2 is reached already" in texts["time"]
    only = make_settings(do_predict=True)
    texts = {line.name: line.text for line in check(run_classifier, only)}
    assert texts["model"] == "step 2"
    other = make_settings(do_train=True, do_eval=True, num_train_epochs=0.25, learning_rate=0.1)
    assert mark_of(check(run_classifier, other), "steps") == WRONG
    assert content(tmp_path) == before
    for path in (tmp_path / "out").glob("model.ckpt-*"):
        path.unlink()
    texts = {line.name: line.text for line in check(run_classifier, settings)}
    assert "has ended: nothing to train" in texts["time"]
    assert mark_of(check(run_classifier, other), "steps") == WRONG


def test_a_folder_in_which_another_process_trains_is_shown(make_settings, tmp_path):
    (tmp_path / "out").mkdir()
    with owned.lock(str(tmp_path / "out")):
        before = content(tmp_path)
        assert mark_of(check(run_classifier, make_settings(do_train=True)), "lock") == WRONG
        assert content(tmp_path) == before
    assert mark_of(check(run_classifier, make_settings(do_train=True)), "lock") != WRONG


def test_steps_are_not_tried_where_memory_is_short(make_settings, monkeypatch):
    monkeypatch.setattr("bert.training.devices.free_memory", lambda: 1000)
    lines = check(run_classifier, make_settings(do_train=True))
    assert mark_of(lines, "memory") == WARNED
    assert mark_of(lines, "time") == UNCHECKED


def test_one_of_several_workers_is_checked_alone(make_settings, monkeypatch):
    settings = make_settings(strategy="multi_worker")
    [text] = (line.text for line in check(run_classifier, settings) if line.name == "devices")
    assert "THIS PROCESS TRAINS ALONE" in text
    monkeypatch.setenv("BERT_WORKERS", "host[1-2]:2222")
    monkeypatch.setenv("BERT_WORKER", "1")
    [text] = (line.text for line in check(run_classifier, settings) if line.name == "devices")
    assert "Of 2 workers, only worker 1 at host2:2222 is checked" in text

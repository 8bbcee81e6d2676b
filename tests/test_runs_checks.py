import shutil

import pytest
import test_run_classifier
import test_run_ner
import test_run_squad
import test_run_swag
from helpers import classifier_runs, pretraining_runs, squad_runs, swag_runs, tagging_runs
from helpers.checked_runs import assert_check_and_run_agree, check, content, wrong_texts
from helpers.pretraining_runs import finished  # noqa: F401 (a fixture)

import run_classifier
import run_ner
import run_pretraining
import run_squad
import run_swag
from bert.commands.checks import UNCHECKED, WARNED, WRONG
from bert.files import owned

# A record in the middle is found when it is read. Of a folder that cannot be made, the system has
# words of its own, and TensorFlow's of a TPU differ from one time to the next.
LATE = ("wrong record among others", "wrong record to evaluate")
OTHER_WORDS = ("output is a file", "output within a file", "a TPU of a wrong name")


@pytest.mark.parametrize("kind", [each for each in pretraining_runs.WRONG if each not in LATE])
def test_check_shows_what_pretraining_refuses(
    tmp_path,
    monkeypatch,
    pretraining_run,
    finished,  # noqa: F811
    kind,
):
    prepare, _ = pretraining_runs.WRONG[kind]
    pretraining_run()
    shutil.copytree(finished, tmp_path / "finished")
    monkeypatch.chdir(tmp_path)
    settings = pretraining_run(**prepare(tmp_path))
    assert_check_and_run_agree(
        run_pretraining, settings, tmp_path, same_words=kind not in OTHER_WORDS
    )


def refused(test):
    """Returns the parameters of a test of what a script refuses."""
    [marks] = [mark for mark in test.pytestmark if mark.name == "parametrize"]
    return marks.args[1]


CLASSIFIER = test_run_classifier.test_what_cannot_work_is_refused_before_anything_is_written
SQUAD = test_run_squad.test_what_cannot_work_is_refused
NER = test_run_ner.test_what_cannot_work_is_refused_before_anything_is_written
SWAG = test_run_swag.test_what_cannot_work_is_refused


@pytest.mark.parametrize(("changes", "message"), refused(CLASSIFIER))
def test_check_shows_what_classification_refuses(tmp_path, changes, message):
    del message
    settings = classifier_runs.settings_in(tmp_path)(**changes)
    classifier_runs.write_task(tmp_path, lambda color: color)
    assert_check_and_run_agree(run_classifier, settings, tmp_path)


@pytest.mark.parametrize(("changes", "message"), refused(SQUAD))
def test_check_shows_what_question_answering_refuses(tmp_path, changes, message):
    del message
    make = squad_runs.settings_in(tmp_path)
    squad_runs.write_task(tmp_path, count=8)
    (tmp_path / "{}").write_text("{}")
    question = {"id": "x", "question": "Which?"}
    squad_runs.write_squad(tmp_path / "blind", [{"context": "a b", "qas": [question]}])
    if changes.get("predict_file") in ("{}", "blind"):
        changes = {**changes, "predict_file": str(tmp_path / changes["predict_file"])}
    assert_check_and_run_agree(run_squad, make(**changes), tmp_path)


@pytest.mark.parametrize(("texts", "changes", "message"), refused(NER))
def test_check_shows_what_tagging_refuses(tmp_path, texts, changes, message):
    del message
    make = tagging_runs.settings_in(tmp_path)
    tagging_runs.write_texts(tmp_path, **texts)
    assert_check_and_run_agree(run_ner, make(**{"do_train": True, **changes}), tmp_path)


@pytest.mark.parametrize(("changes", "rows", "message"), refused(SWAG))
def test_check_shows_what_choosing_refuses(tmp_path, changes, rows, message):
    del message
    make = swag_runs.settings_in(tmp_path)
    if rows is not None:
        swag_runs.write_rows(tmp_path / "train.jsonl", rows)
    assert_check_and_run_agree(run_swag, make(**{"do_train": True, **changes}), tmp_path)


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


def test_check_passes_what_runs_and_tells_its_steps(make_settings, tmp_path):
    settings = make_settings(do_train=True, do_eval=True, num_train_epochs=1.0)
    before = content(tmp_path)
    lines = check(run_classifier, settings)
    assert content(tmp_path) == before
    texts = {line.name: line.text for line in lines}
    assert wrong_texts(lines) == []
    assert "64 examples" in texts["train set"]
    assert texts["steps"].startswith("8 ")
    assert "from step 0" in texts["time"]
    assert "No checkpoint to start from" in texts["time"]
    run_classifier.run(settings)
    before = content(tmp_path)
    texts = {line.name: line.text for line in check(run_classifier, settings)}
    assert "step 8 is reached already" in texts["time"]
    only = make_settings(do_predict=True)
    texts = {line.name: line.text for line in check(run_classifier, only)}
    assert texts["model"] == "step 8"
    other = make_settings(do_train=True, do_eval=True, num_train_epochs=1.0, learning_rate=0.1)
    assert mark_of(check(run_classifier, other), "steps") == WRONG
    assert content(tmp_path) == before
    for path in (tmp_path / "out").glob("model.ckpt-*"):
        path.unlink()
    texts = {line.name: line.text for line in check(run_classifier, settings)}
    assert "has ended: nothing to train" in texts["time"]
    assert mark_of(check(run_classifier, other), "steps") == WRONG


def test_a_folder_in_which_another_trains_is_shown(make_settings, tmp_path):
    (tmp_path / "out").mkdir()
    with owned.lock(str(tmp_path / "out")):
        before = content(tmp_path)
        assert mark_of(check(run_classifier, make_settings(do_train=True)), "lock") == WRONG
        assert content(tmp_path) == before
    assert mark_of(check(run_classifier, make_settings(do_train=True)), "lock") != WRONG


def test_steps_are_not_tried_where_memory_is_short(make_settings, monkeypatch):
    monkeypatch.setattr("bert.training.memory.free_memory", lambda: 1000)
    lines = check(run_classifier, make_settings(do_train=True))
    assert mark_of(lines, "memory") == WARNED
    assert mark_of(lines, "time") == UNCHECKED


def test_of_several_workers_this_one_is_checked_or_none_is_found(make_settings, monkeypatch):
    settings = make_settings(strategy="multi_worker")
    [text] = (line.text for line in check(run_classifier, settings) if line.name == "devices")
    assert "THIS PROCESS TRAINS ALONE" in text
    monkeypatch.setenv("BERT_WORKERS", "host[1-2]:2222")
    monkeypatch.setenv("BERT_WORKER", "1")
    [text] = (line.text for line in check(run_classifier, settings) if line.name == "devices")
    assert "Of 2 workers, only worker 1 at host2:2222 is checked" in text

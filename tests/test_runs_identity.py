import json
import os

import keras
import pytest
import tensorflow as tf

import bert
import run_classifier
import run_ner
import run_pretraining
from bert.options import OptionError
from bert.runs import identity
from bert.training.options import Output
from bert.weights import provenance, saving
from bert.weights.checkpoint import Stored


def describe(settings):
    values = identity.describe(vars(settings), tf.distribute.get_strategy())
    assert json.loads(json.dumps(values)) == values
    return values


def test_the_environment_has_all_flags_versions_and_devices(tmp_path):
    settings = run_classifier.Settings(
        task_name="custom", data_dir="nowhere", output_dir="out", learning_rate=1e-3
    )
    values = describe(settings)
    assert values["flags"]["--learning_rate"] == 1e-3
    assert values["flags"]["--seed"] == 12345
    assert values["flags"].keys() == {f"--{name}" for name in vars(settings)} - {"--output_dir"}
    assert values["versions"]["bert"] == bert.__version__
    assert values["versions"]["tensorflow"] == tf.__version__
    assert values["versions"]["keras"] == keras.__version__
    assert values["precision"] == "float32"
    assert values["devices"]["used"] == 1
    assert values["data"] == {}


def test_data_files_have_the_given_paths_and_their_sizes(tmp_path, monkeypatch):
    (tmp_path / "data").mkdir()
    files = {"train.csv": "abc", "Dev.csv": "ab", "test.jsonl.gz": "abcd"}
    files |= {"run.log": "a", "train.csv.bak": "a"}
    for name, text in files.items():
        (tmp_path / "data" / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    settings = run_classifier.Settings(task_name="custom", data_dir="data", output_dir="out")
    assert describe(settings)["data"] == {
        "data/Dev.csv": 2,
        "data/test.jsonl.gz": 4,
        "data/train.csv": 3,
    }
    settings = run_pretraining.Settings(
        input_file="data/*.csv,data/run.log", eval_input_file="gone", output_dir="out"
    )
    data = describe(settings)["data"]
    assert data == {"data/Dev.csv": 2, "data/train.csv": 3, "data/run.log": 1}


def test_data_files_in_the_folder_of_the_task_are_listed(tmp_path):
    for folder in ("STS-B", "MRPC"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "train.tsv").write_text("abc")
    for task in ("sts-b", "STS-B"):
        settings = run_classifier.Settings(
            task_name=task, data_dir=str(tmp_path), output_dir="out", do_train=True
        )
        assert describe(settings)["data"] == {str(tmp_path / "STS-B" / "train.tsv"): 3}


def test_two_runs_of_a_command_record_the_same(tmp_path):
    one, other = (
        run_classifier.Settings(task_name="custom", data_dir=str(tmp_path), output_dir=name)
        for name in ("one", os.path.join(tmp_path, "other"))
    )
    assert describe(one) == describe(other)


def test_workers_need_not_have_the_same_paths():
    paths = {
        "teacher": "large",
        "unlabeled_file": "texts.txt",
        "word_vectors": "vectors.txt",
        "features_dir": "features",
        "data_dir": "data",
    }
    plain = run_ner.Settings(output_dir="out")
    given = run_ner.Settings(output_dir="other", **paths)
    shared = identity.shared_by_workers(vars(plain))
    assert identity.shared_by_workers(vars(given)) == shared
    assert shared["--seed"] == 12345


def test_workers_must_have_the_same_versions_and_code():
    settings = run_ner.Settings(output_dir="out")
    shared = identity.shared_by_workers(vars(settings))
    versions = describe(settings)["versions"]
    assert {name: shared[f"the version of {name}"] for name in versions} == versions
    assert shared["the code"]


def test_a_run_does_not_both_delete_and_resume(tmp_path):
    output = Output(output_dir=str(tmp_path), overwrite_output_dir=True, resume_with_changes=True)
    must = "`overwrite_output_dir` must not be given with `resume_with_changes`"
    with pytest.raises(OptionError, match=must):
        identity.plan_training(output, 4, None, {}, {})


def test_a_run_of_before_there_was_an_option_has_ended_all_the_same(tmp_path):
    folder, made_of = str(tmp_path), {"--seed": 1}
    provenance.begin(folder, made_of, 4, {}, begins_anew=True)
    provenance.end(folder)
    (tmp_path / "bert_model.ckpt.index").touch()
    output, made_of = Output(output_dir=folder), {**made_of, "--a_new_option": 2}
    assert identity.plan_training(output, 4, None, made_of, {}).has_ended
    # Data that it does not tell of are others.
    unknown = {**made_of, "the train set": {"sha256": "a"}}
    with pytest.raises(OptionError, match="the train set is not known"):
        identity.plan_training(output, 4, None, unknown, {})


def test_a_later_checkpoint_changes_the_state_of_a_folder(tmp_path):
    states = []
    for step in (9, 10):
        (tmp_path / f"model.ckpt-{step}.index").touch()
        states.append(identity.FolderState.of(str(tmp_path)))
    assert states[0] != states[1]


def test_weights_in_a_folder_whose_name_begins_alike_are_others(tmp_path):
    folder, variable = str(tmp_path / "out"), keras.Variable([1.0], name="x")
    for name in ("out", "out_of_others"):
        (tmp_path / name).mkdir()
        saving.save_variables(str(tmp_path / name / "bert_model.ckpt"), {"x": variable}, 0)
    provenance.begin(folder, identity.of_training({}, None, {}), 4, {}, begins_anew=True)
    others = Stored.open(str(tmp_path / "out_of_others/bert_model.ckpt"), "init_checkpoint")
    with pytest.raises(OptionError, match="`init_checkpoint` must name weights in"):
        identity.find_weights(Output(output_dir=folder), others)

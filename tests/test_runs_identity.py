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
    for name, text in [("train.csv", "abc"), ("Dev.csv", "ab"), ("run.log", "a")]:
        (tmp_path / "data" / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    settings = run_classifier.Settings(task_name="custom", data_dir="data", output_dir="out")
    assert describe(settings)["data"] == {"data/Dev.csv": 2, "data/train.csv": 3}
    settings = run_pretraining.Settings(
        input_file="data/*.csv,data/run.log", eval_input_file="gone", output_dir="out"
    )
    data = describe(settings)["data"]
    assert data == {"data/Dev.csv": 2, "data/train.csv": 3, "data/run.log": 1}


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


def test_a_run_does_not_both_delete_and_resume(tmp_path):
    output = Output(output_dir=str(tmp_path), overwrite_output_dir=True, resume_with_changes=True)
    must = "`overwrite_output_dir` must not be given with `resume_with_changes`"
    with pytest.raises(OptionError, match=must):
        identity.plan_training(output, 4, None, {}, {})

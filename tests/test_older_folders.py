"""Folders that an earlier version of the project has left go on as what they are."""

import importlib
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from conftest import GOLDEN, exhaustive, read_tensors

from bert.runs.plan import plan

TUNING = {
    "bert_config_file": "bert_config.json",
    "vocab_file": "vocab.txt",
    "max_seq_length": 12,
    "learning_rate": 0.01,
    "train_batch_size": 4,
    "save_checkpoints_steps": 5,
    "num_train_epochs": 4.0,
    "do_train": True,
}
OTHERS = ("vocab_file", "max_seq_length", "num_train_epochs")
FLAGS = {
    "run_pretraining": {
        **{name: value for name, value in TUNING.items() if name not in OTHERS},
        "input_file": "train.tfrecord",
        "num_train_steps": 40,
        "num_warmup_steps": 4,
    },
    "run_squad": {
        **TUNING,
        "train_file": "questions.json",
        "version_2_with_negative": True,
        "max_query_length": 3,
        "doc_stride": 4,
    },
    "run_ner": {**TUNING, "train_file": "tags.txt"},
    "run_swag": {**TUNING, "train_file": "choices.jsonl"},
}
# A file of each task, and what becomes something else in it.
OTHER_DATA = {
    "run_squad": ("questions.json", b'"question": "a"', b'"question": "b"'),
    "run_ner": ("tags.txt", b"c O", b"d O"),
    "run_swag": ("choices.jsonl", b'"context": "', b'"context": "a '),
}


@pytest.fixture(params=FLAGS)
def run(request, tmp_path, monkeypatch):
    """Runs a script on the data beside a copy of the folder that it has left, with flags."""
    shutil.copytree(GOLDEN / "interrupted", tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    script = importlib.import_module(request.param)

    def run(output_dir=request.param, **changes):
        flags = {**FLAGS[request.param], **changes}
        script.run(script.Settings(output_dir=output_dir, **flags))
        return read_tensors(tf.train.latest_checkpoint(output_dir))

    return run


@pytest.mark.parametrize(
    "run", ["run_pretraining", "run_swag", *exhaustive("run_squad", "run_ner")], indirect=True
)
def test_an_interrupted_training_ends_with_the_weights_of_one_that_was_left_alone(run, log):
    resumed = run()
    assert any("Resuming from step 10" in message for message in log.messages)
    expected = run(output_dir="left_alone")
    assert resumed.keys() == expected.keys()
    for name, value in expected.items():
        # Processors round differently, which Adam amplifies.
        np.testing.assert_allclose(resumed[name], value, rtol=0, atol=1e-3, err_msg=name)


@pytest.mark.parametrize(
    ("name", "value"), [("learning_rate", 0.02), ("seed", 1), ("train_batch_size", 2)]
)
def test_a_changed_value_is_refused_by_its_name(run, name, value):
    with pytest.raises(ValueError, match=f"--{name} is .* there and {value} now"):
        run(**{name: value})


# Options that the folders do not name, with a value that they do not have.
LATER = {"optimizer": "muon", "max_train_samples": 4}
# Without a teacher, none of them changes anything.
OF_TEACHERS = {
    *("teacher", "teacher_weight", "distillation_temperature"),
    *("distill_layers", "distill_layers_weight"),
}


def test_an_option_of_a_later_version_is_compared(run, request):
    script = request.node.callspec.params["run"]
    module = importlib.import_module(script)
    settings = module.Settings(output_dir="new", **FLAGS[script])
    now = plan(module.make_recipe(settings)).training.made_of
    then = json.loads(Path(script, "run.json").read_text(encoding="utf-8"))["made_of"]
    names = {name.removeprefix("--") for name in now.keys() - then if name.startswith("--")}
    remedy = "A new option that shapes models needs a line in _UNSAID of bert/weights/provenance.py"
    assert names - OF_TEACHERS - LATER.keys() == set(), f"{remedy}, and one in LATER here."
    for name in names - OF_TEACHERS:
        with pytest.raises(ValueError, match=f"--{name} is .* there and {LATER[name]!r} now"):
            run(**{name: LATER[name]})


@pytest.mark.parametrize("run", OTHER_DATA, indirect=True)
def test_other_data_are_refused(run, tmp_path, request):
    name, old, new = OTHER_DATA[request.node.callspec.params["run"]]
    content = (tmp_path / name).read_bytes()
    assert old in content
    (tmp_path / name).write_bytes(content.replace(old, new))
    with pytest.raises(ValueError, match=r"is .* there and .* now"):
        run()

"""What a training is made of is kept, and told apart from anything else."""

import json

import numpy as np
import pytest

from bert.weights import provenance, saving
from bert.weights.checkpoint import Stored

INIT = {"path": "bert_model.ckpt", "sha256": "a"}


def begin(folder, made_of, steps=10, begins_anew=False):
    provenance.begin(str(folder), made_of, steps, {}, begins_anew=begins_anew)


def test_the_same_differs_in_nothing(tmp_path):
    made_of = {"--learning_rate": 1e-4, "--init_checkpoint": INIT, "--freeze_layers": None}
    assert provenance.differences(str(tmp_path), made_of) == []
    begin(tmp_path, made_of)
    assert provenance.differences(str(tmp_path), made_of) == []


@pytest.mark.parametrize(
    ("name", "before", "now", "line"),
    [
        ("--learning_rate", 1e-4, 5e-5, "--learning_rate is 0.0001 there and 5e-05 now"),
        ("--freeze_layers", 2, None, "--freeze_layers is 2 there and absent now"),
        ("--freeze_layers", None, 0, "--freeze_layers is absent there and 0 now"),
        (
            "--init_checkpoint",
            None,
            INIT,
            "--init_checkpoint is absent there and bert_model.ckpt now",
        ),
        (
            "--init_checkpoint",
            INIT,
            {**INIT, "sha256": "b"},
            "--init_checkpoint is bert_model.ckpt there and something else of that name now",
        ),
        # Another path of the same content; and none, which a training that goes on does not read.
        ("--init_checkpoint", INIT, {**INIT, "path": "copy.ckpt"}, None),
        ("--init_checkpoint", INIT, None, None),
        # A teacher is read in each step that is left.
        ("--teacher", INIT, None, "--teacher is bert_model.ckpt there and absent now"),
        ("--optimizer", "muon", "adam", "--optimizer is 'muon' there and 'adam' now"),
    ],
)
def test_differences_are_listed_by_name(tmp_path, name, before, now, line):
    begin(tmp_path, {name: before})
    assert provenance.differences(str(tmp_path), {name: now}) == ([line] if line else [])


def test_runs_of_earlier_versions_had_no_teacher_and_the_optimizer_of_the_original(tmp_path):
    begin(tmp_path, {"--seed": 1})
    assert provenance.differences(str(tmp_path), {"--teacher": None, "--optimizer": "adam"}) == []
    differences = provenance.differences(str(tmp_path), {"--teacher": INIT, "--optimizer": "muon"})
    assert differences == [
        "--teacher is absent there and bert_model.ckpt now",
        "--optimizer is 'adam' there and 'muon' now",
    ]


def test_initial_weights_need_not_be_given_again(tmp_path):
    begin(tmp_path, {"--init_checkpoint": INIT})
    begin(tmp_path, {"--init_checkpoint": None})
    other = {"--init_checkpoint": {**INIT, "sha256": "b"}}
    assert len(provenance.differences(str(tmp_path), other)) == 1
    begin(tmp_path, {"--init_checkpoint": None}, begins_anew=True)
    assert len(provenance.differences(str(tmp_path), {"--init_checkpoint": INIT})) == 1


def test_untrained_weights_do_not_answer_and_unfinished_ones_say_so(tmp_path, log):
    folder = str(tmp_path)
    provenance.check_trained(folder, 0, "model_dir")
    begin(tmp_path, {}, steps=10)
    with pytest.raises(ValueError, match="`model_dir` must hold trained weights"):
        provenance.check_trained(folder, 0, "model_dir")
    saving.save_tensors(str(tmp_path / "model.ckpt-0"), {"a": np.zeros(1)})
    with pytest.raises(ValueError, match="`model_dir` must hold trained weights"):
        Stored.open(folder, "model_dir")
    assert not log.messages
    provenance.check_trained(folder, 4, "model_dir")
    assert "step 4 of 10" in log.text
    log.clear()
    provenance.check_trained(folder, None, "model_dir")
    provenance.end(folder)
    provenance.check_trained(folder, 4, "model_dir")
    assert not log.messages


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"made_of": 1}', "[" * 100_000])
def test_a_damaged_file_is_named(tmp_path, text):
    (tmp_path / "run.json").write_text(text)
    with pytest.raises(ValueError, match=r"run\.json' must hold the inputs of the training"):
        provenance.read(str(tmp_path))


def test_the_file_is_the_runs_own(tmp_path):
    begin(tmp_path, {"--seed": 1})
    assert json.loads((tmp_path / ".own_files.json").read_text()) == ["run.json"]
    assert provenance.read(str(tmp_path)) == {
        "made_of": {"--seed": 1},
        "num_train_steps": 10,
        "ended": False,
        "ran_with": {},
    }


def test_a_resumed_run_keeps_the_weights_that_it_began_with(tmp_path):
    folder, first = str(tmp_path), {"name": "a", "sha256": "1"}
    for weights, begins_anew, expected in (
        (first, False, first),
        (None, False, first),
        ({"name": "b", "sha256": "2"}, False, first),
        (None, True, None),
    ):
        made_of = {"--init_checkpoint": weights}
        provenance.begin(folder, made_of, 4, {}, begins_anew=begins_anew)
        assert provenance.read(folder)["made_of"]["--init_checkpoint"] == expected

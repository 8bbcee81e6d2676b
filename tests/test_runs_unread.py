import importlib

import pytest
from helpers import script_worlds

import run_classifier
from bert.parts import PlanError
from bert.runs.plan import plan

# By script, the data that it is given, and the options of files that training alone does not read.
SCRIPTS = {
    "run_classifier": (script_worlds.classifier_world, ("dev_file", "test_file")),
    "run_ner": (script_worlds.ner_world, ("dev_file", "test_file")),
    "run_swag": (script_worlds.swag_world, ("dev_file", "test_file")),
    "run_squad": (script_worlds.squad_world, ("predict_file",)),
    "run_pretraining": (script_worlds.pretraining_world, ("eval_input_file",)),
}


@pytest.mark.parametrize(
    ("script", "option"),
    [(script, option) for script, (_, options) in SCRIPTS.items() for option in options],
)
def test_a_misspelt_file_that_training_does_not_read_is_an_error_before_it(
    script, option, tmp_path
):
    module, world = importlib.import_module(script), SCRIPTS[script][0](tmp_path)

    def plan_with(name):
        return plan(module.make_recipe(module.Settings(**{**world, option: str(name)})))

    with pytest.raises(PlanError, match=f"`{option}` .*misspelt"):
        plan_with(tmp_path / "misspelt")
    assert not (tmp_path / "out").exists()
    # Files of records are described even where they are not read.
    is_of_text = script != "run_pretraining"
    (tmp_path / "there").write_text("It is not read.")
    assert plan_with(tmp_path / ("there" if is_of_text else "other.tfrecord")).training


@pytest.mark.usefixtures("eager")
def test_files_of_a_run_without_training_may_be_gone(tmp_path):
    world = script_worlds.classifier_world(tmp_path)
    settings = run_classifier.Settings(**{**world, "do_eval": True})
    run_classifier.run(settings)
    changes = {"do_train": False, "test_file": str(tmp_path / "gone")}
    assert plan(
        run_classifier.make_recipe(run_classifier.Settings(**{**vars(settings), **changes}))
    )

"""What a Python program sees of a run: the lines of the command, or what its `logging` shows."""

import re

from helpers.classifier_runs import settings_in, write_task
from helpers.forks import fork_python

PROGRAM = """
import sys
import bert, predict, run_classifier
from bert.runs.plan import plan
from bert.runs.run import run

def settings(output_dir):
    return run_classifier.Settings(
        **{**eval(sys.argv[1]), "output_dir": output_dir, "do_train": True, "do_eval": True}
    )

run(plan(run_classifier.make_recipe(settings(sys.argv[2]))))
print("loads", file=sys.stderr)
bert.load(sys.argv[2]).predict(["red a"])
print("predicts", file=sys.stderr)
files = {name: f"{sys.argv[3]}_{name}.txt" for name in ("input_file", "output_file")}
predict.run(predict.Settings(model_dir=sys.argv[2], **files))
print("trains", file=sys.stderr)
run_classifier.run(settings(sys.argv[3]))
"""


def test_a_script_that_is_run_from_python_shows_its_lines_and_a_plan_only_warns(tmp_path):
    write_task(tmp_path, lambda color: color, count=8)
    values = vars(settings_in(tmp_path)(num_train_epochs=1.0))
    outputs = [str(tmp_path / "planned"), str(tmp_path / "out")]
    (tmp_path / "out_input_file.txt").write_text("red a\n")
    shown = fork_python("-c", PROGRAM, repr(values), *outputs).stderr
    planned, loaded, predicted, trained = re.split(
        "^(?:loads|predicts|trains)\n", shown, flags=re.MULTILINE
    )
    assert not re.search(r"^\d\d:\d\d:\d\d ", planned + loaded, re.MULTILINE)
    assert "init_checkpoint" in planned and "--init_checkpoint" not in planned
    assert predicted.splitlines()[-1][9:] == "Answered 1 input."
    lines = trained.splitlines()
    assert [line for line in lines if not re.match(r"\d\d:\d\d:\d\d", line)] == []
    assert any(line[9:].startswith("Warning: ") for line in lines)
    assert any("Saved " in line for line in lines)

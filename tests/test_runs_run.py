import contextlib
import dataclasses
import json
import logging
import re
import time
from pathlib import Path

import pytest
from conftest import run_python
from helpers import classifier_runs, squad_runs, tagging_runs
from helpers.forks import fork_python

import run_classifier
import run_ner
import run_pretraining
import run_squad
import run_swag
from bert.files.row_writer import save_rows
from bert.options import Option, OptionError
from bert.parts import FAILED, UNCHECKED, WRONG, Parts, PlanError
from bert.runs.plan import plan
from bert.runs.recipes import Command, EvaluatedSteps, FineTuning, TextModel
from bert.runs.run import run
from bert.tasks.classification.options import ClassificationData
from bert.tasks.options import Schedule, SwagData
from bert.tasks.squad.options import SquadData
from bert.tasks.tagging.options import TaggingData
from bert.training.loop import Observer
from bert.training.options import Output


@pytest.fixture
def make_recipe(tmp_path):
    """Makes recipes of a classifier that learns from a few texts, with its own output folder."""
    make_settings = classifier_runs.settings_in(tmp_path)
    classifier_runs.write_task(tmp_path, lambda color: color, count=16)

    def make(name="out", **changes):
        given = {"do_train": True, "do_eval": True, "num_train_epochs": 1.0, **changes}
        return run_classifier.make_recipe(make_settings(output_dir=str(tmp_path / name), **given))

    return make


class Losses(Observer):
    def __init__(self):
        self.seen = []

    def after_step(self, step, results):
        self.seen.append((step, results["loss"]))


def weights_in(folder):
    return {path.name: path.read_bytes() for path in folder.glob("bert_model.ckpt*")}


@pytest.mark.usefixtures("eager")
def test_a_plan_writes_nothing_and_a_run_does_what_the_command_does(make_recipe, tmp_path):
    planned = plan(make_recipe())
    assert not (tmp_path / "out").exists()
    names = [line.name for line in planned.lines]
    assert names.index("devices") < names.index("configuration") < names.index("train set")
    assert all(f" {name} " in planned.describe() for name in names)
    losses = Losses()
    result = run(planned, observers=[losses])
    assert [step for step, _ in losses.seen] == [*range(1, result.step + 1)]
    assert all(loss > 0 for _, loss in losses.seen)
    assert str(tmp_path / "out/bert_model.ckpt.index") in result.files
    settings = classifier_runs.settings_in(tmp_path)(
        do_train=True, do_eval=True, num_train_epochs=1.0, output_dir=str(tmp_path / "command")
    )
    assert run_classifier.run(settings) == result.scores
    assert weights_in(tmp_path / "command") == weights_in(tmp_path / "out") != {}


@pytest.mark.usefixtures("eager")
def test_the_last_line_of_a_training_has_the_speed_of_the_others(make_recipe, monkeypatch, log):
    now = 1000.0

    class Second(Observer):
        @contextlib.contextmanager
        def around_step(self, step):
            nonlocal now
            now += 1.0
            yield

    planned = plan(make_recipe(do_eval=False, num_train_epochs=5.0, log_every_steps=2))
    monkeypatch.setattr(time, "monotonic", lambda: now)
    run(planned, observers=[Second()])
    lines = [message for message in log.messages if "/10  " in message]
    assert len(lines) == 5
    assert all("  8 examples/s" in line for line in lines)


@pytest.mark.parametrize(
    ("seed", "must"),
    [
        (-1, "be at least 0"),
        (2**40, "be at most 4294967295"),
        (1.5, "be a whole number"),
        ("1", "be a whole number"),
        (None, "have a value"),
    ],
)
def test_a_seed_has_the_bounds_of_the_flag(make_recipe, seed, must):
    recipe = make_recipe()
    with pytest.raises(OptionError, match=f"`seed` must {must}"):
        dataclasses.replace(recipe, seed=seed)


QUIET_PLAN = """
import sys
from bert.parts import PlanError
from bert.runs.plan import plan
from bert.runs.recipes import Command
from bert.runs.recipes import EvaluatedSteps, FineTuning, TextModel
from bert.runs.run import run
from bert.tasks.classification.options import ClassificationData
from bert.training.loop import Observer
from bert.training.options import Output
assert "tensorflow" not in sys.modules
recipe = FineTuning(
    steps=EvaluatedSteps(do_train=True),
    model=TextModel(init_checkpoint="nowhere"),
    data=ClassificationData(task_name="custom", data_dir="nowhere"),
    output=Output(output_dir="nowhere"),
)
try:
    plan(recipe)
except PlanError as error:
    print(error.faults[0].option)
"""


def test_a_plan_imports_tensorflow_without_its_messages():
    result = run_python("-c", QUIET_PLAN)
    assert (result.stdout, result.stderr) == ("init_checkpoint\n", "")


@pytest.mark.parametrize(
    ("script", "runs", "groups"),
    [(run_squad, squad_runs, ["decoding"]), (run_ner, tagging_runs, ["tags", "features"])],
)
def test_a_group_of_a_task_that_is_not_given_has_its_defaults(tmp_path, script, runs, groups):
    runs.write_task(tmp_path, count=4)
    settings = runs.settings_in(tmp_path)(output_dir=str(tmp_path / "out"), do_train=True)
    recipe = script.make_recipe(settings)
    defaults = {name: type(getattr(recipe, name))() for name in groups}
    given = plan(dataclasses.replace(recipe, **defaults))
    without = plan(dataclasses.replace(recipe, **dict.fromkeys(groups)))
    # The free memory and disk, which the last lines end with, change on their own.
    shown = [re.sub(r", of [\d.]+ GB free", "", each.describe()) for each in (given, without)]
    assert shown[0] == shown[1]
    with pytest.raises(TypeError, match=r"`data` must be the options of a task"):
        plan(dataclasses.replace(recipe, data=3))


@pytest.mark.parametrize(
    ("script", "data"),
    [
        (run_classifier, ClassificationData),
        (run_squad, SquadData),
        (run_swag, SwagData),
        (run_ner, TaggingData),
    ],
)
def test_a_recipe_has_the_defaults_of_the_command(script, data):
    settings, output = script.Settings(output_dir="out"), Output(output_dir="out")
    steps, model = EvaluatedSteps(do_train=True), TextModel(init_checkpoint="model")
    recipe = FineTuning(steps=steps, model=model, data=data(), output=output).expand()
    for group in (recipe.lengths, recipe.schedule, recipe.export):
        assert vars(group) == {name: getattr(settings, name) for name in vars(group)}
    assert recipe.model.init_checkpoint == "model"
    assert recipe.model.LOWERS_BY_DEFAULT is settings.LOWERS_BY_DEFAULT


@pytest.mark.parametrize("is_feature_based", [False, True])
def test_a_plan_has_the_learning_rate_of_the_command(tmp_path, is_feature_based):
    given = {"do_train": True}
    if is_feature_based:
        given |= {"feature_based": True, "feature_layers": "last"}
    make_settings = tagging_runs.settings_in(tmp_path)
    tagging_runs.write_task(tmp_path, count=4)
    default = run_ner.Settings(output_dir="out", **given).learning_rate
    recipe = run_ner.make_recipe(make_settings(**given))
    recipe = dataclasses.replace(recipe, schedule=Schedule(num_train_epochs=8.0))
    assert plan(recipe).recipe.schedule.learning_rate == default


@pytest.mark.parametrize(
    "grid",
    [{"learning_rate": (1e-3, 2e-3)}, {"num_train_epochs": (1.0, 2.0), "train_batch_size": [4, 8]}],
)
def test_several_values_in_a_recipe_are_the_search_of_the_command(make_recipe, grid):
    recipe = make_recipe()
    given = dataclasses.replace(recipe, schedule=dataclasses.replace(recipe.schedule, **grid))
    assert plan(given).recipe.trials == plan(make_recipe(**grid)).recipe.trials
    one = dataclasses.replace(recipe.schedule, learning_rate=(recipe.schedule.learning_rate,))
    assert plan(dataclasses.replace(recipe, schedule=one)).recipe == plan(recipe).recipe


class Frame:
    """Rows as a DataFrame of pandas returns them."""

    def __init__(self, rows):
        self.rows = rows

    def to_dict(self, orient):
        assert orient == "records"
        return self.rows


@pytest.mark.usefixtures("eager")
def test_rows_of_a_program_train_as_a_file_does(make_recipe, tmp_path):
    def rows(split):
        lines = (tmp_path / f"{split}.tsv").read_text().splitlines()
        header, *cells = (line.split("\t") for line in lines)
        return [dict(zip(header, row, strict=True)) for row in cells]

    recipe = make_recipe()
    files = {"train_file": rows("train"), "dev_file": Frame(rows("dev"))}
    data = dataclasses.replace(recipe.data, data_dir=None, **files)
    output = dataclasses.replace(recipe.output, output_dir=str(tmp_path / "rows"))
    recipe = dataclasses.replace(recipe, data=data, output=output)
    scores = run(plan(recipe)).scores
    assert scores == run(plan(make_recipe())).scores
    assert weights_in(tmp_path / "rows") == weights_in(tmp_path / "out")
    flags = json.loads((tmp_path / "rows/run.json").read_text())["ran_with"]["flags"]
    assert re.search("/[0-9a-f]{64}/", flags["--train_file"])
    assert plan(recipe).training.num_train_steps
    other = dataclasses.replace(data, train_file=rows("train")[1:])
    with pytest.raises(ValueError, match="the train set is"):
        plan(dataclasses.replace(recipe, data=other))


def test_a_path_is_what_its_text_is(make_recipe, tmp_path):
    recipe = make_recipe()

    def planned(kind):
        files = {f"{name}_file": kind(tmp_path / f"{name}.tsv") for name in ("train", "dev")}
        data = dataclasses.replace(recipe.data, data_dir=None, **files)
        return plan(dataclasses.replace(recipe, data=data))

    assert planned(Path).recipe == planned(str).recipe


def test_all_runs_of_a_search_have_the_rows_of_a_generator(make_recipe):
    colors = classifier_runs.COLORS * 4
    rows = [{"text": f"{place} {color}", "label": color} for place, color in enumerate(colors)]
    recipe = make_recipe()

    def search(train_file):
        data = dataclasses.replace(recipe.data, data_dir=None, train_file=train_file)
        return dataclasses.replace(recipe, data=data).expand(2)

    found = plan(search(row for row in rows)).recipe
    assert found == plan(search(rows)).recipe
    recipes = [found.shared, *(trial.recipe for trial in found.trials)]
    path = save_rows(rows, "train_file")
    assert [each.data.train_file for each in recipes] == [path] * 3


@pytest.mark.parametrize("rows", [7, ["a"], [{"text": object()}]])
def test_rows_that_are_none_are_refused(make_recipe, rows):
    recipe = make_recipe()
    data = dataclasses.replace(recipe.data, train_file=rows)
    with pytest.raises(ValueError, match="`train_file` must be a path, a DataFrame, or a list"):
        plan(dataclasses.replace(recipe, data=data))


def test_a_recipe_of_a_program_tells_of_its_seed_and_options_where_they_are_others(make_recipe):
    recipe = dataclasses.replace(make_recipe(), command=Command(), seed=7)
    told = recipe.changed_options()
    assert (told["seed"], told["do_train"]) == (7, True)
    assert "warmup_proportion" not in told
    assert "seed" not in dataclasses.replace(recipe, seed=12345).changed_options()


def test_a_plan_of_some_examples_cannot_be_run(make_recipe, tmp_path):
    planned = plan(make_recipe(), limit=3)
    assert "of which 3 are looked at" in planned.describe()
    with pytest.raises(ValueError, match="without a limit"):
        run(planned)
    assert not (tmp_path / "out").exists()
    for limit in (0, -1, "3", 3.0):
        with pytest.raises(OptionError, match=f"`limit` must be .* Received {limit!r}"):
            plan(make_recipe(), limit=limit)


def test_what_is_no_recipe_plan_or_observer_is_refused_by_name(make_recipe):
    recipe = make_recipe()
    for value in (None, "out", recipe.model):
        with pytest.raises(TypeError, match="`recipe` must be a recipe"):
            plan(value)
        with pytest.raises(TypeError, match="`plan` must be what"):
            run(value)
    with pytest.raises(TypeError, match="`plan` must be what"):
        run(recipe)
    for observers in ([Observer], Observer, None):
        with pytest.raises(TypeError, match="`observers` must be objects of Observer"):
            run(plan(recipe, limit=3), observers)
    for name in ("model", "steps", "output", "compute", "lengths", "teacher"):
        with pytest.raises(TypeError, match=f"`{name}` must be of .* Received 'out'"):
            dataclasses.replace(recipe, **{name: "out"})


def test_a_plan_of_some_examples_has_the_steps_of_all(make_recipe, tmp_path):
    """In floating point, 9 / (9 / 14) is less than 14."""
    classifier_runs.write_task(tmp_path, lambda color: color, count=14)
    recipe = make_recipe(train_batch_size=1, do_eval=False)
    steps = [plan(recipe, limit).training.last_step for limit in (None, 9, 13)]
    assert steps == [14] * 3


@pytest.mark.usefixtures("eager")
def test_a_folder_that_changes_after_the_plan_is_left_alone(make_recipe, tmp_path):
    late = plan(make_recipe())
    run(plan(make_recipe()))
    before = {path: path.read_bytes() for path in (tmp_path / "out").rglob("*") if path.is_file()}
    with pytest.raises(ValueError, match="`output_dir` must be as it was when"):
        run(late)
    after = {path: path.read_bytes() for path in (tmp_path / "out").rglob("*") if path.is_file()}
    assert after == before


def test_all_faults_are_named_before_data_are_read(make_recipe, tmp_path):
    recipe = make_recipe(max_seq_length=99, freeze_layers=7, train_file="nowhere.tsv")
    with pytest.raises(PlanError) as caught:
        plan(recipe)
    assert [fault.option for fault in caught.value.faults] == ["max_seq_length", "freeze_layers"]
    assert str(caught.value) == "\n".join(map(str, caught.value.faults))
    values = dataclasses.asdict(
        classifier_runs.settings_in(tmp_path)(max_seq_length=99, freeze_layers=7, do_train=True)
    )
    flags = [f"--{name}={value}" for name, value in values.items() if value not in (None, "")]
    flags = [flag for flag in flags if "do_lower_case" not in flag]
    ended = fork_python("run_classifier.py", *flags, check=False)
    errors = [line for line in ended.stderr.splitlines() if " Error: " in line]
    assert [error.split()[2] for error in errors] == ["`--max_seq_length`", "`--freeze_layers`"]
    assert ended.returncode == 1
    assert not (tmp_path / "out").exists()


def test_parts_that_need_a_wrong_part_are_not_looked_at():
    parts = Parts(is_muted=True)

    def refuse():
        raise ValueError("`a` must be b.")

    def warn(value):
        logging.getLogger("bert").warning("%s is odd.", Option("c"))
        return value + 1

    assert parts("first", refuse) is FAILED
    assert parts("second", warn, FAILED) is FAILED
    assert parts("third", warn, 1, shows=str) == 2
    assert [(line.mark, line.name) for line in parts.lines[:2]] == [
        (WRONG, "first"),
        (UNCHECKED, "second"),
    ]
    assert parts.lines[2].spell(Option.as_flag) == "2. `--c` is odd"
    # An error is the text of a fault alone.
    with pytest.raises(PlanError, match=r"^`a` must be b\.$"):
        parts.check()
    # A bug is none.
    with pytest.raises(KeyError):
        parts("fourth", {}.__getitem__, "x")


def test_records_that_are_missing_are_no_fault_of_the_lengths(pretraining_run):
    """By default, the index beside the records says how long they are."""
    settings = pretraining_run(input_file="missing", max_seq_length=None)
    with pytest.raises(PlanError) as caught:
        plan(run_pretraining.make_recipe(settings))
    assert [fault.option for fault in caught.value.faults] == ["input_file"]

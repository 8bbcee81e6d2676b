"""A call from Python does what the command does, and leaves the caller's random state alone."""

import dataclasses
import importlib
import json
import random
import re
from pathlib import Path
from typing import get_args

import keras
import numpy as np
import pytest
import tensorflow as tf
from conftest import eagerly, exhaustive
from helpers import tfhub_runs
from helpers.forks import fork_python
from helpers.script_worlds import TRAINED, with_dropout

from bert.commands.flags import changed_flags
from bert.options import OptionError
from bert.runs.plan import plan

_COMMAND = """
import runpy, sys, warnings
import tensorflow as tf
warnings.filterwarnings("ignore", "Even though the `tf.config.experimental_run")
tf.config.run_functions_eagerly(True)
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
# Of a script's world: what else is given.
CASES = [
    ("run_classifier", {"do_eval": True, "num_runs": 2}),
    ("run_pretraining", {"do_eval": True}),
    ("run_squad", {"do_predict": True}),
    (
        "run_ner",
        {
            **{"do_eval": True, "do_predict": True, "max_seq_length": 16},
            **{"feature_based": True, "feature_layers": "last", "lstm_size": 4},
        },
    ),
    # These run as a classifier does.
    *exhaustive(("run_classifier_with_tfhub", {}), ("run_swag", {"do_eval": True})),
]


def draw():
    """Returns what each global generator gives next."""
    return [
        random.random(),
        float(np.random.uniform()),
        float(keras.random.uniform(())),
        float(tf.random.uniform(())),
    ]


def move_output(folder, name):
    """Returns the bytes that a run has left, by file, and makes room for another."""
    (folder / "out").rename(folder / name)
    files = {}
    for path in sorted((folder / name).rglob("*")):
        if path.is_file() and "tfevents" not in path.name:
            # The names of the files for TensorBoard have the time in them.
            files[str(path.relative_to(folder / name))] = re.sub(
                rb"events\.out\.tfevents[^\"]*", b"", path.read_bytes()
            )
    return files


@pytest.mark.parametrize(("script", "given"), CASES)
def test_two_calls_and_the_command_leave_the_same_files(tmp_path, script, given):
    module = importlib.import_module(script)
    world = TRAINED[script](tmp_path)
    if script == "run_classifier_with_tfhub":
        settings = tfhub_runs.make_settings(tmp_path)
        others = world.values()
    else:
        others = ()
        values = {**world, **given, "bert_config_file": with_dropout(tmp_path)}
        settings = module.Settings(**values)

    def call(seed):
        keras.utils.set_random_seed(seed)
        _, expected = draw(), draw()
        keras.utils.set_random_seed(seed)
        draw()
        with eagerly():
            module.run(settings, *others)
        assert draw() == expected

    call(3)
    first = move_output(tmp_path, "first")
    call(4)
    second = move_output(tmp_path, "second")
    flags = [f"--{name}={value}" for name, value in world.items()] * bool(others)
    fork_python("-c", _COMMAND, f"{script}.py", *flags, *changed_flags(settings))
    command = move_output(tmp_path, "command")
    assert first.keys() == second.keys() == command.keys()
    assert {"run.json", "task.json", "bert_model.ckpt.index"} & first.keys()
    assert [name for name in first if first[name] != second[name]] == []
    assert [name for name in first if first[name] != command[name]] == []


def with_objects(values):
    """Returns options with path objects, integers and scalars of NumPy for texts and numbers."""

    def other(value):
        if isinstance(value, tuple):
            return tuple(map(other, value))
        if isinstance(value, str):
            return Path(value) if value.startswith("/") else value
        if isinstance(value, float) and value.is_integer():
            return int(value)
        return value if value is None else np.asarray(value)[()]

    return {name: other(value) for name, value in values.items()}


@pytest.mark.parametrize(
    ("script", "given"),
    [
        ("run_classifier", {"num_runs": 2, "learning_rate": (0.5, 1e-3), "seed": 7}),
        ("run_pretraining", {"seed": 7}),
        ("run_squad", {"num_runs": 2}),
        ("run_ner", {"feature_based": True, "num_runs": 2}),
        ("run_swag", {}),
    ],
)
def test_paths_and_numbers_of_numpy_make_the_recipe_of_the_command(tmp_path, script, given):
    module = importlib.import_module(script)
    values = {**TRAINED[script](tmp_path), **given}
    expected = module.make_recipe(module.Settings(**values))
    recipe = module.make_recipe(module.Settings(**with_objects(values)))
    # In `==`, scalars of NumPy are equal to numbers.
    assert repr(recipe) == repr(expected)


def test_a_recipe_with_a_path_object_and_scalars_of_numpy_is_planned_as_with_text(tmp_path):
    module = importlib.import_module("run_ner")
    values = TRAINED["run_ner"](tmp_path)
    recipe = module.make_recipe(module.Settings(**values))
    groups = {
        name: type(group)(**with_objects(vars(group)))
        for name, group in vars(recipe).items()
        if name in ("model", "data", "schedule", "output")
    }
    found = plan(dataclasses.replace(recipe, **groups, seed=np.int64(recipe.seed)), limit=4)
    assert repr(found.recipe) == repr(plan(recipe, limit=4).recipe)
    assert json.loads(json.dumps(found.recipe.options())) == found.recipe.options()


@pytest.mark.parametrize("script", ["run_classifier", "run_pretraining", "run_squad"])
def test_a_number_that_must_be_whole_is_refused_by_its_name(tmp_path, script):
    module = importlib.import_module(script)
    values = TRAINED[script](tmp_path)
    for field in dataclasses.fields(module.Settings):
        if field.type is int or int in get_args(field.type):
            with pytest.raises(OptionError, match=rf"`{field.name}` must be .*Received 9\.0"):
                module.Settings(**{**values, field.name: 9.0})


@pytest.mark.parametrize("num_runs", [0, 1.0, "2"])
def test_a_recipe_is_expanded_by_a_number_of_runs(tmp_path, num_runs):
    module = importlib.import_module("run_classifier")
    recipe = module.make_recipe(module.Settings(**TRAINED["run_classifier"](tmp_path)))
    with pytest.raises(OptionError, match=f"`num_runs` must be .* Received {num_runs!r}"):
        recipe.expand(num_runs)

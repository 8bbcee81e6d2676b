import dataclasses
import importlib
import json
import re
import shlex
import shutil
import subprocess

import pytest
from conftest import ROOT

from bert.files.display import read_duration

needs_make = pytest.mark.skipif(shutil.which("make") is None, reason="There is no make.")


def commands(folder, installed, *arguments):
    """Returns what `make setup` would do where what is installed is as `installed` says."""
    (folder / ".venv").mkdir(exist_ok=True)
    for name in ("Makefile", "requirements.txt", "requirements-dev.txt", "constraints.txt"):
        shutil.copy(ROOT / name, folder / name)
    stamp = folder / ".venv" / "requirements-installed"
    stamp.unlink(missing_ok=True)
    if installed is not None:
        stamp.write_text(installed)
    result = subprocess.run(
        # A make above this one hands its own flags down.
        ["make", "--no-print-directory", "-n", "setup", *arguments],
        cwd=folder,
        env={"PATH": "/usr/local/bin:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    return result.stdout


@needs_make
@pytest.mark.parametrize(
    ("installed", "arguments", "cuda", "removes"),
    [
        (None, [], False, False),
        (None, ["GPU=1"], True, False),
        ("cpu\n", ["GPU=1"], True, False),
        # As it was written before there was a choice.
        ("", ["GPU=1"], True, False),
        ("gpu\n", ["GPU=0"], False, True),
    ],
)
def test_cuda_is_installed_and_removed_as_it_is_asked_for(
    tmp_path, installed, arguments, cuda, removes
):
    said = commands(tmp_path, installed, *arguments)
    pinned = re.search(r"^tensorflow==(.+)$", (ROOT / "requirements.txt").read_text(), re.MULTILINE)
    assert "-r requirements.txt -r requirements-dev.txt" in said
    assert (f'"tensorflow[and-cuda]=={pinned[1]}"' in said) == cuda
    assert ("uninstall" in said) == removes
    assert f"echo {'gpu' if cuda else 'cpu'} > .venv/requirements-installed" in said


@needs_make
@pytest.mark.parametrize(
    ("installed", "arguments"),
    [("cpu\n", []), ("", []), ("gpu\n", []), ("gpu\n", ["GPU=1"]), ("cpu\n", ["GPU=0"])],
)
def test_what_is_installed_stays_where_nothing_else_is_asked_for(tmp_path, installed, arguments):
    assert "pip" not in commands(tmp_path, installed, *arguments)


def pretrain_hour(*arguments, run=False):
    """Returns the process of `make pretrain-hour`, which shows its commands or runs them."""
    dry = [] if run else ["-n"]
    return subprocess.run(
        # Nothing is installed.
        ["make", *dry, "-o", ".venv/requirements-installed", "pretrain-hour", *arguments],
        cwd=ROOT,
        env={"PATH": "/usr/local/bin:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )


def scripts_of(shown):
    """Returns the flags of each command of `make -n` that runs a script, by name."""
    found = []
    for line in shown.replace("\\\n", " ").splitlines():
        if match := re.match(r"(?:test .* )?python (\w+)\.py +(--.*)", line):
            flags = [each.removeprefix("--").partition("=") for each in shlex.split(match[2])]
            found.append((match[1], {name: value for name, _, value in flags}))
    return found


@needs_make
@pytest.mark.parametrize(
    ("optimizer", "objective"), [("adam", "masked_lm_nsp"), ("muon", "masked_lm")]
)
@pytest.mark.parametrize(("minutes", "seconds"), [("60", 3600), ("0.1", 6), ("1", 60)])
def test_an_hour_is_shared_by_two_lengths(tmp_path, minutes, seconds, optimizer, objective):
    out = tmp_path / "out"
    changes = ("SEED=2", f"MINUTES={minutes}", f"OPTIMIZER={optimizer}", f"OBJECTIVE={objective}")
    made = pretrain_hour("TEXT=a.txt,b.txt", "HELD_OUT=c.txt", f"OUT={out}", *changes)
    scripts = scripts_of(made.stdout)
    names = ["split_sentences"] * 2 + ["create_vocab"] + ["create_pretraining_data"] * 4
    trained = ["run_pretraining", "run_pretraining", "convert_checkpoint"]
    assert [name for name, _ in scripts] == [*names, *trained]
    for name, flags in scripts:
        fields = {each.name for each in dataclasses.fields(importlib.import_module(name).Settings)}
        assert flags.keys() - fields == set()
    trainings = [flags for name, flags in scripts if name == "run_pretraining"]
    assert sum(read_duration(each["time_budget"]) for each in trainings) == pytest.approx(seconds)
    assert {(each["optimizer"], each["objective"], each["seed"]) for each in trainings} == {
        (optimizer, objective, "2")
    }
    assert trainings[1]["init_checkpoint"] == trainings[0]["output_dir"]
    assert scripts[-1][1]["input"] == trainings[1]["output_dir"]
    # Trained without dropout, and left with it.
    lines = made.stdout.splitlines()
    sed = shlex.split(next(line for line in lines if line.startswith("sed") and "dropout" in line))
    config = (ROOT / "sample/hour_config.json").read_text()
    assert sed[2:] == [trainings[0]["bert_config_file"], ">", scripts[-1][1]["bert_config_file"]]
    left = subprocess.run(sed[:2], input=config, capture_output=True, text=True, check=True).stdout
    rates = [
        {value for name, value in json.loads(each).items() if "dropout" in name}
        for each in (config, left)
    ]
    assert rates == [{0.0}, {0.1}]
    written = {flags.get("output_file") for _, flags in scripts}
    for flags in trainings:
        assert {flags["input_file"], flags["eval_input_file"]} <= written
    assert scripts[0][1]["input_file"] == "a.txt,b.txt"
    assert scripts[1][1]["input_file"] == "c.txt"
    assert not out.exists()


@needs_make
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "TEXT must name text"),
        (["TEXT=a", "MINUTES=soon"], "MINUTES must be a number above 0"),
        (["TEXT=a", "OPTIMIZER=lion"], "OPTIMIZER must be adam or muon. Received 'lion'"),
        (["TEXT=a", "SEED=two"], "SEED must be a whole number. Received 'two'"),
        (["TEXT=a", "OBJECTIVE=nsp"], "OBJECTIVE must be masked_lm_nsp or masked_lm. Received"),
    ],
)
def test_an_hour_of_nothing_is_told(tmp_path, arguments, said):
    made = pretrain_hour(*arguments, f"OUT={tmp_path / 'out'}", run=True)
    assert made.returncode != 0
    assert said in made.stderr
    assert not (tmp_path / "out").exists()


@needs_make
def test_an_hour_of_one_text_is_not_taken_for_that_of_another(tmp_path):
    (tmp_path / "made_of").write_text("TEXT=a.txt\n")
    made = pretrain_hour("TEXT=b.txt", f"OUT={tmp_path}", run=True)
    assert made.returncode
    assert "It holds what was made of 'TEXT=a.txt', not of 'TEXT=b.txt'." in made.stderr
    assert [*tmp_path.iterdir()] == [tmp_path / "made_of"]
    others = ("OPTIMIZER=muon", "OBJECTIVE=masked_lm", "SEED=2", "MINUTES=5", "HOUR_CONFIG=my.json")
    made = pretrain_hour("TEXT=a.txt", *others, f"OUT={tmp_path}", run=True)
    assert f"not of 'TEXT=a.txt {' '.join(others)}'." in made.stderr

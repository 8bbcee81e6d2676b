import configparser
import shutil
import subprocess
import sys
import zipfile
from pathlib import PurePosixPath

import pytest
from conftest import ROOT, run_python
from packaging.requirements import Requirement


def tracked_files():
    listing = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return [name for name in listing.stdout.split("\0") if name and (ROOT / name).exists()]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel that `pip install .` makes of the tracked files, and where they were copied."""
    checkout, output = tmp_path_factory.mktemp("checkout"), tmp_path_factory.mktemp("wheel")
    for name in tracked_files():
        (checkout / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, checkout / name)
    result = subprocess.run(
        # Without isolation, nothing is fetched: setuptools is among the requirements.
        [
            *(sys.executable, "-m", "pip", "wheel", ".", "--no-deps", "--no-build-isolation"),
            *("--no-index", "--wheel-dir", output),
        ],
        cwd=checkout,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    (path,) = output.iterdir()
    with zipfile.ZipFile(path) as opened:
        yield opened


def metadata(wheel, name):
    (path,) = (path for path in wheel.namelist() if path.endswith(f".dist-info/{name}"))
    return wheel.read(path).decode("utf-8")


@pytest.mark.slow
def test_wheel_holds_the_modules_and_what_lies_beside_them_and_nothing_else(wheel):
    paths = [PurePosixPath(name) for name in tracked_files()]
    roots = {str(path) for path in paths if path.parent == PurePosixPath() and path.suffix == ".py"}
    # For clones in a folder `bert` alone; a command of a clone; and what makes the wheel.
    roots -= {"__init__.py", "reproduce_paper.py", "setup.py"}
    rooms = {str(path) for path in paths if path.parts[0] == "bert"}
    top = {
        *("modeling", "optimization", "tokenization", "create_pretraining_data"),
        *("extract_features", "run_classifier", "run_classifier_with_tfhub", "run_ner"),
        *("run_pretraining", "run_squad", "run_swag"),
    }
    held = {name for name in wheel.namelist() if ".dist-info/" not in name}
    inside = {f"bert/scripts/{name}" for name in roots - {f"{name}.py" for name in top}}
    assert held == {f"{name}.py" for name in top} | inside | rooms
    assert sorted(metadata(wheel, "top_level.txt").split()) == sorted(top | {"bert"})


@pytest.mark.slow
def test_modules_of_the_wheel_are_found_in_its_package(wheel, tmp_path):
    wheel.extractall(tmp_path / "site")
    # A module of somebody else, beside which that of the wheel is found, too.
    (tmp_path / "site" / "predict.py").write_text('"""Predicts the weather."""\n')
    code = (
        "import bert, bert.modeling, modeling, predict\nfrom bert import run_squad, tokenization\n"
        "assert bert.modeling is modeling and bert.predict is not predict\n"
        "assert bert.predict.Settings.__module__ == 'bert.scripts.predict'\n"
        "print(bert.__file__, modeling.__file__, tokenization.__file__, run_squad.__file__)"
    )
    names = ("bert/__init__.py", "modeling.py", "tokenization.py", "run_squad.py")
    expected = [str(tmp_path / "site" / name) for name in names]
    assert run_beside(tmp_path, "-c", code).split() == expected
    for arguments in (["--help"], ["predict", "--help"]):
        shown = run_beside(tmp_path, "-m", "bert", *arguments)
        assert "Predicts with a fine-tuned model" in shown


def run_beside(folder, *arguments):
    """Runs this interpreter in a folder, whose `site` comes first on the path."""
    return run_python(*arguments, folder=folder, PYTHONPATH=str(folder / "site")).stdout


@pytest.mark.slow
def test_wheel_brings_the_command(wheel):
    entry_points = configparser.ConfigParser()
    entry_points.read_string(metadata(wheel, "entry_points.txt"))
    assert dict(entry_points["console_scripts"]) == {"bert": "bert.__main__:main"}


def test_a_package_has_the_same_versions_in_all_requirements():
    files = [*ROOT.glob("requirements*.txt"), ROOT / "benchmarks/requirements.txt"]
    found = {}
    for path in files:
        pins = {}
        for line in path.read_text(encoding="utf-8").splitlines():
            if "==" in line and line[0] not in "# ":
                pins.setdefault(line.partition("==")[0], set()).add(line)
        for name, lines in pins.items():
            assert found.setdefault(name, lines) == lines, f"{path}: {name}"
    assert "onnxruntime" in found


@pytest.mark.slow
def test_wheel_asks_for_what_the_project_runs_on(wheel):
    lines = (ROOT / "requirements.txt").read_text(encoding="utf-8").splitlines()
    pins = [Requirement(line) for line in lines if line[0] not in "#-"]
    fields = [line.partition(": ") for line in metadata(wheel, "METADATA").splitlines()]
    ranges = [Requirement(value) for name, _, value in fields if name == "Requires-Dist"]
    asked = {each.name: each.specifier for each in ranges if not each.marker}
    assert asked.keys() == {pin.name for pin in pins}
    for pin in pins:
        (version,) = pin.specifier
        assert asked[pin.name].contains(version.version), pin
    extras = {str(each.marker): each for each in ranges if each.marker}
    parquet, serve = 'extra == "parquet"', 'extra == "serve"'
    assert {str(each.marker) for each in ranges if each.marker} == {
        *('extra == "gpu"', parquet, serve, 'extra == "tflite"', 'extra == "onnx"'),
        *('extra == "beam"', 'extra == "text"', 'extra == "word-vectors"'),
        *('extra == "wandb"', 'extra == "mlflow"'),
    }
    gpu = extras['extra == "gpu"']
    assert (gpu.name, gpu.extras) == ("tensorflow", {"and-cuda"})
    assert gpu.specifier == asked["tensorflow"]
    assert extras[parquet].name == "pyarrow"
    named = {each.name for each in ranges if str(each.marker) == serve}
    assert named == {"aiohttp", "prometheus_client"}

import subprocess
import sys

import pytest
from conftest import ROOT

import bert
import run_classifier
import tokenization
from bert import optimization


def test_modules_of_the_root_are_found_as_the_same_objects():
    assert optimization is sys.modules["optimization"]
    assert bert.tokenization is tokenization
    assert bert.run_classifier is run_classifier


def test_names_are_listed():
    assert {*bert.LIBRARY, *bert.SCRIPTS, "load"} <= set(dir(bert))


def test_wrong_name_is_an_error():
    with pytest.raises(AttributeError, match="module 'bert' has no attribute 'tokenisation'"):
        bert.tokenisation  # noqa: B018


def test_import_loads_nothing_else():
    code = "import sys, bert; dir(bert); print(*sys.modules)"
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    heavy = {"tensorflow", "keras", "numpy", "absl", *bert.LIBRARY, *bert.SCRIPTS}
    assert heavy & set(result.stdout.split()) == set()


def test_every_script_and_module_of_the_library_is_named():
    # Whatever else lies at the root has a room to go to.
    scripts = {
        path.stem for path in ROOT.glob("*.py") if "\n    run_script(main" in path.read_text()
    }
    assert scripts == set(bert.SCRIPTS)
    assert all((ROOT / f"{name}.py").exists() for name in bert.LIBRARY)

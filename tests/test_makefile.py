import re
import shutil
import subprocess

import pytest
from conftest import ROOT

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

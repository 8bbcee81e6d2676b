import subprocess
import sys
import textwrap

from conftest import ROOT

FILES = {
    "modeling.py": """
        import importlib
        def __getattr__(name):
            return getattr(importlib.import_module("bert.original.modeling"), name)
    """,
    "run_one.py": """
        import json
        import modeling
        from bert.files import paths, tables
        from bert.tasks.swag.words import words, word
        def run():
            from bert.files.paths import open_file
            return open_file
    """,
    "run_two.py": "import bert.files.paths, modeling",
    "bert/__init__.py": "",
    "bert/__main__.py": """
        import runpy
        SCRIPTS = {"modeling": "run_one", "other": "run_two"}
        def main(script):
            runpy.run_module(SCRIPTS[script])
    """,
    "bert/files/__init__.py": "",
    "bert/files/paths.py": """
        from tensorflow import io
        def read(settings: "Settings", name):
            "`--name` is read."
            raise ValueError("Give `--name`.")
        def run(settings: "Settings"):
            pass
    """,
    "bert/files/tables.py": """
        from . import paths
        from .paths import open_file
    """,
    "bert/original/__init__.py": "",
    "bert/original/modeling.py": "import modeling",
    "bert/runs/__init__.py": "",
    "bert/runs/recipes.py": """
        class FineTuning:
            model: Model
            data: Data
            steps: Steps
        class Search:
            runs: tuple[FineTuning, ...]
        def expand(search: Search):
            pass
    """,
    "bert/runs/space.py": """
        class Search:
            pass
        def find(space: Search):
            pass
    """,
    "bert/tasks/__init__.py": "",
    "bert/tasks/swag/__init__.py": "",
    "bert/tasks/swag/words.py": """
        from bert.files import tables
        class Words(Protocol):
            async def read(self):
                pass
        class Settings(asyncio.Protocol):
            words: Words
        HINT = "--words is a flag, low--high is none"
    """,
    "tests/test_one.py": """
        import run_one
        import bert.files.paths
    """,
    "build/left.py": "import modeling",
}

TABLES = """\
lines of code                43
statements                   43
modules at the root          3
modules in packages          7
packages                     4
layers                       3
imports between modules      11
imports through strings      3
  bert.__main__ loads        run_one, run_two
  modeling loads             bert.original.modeling
circles                      1
  of                         bert.original.modeling, modeling
functions with all options   2
  below the commands         2
strings that spell a flag    2
  in errors                  1
members of a protocol         1 bert.tasks.swag.words.Words
files over 500 lines         0
lines of tests               2

package          modules  lines  statements  longest file                 longest function
(root)                 3     11          11     7 run_one                    3 run_one.run
bert                   1      4           4     4 bert.__main__              2 bert.__main__.main
bert.files             2      8           8     6 bert.files.paths           3 bert.files.paths.read
bert.original          1      1           1     1 bert.original.modeling     0
bert.runs              2     12          12     8 bert.runs.recipes          2 bert.runs.space.find
bert.tasks             0      0           0     0 bert.tasks                 0
bert.tasks.swag        1      7           7     7 bert.tasks.swag.words      2 bert.tasks.swag.words.read

runner   modules imported
run_one                 4
run_two                 2

"""  # noqa: E501


def measure(root):
    return subprocess.run(
        [sys.executable, ROOT / "benchmarks" / "house.py", f"--root={root}"],
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_structure_of_a_checkout_is_measured(tmp_path):
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text).lstrip())
    result = measure(tmp_path)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout == TABLES


def test_folder_without_modules_is_an_error(tmp_path):
    result = measure(tmp_path)
    assert result.returncode == 2
    assert f"`--root` must be a checkout. Received '{tmp_path}'" in result.stderr

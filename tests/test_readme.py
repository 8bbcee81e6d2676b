import dataclasses
import fcntl
import hashlib
import importlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import free_ports
from helpers.forks import BUILT_QUICKLY

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
# Their commands are checked and not run.
CHINESE_PAGES = [ROOT / "README.zh.md", *sorted((ROOT / "docs" / "zh").glob("*.md"))]


def blocks_of(page: Path) -> list[str]:
    """Returns the commands on a page; one more runs its Python, each block on its own names."""
    text = page.read_text(encoding="utf-8")
    found = re.findall(r"^```(shell|python)\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
    commands = [code for kind, code in found if kind == "shell"]
    blocks = [textwrap.indent(code, "    ") for kind, code in found if kind == "python"]
    program = "".join(f"def block():\n{block}block()\n" for block in blocks)
    return [*commands, f"python - <<'END'\n{program}END\n"] if blocks else commands


BLOCKS = [block for page in PAGES for block in blocks_of(page)]
MAKE_LINES = [line for block in BLOCKS for line in block.splitlines() if line.startswith("make ")]


def copy_project(folder: Path) -> None:
    """Copies the tracked files, as a user gets them."""
    listing = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    for name in listing.stdout.split("\0"):
        if name and (ROOT / name).exists():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)


def run(*command: str, cwd: Path, python: Path = Path(sys.executable).parent) -> str:
    """Runs a command with the interpreter of a folder as `python`; returns what it printed."""
    # `make test` runs this file, and hands its own flags to every make below it.
    inherited = {k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MAKELEVEL")}
    result = subprocess.run(
        command,
        cwd=cwd,
        env={**inherited, **BUILT_QUICKLY, "PATH": f"{python}{os.pathsep}{os.environ['PATH']}"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert result.returncode == 0, f"{command}\n{result.stdout}"
    return result.stdout


@pytest.mark.parametrize("line", MAKE_LINES)
def test_make_lines_name_targets(line):
    run(*line.split(), "--dry-run", cwd=ROOT)


def test_continuous_integration_runs_what_readme_says():
    assert "make test" in MAKE_LINES
    assert "exec make test" in (ROOT / ".ci/run").read_text(encoding="utf-8")


# In place of a released checkpoint, the one that README's commands have just made.
RELEASED = """
mkdir -p released
cp sample/vocab.txt sample/bert_config.json released
for file in my_bert/model.ckpt-20.*; do
  cp $file released/bert_model.ckpt.${file#*-20.}
done
"""

# In place of one on the hub, the same.
HUB = "google-bert/bert-base-uncased"
ON_HUB = f"""
mkdir -p google-bert
python convert_checkpoint.py --input=my_bert --output={HUB} --format=huggingface
"""

# In place of GLUE, a task of its form.
GLUE = """
mkdir -p glue
cp -r tests/golden/cola glue/CoLA
"""

STAND_INS = {"released": RELEASED, HUB: ON_HUB, "glue": GLUE}

# In place of the port, one that is free.
PORT = str(free_ports(1)[0])


def with_stand_ins(block: str) -> str:
    block = block.replace("serve.py ", f"serve.py --port={PORT} ").replace(":8501", f":{PORT}")
    block = re.sub(r"^(export BERT_BASE_DIR)=.*", r"\1=released", block, flags=re.M)
    return re.sub(r"^(export GLUE_DIR)=.*", r"\1=glue", block, flags=re.M)


COMMANDS = [with_stand_ins(block) for block in BLOCKS if not block.startswith("make ")]


def outputs_of(commands: str) -> list[str]:
    found = re.findall(r"--output(?:_file|_dir)?=(\S+)|output_dir=\"(\S+)\"", commands)
    return [name for pair in found for name in pair if name and name != HUB]


# By the name of an output, the first commands that make it.
MAKERS = {name: each for each in reversed(COMMANDS) for name in outputs_of(each)} | STAND_INS


# Outputs of commands that differ from others in flags, or in the launcher that starts them, alone:
# these have tests of their own.
RARELY = {
    *("exported_remarks", "my_bert_by_the_clock", "my_chooser_of_two", "my_domain_bert"),
    *("my_joined_answers.csv", "my_left_to_right", "my_small_bert", "my_small_remarks"),
    "my_streamed_bert",
}


class Reader:
    """Tries the commands of README and docs in one folder, each after those that it needs.

    All processes of a test run share the folder: each command runs once.
    """

    def __init__(self, folder: Path, python: Path) -> None:
        self.folder = folder
        self.python = python
        self.once("copied", lambda: copy_project(folder))
        # What the commands do is the same for a smaller model.
        self.once("smaller", lambda: write_smaller(folder / "sample/bert_config.json"))

    def once(self, what: str, act: Callable[[], None]) -> None:
        self.folder.mkdir(exist_ok=True)
        name = hashlib.sha256(what.encode()).hexdigest()
        with open(f"{self.folder}.{name}", "a+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            if not file.read():
                act()
                file.write("done")

    def follow(self, commands: str) -> None:
        self.once(commands, lambda: self.follow_now(commands))

    def follow_now(self, commands: str) -> None:
        for name, makers in MAKERS.items():
            if makers != commands and re.search(rf"\b{re.escape(name)}\b", commands):
                self.follow(makers)
        run("bash", "-euo", "pipefail", "-c", commands, cwd=self.folder, python=self.python)
        missing = [name for name in outputs_of(commands) if not (self.folder / name).exists()]
        assert missing == []


def write_smaller(path: Path) -> None:
    sizes = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1}
    path.write_text(json.dumps({**json.loads(path.read_text()), **sizes}))


@pytest.fixture(scope="session")
def reader(tmp_path_factory, python):
    folder = tmp_path_factory.getbasetemp()
    is_worker = "PYTEST_XDIST_WORKER" in os.environ
    return Reader((folder.parent if is_worker else folder) / "readme", python)


def anchors_of(page: Path) -> set[str]:
    """Returns what links may name on a page, as GitHub makes it of the headings."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), flags=re.M)
    return {re.sub(r"[^\w\- ]", "", each.lower()).replace(" ", "-") for each in headings}


@pytest.mark.parametrize("page", [*PAGES, *CHINESE_PAGES], ids=lambda page: page.name)
def test_links_lead_to_files_and_headings(page):
    links = re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8"))
    for link in links:
        path, _, anchor = link.partition("#")
        if path.startswith("https:"):
            continue
        target = page.parent / path if path else page
        assert target.exists(), link
        assert not anchor or anchor in anchors_of(target), link


@pytest.mark.parametrize("page", [*PAGES, *CHINESE_PAGES], ids=lambda page: page.name)
def test_tests_that_pages_name_exist(page):
    text = page.read_text(encoding="utf-8")
    for module, names in re.findall(r"`(test_\w+\.py)`((?:[:,] `test_\w+`)*)", text):
        [path] = ROOT.glob(f"*/{module}")
        defined = re.findall(r"^def (test_\w+)", path.read_text(encoding="utf-8"), flags=re.M)
        assert {*re.findall(r"`(test_\w+)`", names)} <= {*defined}, module


def test_readme_leads_to_every_page():
    readme = PAGES[0].read_text(encoding="utf-8")
    assert [page.name for page in PAGES[1:] if f"](docs/{page.name}" not in readme] == []


def test_readme_is_short():
    assert 150 <= len(PAGES[0].read_text(encoding="utf-8").splitlines()) <= 200


def test_commands_that_run_rarely_are_there():
    assert {name for commands in COMMANDS for name in outputs_of(commands)} > RARELY


def test_released_files_stand_in_wherever_pages_name_some():
    for name in STAND_INS:
        assert any(name in commands for commands in COMMANDS)
    assert not any("/path/to" in commands for commands in COMMANDS)


def test_commands_have_flags_and_samples():
    demo = run("make", "demo-zh", "--dry-run", cwd=ROOT)
    pages = [*PAGES, *CHINESE_PAGES]
    text = "\n".join([demo, *(block for page in pages for block in blocks_of(page))])
    text = re.sub(r"-m bert launch --workers=\d+ (\w+)", r"\1.py", text)
    for command in re.findall(r"python (\w+\.py (?:\\\n|[^\n])*)", text):
        script, *words = shlex.split(command.replace("\\\n", " "), comments=True)
        settings = importlib.import_module(script.removesuffix(".py")).Settings
        names = {field.name for field in dataclasses.fields(settings)}
        flags = [word[2:].partition("=")[::2] for word in words if word.startswith("--")]
        assert {name for name, _ in flags} <= names, command
        samples = [value for _, value in flags if value.startswith("sample/")]
        assert all((ROOT / value).exists() for value in samples), command


def case_of(commands: str) -> Any:
    is_rare = not RARELY.isdisjoint(outputs_of(commands))
    name = "-".join(re.findall(r"(\w+)\.py", commands))
    return pytest.param(commands, id=name, marks=pytest.mark.exhaustive if is_rare else ())


@pytest.mark.slow
@pytest.mark.parametrize("commands", [*map(case_of, COMMANDS)])
def test_commands_run_as_they_stand(reader, commands):
    reader.follow(commands)


@pytest.mark.slow
def test_evaluation_names_the_last_step(reader):
    for commands in COMMANDS:
        if "my_bert" in outputs_of(commands):
            reader.follow(commands)
    results = (reader.folder / "my_bert/eval_results.txt").read_text(encoding="utf-8")
    assert "global_step = 20\n" in results


@pytest.mark.slow
def test_demo_ends_with_an_evaluation(tmp_path, python):
    copy_project(tmp_path)
    write_smaller(tmp_path / "sample/bert_config.json")
    # The requirements are those of the interpreter that runs this test.
    installed = tmp_path / ".venv/requirements-installed"
    installed.parent.mkdir()
    installed.touch()
    output = run("make", "demo", "DEMO_STEPS=2", cwd=tmp_path, python=python)
    assert "hidden tokens, the model's first guess was right for" in output
    assert re.search(r"^test-1\t.*\t(good|bad)\t0\.\d+\t0\.\d+$", output, flags=re.M)
    assert re.search(r'"label": "(good|bad)", "probabilities"', output)
    assert re.search(r"^(good|bad) \(\d+\.\d% sure\): The bread was warm", output, flags=re.M)
    results = (tmp_path / "demo_output/pretrained/eval_results.txt").read_text(encoding="utf-8")
    assert "global_step = 2\n" in results

import io
import json
import re
import shutil

import pytest
from conftest import GOLDEN
from forks import fork_python

import inspect_text

TEXT = "the Old [MASK] told"


@pytest.fixture
def settings(tmp_path):
    def make(**changes):
        values = {"model_dir": str(GOLDEN), "do_lower_case": True}
        return inspect_text.Settings(
            **{**values, "output_file": str(tmp_path / "page.html"), **changes}
        )

    return make


def content_of(path):
    text = path.read_text(encoding="utf-8")
    return json.loads(re.search(r'id="content">(.*?)</script>', text, re.DOTALL)[1])


def test_it_is_printed_and_written(settings, tmp_path, capsys):
    inspection = inspect_text.run(settings(text_b="who heard?", top_k=2), [TEXT])
    page = content_of(tmp_path / "page.html")
    assert page["tokens"] == inspection.reading.tokens
    assert page["masks"][0]["position"] == 3
    assert len(page["masks"][0]["layers"]) == 3
    assert all(len(guesses) == 2 for guesses in page["masks"][0]["layers"])
    assert page["is_next"] == pytest.approx(inspection.is_next, rel=1e-5)
    printed = capsys.readouterr().out
    assert printed.startswith(f"{TEXT} ||| who heard?\n")
    assert f"{inspection.is_next:.4f}  is the probability" in printed


def test_without_a_page_nothing_is_written(settings, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{TEXT}\n"))
    inspection = inspect_text.run(settings(output_file=""), [])
    assert inspection.reading.texts == (TEXT, "")
    assert not list(tmp_path.iterdir())


def test_an_older_page_goes_and_what_is_mine_stays(settings, tmp_path):
    path = tmp_path / "page.html"
    inspect_text.run(settings(), [TEXT])
    older = path.read_text(encoding="utf-8")
    inspect_text.run(settings(), ["the [MASK]"])
    assert path.read_text(encoding="utf-8") != older
    path.write_text("mine")
    with pytest.raises(ValueError, match=r"`--output_file` must name a new file.*`--overwrite`"):
        inspect_text.run(settings(), [TEXT])
    assert path.read_text() == "mine"
    shutil.copytree(GOLDEN, tmp_path / "model", ignore=lambda *_: ["squad_v1", "squad_v2"])
    vocab = tmp_path / "model/vocab.txt"
    with pytest.raises(ValueError, match="`--output_file` must not name a file of a model"):
        inspect_text.run(settings(output_file=str(vocab)), [TEXT])


def test_several_texts_are_an_error(settings, tmp_path):
    with pytest.raises(ValueError, match=r"one text, in quotes. Received \['He', 'went'\]"):
        inspect_text.run(settings(), ["He", "went"])
    assert not list(tmp_path.iterdir())


AS_BERT = "import sys; from bert.__main__ import main; sys.argv[0] = 'bert'; main()"


@pytest.mark.parametrize("command", [["inspect_text.py"], ["-c", AS_BERT, "inspect"]])
def test_the_text_stands_on_the_command_line_among_flags(command, tmp_path):
    flags = [f"--model_dir={GOLDEN}", "--do_lower_case", f"--output_file={tmp_path / 'page.html'}"]
    result = fork_python(*command, flags[0], TEXT, *flags[1:])
    assert result.stdout.startswith(f"{TEXT}\n")
    assert content_of(tmp_path / "page.html")["texts"] == [TEXT]

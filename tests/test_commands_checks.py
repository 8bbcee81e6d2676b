import io
import sys

import pytest
from conftest import run_python

from bert.commands.checks import Checks, Line
from bert.log import logger
from bert.parts import FAILED


def fail():
    raise ValueError("`--x` must be 1.\nReceived 2.")


def warn(value):
    logger.info("Read %d.", value)
    logger.warning("%d is much.", value)
    return value


def test_all_that_is_wrong_is_shown_and_what_needs_it_is_not_checked():
    checks = Checks()
    good = checks("one", lambda: 3, shows=lambda value: f"{value} things")
    assert checks("two", fail) is FAILED
    assert checks("three", warn, FAILED) is FAILED
    assert checks("four", fail) is FAILED
    assert checks("five", warn, good) == 3
    assert checks.lines == [
        Line("✓", "one", "3 things"),
        Line("✗", "two", "`--x` must be 1. Received 2."),
        Line("–", "three", "not checked, for it needs what is wrong above"),  # noqa: RUF001
        Line("✗", "four", "`--x` must be 1. Received 2."),
        Line("!", "five", "Read 3. 3 is much"),
    ]
    with pytest.raises(SystemExit, match="2 of 5 would end the run"):
        checks.end()


def test_a_bug_is_not_taken_for_a_wrong_input():
    with pytest.raises(KeyError):
        Checks()("one", lambda: {}["x"])


def test_what_is_logged_is_shown_in_the_table_alone(log):
    Checks()("one", warn, 3)
    assert log.messages == []
    warn(3)
    assert log.messages == ["Read 3.", "3 is much."]


def test_terminals_that_cannot_show_the_marks_get_words(monkeypatch):
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="ascii"))
    checks = Checks()
    checks("one", fail)
    checks("two", lambda: 1, shows=lambda _: "é")
    sys.stdout.flush()
    one, two = written.getvalue().decode().splitlines()
    assert one.split() == ["NO", "one", "`--x`", "must", "be", "1.", "Received", "2."]
    assert two.split() == ["OK", "two", "\\xe9"]


def test_the_exit_status_tells_whether_the_run_would_fail(tmp_path):
    (tmp_path / "text.txt").write_text("A sentence. Another.\n")
    arguments = [f"--input_file={tmp_path / 'text.txt'}", f"--output_file={tmp_path / 'out.txt'}"]
    good = run_python("split_sentences.py", *arguments, "--check")
    assert [line[0] for line in good.stdout.splitlines()] == ["✓", "✓"]
    bad = run_python(
        "split_sentences.py", "--input_file=nowhere", arguments[1], "--check", check=False
    )
    assert bad.returncode == 1
    assert [line[0] for line in bad.stdout.splitlines()] == ["✗", "–"]  # noqa: RUF001
    assert bad.stderr.splitlines()[-1] == "1 of 2 would end the run."
    assert [path.name for path in tmp_path.iterdir()] == ["text.txt"]

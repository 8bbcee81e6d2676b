"""Checks of runs: what `--check` shows, and whether the run agrees."""

import re

from bert.commands.checks import WRONG, Checks
from bert.commands.console import explain


def check(script, settings):
    """Returns the lines of `--check`."""
    checks = Checks()
    script.check(settings, checks)
    return checks.lines


def content(folder):
    """Returns all that a folder holds, and when it was written."""
    paths = sorted(folder.rglob("*"))
    return [(p, p.stat().st_mtime_ns, p.read_bytes() if p.is_file() else b"") for p in paths]


def wrong_texts(lines):
    return [line.text for line in lines if line.mark == WRONG]


def refusal(script, settings):
    """Returns the error that a run ends with, one that a script shows as a line, if any."""
    try:
        script.run(settings)
    except (ValueError, ArithmeticError, OSError) as error:
        return error
    return None


def assert_check_and_run_agree(script, settings, folder, *, same_words=True):
    """Asserts that the check shows the faults of the run in the same words, and no others.

    Returns:
      The error of the run, or None.
    """
    before = content(folder)
    lines = check(script, settings)
    assert content(folder) == before
    error = refusal(script, settings)
    assert (error is None) == (wrong_texts(lines) == [])
    if error and same_words:
        for fault in getattr(error, "faults", [error]):
            assert " ".join(str(explain(fault)).split()) in wrong_texts(lines)
    return error


def assert_refused(script, settings, folder, message):
    """Asserts that a run ends with a message, and that the check shows the same."""
    error = assert_check_and_run_agree(script, settings, folder)
    assert re.search(message, str(error)), error

import io
import json
import logging
import os
import re
import sys
import time

import keras
import pytest
from absl import flags
from absl import logging as absl_logging

from bert.commands import lines
from bert.files.display import Progress, visible
from bert.files.outputs import open_output
from bert.log import logger


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self):
        return True


@pytest.fixture
def clear(monkeypatch):
    """Makes logging what a program finds that has not configured it."""
    root, absl = logging.root, absl_logging.get_absl_logger()
    states = [(each, each.level, each.propagate) for each in (logger, absl, root)]

    def clear(stream):
        # Only now has pytest put its own in their place.
        monkeypatch.setattr(sys, "stderr", stream)
        monkeypatch.setattr(root, "handlers", [])
        for each in (logger, absl):
            monkeypatch.setattr(each, "handlers", [])
        monkeypatch.setattr(logging.getLogger("tensorflow"), "propagate", True)
        monkeypatch.setattr(flags.FLAGS["verbosity"], "using_default_value", True)

    verbosity = absl_logging.get_verbosity()
    yield clear
    absl_logging.set_verbosity(verbosity)
    for each, level, propagate in states:
        each.setLevel(level)
        each.propagate = propagate


@pytest.fixture
def show(clear):
    def show(stream):
        clear(stream)
        lines.show_lines()

    return show


def test_tensorflows_warnings_come_once(show, stream, monkeypatch):
    others = logging.getLogger("tensorflow")
    monkeypatch.setattr(others, "handlers", [logging.StreamHandler(stream)])
    monkeypatch.setattr(others, "propagate", True)
    show(stream)
    # As absl does behind a program's first line.
    logging.root.addHandler(logging.StreamHandler(stream))
    others.warning("Retracing.")
    assert stream.getvalue().count("Retracing.") == 1


@pytest.fixture
def stream():
    return io.StringIO()


@pytest.fixture
def terminal(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.delenv("NO_COLOR", raising=False)
    return Terminal()


def log_one_of_each():
    logger.info("A fact of %d", 3)
    logger.warning("Look out.")
    logger.error("It failed.")


def test_lines_of_a_pipe_have_the_time_and_say_what_they_are(stream, show):
    show(stream)
    log_one_of_each()
    said = stream.getvalue().splitlines()
    assert all(re.match(r"\d\d:\d\d:\d\d ", line) for line in said)
    assert [line[9:] for line in said] == ["A fact of 3", "Warning: Look out.", "Error: It failed."]


def test_lines_of_a_terminal_are_short_and_coloured(terminal, show):
    show(terminal)
    log_one_of_each()
    logger.info("[red]no markup[/red] and a line of more than eighty columns, %s", "x" * 60)
    said = terminal.getvalue().splitlines()
    assert said[:3] == [
        "A fact of 3",
        "\x1b[33mWarning: Look out.\x1b[0m",
        "\x1b[31mError: It failed.\x1b[0m",
    ]
    assert said[3] == "[red]no markup[/red] and a line of more than eighty columns, " + "x" * 60


@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_colour_can_be_refused(terminal, show, monkeypatch, name, value):
    monkeypatch.setenv(name, value)
    show(terminal)
    log_one_of_each()
    assert "\x1b" not in terminal.getvalue()
    assert "Warning: Look out.\n" in terminal.getvalue()


def test_a_bar_shows_how_far_it_is_below_the_lines_and_goes(terminal, show, monkeypatch):
    show(terminal)
    times = iter([0.0, 0.0, 0.4, 1.0, 1.01, 2.0, 8.0])
    monkeypatch.setattr(time, "monotonic", lambda: next(times))
    progress = Progress("Reading", 100)
    for done in (4, 10, 11):
        progress(done)
    logger.info("A fact.")
    progress(20)
    shown = re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", terminal.getvalue())
    shown = re.sub("[━╸╺ ]+", " ", shown)
    assert [each for each in re.split("[\r\n]+", shown) if each.strip()] == [
        "Reading ",
        "Reading 10 % ETA 0:00:09",
        "A fact.",
        "Reading 10 % ETA 0:00:09",
        "Reading 20 % ETA 0:00:08",
    ]
    before = len(terminal.getvalue())
    progress(100)
    assert terminal.getvalue()[before:].rstrip("\r").endswith("\x1b[2K")
    # A process that is killed could not show it again.
    assert "\x1b[?25l" not in terminal.getvalue()


def test_a_bar_goes_with_work_that_failed(terminal, show):
    show(terminal)
    progress = Progress("Reading", 100)
    progress.announce("soon")
    assert "soon" in terminal.getvalue()
    del progress
    assert terminal.getvalue().rstrip("\r").endswith("\x1b[2K")


def test_lines_go_on_behind_an_export(stream, show):
    show(stream)
    # As TensorFlow's `tf.saved_model.save` does.
    verbosity = absl_logging.get_verbosity()
    absl_logging.set_verbosity(absl_logging.ERROR)
    absl_logging.set_verbosity(verbosity)
    logger.info("A fact.")
    assert stream.getvalue().endswith(" A fact.\n")


def test_no_bar_is_drawn_between_answers(terminal, show, monkeypatch):
    show(terminal)
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO()))
    sys.stdout.isatty = lambda: True
    with open_output("-"):
        Progress("Answering", 1).announce("soon")
    assert terminal.getvalue() == ""
    Progress("Answering", 1).announce("soon")
    assert "soon" in terminal.getvalue()


@pytest.mark.parametrize("name", [None, "bert"])
def test_a_program_that_has_configured_logging_is_left_alone(stream, clear, name):
    clear(stream)
    logging.getLogger(name).addHandler(logging.StreamHandler(io.StringIO()))
    level = logger.level
    lines.show_lines()
    assert logger.level == level
    assert len(logging.root.handlers + logger.handlers) == 1
    logger.info("A fact.")
    assert stream.getvalue() == ""


@pytest.mark.parametrize("is_absl", [False, True])
def test_a_program_may_give_the_level_alone(stream, clear, is_absl):
    clear(stream)
    if is_absl:
        absl_logging.set_verbosity(absl_logging.ERROR)
    else:
        logger.setLevel("ERROR")
    lines.show_lines()
    log_one_of_each()
    assert [line[9:] for line in stream.getvalue().splitlines()] == ["Error: It failed."]


def test_lines_stay_single_after_a_warning_of_absl(stream, show):
    show(stream)
    absl_logging.warning("Look out.")
    logger.info("A fact.")
    said = [line[9:] for line in stream.getvalue().splitlines()]
    assert said == ["Warning: Look out.", "A fact."]


def test_nothing_is_doubled(stream, clear):
    clear(stream)
    lines.write_lines()
    lines.write_lines()
    lines.show_lines()
    logger.setLevel("INFO")
    logger.info("A fact.")
    assert len(stream.getvalue().splitlines()) == 1


def test_libraries_are_heard_when_something_is_wrong(stream, clear):
    clear(stream)
    lines.write_lines()
    logger.setLevel("INFO")
    logging.root.setLevel("INFO")
    tensorflow = logging.getLogger("tensorflow")
    path = os.path.join(os.path.dirname(keras.__file__), "a.py")
    for level in (logging.INFO, logging.ERROR):
        tensorflow.log(level, "Assets written")
        logging.getLogger("httpx").log(level, "HTTP Request")
        record = logging.LogRecord("absl", level, path, 1, "Sharding", (), None)
        absl_logging.get_absl_logger().handle(record)
    logging.getLogger("bert.serving.http").info("One of ours")
    said = [line[9:] for line in stream.getvalue().splitlines()]
    wrong = ["Error: Assets written", "Error: HTTP Request", "Error: Sharding"]
    assert said == [*wrong, "One of ours"]
    # With --verbosity=1, all is shown.
    logger.setLevel("DEBUG")
    logging.getLogger("httpx").info("HTTP Request")
    assert stream.getvalue().splitlines()[-1][9:] == "HTTP Request"
    logging.root.setLevel("WARNING")


# What would move the cursor, begin a line that nobody logged, or turn what stands around it.
FORGED = "good\x1b[2J\n12:00:00 Error: forged\x9b1A\r\u2028a\u202eb"


@pytest.mark.parametrize("argument", [FORGED, ValueError(FORGED), [FORGED]])
def test_what_users_wrote_is_neither_obeyed_by_a_terminal_nor_a_line_of_its_own(
    stream, terminal, show, argument
):
    for each in (stream, terminal):
        show(each)
        logger.info("A label: %s, %d of them", argument, 2)
        logger.info("%r is kept.", argument)
        said = each.getvalue().removesuffix("\n")
        assert "A label: " in said
        assert "\\n12:00:00 Error: forged\\x9b1A" in said
        # A text that is shown as Python writes it is spelled once.
        assert f"{argument!r} is kept." in said
        assert said.count("\n") == 1
        assert [char for char in said if not char.isprintable()] == ["\n"]


def test_lines_of_a_message_and_of_a_trace_stay(stream, show):
    show(stream)
    try:
        raise ValueError("a\x1b[2J")
    except ValueError:
        logger.exception("One.\n\tTwo.")
    said = stream.getvalue()
    assert said[9:].startswith("Error: One.\n\tTwo.\nTraceback")
    assert said.endswith("ValueError: a\\x1b[2J\n")


def test_lines_as_json_are_objects(stream, clear):
    clear(stream)
    lines.write_json_lines()
    logger.setLevel("INFO")
    logger.warning("A label: %s", FORGED)
    logger.info("%d", 1, extra={"fields": {"path": FORGED, "status": 200}})
    first, second = map(json.loads, stream.getvalue().splitlines())
    assert first["level"] == "warning"
    assert first["message"] == f"A label: {visible(FORGED)}"
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", first["time"])
    assert (second["path"], second["status"]) == (FORGED, 200)


def test_answers_on_a_terminal_are_not_obeyed_and_elsewhere_are_as_they_are(monkeypatch):
    content = "a\tb\x1b[2J\u009b1A é\n".encode()
    for is_terminal, shown in ((False, content), (True, "a\tb\\x1b[2J\\x9b1A é\n".encode())):
        stdout = io.BytesIO()
        monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(stdout))
        sys.stdout.isatty = lambda is_terminal=is_terminal: is_terminal
        with open_output("-") as output:
            output.write(content)
            output.flush()
        assert stdout.getvalue() == shown

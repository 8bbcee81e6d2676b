import pytest
from conftest import run_python

from bert.command_line.console import Progress, clock, time


def test_progress_is_logged_with_the_time_to_go(monkeypatch, log):
    times = iter([0.0, 5.0, 20.0, 25.0, 30.0, 45.0])
    monkeypatch.setattr(time, "monotonic", lambda: next(times))
    progress = Progress("Reading", 100)
    for done in (10, 40, 50, 75, 100):
        progress(done)
    assert log.messages == ["Reading: 40 %  ETA 0:00:30", "Reading: 75 %  ETA 0:00:10"]


def test_work_that_is_soon_done_logs_nothing(monkeypatch, log):
    times = iter([0.0, 4.0, 9.9, 10.0])
    monkeypatch.setattr(time, "monotonic", lambda: next(times))
    progress = Progress("Reading", 3)
    for done in (1, 2, 3):
        progress(done)
    assert log.messages == []


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0:00:00"), (59.6, "0:01:00"), (3 * 3600 + 62, "3:01:02")]
)
def test_a_clock_has_hours_minutes_and_seconds(seconds, text):
    assert clock(seconds) == text


SCRIPT = """
from absl import flags
from bert.command_line.console import run_script

flags.DEFINE_bool("do_lower_case", True, "Uncased.")
flags.DEFINE_bool("do_train", False, "Train.")
flags.DEFINE_integer("count", 3, "How many.")
run_script(lambda arguments: print("ran with", arguments[1:]), takes_arguments={takes})
"""


@pytest.mark.parametrize("takes", [True, False])
@pytest.mark.parametrize(
    ("arguments", "remedy"),
    [
        (
            ["--do_lower_case", "False", "--count=1"],
            "Write `--do_lower_case False` as `--do_lower_case=false` or `--nodo_lower_case`.",
        ),
        (["--count", "0", "--do_train", "1"], "Write `--do_train 1` as `--do_train=1` or `--do_tr"),
        (["-do_train", "true"], "Write `-do_train true` as `--do_train=true` or `--do_train`."),
    ],
)
def test_the_value_of_a_boolean_flag_behind_a_space_is_answered(takes, arguments, remedy):
    result = run_python("-c", SCRIPT.format(takes=takes), *arguments, check=False)
    assert result.returncode != 0
    assert remedy in " ".join(result.stdout.split()) + " ".join(result.stderr.split())
    assert "ran with" not in result.stdout


def test_other_arguments_are_named_as_they_are():
    result = run_python("-c", SCRIPT.format(takes=False), "--count", "1", "0", check=False)
    assert result.returncode != 0
    assert "Arguments must be flags. Received ['0'].\n" in result.stdout + result.stderr
    result = run_python("-c", SCRIPT.format(takes=True), "--do_train", "text", "0")
    assert result.stdout == "ran with ['text', '0']\n"

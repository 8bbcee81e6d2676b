import pytest

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

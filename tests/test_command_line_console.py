from bert.command_line.console import Progress, time


def test_progress_is_logged_with_the_time_to_go(monkeypatch, log):
    clock = iter([0.0, 5.0, 20.0, 25.0, 30.0])
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    progress = Progress("Reading", 100)
    for done in (10, 40, 50, 75):
        progress(done)
    assert log.messages == [
        "Reading: 40 %, about 30 s to go.",
        "Reading: 75 %, about 10 s to go.",
    ]

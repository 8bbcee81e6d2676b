import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert.files.display import duration_text, read_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("60m", 3600), ("1.5h", 5400), ("1h30m", 5400), ("1h0.5s", 3600.5), ("0h2s", 2)],
)
def test_times_are_read_as_they_are_typed(text, seconds):
    assert read_duration(text) == seconds


@pytest.mark.parametrize(
    "text",
    ["", "60", "0m", "0h0s", "-5m", "1e3s", "5 m", "30m1h", "1h1h", "5min", "nan", "m", "\u0661h"],
)
def test_what_is_no_time_is_told(text):
    with pytest.raises(ValueError, match=r"such as 90s, 60m, 1\.5h or 1h30m") as error:
        read_duration(text)
    assert str(error.value).endswith(f"Received {text!r}")


@given(st.integers(1, 10**7))
def test_the_same_times_are_written_the_same(milliseconds):
    seconds = milliseconds / 1000
    assert read_duration(duration_text(seconds)) == pytest.approx(seconds, rel=1e-5)
    assert duration_text(read_duration(f"{seconds:.3f}s")) == duration_text(seconds)


def test_a_time_is_written_in_its_greatest_units():
    assert duration_text(5400) == duration_text(read_duration("90m")) == "1h30m"
    assert duration_text(read_duration("1.1h")) == duration_text(read_duration("66m")) == "1h6m"
    assert [duration_text(each) for each in (60, 90, 0.5, 86400)] == ["1m", "1m30s", "0.5s", "24h"]

"""A cache of the user keeps what was used last, and what others are making."""

import os
import time

import pytest

from bert.files import cache

DAY = 24 * 60 * 60


@pytest.fixture
def entry(tmp_path, monkeypatch):
    """A function that returns the entry of a letter."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return lambda letter: cache.Entry.find("mine", letter * 64)


def write(entry, age):
    entry.write(b"x" * 1000)
    os.utime(entry.path, (time.time() - age,) * 2)


def test_as_many_entries_stay_as_fit_and_the_last_used_go_last(entry, monkeypatch):
    write(entry("a"), 40)
    size = sum(each.stat().st_size for each in os.scandir(entry("a").path))
    monkeypatch.setattr(cache, "_MAX_BYTES", 3 * size)
    write(entry("b"), 30)
    write(entry("c"), 20)
    assert all(entry(letter).exists for letter in "abc")
    assert entry("a").read() == b"x" * 1000
    write(entry("d"), 10)
    assert [letter for letter in "abcd" if entry(letter).exists] == ["a", "c", "d"]


def test_what_another_process_makes_stays_for_a_day(entry):
    write(entry("a"), 0)
    for name, age in ((".making-new", DAY - 99), (".making-old", DAY + 99)):
        folder = os.path.join(entry("a").root, name)
        os.mkdir(folder)
        with open(os.path.join(folder, "content"), "wb") as file:
            file.write(b"x")
        os.utime(folder, (time.time() - age,) * 2)
    write(entry("b"), 0)
    assert sorted(os.listdir(entry("a").root)) == [".making-new", "a" * 64, "b" * 64]

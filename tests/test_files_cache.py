"""A cache of the user keeps what was used last, and what others are making."""

import os
import time

import pytest

from bert.files import cache
from bert.files.durable import discard, open_beside


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
    size = os.path.getsize(entry("a").path)
    monkeypatch.setattr(cache, "_MAX_BYTES", 3 * size)
    write(entry("b"), 30)
    write(entry("c"), 20)
    assert all(entry(letter).exists for letter in "abc")
    assert entry("a").read() == b"x" * 1000
    write(entry("d"), 10)
    assert [letter for letter in "abcd" if entry(letter).exists] == ["a", "c", "d"]


def test_what_another_process_makes_stays_and_what_a_killed_one_made_does_not(entry):
    write(entry("a"), 0)
    made = open_beside(entry("c").path)
    killed = made[0].replace("c" * 64, "d" * 64)
    with open(killed, "wb") as file:
        file.write(b"x")
    write(entry("b"), 0)
    paths = {os.path.join(entry("a").root, name) for name in os.listdir(entry("a").root)}
    assert paths == {entry("a").path, entry("b").path, made[0]}
    discard([made])

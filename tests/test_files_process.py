import os

from helpers.overlaps import second_of_two

from bert.files.process import hidden_stderr


def test_standard_error_is_hidden_until_the_last_thread_shows_it(monkeypatch):
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "3")
    before, nowhere = os.fstat(2), os.stat(os.devnull)
    with second_of_two(hidden_stderr):
        assert os.path.samestat(os.fstat(2), nowhere)
    assert os.path.samestat(os.fstat(2), before)

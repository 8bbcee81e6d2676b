"""Calls whose results the tests of a module share."""

import contextlib

import pytest


@contextlib.contextmanager
def remembered(owner, name, key_of):
    """Within it, a function runs once for each key of its arguments; it builds a graph."""
    function, results = getattr(owner, name), {}

    def call(*args, **kwargs):
        key = key_of(*args, **kwargs)
        if key not in results:
            results[key] = function(*args, **kwargs)
        return results[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, name, call)
        yield

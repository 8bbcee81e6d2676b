"""The fixture `log`, imported where tests read what is logged."""

import pytest


@pytest.fixture
def log(caplog):
    """What absl logs, as `log.messages`."""
    caplog.set_level("INFO", logger="absl")
    return caplog

"""The fixture `log`, imported where tests read what is logged."""

import pytest


@pytest.fixture
def log(caplog):
    """What the project logs, as `log.messages`."""
    caplog.set_level("INFO", logger="bert")
    return caplog

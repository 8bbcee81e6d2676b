"""The fixture `new_flags`, imported where tests define flags, which are global."""

import pytest
from absl import flags


@pytest.fixture
def new_flags():
    """Returns, when called, what the test has defined, also by a given script; forgotten later."""
    before = set(flags.FLAGS)

    def find(script=None):
        if script is not None:
            script.define_flags()
        return {name: flags.FLAGS[name] for name in set(flags.FLAGS) - before}

    yield find
    for name in set(flags.FLAGS) - before:
        delattr(flags.FLAGS, name)
    flags.FLAGS.unparse_flags()
    flags.FLAGS.set_gnu_getopt(False)

import re
from importlib import metadata

from conftest import ROOT


def test_what_beam_needs_stands_before_the_packages_of_the_project():
    listed = (ROOT / "requirements-beam.txt").read_text()
    # Of those for some versions of Python alone, one is there.
    pinned = set(re.findall(r"^([\w-]+)==([\w.]+)", listed, re.MULTILINE))
    names = {name for name, _ in pinned}
    assert {(name, metadata.version(name)) for name in names} <= pinned

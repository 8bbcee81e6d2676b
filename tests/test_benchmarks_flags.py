import subprocess
import sys

import pytest
from conftest import ROOT

sys.path.insert(0, str(ROOT / "benchmarks"))

import growth


@pytest.mark.parametrize(
    ("script", "flags", "said"),
    [
        ("prediction", ["--batches=8,24"], "must divide 64. Received [24]"),
        ("same_bytes", ["--before=x", "--only=squad,foo"], "Received ['foo']"),
        ("machines", ["--text=x", "--machines=1"], "--machines must be at least 2"),
        ("tokenization_speed", ["--text=nothing*"], "--text must match files with text"),
    ],
)
def test_what_cannot_be_measured_is_refused_by_its_flag(script, flags, said):
    command = [sys.executable, ROOT / f"benchmarks/{script}.py", *flags]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 2
    assert said in result.stderr.splitlines()[-1]


def test_growth_is_computed_from_two_sizes_at_least():
    assert growth.compute([], 1.0) is None
    assert growth.compute([5.0], 1.0) is None
    assert growth.compute([5.0, 7.0], 70.0) is None
    assert growth.compute([5.0, 7.0], 69.0) == 25.0

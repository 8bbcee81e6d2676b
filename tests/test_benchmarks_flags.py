import subprocess
import sys

import pytest
from conftest import ROOT


@pytest.mark.parametrize(
    ("script", "flags", "said"),
    [
        ("prediction", ["--batches=8,24"], "must divide 64. Received [24]"),
    ],
)
def test_what_cannot_be_measured_is_refused_by_its_flag(script, flags, said):
    command = [sys.executable, ROOT / f"benchmarks/{script}.py", *flags]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 2
    assert said in result.stderr.splitlines()[-1]

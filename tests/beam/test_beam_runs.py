import functools
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from apache_beam.runners.portability.fn_api_runner import worker_handlers
from beam_modes import PROCESSES, double, pipeline, refuse, refuse_and_tell
from conftest import ROOT

from bert.scale import batches
from bert.scale.batches import run_pipeline
from bert.scale.options import BeamOptions

HERE = Path(__file__).parent


@pytest.fixture(autouse=True)
def _found(monkeypatch):
    """Lets worker processes import what the pipelines do."""
    monkeypatch.setenv("PYTHONPATH", str(HERE))


def settings(options, runner="DirectRunner"):
    return BeamOptions(runner=runner, beam_options=options)


# That of a runner elsewhere, as Flink's and Spark's are spoken to.
SERVER = "--job_endpoint=embed --environment_type=LOOPBACK"


@pytest.mark.parametrize(
    ("runner", "options"), [("DirectRunner", PROCESSES), ("PortableRunner", SERVER)]
)
def test_counters_are_logged_and_errors_are_one_line(log, runner, options):
    asked = settings(options, runner)
    assert run_pipeline(asked, pipeline(double)) == {"numbers": 1}
    assert "Counted: 1 numbers." in log.messages
    with pytest.raises(ValueError, match=r"to its end\. No such number: 3\. `verb"):
        run_pipeline(asked, pipeline(refuse))


# A process that starts Python when the other one has refused the work; or after ten seconds, for
# on a busy machine it may be the one that is to do it.
LATE = """#!/bin/sh
if test $WORKER_ID = worker_{number}; then
  tries=100
  while test $tries -gt 0 && ! test -e {folder}/refused; do
    sleep 0.1
    tries=$((tries - 1))
  done
fi
exec {python} "$@"
"""


def test_a_process_that_starts_late_is_not_waited_for(tmp_path, monkeypatch):
    late = tmp_path / "python"
    # Of two processes, the first one mostly gets the only example.
    number = worker_handlers.WorkerHandler._worker_id_counter + 2
    late.write_text(LATE.format(number=number, folder=tmp_path, python=sys.executable))
    late.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(late))
    refusing = functools.partial(refuse_and_tell, str(tmp_path / "refused"))
    with pytest.raises(ValueError, match=r"No such number: 3\."):
        run_pipeline(settings(PROCESSES), pipeline(refusing))


SCRIPT = """
from beam_modes import PROCESSES, die, pipeline
from bert.commands import console
from bert.scale import batches

def main(_):
    settings = batches.BeamOptions(runner="DirectRunner", beam_options=PROCESSES)
    batches.run_pipeline(settings, pipeline(die), lambda: print("Cleared.", flush=True))

console.run_script(main)
"""


def test_a_process_that_dies_ends_the_script():
    result = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE), str(ROOT)])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 1
    told = r"Error: `--runner=DirectRunner` .* exited with return code (-9|137)\. Was there memory"
    assert re.search(told, result.stderr), result.stderr
    assert "Traceback" not in result.stderr
    assert result.stdout == "Cleared.\n"


def test_a_missing_cluster_is_named():
    nowhere = "--job_endpoint=localhost:1 --job_server_timeout=1"
    with pytest.raises(ValueError, match="Nothing answers where `beam_options` says"):
        run_pipeline(settings(nowhere, "PortableRunner"), pipeline(double))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("--direct_num_worker=2", "unknown: direct_num_worker"),
        ("--direct_num_workers=x", "invalid int value: 'x'"),
        ("'", "No closing quotation"),
        ("--runner=FlinkRunner", "an option of its own"),
    ],
)
def test_options_that_beam_has_not_are_refused(options, said, capfd):
    with pytest.raises(ValueError, match=f"`beam_options` must be options of Beam.*{said}"):
        batches.check_beam(settings(options))
    assert capfd.readouterr() == ("", "")

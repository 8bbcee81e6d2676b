import pytest

from bert.scale import batches
from bert.scale.options import BeamOptions


def test_nothing_is_needed_where_no_pipeline_is_run():
    batches.check_beam(BeamOptions())


def test_options_need_a_runner():
    with pytest.raises(
        ValueError, match=r"`beam_options` must go with `runner`\. Received '--x=1'"
    ):
        batches.check_beam(BeamOptions(beam_options="--x=1"))


def test_a_runner_needs_beam(monkeypatch):
    monkeypatch.setattr(batches.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"runner='FlinkRunner'.*pip install '\.\[beam\]'"):
        batches.check_beam(BeamOptions(runner="FlinkRunner"))


TRACE = """Pipeline job-1 failed in state FAILED: Error running pipeline.
Traceback (most recent call last):
  File "runner.py", line 1395, in process_bundle
    raise RuntimeError(result.error)
RuntimeError: Traceback (most recent call last):
  File "core.py", line 2128, in <lambda>
    wrapper = lambda x: [fn(x)]
ValueError: `--model_dir` must be a folder. Received 'x'. [while running 'Map(f)']
"""


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (TRACE, "`--model_dir` must be a folder. Received 'x'."),
        ("Errors: \nMissing: project.\nMissing: region.", "Errors: Missing: project. Missing:"),
        ("Unable to fetch", "Unable to fetch. `verbosity=1`"),
        ("long " * 1000, "long… `verb"),
    ],
)
def test_an_error_of_a_runner_becomes_one_line(said, told):
    line = str(batches._failure(BeamOptions(runner="FlinkRunner"), said))
    assert line.startswith("`runner='FlinkRunner'` must bring the work to its end. ")
    assert told in line and "\n" not in line and "Traceback" not in line and len(line) < 1000

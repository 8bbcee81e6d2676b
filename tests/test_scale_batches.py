import dataclasses

import pytest

import extract_features
import predict
from bert.scale import batches
from bert.scale import batches as pipeline
from bert.scale.batches import changing_options, key_of
from bert.scale.features import FeatureWork
from bert.scale.options import BeamOptions, Extraction

# Of these, files count by what they hold, and the others change nothing of what is made.
WITHOUT_DIFFERENCE = {
    *("model_dir", "init_checkpoint", "bert_config_file", "vocab_file"),
    *("input_file", "output_file", "check", "overwrite", "runner", "beam_options"),
    *("use_tpu", "on_error"),
}


def settings_of(script, values):
    """Returns settings with any values, also those that a flag may not have."""
    settings = object.__new__(script.Settings)
    vars(settings).update(values)
    return settings


@pytest.mark.parametrize("script", [predict, extract_features])
def test_every_flag_counts_but_those_that_make_no_difference(script):
    fields = {field.name: "x" for field in dataclasses.fields(script.Settings)}

    def key(values, *inputs):
        return key_of(changing_options(settings_of(script, values)), *inputs)

    changed = {name for name in fields if key({**fields, name: "y"}, 1) != key(fields, 1)}
    assert changed == fields.keys() - WITHOUT_DIFFERENCE
    assert {"columns", "separator"} & changed and "batch_size" in changed
    assert key(fields, 2) != key(fields, 1)


@pytest.mark.parametrize(
    ("script", "key"), [(predict, "9a7aa9506214"), (extract_features, "d84041db854a")]
)
def test_unfinished_files_of_earlier_versions_are_found_by_their_key(script, key):
    given = {field.name: f"x{field.name}" for field in dataclasses.fields(script.Settings)}
    # Earlier versions had no such options.
    for later in ("min_probability", "engine"):
        given.pop(later, None)
    assert key_of(changing_options(settings_of(script, given)), 1) == key


@pytest.mark.parametrize("num_chunks", [1, 2, 3, 7, 8, 9, 23, 24, 25])
def test_files_of_a_pipeline_have_all_texts_and_are_few(monkeypatch, num_chunks):
    monkeypatch.setattr(pipeline, "_FILES", 4)
    # Chunks of different sizes; the last one ends with the last text.
    starts = [number * number for number in range(num_chunks + 1)]
    settings = Extraction(input_file="text.txt", output_file="out", init_checkpoint="model")
    work = FeatureWork.plan("folder", settings, starts[:-1], starts[-1])
    assert (work.bounds[0], work.bounds[-1]) == (0, starts[-1])
    assert work.bounds == sorted({*work.bounds} & {*starts})
    assert min(num_chunks, 4) <= len(work.paths) <= 7


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

import dataclasses

import pytest

import extract_features
import predict
from bert.batch.pipeline import key_of

# Of these, files count by what they hold, and the others change nothing of what is made.
WITHOUT_DIFFERENCE = {
    *("model_dir", "init_checkpoint", "bert_config_file", "vocab_file"),
    *("input_file", "output_file", "check", "overwrite", "runner", "beam_options"),
    *("use_tpu", "on_error"),
}


@pytest.mark.parametrize("script", [predict, extract_features])
def test_every_flag_counts_but_those_that_make_no_difference(script):
    fields = {field.name: "x" for field in dataclasses.fields(script.Settings)}
    given = script.Settings(**fields)
    changed = {
        name
        for name in fields
        if key_of(dataclasses.replace(given, **{name: "y"}), 1) != key_of(given, 1)
    }
    assert changed == fields.keys() - WITHOUT_DIFFERENCE
    assert {"columns", "separator"} & changed and "batch_size" in changed
    assert key_of(given, 2) != key_of(given, 1)

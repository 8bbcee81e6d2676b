import os

import pytest
from conftest import exhaustive
from helpers.forks import fork_python
from helpers.served_models import make_model, save_model

from bert.models.frozen_weights import VARIABLE, assume_frozen_weights
from bert.tasks.task import at_precision

# Each model runs in one graph for batches of all sizes, whose weights are kept from the first one.
MODELS = """
import keras, numpy as np, tensorflow as tf
import modeling
from bert.network import heads
from bert.pretraining.heads import pretraining_model
from bert.network.inference import infer

config = modeling.BertConfig(
    vocab_size=29, hidden_size=8, num_hidden_layers=2, num_attention_heads=4,
    intermediate_size=12, max_position_embeddings=80, type_vocab_size=3)
rng = np.random.default_rng(0)
kinds = {{
    "classifier": heads.classifier_model,
    "tags": heads.tagging_model,
    "spans": lambda config, _, dtype: heads.span_model(config, dtype),
    "tokens": lambda config, _, dtype: pretraining_model(config, dtype),
}}
for name, kind in kinds.items():
    keras.utils.set_random_seed(1)
    model = kind(config, 3, "{dtype}")
    signature = {{name: tf.TensorSpec([None, None], tf.int32) for name in model.input}}
    run = tf.function(lambda inputs: infer(model, inputs), input_signature=[signature])
    for rows, length in [(1, 5), (4, 70), (9, 33), (1, 5)]:
        inputs = {{
            name: rng.integers(0, 3, (rows, length)).astype(np.int32) for name in model.input}}
        expected, found = model(inputs, training=False), run(inputs)
        for each in expected:
            np.testing.assert_allclose(
                np.asarray(found[each], np.float32), np.asarray(expected[each], np.float32),
                rtol=0, atol={tolerance}, err_msg=f"{{name}} {{each}} {{rows}} {{length}}")
    print(name)
"""


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [*exhaustive(("float32", 1e-5)), ("bfloat16", 0.03)]
)
def test_frozen_weights_give_the_outputs_of_the_model(dtype, tolerance):
    code = MODELS.format(dtype=dtype, tolerance=tolerance)
    found = fork_python("-c", code, **{VARIABLE: "1"})
    assert found.stdout.split() == ["classifier", "tags", "spans", "tokens"], found.stderr


def test_a_program_that_may_train_is_left_alone():
    assume_frozen_weights("bfloat16")
    assert VARIABLE not in os.environ


@pytest.mark.parametrize(
    ("precision", "before", "after"),
    [
        *(("bfloat16", {}, "1"), ("mixed_bfloat16", {}, "1"), ("float32", {}, None)),
        ("bfloat16", {VARIABLE: "0"}, "0"),
    ],
)
def test_a_script_promises_it_where_one_order_serves_all_sizes(precision, before, after):
    code = f"""
import os, sys
from bert.commands import console
from bert.models import frozen_weights
def main(_):
    frozen_weights.assume_frozen_weights("{precision}")
    print(os.environ.get("{VARIABLE}"))
sys.argv = ["script.py"]
console.run_script(main)
"""
    assert fork_python("-c", code, **before).stdout.split() == [str(after)]


@pytest.mark.parametrize(
    ("model", "flags", "promised"),
    [
        ("folder", ["--precision=bfloat16"], "1"),
        *exhaustive(("folder", [], "None")),
        ("float32", [], "None"),
        ("bfloat16", [], "1"),
    ],
)
def test_predicting_goes_by_the_precision_of_a_model(tmp_path, model, flags, promised):
    folder = save_model("labels", tmp_path / "folder")
    if model != "folder":
        loaded = make_model("labels")
        folder = str(tmp_path / "saved_model")
        loaded.task.export(folder, at_precision(loaded.task, loaded.model, model))
    code = f"""
import atexit, os, runpy, sys
sys.argv[0] = "predict.py"
atexit.register(lambda: print(os.environ.get("{VARIABLE}")))
runpy.run_path("predict.py", run_name="__main__")
"""
    (tmp_path / "in.jsonl").write_text('{"text_a": "a b c"}\n')
    paths = [f"--input_file={tmp_path}/in.jsonl", f"--output_file={tmp_path}/out.jsonl"]
    found = fork_python("-c", code, f"--model_dir={folder}", *paths, *flags)
    assert found.stdout.split() == [promised]
    assert (tmp_path / "out.jsonl").read_text().count("label") == 1

import os

import pytest
from forks import fork_python

from bert.command_line.frozen_weights import VARIABLE, assume_frozen_weights

# Each model runs in one graph for batches of all sizes, whose weights are kept from the first one.
MODELS = """
import keras, numpy as np, tensorflow as tf
import modeling
from bert.tasks import heads
from bert.tasks.pretraining.heads import pretraining_model
from bert.training.inference import infer

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


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-5), ("bfloat16", 0.03)])
def test_kept_weights_give_what_the_model_gives(dtype, tolerance):
    code = MODELS.format(dtype=dtype, tolerance=tolerance)
    found = fork_python("-c", code, **{VARIABLE: "1"})
    assert found.stdout.split() == ["classifier", "tags", "spans", "tokens"], found.stderr


def test_a_program_that_may_train_is_left_alone():
    assume_frozen_weights()
    assert VARIABLE not in os.environ


@pytest.mark.parametrize("script", ["predict.py", "serve.py", "extract_features.py"])
def test_scripts_that_only_predict_promise_that_weights_stay(script):
    code = f"""
import os, sys
import {script[:-3]} as script
from bert.command_line import console
script.start = lambda *_: print(os.environ["{VARIABLE}"])
script.common_flags.read_settings = lambda _: None
sys.argv = ["{script}"]
console.run_script(script.main)
"""
    assert fork_python("-c", code).stdout.split() == ["1"]
    assert fork_python("-c", code, **{VARIABLE: "0"}).stdout.split() == ["0"]

import json

import keras
import numpy as np
import pytest
import tensorflow as tf
from conftest import GOLDEN, make_examples

import modeling
import run_squad
import tokenization
from bert.network.heads import span_model
from bert.training.loop import NonFiniteLossError

v1 = tf.compat.v1
NAMES = ("input_ids", "input_mask", "segment_ids")


@pytest.fixture(scope="module")
def config():
    return modeling.BertConfig.from_json_file(str(GOLDEN / "bert_config.json"))


@pytest.fixture(scope="module")
def tokenizer():
    return tokenization.FullTokenizer(str(GOLDEN / "vocab.txt"))


def model_fn_of(config, **changes):
    arguments = {
        "init_checkpoint": None,
        "learning_rate": 1e-2,
        "num_train_steps": 40,
        "num_warmup_steps": 4,
        "use_tpu": False,
        "use_one_hot_embeddings": False,
    }
    return run_squad.model_fn_builder(config, **{**arguments, **changes})


def write_windows(path, tokenizer, version, is_training):
    """Does what the original's `main` does; returns the examples and all features."""
    flags = json.loads((GOLDEN / f"squad_{version}_flags.json").read_text())
    examples = run_squad.read_squad_examples(
        str(GOLDEN / f"squad_{version}.json"), is_training, flags["version_2_with_negative"]
    )
    writer = run_squad.FeatureWriter(str(path), is_training)
    features = []

    def keep(feature):
        features.append(feature)
        writer.process_feature(feature)

    lengths = [flags[name] for name in ("max_seq_length", "doc_stride", "max_query_length")]
    run_squad.convert_examples_to_features(examples, tokenizer, *lengths, is_training, keep)
    writer.close()
    return flags, examples, features


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_answers_are_the_original_ones(tmp_path, config, tokenizer, version):
    flags, examples, features = write_windows(tmp_path / "records", tokenizer, version, False)
    model_fn = model_fn_of(
        config,
        init_checkpoint=str(GOLDEN / f"squad_{version}" / "model.ckpt"),
        num_train_steps=None,
    )
    input_fn = run_squad.input_fn_builder(str(tmp_path / "records"), 48, False, False)
    results = []
    for batch in input_fn({"batch_size": 8}):
        predictions = model_fn(batch, None, "infer", {}).predictions
        names = ("unique_ids", "start_logits", "end_logits")
        for unique_id, start, end in zip(
            *(predictions[name].numpy() for name in names), strict=True
        ):
            results.append(run_squad.RawResult(int(unique_id), start.tolist(), end.tolist()))
    assert len(results) == len(features) == flags["features"]
    files = {name: tmp_path / f"{name}.json" for name in ("predictions", "nbest", "odds")}
    is_v2 = flags["version_2_with_negative"]
    run_squad.write_predictions(
        examples,
        features,
        results,
        flags["n_best_size"],
        flags["max_answer_length"],
        flags["do_lower_case"],
        *map(str, files.values()),
        version_2_with_negative=is_v2,
    )
    original = GOLDEN / f"squad_{version}_predictions.json"
    assert json.loads(files["predictions"].read_text()) == json.loads(original.read_text())
    if is_v2:
        expected = json.loads((GOLDEN / "squad_v2_null_odds.json").read_text())
        found = json.loads(files["odds"].read_text())
        assert found == pytest.approx(expected, abs=1e-4)


def test_it_learns_where_answers_are(tmp_path, config, tokenizer):
    write_windows(tmp_path / "records", tokenizer, "v1", True)
    model_fn = model_fn_of(config, init_checkpoint=str(GOLDEN / "bert_model.ckpt"))
    input_fn = run_squad.input_fn_builder(str(tmp_path / "records"), 48, True, True)
    batches = input_fn({"batch_size": 8}).take(40)
    losses = [model_fn(batch, None, "train").train_op() for batch in batches]
    assert np.mean(losses[-5:]) < 0.6 * losses[0]
    with pytest.raises(ValueError, match=r"one of \['train', 'infer'\]\. Received 'eval'"):
        model_fn(batch_of(config), None, "eval")


def batch_of(config):
    examples = make_examples(config, 2)
    return {name: examples[name] for name in NAMES}


def test_missing_features_are_named(tiny_config):
    model_fn = model_fn_of(tiny_config)
    for mode, name in (("infer", "unique_ids"), ("train", "start_positions")):
        with pytest.raises(ValueError, match=rf"`features` must have \['{name}'\]"):
            model_fn(batch_of(tiny_config), None, mode)


@pytest.mark.usefixtures("eager")
def test_training_that_diverges_says_so(tiny_config):
    model_fn = model_fn_of(tiny_config)
    model_fn.model.get_layer("span").output_bias.assign([np.inf, 0])
    batch = {**batch_of(tiny_config), "start_positions": [1, 2], "end_positions": [1, 3]}
    with pytest.raises(NonFiniteLossError, match="At step 1"):
        model_fn(batch, None, "train").train_op()


def test_the_model_has_the_original_names_and_the_numbers_of_the_house(config):
    checkpoint = str(GOLDEN / "squad_v1" / "model.ckpt")
    reader = tf.train.load_checkpoint(checkpoint)
    plain = span_model(config)
    symbolic = [keras.Input((None,), dtype="int32") for _ in NAMES]
    model = keras.Model(symbolic, run_squad.create_model(config, False, *symbolic, False))
    assert {each.path for each in model.weights} == {each.path for each in plain.weights}
    for variable in (*model.weights, *plain.weights):
        variable.assign(reader.get_tensor(variable.path))
    batch = batch_of(config)
    expected = plain(batch)
    outputs = [model([batch[name] for name in NAMES])]
    with tf.Graph().as_default(), v1.Session() as session:
        tensors = [v1.placeholder(tf.int32, (None, None)) for _ in NAMES]
        logits = run_squad.create_model(config, False, *tensors, False)
        assignment_map, _ = modeling.get_assignment_map_from_checkpoint(
            v1.trainable_variables(), checkpoint
        )
        assert len(assignment_map) == len(v1.global_variables()) == len(plain.weights)
        v1.train.init_from_checkpoint(checkpoint, assignment_map)
        session.run(v1.global_variables_initializer())
        feed = {tensor: batch[name] for tensor, name in zip(tensors, NAMES, strict=True)}
        outputs.append(session.run(logits, feed))
    for start, end in outputs:
        np.testing.assert_allclose(start, expected["start_logits"], rtol=0, atol=1e-5)
        np.testing.assert_allclose(end, expected["end_logits"], rtol=0, atol=1e-5)

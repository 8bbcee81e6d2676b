import json

import keras
import numpy as np
import pytest
import tensorflow as tf
from conftest import GOLDEN, change, golden_batch, make_examples, write_examples

import modeling
import optimization
import run_pretraining
from bert.original import model_fn
from bert.pretraining import heads as pretraining_heads

v1 = tf.compat.v1
# Names of the features, and whether they have a column for each masked token.
INPUTS = ("input_ids", "input_mask", "segment_ids", "masked_lm_positions", "masked_lm_ids")
CHECKPOINT = str(GOLDEN / "bert_model.ckpt")


@pytest.fixture(scope="module")
def config():
    return modeling.BertConfig.from_json_file(str(GOLDEN / "bert_config.json"))


def outputs_of(config, features, is_training=False):
    """Returns both heads' losses and outputs, written as the original's model_fn."""
    names = ("input_ids", "input_mask", "segment_ids")
    bert = modeling.BertModel(config, is_training, *(features[name] for name in names))
    masked = run_pretraining.get_masked_lm_output(
        config,
        bert.get_sequence_output(),
        bert.get_embedding_table(),
        features["masked_lm_positions"],
        features["masked_lm_ids"],
        features["masked_lm_weights"],
    )
    pairs = run_pretraining.get_next_sentence_output(
        config, bert.get_pooled_output(), features["next_sentence_labels"]
    )
    return masked, pairs


def assert_original_numbers(masked, pairs):
    # Float32 sums in another order differ by a few 1e-7 a layer.
    tolerance = {"rtol": 0, "atol": 1e-5}
    with np.load(GOLDEN / "forward.npz") as original:
        np.testing.assert_allclose(masked[0], original["masked_lm_loss"], **tolerance)
        np.testing.assert_allclose(masked[1], original["masked_lm_per_position_loss"], **tolerance)
        np.testing.assert_allclose(pairs[0], original["next_sentence_loss"], **tolerance)
        np.testing.assert_allclose(pairs[2], original["next_sentence_log_probs"], **tolerance)
    np.testing.assert_allclose(np.exp(masked[2]).sum(-1), 1, rtol=1e-5)
    assert float(pairs[0]) == pytest.approx(np.mean(pairs[1]), abs=1e-6)


def four(examples):
    return {name: values[:4] for name, values in examples.items()}


def test_heads_of_a_functional_model_give_the_original_numbers_and_names(config):
    examples = {name: np.asarray(each) for name, each in four(golden_batch(GOLDEN)).items()}
    inputs = {
        name: keras.Input(
            (None,), dtype="float32" if name == "masked_lm_weights" else "int32", name=name
        )
        for name in examples
    }
    model = keras.Model(inputs, outputs_of(config, inputs))
    plain = pretraining_heads.pretraining_model(config)
    assert {each.path for each in model.weights} == {each.path for each in plain.weights}
    reader = tf.train.load_checkpoint(CHECKPOINT)
    for variable in model.weights:
        variable.assign(reader.get_tensor(variable.path))
    assert_original_numbers(*model(examples))


def placeholders(examples):
    return {
        name: v1.placeholder(
            tf.float32 if name == "masked_lm_weights" else tf.int32, (None, *each.shape[1:]), name
        )
        for name, each in examples.items()
    }


def test_heads_in_a_graph_give_the_original_numbers_and_names(config):
    examples = four(golden_batch(GOLDEN))
    with tf.Graph().as_default(), v1.Session() as session:
        tensors = placeholders(examples)
        outputs = outputs_of(config, tensors)
        assignment_map, _ = modeling.get_assignment_map_from_checkpoint(
            v1.trainable_variables(), CHECKPOINT
        )
        assert (
            len(assignment_map)
            == len(v1.global_variables())
            == len(tf.train.list_variables(CHECKPOINT))
        )
        v1.train.init_from_checkpoint(CHECKPOINT, assignment_map)
        session.run(v1.global_variables_initializer())
        feed = {tensor: examples[name] for name, tensor in tensors.items()}
        assert_original_numbers(*session.run(outputs, feed))


def test_training_in_a_graph_follows_the_original(config):
    original = json.loads((GOLDEN / "trajectory.json").read_text())
    examples = golden_batch(GOLDEN)
    with tf.Graph().as_default(), v1.Session() as session:
        tensors = placeholders(examples)
        masked, pairs = outputs_of(config, tensors, is_training=True)
        loss = masked[0] + pairs[0]
        train_op = optimization.create_optimizer(
            loss,
            original["learning_rate"],
            original["num_train_steps"],
            original["num_warmup_steps"],
            use_tpu=False,
        )
        assignment_map, _ = modeling.get_assignment_map_from_checkpoint(
            v1.trainable_variables(), CHECKPOINT
        )
        v1.train.init_from_checkpoint(CHECKPOINT, assignment_map)
        session.run(v1.global_variables_initializer())
        feed = {tensor: examples[name] for name, tensor in tensors.items()}
        losses = []
        for _ in range(original["num_train_steps"]):
            losses.append(session.run(loss, feed))
            session.run(train_op, feed)
    # As in the training loop's own test: half a unit in the last place has grown to 4e-5.
    np.testing.assert_allclose(losses[:14], original["loss_before_step"][:14], rtol=0, atol=1e-5)
    np.testing.assert_allclose(losses, original["loss_before_step"], rtol=0, atol=1e-4)


def test_eager_tensors_have_heads_at_once(tiny_config):
    examples = {name: tf.constant(each) for name, each in make_examples(tiny_config, 3).items()}
    masked, pairs = outputs_of(tiny_config, examples)
    weights = examples["masked_lm_weights"].numpy().ravel()
    expected = (masked[1].numpy() * weights).sum() / weights.sum()
    assert float(masked[0]) == pytest.approx(expected, rel=1e-4)
    assert masked[2].shape == (9, tiny_config.vocab_size) and pairs[2].shape == (3, 2)


def test_rows_are_gathered_from_each_sequence():
    sequence = np.arange(24, dtype=np.float32).reshape(2, 4, 3)
    gathered = run_pretraining.gather_indexes(tf.constant(sequence), [[3, 0], [1, 1]])
    np.testing.assert_array_equal(
        gathered, [sequence[0, 3], sequence[0, 0], sequence[1, 1], sequence[1, 1]]
    )


def model_fn_of(config, **changes):
    original = json.loads((GOLDEN / "trajectory.json").read_text())
    arguments = {
        "init_checkpoint": CHECKPOINT,
        **{name: original[name] for name in ("learning_rate", "num_train_steps")},
        "num_warmup_steps": original["num_warmup_steps"],
        "use_tpu": False,
        "use_one_hot_embeddings": False,
    }
    return run_pretraining.model_fn_builder(config, **{**arguments, **changes})


def golden_input_fn(is_training):
    return run_pretraining.input_fn_builder(
        [str(GOLDEN / "pretrain_batch.tfrecord")], 48, 7, is_training
    )


def test_evaluation_is_the_original_one_whatever_the_batches(config):
    original = json.loads((GOLDEN / "eval_before.json").read_text())
    model_fn = model_fn_of(config, num_train_steps=None)
    metrics = {
        f"{task}_{name}": keras.metrics.Mean()
        for task in ("masked_lm", "next_sentence")
        for name in ("accuracy", "loss")
    }
    for batch in golden_input_fn(is_training=False)({"batch_size": 4}):
        spec = model_fn(batch, None, "eval", {})
        for name, metric in metrics.items():
            metric.update_state(*spec.eval_metrics[name])
    assert spec.eval_metrics.keys() == metrics.keys() and spec.predictions is None
    for name, metric in metrics.items():
        assert float(metric.result()) == pytest.approx(original[name], abs=1e-5)
    [batch] = golden_input_fn(is_training=False)({"batch_size": 16})
    loss = model_fn(batch, None, "eval").loss
    assert float(loss) == pytest.approx(original["loss"], abs=1e-5)


def test_training_follows_the_original(config):
    original = json.loads((GOLDEN / "trajectory.json").read_text())
    model_fn = model_fn_of(config)
    [batch] = golden_input_fn(is_training=True)({"batch_size": 16}).take(1)
    losses = [model_fn(batch, None, "train").train_op() for _ in range(10)]
    np.testing.assert_allclose(losses, original["loss_before_step"][:10], rtol=0, atol=1e-5)
    assert model_fn.trainer.step == 10


def test_batches_are_full_and_as_written(tmp_path, tiny_config):
    examples = make_examples(tiny_config, 7)
    path = write_examples(tmp_path / "records", examples)
    input_fn = run_pretraining.input_fn_builder([path], 12, 3, False)
    batches = list(input_fn({"batch_size": 3}).as_numpy_iterator())
    assert len(batches) == 2
    for name, values in examples.items():
        found = np.concatenate([batch[name] for batch in batches])
        np.testing.assert_array_equal(found, values[:6])
        assert found.dtype == values.dtype
    seen = [
        batch["input_ids"]
        for batch in run_pretraining.input_fn_builder([path], 12, 3, True)({"batch_size": 7}).take(
            3
        )
    ]
    assert all(
        sorted(each.numpy().tolist()) == sorted(examples["input_ids"].tolist()) for each in seen
    )


def test_a_record_is_decoded_into_small_integers(tmp_path, tiny_config):
    path = write_examples(tmp_path / "records", make_examples(tiny_config, 1))
    [record] = tf.data.TFRecordDataset(path)
    features = {
        "input_ids": tf.io.FixedLenFeature([12], tf.int64),
        "masked_lm_weights": tf.io.FixedLenFeature([3], tf.float32),
    }
    decoded = run_pretraining._decode_record(record, features)
    assert {name: each.dtype.name for name, each in decoded.items()} == {
        "input_ids": "int32",
        "masked_lm_weights": "float32",
    }


@pytest.mark.parametrize(
    ("mode", "without", "message"),
    [
        ("infer", (), r"`mode` must be one of \['train', 'eval'\]\. Received 'infer'"),
        ("train", ("masked_lm_positions",), r"must have \['masked_lm_positions'\]"),
        ("train", ("masked_lm_ids",), r"must have \['masked_lm_ids'\]"),
        ("eval", ("next_sentence_labels",), r"must have \['next_sentence_labels'\]"),
    ],
)
def test_unsupported_modes_are_named(tiny_config, mode, without, message):
    model_fn = model_fn_of(tiny_config, init_checkpoint=None)
    batch = {k: v for k, v in make_examples(tiny_config, 2).items() if k not in without}
    with pytest.raises(ValueError, match=message):
        model_fn(batch, None, mode)


def test_a_batch_without_masked_tokens_still_has_pairs_to_learn_from(tiny_config):
    batch = make_examples(tiny_config, 2)
    batch["masked_lm_weights"] = np.zeros_like(batch["masked_lm_weights"])
    assert model_fn_of(tiny_config, init_checkpoint=None)(batch, None, "train").train_op


def test_a_graph_has_no_model_fn(tiny_config):
    with tf.Graph().as_default(), pytest.raises(ValueError, match="runs eagerly, as there is no"):
        model_fn_of(tiny_config, init_checkpoint=None)


@pytest.mark.parametrize("act", ["relu", "linear"])
def test_masked_lm_head_has_the_activation_of_the_configuration(tiny_config, act):
    examples = {name: tf.constant(each) for name, each in make_examples(tiny_config, 2).items()}
    found = []
    for config in (tiny_config, change(tiny_config, hidden_act=act)):
        keras.utils.set_random_seed(3)
        outputs = run_pretraining.get_masked_lm_output(
            config,
            tf.random.stateless_normal((2, 12, tiny_config.hidden_size), [1, 2]),
            tf.random.stateless_normal((tiny_config.vocab_size, tiny_config.hidden_size), [3, 4]),
            *(examples[f"masked_lm_{name}"] for name in ("positions", "ids", "weights")),
        )
        found.append(outputs[2].numpy())
    assert np.abs(found[0] - found[1]).max() > 0.1


def test_few_examples_wait_in_memory_to_be_shuffled(monkeypatch):
    monkeypatch.setattr(model_fn, "_MOST_SHUFFLED", 10)
    taken = []

    def generate():
        for number in range(1000):
            taken.append(number)
            yield number

    dataset = tf.data.Dataset.from_generator(generate, output_signature=tf.TensorSpec((), tf.int32))
    batch = next(iter(model_fn.batches(dataset, 1000, 5, True, False)))
    assert len(taken) < 100 and sorted(batch.numpy()) != list(range(5))

import contextlib
import functools
import json
import math

import keras
import numpy as np
import pytest
import tensorflow as tf
from conftest import (
    LARGE_GOLDEN,
    change,
    golden_batch,
    golden_model,
    make_examples,
    model_inputs,
    spread,
    to_numpy,
)
from helpers.forks import fork_python

import modeling
from bert.pretraining import heads as pretraining_heads

RELEASED = LARGE_GOLDEN.parent / "data/weights/chinese_L-12_H-768_A-12-meta-only"


def encoder_inputs(examples):
    return {name: examples[name] for name in ("input_ids", "input_mask", "segment_ids")}


def log_softmax(logits):
    shifted = logits - logits.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


@functools.cache
def _make(config_text, dtype, has_heads):
    config = modeling.BertConfig.from_dict(json.loads(config_text))
    if has_heads:
        return pretraining_heads.pretraining_model(config, dtype=dtype)
    model = modeling.BertModel(config)
    model.build(None)
    return model


def make(config, dtype="float32", *, has_heads=True):
    """Returns a model that tests share, of weights so large that every input matters visibly."""
    model = _make(config.to_json_string(), dtype, has_heads)
    spread(model)
    return model


@pytest.fixture
def encoder(still_config):
    return make(still_config, has_heads=False)


@contextlib.contextmanager
def no_allocation():
    """Within this context, variables have paths and shapes but no values."""
    with keras.StatelessScope(initialize_variables=False):
        yield
    keras.utils.clear_session()  # Forgets them; Keras would initialize them later.


def test_forward_pass_equals_the_original(golden):
    model = golden_model(golden)
    examples = {name: values[:4] for name, values in golden_batch(golden).items()}
    encoded = to_numpy(model.get_layer("bert")(encoder_inputs(examples)))
    outputs = to_numpy(model(model_inputs(examples)))
    # Float32 sums in another order differ by a few 1e-7 a layer.
    tolerance = {"rtol": 0, "atol": 1e-5}
    with np.load(golden / "forward.npz") as original:
        for name in ("embedding_output", "pooled_output"):
            np.testing.assert_allclose(encoded[name], original[name], **tolerance)
        for index, layer in enumerate(encoded["encoder_layers"]):
            np.testing.assert_allclose(layer, original[f"layer_{index}"], **tolerance)
        np.testing.assert_array_equal(encoded["sequence_output"], encoded["encoder_layers"][-1])
        log_probs = log_softmax(outputs["masked_lm_logits"])
        losses = -np.take_along_axis(log_probs, examples["masked_lm_ids"][..., None], axis=-1)
        np.testing.assert_allclose(
            losses.ravel(), original["masked_lm_per_position_loss"], **tolerance
        )
        np.testing.assert_allclose(
            log_softmax(outputs["next_sentence_logits"]),
            original["next_sentence_log_probs"],
            **tolerance,
        )
        weights = pretraining_heads.loss_weights(examples)
        parts = pretraining_heads.losses(outputs, examples, weights)
        for name, value in parts.items():
            np.testing.assert_allclose(value, original[name], **tolerance)


def test_losses_and_accuracies_equal_the_original(golden):
    examples = golden_batch(golden)
    outputs = golden_model(golden)(model_inputs(examples))
    original = json.loads((golden / "eval_before.json").read_text())
    metrics = pretraining_heads.metrics(outputs, examples)
    for name, (total, weight) in metrics.items():
        assert float(total) / float(weight) == pytest.approx(original[name], abs=1e-5)
    parts = pretraining_heads.losses(outputs, examples, pretraining_heads.loss_weights(examples))
    assert float(sum(parts.values())) == pytest.approx(original["loss"], abs=1e-5)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, "`vocab_size` must be given"),
        ({"vocab_size": None}, "`vocab_size` must be given"),
        ({"vocab_size": 0}, "`vocab_size` must be a positive integer"),
        ({"vocab_size": -5}, "`vocab_size` must be a positive integer"),
        ({"vocab_size": "100"}, "`vocab_size` must be a positive integer"),
        ({"vocab_size": 100.0}, "`vocab_size` must be a positive integer"),
        ({"vocab_size": True}, "`vocab_size` must be a positive integer"),
        ({"num_hidden_layers": 0}, "`num_hidden_layers` must be a positive integer"),
        ({"max_position_embeddings": None}, "`max_position_embeddings` must be a positive"),
        ({"type_vocab_size": 0}, "`type_vocab_size` must be a positive integer"),
        ({"intermediate_size": [32]}, "`intermediate_size` must be a positive integer"),
        ({"hidden_size": 10, "num_attention_heads": 3}, "a multiple of `num_attention_heads`"),
        ({"hidden_dropout_prob": 1.0}, "`hidden_dropout_prob` must be in"),
        ({"hidden_dropout_prob": -0.1}, "`hidden_dropout_prob` must be in"),
        ({"hidden_dropout_prob": math.nan}, "`hidden_dropout_prob` must be in"),
        ({"attention_probs_dropout_prob": "0.1"}, "`attention_probs_dropout_prob` must be in"),
        ({"attention_probs_dropout_prob": None}, "`attention_probs_dropout_prob` must be in"),
        ({"initializer_range": 0}, "`initializer_range` must be positive"),
        ({"initializer_range": math.nan}, "`initializer_range` must be positive"),
        ({"initializer_range": math.inf}, "`initializer_range` must be positive"),
        ({"hidden_act": "swish"}, r"`hidden_act` must be among .*Received 'swish'"),
        ({"hidden_act": 3}, "`hidden_act` must be among"),
        ({"hidden_act": None}, "`hidden_act` must be among"),
    ],
)
def test_what_cannot_describe_a_model_is_refused_when_a_file_or_a_model_has_it(
    tmp_path, values, message
):
    base = {"vocab_size": 100} if values and "vocab_size" not in values else {}
    config = modeling.BertConfig.from_dict({**base, **values})
    with pytest.raises(ValueError, match=message):
        modeling.BertModel(config)
    with pytest.raises(ValueError, match=message):
        modeling.Pooler(config)
    path = tmp_path / "bert_config.json"
    path.write_text(json.dumps({**base, **values}))
    with pytest.raises(ValueError, match=message):
        modeling.BertConfig.from_json_file(str(path))


def test_a_config_takes_any_values_and_gives_them_back():
    config = modeling.BertConfig(vocab_size=99, hidden_size=37)
    values = json.loads(config.to_json_string())
    assert (values["vocab_size"], values["hidden_size"]) == (99, 37)
    assert modeling.BertConfig.from_dict(values) == config


def test_a_config_of_an_older_release_is_written_as_it_was():
    config = modeling.BertConfig(99)
    # As pickled before there were these fields.
    del config.is_decoder, config.encoder_type
    assert config.to_dict() == modeling.BertConfig(99).to_dict()


def test_a_key_cannot_replace_a_method():
    with pytest.raises(ValueError, match=r"names of methods. Received \['check'\]"):
        modeling.BertConfig.from_dict({"vocab_size": 3, "check": 1})


def test_a_field_that_is_set_counts(tiny_config):
    config = modeling.BertConfig.from_dict(tiny_config.to_dict())
    config.hidden_size = 20
    config.num_hidden_layers = 1
    model = modeling.BertModel(config)
    model.build(None)
    shapes = {variable.path: tuple(variable.shape) for variable in model.weights}
    assert shapes["bert/embeddings/word_embeddings"] == (29, 20)
    assert not any("layer_1" in path for path in shapes)
    # What is set after that does not change the model.
    config.hidden_size = 4
    assert model.get_config()["config"]["hidden_size"] == 20


def test_keys_that_are_not_known_stay_and_are_told(tmp_path, caplog):
    values = {"vocab_size": 3, "hiden_size": 8, "pooler_type": "first_token_transform"}
    config = modeling.BertConfig.from_dict(values)
    (message,) = caplog.messages
    assert "Keys ['hiden_size'] of the configuration have no effect" in message
    assert config.to_dict() == {**modeling.BertConfig(3).to_dict(), **values}
    path = tmp_path / "bert_config.json"
    path.write_text(config.to_json_string())
    again = modeling.BertConfig.from_json_file(str(path))
    assert again.hiden_size == 8
    assert json.loads(again.to_json_string()) == config.to_dict()
    # A model is saved with them, too.
    again.hidden_size, again.num_attention_heads = 8, 2
    assert modeling.BertModel(again).get_config()["config"]["hiden_size"] == 8


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "`bert_config_file` must exist"),
        ("", "must be JSON"),
        ("{'vocab_size': 3}", "must be JSON"),
        ("[1, 2]", "must hold a JSON object"),
        ('{"vocab_size": 3, "hidden_size": 37}', "a multiple of `num_attention_heads`"),
        (b"\xff\xfe\x00", "must be UTF-8 text"),
    ],
)
def test_config_file_that_cannot_be_read_is_named(tmp_path, text, message):
    path = tmp_path / "config.json"
    if text is not None:
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ValueError, match=message) as caught:
        modeling.BertConfig.from_json_file(str(path))
    assert str(path) in str(caught.value)


def test_config_defaults_are_the_original_ones():
    assert modeling.BertConfig(100).to_dict() == {
        "vocab_size": 100,
        "hidden_size": 768,
        "num_hidden_layers": 12,
        "num_attention_heads": 12,
        "intermediate_size": 3072,
        "hidden_act": "gelu",
        "hidden_dropout_prob": 0.1,
        "attention_probs_dropout_prob": 0.1,
        "max_position_embeddings": 512,
        "type_vocab_size": 16,
        "initializer_range": 0.02,
    }


# As the original releases wrote them: with `type_vocab_size` and, in some, keys nobody reads.
RELEASED_CONFIGS = {
    "uncased_L-12_H-768_A-12": {"vocab_size": 30522},
    "uncased_L-24_H-1024_A-16": {
        "vocab_size": 30522,
        "hidden_size": 1024,
        "num_hidden_layers": 24,
        "num_attention_heads": 16,
        "intermediate_size": 4096,
    },
    "multi_cased_L-12_H-768_A-12": {
        "vocab_size": 119547,
        "directionality": "bidi",
        "pooler_fc_size": 768,
        "pooler_num_attention_heads": 12,
        "pooler_num_fc_layers": 3,
        "pooler_size_per_head": 128,
        "pooler_type": "first_token_transform",
    },
}


@pytest.mark.parametrize("name", RELEASED_CONFIGS)
def test_released_configs_are_read_without_complaint(name, caplog):
    values = {"type_vocab_size": 2, **RELEASED_CONFIGS[name]}
    config = modeling.BertConfig.from_dict(values)
    read = config.to_dict()
    assert {key: read[key] for key in values} == values
    assert not caplog.records


@pytest.mark.skipif(not RELEASED.exists(), reason="The released checkpoint's index is not there.")
def test_variables_are_those_of_a_released_checkpoint():
    config = modeling.BertConfig.from_json_file(str(RELEASED / "bert_config.json"))
    with no_allocation():
        model = pretraining_heads.pretraining_model(config)
    reader = tf.train.load_checkpoint(str(RELEASED / "bert_model.ckpt"))
    stored = {name: tuple(shape) for name, shape in reader.get_variable_to_shape_map().items()}
    assert {variable.path: tuple(variable.shape) for variable in model.weights} == stored


@pytest.mark.parametrize(
    ("name", "count"),
    [("uncased_L-12_H-768_A-12", 109_482_240), ("uncased_L-24_H-1024_A-16", 335_141_888)],
)
def test_parameters_are_as_many_as_in_the_release(name, count):
    config = modeling.BertConfig(**RELEASED_CONFIGS[name], type_vocab_size=2)
    with no_allocation():
        model = modeling.BertModel(config)
        model.build(None)
    assert model.count_params() == count


def test_padding_does_not_change_real_outputs(encoder, still_config):
    examples = make_examples(still_config, 5)
    real = examples["input_mask"].astype(bool)
    assert not real.all()
    inputs = encoder_inputs(examples)
    changed = {
        **inputs,
        "input_ids": np.where(real, inputs["input_ids"], 9),
        "segment_ids": np.where(real, inputs["segment_ids"], 2),
    }
    outputs, others = to_numpy(encoder(inputs)), to_numpy(encoder(changed))
    # exp(-10000) is 0, so padding weighs exactly nothing.
    np.testing.assert_array_equal(outputs["sequence_output"][real], others["sequence_output"][real])
    np.testing.assert_array_equal(outputs["pooled_output"], others["pooled_output"])
    assert np.abs(outputs["sequence_output"] - others["sequence_output"])[~real].min() > 0


def test_padding_can_be_left_off(encoder, still_config):
    example = {name: values[:1] for name, values in make_examples(still_config, 5).items()}
    count = int(example["input_mask"].sum())
    inputs = encoder_inputs(example)
    whole = to_numpy(encoder(inputs))["sequence_output"][:, :count]
    short = to_numpy(encoder({name: each[:, :count] for name, each in inputs.items()}))
    np.testing.assert_allclose(short["sequence_output"], whole, rtol=0, atol=1e-5)


def test_examples_of_a_batch_do_not_see_each_other(encoder, still_config):
    inputs = encoder_inputs(make_examples(still_config, 6))
    order = np.random.RandomState(0).permutation(6)
    outputs = to_numpy(encoder(inputs))
    shuffled = to_numpy(encoder({name: values[order] for name, values in inputs.items()}))
    for name in ("sequence_output", "pooled_output", "embedding_output"):
        np.testing.assert_allclose(shuffled[name], outputs[name][order], rtol=0, atol=1e-5)


def test_tokens_asked_for_alone_are_encoded_as_among_all(encoder, still_config):
    """Outputs, and the gradients of a loss on them, at places in any order, some of them twice."""
    inputs = encoder_inputs(make_examples(still_config, 4))
    positions = np.array([[0, 3, 1], [0, 0, 2], [0, 4, 3], [0, 1, 1]], np.int32)
    rows = np.arange(4)[:, None]
    outputs, gradients = [], []
    for asked in (None, positions):
        with tf.GradientTape() as tape:
            encoded = encoder(inputs, positions=asked)
            sequence = encoded["sequence_output"]
            if asked is None:
                sequence = tf.gather(sequence, positions, batch_dims=1)
            loss = tf.reduce_sum(tf.sin(sequence)) + tf.reduce_sum(encoded["pooled_output"])
        weights = [variable.value for variable in encoder.trainable_weights]
        gradients.append([tf.convert_to_tensor(each) for each in tape.gradient(loss, weights)])
        outputs.append(to_numpy(encoded))
    whole, few = outputs
    expected = whole["sequence_output"][rows, positions]
    np.testing.assert_allclose(few["sequence_output"], expected, rtol=0, atol=1e-5)
    np.testing.assert_allclose(few["pooled_output"], whole["pooled_output"], rtol=0, atol=1e-5)
    for lower, other in zip(few["encoder_layers"][:-1], whole["encoder_layers"], strict=False):
        np.testing.assert_array_equal(lower, other)
    for gradient, other in zip(*gradients, strict=True):
        np.testing.assert_allclose(gradient, other, rtol=1e-3, atol=1e-4)


def test_absent_inputs_mean_all_real_and_all_segment_0(encoder, still_config):
    ids = make_examples(still_config, 3)["input_ids"]
    outputs = to_numpy(encoder({"input_ids": ids}))
    full = {"input_ids": ids, "input_mask": np.ones_like(ids), "segment_ids": np.zeros_like(ids)}
    np.testing.assert_array_equal(
        outputs["sequence_output"], to_numpy(encoder(full))["sequence_output"]
    )


@pytest.mark.parametrize("name", ["input_ids", "segment_ids"])
def test_one_token_changes_every_real_output(encoder, still_config, name):
    ids = make_examples(still_config, 1)["input_ids"]
    inputs = {"input_ids": ids, "segment_ids": np.zeros_like(ids)}
    other = {**inputs, name: inputs[name].copy()}
    other[name][0, 4] += 1
    difference = np.abs(
        to_numpy(encoder(inputs))["sequence_output"] - to_numpy(encoder(other))["sequence_output"]
    ).max(-1)
    assert (difference > 1e-4).all()


def test_word_order_matters_through_the_position_table_alone(encoder):
    ids = np.array([[3, 5, 7, 11]])
    order = [0, 2, 3, 1]

    def difference():
        outputs = to_numpy(encoder({"input_ids": ids}))["sequence_output"]
        shuffled = to_numpy(encoder({"input_ids": ids[:, order]}))["sequence_output"]
        return np.abs(outputs[:, order] - shuffled).max()

    assert difference() > 1e-2
    encoder.embeddings.position_embeddings.assign(
        np.ones(encoder.embeddings.position_embeddings.shape)
    )
    assert difference() < 1e-5


def test_one_layer_equals_ten_lines_of_numpy(still_config):
    config = change(still_config, num_hidden_layers=1)
    model = modeling.BertModel(config)
    model.build(None)
    spread(model)
    inputs = encoder_inputs(make_examples(config, 2))
    outputs = to_numpy(model(inputs))
    weight = {v.path.removeprefix("bert/encoder/layer_0/"): v.numpy() for v in model.weights}

    def dense(x, name):
        return x @ weight[f"{name}/kernel"] + weight[f"{name}/bias"]

    def layer_norm(x, name):
        centered = x - x.mean(-1, keepdims=True)
        scaled = centered / np.sqrt((centered**2).mean(-1, keepdims=True) + 1e-12)
        return scaled * weight[f"{name}/gamma"] + weight[f"{name}/beta"]

    def gelu(x):
        return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))

    for row in range(2):
        x = outputs["embedding_output"][row]
        padding = -10000.0 * (1 - inputs["input_mask"][row])
        heads = []
        for head in np.split(np.arange(8), 4):
            q, k, v = (dense(x, f"attention/self/{n}")[:, head] for n in ("query", "key", "value"))
            heads.append(np.exp(log_softmax(q @ k.T / np.sqrt(2) + padding)) @ v)
        attended = dense(np.concatenate(heads, -1), "attention/output/dense")
        attended = layer_norm(attended + x, "attention/output/LayerNorm")
        widened = gelu(dense(attended, "intermediate/dense"))
        expected = layer_norm(dense(widened, "output/dense") + attended, "output/LayerNorm")
        np.testing.assert_allclose(outputs["sequence_output"][row], expected, rtol=0, atol=2e-5)
        pooled = np.tanh(
            expected[0] @ weight["bert/pooler/dense/kernel"] + weight["bert/pooler/dense/bias"]
        )
        np.testing.assert_allclose(outputs["pooled_output"][row], pooled, rtol=0, atol=2e-5)


def test_sequence_longer_than_the_position_table_is_refused(encoder):
    with pytest.raises(ValueError, match=r"`max_seq_length` must be at most 16 .*Received 17"):
        encoder({"input_ids": np.ones((1, 17), np.int32)})


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["input_ids", "attention_mask"], r"Received \['attention_mask', 'input_ids'\]"),
        (["input_ids", "token_type_ids"], "its `token_type_ids` are `segment_ids`"),
        (["input_word_ids"], "must be a dictionary of `input_ids`"),
    ],
)
def test_inputs_of_other_names_are_not_ignored(encoder, names, message):
    for tensor in (np.ones((2, 4), np.int32), keras.Input((4,), dtype="int32")):
        with pytest.raises(ValueError, match=message):
            encoder(dict.fromkeys(names, tensor))
        with pytest.raises(ValueError, match="must be a dictionary"):
            encoder(tensor)


def test_output_weights_are_the_word_embeddings(still_config):
    model = make(still_config)
    weights = {variable.path: variable for variable in model.weights}
    assert not any("cls" in path and list(w.shape) == [29, 8] for path, w in weights.items())
    inputs = model_inputs(make_examples(still_config, 3))
    absent = 28  # Not in the inputs, so that only the output weights can see the change.
    inputs["input_ids"] = np.where(inputs["input_ids"] == absent, 1, inputs["input_ids"])
    before = np.asarray(model(inputs)["masked_lm_logits"])
    table = weights["bert/embeddings/word_embeddings"]
    row = (np.arange(29) == absent)[:, None]
    table.assign(table + row * 1.0)
    after = np.asarray(model(inputs)["masked_lm_logits"])
    others = np.arange(29) != absent
    np.testing.assert_allclose(after[..., others], before[..., others], rtol=0, atol=1e-5)
    assert np.abs(after - before)[..., absent].min() > 1e-3


def test_masked_positions_are_gathered_from_their_own_example(still_config):
    model = make(still_config)
    inputs = model_inputs(make_examples(still_config, 4))
    logits = np.asarray(model(inputs)["masked_lm_logits"])
    for row in range(4):
        for place, position in enumerate(inputs["masked_lm_positions"][row]):
            alone = {name: values[row : row + 1] for name, values in inputs.items()}
            alone["masked_lm_positions"] = np.array([[position]])
            expected = np.asarray(model(alone)["masked_lm_logits"])[0, 0]
            np.testing.assert_allclose(logits[row, place], expected, rtol=0, atol=1e-5)


def test_padded_predictions_count_nothing(still_config):
    model = make(still_config)
    examples = make_examples(still_config, 4)
    padding = examples["masked_lm_weights"] == 0
    assert padding.any()
    changed = {
        **examples,
        "masked_lm_ids": np.where(padding, 5, examples["masked_lm_ids"]),
        "masked_lm_positions": np.where(padding, 2, examples["masked_lm_positions"]),
    }

    def evaluate(batch):
        outputs = model(model_inputs(batch))
        losses = pretraining_heads.losses(outputs, batch, pretraining_heads.loss_weights(batch))
        metrics = pretraining_heads.metrics(outputs, batch)
        return [float(x) for x in [*losses.values(), *sum(metrics.values(), ())]]

    assert evaluate(changed) == pytest.approx(evaluate(examples), abs=1e-5)


def test_batch_without_masked_tokens_has_no_masked_lm_loss(still_config):
    model = make(still_config)
    batch = make_examples(still_config, 4)
    batch["masked_lm_weights"] = np.zeros_like(batch["masked_lm_weights"])
    outputs = model(model_inputs(batch))
    losses = pretraining_heads.losses(outputs, batch, pretraining_heads.loss_weights(batch))
    assert float(losses["masked_lm_loss"]) == 0.0


def test_shares_of_a_batch_add_up_to_its_losses(still_config):
    model = make(still_config)
    batch = make_examples(still_config, 6)
    weights = pretraining_heads.loss_weights(batch)
    whole = pretraining_heads.losses(model(model_inputs(batch)), batch, weights)
    parts = [
        {name: values[rows] for name, values in batch.items()} for rows in ([0, 1, 2, 3], [4, 5])
    ]
    shares = [pretraining_heads.losses(model(model_inputs(p)), p, weights) for p in parts]
    for name, value in whole.items():
        assert float(sum(share[name] for share in shares)) == pytest.approx(float(value), abs=1e-5)


@pytest.mark.parametrize(
    ("name", "value_at_1", "value_at_minus_1"),
    [
        ("gelu", 0.841192, -0.158808),
        # The error-function form: x times the normal distribution's share below it.
        ("gelu_erf", 0.841345, -0.158655),
        ("relu", 1.0, 0.0),
        ("tanh", 0.761594, -0.761594),
    ],
)
def test_activations_have_their_values(name, value_at_1, value_at_minus_1):
    for spelled in (name, name.upper()):
        values = np.asarray(modeling.get_activation(spelled)(np.array([1.0, -1.0], np.float32)))
        np.testing.assert_allclose(values, [value_at_1, value_at_minus_1], rtol=0, atol=1e-6)


def test_linear_activations_are_none_as_in_the_original():
    assert modeling.get_activation("linear") is None
    assert modeling.get_activation("") is None
    assert modeling.get_activation(np.cos) is np.cos


def variable_shapes(model):
    return {variable.path: tuple(variable.shape) for variable in model.weights}


@pytest.mark.parametrize(
    ("key", "value", "path", "shape"),
    [
        ("vocab_size", 31, "bert/embeddings/word_embeddings", (31, 8)),
        ("vocab_size", 31, "cls/predictions/output_bias", (31,)),
        ("hidden_size", 16, "bert/pooler/dense/kernel", (16, 16)),
        ("num_hidden_layers", 3, "bert/encoder/layer_2/output/dense/bias", (8,)),
        ("intermediate_size", 5, "bert/encoder/layer_1/intermediate/dense/kernel", (8, 5)),
        ("max_position_embeddings", 20, "bert/embeddings/position_embeddings", (20, 8)),
        ("type_vocab_size", 4, "bert/embeddings/token_type_embeddings", (4, 8)),
    ],
)
def test_every_size_of_the_config_is_used(still_config, key, value, path, shape):
    before = variable_shapes(make(still_config))
    after = variable_shapes(
        pretraining_heads.pretraining_model(change(still_config, **{key: value}))
    )
    assert before.get(path) != shape
    assert after[path] == shape


@pytest.mark.parametrize(
    ("key", "value"), [("num_attention_heads", 2), ("hidden_act", "relu"), ("hidden_act", "linear")]
)
def test_heads_and_activation_change_the_outputs_of_the_same_weights(still_config, key, value):
    inputs = model_inputs(make_examples(still_config, 2))
    models = [make(still_config), make(change(still_config, **{key: value}))]
    one, other = (np.asarray(model(inputs)["masked_lm_logits"]) for model in models)
    assert np.abs(one - other).max() > 1e-2


def test_an_activation_may_be_a_function(still_config):
    inputs = model_inputs(make_examples(still_config, 2))
    outputs = []
    for activation in ("relu", lambda x: keras.ops.maximum(x, 0.0)):
        model = pretraining_heads.pretraining_model(change(still_config, hidden_act=activation))
        spread(model)
        outputs.append(np.asarray(model(inputs)["masked_lm_logits"]))
    np.testing.assert_allclose(*outputs, atol=1e-5)


def dropouts(model):
    """Returns the dropout layers of a model by where they are."""
    layers = [layer for layer in model._flatten_layers() if isinstance(layer, modeling.Dropout)]
    return {layer.path.removesuffix("/dropout"): layer for layer in layers}


def places_of_dropout(config):
    layers = [f"bert/encoder/layer_{index}" for index in range(config.num_hidden_layers)]
    parts = ("attention/self", "attention/output", "output")
    return ["bert/embeddings", *(f"{layer}/{part}" for layer in layers for part in parts)]


def test_each_place_of_dropout_has_its_rate(tiny_config):
    config = change(tiny_config, hidden_dropout_prob=0.2, attention_probs_dropout_prob=0.4)
    for model in (modeling.BertModel(config), pretraining_heads.pretraining_model(config)):
        model.build(None)
        rates = {place: layer.rate for place, layer in dropouts(model).items()}
        assert rates == {
            place: 0.4 if place.endswith("self") else 0.2 for place in places_of_dropout(config)
        }


def test_every_place_of_dropout_acts_in_training_and_there_alone(tiny_config):
    """Embeddings, attention weights, attention and feed-forward, one at a time."""
    examples = model_inputs(make_examples(tiny_config, 4))
    model = pretraining_heads.pretraining_model(tiny_config)
    spread(model)
    layers = dropouts(model)
    assert sorted(layers) == sorted(places_of_dropout(tiny_config))
    still = to_numpy(model(examples, training=False))
    for place, layer in layers.items():
        for other in layers.values():
            other.rate = 0.5 if other is layer else 0.0
        with modeling.dropout_seed(np.array([1, 2], np.int32)):
            training = to_numpy(model(examples, training=True))
        changes = [np.abs(training[name] - still[name]).max() for name in still]
        assert min(changes) > 1e-3, place
        np.testing.assert_array_equal(
            model(examples, training=False)["masked_lm_logits"], still["masked_lm_logits"]
        )


def test_the_encoder_hands_its_phase_to_its_layers(tiny_config):
    """Outside of functional models, too, where Keras keeps the phase of the outermost call."""
    inputs = encoder_inputs(make_examples(tiny_config, 4))
    model = modeling.BertModel(tiny_config)
    model.build(None)
    spread(model)
    for place, layer in dropouts(model).items():
        layer.rate = 0.0 if place == "bert/embeddings" else 0.5
    outputs = [
        np.asarray(model.call(inputs, training=flag)["sequence_output"]) for flag in (False, True)
    ]
    assert np.abs(outputs[0] - outputs[1]).max() > 1e-2


def attention_scores(model, inputs):
    """Returns the first layer's scores [B, N, Q, K] before padding is lowered, in NumPy."""
    embedded = np.asarray(model(inputs)["embedding_output"])
    attention = model.encoder.transformer_layers[0].attention.self_attention
    batch, length, width = embedded.shape
    query, key = (
        (embedded @ each.kernel.numpy() + each.bias.numpy())
        .reshape(batch, length, model.config.num_attention_heads, -1)
        .transpose(0, 2, 1, 3)
        for each in attention.projections[:2]
    )
    return query @ key.transpose(0, 1, 3, 2) / np.sqrt(width / model.config.num_attention_heads)


def test_padding_has_no_weight_however_strong_its_score(still_config):
    """The scores of the released models reach some tens, and users' ones more than 100."""
    config = change(still_config, num_hidden_layers=1)
    model = modeling.BertModel(config)
    model.build(None)
    spread(model)
    projections = model.encoder.transformer_layers[0].attention.self_attention.projections
    for projection in projections[:2]:
        projection.kernel.assign(projection.kernel * 12)
    inputs = encoder_inputs(make_examples(config, 5))
    real = inputs["input_mask"].astype(bool)
    changed = {**inputs, "input_ids": np.where(real, inputs["input_ids"], 9)}
    outputs, others = (to_numpy(model(each))["sequence_output"] for each in (inputs, changed))
    np.testing.assert_array_equal(outputs[real], others[real])
    # Without a mask, the scores of what stands in the padding's place are large enough to matter.
    seen = to_numpy(model({**inputs, "input_mask": np.ones_like(inputs["input_mask"])}))
    assert np.abs(seen["sequence_output"] - outputs)[real].max() > 0.1
    seen = attention_scores(model, inputs)
    assert (seen.max(-1) - np.where(real[:, None, None], seen, -np.inf).max(-1)).max() > 200


def attention_by_formula(model, inputs):
    """Returns softmax(QKᵀ/√D + mask) of all layers from their inputs and variables, in NumPy."""
    outputs = to_numpy(model(inputs))
    values = {each.path: each.numpy().astype(np.float64) for each in model.weights}
    real = inputs["input_mask"][:, None, None, :].astype(bool)
    if model.config.is_decoder:
        real = real & np.tril(np.ones((real.shape[-1],) * 2, bool))
    found = []
    for number, hidden in enumerate([outputs["embedding_output"], *outputs["encoder_layers"][:-1]]):
        scope = f"bert/encoder/layer_{number}/attention/self"
        query, key = (
            (hidden @ values[f"{scope}/{name}/kernel"] + values[f"{scope}/{name}/bias"])
            .reshape(*hidden.shape[:2], model.config.num_attention_heads, -1)
            .swapaxes(1, 2)
            for name in ("query", "key")
        )
        scores = query @ key.swapaxes(2, 3) / np.sqrt(query.shape[-1])
        found.append(np.exp(log_softmax(np.where(real, scores, scores - 10000.0))))
    return found


@pytest.mark.parametrize("is_decoder", [False, True])
def test_attention_given_is_what_the_formula_gives(still_config, is_decoder):
    model = make(change(still_config, is_decoder=is_decoder), has_heads=False)
    inputs = encoder_inputs(make_examples(still_config, 5))
    outputs = to_numpy(model(inputs, attention_probs=True))
    given = outputs.pop("attention_probs")
    for layer, expected in zip(given, attention_by_formula(model, inputs), strict=True):
        np.testing.assert_allclose(layer, expected, atol=1e-5)
        np.testing.assert_allclose(layer.sum(-1), 1, atol=1e-6)
        # Rows differ, and so do heads.
        assert layer.std(axis=1).max() > 0.1
        padding = np.broadcast_to(1 - inputs["input_mask"][:, None, None], layer.shape)
        assert padding.any() and not layer[padding.astype(bool)].any()
        assert np.triu(layer, 1).any() == (not is_decoder)
    # Asking changes nothing else, and nobody listens afterwards.
    assert not any(layer.attention.self_attention.observer for layer in model.stacked_layers)
    for name, values in to_numpy(model(inputs)).items():
        np.testing.assert_array_equal(values, outputs[name], err_msg=name)


def test_attention_is_an_output_of_functional_models_and_of_few_positions(encoder):
    inputs = encoder_inputs(make_examples(encoder.config, 3))
    positions = np.array([[0, 2], [0, 1], [0, 3]])
    expected = to_numpy(encoder(inputs, attention_probs=True))["attention_probs"]
    symbols = modeling.encoder_inputs()
    asked = keras.Input((None,), dtype="int32", name="positions")
    encoded = encoder(symbols, positions=asked, attention_probs=True)
    model = keras.Model({**symbols, "positions": asked}, encoded["attention_probs"])
    lower, last = model({**inputs, "positions": positions})
    np.testing.assert_allclose(lower, expected[0], atol=1e-6)
    picked = np.take_along_axis(expected[1], positions[:, None, :, None], axis=2)
    np.testing.assert_allclose(last, picked, atol=1e-6)
    assert [each.shape for each in model.outputs] == [(None, 4, None, None)] * 2


def test_attention_is_not_given_where_training_keeps_no_more_than_inputs(encoder):
    inputs = encoder_inputs(make_examples(encoder.config, 1))
    encoder = modeling.BertModel(encoder.config)
    encoder.gradient_checkpointing = True
    assert len(encoder(inputs, attention_probs=True)["attention_probs"]) == 2
    with pytest.raises(ValueError, match="`attention_probs` must not be requested in training"):
        encoder(inputs, attention_probs=True, training=True)


def test_initial_values_are_truncated_normal_without_twins():
    config = modeling.BertConfig(
        vocab_size=500, hidden_size=64, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=64, initializer_range=0.1,
    )  # fmt: skip
    model = pretraining_heads.pretraining_model(config)
    matrices = {v.path: v.numpy() for v in model.weights if len(v.shape) == 2}
    for path, values in matrices.items():
        assert np.abs(values).max() <= 0.2 + 1e-6, path
        # A normal distribution cut at 2 standard deviations has 0.88 of its width.
        if values.size > 1000:
            assert values.std() == pytest.approx(0.088, abs=0.003), path
    squares = [values for values in matrices.values() if values.shape == (64, 64)]
    assert len({values.tobytes() for values in squares}) == len(squares) > 8
    for variable in model.weights:
        if len(variable.shape) == 1:
            expected = 1.0 if variable.path.endswith("gamma") else 0.0
            np.testing.assert_array_equal(variable.numpy(), expected, err_msg=variable.path)


def dropped(layer, seed, count=20000):
    with modeling.dropout_seed(np.array(seed, np.int32)):
        return np.asarray(layer(np.ones((1, count), np.float32), training=True))


def test_dropout_is_a_function_of_the_seed():
    layer = modeling.Dropout(0.3, name="one")
    once = dropped(layer, [1, 2])
    np.testing.assert_array_equal(dropped(layer, [1, 2]), once)
    np.testing.assert_array_equal(dropped(modeling.Dropout(0.3, name="one"), [1, 2]), once)
    for seed in ([1, 3], [2, 2], [2, 1]):
        assert (dropped(layer, seed) != once).mean() > 0.3


def test_dropout_masks_of_seeds_and_layers_are_independent():
    masks = [dropped(modeling.Dropout(0.5, name=name), [5, s]) > 0 for name in "ab" for s in (0, 1)]
    for i, one in enumerate(masks):
        for other in masks[:i]:
            # The share of equal places has a standard deviation of 0.0035.
            assert (one == other).mean() == pytest.approx(0.5, abs=0.02)


def test_each_place_of_dropout_has_a_mask_of_its_own(tiny_config):
    model = modeling.BertModel(tiny_config)
    model.build(None)
    layers = dropouts(model).values()
    for layer in layers:
        layer.rate = 0.5
    assert len({dropped(layer, [5, 0], 1000).tobytes() for layer in layers}) == len(layers) > 6


@pytest.mark.parametrize("rate", [1e-6, 0.1, 0.5])
def test_dropout_drops_at_its_rate_and_keeps_the_mean(rate):
    values = dropped(modeling.Dropout(rate, name="one"), [0, 0])
    assert (values == 0).mean() == pytest.approx(rate, abs=0.015)
    np.testing.assert_allclose(values[values > 0], 1 / (1 - rate), rtol=1e-6)


def test_dropout_without_a_seed_differs_from_call_to_call():
    layer = modeling.Dropout(0.5)
    ones = np.ones((1, 1000), np.float32)
    first, second = (np.asarray(layer(ones, training=True)) for _ in range(2))
    assert (first != second).mean() > 0.3
    np.testing.assert_array_equal(layer(ones, training=False), ones)


def test_masks_do_not_depend_on_models_made_before(tiny_config):
    examples = model_inputs(make_examples(tiny_config, 4))
    outputs = []
    for _ in range(2):
        model = pretraining_heads.pretraining_model(tiny_config)
        spread(model)
        with modeling.dropout_seed(np.array([1, 2], np.int32)):
            outputs.append(np.asarray(model(examples, training=True)["masked_lm_logits"]))
    np.testing.assert_array_equal(*outputs)


@pytest.mark.parametrize(
    ("policy", "tolerance"),
    # 8 and 11 bits of mantissa, through two layers whose outputs are of the order of 1.
    [("mixed_bfloat16", 0.2), ("mixed_float16", 0.02)],
)
def test_half_precision_is_near_float32(still_config, policy, tolerance):
    examples = make_examples(still_config, 4)
    full, half = make(still_config), make(still_config, policy)
    outputs, others = to_numpy(full(model_inputs(examples))), half(model_inputs(examples))
    assert {variable.dtype for variable in half.weights} == {"float32"}
    for name, values in others.items():
        assert values.dtype == "float32"
        difference = np.abs(np.asarray(values) - outputs[name]).max()
        assert 0 < difference < tolerance * np.abs(outputs[name]).max()
    encoded = half.get_layer("bert")(encoder_inputs(examples))
    assert encoded["sequence_output"].dtype == policy.removeprefix("mixed_")
    layers = half._flatten_layers()
    policies = {layer.dtype_policy.name for layer in layers if layer.weights and layer is not half}
    assert policies == {policy}


def test_padding_weighs_nothing_in_float16(still_config):
    model = make(still_config, "mixed_float16")
    examples = make_examples(still_config, 4)
    real = examples["input_mask"].astype(bool)
    changed = {**examples, "input_ids": np.where(real, examples["input_ids"], 9)}
    one, other = (to_numpy(model(model_inputs(each))) for each in (examples, changed))
    np.testing.assert_array_equal(one["next_sentence_logits"], other["next_sentence_logits"])


LOAD_AND_PREDICT = """
import sys
import keras
import numpy as np
import modeling
from bert.pretraining import heads
folder = sys.argv[1]
inputs = dict(np.load(f"{folder}/inputs.npz"))
for name in ("pretraining", "user"):
    model = keras.saving.load_model(f"{folder}/{name}.keras")
    outputs = model({key: inputs[key] for key in model.input})
    outputs = outputs if isinstance(outputs, dict) else {"output": outputs}
    paths = [variable.path for variable in model.weights]
    np.savez(f"{folder}/{name}.npz", paths=paths, **{k: np.asarray(v) for k, v in outputs.items()})
"""


def test_a_configuration_keeps_what_was_set(tiny_config):
    encoder = modeling.BertModel(tiny_config)
    encoder.gradient_checkpointing = True
    assert modeling.BertModel.from_config(encoder.get_config()).gradient_checkpointing


def test_models_saved_by_keras_load_elsewhere(tmp_path, tiny_config):
    inputs = model_inputs(make_examples(tiny_config, 3))
    np.savez(tmp_path / "inputs.npz", **inputs)
    symbolic = modeling.encoder_inputs()
    pooled = modeling.BertModel(tiny_config)(symbolic)["pooled_output"]
    users = keras.Model(symbolic, keras.layers.Dense(3, name="labels")(pooled))
    models = {"pretraining": pretraining_heads.pretraining_model(tiny_config), "user": users}
    for name, model in models.items():
        spread(model)
        model.save(tmp_path / f"{name}.keras")
    fork_python("-c", LOAD_AND_PREDICT, str(tmp_path))
    for name, model in models.items():
        outputs = model({key: inputs[key] for key in model.input})
        outputs = outputs if isinstance(outputs, dict) else {"output": outputs}
        with np.load(tmp_path / f"{name}.npz") as loaded:
            assert list(loaded["paths"]) == [variable.path for variable in model.weights]
            for key, value in outputs.items():
                np.testing.assert_allclose(loaded[key], value, rtol=0, atol=1e-6)


def test_encoder_trains_inside_another_model_by_fit(tiny_config):
    symbolic = modeling.encoder_inputs()
    one_layer = change(tiny_config, num_hidden_layers=1)
    pooled = modeling.BertModel(one_layer)(symbolic)["pooled_output"]
    model = keras.Model(symbolic, keras.layers.Dense(2)(pooled))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.01), loss)
    examples = make_examples(tiny_config, 8)
    labels = examples["next_sentence_labels"][:, 0]
    before = model.get_weights()
    history = model.fit(
        encoder_inputs(examples), labels, batch_size=8, epochs=15, verbose=0
    ).history["loss"]
    assert history[-1] < 0.5 * history[0]
    unchanged = [
        variable.path
        for variable, old in zip(model.weights, before, strict=True)
        if np.array_equal(variable.numpy(), old)
    ]
    assert unchanged == []


@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16"])
@pytest.mark.parametrize("positions", [None, np.array([[0, 3]] * 2, np.int32)])
def test_shapes_are_told_as_a_call_gives_them(tiny_config, dtype, positions):
    bert = modeling.BertModel(tiny_config, dtype=dtype)
    inputs = encoder_inputs(make_examples(tiny_config, 2))
    symbolic = {name: keras.Input(batch_shape=each.shape) for name, each in inputs.items()}
    told, given = (
        bert(each, positions=positions, attention_probs=True) for each in (symbolic, inputs)
    )
    assert told.keys() == given.keys()
    for name in told:
        pairs = zip(keras.tree.flatten(told[name]), keras.tree.flatten(given[name]), strict=True)
        for one, other in pairs:
            assert (one.shape, one.dtype) == (tuple(other.shape), other.dtype.name), name


@pytest.mark.parametrize(
    "rates", [{"hidden_dropout_prob": 0.5}, {"attention_probs_dropout_prob": 0.0}]
)
def test_layers_that_are_computed_again_have_the_masks_of_their_first_pass(tiny_config, rates):
    encoder = modeling.Encoder(change(tiny_config, **rates))
    encoder.gradient_checkpointing = True
    encoder.build(None)
    spread(encoder)
    rng = np.random.RandomState(2)
    inputs, direction, weights = (
        tf.constant(rng.normal(size=(6, tiny_config.hidden_size)), tf.float32) for _ in range(3)
    )
    generators = [layer.seed_generator for layer in dropouts(encoder).values() if layer.rate]

    def value(at):
        for generator in generators:
            generator.state.assign([5, 7])
        return tf.reduce_sum(encoder(at, tf.ones((2, 3)), training=True)[-1] * weights)

    with tf.GradientTape() as tape:
        tape.watch(inputs)
        total = value(inputs)
    slope = tf.reduce_sum(tape.gradient(total, inputs) * direction)
    # Other masks would have another slope altogether.
    step = 1e-2
    found = (value(inputs + step * direction) - value(inputs - step * direction)) / (2 * step)
    assert float(slope) == pytest.approx(float(found), rel=0.02)

"""Two stacks of LSTMs, one each direction, in the place of the Transformer (as ELMo has them)."""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf
from conftest import LENGTH, batches_in, change, spread, to_numpy

import modeling
import run_pretraining
from bert.pretraining import objectives
from bert.training.devices import estimate_memory
from bert.weights import model_files
from bert.weights.variables import count_parameters, encoder_shapes

BILSTM_LM = objectives.OBJECTIVES["bilstm_lm"]
SIZE = 9


@pytest.fixture
def config(still_config):
    return change(still_config, encoder_type="bilstm", num_hidden_layers=3)


@pytest.fixture
def encoder(config):
    """One whose weights are spread."""
    model = modeling.BertModel(config)
    model.build(None)
    spread(model)
    return model


def rows(*lengths, size=SIZE, seed=0):
    """Returns inputs of these lengths, padded."""
    ids = np.random.RandomState(seed).randint(1, 29, size=(len(lengths), size)).astype(np.int32)
    mask = (np.arange(size) < np.array(lengths)[:, None]).astype(np.int32)
    return {"input_ids": ids * mask, "input_mask": mask, "segment_ids": np.zeros_like(ids)}


def other_ids(inputs, places):
    """Returns the inputs with other tokens at these places, a slice."""
    ids = inputs["input_ids"].copy()
    ids[:, places] = 29 - ids[:, places]
    return {**inputs, "input_ids": ids}


def sigmoid(x):
    return 1.0 / (1.0 + np.exp(-x))


def read_row(inputs, weights):
    """Returns what an LSTM gives for a row, [S, D], from its beginning."""
    kernel, recurrent_kernel, bias = weights
    output = cell = np.zeros(len(recurrent_kernel))
    outputs = []
    for each in inputs:
        gates = each @ kernel + output @ recurrent_kernel + bias
        to_add, to_keep, candidate, to_give = np.split(gates, 4)
        cell = sigmoid(to_keep) * cell + sigmoid(to_add) * np.tanh(candidate)
        output = sigmoid(to_give) * np.tanh(cell)
        outputs.append(output)
    return np.array(outputs)


def test_each_direction_is_a_stack_of_lstms_with_what_they_read_added(encoder):
    outputs = to_numpy(encoder(rows(SIZE, 5)))
    for row, length in enumerate((SIZE, 5)):
        embedded = outputs["embedding_output"][row, :length].astype(np.float64)
        for half, name in enumerate(("forward", "backward")):
            hidden = embedded[:: -1 if half else 1]
            for index, layer in enumerate(outputs["encoder_layers"]):
                lstm = encoder.encoder.lstm_layers[index].lstms[half]
                assert lstm.kernel.path == f"bert/encoder/layer_{index}/{name}/kernel"
                read = read_row(hidden, [np.asarray(each, np.float64) for each in lstm.weights])
                hidden = read + hidden if index else read
                there = layer[row, :length, 4 * half : 4 * half + 4]
                np.testing.assert_allclose(
                    there, hidden[:: -1 if half else 1], rtol=0, atol=1e-5, err_msg=lstm.path
                )


def test_forget_gates_begin_at_1_and_the_other_biases_at_0(config):
    encoder = modeling.BertModel(config)
    encoder.build(None)
    for lstm in (each for layer in encoder.encoder.lstm_layers for each in layer.lstms):
        to_add, to_keep, candidate, to_give = np.split(lstm.bias.numpy(), 4)
        assert (to_keep == 1).all() and not np.concatenate([to_add, candidate, to_give]).any()


@pytest.mark.parametrize("size", [1, 4, 8])
def test_what_is_on_the_other_side_changes_nothing_of_a_direction(encoder, size):
    inputs = rows(SIZE, SIZE)
    whole = to_numpy(encoder(inputs))["encoder_layers"]
    later = to_numpy(encoder(other_ids(inputs, slice(size, None))))["encoder_layers"]
    earlier = to_numpy(encoder(other_ids(inputs, slice(None, size))))["encoder_layers"]
    for layer, with_later, with_earlier in zip(whole, later, earlier, strict=True):
        np.testing.assert_array_equal(with_later[:, :size, :4], layer[:, :size, :4])
        np.testing.assert_array_equal(with_earlier[:, size:, 4:], layer[:, size:, 4:])
        # And each sees all of its own side.
        assert (np.abs(with_later - layer)[:, size:, :4].max(-1) > 1e-5).all()
        assert (np.abs(with_earlier - layer)[:, :size, 4:].max(-1) > 1e-5).all()


def test_padding_changes_nothing_and_no_direction_begins_in_it(encoder):
    inputs = rows(SIZE, 4)
    whole = to_numpy(encoder(inputs))
    padding = {**inputs, "input_ids": np.where(inputs["input_mask"], inputs["input_ids"], 9)}
    other = to_numpy(encoder(padding))
    alone = to_numpy(encoder({name: values[1:, :4] for name, values in inputs.items()}))
    for name in ("sequence_output", "pooled_output"):
        is_cut = name == "sequence_output"
        there = whole[name][1, :4] if is_cut else whole[name][1]
        np.testing.assert_array_equal(other[name][1, :4] if is_cut else other[name][1], there)
        np.testing.assert_allclose(alone[name][0], there, rtol=0, atol=1e-6)


def test_the_pooled_output_is_of_both_ends_each_of_which_has_read_all(encoder):
    inputs = rows(SIZE, 4)
    whole = to_numpy(encoder(inputs))
    places = modeling.pooled_positions(encoder.config, tf.constant(inputs["input_mask"]))
    np.testing.assert_array_equal(places, [[8, 0], [3, 0]])
    ends = [
        np.concatenate([tokens[length - 1, :4], tokens[0, 4:]])
        for tokens, length in zip(whole["sequence_output"], (SIZE, 4), strict=True)
    ]
    kernel, bias = (np.asarray(each) for each in encoder.pooler.weights)
    expected = np.tanh(np.array(ends) @ kernel + bias)
    np.testing.assert_allclose(whole["pooled_output"], expected, rtol=0, atol=1e-6)
    positions = np.concatenate([places, [[5], [2]]], axis=1).astype(np.int32)
    some = to_numpy(encoder(inputs, positions=positions))
    np.testing.assert_array_equal(some["pooled_output"], whole["pooled_output"])
    tokens = np.take_along_axis(whole["sequence_output"], positions[:, :, None], axis=1)
    np.testing.assert_array_equal(some["sequence_output"], tokens)


def test_a_row_without_tokens_ends_where_it_begins():
    """As the choices that an example lacks; before it stands the row of another one."""
    assert np.asarray(modeling.end_positions(np.zeros((2, 4), np.int32))).tolist() == [[0, 0]] * 2


def test_the_state_is_of_32_bits_in_any_precision(config):
    exact, mixed = (modeling.BertModel(config, dtype=each) for each in ("float32", "mixed_float16"))
    for model in (exact, mixed):
        model.build(None)
        spread(model)
    inputs = rows(SIZE, 4)
    there = to_numpy(exact(inputs))["sequence_output"]
    outputs = mixed(inputs)["sequence_output"]
    assert keras.backend.standardize_dtype(outputs.dtype) == "float16"
    np.testing.assert_allclose(outputs, there, rtol=0, atol=2e-2)


def test_the_configuration_says_it_and_nothing_of_a_transformer(still_config, config):
    assert "encoder_type" not in still_config.to_dict()
    assert json.loads(config.to_json_string())["encoder_type"] == "bilstm"
    assert modeling.BertConfig.from_dict(config.to_dict()) == config
    # Its layers have no heads.
    change(config, hidden_size=10, num_attention_heads=3).check()
    for wrong, message in (
        ({"encoder_type": "lstm"}, r"`encoder_type` must be one of .* Received 'lstm'"),
        ({"is_decoder": True}, "`is_decoder` must be false, and `hidden_size` even"),
        ({"hidden_size": 9, "num_attention_heads": 3}, r"even, .* Received False and 9\."),
    ):
        with pytest.raises(ValueError, match=message):
            change(config, **wrong).check()
    with pytest.raises(ValueError, match=r"`.*objective` must be bilstm_lm for .*'masked_lm'"):
        objectives.OBJECTIVES["masked_lm"].fit(config)
    with pytest.raises(ValueError, match="`encoder_type` must be 'transformer' for transformers"):
        model_files.make_huggingface_config(config.to_dict(), "BertModel")
    with pytest.raises(ValueError, match="`attention_probs` must be requested of"):
        modeling.BertModel(config)(rows(3), attention_probs=True)
    with pytest.raises(ValueError, match="`attention_probs` must be requested of"):
        modeling.BertModel(config).compute_output_spec(
            modeling.encoder_inputs(), attention_probs=True
        )


def test_variables_are_counted_as_they_are(config):
    model = modeling.BertModel(config)
    model.build(None)
    shapes = {variable.path: list(variable.shape) for variable in model.weights}
    assert shapes == encoder_shapes(config)
    assert count_parameters(config) == model.count_params()
    # Of attention nothing is kept, so that the length counts once.
    one, two = (estimate_memory(config, num_sequences=1, length=each).batch for each in (50, 100))
    assert two == 2 * one


def test_a_token_is_predicted_from_either_side_and_not_from_itself(tmp_path, config):
    model = BILSTM_LM.make_model(config)
    spread(model)
    plain = batches_in(tmp_path, config, 3, seed=None, count=3)
    batches = BILSTM_LM.make_batches(plain.records, plain.features, 3)
    [batch] = batches.iterate(0, 1)
    assert {name: values.shape[1:] for name, values in batch.items()} == {
        name: spec.shape[1:] for name, spec in batches.signature.items()
    }
    [stored] = plain.iterate(0, 1)
    ids = objectives.unmask(stored).numpy()
    mask = batch["input_mask"].numpy()
    positions, labels, weights = (
        batch[f"masked_lm_{name}"].numpy() for name in ("positions", "ids", "weights")
    )
    count = LENGTH - 1
    np.testing.assert_array_equal(positions[0], [*range(count), *range(1, LENGTH)])
    np.testing.assert_array_equal(weights, np.concatenate([mask[:, 1:]] * 2, axis=1))
    neighbors = np.concatenate([ids[:, 1:], ids[:, :-1]], axis=1)
    np.testing.assert_array_equal(labels, neighbors * (weights > 0))

    def logits_of(ids):
        inputs = {**{name: batch[name] for name in model.input}, "input_ids": tf.constant(ids)}
        return np.asarray(model(inputs)["masked_lm_logits"])

    whole = logits_of(ids)
    for place in (1, 2):
        other = ids.copy()
        other[:, place] = 29 - other[:, place]
        differs = (np.abs(logits_of(other) - whole).max(-1) > 0) & (weights > 0)
        # Forward, position `place` is the first that has read it; backward, the last.
        assert not differs[:, :place].any()
        assert not differs[:, count + place :].any()
        assert differs[:, place].all()
        assert differs[:, count + place - 1].all()


def test_the_loss_is_the_mean_of_both_directions(tmp_path, config):
    model = BILSTM_LM.make_model(config)
    spread(model)
    plain = batches_in(tmp_path, config, 4, seed=None, count=4)
    [batch] = BILSTM_LM.make_batches(plain.records, plain.features, 4).iterate(0, 1)
    outputs = model({name: batch[name] for name in model.input})
    logits = np.asarray(outputs["masked_lm_logits"], np.float64)
    chances = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    labels = batch["masked_lm_ids"].numpy()
    losses = -np.take_along_axis(chances, labels[:, :, None], axis=2)[:, :, 0]
    is_there = batch["input_mask"].numpy()[:, 1:] > 0
    means = [half[is_there].mean() for half in np.split(losses, 2, axis=1)]
    metrics = BILSTM_LM.metrics(outputs, batch)
    assert list(metrics) == ["language_model_loss", "language_model_accuracy"]
    total, weight = metrics["language_model_loss"]
    assert float(total / weight) == pytest.approx(np.mean(means), abs=1e-5)
    # The weights of the output are the embeddings.
    table = np.asarray(model.get_layer("bert").embeddings.word_embeddings)
    names = {variable.path for variable in model.get_layer("cls").weights}
    assert {name for name in names if "transform" in name} == {
        f"cls/predictions/transform/{side}/{name}"
        for side in ("forward", "backward")
        for name in ("dense/kernel", "dense/bias", "LayerNorm/gamma", "LayerNorm/beta")
    }
    assert logits.shape[-1] == len(table)


@pytest.mark.exhaustive
def test_parts_of_a_batch_give_the_same_training(pretraining_run, tmp_path):
    results = {}
    for count in (1, 2):
        settings = pretraining_run(
            objective="bilstm_lm",
            output_dir=str(tmp_path / str(count)),
            do_eval=True,
            gradient_accumulation_steps=count,
            bert_config_file=still(tmp_path),
            num_train_steps=2,
        )
        keras.utils.set_random_seed(3)
        results[count] = run_pretraining.run(settings)
    assert results[1]["loss"] == pytest.approx(results[2]["loss"], abs=1e-5)


def still(folder):
    """Returns a configuration file without dropout, beside that of the fixture."""
    config = modeling.BertConfig.from_json_file(str(folder / "bert_config.json"))
    path = folder / "still_config.json"
    text = change(config, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    path.write_text(text.to_json_string())
    return str(path)

"""The objectives of pre-training: what is predicted, from what, and what becomes of the model."""

import json
import re
import shlex
import shutil

import keras
import numpy as np
import pytest
import tensorflow as tf
from conftest import batches_in, change, exhaustive, model_inputs, read_report, spread, to_numpy

import bert
import extract_features
import modeling
import run_pretraining
from bert.pretraining import objectives
from bert.weights import model_files

MASKED_LM = objectives.OBJECTIVES["masked_lm"]
LEFT_TO_RIGHT = objectives.OBJECTIVES["left_to_right"]


@pytest.fixture
def decoder(still_config):
    """A decoder whose weights are spread, with its configuration."""
    config = change(still_config, is_decoder=True)
    model = modeling.BertModel(config)
    model.build(None)
    spread(model)
    return model


def rows(*lengths, size=9, seed=0):
    """Returns inputs of these lengths, padded."""
    ids = np.random.RandomState(seed).randint(1, 29, size=(len(lengths), size)).astype(np.int32)
    mask = (np.arange(size) < np.array(lengths)[:, None]).astype(np.int32)
    return {"input_ids": ids * mask, "input_mask": mask, "segment_ids": np.zeros_like(ids)}


@pytest.mark.parametrize("size", [2, 4, 8])
def test_what_comes_later_changes_nothing_of_a_decoder(decoder, size):
    inputs = rows(9, 9)
    whole = to_numpy(decoder(inputs))
    cut = to_numpy(decoder({name: values[:, :size] for name, values in inputs.items()}))
    for whole_layer, layer in zip(whole["encoder_layers"], cut["encoder_layers"], strict=True):
        np.testing.assert_allclose(whole_layer[:, :size], layer, rtol=0, atol=1e-6)
    other = {**inputs, "input_ids": inputs["input_ids"].copy()}
    other["input_ids"][:, size:] = 29 - other["input_ids"][:, size:]
    changed = to_numpy(decoder(other))["sequence_output"]
    np.testing.assert_array_equal(changed[:, :size], whole["sequence_output"][:, :size])
    # And each token reads all before it.
    first = {**inputs, "input_ids": inputs["input_ids"].copy()}
    first["input_ids"][:, 0] = 29 - first["input_ids"][:, 0]
    moved = np.abs(to_numpy(decoder(first))["sequence_output"] - whole["sequence_output"])
    assert (moved.max(-1) > 1e-4).all()


def test_a_decoder_answers_at_some_positions_as_at_all(decoder):
    inputs = rows(9, 4)
    whole = to_numpy(decoder(inputs))
    last = modeling.pooled_positions(decoder.config, tf.constant(inputs["input_mask"]))
    np.testing.assert_array_equal(last, [[8], [3]])
    positions = np.concatenate([last, [[5, 0], [2, 1]]], axis=1).astype(np.int32)
    some = to_numpy(decoder(inputs, positions=positions))
    expected = np.take_along_axis(whole["sequence_output"], positions[:, :, None], axis=1)
    np.testing.assert_allclose(some["sequence_output"], expected, rtol=0, atol=1e-6)
    np.testing.assert_allclose(some["pooled_output"], whole["pooled_output"], rtol=0, atol=1e-6)
    weight = {variable.path: variable.numpy() for variable in decoder.pooler.weights}
    pooled = np.tanh(
        expected[:, 0] @ weight["bert/pooler/dense/kernel"] + weight["bert/pooler/dense/bias"]
    )
    np.testing.assert_allclose(whole["pooled_output"], pooled, rtol=0, atol=1e-6)


@pytest.mark.parametrize("kind", [{"is_decoder": True}, {"encoder_type": "bilstm"}], ids=str)
def test_layers_computed_again_in_the_backward_pass_are_the_same(still_config, kind):
    config = change(still_config, **kind, hidden_dropout_prob=0.2)
    gradients = []
    for again in (False, True):
        model = modeling.BertModel(config)
        model.build(None)
        spread(model)
        model.gradient_checkpointing = again
        with tf.GradientTape() as tape, modeling.dropout_seed(tf.constant([1, 2])):
            loss = tf.reduce_sum(model(rows(9, 4), training=True)["pooled_output"])
        weights = [variable.value for variable in model.trainable_variables]
        gradients.append([*map(tf.convert_to_tensor, tape.gradient(loss, weights))])
    for one, other in zip(*gradients, strict=True):
        np.testing.assert_array_equal(one, other)


def test_configurations_of_berts_say_nothing_of_decoders(still_config):
    assert "is_decoder" not in still_config.to_dict()
    decoder = change(still_config, is_decoder=True)
    assert json.loads(decoder.to_json_string())["is_decoder"] is True
    assert modeling.BertConfig.from_dict(decoder.to_dict()) == decoder
    assert LEFT_TO_RIGHT.fit(still_config) == decoder != still_config
    with pytest.raises(ValueError, match=r"`is_decoder` must be true or false\. Received 'yes'"):
        modeling.BertConfig.from_dict({**still_config.to_dict(), "is_decoder": "yes"}).check()
    with pytest.raises(ValueError, match=r"`.*objective` must be left_to_right for .*'masked_lm'"):
        MASKED_LM.fit(decoder)
    with pytest.raises(ValueError, match="`is_decoder` must be false for transformers"):
        model_files.make_huggingface_config(decoder.to_dict(), "BertForPreTraining")


def masked(ids, lengths):
    """Returns a batch in which some of the ids are masked, as records have them."""
    positions = np.array([[1, 3, 0], [2, 0, 0]], np.int32)
    weights = np.array([[1, 1, 0], [1, 0, 0]], np.float32)
    labels = np.take_along_axis(ids, positions, axis=1) * weights.astype(np.int32)
    hidden = ids.copy()
    for row, place in ((0, 1), (0, 3), (1, 2)):
        hidden[row, place] = 4
    mask = (np.arange(ids.shape[1]) < np.array(lengths)[:, None]).astype(np.int32)
    return {
        "input_ids": tf.constant(hidden * mask),
        "input_mask": tf.constant(mask),
        "segment_ids": tf.zeros_like(ids),
        "masked_lm_positions": tf.constant(positions),
        "masked_lm_ids": tf.constant(labels),
        "masked_lm_weights": tf.constant(weights),
        "next_sentence_labels": tf.zeros((2, 1), tf.int32),
    }


def test_what_follows_is_to_be_predicted_and_masks_are_taken_off():
    ids = np.array([[2, 7, 8, 9, 10, 3], [2, 11, 12, 3, 0, 0]], np.int32)
    batch = objectives.predict_next(masked(ids, [6, 4]))
    np.testing.assert_array_equal(batch["input_ids"], ids)
    np.testing.assert_array_equal(batch["masked_lm_positions"], [[0, 1, 2, 3, 4]] * 2)
    np.testing.assert_array_equal(batch["masked_lm_ids"], [[7, 8, 9, 10, 3], [11, 12, 3, 0, 0]])
    np.testing.assert_array_equal(batch["masked_lm_weights"], [[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]])


def test_loss_left_to_right_is_that_of_each_token_behind_a_text_that_ends_there(
    tmp_path, still_config
):
    config = LEFT_TO_RIGHT.fit(still_config)
    model = LEFT_TO_RIGHT.make_model(config)
    spread(model)
    plain = batches_in(tmp_path, config, 3, seed=None, count=3)
    batches = LEFT_TO_RIGHT.make_batches(plain.records, plain.features, 3)
    [batch] = batches.iterate(0, 1)
    assert {name: values.shape for name, values in batch.items()} == {
        name: tf.TensorShape([3, *spec.shape[1:]]) for name, spec in batches.signature.items()
    }
    [stored] = plain.iterate(0, 1)
    ids = objectives.unmask(stored).numpy()
    stored = {name: values.numpy() for name, values in stored.items()}
    losses, hits = [], []
    for row, length in enumerate(stored["input_mask"].sum(axis=1)):
        for end in range(1, length):
            is_there = np.arange(ids.shape[1]) < end
            alone = {
                name: values[row : row + 1] * is_there
                for name, values in stored.items()
                if name in ("input_mask", "segment_ids")
            }
            alone["input_ids"] = ids[row : row + 1] * is_there
            alone["masked_lm_positions"] = np.array([[end - 1]])
            outputs = to_numpy(model({name: alone[name] for name in model.input}))
            logits = outputs["masked_lm_logits"][0, 0].astype(np.float64)
            losses.append(np.log(np.exp(logits).sum()) - logits[ids[row, end]])
            hits.append(logits.argmax() == ids[row, end])
    outputs = model({name: batch[name] for name in model.input})
    metrics = LEFT_TO_RIGHT.metrics(outputs, batch)
    assert list(metrics) == ["language_model_loss", "language_model_accuracy"]
    loss, accuracy = (float(total) / float(weight) for total, weight in metrics.values())
    assert loss == pytest.approx(np.mean(losses), abs=1e-5)
    assert accuracy == pytest.approx(np.mean(hits), abs=1e-6)


def test_masked_lm_alone_has_the_gradients_of_its_half_of_the_loss(tmp_path, still_config):
    batch = next(batches_in(tmp_path, still_config, 4).iterate(0, 1))
    gradients, untouched = {}, {"bert/pooler/dense", "cls/seq_relationship"}
    for name in ("masked_lm_nsp", "masked_lm"):
        objective = objectives.OBJECTIVES[name]
        model = objective.make_model(still_config)
        spread(model)
        with tf.GradientTape() as tape:
            outputs = model(model_inputs(batch))
            loss = objective.make_loss()
            parts = loss.losses(outputs, batch, loss.weights(batch))
        variables = {each.path: each.value for each in model.trainable_variables}
        gradients[name] = tape.gradient(parts["masked_lm_loss"], variables)
    assert list(parts) == ["masked_lm_loss"]
    whole, own = gradients.values()
    assert {path.rpartition("/")[0] for path in whole.keys() - own.keys()} >= {"bert/pooler/dense"}
    assert all(path.startswith(tuple(untouched)) for path in whole.keys() - own.keys())
    for path, values in own.items():
        np.testing.assert_array_equal(tf.convert_to_tensor(values), whole[path], err_msg=path)


def settings_of(pretraining_run, name, folder, **changes):
    every = {"do_eval": True, "eval_batch_size": 20, "save_checkpoints_steps": 1}
    every["num_train_steps"] = 2
    return pretraining_run(objective=name, output_dir=str(folder), **every, **changes)


def check_that_only_what_was_learned_is_evaluated(pretraining_run, folder, results):
    """Takes a run of masked_lm in `whole`."""
    whole = str(folder / "whole")
    for place, init in ((whole, None), (str(folder / "other"), whole)):
        given = {"do_train": False, "init_checkpoint": init}
        wrong = settings_of(pretraining_run, "masked_lm_nsp", place, **given)
        with pytest.raises(
            ValueError, match=r"must be masked_lm to evaluate .*whole'.* Received 'masked_lm_nsp'"
        ):
            run_pretraining.run(wrong)
    right = settings_of(pretraining_run, "masked_lm", place, **given)
    assert run_pretraining.run(right) == results


def write_vocabulary(folder):
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *map(str, range(24))]
    (folder / "vocab.txt").write_text("\n".join(words) + "\n")


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("name", ["masked_lm", *exhaustive("left_to_right", "bilstm_lm")])
def test_a_training_is_kept_resumed_and_told(pretraining_run, tmp_path, log, name):
    tokens = "masked_lm" if name == "masked_lm" else "language_model"
    whole = settings_of(pretraining_run, name, tmp_path / "whole")
    keras.utils.set_random_seed(3)
    results = run_pretraining.run(whole)
    assert results.keys() == {"loss", f"{tokens}_accuracy", f"{tokens}_loss"}
    assert results["loss"] == results[f"{tokens}_loss"]
    stored = json.loads((tmp_path / "whole/eval_results.json").read_text())
    assert stored["perplexity"] == pytest.approx(np.exp(results["loss"]))
    assert any("perplexity is " in message for message in log.messages)
    assert not any("second segment" in message for message in log.messages)
    config = modeling.BertConfig.from_json_file(str(tmp_path / "whole/bert_config.json"))
    assert config.is_decoder == (name == "left_to_right")
    assert config.is_bilstm == (name == "bilstm_lm")
    title = "Masked sentences" if name == "masked_lm" else "Sentences, token by token"
    sections = read_report(tmp_path / "whole")["sections"]
    assert title in sections
    assert "Whether the second part follows the first" not in sections

    shutil.copytree(tmp_path / "whole", tmp_path / "cut")
    for path in (tmp_path / "cut").glob("model.ckpt-2.*"):
        path.unlink()
    assert run_pretraining.run(settings_of(pretraining_run, name, tmp_path / "cut")) == results
    assert any("Resuming from step 1" in message for message in log.messages)

    if name == "masked_lm":
        check_that_only_what_was_learned_is_evaluated(pretraining_run, tmp_path, results)
        write_vocabulary(tmp_path / "whole")
        with pytest.raises(ValueError, match="It has none that was trained"):
            bert.load(str(tmp_path / "whole")).next_sentence([("3", "4")])
    other = "masked_lm_nsp" if name == "masked_lm" else "masked_lm"
    wrong = settings_of(pretraining_run, other, tmp_path / "whole")
    with pytest.raises(
        ValueError,
        match=r"`is_decoder` is True there|--objective is 'masked_lm' th|type` is 'bilstm' there",
    ):
        run_pretraining.run(wrong)


@pytest.mark.usefixtures("eager")
def test_a_decoder_encodes_and_is_not_asked_what_a_mask_hides(
    pretraining_run, tmp_path, monkeypatch, capsys
):
    # As its card has it.
    folder = tmp_path / "my_model"
    run_pretraining.run(settings_of(pretraining_run, "left_to_right", folder))
    write_vocabulary(folder)
    model = bert.load(str(folder))
    one, other = model.encode(["3 4", "5"], pooling="cls")
    np.testing.assert_allclose(one, other, rtol=0, atol=1e-6)
    one, other = one_and_other = model.encode(["3 4", "5"], pooling="mean")
    assert np.abs(one - other).max() > 1e-4
    with pytest.raises(ValueError, match=r"reads what is before it alone: `is_decoder`"):
        model.fill_mask(["3 [MASK]"])
    monkeypatch.chdir(tmp_path)
    (tmp_path / "texts.txt").write_text("3 4\n5\n")
    shell, python = re.findall(r"```(?:sh|python)\n([^`]*)```", (folder / "README.md").read_text())[
        1:
    ]
    exec(python.replace('"A text."', '"3 4", "5"'))
    assert capsys.readouterr().out == f"{one_and_other}\n"
    _, script, *flags = shlex.split(shell)
    assert script == "extract_features.py"
    values = dict(each.removeprefix("--").split("=", 1) for each in flags)
    extract_features.run(extract_features.Settings(**values, max_seq_length=16))
    np.testing.assert_array_equal(np.load("vectors.npy"), one_and_other)

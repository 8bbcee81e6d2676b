"""Fine-tuned models with LSTMs: `--add_bilstm`, and encoders of LSTMs, until they answer."""

import contextlib
import dataclasses
import json
import logging

import keras
import numpy as np
import pytest
from conftest import change, read_report, spread, to_numpy
from helpers import classifier_runs, opened_tasks, swag_runs, tagging_runs

import convert_checkpoint
import modeling
import run_classifier
import run_ner
import run_swag
from bert.models.open import load
from bert.network import heads
from bert.weights import checkpoint
from tokenization import FullTokenizer

LSTM = {f"bilstm/{way}/{name}" for way in ("forward", "backward") for name in ("kernel", "bias")}


@pytest.fixture
def decoder(still_config):
    return change(still_config, is_decoder=True)


def rows(*lengths, size=9):
    ids = np.random.RandomState(0).randint(1, 29, size=(len(lengths), size)).astype(np.int32)
    mask = (np.arange(size) < np.array(lengths)[:, None]).astype(np.int32)
    return {"input_ids": ids * mask, "input_mask": mask, "segment_ids": np.zeros_like(ids)}


def changed(inputs, place):
    ids = inputs["input_ids"].copy()
    ids[:, place] = 29 - ids[:, place]
    return {**inputs, "input_ids": ids}


def test_a_decoder_under_a_bilstm_sees_both_sides_of_each_token(decoder):
    inputs = rows(9, 9)
    for add_bilstm in (False, True):
        model = heads.tagging_model(decoder, 3, add_bilstm=add_bilstm)
        spread(model)
        whole = to_numpy(model(inputs))["logits"]
        later = to_numpy(model(changed(inputs, 8)))["logits"]
        differs = np.abs(later - whole).max(-1) > 1e-6
        assert differs[:, 8].all()
        assert differs[:, :8].all() == differs[:, :8].any() == add_bilstm


def test_padding_changes_nothing_under_a_bilstm(decoder):
    makers = {
        "logits": lambda: heads.classifier_model(decoder, 3, add_bilstm=True),
        "start_logits": lambda: heads.span_model(decoder, add_bilstm=True),
    }
    inputs = rows(9, 4)
    for name, make in makers.items():
        model = make()
        spread(model)
        whole = to_numpy(model(inputs))[name][1]
        alone = to_numpy(model({key: values[1:, :4] for key, values in inputs.items()}))[name][0]
        own = whole if name == "logits" else whole[:4]
        np.testing.assert_allclose(alone, own, rtol=0, atol=1e-5)
        padding = {**inputs, "input_ids": np.where(inputs["input_mask"], inputs["input_ids"], 9)}
        other = to_numpy(model(padding))[name][1]
        np.testing.assert_array_equal(other if name == "logits" else other[:4], own)


def test_a_classifier_reads_the_ends_of_the_bilstm(still_config):
    model = heads.classifier_model(still_config, 3, add_bilstm=True)
    spread(model)
    inputs = rows(9, 4)
    tokens = model.get_layer("bert")(inputs)["sequence_output"]
    read = to_numpy(model.get_layer("bilstm")(tokens, inputs["input_mask"]))
    ends = [
        np.concatenate([row[length - 1, :4], row[0, 4:]])
        for row, length in zip(read["sequence_output"], (9, 4), strict=True)
    ]
    head = model.get_layer("classifier")
    logits = np.array(ends) @ np.asarray(head.output_weights).T + np.asarray(head.output_bias)
    np.testing.assert_allclose(to_numpy(model(inputs))["logits"], logits, rtol=0, atol=1e-5)


def use_lstms(folder):
    """Makes the encoder of the configuration one of LSTMs."""
    config = modeling.BertConfig.from_json_file(str(folder / "config.json"))
    (folder / "config.json").write_text(change(config, encoder_type="bilstm").to_json_string())


def compare_with_export(folder, texts):
    ours, theirs = (load(str(path)).predict(texts) for path in (folder, folder / "saved_model"))
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(
            list(one["probabilities"].values()), list(other["probabilities"].values()), atol=1e-5
        )


@pytest.mark.exhaustive
@pytest.mark.parametrize("added", [True, False])
def test_a_classifier_is_trained_used_again_and_exported(tmp_path, added):
    make = classifier_runs.settings_in(tmp_path, num_hidden_layers=2)
    classifier_runs.write_task(tmp_path, lambda color: color)
    if not added:
        use_lstms(tmp_path)
    keras.utils.set_random_seed(3)
    flags = {
        "add_bilstm": added,
        "do_train": True,
        "do_eval": True,
        "num_train_epochs": 6.0,
        "learning_rate": 0.003 if added else 0.01,
    }
    results = run_classifier.run(make(**flags))
    assert results["accuracy"] > 0.8
    names = set(checkpoint.Stored.open(str(tmp_path / "out")).shapes)
    assert (names >= LSTM) == added
    task = json.loads((tmp_path / "out/task.json").read_text())
    assert task.get("add_bilstm") == (True if added else None)
    # The folder says it; no flag is needed. LSTMs of either place are exported alike.
    again = run_classifier.run(make(do_eval=True, do_export=added))
    assert again["accuracy"] == results["accuracy"]
    if added:
        compare_with_export(tmp_path / "out", ["a c", "b d a"])
    for form in ("tflite", "saved_model,onnx"):
        with pytest.raises(ValueError, match=r"must be saved_model for a model with LSTMs"):
            run_classifier.run(make(do_export=True, export_format=form))
    wanted = convert_checkpoint.Settings(
        input=str(tmp_path / "out"), output=str(tmp_path / "hf"), format="huggingface"
    )
    with pytest.raises(ValueError, match=r"BiLSTM on it|`encoder_type` must be 'transformer'"):
        convert_checkpoint.run(wanted)


@pytest.mark.usefixtures("eager")
def test_a_training_with_a_bilstm_is_not_gone_on_with_without(tmp_path):
    make = swag_runs.settings_in(tmp_path)
    swag_runs.write_task(tmp_path, 8)
    settings = {"do_train": True, "num_train_epochs": 1.0}
    run_swag.run(make(add_bilstm=True, **settings))
    with pytest.raises(ValueError, match="--add_bilstm is True there and False now"):
        run_swag.run(make(**settings))
    texts = [{"context": "bee", "endings": ["in hive", "in nest"]}]
    [answer] = load(str(tmp_path / "out")).predict(texts)
    assert sum(answer["probabilities"]) == pytest.approx(1.0)


@pytest.mark.usefixtures("eager")
def test_a_tagger_mixes_the_layers_of_lstms_and_tells_how(tmp_path, log):
    make = tagging_runs.settings_in(tmp_path, num_hidden_layers=2)
    tagging_runs.write_task(tmp_path, 16)
    use_lstms(tmp_path)
    flags = {"feature_based": True, "feature_layers": "weighted", "lstm_size": 8}
    with pytest.raises(ValueError, match="`add_bilstm` must not be given with `feature_based`"):
        run_ner.run(make(**flags, add_bilstm=True, do_train=True))
    log.set_level(logging.INFO)
    results = run_ner.run(make(**flags, do_train=True, do_eval=True, num_train_epochs=1.0))
    stored = checkpoint.Stored.open(str(tmp_path / "out")).read(["bilstm/mix/layer_weights"])
    weights = np.exp(stored["bilstm/mix/layer_weights"])
    np.testing.assert_allclose(results["layer_weights"], weights / weights.sum(), rtol=1e-5)
    assert weights[0] != weights[1]
    told = json.loads((tmp_path / "out/eval_results.json").read_text())
    assert told["layer_weights"] == results["layer_weights"]
    assert any(message.startswith("Weights of the layers, from") for message in log.messages)
    assert "Layers" in read_report(tmp_path / "out")["sections"]


@pytest.mark.parametrize(("encoder", "fits"), [("transformer", True), ("bilstm", False)])
def test_onnx_holds_the_lstms_of_a_tagger_on_features_and_no_others(
    still_config, tmp_path, encoder, fits
):
    config = change(still_config, encoder_type=encoder)
    (tmp_path / "train.txt").write_text("red O\nblue B-X\n\n")
    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\nred\nblue\n")
    settings = run_ner.Settings(
        output_dir=str(tmp_path / "out"),
        train_file=str(tmp_path / "train.txt"),
        do_train=True,
        do_export=True,
        export_format="onnx",
        feature_based=True,
        feature_layers="last",
    )
    given = (config, FullTokenizer(str(tmp_path / "vocab.txt")))
    with contextlib.nullcontext() if fits else pytest.raises(ValueError, match="must be saved_m"):
        opened_tasks.open_task(run_ner, settings, *given)
    added = dataclasses.replace(settings, feature_based=None, feature_layers=None, add_bilstm=True)
    with pytest.raises(ValueError, match="must be saved_model for a model with LSTMs"):
        opened_tasks.open_task(run_ner, added, *given)

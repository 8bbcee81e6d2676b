"""Laws that hold for each of the four tasks."""

import dataclasses
import json

import numpy as np
import pytest
import tensorflow as tf
from conftest import exhaustive
from helpers import classifier_runs, opened_tasks, squad_runs, swag_runs, tagging_runs
from helpers.forks import fork_python
from helpers.trainers import TRAIN_SOME_STEPS

import modeling
import run_classifier
import run_ner
import run_squad
import run_swag
import tokenization
from bert.models import fine_tuned
from bert.models.open import load
from bert.tasks.answering import collect, collect_padded, stored_field
from bert.tasks.task import at_precision
from bert.training.evaluation import Predictor

RUNNERS = {
    "classification": (run_classifier, classifier_runs),
    "question_answering": (run_squad, squad_runs),
    "tagging": (run_ner, tagging_runs),
    "multiple_choice": (run_swag, swag_runs),
}


def write_task(kind, folder, count=16):
    written = RUNNERS[kind][1]
    if kind == "classification":
        written.write_task(folder, lambda color: color, count=count)
    else:
        written.write_task(folder, count=count)


def make_settings(kind, folder, **changes):
    return RUNNERS[kind][1].settings_in(folder)(**{"do_train": True, **changes})


def open_task(kind, settings):
    config = modeling.BertConfig.from_json_file(settings.bert_config_file)
    tokenizer = tokenization.FullTokenizer(settings.vocab_file, bool(settings.do_lower_case))
    return opened_tasks.open_task(RUNNERS[kind][0], settings, config, tokenizer)


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("kind", "same", "changes"),
    [
        ("classification", "confusion_matrix", {}),
        ("tagging", "types", {}),
        ("tagging", "types", {"crf": True}),
    ],
    ids=["classification", "tagging", "tagging with a CRF"],
)
def test_two_replicas_micro_batches_or_padding_equal_one_device(tmp_path, kind, same, changes):
    write_task(kind, tmp_path, count=64)
    ways = {
        "one": {},
        "mirrored": {"strategy": "mirrored"},
        "accumulated": {"gradient_accumulation_steps": 4},
        "padded": {"pad_to_max_length": True},
    }
    shared = {"do_eval": True, "num_train_epochs": 2.0, "eval_batch_size": 7, **changes}
    runs = [
        make_settings(kind, tmp_path, **shared, **way, output_dir=str(tmp_path / name))
        for name, way in ways.items()
    ]
    given = {"devices": 2, "settings": [dataclasses.asdict(each) for each in runs]}
    given["script"] = RUNNERS[kind][0].__name__
    output = fork_python("-c", TRAIN_SOME_STEPS, json.dumps(given)).stdout
    one, *others = json.loads(output.splitlines()[-1])
    for name, other in zip([*ways][1:], others, strict=True):
        assert other["loss"] == pytest.approx(one["loss"], abs=1e-3), name
        assert other[same] == one[same], name


# Exports of all kinds share the code.
ALSO = [pytest.param(kind, marks=pytest.mark.exhaustive) for kind in [*RUNNERS][1:]]


@pytest.mark.parametrize("kind", ["classification", *ALSO])
def test_an_export_in_half_precision_answers_as_the_model_does(tmp_path, kind):
    write_task(kind, tmp_path)
    task = open_task(kind, make_settings(kind, tmp_path))
    model = task.whole_model(task.make_model("float32"))
    task.export(str(tmp_path / "half"), at_precision(task, model, "bfloat16"))
    assert {weight.dtype for weight in model.weights} == {"float32"}
    rng = np.random.default_rng(0)
    shape = [2] * len(model.input["input_ids"].shape[:-1]) + [7]
    ids = rng.integers(0, task.config.vocab_size, shape).astype(np.int32)
    inputs = {"input_ids": ids, "input_mask": ids * 0 + 1, "segment_ids": ids * 0}
    answer = tf.saved_model.load(str(tmp_path / "half")).signatures["features"]
    found = answer(**{name: tf.constant(values) for name, values in inputs.items()})
    for name, values in model(inputs, training=False).items():
        assert found[name].dtype == tf.float32
        assert 0 < np.abs(found[name] - values).max() < 0.01
    kept = tf.train.load_checkpoint(str(tmp_path / "half" / "variables" / "variables"))
    types = kept.get_variable_to_dtype_map()
    assert {types[name] for name in types if name.startswith("weights/")} == {tf.bfloat16}


@pytest.mark.parametrize("kind", RUNNERS)
def test_a_task_is_opened_from_its_json(tmp_path, kind):
    write_task(kind, tmp_path)
    task = open_task(kind, make_settings(kind, tmp_path))
    stored = json.loads(json.dumps(task.stored()))
    again = fine_tuned.open_task(stored, task.config, task.tokenizer)
    assert again.kind == stored["kind"] == kind
    # What answers knows no split of the training file.
    known = {name: stored[name] for name in stored if name != "dev_split"}
    assert json.loads(json.dumps(again.stored())) == known
    assert again.fields == task.fields
    fixed = set(task.fixed(is_training=False))
    assert {"kind", "do_lower_case"} <= fixed < set(task.fixed(is_training=True)) <= set(stored)


@pytest.mark.parametrize("kind", ["classification", "question_answering"])
def test_a_failure_before_training_leaves_no_task_behind(tmp_path, kind):
    """The next run would take a folder with a task for that of a model."""
    write_task(kind, tmp_path)
    changes = {"max_seq_length": 4}
    if kind == "question_answering":
        blank = {"context": " \n", "qas": [{"id": "a", "question": "Which?", "answers": []}]}
        squad_runs.write_squad(tmp_path / "train.json", [blank])
        changes = {"version_2_with_negative": True}
    else:
        header = ("text", "label", "other")
        rows = [("red a", "red", "b"), ("blue b", "blue", "a")]
        classifier_runs.write_tsv(tmp_path / "train.tsv", rows, header)
        changes["text_b_column"] = "other"
    with pytest.raises(ValueError, match="must"):
        RUNNERS[kind][0].run(make_settings(kind, tmp_path, **changes))
    assert not (tmp_path / "out/task.json").exists()


@pytest.mark.usefixtures("eager")
def test_a_damaged_task_is_overwritten(tmp_path):
    write_task("tagging", tmp_path)
    (tmp_path / "out").mkdir()
    (tmp_path / "out/task.json").write_text("{")
    settings = make_settings("tagging", tmp_path, num_train_epochs=0.5, overwrite_output_dir=True)
    run_ner.run(settings)
    assert load(str(tmp_path / "out")).task.kind == "tagging"


@pytest.mark.parametrize("kind", ["classification", "question_answering", "multiple_choice"])
def test_pairs_need_two_types_of_segments(tmp_path, kind):
    write_task(kind, tmp_path)
    changes = {}
    if kind == "classification":
        rows = [("red a", "red", "b"), ("blue b", "blue", "a")]
        classifier_runs.write_tsv(tmp_path / "train.tsv", rows, ("text", "label", "other"))
        changes["text_b_column"] = "other"
    settings = make_settings(kind, tmp_path, **changes)
    config = tmp_path / "config.json"
    config.write_text(config.read_text().replace('"type_vocab_size": 2', '"type_vocab_size": 1'))
    with pytest.raises(ValueError, match="`type_vocab_size` of the model must be"):
        RUNNERS[kind][0].run(settings)
    assert not (tmp_path / "out").exists()


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize(
    "kind", ["classification", "tagging", *exhaustive("question_answering", "multiple_choice")]
)
def test_dev_set_is_predicted_once_for_the_last_weights(tmp_path, monkeypatch, kind):
    write_task(kind, tmp_path)
    predicted = []
    predict = Predictor.predict

    def counted(self, batches, workers):
        predicted.append(len(batches.records))
        return predict(self, batches, workers)

    monkeypatch.setattr(Predictor, "predict", counted)
    evaluates = {"do_eval": True} if kind != "question_answering" else {"do_predict": True}
    settings = make_settings(kind, tmp_path, num_train_epochs=0.5, **evaluates)
    scores = RUNNERS[kind][0].run(settings)
    assert len(predicted) == 1
    # Alone, it gives the same scores of the same weights.
    again = RUNNERS[kind][0].run(dataclasses.replace(settings, do_train=False))
    assert len(predicted) == 2
    assert again == scores


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize(
    "kind",
    # All kinds share the code that reads and saves it.
    ["classification", *ALSO],
)
def test_vocabulary_may_be_remote(tmp_path, kind):
    write_task(kind, tmp_path)
    settings = make_settings(kind, tmp_path, num_train_epochs=0.5)
    remote = f"ram://test_runs_tasks/{kind}/vocab.txt"
    tf.io.gfile.makedirs(remote.removesuffix("/vocab.txt"))
    tf.io.gfile.copy(settings.vocab_file, remote, overwrite=True)
    RUNNERS[kind][0].run(dataclasses.replace(settings, vocab_file=remote))
    kept = (tmp_path / "out/vocab.txt").read_bytes()
    assert kept == (tmp_path / "vocab.txt").read_bytes()
    assert load(str(tmp_path / "out")).tokenizer.vocab == tokenization.load_vocab(remote)


def test_outputs_are_sorted():
    batches = [
        (np.array([2, 0]), {"logits": np.array([[2.0], [0.0]])}),
        (np.array([1]), {"logits": np.array([[1.0]])}),
    ]
    np.testing.assert_array_equal(collect(batches)["logits"], [[0.0], [1.0], [2.0]])


def test_outputs_may_be_texts():
    """Those of an exported model, which names the labels."""
    batches = [
        (np.array([row]), {"label": np.array([text], object)}) for row, text in enumerate("ab")
    ]
    assert collect(batches)["label"].tolist() == ["a", "b"]


def test_outputs_per_token_are_padded():
    batches = [
        (np.array([1]), {"logits": np.full((1, 3, 2), 5.0)}),
        (np.array([2, 0]), {"logits": np.full((2, 1, 2), 7.0)}),
    ]
    whole = collect_padded(batches, (3, 4), "logits")
    assert whole.shape == (3, 4, 2)
    np.testing.assert_array_equal(whole[:, :, 0], [[7, 0, 0, 0], [5, 5, 5, 0], [7, 0, 0, 0]])


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_outputs_that_are_not_finite_are_an_error(value):
    batches = [(np.array([row]), {"logits": np.full((1, 1, 2), row * value)}) for row in range(2)]
    with pytest.raises(ValueError, match="outputs of the model must be finite"):
        collect(batches)
    with pytest.raises(ValueError, match="outputs of the model must be finite"):
        collect_padded(batches, (2, 4), "logits")


@pytest.mark.parametrize("value", [0, 2**31, 10**30, -(10**30), 3.0, "3", None, True])
def test_a_stored_length_must_be_one(value):
    assert stored_field({"doc_stride": 3}, "doc_stride", int) == 3
    with pytest.raises(ValueError, match=r"`doc_stride` must be a whole number from 1 to 2147"):
        stored_field({"doc_stride": value}, "doc_stride", int)

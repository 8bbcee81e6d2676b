import json
import re
import shutil
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
from conftest import (
    GOLDEN,
    LARGE_GOLDEN,
    eagerly,
    exhaustive,
    mostly_portable,
    read_report,
)
from helpers import opened_tasks
from helpers.checked_runs import assert_refused, check
from helpers.classifier_runs import COLORS, make_rows, read_tsv, settings_in, write_task, write_tsv

import predict
import run_classifier
import tokenization
from bert.models import fine_tuned
from bert.models.open import load
from bert.network.kernels import infer
from bert.tasks.classification import examples as glue
from bert.tasks.classification.examples import InputExample
from bert.tasks.examples import Inputs, Part
from bert.weights.folder import ModelFolder


@pytest.fixture
def make_settings(tmp_path):
    return settings_in(tmp_path)


def golden_settings(golden, **changes):
    if golden == GOLDEN:
        task, data, vocab = "cola", golden / "cola", golden / "vocab.txt"
        length = 32
    else:
        shared = LARGE_GOLDEN.parent / "data"
        task, data = "mrpc", shared / "glue/MRPC"
        vocab, length = shared / "vocab/bert-base-uncased-vocab.txt", 128
    return task, run_classifier.Settings(
        **{
            "task_name": task,
            "data_dir": str(data),
            "vocab_file": str(vocab),
            "bert_config_file": str(golden / "bert_config.json"),
            "init_checkpoint": str(golden / f"classifier_{task}" / "model.ckpt"),
            "max_seq_length": length,
            "do_eval": True,
            "do_predict": True,
            **changes,
        }
    )


@mostly_portable
@pytest.mark.parametrize("pads", [False, True])
def test_evaluation_and_prediction_equal_the_original(tmp_path, golden, pads):
    task, settings = golden_settings(golden, output_dir=str(tmp_path), pad_to_max_length=pads)
    if pads and golden != GOLDEN:
        pytest.skip("Padding is compared on the small files.")
    run_classifier.run(settings)
    original = json.loads((golden / f"classifier_{task}_eval.json").read_text())
    lines = (tmp_path / "eval_results.txt").read_text().splitlines()
    results = dict(re.fullmatch(r"(\w+) = (\S+)", line).groups() for line in lines)
    assert list(results) == ["eval_accuracy", "eval_loss", "global_step", "loss"]
    assert float(results["eval_accuracy"]) == pytest.approx(original["eval_accuracy"], abs=1e-6)
    for name in ("eval_loss", "loss"):
        assert float(results[name]) == pytest.approx(original["eval_loss"], abs=1e-5)
    assert results["global_step"] == "0"
    ours = np.loadtxt(tmp_path / "test_results.tsv", delimiter="\t")
    theirs = np.loadtxt(golden / f"classifier_{task}_test_results.tsv", delimiter="\t")
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-5)


@mostly_portable
def test_exported_model_equals_the_original_on_raw_text(tmp_path, golden):
    task, settings = golden_settings(
        golden, output_dir=str(tmp_path), do_eval=False, do_predict=False, do_export=True
    )
    run_classifier.run(settings)
    answer = tf.saved_model.load(str(tmp_path / "saved_model")).signatures["serving_default"]
    examples = glue.open_data_set(task, settings.data_dir).read("test")[""]
    names = ("text_a", "text_b") if task == "mrpc" else ("text_a",)
    ours = []
    for start in range(0, len(examples), 64):
        part = examples[start : start + 64]
        texts = {name: tf.constant([getattr(each, name) for each in part]) for name in names}
        ours.append(answer(**texts)["probabilities"].numpy())
    theirs = np.loadtxt(golden / f"classifier_{task}_test_results.tsv", delimiter="\t")
    np.testing.assert_allclose(np.concatenate(ours), theirs, rtol=0, atol=1e-5)


@pytest.mark.usefixtures("eager")
def test_records_have_the_originals_features(make_settings, tmp_path):
    write_task(tmp_path, lambda color: color)
    run_classifier.run(make_settings(do_train=True, do_eval=True, num_train_epochs=0.2))
    counts = {"train": 64, "eval": 40}
    for name, count in counts.items():
        records = list(tf.data.TFRecordDataset(str(tmp_path / f"out/{name}.tf_record")))
        assert len(records) == count
        features = tf.train.Example.FromString(records[0].numpy()).features.feature
        sizes = {key: len(value.int64_list.value) for key, value in features.items()}
        length = dict.fromkeys(("input_ids", "input_mask", "segment_ids"), 12)
        assert sizes == {**length, "label_ids": 1, "is_real_example": 1}


def test_a_task_of_ones_own_is_learned_and_predicted(make_settings, tmp_path, log):
    tests = write_task(tmp_path, lambda color: color)
    scores = run_classifier.run(
        make_settings(do_train=True, do_eval=True, do_predict=True, num_train_epochs=20.0)
    )
    assert scores["accuracy"] > 0.95
    assert scores["baseline"] < 0.5
    out = tmp_path / "out"
    stored = json.loads((out / "eval_results.json").read_text())
    named = {name: value for name, value in scores.items() if not name.startswith("test_")}
    assert stored == {"global_step": 160, **named}
    assert stored["per_class"]["red"]["support"] + stored["per_class"]["blue"]["support"] < 40
    rows = read_tsv(out / "predictions.tsv")
    assert [row["text_a"] for row in rows] == [text for text, _ in tests]
    right = np.mean(
        [row["predicted_label"] == color for row, (_, color) in zip(rows, tests, strict=True)]
    )
    assert right > 0.9
    probabilities = np.loadtxt(out / "test_results.tsv")
    labels = sorted(COLORS)
    for row, each in zip(rows, probabilities, strict=True):
        named = [float(row[f"probability_{label}"]) for label in labels]
        assert named == pytest.approx(each.tolist(), abs=1e-6)
        assert row["predicted_label"] == labels[int(np.argmax(each))]
    assert any("Confusion matrix" in message for message in log.messages)
    dev = read_tsv(out / "dev_predictions.tsv")
    assert np.mean([row["predicted_label"] == row["gold"] for row in dev]) == scores["accuracy"]
    sections = read_report(out)["sections"]
    charts = [chart["title"] for chart in sections["Training"]["charts"]]
    assert charts == ["Loss", "Learning rate", "Gradient norm"]
    assert sections["Confusions of the dev set"]["counts"] == scores["confusion_matrix"]
    shown = sections["Examples of the dev set"]["examples"]
    assert np.mean([example["is_right"] for example in shown]) == scores["accuracy"]
    # Another day, from the folder alone.
    page = (out / "report.html").read_bytes()
    before = (out / "predictions.tsv").read_bytes()
    (out / "predictions.tsv").unlink()
    (tmp_path / "train.tsv").unlink()
    keras.utils.set_random_seed(99)
    run_classifier.run(make_settings(do_predict=True))
    assert (out / "predictions.tsv").read_bytes() == before
    assert (out / "report.html").read_bytes() == page


def test_predictions_are_of_the_last_weights_of_several_evaluations(make_settings, tmp_path):
    write_task(tmp_path, lambda color: color, count=24)
    verbs = {"do_train": True, "do_eval": True}
    steps = {"num_train_epochs": 1.0, "save_checkpoints_steps": 1, "learning_rate": 0.05}
    with eagerly():
        run_classifier.run(make_settings(**verbs, **steps))
        names = ("eval_results.txt", "eval_results.json", "dev_predictions.tsv")
        found = [(tmp_path / "out" / name).read_bytes() for name in names]
        run_classifier.run(make_settings(do_eval=True))
    assert [(tmp_path / "out" / name).read_bytes() for name in names] == found


def test_early_stopping_resumes_with_the_same_dev_set_only(make_settings, tmp_path):
    write_task(tmp_path, lambda color: color, count=8)
    settings = make_settings(
        do_train=True, do_eval=True, num_train_epochs=1.0, early_stopping_patience=1
    )
    with eagerly():
        run_classifier.run(settings)
        (tmp_path / "dev.tsv").write_bytes((tmp_path / "train.tsv").read_bytes())
        with pytest.raises(ValueError, match=r"the dev set is .* there and .* now"):
            run_classifier.run(settings)


def test_a_run_that_ends_early_has_ended_and_is_not_said_to_have_few_steps(
    make_settings, tmp_path, log
):
    write_task(tmp_path, lambda color: color, count=16)
    # Always giving the most frequent label is nearly always right.
    rows = [*make_rows(9, 1, lambda _: COLORS[0]), *make_rows(1, 2, lambda _: COLORS[1])]
    write_tsv(tmp_path / "dev.tsv", rows)
    initial = {"init_checkpoint": str(tmp_path / "out"), "output_dir": str(tmp_path / "other")}
    early = {"num_train_epochs": 50.0, "early_stopping_patience": 1, "save_checkpoints_steps": 1}
    with eagerly():
        run_classifier.run(make_settings(do_train=True, num_train_epochs=0.5))
        still = make_settings(do_train=True, do_eval=True, learning_rate=0.0, **initial, **early)
        run_classifier.run(still)
    assert json.loads((tmp_path / "other/eval_results.json").read_text())["global_step"] == 1
    [message] = [each for each in log.messages if "has not learned" in each]
    assert "`learning_rate=0.0` is low" in message
    [line] = [each for each in check(run_classifier, still) if each.name == "time"]
    assert line.text == "the training there has ended: nothing to train"


def test_weights_of_a_fine_tuned_model_keep_the_order_of_their_labels(make_settings, tmp_path):
    write_task(tmp_path, lambda color: color)
    order = [*reversed(COLORS)]
    with eagerly():
        trained = run_classifier.run(
            make_settings(do_train=True, do_eval=True, num_train_epochs=0.5, labels=order)
        )
        shared = {"init_checkpoint": str(tmp_path / "out"), "output_dir": str(tmp_path / "other")}
        shared["do_eval"] = True
        assert run_classifier.run(make_settings(**shared))["loss"] == trained["loss"]
    with pytest.raises(ValueError, match=r"the order of the model's outputs\. .*task\.json"):
        run_classifier.run(make_settings(**shared, labels=COLORS))


@pytest.mark.usefixtures("eager")
def test_one_file_is_enough(make_settings, tmp_path, log):
    rows = make_rows(60, 1, lambda color: color)
    path = tmp_path / "mine.csv"
    lines = [f'{number};{label};"{text}"\n' for number, (text, label) in enumerate(rows)]
    path.write_text("".join(["\ufeffid;color;words\n", *lines]), encoding="utf-8")
    given = {
        "data_dir": None,
        "task_name": None,
        "train_file": str(path),
        "text_a_column": "words",
        "label_column": "color",
        "separator": ";",
    }
    scores = run_classifier.run(
        make_settings(
            **given,
            do_train=True,
            do_eval=True,
            do_predict=True,
            test_file=str(path),
            num_train_epochs=1.0,
        )
    )
    split_off = next(message for message in log.messages if "are split off" in message)
    assert "6 of the 60 examples" in split_off
    out = tmp_path / "out"
    stored = json.loads((out / "task.json").read_text())
    assert stored["columns"] == {
        "text_a_column": "words",
        "label_column": "color",
        "separator": ";",
    }
    kept = stored["dev_split"]
    assert (kept["fraction"], kept["seed"]) == (0.1, 12345)
    # A test set with labels is scored, and its predictions are as those of any other.
    predicted = read_tsv(out / "predictions.tsv")
    right = np.mean([row["predicted_label"] == row["gold"] for row in predicted])
    assert scores["test_accuracy"] == pytest.approx(right)
    of_test = json.loads((out / "test_results.json").read_text())
    assert of_test["confusion_matrix"] and of_test["accuracy"] == scores["test_accuracy"]
    assert "test_accuracy = " in (out / "test_results.txt").read_text()
    # Evaluated later, on what was not trained on.
    again = run_classifier.run(make_settings(**given, do_eval=True, seed=99))
    assert again["accuracy"] == scores["accuracy"] and again["loss"] == scores["loss"]


@pytest.mark.usefixtures("eager")
def test_test_examples_without_labels_are_predicted_and_not_scored(make_settings, tmp_path, log):
    write_task(tmp_path, lambda color: color, count=16)
    verbs = {"do_train": True, "do_predict": True, "num_train_epochs": 1.0}
    write_tsv(tmp_path / "test.tsv", [("red a", "red"), ("blue", "?"), ("b", "")])
    scores = run_classifier.run(make_settings(**verbs))
    assert scores["test_accuracy"] in (0.0, 1.0)
    assert "Scored are the 1 of 3 test examples that have a label." in log.messages
    write_tsv(tmp_path / "test.tsv", [("red a",)], header=("text",))
    written = [tmp_path / f"out/test_results.{ending}" for ending in ("json", "txt")]
    assert all(path.exists() for path in written)
    assert (
        run_classifier.run(make_settings(do_predict=True, output_dir=str(tmp_path / "out"))) == {}
    )
    # The scores were of other predictions.
    assert not any(path.exists() for path in written)


def test_several_labels_at_once(make_settings, tmp_path):
    kinds = {"red": "warm", "green": "", "blue": "cold,dark", "black": "dark"}
    write_task(tmp_path, lambda color: kinds[color])
    scores = run_classifier.run(
        make_settings(
            do_train=True, do_eval=True, do_predict=True, num_train_epochs=20.0,
            task_type="multi_label",
        )
    )  # fmt: skip
    assert scores["micro_f1"] > 0.95
    for row in read_tsv(tmp_path / "out/predictions.tsv"):
        (color,) = set(row["text_a"].split()) & set(COLORS)
        assert row["predicted_labels"] == kinds[color]


def test_a_number_is_predicted(make_settings, tmp_path):
    values = {"red": 3.0, "green": 1.0, "blue": -2.0, "black": 0.5}
    write_task(tmp_path, lambda color: values[color])
    scores = run_classifier.run(
        make_settings(
            do_train=True, do_eval=True, do_predict=True, num_train_epochs=30.0,
            task_type="regression",
        )
    )  # fmt: skip
    assert scores["pearson"] > 0.95
    assert scores["r2"] > 0.8 and scores["mse"] < 0.2 * scores["baseline_scores"]["mse"]
    errors = read_report(tmp_path / "out")["sections"]["Errors on the dev set"]
    assert [row[0] for row in errors["rows"]] == ["mean squared error", "mean absolute error", "R²"]
    expected = [scores["mse"], scores["baseline_scores"]["mse"]]
    assert errors["rows"][0][1:] == pytest.approx(expected, rel=1e-5)
    results = (tmp_path / "out/eval_results.txt").read_text()
    assert re.findall(r"^\w+", results, flags=re.MULTILINE) == [
        "eval_loss", "eval_pearson", "eval_spearman", "global_step", "loss",
    ]  # fmt: skip


@pytest.mark.usefixtures("eager")
def test_pairs_and_both_parts_of_mnli(make_settings, tmp_path):
    header = [f"column{number}" for number in range(10)] + ["gold_label"]
    labels = ["contradiction", "entailment", "neutral"]

    def rows(count, labelled=True):
        return [
            [*map(str, range(8)), COLORS[i % 4], f"a {COLORS[i // 4 % 4]}"]
            + [labels[i % 3]] * labelled
            for i in range(count)
        ]

    write_tsv(tmp_path / "train.tsv", rows(16), header)
    for name, count in (("matched", 6), ("mismatched", 9)):
        write_tsv(tmp_path / f"dev_{name}.tsv", rows(count), header)
        write_tsv(tmp_path / f"test_{name}.tsv", rows(count + 1, labelled=False), header[:-1])
    run_classifier.run(
        make_settings(
            task_name="mnli", do_train=True, do_eval=True, do_predict=True, num_train_epochs=1.0
        )
    )
    out = tmp_path / "out"
    for suffix, count in (("", 6), ("_mismatched", 9)):
        scores = json.loads((out / f"eval_results{suffix}.json").read_text())
        assert sum(each["support"] for each in scores["per_class"].values()) == count
        assert (out / f"eval_results{suffix}.txt").exists()
        assert len((out / f"test_results{suffix}.tsv").read_text().splitlines()) == count + 1
        assert len(read_tsv(out / f"predictions{suffix}.tsv")) == count + 1
        assert len(read_tsv(out / f"dev_predictions{suffix}.tsv")) == count
        assert read_report(out)["sections"][f"Examples of the dev{suffix} set"]["total"] == count
    assert len((out / "submission/MNLI-mm.tsv").read_text().splitlines()) == 11
    model = load(str(out))
    assert model.fields == ("text_a", "text_b")
    expected = np.loadtxt(out / "test_results.tsv")
    answers = model.predict([(row[8], row[9]) for row in rows(7)])
    ours = [[answer["probabilities"][label] for label in labels] for answer in answers]
    np.testing.assert_allclose(ours, expected, rtol=0, atol=1e-5)


def test_the_metric_of_a_custom_task_is_stored(make_settings, tmp_path, tiny_config):
    write_task(tmp_path, lambda color: color)
    tokenizer = tokenization.FullTokenizer(str(tmp_path / "vocab.txt"))
    vocabulary = (tmp_path / "vocab.txt").read_bytes()

    def open_task(**changes):
        return opened_tasks.open_task(
            run_classifier, make_settings(**changes), tiny_config, tokenizer
        )

    assert open_task(do_train=True).metric == "accuracy"
    task = open_task(do_train=True, metric="matthews")
    # Of answers that are all the same, it says nothing, whatever label is frequent.
    examples = [InputExample("", "a", None, label) for label in ("red", "red", "red", "blue")]
    label_ids = np.array([[sorted(COLORS).index(each.label)] for each in examples])
    inputs = Inputs(Part("dev"), examples, {"label_ids": label_ids})
    scores = task.score(inputs, np.tile(np.eye(4)[sorted(COLORS).index("red")], (4, 1)))
    assert (scores["accuracy"], scores["matthews"]) == (0.75, 0.0)
    assert (scores["baseline_metric"], scores["baseline"]) == ("matthews", 0.0)
    # An evaluation goes by what the training has gone by.
    ModelFolder(str(tmp_path / "out")).save(tiny_config, vocabulary, task.stored())
    assert open_task(do_eval=True).metric == "matthews"
    assert open_task(do_eval=True, metric="f1").metric == "f1"
    assert open_task(do_eval=True, task_type="multi_label").metric == "micro_f1"


@pytest.mark.exhaustive
def test_balanced_weights_let_a_rare_label_count(make_settings, tmp_path):
    # Three of four texts with "red" are "no": no text tells which, so the loss decides.
    labels = iter(["no", "no", "no", "yes"] * 100)
    write_tsv(tmp_path / "train.tsv", [("red", next(labels)) for _ in range(64)])
    write_tsv(tmp_path / "dev.tsv", [("red", "no"), ("red", "yes")])
    probabilities = {}
    for weights in ("none", "balanced"):
        out = tmp_path / weights
        run_classifier.run(
            make_settings(
                do_train=True, num_train_epochs=30.0, class_weights=weights, output_dir=str(out)
            )
        )
        (answer,) = load(str(out)).predict(["red"])
        probabilities[weights] = answer["probabilities"]["yes"]
    assert probabilities["none"] == pytest.approx(0.25, abs=0.06)
    assert probabilities["balanced"] == pytest.approx(0.5, abs=0.06)


@pytest.mark.usefixtures("eager")
def test_several_runs_have_folders_of_their_own_and_one_dev_set(make_settings, tmp_path):
    write_task(tmp_path, lambda color: color, count=32)
    files = {"data_dir": None, "train_file": str(tmp_path / "train.tsv"), "dev_fraction": 0.3}
    summary = run_classifier.run(
        make_settings(**files, do_train=True, do_eval=True, num_runs=2, num_train_epochs=1.0)
    )
    losses, examples = [], []
    for number in (1, 2):
        scores = json.loads((tmp_path / f"out/run_{number}/eval_results.json").read_text())
        losses.append(scores["loss"])
        rows = read_tsv(tmp_path / f"out/run_{number}/dev_predictions.tsv")
        examples.append([row["id"] for row in rows])
    assert losses[0] != losses[1]
    assert examples[0] == examples[1]
    runs = read_report(tmp_path / "out")["sections"]["Runs"]
    shown = [row[runs["columns"].index("loss")] for row in runs["rows"][:2]]
    assert shown == pytest.approx(losses, rel=1e-5)
    assert [(tmp_path / "out" / row[0]["target"]).exists() for row in runs["rows"][:2]] == [
        True
    ] * 2
    assert summary["mean"]["loss"] == pytest.approx(np.mean(losses))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({}, "At least one of `do_train`, `do_eval`"),
        ({"task_name": "sst", "do_train": True}, "`task_name` must be one of"),
        (
            {"task_name": "costum", "data_dir": None, "train_file": "my.csv", "do_train": True},
            "`task_name` must be one of .*, or 'custom' for other files. Received 'costum'",
        ),
        ({"num_runs": 2, "do_train": True}, "`num_runs` needs `do_train` and `do_eval`"),
        ({"early_stopping_patience": 1, "do_eval": True}, "`early_stopping_patience` needs"),
        ({"do_eval": True}, "`output_dir` must hold a trained model"),
        ({"do_train": True, "max_seq_length": 17}, "`max_seq_length` must be at most 16"),
        ({"do_train": True, "freeze_layers": 9}, "`freeze_layers` must be at most"),
        (
            {"do_train": True, "train_batch_size": 5, "gradient_accumulation_steps": 2},
            "must be a multiple of `gradient_accumulation_steps`",
        ),
        ({"do_train": True, "text_a_column": "txt"}, r"txt.*text.*label"),
        ({"do_train": True, "labels": "red,blue"}, r"train\.tsv:\d+.*green|black"),
        (
            {"do_train": True, "class_weights": "balanced", "task_type": "multi_label"},
            "`class_weights='balanced'` needs a task of one label",
        ),
        (
            {"do_train": True, "metric": "macro_f1"},
            r"`metric` must be one of \['accuracy', 'f1', 'matthews'\] for classification",
        ),
        (
            {"do_train": True, "metric": "f1", "task_name": "SST-2"},
            "`metric` must not be given for task 'sst-2'.* 'f1'.* custom",
        ),
        (
            {"do_train": True, "text_a_column": "review", "task_name": "cola"},
            "`text_a_column` must not be given for task 'cola'.* 'review'",
        ),
        ({"do_train": True, "num_train_epochs": 0.01}, "must give at least one step"),
        ({"do_train": True, "data_dir": "nowhere"}, "nowhere"),
        ({"do_train": True, "vocab_file": "nowhere"}, "`vocab_file` must be a readable file"),
        ({"do_train": True, "bert_config_file": "nowhere"}, "`bert_config_file` must exist"),
        ({"do_train": True, "init_checkpoint": "nowhere"}, "init_checkpoint` must name"),
    ],
)
def test_invalid_settings_are_refused_before_anything_is_written(
    make_settings, tmp_path, changes, message
):
    write_task(tmp_path, lambda color: color)
    before = sorted(path.name for path in tmp_path.iterdir() if path.name != "out")
    assert_refused(run_classifier, make_settings(**changes), tmp_path, message)
    out = tmp_path / "out"
    assert not out.exists() or not list(out.iterdir())
    assert sorted(path.name for path in tmp_path.iterdir() if path.name != "out") == before


@pytest.fixture(scope="module")
def trained_once(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    write_task(folder, lambda color: color)
    settings = settings_in(folder)(do_train=True, do_predict=True, num_train_epochs=0.5)
    with eagerly():
        run_classifier.run(settings)
    return folder / "out"


@pytest.fixture
def trained(trained_once, tmp_path):
    """A folder that the script has filled, for each test to do with as it likes."""
    return Path(shutil.copytree(trained_once, tmp_path / "out"))


def test_loaded_model_answers_as_the_script_does(trained, monkeypatch):
    traced = []
    monkeypatch.setattr(fine_tuned, "infer", lambda *given: traced.append(given) or infer(*given))
    rows = read_tsv(trained / "predictions.tsv")
    texts = [row["text_a"] for row in rows]
    expected = np.loadtxt(trained / "test_results.tsv")
    for batch_size in (1, 3, 64):
        traced.clear()
        model = predict.load(str(trained), batch_size=batch_size)
        for _ in range(2):
            answers = model.predict(texts)
            assert [answer["label"] for answer in answers] == [
                row["predicted_label"] for row in rows
            ]
            ours = [list(answer["probabilities"].values()) for answer in answers]
            np.testing.assert_allclose(ours, expected, rtol=0, atol=1e-5)
    one = model.predict([texts[4]])
    dictionary = model.predict([{"text_a": texts[4]}])
    assert one == dictionary
    assert model.predict([]) == []
    # However long the inputs are, the graph is built once.
    assert len(traced) == 1


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ([("red", "blue")], "Input 0, counted from 0, must have 'text_a'"),
        (
            ["red", {"other": "blue"}],
            r"Input 1, counted from 0, must have 'text_a' \(or \['text'\], as in training\)",
        ),
        (["red", 5], "Input 1"),
        ([{"text_a": 5}], "must have text as 'text_a'"),
    ],
)
def test_invalid_inputs_are_named(trained, inputs, message):
    with pytest.raises(ValueError, match=message):
        predict.load(str(trained)).predict(inputs)


@pytest.mark.usefixtures("eager")
def test_prediction_needs_nothing_but_the_folder(trained, tmp_path):
    for path in tmp_path.iterdir():
        if path.is_file():
            path.unlink()
    moved = trained.rename(tmp_path / "moved")
    for path in moved.iterdir():
        kept = ("task.json", "vocab.txt", "bert_config.json", "bert_model.ckpt")
        if path.is_file() and not path.name.startswith(kept):
            path.unlink()
    (answer,) = predict.load(str(moved)).predict(["red"])
    assert set(answer["probabilities"]) == set(COLORS)
    (moved / "task.json").unlink()
    with pytest.raises(ValueError, match=r"has no task\.json"):
        predict.load(str(moved))


def make_input(folder, name, content):
    path = folder / name
    path.write_text(content)
    return str(path)


def read_answers(path):
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize(
    ("name", "content", "flags"),
    [
        ("x.txt", "red a\nblue\n\n", {}),
        ("x.csv", 'n,note\n1,"red a"\n2,blue\n3,\n', {"columns": "note"}),
        ("x.jsonl", '{"text_a": "red a"}\n"blue"\n{"text_a": ""}\n', {}),
        ("x.data", '{"t": "red a"}\n{"t": "blue"}\n{"t": ""}\n',
         {"columns": "t", "input_format": "jsonl"}),
        *exhaustive(("x.tsv", "n\ttext_a\n1\tred a\n2\tblue\n3\t\n", {})),
    ],
)  # fmt: skip
def test_files_of_every_form_give_the_same_answers(trained, tmp_path, name, content, flags):
    output = tmp_path / "answers.jsonl"
    count = predict.run(
        predict.Settings(
            model_dir=str(trained),
            input_file=make_input(tmp_path, name, content),
            output_file=str(output),
            **flags,
        )
    )
    assert count == 3
    answers = read_answers(output)
    # All that the input has is there.
    name = "t" if flags.get("columns") == "t" else flags.get("columns", "text_a")
    assert [answer[name] for answer in answers] == ["red a", "blue", ""]
    assert [answer.get("n") for answer in answers] == (
        ["1", "2", "3"] if "n" in content[:2] else [None] * 3
    )
    expected = predict.load(str(trained)).predict(["red a", "blue", ""])
    for answer, one in zip(answers, expected, strict=True):
        assert answer["label"] == one["label"]
        assert answer["probabilities"] == pytest.approx(one["probabilities"], abs=1e-6)


@pytest.mark.parametrize(
    ("name", "content", "flags", "message"),
    [
        (
            "x.tsv",
            "texts\tn\nred\t1\n",
            {},
            r":1: the header must name \['text_a'\] \(or \['text'\], as in training\)",
        ),
        ("x.txt", "red\n", {"columns": "a,b"}, "`columns` must name 1 columns"),
        ("x.txt", "red\n", {"model_dir": "nowhere"}, "model_dir` must name a checkpoint"),
    ],
)
def test_wrong_input_is_named_and_leaves_no_file(trained, tmp_path, name, content, flags, message):
    settings = {
        "model_dir": str(trained),
        "input_file": make_input(tmp_path, name, content),
        "output_file": str(tmp_path / "answers.jsonl"),
        **flags,
    }
    with pytest.raises(ValueError, match=message):
        predict.run(predict.Settings(**settings))
    assert not (tmp_path / "answers.jsonl").exists()

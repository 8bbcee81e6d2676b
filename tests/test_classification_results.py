import dataclasses
import functools
import json
import shutil

import numpy as np
import pytest
import tensorflow as tf
from conftest import eagerly
from helpers.classifier_runs import COLORS, make_rows, read_tsv, settings_in, write_task, write_tsv
from helpers.served_models import CONFIG, TOKENIZER
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit, softmax
from sklearn import metrics

import bert
import run_classifier
from bert.log import logger
from bert.tasks.classification.classifier import Classification
from bert.tasks.classification.examples import ClassificationTask, InputExample
from bert.tasks.classification.results import (
    MIN_CALIBRATION,
    calibrate,
    check_enough,
    fit_temperature,
    format_scores,
    score_choice,
    score_multi_label,
    score_regression,
)
from bert.tasks.examples import QUERIES, Inputs

# Predictions of label 1 and truth for 10 examples: 3 true positives, 1 false one, 2 missed, 4 rest.
TRUE = np.array([1, 1, 1, 1, 1, 0, 0, 0, 0, 0])
GUESSED = np.array([1, 1, 1, 0, 0, 1, 0, 0, 0, 0])


def one_hot(guessed, num_labels, logit=3.0):
    return np.eye(num_labels)[guessed] * logit


def test_scores_of_two_labels_are_those_counted_by_hand():
    result = score_choice(("no", "yes"), one_hot(GUESSED, 2), TRUE)
    right, wrong = np.log1p(np.exp(-3.0)), np.log1p(np.exp(3.0))
    assert result.pop("loss") == pytest.approx((7 * right + 3 * wrong) / 10)
    assert result.pop("accuracy") == pytest.approx(0.7)
    # Precision 3/4 and recall 3/5.
    assert result.pop("f1") == pytest.approx(2 / 3)
    # (3 * 4 - 1 * 2) / sqrt(4 * 5 * 5 * 6)
    assert result.pop("matthews") == pytest.approx(10 / np.sqrt(600))
    assert result.pop("confusion_matrix") == [[4, 1], [2, 3]]
    assert result.pop("per_class") == {
        "no": {"precision": 4 / 6, "recall": 0.8, "f1": pytest.approx(8 / 11), "support": 5},
        "yes": {"precision": 0.75, "recall": 0.6, "f1": pytest.approx(2 / 3), "support": 5},
    }
    assert result == {}


def test_f1_of_two_labels_is_that_of_1_or_of_the_second():
    logits = one_hot(GUESSED, 2)
    for labels in (("0", "1"), ("a", "b")):
        assert score_choice(labels, logits, TRUE)["f1"] == pytest.approx(2 / 3)
    assert score_choice(("1", "0"), logits, TRUE)["f1"] == pytest.approx(8 / 11)


def test_f1_of_more_labels_is_the_mean_over_those_that_occur():
    true, guessed = np.array([0, 0, 1, 2]), np.array([0, 1, 1, 1])
    result = score_choice("abcd", one_hot(guessed, 4), true)
    # Of a 2/3, of b 1/2, of c 0; d neither is there nor was it guessed.
    assert result["f1"] == pytest.approx((2 / 3 + 1 / 2 + 0) / 3)
    assert result["per_class"]["d"] == {"precision": 0, "recall": 0, "f1": 0, "support": 0}
    assert result["confusion_matrix"] == [[1, 1, 0, 0], [0, 1, 0, 0], [0, 1, 0, 0], [0, 0, 0, 0]]


@pytest.mark.parametrize("guess", [0, 1])
def test_an_answer_that_is_always_the_same_has_scores_without_warnings(guess):
    result = score_choice("01", one_hot(np.full(10, guess), 2), TRUE)
    assert result["matthews"] == 0
    assert result["f1"] == pytest.approx([0, 2 / 3][guess])
    assert score_choice("01", one_hot([1, 1], 2), np.array([1, 1]))["matthews"] == 0


def test_losses_of_large_logits_are_finite():
    logits = np.array([[1e4, -1e4], [1e4, -1e4]])
    assert score_choice("01", logits, np.array([0, 1]))["loss"] == pytest.approx(1e4)
    result = score_multi_label("01", logits, np.array([[1, 0], [1, 1]]))
    assert result["loss"] == pytest.approx(1e4 / 4)


def test_scores_of_several_labels_are_those_counted_by_hand():
    true = np.array([[1, 0, 0], [1, 1, 0], [0, 0, 0], [0, 1, 0]])
    guessed = np.array([[1, 0, 0], [1, 0, 1], [0, 0, 0], [1, 1, 0]])
    result = score_multi_label("abc", guessed * 4.0 - 2.0, true)
    # Nine of twelve decisions are right, each with a logit of 2.
    expected = (9 * np.log1p(np.exp(-2.0)) + 3 * np.log1p(np.exp(2.0))) / 12
    assert result.pop("loss") == pytest.approx(expected)
    assert result.pop("accuracy") == 0.5
    # Right 3, missed 1, too many 2.
    assert result.pop("micro_f1") == pytest.approx(6 / 9)
    # Of a 4/5, of b 2/3, of c 0.
    assert result.pop("macro_f1") == pytest.approx((4 / 5 + 2 / 3 + 0) / 3)
    assert result["per_class"]["b"] == {
        "precision": 1,
        "recall": 0.5,
        "f1": pytest.approx(2 / 3),
        "support": 2,
    }
    assert result.pop("confusion_matrices") == {
        "a": [[1, 1], [0, 2]],
        "b": [[2, 0], [1, 1]],
        "c": [[3, 1], [0, 0]],
    }
    assert result.keys() == {"per_class"}


@given(st.integers(1, 30), st.integers(2, 5), st.randoms(use_true_random=False))
def test_several_labels_score_as_scikit_learn_says(count, num_labels, random):
    rng = np.random.default_rng(random.randrange(2**32))
    true = rng.integers(0, 2, (count, num_labels))
    logits = rng.normal(size=(count, num_labels))
    result = score_multi_label("abcde"[:num_labels], logits, true)
    for average in ("micro", "macro"):
        expected = metrics.f1_score(true, logits > 0, average=average, zero_division=0)
        assert result[f"{average}_f1"] == pytest.approx(expected)
    assert result["accuracy"] == pytest.approx(metrics.accuracy_score(true, logits > 0))


def test_a_single_label_may_be_there_or_not():
    result = score_multi_label(("a",), one_hot(GUESSED, 2)[:, 1:] - 1, TRUE[:, None])
    assert result["micro_f1"] == result["macro_f1"] == pytest.approx(2 / 3)
    assert result["confusion_matrices"] == {"a": [[4, 1], [2, 3]]}
    assert result["per_class"]["a"]["support"] == 5


def test_scores_of_numbers_are_those_computed_by_hand():
    predicted, true = np.array([1.0, 2.0, 3.0, 10.0]), np.array([2.0, 1.0, 3.0, 4.0])
    result = score_regression(predicted, true)
    assert result["loss"] == result["mse"] == (1 + 1 + 0 + 36) / 4
    # Around their means, 4 and 2.5: products 1.5 + 3 - 0.5 + 9, squares 9 + 4 + 1 + 36 and 5.
    assert result["pearson"] == pytest.approx(13 / np.sqrt(50 * 5))
    # Ranks differ by 1 twice: 1 - 6 * 2 / (4 * 15)
    assert result["spearman"] == pytest.approx(0.8)
    # The mean of the labels is wrong by 0.5, 1.5, 0.5 and 1.5.
    assert result["mae"] == (1 + 1 + 0 + 6) / 4
    assert result["r2"] == pytest.approx(1 - 38 / 5)
    assert result["baseline_scores"] == {"mse": 5 / 4, "mae": 1.0, "r2": 0.0}
    assert result["standard_deviations"] == {
        "predictions": pytest.approx((50 / 4) ** 0.5),
        "labels": pytest.approx((5 / 4) ** 0.5),
    }


@pytest.mark.parametrize(
    ("predicted", "true"),
    [([2.0, 2.0, 2.0], [1.0, 2.0, 3.0]), ([1.0, 2.0, 3.0], [2.0, 2.0, 2.0]), ([1.0], [2.0])],
)
def test_constant_numbers_do_not_correlate(predicted, true):
    result = score_regression(np.array(predicted), np.array(true))
    assert (result["pearson"], result["spearman"]) == (0, 0)


def test_numbers_that_hardly_differ_give_no_warning():
    predicted = np.full(5, 1e8) + np.array([0, 0, 0, 0, 1.5e-8])
    result = score_regression(predicted, np.arange(5.0))
    assert -1 <= result["pearson"] <= 1 and -1 <= result["spearman"] <= 1


def test_a_report_is_a_table():
    result = score_choice(("no", "maybe"), one_hot(GUESSED, 2), TRUE)
    assert format_scores(("no", "maybe"), result) == (
        "accuracy   0.7000\n"
        "f1         0.6667\n"
        "loss       0.9486\n"
        "matthews   0.4082\n"
        "\n"
        "       precision     recall         f1    support\n"
        "no        0.6667     0.8000     0.7273          5\n"
        "maybe     0.7500     0.6000     0.6667          5\n"
        "\n"
        "Confusion matrix: true labels as rows, predicted ones as columns\n"
        "          no  maybe\n"
        "no         4      1\n"
        "maybe      2      3"
    )
    numbers = score_regression(np.array([1.0, 2.0]), np.array([1.0, 2.0]))
    assert format_scores((), numbers) == (
        "loss       0.0000\nmae        0.0000\nmse        0.0000\n"
        "pearson    1.0000\nr2         1.0000\nspearman   1.0000"
    )


def test_a_report_leaves_out_a_matrix_that_is_too_wide():
    labels = [str(number) for number in range(13)]
    result = score_choice(labels, one_hot([0, 1], 13), np.array([0, 2]))
    report = format_scores(labels, result)
    assert "Confusion" not in report and report.splitlines()[-1].startswith("12 ")


def test_a_label_is_shown_in_its_line_whatever_it_is():
    hostile, spelled = "a\x1b[2J\n\u2028b", r"a\x1b[2J\n\u2028b"
    reports = []
    for label in (hostile, "x" * len(spelled)):
        result = score_choice(("no", label), one_hot(GUESSED, 2), TRUE)
        reports.append(format_scores(("no", label), result))
    assert reports[0].replace(spelled, "x" * len(spelled)) == reports[1]


def test_labels_drawn_from_scaled_logits_give_the_scale_back():
    rng = np.random.RandomState(0)
    logits = rng.normal(0, 3, (20_000, 3))
    for temperature in (0.5, 1.0, 2.5):
        chances = softmax(logits / temperature, axis=1)
        labels = (rng.uniform(size=(len(logits), 1)) > chances.cumsum(axis=1)).sum(axis=1)
        found = fit_temperature("classification", logits, labels[:, None])
        assert found == pytest.approx(temperature, rel=0.05)
        several = (rng.uniform(size=logits.shape) < expit(logits / temperature)).astype(int)
        assert fit_temperature("multi_label", logits, several) == pytest.approx(
            temperature, rel=0.05
        )


@pytest.mark.parametrize(
    ("label_ids", "warnings"), [([0, 1, 1], 0), ([0, 0, 0], 1), ([1, 1, 1], 1)]
)
def test_a_temperature_that_the_dev_set_does_not_bound_is_warned_of(log, label_ids, warnings):
    """Where all answers are right, the loss falls with the temperature without end."""
    task = ClassificationTask(
        name="t", task_type="classification", labels=("a", "b"), is_pair=False, metric="accuracy"
    )
    examples = [InputExample("1", "text", None, "a")] * len(label_ids)
    logits = np.array([[2.0, 0.0], [0.5, 0.0], [0.1, 0.0]])
    calibrate(task, examples, np.array(label_ids)[:, None], logits)
    assert sum(record.levelname == "WARNING" for record in log.records) == warnings


@pytest.mark.parametrize("task_type", ["classification", "multi_label"])
def test_exports_are_compared_by_the_probabilities_of_answers(task_type):
    task = ClassificationTask(
        name="t", task_type=task_type, labels=("a", "b"), is_pair=False, metric="accuracy"
    )
    model = Classification(CONFIG, TOKENIZER, 8, task, temperature=2.0)
    outputs = {"logits": np.array([[3.0, -1.0], [0.5, 2.0]], np.float32)}
    inputs = Inputs(QUERIES, [], {})
    answers = model.answers(inputs, model.decode(inputs, [(np.arange(2), outputs)]))
    np.testing.assert_allclose(
        model.probabilities({}, outputs),
        [[*answer["probabilities"].values()] for answer in answers],
    )


def test_few_examples_with_a_label_are_refused():
    examples = [InputExample(str(number), "a", None, "x") for number in range(MIN_CALIBRATION)]
    check_enough(examples)
    examples[0] = InputExample("0", "a")
    with pytest.raises(ValueError, match=f"`calibrate` must have {MIN_CALIBRATION} examples"):
        check_enough(examples)


def test_a_calibrated_run_gives_the_same_labels_and_other_probabilities_everywhere(tmp_path):
    write_task(tmp_path, lambda color: color, count=64)
    write_tsv(tmp_path / "dev.tsv", make_rows(2 * MIN_CALIBRATION, 1, lambda color: color))
    make = settings_in(tmp_path)
    steps = {"do_eval": True, "do_predict": True}
    steps |= dict.fromkeys(("eval_batch_size", "predict_batch_size"), 2 * MIN_CALIBRATION)
    with eagerly():
        run_classifier.run(make(do_train=True, num_train_epochs=1.0, **steps))
        plain = read_tsv(tmp_path / "out/predictions.tsv")
        losses = [json.loads((tmp_path / "out/eval_results.json").read_text())["loss"]]
    run_classifier.run(make(calibrate=True, do_export=True, **steps))
    temperature = json.loads((tmp_path / "out/task.json").read_text())["temperature"]
    assert temperature != 1.0
    losses += [json.loads((tmp_path / "out/eval_results.json").read_text())["loss"]]
    assert losses[1] < losses[0]
    calibrated = read_tsv(tmp_path / "out/predictions.tsv")
    expected = []
    for before, after in zip(plain, calibrated, strict=True):
        assert before["predicted_label"] == after["predicted_label"]
        chances = [
            np.array([float(row[f"probability_{color}"]) for color in COLORS])
            for row in (before, after)
        ]
        np.testing.assert_allclose(
            chances[1], softmax(np.log(chances[0]) / temperature), rtol=1e-4, atol=1e-6
        )
        expected.append(chances[1])
    texts = [row["text_a"] for row in calibrated]
    answers = [
        [answer["probabilities"][color] for color in COLORS]
        for answer in bert.load(tmp_path / "out").predict(texts)
    ]
    np.testing.assert_allclose(answers, expected, rtol=1e-4, atol=1e-6)
    exported = tf.saved_model.load(str(tmp_path / "out/saved_model")).signatures["serving_default"]
    labels = sorted(COLORS)
    columns = [labels.index(color) for color in COLORS]
    chances = exported(text_a=tf.constant(texts))["probabilities"].numpy()[:, columns]
    np.testing.assert_allclose(chances, expected, rtol=1e-3, atol=1e-5)
    # What is run without the option goes on with the temperature, and another calibration from it.
    with eagerly():
        run_classifier.run(make(**steps))
        rows = read_tsv(tmp_path / "out/predictions.tsv")
        chances = [[float(row[f"probability_{color}"]) for color in COLORS] for row in rows]
        np.testing.assert_allclose(chances, expected, rtol=1e-4, atol=1e-6)
        run_classifier.run(make(calibrate=True, **steps))
    again = json.loads((tmp_path / "out/task.json").read_text())["temperature"]
    assert again == pytest.approx(temperature, rel=1e-2)


@pytest.mark.usefixtures("eager")
def test_a_calibration_changes_the_temperature_alone_and_outlasts_the_training_command(
    tmp_path, log, monkeypatch
):
    def stop_before_weights(record):
        if record.msg.startswith("Devices: "):
            raise KeyboardInterrupt
        return True

    write_task(tmp_path, lambda color: color, count=64)
    write_tsv(tmp_path / "dev.tsv", make_rows(2 * MIN_CALIBRATION, 1, lambda color: color))
    make, out = settings_in(tmp_path), tmp_path / "out"
    data = {f"{split}_file": str(tmp_path / f"{split}.tsv") for split in ("train", "dev", "test")}
    make = functools.partial(make, data_dir=None)
    # The dev set that is split off is described in `task.json`.
    own = {"train_file": data.pop("train_file"), "test_file": data["test_file"]}
    training = make(do_train=True, do_eval=True, do_predict=True, num_train_epochs=0.5, **own)
    run_classifier.run(training)
    trained = json.loads((out / "task.json").read_text())
    with pytest.raises(ValueError, match=r"`max_seq_length` is 12 there and 16"):
        run_classifier.run(make(do_eval=True, calibrate=True, max_seq_length=16, **data))
    elsewhere = {"init_checkpoint": str(out), "output_dir": str(tmp_path / "elsewhere"), **data}
    with pytest.raises(ValueError, match=r"`calibrate` must be given with a trained `output_dir`"):
        run_classifier.run(make(do_eval=True, calibrate=True, **elsewhere))
    assert not (tmp_path / "elsewhere").exists()
    # An export divides by the temperature that was known when it was written.
    (out / "onnx_int8").mkdir()
    older = f"Exports are not those of the model as it is now: {[str(out / 'onnx_int8')]}"
    log.clear()
    run_classifier.run(make(do_eval=True, calibrate=True, **data))
    assert [message.startswith(older) for message in log.messages].count(True) == 1
    log.clear()
    calibrated = json.loads((out / "task.json").read_text())
    assert calibrated == {**trained, "temperature": calibrated["temperature"]}
    run_classifier.run(make(do_predict=True, **data))
    answers = (out / "predictions.tsv").read_bytes()
    kept = shutil.copytree(out, tmp_path / "kept")
    for deletes_checkpoints in (True, False):
        shutil.rmtree(out)
        shutil.copytree(kept, out)
        if deletes_checkpoints:
            for path in (out / "checkpoint", *out.glob("model.ckpt-*")):
                path.unlink()
        with monkeypatch.context() as patch:
            patch.setattr(logger, "filters", [stop_before_weights])
            with pytest.raises(KeyboardInterrupt):
                run_classifier.run(training)
        assert json.loads((out / "task.json").read_text()) == calibrated
        run_classifier.run(training)
        assert json.loads((out / "task.json").read_text()) == calibrated
        assert (out / "predictions.tsv").read_bytes() == answers
        assert not any(message.startswith(older) for message in log.messages)
    # Other weights have another temperature.
    run_classifier.run(
        dataclasses.replace(training, num_train_epochs=0.75, resume_with_changes=True)
    )
    assert json.loads((out / "task.json").read_text()) == trained
    assert any(message.startswith(older) for message in log.messages)


def test_the_model_of_the_best_of_several_runs_has_its_temperature(tmp_path):
    write_task(tmp_path, lambda color: color, count=64)
    write_tsv(tmp_path / "dev.tsv", make_rows(2 * MIN_CALIBRATION, 1, lambda color: color))
    settings = settings_in(tmp_path)(
        do_train=True, do_eval=True, calibrate=True, num_runs=2, num_train_epochs=0.25,
        eval_batch_size=2 * MIN_CALIBRATION,
    )  # fmt: skip
    with eagerly():
        best = run_classifier.run(settings)["best"]["folder"]
    folders = {name: tmp_path / "out" / name for name in ("run_1", "run_2", "")}
    temperatures = {
        name: json.loads((folder / "task.json").read_text())["temperature"]
        for name, folder in folders.items()
    }
    assert temperatures["run_1"] != temperatures["run_2"]
    assert temperatures[""] == pytest.approx(temperatures[best], rel=1e-2)
    losses = [
        json.loads((folders[name] / "eval_results.json").read_text())["loss"] for name in ("", best)
    ]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)

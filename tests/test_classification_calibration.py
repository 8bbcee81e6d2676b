import json

import numpy as np
import pytest
import tensorflow as tf
from conftest import eagerly
from helpers.classifier_runs import COLORS, make_rows, read_tsv, settings_in, write_task, write_tsv
from scipy.special import expit, softmax

import bert
import run_classifier
from bert.tasks.classification.calibration import MIN_EXAMPLES, check_examples, fit_temperature
from bert.tasks.classification.examples import InputExample


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


def test_few_examples_with_a_label_are_refused():
    examples = [InputExample(str(number), "a", None, "x") for number in range(MIN_EXAMPLES)]
    check_examples(examples)
    examples[0] = InputExample("0", "a")
    with pytest.raises(ValueError, match=f"`calibrate` must have {MIN_EXAMPLES} examples"):
        check_examples(examples)


def test_a_calibrated_run_gives_the_same_labels_and_other_probabilities_everywhere(tmp_path):
    write_task(tmp_path, lambda color: color, count=64)
    write_tsv(tmp_path / "dev.tsv", make_rows(2 * MIN_EXAMPLES, 1, lambda color: color))
    make = settings_in(tmp_path)
    steps = {"do_eval": True, "do_predict": True}
    with eagerly():
        run_classifier.run(make(do_train=True, num_train_epochs=4.0, **steps))
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

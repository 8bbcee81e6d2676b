import numpy as np
import pytest

from bert.reports.calibration import MIN_EXAMPLES, calibration_error, make_section


def charts_of(probabilities, right, labels=("a", "b")):
    [section] = make_section("dev", labels, np.asarray(probabilities), np.asarray(right))
    return {
        chart.title: {series.name: series.points for series in chart.series}
        for chart in section.charts
    }


def test_the_error_is_how_far_accuracy_is_from_probability_on_average():
    # Of four with 0.9, three are right: 0.15 off. Of four with 0.6, all are: 0.4 off.
    probabilities = np.array([0.9] * 4 + [0.6] * 4)
    is_right = np.array([True, True, True, False] + [True] * 4)
    assert calibration_error(probabilities, is_right) == pytest.approx((0.15 + 0.4) / 2)
    rng = np.random.RandomState(0)
    probabilities = rng.uniform(0.5, 1.0, 100_000)
    exact = rng.uniform(size=100_000) < probabilities
    assert calibration_error(probabilities, exact) < 0.01
    # A certain answer is in the last bin.
    assert calibration_error(np.ones(2), np.array([True, False])) == pytest.approx(0.5)


def test_what_is_answered_falls_and_what_is_answered_surely_is_right():
    sure, unsure = [[0.05, 0.95]] * 10, [[0.6, 0.4]] * 10
    right = [1] * 10 + [0] * 5 + [1] * 5
    charts = charts_of(sure + unsure, right)
    answered = charts["What is answered"]
    assert dict(map(tuple, answered["share answered"]))[0.0] == 1.0
    assert {y for x, y in answered["share answered"] if 0.61 < x < 0.94} == {0.5}
    assert {y for x, y in answered["accuracy among these"] if 0.61 < x < 0.94} == {1.0}
    # Where nothing is answered, there is no accuracy.
    assert max(x for x, _ in answered["accuracy among these"]) < 0.96
    assert charts["Reliability"]["this model"] == [
        [pytest.approx(0.6), 0.5],
        [pytest.approx(0.95), 1.0],
    ]


def test_two_labels_have_the_curves_of_the_positive_one():
    chance = np.linspace(0.01, 0.99, MIN_EXAMPLES)
    right = (chance > 0.5).astype(int)
    charts = charts_of(np.stack([1 - chance, chance], axis=1), right, ("0", "1"))
    assert "area 1.000" in charts["ROC of '1'"]
    curves = charts["Precision and recall of '1'"]
    assert curves["recall"][0][1] == 1.0 and curves["precision"][-1][1] == 1.0
    # The one called "1" is positive wherever it is.
    charts = charts_of(np.stack([chance, 1 - chance], axis=1), 1 - right, ("1", "0"))
    assert "area 1.000" in charts["ROC of '1'"]


def test_few_examples_and_three_labels_have_no_such_curves():
    few = np.full((MIN_EXAMPLES - 1, 2), 0.5)
    assert make_section("dev", ("a", "b"), few, np.zeros(len(few), int)) == []
    three = np.full((MIN_EXAMPLES, 3), 1 / 3)
    assert charts_of(three, np.zeros(len(three), int), ("a", "b", "c")).keys() == {
        *("Reliability", "What is answered")
    }

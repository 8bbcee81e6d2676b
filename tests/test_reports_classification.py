import dataclasses
import math

import numpy as np
import pytest

from bert.reports import classification as report
from bert.reports.page import Examples, Matrix, Scatter, Table, to_json
from bert.tasks.classification import results as classification_results
from bert.tasks.classification.examples import ClassificationTask, InputExample


def make_task(task_type="classification", labels=("no", "yes", "maybe"), is_pair=False):
    metric = {"regression": "pearson"}.get(task_type, "accuracy")
    return ClassificationTask(
        name="t", task_type=task_type, labels=labels, is_pair=is_pair, metric=metric
    )


def sections_of(task, examples, label_ids, logits):
    examples = [
        dataclasses.replace(each, label=str(label))
        for each, label in zip(examples, label_ids, strict=True)
    ]
    label_ids, logits = np.array(label_ids), np.array(logits, np.float32)
    scores = classification_results.score(task, logits, label_ids)
    made = report.make_sections(task, "dev", examples, label_ids, logits, scores)
    return {type(section): section for section in made}, scores


def test_labelled_texts_have_their_confusions_labels_and_examples_by_loss():
    examples = [InputExample(f"e{i}", f"text {i}", f"other {i}") for i in range(3)]
    logits = [[2, 0, 0], [3, 0, 0], [0, 0, 5]]
    task = make_task(is_pair=True)
    made, scores = sections_of(task, examples, [[0], [1], [2]], logits)
    assert made[Matrix].counts == [[1, 0, 0], [1, 0, 0], [0, 0, 1]] == scores["confusion_matrix"]
    assert [row[0].text for row in made[Table].rows] == ["no", "yes", "maybe"]
    assert made[Table].rows[0][1:] == [0.5, 1.0, pytest.approx(2 / 3), 1]
    shown = made[Examples].examples
    assert [example.number for example in shown] == [1, 0, 2]
    worst = shown[0]
    assert worst.rank == pytest.approx(math.log(math.exp(3) + 2))
    assert np.mean([each.rank for each in shown]) == pytest.approx(scores["loss"])
    assert (worst.is_right, worst.right, worst.said) == (False, ["yes"], ["no"])
    assert [each.is_right for each in shown] == [False, True, True]
    text_a, text_b, bars = worst.blocks
    assert (text_a.text, text_b.text) == ("text 1", "other 1")
    assert [(bar.text, bar.is_right, bar.is_said) for bar in bars.bars] == [
        *(("no", False, True), ("yes", True, False), ("maybe", False, False))
    ]
    assert bars.bars[0].probability == pytest.approx(math.exp(3) / (math.exp(3) + 2))
    assert to_json(list(made.values()))


def test_of_many_labels_the_likeliest_and_the_right_one_are_shown_and_confusions_are_listed():
    labels = tuple(f"l{i}" for i in range(30))
    # The likeliest are not the first.
    logits = np.tile(np.roll(-np.arange(30.0), 5), (3, 1))
    examples = [InputExample(str(i), "text") for i in range(3)]
    made, _ = sections_of(make_task(labels=labels), examples, [[29], [29], [5]], logits)
    assert Matrix not in made
    shown = made[Examples].examples[0]
    assert [bar.text for bar in shown.blocks[-1].bars] == ["l5", "l6", "l7", "l8", "l29"]
    task = make_task(labels=labels)
    scores = classification_results.score(task, logits, np.array([[29], [29], [5]]))
    confusions = report._confusions(task, "dev", scores)[0]
    [[right, said, link]] = confusions.rows
    assert (right, said, link.text) == ("l29", "l5", "2")
    assert link.target == "#dev.right=l29&dev.said=l5"


@pytest.mark.parametrize("task_type", ["classification", "multi_label"])
def test_the_accuracy_is_shown_by_the_length_of_texts(task_type):
    task = make_task(task_type, ("p", "q"))
    examples = [InputExample(str(i), "a" * (i // 2), "b" * (i - i // 2)) for i in range(1, 81)]
    # Longer texts than 40 are wrong, and of the shortest ones every other one.
    said = [1 - i % 2 if i <= 20 else int(i > 40) for i in range(1, 81)]
    label_ids = [[1, 0] if task_type == "multi_label" else [0]] * 80
    logits = [[1 - 2 * each, 2 * each - 1] for each in said]
    labels, scores = np.array(label_ids), {"per_class": {}, "confusion_matrix": [[0, 0]] * 2}
    examples = [dataclasses.replace(each, label="p") for each in examples]
    made = report.make_sections(task, "dev", examples, labels, np.array(logits), scores)
    [table] = (each for each in made if getattr(each, "title", "").endswith("by length"))
    assert table.rows == [
        ["1 to 20", 20, 0.5],
        ["21 to 40", 20, 1.0],
        ["41 to 60", 20, 0.0],
        ["61 to 80", 20, 0.0],
    ]
    few = report.make_sections(
        task, "dev", examples[:79], labels[:79], np.array(logits[:79]), scores
    )
    assert not any(getattr(each, "title", "").endswith("by length") for each in few)


def test_any_number_of_labels_may_be_right_and_said():
    examples = [InputExample("a", "x"), InputExample("b", "y")]
    made, scores = sections_of(
        make_task("multi_label", ("p", "q")), examples, [[1, 1], [0, 0]], [[3, -2], [-4, -4]]
    )
    assert Matrix not in made
    first, second = made[Examples].examples
    assert (first.number, first.is_right, first.right, first.said) == (0, False, ["p", "q"], ["p"])
    assert (second.is_right, second.right, second.said) == (True, [], [])
    assert np.mean([first.rank, second.rank]) == pytest.approx(scores["loss"])


def test_numbers_are_points_and_examples_by_error():
    examples = [InputExample(str(i), "x", "y") for i in range(3)]
    made, _ = sections_of(
        make_task("regression", (), True), examples, [[1.0], [2.0], [3.0]], [[1.5], [0.0], [3.0]]
    )
    assert made[Scatter].points == [[1.0, 1.5, 0], [2.0, 0.0, 1], [3.0, 3.0, 2]]
    shown = made[Examples].examples
    assert [(example.number, example.rank) for example in shown] == [(1, 2.0), (0, 0.5), (2, 0.0)]
    assert shown[0].facts[:3] == ["right 2", "said 0", "error -2"]
    assert shown[0].is_right is None


def test_of_many_numbers_every_nth_is_a_point(monkeypatch):
    monkeypatch.setattr(report, "_MAX_POINTS", 2)
    examples = [InputExample(str(i), "x") for i in range(5)]
    values = [[float(i)] for i in range(5)]
    made, _ = sections_of(make_task("regression", ()), examples, values, values)
    assert [point[2] for point in made[Scatter].points] == [0, 3]
    assert len(made[Examples].examples) == 5


@pytest.mark.parametrize("task_type", ["classification", "multi_label", "regression"])
def test_what_has_no_label_is_neither_right_nor_wrong(task_type):
    labels = () if task_type == "regression" else ("no", "yes")
    task = make_task(task_type, labels)
    # Without a label, an example has a placeholder in place of it.
    values = {
        "classification": ([[0], [0], [1]], [[9, 0], [0, 9], [9, 0]]),
        "multi_label": ([[0, 0], [0, 0], [1, 0]], [[-9, -9], [9, 9], [-9, -9]]),
        "regression": ([[0.0], [0.0], [1.0]], [[0.0], [9.0], [2.0]]),
    }
    label_ids, logits = map(np.array, values[task_type])
    examples = [InputExample(str(i), "text", label=label) for i, label in enumerate([None, "", ""])]
    scores = classification_results.score(task, logits[1:], label_ids[1:])
    made = report.make_sections(task, "test", examples, label_ids, logits, scores)
    shown = made[-1].examples
    # It comes last, and all keep their numbers in the file.
    assert sorted(each.number for each in shown) == [0, 1, 2]
    unknown = shown[-1]
    assert (unknown.number, unknown.is_right, [*unknown.right]) == (0, None, [])
    assert not any(fact.startswith(("loss", "right", "error")) for fact in unknown.facts)
    assert "1 of 3 have no label" in made[-1].note
    if task_type == "regression":
        assert [point[2] for point in made[0].points] == [1, 2]
    else:
        assert [each.is_right for each in shown[:2]] == [False, False]
        assert not any(bar.is_right for bar in unknown.blocks[-1].bars)


def test_what_has_no_label_changes_no_number():
    task, count = make_task(labels=("no", "yes")), 4 * report.MIN_EXAMPLES
    rng = np.random.RandomState(0)
    logits, label_ids = rng.normal(size=(count + 9, 2)), rng.randint(2, size=(count + 9, 1))
    label_ids[count:] = 0
    labels = [task.labels[number] for number in label_ids[:count, 0]] + [None] * 9
    examples = [InputExample(str(i), "a" * i, label=label) for i, label in enumerate(labels)]
    scores = classification_results.score(task, logits[:count], label_ids[:count])
    some, each = (
        report.make_sections(task, "dev", examples[:n], label_ids[:n], logits[:n], scores)
        for n in (count, count + 9)
    )
    assert to_json(some[:-1]) == to_json(each[:-1])
    assert len(some) == 5 and each[-1].total == count + 9


def charts_of(probabilities, right, labels=("a", "b")):
    [section] = report.probability_charts(
        "dev", labels, np.asarray(probabilities), np.asarray(right)
    )
    return {
        chart.title: {series.name: series.points for series in chart.series}
        for chart in section.charts
    }


def test_the_error_is_how_far_accuracy_is_from_probability_on_average():
    # Of four with 0.9, three are right: 0.15 off. Of four with 0.6, all are: 0.4 off.
    probabilities = np.array([0.9] * 4 + [0.6] * 4)
    is_right = np.array([True, True, True, False] + [True] * 4)
    assert report.calibration_error(probabilities, is_right) == pytest.approx((0.15 + 0.4) / 2)
    rng = np.random.RandomState(0)
    probabilities = rng.uniform(0.5, 1.0, 100_000)
    exact = rng.uniform(size=100_000) < probabilities
    assert report.calibration_error(probabilities, exact) < 0.01
    # A certain answer is in the last bin.
    assert report.calibration_error(np.ones(2), np.array([True, False])) == pytest.approx(0.5)


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
    certain = charts_of([[1.0, 0.0]] * 20, [0] * 10 + [1] * 10)
    assert certain["Reliability"]["this model"] == [[1.0, 0.5]]


def test_two_labels_have_the_curves_of_the_positive_one():
    chance = np.linspace(0.01, 0.99, report.MIN_EXAMPLES)
    right = (chance > 0.5).astype(int)
    charts = charts_of(np.stack([1 - chance, chance], axis=1), right, ("0", "1"))
    assert "area 1.000" in charts["ROC of '1'"]
    curves = charts["Precision and recall of '1'"]
    assert curves["recall"][0][1] == 1.0 and curves["precision"][-1][1] == 1.0
    # At a threshold, what has at least that probability is said to be positive.
    right[::3] = 1 - right[::3]
    charts = charts_of(np.stack([1 - chance, chance], axis=1), right, ("0", "1"))
    curves = charts["Precision and recall of '1'"]
    for least, precision in curves["precision"]:
        assert precision == pytest.approx(right[chance >= least].mean())
    for least, recall in curves["recall"]:
        assert recall == pytest.approx(right[chance >= least].sum() / right.sum())
    right[::3] = 1 - right[::3]
    # The one called "1" is positive wherever it is.
    charts = charts_of(np.stack([chance, 1 - chance], axis=1), 1 - right, ("1", "0"))
    assert "area 1.000" in charts["ROC of '1'"]


def test_few_examples_and_three_labels_have_no_such_curves():
    few = np.full((report.MIN_EXAMPLES - 1, 2), 0.5)
    assert report.probability_charts("dev", ("a", "b"), few, np.zeros(len(few), int)) == []
    three = np.full((report.MIN_EXAMPLES, 3), 1 / 3)
    assert charts_of(three, np.zeros(len(three), int), ("a", "b", "c")).keys() == {
        *("Reliability", "What is answered")
    }

import pytest
from sklearn import metrics

from bert.tasks.tagging import plain_tags

GOLD = ["NN", "NN", "VB", "NN", "DT", "VB"]
FOUND = ["NN", "VB", "VB", "NN", "NN", "JJ"]


def test_scores_are_those_of_scikit_learn():
    scores = plain_tags.score(GOLD, FOUND)
    report = metrics.classification_report(GOLD, FOUND, output_dict=True, zero_division=0)
    assert scores["accuracy"] == pytest.approx(report["accuracy"]) == pytest.approx(0.5)
    assert scores["baseline"] == 0.5
    assert scores["tags"].keys() == {"DT", "JJ", "NN", "VB"}
    for tag, rates in scores["tags"].items():
        assert list(rates.values()) == pytest.approx(list(report[tag].values()))
    gold_tags = {"DT", "NN", "VB"}
    mean = sum(report[tag]["f1-score"] for tag in gold_tags) / 3
    assert scores["macro_f1"] == pytest.approx(mean)


def test_the_report_has_a_line_for_each_tag_the_most_frequent_first():
    first, header, *lines = plain_tags.format_report(plain_tags.score(GOLD, FOUND)).splitlines()
    assert first.startswith("6 words; accuracy: 50.00%, macro F1: ")
    assert "most frequent tag: 50.00%" in first
    assert header.split() == ["precision", "recall", "F1", "words"]
    assert [line.split()[0] for line in lines] == ["NN", "VB", "DT", "JJ"]
    assert lines[0].split() == ["NN", "66.67", "66.67", "66.67", "3"]

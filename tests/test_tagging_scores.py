import pytest
import sklearn.metrics
from hypothesis import given
from hypothesis import strategies as st
from seqeval import metrics

from bert.tasks.tagging.scores import format_report, score_entities, score_tags

GOLD = ["NN", "NN", "VB", "NN", "DT", "VB"]
FOUND = ["NN", "VB", "VB", "NN", "NN", "JJ"]


def test_scores_of_tags_are_those_of_scikit_learn():
    scores = score_tags(GOLD, FOUND)
    report = sklearn.metrics.classification_report(GOLD, FOUND, output_dict=True, zero_division=0)
    assert scores["accuracy"] == pytest.approx(report["accuracy"]) == pytest.approx(0.5)
    assert scores["baseline"] == 0.5
    assert scores["tags"].keys() == {"DT", "JJ", "NN", "VB"}
    for tag, rates in scores["tags"].items():
        assert list(rates.values()) == pytest.approx(list(report[tag].values()))
    gold_tags = {"DT", "NN", "VB"}
    mean = sum(report[tag]["f1-score"] for tag in gold_tags) / 3
    assert scores["macro_f1"] == pytest.approx(mean)


def test_the_report_of_tags_lists_the_most_frequent_first():
    first, header, *lines = format_report(score_tags(GOLD, FOUND)).splitlines()
    assert first.startswith("6 words; accuracy: 50.00%, macro F1: ")
    assert "most frequent tag: 50.00%" in first
    assert header.split() == ["precision", "recall", "F1", "words"]
    assert [line.split()[0] for line in lines] == ["NN", "VB", "DT", "JJ"]
    assert lines[0].split() == ["NN", "66.67", "66.67", "66.67", "3"]


tags = st.sampled_from(["O", *(f"{prefix}-{kind}" for prefix in "BIES" for kind in "XYZ")])


pairs = st.lists(st.lists(st.tuples(tags, tags), min_size=1), min_size=1)


def rates(scores):
    return {name: scores[name] for name in ("precision", "recall", "f1")}


def numbers(scores):
    return scores["num_gold"], scores["num_found"], scores["num_correct"]


@given(pairs)
def test_scores_equal_those_of_seqeval(sentences):
    gold = [[truth for truth, _ in sentence] for sentence in sentences]
    found = [[guess for _, guess in sentence] for sentence in sentences]
    scores = score_entities(gold, found)
    assert scores["precision"] == pytest.approx(
        metrics.precision_score(gold, found, zero_division=0)
    )
    assert scores["recall"] == pytest.approx(metrics.recall_score(gold, found, zero_division=0))
    assert scores["f1"] == pytest.approx(metrics.f1_score(gold, found, zero_division=0))
    assert scores["accuracy"] == pytest.approx(metrics.accuracy_score(gold, found))
    if not scores["types"]:
        return
    report = metrics.classification_report(gold, found, output_dict=True, zero_division=0)
    assert scores["types"].keys() == report.keys() - {"micro avg", "macro avg", "weighted avg"}
    for kind, each in scores["types"].items():
        assert each["precision"] == pytest.approx(report[kind]["precision"])
        assert each["recall"] == pytest.approx(report[kind]["recall"])
        assert each["f1"] == pytest.approx(report[kind]["f1-score"])
        assert each["num_gold"] == report[kind]["support"]


@pytest.mark.parametrize(
    ("gold", "found", "expected"),
    [
        # Right; a border, a type, or both ends wrong; one too many and one too few.
        ("B-X I-X O", "B-X I-X O", (1, 1, 1)),
        ("B-X I-X O", "B-X O O", (1, 1, 0)),
        ("B-X I-X O", "B-Y I-Y O", (1, 1, 0)),
        ("B-X I-X O", "O B-X I-X", (1, 1, 0)),
        ("B-X I-X O", "B-X I-X B-X", (1, 2, 1)),
        ("B-X I-X B-X", "B-X I-X I-X", (2, 1, 0)),
        # What no scheme allows still is an entity, as conlleval has it.
        ("B-X I-X O", "I-X I-X O", (1, 1, 1)),
        ("B-X I-X O", "B-X I-Y O", (1, 2, 0)),
        ("B-X O", "S-X E-X", (1, 2, 1)),
        ("O O", "O O", (0, 0, 0)),
    ],
)
def test_an_entity_is_right_where_both_ends_and_its_type_are(gold, found, expected):
    scores = score_entities([gold.split()], [found.split()])
    assert numbers(scores) == expected


def test_the_report_of_entities_is_that_of_conlleval():
    gold = [["B-PER", "I-PER", "O", "B-LOC"], ["O", "B-LOC"]]
    found = [["B-PER", "I-PER", "O", "B-PER"], ["O", "B-LOC"]]
    assert format_report(score_entities(gold, found)) == (
        "processed 6 tokens with 3 phrases; found: 3 phrases; correct: 2.\n"
        "accuracy:  83.33%; precision:  66.67%; recall:  66.67%; FB1:  66.67\n"
        "              LOC: precision: 100.00%; recall:  50.00%; FB1:  66.67  1\n"
        "              PER: precision:  50.00%; recall: 100.00%; FB1:  66.67  2\n"
    )


def test_a_word_without_a_tag_is_an_error():
    with pytest.raises(ValueError, match="Received 1 for 2 words"):
        score_entities([["O", "O"]], [["O"]])

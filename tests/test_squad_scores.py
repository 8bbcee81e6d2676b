import collections
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert.tasks.squad import scores as squad_scores

answers = st.text(alphabet="aAtheé.-' 北1\u00a0", max_size=12) | st.sampled_from(
    ["the cat", "a cat sat", "cat", "The Cat!", "", "the", "sat cat", "an"]
)


@pytest.mark.parametrize(
    ("text", "normalized"),
    [
        ("The  Cat, sat.", "cat sat"),
        ("an apple a day", "apple day"),
        ("there's  another", "theres another"),
        ("the-cat", "thecat"),
        ("a.", ""),
        ("theatre", "theatre"),
        ("É", "é"),
        # Only ASCII has punctuation here; `the` ends where no letter follows.
        ("“the” ‘a’", "“ ” ‘ ’"),  # noqa: RUF001
        ("x\u00a0y\ty", "x y y"),
        ("the_end", "theend"),
    ],
)
def test_case_punctuation_articles_and_spaces_do_not_count(text, normalized):
    assert squad_scores.normalize_answer(text) == normalized


@pytest.mark.parametrize(
    ("prediction", "gold", "exact", "f1"),
    [
        ("the cat", "Cat.", 1, 1),
        ("cat sat", "cat", 0, 2 / 3),
        # Precision 2/4, recall 2/3.
        ("black cat sat down", "cat sat there", 0, 2 * 0.5 * (2 / 3) / (0.5 + 2 / 3)),
        # A word counts as often as both have it.
        ("cat cat", "cat", 0, 2 / 3),
        ("dog", "cat", 0, 0),
        ("", "cat", 0, 0),
        ("the", "", 1, 0),
    ],
)
def test_single_answers_have_the_scores_computed_by_hand(prediction, gold, exact, f1):
    assert squad_scores.exact_match(prediction, gold) == exact
    assert squad_scores.f1(prediction, gold) == pytest.approx(f1)


def test_answers_without_words_agree_in_version_2_only():
    assert squad_scores.f1("", "the") == 0
    assert squad_scores.f1_or_none("", "the") == 1
    assert squad_scores.f1_or_none("", "cat") == 0
    assert squad_scores.f1_or_none("cat sat", "cat") == squad_scores.f1("cat sat", "cat")


@given(answers, answers)
def test_scores_are_symmetric_and_between_none_and_all(first, second):
    for measure in (squad_scores.exact_match, squad_scores.f1, squad_scores.f1_or_none):
        assert 0 <= measure(first, second) <= 1
        assert measure(first, second) == measure(second, first)
    assert squad_scores.exact_match(first, second) <= squad_scores.f1_or_none(first, second)
    assert squad_scores.exact_match(first, first) == squad_scores.f1_or_none(first, first) == 1


GOLDS = {
    "a": ["the cat", "Tom"],
    "b": ["sat"],
    "c": ["down there"],
}


def test_version_1_takes_the_best_of_the_gold_answers_and_the_mean_of_questions():
    results = squad_scores.evaluate_v1(
        GOLDS.items(), {"a": "Tom!", "b": "he sat", "c": "up", "d": "x"}
    )
    assert results == {"exact_match": 100 / 3, "f1": 100 * (1 + 2 / 3) / 3}
    assert list(results) == ["exact_match", "f1"]


GOLDS_2 = {"h1": ["cat"], "n1": [], "h2": ["sat down", "sat"], "n2": [], "h3": ["tom"]}
PREDICTIONS_2 = {"h1": "cat", "n1": "", "h2": "he sat", "n2": "dog", "h3": ""}


def test_version_2_has_the_scores_computed_by_hand():
    results = squad_scores.evaluate_v2(GOLDS_2, PREDICTIONS_2)
    f1 = 2 / 3
    assert results == {
        "exact": 40.0,
        "f1": pytest.approx(100 * (1 + 1 + f1) / 5),
        "total": 5,
        "HasAns_exact": pytest.approx(100 / 3),
        "HasAns_f1": pytest.approx(100 * (1 + f1) / 3),
        "HasAns_total": 3,
        "NoAns_exact": 50.0,
        "NoAns_f1": 50.0,
        "NoAns_total": 2,
    }
    assert list(json.loads(json.dumps(results))) == list(results)


def test_version_2_has_the_best_threshold_found_by_hand():
    predictions = {**PREDICTIONS_2, "h3": "tom"}
    odds = {"h1": -3.0, "n1": -1.0, "h2": 0.5, "n2": 0.7, "h3": 0.9}
    results = squad_scores.evaluate_v2(GOLDS_2, predictions, odds)
    # Nothing answered: 2. Up to h1: 3. n1 is empty anyway. h2 adds nothing exact, 2/3 in F1. n2 is
    # answered, and should not be. Up to h3, all: 3 and 3 2/3 again, which is no better.
    assert [results[f"best_{name}"] for name in ("exact", "exact_thresh")] == [60.0, -3.0]
    assert results["best_f1"] == pytest.approx(100 * (3 + 2 / 3) / 5)
    assert results["best_f1_thresh"] == 0.5
    assert list(results)[-4:] == ["best_exact", "best_exact_thresh", "best_f1", "best_f1_thresh"]


def test_odds_above_the_threshold_replace_the_prediction():
    odds = {"h1": 1.5, "n1": 0.0, "h2": 1.0, "n2": 1.1, "h3": 0.0}
    results = squad_scores.evaluate_v2(GOLDS_2, PREDICTIONS_2, odds)
    assert (results["HasAns_exact"], results["NoAns_exact"]) == (0.0, 100.0)
    # Odds equal to the threshold, h2's, leave the prediction.
    assert results["HasAns_f1"] == pytest.approx(100 * (2 / 3) / 3)
    # What the best thresholds are does not depend on it.
    other = squad_scores.evaluate_v2(GOLDS_2, PREDICTIONS_2, odds, null_threshold=9.0)
    assert (other["HasAns_exact"], other["NoAns_exact"]) == (pytest.approx(100 / 3), 50.0)
    assert other["best_f1"] == results["best_f1"]


def test_questions_of_one_kind_only_have_no_scores_of_the_other():
    assert "NoAns_exact" not in squad_scores.evaluate_v2({"a": ["x"]}, {"a": "x"})
    assert "HasAns_exact" not in squad_scores.evaluate_v2({"a": []}, {"a": "x"})


def test_a_gold_answer_without_words_means_that_there_is_none_but_counts_as_one():
    results = squad_scores.evaluate_v2({"a": ["the", "cat"], "b": ["a."]}, {"a": "", "b": ""})
    assert results["HasAns_total"] == 2
    assert results["exact"] == 50.0
    # So what the odds leave unanswered is wrong, as the official script has it.
    results = squad_scores.evaluate_v2({"a": ["the"]}, {"a": ""}, {"a": 5.0})
    assert (results["exact"], results["f1"]) == (0, 0)


questions = st.dictionaries(
    st.text("abcdefgh", min_size=1, max_size=2),
    st.tuples(
        st.lists(answers, max_size=3),
        answers,
        st.sampled_from([-1.0, 0.0, 0.5, 2.0]) | st.floats(-5, 5),
    ),
    min_size=1,
)


@given(questions)
def test_the_best_score_is_the_best_of_all_thresholds(table):
    golds, predictions, odds = (
        {qas_id: row[column] for qas_id, row in table.items()} for column in range(3)
    )
    results = squad_scores.evaluate_v2(golds, predictions, odds)
    plain = squad_scores.evaluate_v2(golds, predictions)
    for name in ("exact", "f1"):
        # Questions with the same odds are taken one after another, and a threshold may be between.
        ranked = sorted(odds, key=odds.get)
        measure = {"exact": squad_scores.exact_match, "f1": squad_scores.f1_or_none}[name]
        best = 0.0
        for count in range(len(ranked) + 1):
            answered = set(ranked[:count])
            total = 0.0
            for qas_id, texts in golds.items():
                compared = squad_scores.golds_to_compare(texts)
                score = squad_scores.best_score(measure, predictions[qas_id], compared)
                if not texts:
                    score = float(qas_id not in answered or not predictions[qas_id])
                elif qas_id not in answered:
                    score = 0.0
                total += score
            best = max(best, total)
        assert results[f"best_{name}"] == pytest.approx(100 * best / len(golds))
        parts = [
            (plain.get(f"{kind}_{name}"), plain.get(f"{kind}_total"))
            for kind in ("HasAns", "NoAns")
        ]
        total = sum(score * count for score, count in parts if count)
        assert plain[name] == pytest.approx(total / len(golds))


@given(questions)
def test_version_1_and_2_agree_where_every_question_has_an_answer_with_words(table):
    golds = {
        qas_id: [text for text in row[0] if squad_scores.normalize_answer(text)] or ["cat"]
        for qas_id, row in table.items()
    }
    predictions = {qas_id: row[1] for qas_id, row in table.items()}
    first = squad_scores.evaluate_v1(golds.items(), predictions)
    second = squad_scores.evaluate_v2(golds, predictions)
    assert collections.Counter(second)["total"] == len(golds)
    assert (first["exact_match"], first["f1"]) == pytest.approx((second["exact"], second["f1"]))

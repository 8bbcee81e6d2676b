import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert.paper.tables import (
    AGREES,
    DIFFERS,
    NOISE,
    UNKNOWN,
    Agreement,
    Cell,
    Column,
    Row,
    Score,
    Table,
    add,
    compare,
    look_up,
    pooled_deviation,
    score_of,
)

ACCURACY = Column("accuracy", "accuracy")
PERPLEXITY = Column("perplexity", "perplexity", is_better_high=False)
NUMBERS = st.integers(0, 1000).map(lambda number: number / 10)


def agreement(ours, theirs, deviation=None, column=ACCURACY, count=1):
    titles = [f"row {number}" for number in range(len(ours))]
    scores = [None if each is None else Score(each, None, count) for each in ours]
    return compare(column, titles, scores, theirs, deviation)


def test_a_score_is_the_mean_of_the_seeds_that_have_run():
    scores = {"a/1": {"f1": 0.8}, "a/2": {"f1": 0.9}, "b/1": {"f1": 0.1}, "a/3": {"other": 1.0}}
    cell = Cell(("a/1", "a/2", "a/3"), "f1", 100.0)
    found = score_of(cell, scores)
    assert found.mean == pytest.approx(85.0)
    assert found.deviation == pytest.approx(statistics.stdev([80.0, 90.0]))
    assert found.count == 2
    assert str(found) == "85.0 ± 7.1"
    assert str(score_of(Cell(("b/1",), "f1", 100.0), scores)) == "10.0"
    assert score_of(Cell(("c/1",), "f1"), scores) is None
    assert score_of(None, scores) is None
    assert score_of(Cell(("a/1",), "f1"), {"a/1": {"f1": math.nan}}) is None


def test_deviations_are_pooled_by_their_degrees_of_freedom():
    scores = [Score(1.0, 2.0, 3), Score(5.0, 4.0, 2), Score(9.0, None, 1), None]
    assert pooled_deviation(scores) == pytest.approx(math.sqrt((2 * 4.0 + 1 * 16.0) / 3))
    assert pooled_deviation([Score(9.0, None, 1), None]) is None


def test_pairs_agree_differ_or_are_within_two_standard_errors():
    # Of one seed each with a deviation of 1, two standard errors of a difference are 2 * sqrt(2).
    found = agreement([80.0, 82.0, 90.0], [1.0, 2.0, 3.0], deviation=1.0)
    assert (found.same, found.contrary, found.noise) == (2, 0, 1)
    assert found.verdict == AGREES
    found = agreement([90.0, 82.0], [1.0, 2.0], deviation=1.0)
    assert (found.same, found.contrary, found.noise) == (0, 1, 0)
    assert (found.verdict, found.worst) == (DIFFERS, ("row 0", "row 1"))
    assert agreement([82.0, 80.0], [1.0, 2.0], deviation=1.0).verdict == NOISE
    # Of sixteen seeds each, the same difference counts.
    assert agreement([82.0, 80.0], [1.0, 2.0], deviation=1.0, count=16).verdict == DIFFERS


def test_lower_is_better_for_perplexity_and_the_better_of_a_pair_is_named_first():
    found = agreement([20.0, 30.0], [4.0, 3.0], column=PERPLEXITY)
    assert (found.contrary, found.worst) == (1, ("row 0", "row 1"))
    assert agreement([30.0, 20.0], [4.0, 3.0], column=PERPLEXITY).verdict == AGREES


def test_what_has_not_run_and_what_the_paper_has_as_equal_or_not_at_all_is_no_pair():
    assert agreement([80.0, None, 70.0], [1.0, 2.0, None]).verdict == UNKNOWN
    assert agreement([80.0, 90.0], [1.0, 1.0]).pairs == 0
    assert "not two rows" in agreement([80.0], [1.0]).tell()


def test_without_any_deviation_that_is_said():
    found = agreement([80.0, 90.0], [1.0, 2.0])
    assert (found.verdict, found.is_noise_known) == (AGREES, False)
    assert "one seed each" in found.tell()
    assert "one seed each" not in agreement([80.0, 90.0], [1.0, 2.0], deviation=1.0).tell()


@given(st.lists(st.tuples(NUMBERS, NUMBERS), min_size=2, max_size=6), st.integers(0, 30))
def test_turning_ours_around_turns_same_into_contrary(rows, deviation):
    ours, theirs = [a for a, _ in rows], [b for _, b in rows]
    one = agreement(ours, theirs, deviation / 10)
    other = agreement([-each for each in ours], theirs, deviation / 10)
    assert (one.same, one.contrary, one.noise) == (other.contrary, other.same, other.noise)


@given(st.lists(NUMBERS, min_size=2, max_size=6, unique=True))
def test_the_papers_own_numbers_agree_with_the_paper(values):
    found = agreement(values, values)
    assert (found.contrary, found.noise) == (0, 0)
    assert found.same == len(values) * (len(values) - 1) // 2


def test_agreements_add_up_and_unknown_noise_stays_unknown():
    total = add([Agreement(1, 2, 3), Agreement(10, 0, 0, is_noise_known=False), Agreement()])
    assert (total.same, total.contrary, total.noise, total.is_noise_known) == (11, 2, 3, False)
    assert add([Agreement(), Agreement()]).verdict == UNKNOWN


def table(key, rows):
    lines = [Row(name, name, (Cell(jobs, "accuracy"),), (theirs,)) for name, jobs, theirs in rows]
    return Table(key, key, "", (ACCURACY,), tuple(lines))


def test_the_noise_of_a_score_is_known_from_all_tables_and_each_cell_counts_once():
    several = ("a/1", "a/2")
    tables = [
        table("table1", [("a", several, 1.0), ("c", ("c/1", "c/2"), 2.0)]),
        table("table5", [("a", several, 1.0), ("b", ("b/1",), 2.0)]),
    ]
    scores = {
        **{"a/1": {"accuracy": 10.0}, "a/2": {"accuracy": 12.0}},
        **{"c/1": {"accuracy": 50.0}, "c/2": {"accuracy": 50.0}},
        "b/1": {"accuracy": 13.0},
    }
    first, second = look_up(tables, scores)
    assert first.agreements[0].verdict == AGREES
    # 2 apart; sqrt((2 + 0) / 2) = 1 times sqrt(1/2 + 1) times 2 is 2.45.
    assert second.agreements[0].verdict == NOISE
    assert (first.done, second.done) == ((2, 2), (2, 2))
    [alone] = look_up(tables[1:], {**scores, "a/2": {}})
    assert alone.agreements[0].is_noise_known is False
    assert look_up(tables, {})[0].done == (0, 2)

import dataclasses
import itertools
import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paper import figures
from paper.tables import (
    AGREES,
    DIFFERS,
    NOISE,
    NOT_RUN,
    NOT_THERE,
    UNKNOWN,
    Agreement,
    Cell,
    Column,
    Noise,
    Row,
    Score,
    Table,
    add,
    compare,
    look_up,
    pooled_noise,
    score_of,
)
from paper.texts import overall

ACCURACY = Column("accuracy", "accuracy")
PERPLEXITY = Column("perplexity", "perplexity", is_perplexity=True)
NUMBERS = st.integers(0, 1000).map(lambda number: number / 10)


def agreement(ours, theirs, deviation=None, column=ACCURACY, count=1):
    titles = [f"row {number}" for number in range(len(ours))]
    scores = [None if each is None else Score(each, None, count) for each in ours]
    noise = None if deviation is None else Noise(deviation, math.inf)
    return compare(column, titles, scores, theirs, noise)


def test_a_score_is_the_mean_of_the_seeds_that_have_run():
    scores = {
        **{"a/1": [{"f1": 0.8}], "a/2": [{"f1": 0.9}], "a/3": [{"other": 1.0}], "a/4": []},
        **{"b/1": [{"f1": 0.1}], "d/1": [{"f1": 0.2}, {"f1": 0.4}], "d/2": [{"f1": 0.6}]},
    }
    cell = Cell(("a/1", "a/2", "a/3", "a/4"), "f1", 100.0)
    found = score_of(cell, scores)
    assert found.mean == pytest.approx(85.0)
    assert found.deviation == pytest.approx(statistics.stdev([80.0, 90.0]))
    assert found.count == 2
    assert str(found) == "85.0 ± 7.1"
    assert str(score_of(Cell(("b/1",), "f1", 100.0), scores)) == "10.0"
    assert score_of(Cell(("c/1",), "f1"), scores) is None
    assert score_of(None, scores) is None
    assert score_of(Cell(("a/1",), "f1"), {"a/1": [{"f1": math.nan}]}) is None
    # One that ran twice and led elsewhere counts with both results.
    assert str(score_of(Cell(("d/1", "d/2"), "f1", 100.0), scores)) == "40.0 ± 20.0"


def test_deviations_are_pooled_by_their_degrees_of_freedom():
    scores = [Score(1.0, 2.0, 3), Score(5.0, 4.0, 2), Score(9.0, None, 1), None]
    assert pooled_noise(scores) == Noise(pytest.approx(math.sqrt((2 * 4.0 + 1 * 16.0) / 3)), 3)
    assert pooled_noise([Score(9.0, None, 1), None]) is None


# Two-sided 5 % points of Student's t, as tables have them.
@pytest.mark.parametrize(("freedom", "errors"), [(1, 12.706), (4, 2.776), (10, 2.228), (1e9, 1.96)])
def test_the_fewer_seeds_the_noise_is_known_from_the_more_a_difference_must_be(freedom, errors):
    least = Noise(3.0, freedom).least(2, 4)
    assert least == pytest.approx(errors * 3.0 * math.sqrt(1 / 2 + 1 / 4), rel=1e-3)
    above, below = ([80.0, 80.0 + least * each] for each in (1.001, 0.999))
    for ours, verdict in ((above, AGREES), (below, NOISE)):
        scores = [Score(ours[0], None, 2), Score(ours[1], None, 4)]
        found = compare(ACCURACY, "ab", scores, [1.0, 2.0], Noise(3.0, freedom))
        assert found.verdict == verdict


def test_pairs_agree_differ_or_are_within_the_noise():
    # Of one seed each with a deviation of 1, differences count from 1.96 * sqrt(2) on.
    found = agreement([80.0, 82.0, 90.0], [1.0, 2.0, 3.0], deviation=1.0)
    assert (found.same, found.contrary, found.noise) == (2, 0, 1)
    assert found.verdict == AGREES
    found = agreement([90.0, 82.0], [1.0, 2.0], deviation=1.0)
    assert (found.same, found.contrary, found.noise) == (0, 1, 0)
    assert (found.verdict, found.worst) == (DIFFERS, ("row 0", "row 1"))
    assert agreement([82.0, 80.0], [1.0, 2.0], deviation=1.0).verdict == NOISE
    # Of sixteen seeds each, the same difference counts.
    assert agreement([82.0, 80.0], [1.0, 2.0], deviation=1.0, count=16).verdict == DIFFERS


def test_what_is_within_the_noise_says_how_many_seeds_would_tell_it():
    # With a deviation of 2, a difference of 2 is 1.96 standard errors of means of 7.7 seeds.
    found = agreement([80.0, 82.0], [1.0, 2.0], deviation=2.0)
    assert found.seeds == (8,)
    assert "1 within the noise (8 seeds of each row would tell such a difference)" in found.tell()
    for count, noise in ((7, 1), (8, 0)):
        assert agreement([80.0, 82.0], [1.0, 2.0], 2.0, count=count).noise == noise
    equal = agreement([80.0, 80.0], [1.0, 2.0], deviation=2.0)
    assert "(more than 1,000 seeds of each row" in equal.tell()
    both = add([found, equal, agreement([80.0, 90.0], [1.0, 2.0], 2.0)])
    assert (both.noise, both.same) == (2, 1)
    assert "(8 to more than 1,000 seeds of each row would tell such differences)" in both.tell()


def test_lower_is_better_for_perplexity_and_the_better_of_a_pair_is_named_first():
    found = agreement([20.0, 30.0], [4.0, 3.0], 1.0, column=PERPLEXITY)
    assert (found.contrary, found.worst) == (1, ("row 0", "row 1"))
    assert agreement([30.0, 20.0], [4.0, 3.0], 1.0, column=PERPLEXITY).verdict == AGREES
    found = agreement([30.0, 20.0], [3.0, 4.0], 1.0, column=PERPLEXITY)
    assert (found.contrary, found.worst) == (1, ("row 1", "row 0"))


def test_what_has_not_run_and_what_the_paper_has_as_equal_or_not_at_all_is_no_pair():
    assert agreement([80.0, None, 70.0], [1.0, 2.0, None]).verdict == NOT_RUN
    assert agreement([80.0, 90.0], [1.0, 1.0]).pairs == 0
    assert "not two rows" in agreement([80.0, None], [1.0, 2.0]).tell()


def test_rows_that_the_paper_has_less_than_half_a_point_apart_have_no_order():
    # Of the paper's table 8.
    found = agreement([10.0, 20.0, 90.0], [84.2, 84.3, 83.7], deviation=1.0)
    assert (found.same, found.contrary, found.pairs) == (0, 2, 2)


@pytest.mark.parametrize("theirs", [[None, None], [84.2, 84.3], [90.0, None]])
def test_a_column_that_the_paper_does_not_have_is_not_one_that_has_not_run(theirs):
    found = agreement([80.0, 90.0], theirs, deviation=1.0)
    assert found.verdict == NOT_THERE
    assert "The paper has no such column" in found.tell()
    assert add([found, agreement([80.0, 90.0], [1.0, 2.0], 1.0)]).verdict == AGREES
    assert add([found, agreement([80.0, None], [1.0, 2.0], 1.0)]).verdict == NOT_RUN
    assert add([found]).verdict == NOT_THERE


@pytest.mark.parametrize("deviation", [None, 0.0])
def test_without_any_noise_to_compare_with_no_difference_counts(deviation):
    found = agreement([80.0, 10.0, 90.0], [1.0, 2.0, 3.0], deviation)
    assert (found.same, found.contrary, found.noise, found.unknown) == (0, 0, 0, 3)
    assert found.verdict == UNKNOWN and found.worst is None
    assert "3 not known" in found.tell()
    assert "not known" not in agreement([80.0, 90.0], [1.0, 2.0], deviation=1.0).tell()


def test_perplexities_of_one_pre_training_each_are_no_evidence():
    rows = [("L=1", ("a",), 5.84), ("L=2", ("b",), 3.23)]
    table = Table(
        "table6",
        "",
        "",
        (PERPLEXITY,),
        tuple(Row(name, name, (Cell(jobs, "perplexity"),), (each,)) for name, jobs, each in rows),
    )
    [outcome] = look_up([table], {"a": [{"perplexity": 90.0}], "b": [{"perplexity": 10.0}]})
    assert outcome.total.verdict == UNKNOWN
    told = overall([outcome])
    assert "0 stand in the paper's order" in told and "of 1 the noise is not known" in told


@given(st.lists(st.tuples(NUMBERS, NUMBERS), min_size=2, max_size=6), st.integers(0, 30))
def test_turning_ours_around_turns_same_into_contrary(rows, deviation):
    ours, theirs = [a for a, _ in rows], [b for _, b in rows]
    one = agreement(ours, theirs, deviation / 10)
    other = agreement([-each for each in ours], theirs, deviation / 10)
    assert (one.same, one.contrary, one.noise) == (other.contrary, other.same, other.noise)
    assert one.unknown == (0 if deviation else one.pairs)


@given(st.lists(NUMBERS, min_size=2, max_size=6, unique=True))
def test_the_papers_own_numbers_agree_with_the_paper(values):
    found = agreement(values, values, 1e-9)
    assert (found.contrary, found.noise) == (0, 0)
    pairs = itertools.combinations(values, 2)
    assert found.same == sum(round(abs(one - other), 2) >= 0.5 for one, other in pairs)


def test_agreements_add_up_and_unknown_noise_stays_unknown():
    total = add([Agreement(1, 2, 3), Agreement(10, 0, 0, 4), Agreement()])
    assert (total.same, total.contrary, total.noise, total.unknown) == (11, 2, 3, 4)
    assert total.pairs == 20
    assert add([Agreement(), Agreement()]).verdict == NOT_RUN


def scores_of(values):
    return {job: [{"accuracy": value}] for job, value in values.items()}


def table(key, rows):
    lines = [Row(name, name, (Cell(jobs, "accuracy"),), (theirs,)) for name, jobs, theirs in rows]
    return Table(key, key, "", (ACCURACY,), tuple(lines))


def test_the_noise_of_a_score_is_known_from_all_tables_and_each_cell_counts_once():
    several = ("a/1", "a/2")
    tables = [
        table("table1", [("a", several, 1.0), ("c", ("c/1", "c/2"), 2.0)]),
        table("table5", [("a", several, 1.0), ("b", ("b/1",), 2.0)]),
    ]
    values = {"a/1": 10.0, "a/2": 12.0, "c/1": 50.0, "c/2": 50.0, "b/1": 13.0}
    scores = scores_of(values)
    first, second = look_up(tables, scores)
    assert first.agreements[0].verdict == AGREES
    # 2 apart; sqrt((2 + 0) / 2) = 1 times sqrt(1/2 + 1) times 4.3 is 5.3.
    assert second.agreements[0].verdict == NOISE
    assert (first.done, second.done) == ((2, 2), (2, 2))
    [alone] = look_up(tables[1:], {**scores, "a/2": []})
    assert alone.agreements[0].verdict == UNKNOWN
    assert look_up(tables, {})[0].done == (0, 2)


def test_seeds_that_two_tables_share_count_once_for_the_noise():
    three = ("a/1", "a/2", "a/3")
    tables = [
        table("table1", [("a", three, None)]),
        table("table5", [("a", three[:2], 1.0), ("b", ("b/1",), 2.0)]),
    ]
    values = {"a/1": 10.0, "a/2": 12.0, "a/3": 14.0, "b/1": 15.7}
    for each in (tables, tables[::-1]):
        found = look_up(each, scores_of(values))
        outcome = next(one for one in found if one.table.key == "table5")
        # 4.7 apart; of a deviation of 2, differences count from 4.3 * 2 * sqrt(1/2 + 1) = 10.5 on.
        assert outcome.agreements[0].verdict == NOISE


def test_the_noise_of_whole_trainings_is_not_that_of_fine_tunings():
    def whole(row):
        return dataclasses.replace(
            row, cells=tuple(dataclasses.replace(cell, is_whole=True) for cell in row.cells)
        )

    tuned = table("table6", [("a", ("a/1", "a/2"), 1.0), ("b", ("b/1", "b/2"), 2.0)])
    trained = table("table5", [("c", ("a/1", "c/2"), 1.0), ("d", ("b/1", "d/2"), 2.0)])
    trained = dataclasses.replace(trained, rows=tuple(map(whole, trained.rows)))
    values = {"a/1": 10.0, "a/2": 10.2, "b/1": 12.0, "b/2": 12.2, "c/2": 14.0, "d/2": 16.0}
    both = look_up([tuned, trained], scores_of(values))
    # Of either table, the rows are 2 apart; fine-tunings differ by 0.2, whole trainings by 4.
    assert [outcome.agreements[0].verdict for outcome in both] == [AGREES, NOISE]


def test_perplexities_are_apart_by_their_ratio():
    rows = [("a", ("a/1", "a/2"), 5.8), ("b", ("b/1", "b/2"), 4.0), ("c", ("c/1", "c/2"), 3.2)]
    values = {"a/1": 330.0, "a/2": 360.0, "b/1": 80.0, "b/2": 81.0, "c/1": 62.0, "c/2": 63.0}
    sizes = dataclasses.replace(table("table6", rows), columns=(PERPLEXITY,))
    [outcome] = look_up([sizes], scores_of(values))
    found = [score for [score] in outcome.scores]
    assert str(found[0]) == "345.0 ± 21.2"
    plain = compare(PERPLEXITY, "abc", found, (5.8, 4.0, 3.2), pooled_noise(found))
    # Seeds that differ by 30 at 345 tell 80 from 62 by their ratio, but not by their difference.
    counts = [(each.same + each.contrary, each.noise) for each in (*outcome.agreements, plain)]
    assert counts == [(3, 0), (2, 1)]
    assert outcome.agreements[0].same == 3


@pytest.mark.parametrize("values", [(74.8, 77.6), (52.3, 52.4), (0.0, 100.0)])
@pytest.mark.parametrize("ends", [(100.0, 136.0), (100.0, 180.0)])
def test_the_least_and_the_greatest_value_of_an_axis_are_written_apart(ends, values):
    strip = figures._Strip(*ends, [*values, values[0] - 30])
    (low, first), (high, second) = figures._end_labels(strip, *values)
    assert [first, second] == [f"{value:.1f}" for value in values]
    assert high - low >= 2 * figures._HALF
    assert ends[0] <= low and high <= ends[1]
    assert len(figures._end_labels(strip, 5.0, 5.04)) == 1

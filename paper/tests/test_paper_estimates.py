import pytest

from bert.training import devices
from paper import estimates
from paper.estimates import (
    Clock,
    Machine,
    choose,
    format_minutes,
    measure_machine,
    order_by_need,
    parse_budget,
    total,
)
from paper.jobs import Job
from paper.recipe import LADDER

MACHINE = Machine("a processor, 2 cores", 220.0, "mixed_bfloat16")


def job(name="a", kind="classifier", gflop=0.0, needs=(), **given):
    flags = tuple(f"--x=<{each}>" for each in needs)
    return Job(name, kind, "run_classifier", flags, gflop, "made", **given)


@pytest.mark.parametrize(
    ("text", "seconds"), [("20m", 1200), ("2h", 7200), ("1.5h", 5400), ("90s", 90), ("1h30m", 5400)]
)
def test_budgets_are_times(text, seconds):
    assert parse_budget(text) == seconds


@pytest.mark.parametrize("text", ["", "2", "h", "0h", "-1h", "2 hours", "nan", "1e3m"])
def test_what_is_no_time_is_refused(text):
    with pytest.raises(ValueError, match="`--budget`: a time must be"):
        parse_budget(text)


def test_times_are_told_for_a_reader():
    assert format_minutes(24) == "0.4 min"
    assert format_minutes(1500) == "25 min"
    assert format_minutes(3 * 3600 + 5 * 60) == "3 h 05 min"


def test_a_guess_grows_with_the_work_and_with_a_slower_machine_and_arithmetic():
    short, long = job(gflop=0.0), job(gflop=9e4)
    start = MACHINE.seconds(short)
    work = MACHINE.seconds(long) - start
    assert start > 0 and work > 0
    half = Machine("", 110.0, "mixed_bfloat16")
    assert half.seconds(long) == pytest.approx(start + 2 * work)
    slow = Machine("", 220.0, "float32").seconds(long)
    assert slow > start + 1.5 * work
    # A processor without instructions for bfloat16 is not faster in it.
    without = Machine("", 220.0, "mixed_bfloat16", has_bfloat16=False)
    assert without.seconds(long) == pytest.approx(slow)


def test_estimates_follow_what_has_run_of_a_kind_and_a_little_what_else_has():
    clock = Clock(MACHINE)
    known, unknown = job(gflop=1e4), job(kind="squad", gflop=1e4)
    before, before_unknown = clock.seconds(known), clock.seconds(unknown)
    assert before == pytest.approx(clock.guess(known))
    clock.learn("classifier", 3e5, 1e5)
    assert clock.seconds(known) == pytest.approx(3 * before, rel=0.01)
    assert clock.seconds(unknown) == pytest.approx(3 * before_unknown, rel=0.01)
    clock.learn("squad", 1e5, 1e5)
    assert clock.seconds(unknown) == pytest.approx(before_unknown, rel=0.01)
    assert total([known, known], clock) == pytest.approx(2 * clock.seconds(known))
    # What trains no model says nothing of those that do.
    clock.learn("word_vectors", 1e3, 1e6)
    assert clock.seconds(unknown) == pytest.approx(before_unknown, rel=0.01)
    again = Clock(MACHINE, [("classifier", 3e5, 1e5), ("squad", 1e5, 1e5)])
    assert again.seconds(known) == pytest.approx(clock.seconds(known))


def test_a_budget_takes_the_highest_rung_that_fits_and_at_least_the_first():
    def jobs_of(recipe):
        return [job(gflop=recipe.base.parameters * sum(recipe.steps) * recipe.tokens / 1e6)]

    clock = Clock(MACHINE)
    seconds = [total(jobs_of(recipe), clock) for recipe in LADDER]
    for rung, enough in enumerate(seconds):
        if enough < (seconds[rung + 1] if rung + 1 < len(seconds) else enough + 1):
            assert choose(enough, jobs_of, clock) == (LADDER[rung], enough)
    assert choose(0.0, jobs_of, clock) == (LADDER[0], seconds[0])
    assert choose(1e12, jobs_of, clock)[0] == LADDER[-1]


def test_every_rung_costs_more_than_the_one_below():
    costs = [
        (r.base.parameters * sum(r.steps) * r.tokens, r.examples, r.glue_examples) for r in LADDER
    ]
    assert costs == sorted(costs)
    assert all(recipe.base.layers == 4 for recipe in LADDER)
    # Without a second seed, nothing tells noise from difference: from the rung of two hours on.
    assert all(min(recipe.seeds, recipe.top_seeds) >= 2 for recipe in LADDER[4:])


JOBS = {
    each.name: each
    for each in [
        job("records"),
        job("model", needs=["records", "data:x"]),
        job("model/task", needs=["model"]),
        job("other", needs=["records"]),
        job("other/task", needs=["other", "data:x"]),
    ]
}


def order(wanted, scored=(), there=()):
    return order_by_need(wanted, JOBS, set(scored).__contains__, set(there).__contains__)


def test_what_is_wanted_and_all_it_needs_is_run_in_order():
    assert order(["other/task", "model/task"]) == list(JOBS)
    assert order(["model/task"]) == ["records", "model", "model/task"]


def test_what_is_scored_is_not_run_nor_what_it_alone_needed():
    assert order(["model/task", "other/task"], scored=["model/task"]) == [
        *("records", "other", "other/task")
    ]
    assert order(["model", "model/task"], scored=["model", "model/task"]) == []


def test_a_scored_model_whose_files_are_gone_is_made_again_for_what_begins_with_it():
    assert order(["model", "model/task"], scored=["model"]) == ["records", "model", "model/task"]
    assert order(["model", "model/task"], scored=["model"], there=["model"]) == ["model/task"]
    assert order(["model/task"], there=["records"]) == ["model", "model/task"]


def test_this_machine_is_measured_and_takes_the_precision_that_is_asked_for():
    machine = measure_machine("float32")
    assert machine.precision == "float32"
    assert machine.gflops > 0.1
    assert "core" in machine.name


@pytest.fixture
def with_bfloat16(monkeypatch):
    monkeypatch.setattr(estimates, "_read", lambda _: "model name : fast\nflags : avx512_bf16\n")
    monkeypatch.setattr(devices, "_make_step", None)
    estimates._measure_precision.cache_clear()


def test_precisions_are_measured_in_a_process_that_leaves_no_threads_here(with_bfloat16):
    machine = measure_machine(None)
    assert machine.precision in ("float32", "mixed_bfloat16")
    assert machine.has_bfloat16 == (machine.precision == "mixed_bfloat16")


def test_precisions_that_cannot_be_measured_are_refused_with_what_went_wrong(
    with_bfloat16, monkeypatch, tmp_path
):
    (tmp_path / "tensorflow.py").write_text("raise ImportError('libcuda is too old')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(ValueError, match=r"measured.*`--precision=.*libcuda is too old"):
        measure_machine(None)

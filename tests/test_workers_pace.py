import pytest

from bert.training.meeting import LIMIT, NOWHERE, READS, RESTS, TAKES, Late, Pace, Place, seconds_of


class Clock:
    """Stands still but where it is set."""

    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


def told(pace, clock, *places):
    """Tells of places, (time, worker, three times the step and the part), in their order."""
    for clock.now, index, place in places:
        pace.record(index, Place(*divmod(place, 3)))


def test_the_limit_runs_from_when_another_worker_waits(clock):
    pace = Pace(10.0, clock)
    told(pace, clock, (0, 0, 10), (0, 1, 10), (90, 1, 11), (91, 1, 12), (92, 0, 11))
    clock.now = 102.0
    # What both know of step 3 is past; the chief saves, say.
    assert pace.find_late() is None
    clock.now = 102.5
    assert pace.find_late() == Late([0], 3, 10.5)


def test_a_worker_that_advances_is_not_late(clock):
    pace = Pace(10.0, clock)
    told(pace, clock, (0, 0, 12), (0, 1, 5), (9, 1, 6), (18, 1, 7))
    clock.now = 27.0
    assert pace.find_late() is None
    clock.now = 29.0
    assert pace.find_late() == Late([1], 2, 11.0)


def test_repeated_places_are_no_advance(clock):
    pace = Pace(10.0, clock)
    told(pace, clock, (0, 0, 4), (0, 1, 3), (5, 1, 3), (10, 1, 3))
    clock.now = 11.0
    assert pace.find_late() == Late([1], 1, 11.0)


@pytest.mark.parametrize(("mark", "is_late"), [(9, True), (10, True), (11, False), (0, False)])
def test_all_at_one_place_are_late_within_a_step_alone(clock, mark, is_late):
    pace = Pace(10.0, clock)
    told(pace, clock, (0, 0, mark), (4, 1, mark))
    clock.now = 14.0
    assert pace.find_late() is None
    clock.now = 15.0
    assert pace.find_late() == (Late([0, 1], 3, 11.0) if is_late else None)


def test_nobody_is_late_while_a_worker_is_alone_or_takes_no_steps(clock):
    pace = Pace(10.0, clock)
    told(pace, clock, (0, 0, 4))
    clock.now = 99.0
    assert pace.find_late() is None
    told(pace, clock, (99, 1, 0))
    clock.now = 999.0
    assert pace.find_late() is None


def test_places_are_ordered_within_and_across_steps():
    pace = Pace()
    marks = []
    for step in (1, 2):
        for part in (READS, TAKES, RESTS):
            pace.at(step, part)
            marks.append(pace.place)
    assert marks == sorted({*marks})
    pace.close()
    assert pace.place == NOWHERE


def test_an_evaluation_has_no_limit_while_all_advance(clock):
    pace = Pace(10.0, clock)
    for passed in (0, 1, 3, 5, 6):
        for index in range(2):
            pace.record(index, Place(7, RESTS, passed))
        clock.now += 9.0
        assert pace.find_late() is None
    # Behind it, and before, the chief may save.
    clock.now += 99.0
    assert pace.find_late() is None


@pytest.mark.parametrize(
    ("chief", "other", "late"), [(5, 3, [1]), (1, 0, [1]), (3, 6, [0]), (3, 3, [0, 1])]
)
def test_a_worker_that_delays_an_evaluation_is_late(clock, chief, other, late):
    pace = Pace(10.0, clock)
    pace.record(0, Place(7, RESTS, chief))
    pace.record(1, Place(7, RESTS, other))
    clock.now = 11.0
    assert pace.find_late() == Late(late, 7, 11.0, is_evaluating=True)


def test_batches_of_an_evaluation_have_places_within_their_step():
    pace = Pace()
    pace.at(3, RESTS)
    marks = [pace.place]
    for _ in range(2):
        with pace.evaluating():
            assert not pace.is_limited()
            for _ in range(2):
                pace.next_batch()
                assert pace.is_limited()
                marks.append(pace.place)
        assert not pace.is_limited()
        marks.append(pace.place)
    pace.at(4, READS)
    marks.append(pace.place)
    assert marks == sorted({*marks})


def test_an_evaluation_alone_has_a_place_as_long_as_it_lasts():
    pace = Pace()
    with pace.evaluating():
        assert pace.place == Place(0, RESTS)
        pace.next_batch()
        assert pace.is_limited()
    assert pace.place == NOWHERE


def test_messages_name_late_workers():
    names = ["The chief at a:1", "Worker 1 at b:1", "Worker 2 at c:1"]
    one = Late([1], 7, 20.4).describe(names)
    assert one.startswith("Worker 1 at b:1 has not got beyond step 7 in 20 s, where the others")
    assert (
        Late([0, 1, 2], 7, 20.4).describe(names).startswith("No worker has got beyond step 7 in 20")
    )
    two = Late([0, 2], 7, 20.4).describe(names)
    assert two.startswith("The chief at a:1 and Worker 2 at c:1 have not got beyond")
    assert all(LIMIT in each for each in (one, two))
    passing = Late([1], 7, 20.4, is_evaluating=True).describe(names)
    assert "not got beyond a batch of an evaluation or prediction after step 7 in 20 s" in passing
    alone = Late([1], 0, 20.4, is_evaluating=True).describe(names)
    assert "beyond a batch of an evaluation or prediction in 20 s" in alone


@pytest.mark.parametrize("text", ["soon", "0", "-1", "nan", "inf"])
def test_limit_is_a_number_of_seconds(text):
    with pytest.raises(ValueError, match=f"`{LIMIT}` must be a number of seconds. Received"):
        seconds_of({LIMIT: text}, LIMIT, 5.0)
    assert seconds_of({LIMIT: "7.5"}, LIMIT, 5.0) == 7.5
    assert seconds_of({}, LIMIT, 5.0) == 5.0

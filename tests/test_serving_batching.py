import asyncio
import threading
import time
from concurrent.futures import Future

import pytest
from helpers.waiting import wait_until

from bert.serving.batching import Batcher, ClosedError, FullError


class Worker:
    """Answers numbers by their doubles, when it may; refuses those below 0, and fails at 13.

    What asks for the signature `held` waits on.
    """

    held = None

    def __init__(self):
        self.batches = []
        self.may = threading.Event()
        self.may.set()
        self.checks = 0

    def __call__(self, signature, rows, check):
        self.batches.append((signature, list(rows)))
        while not self.may.wait(0.002) or self.held == signature:
            self.checks += 1
            check()
            time.sleep(0.001)
        if bad := [row for row in rows if row < 0]:
            raise ValueError(f"{bad[0]} is below 0")
        if 13 in rows:
            raise RuntimeError("unlucky")
        return [2 * row for row in rows]


@pytest.fixture
def worker():
    return Worker()


@pytest.fixture
def batcher(worker):
    made = Batcher(worker, max_batch_size=4, max_waiting=20, max_batch_characters=50)
    yield made
    worker.held = None
    worker.may.set()
    made.close()


def submit(batcher, signature, rows, size=0, num_inputs=None):
    """Returns a future of the answers, for which any thread may wait."""
    future = Future()
    batcher.submit(signature, rows, size, num_inputs or len(rows), future)
    return future


def hold(worker, batcher):
    """Keeps the worker at a batch of its own, so that what is submitted then waits."""
    worker.may.clear()
    held = submit(batcher, "held", [0])
    wait_until(lambda: worker.batches)
    return held


def test_waiting_requests_share_batches_in_order_by_signature_and_size(worker, batcher):
    held = hold(worker, batcher)
    asked = [("a", [1]), ("a", [2, 3]), ("a", [4, 5]), ("b", [6]), ("b", [7] * 9), ("b", [8])]
    waiting = [submit(batcher, *each) for each in asked]
    assert batcher.num_waiting == 17
    worker.may.set()
    assert held.result(5) == [0]
    assert [each.result(5) for each in waiting] == [[2 * row for row in rows] for _, rows in asked]
    expected = [("a", [1, 2, 3]), ("a", [4, 5]), ("b", [6]), ("b", [7] * 9), ("b", [8])]
    assert worker.batches[1:] == expected


def test_the_answers_of_a_batch_are_delivered_at_once_when_it_no_longer_counts(worker):
    delivered, loop = [], asyncio.new_event_loop()
    batcher = Batcher(worker, max_batch_size=4, max_waiting=20, deliver=delivered.append)
    hold(worker, batcher)
    waiting = [loop.create_future() for _ in range(4)]
    for row, future in enumerate(waiting):
        batcher.submit("a", [row - 1], 0, 1, future)
    worker.may.set()
    wait_until(lambda: len(delivered) == 2, 5)
    assert batcher.num_waiting == 0
    assert not any(future.done() for future in waiting)
    # One that nobody waits for any more.
    waiting[1].cancel()
    delivered[1]()
    with pytest.raises(ValueError, match="-1 is below 0"):
        waiting[0].result()
    assert waiting[1].cancelled()
    assert [future.result() for future in waiting[2:]] == [[2], [4]]
    batcher.close()
    loop.close()


def test_long_requests_delay_only_long_ones(worker, batcher):
    worker.may.clear()
    for size in (60, 70, 51):
        last = submit(batcher, "long", [size], size)
    wait_until(lambda: worker.batches == [("long", [60])], 5)
    held = submit(batcher, "a", [0])
    wait_until(lambda: len(worker.batches) == 2, 5)
    short = [submit(batcher, "a", [size], size) for size in (10, 30, 11, 1, 50)]
    # The long text is still under way, though what is short may go on.
    worker.held = "long"
    worker.may.set()
    assert [each.result(5) for each in (held, *short)] == [[0], [20], [60], [22], [2], [100]]
    assert not last.done()
    worker.held = None
    assert last.result(5) == [102]
    of = {name: [rows for each, rows in worker.batches if each == name] for name in ("a", "long")}
    assert of == {"a": [[0], [10, 30], [11, 1], [50]], "long": [[60], [70], [51]]}
    wait_until(lambda: batcher.num_waiting == 0, 5)


def test_a_refused_or_failed_request_does_not_affect_others(worker, batcher, log):
    hold(worker, batcher)
    good, bad, unlucky, last = (submit(batcher, "a", [row]) for row in (1, -2, 13, 3))
    worker.may.set()
    assert (good.result(5), last.result(5)) == ([2], [6])
    with pytest.raises(ValueError, match="-2 is below 0"):
        bad.result(5)
    with pytest.raises(RuntimeError, match="unlucky"):
        unlucky.result(5)
    assert log.messages == ["A request could not be answered."]
    assert submit(batcher, "a", [5]).result(5) == [10]


def test_cancelled_requests_are_not_answered(worker, batcher):
    held = hold(worker, batcher)
    gone, stays = submit(batcher, "a", [1]), submit(batcher, "a", [2])
    assert gone.cancel()
    # The work at which the worker is ends, too.
    assert held.cancel()
    assert not worker.may.is_set()
    wait_until(lambda: len(worker.batches) == 2)
    worker.may.set()
    assert stays.result(5) == [4]
    assert worker.batches[1:] == [("a", [2])]


def test_too_much_is_refused_and_counted_until_it_is_answered(worker, batcher):
    hold(worker, batcher)
    waiting = submit(batcher, "a", [1] * 19)
    with pytest.raises(FullError):
        submit(batcher, "a", [1])
    worker.may.set()
    waiting.result(5)
    wait_until(lambda: not batcher.num_waiting, 5)
    assert submit(batcher, "a", [1] * 20).result(5) == [2] * 20


def test_long_requests_leave_half_of_the_room_to_short_ones(worker, batcher):
    worker.may.clear()
    # The first may have more than half, as nothing long waits.
    long = submit(batcher, "long", [0] * 12, 60)
    with pytest.raises(FullError):
        submit(batcher, "long", [0], 60)
    short = submit(batcher, "a", [1] * 8)
    worker.may.set()
    assert (long.result(5), short.result(5)) == ([0] * 12, [2] * 8)
    wait_until(lambda: not batcher.num_waiting, 5)
    worker.may.clear()
    asked = [submit(batcher, "long", [0] * 5, 60) for _ in range(2)]
    with pytest.raises(FullError):
        submit(batcher, "long", [0], 60)
    asked.append(submit(batcher, "a", [1] * 10))
    with pytest.raises(FullError):
        submit(batcher, "a", [1])
    worker.may.set()
    assert [each.result(5) for each in asked] == [[0] * 5, [0] * 5, [2] * 10]


def test_a_row_may_count_as_several_inputs(worker, batcher):
    held = hold(worker, batcher)
    waiting = [submit(batcher, "a", [row], 0, row) for row in (3, 1, 7)]
    assert batcher.num_waiting == 12
    with pytest.raises(FullError):
        submit(batcher, "a", [0], 0, 9)
    worker.may.set()
    assert [each.result(5) for each in (held, *waiting)] == [[0], [6], [2], [14]]
    assert worker.batches[1:] == [("a", [3, 1]), ("a", [7])]
    # Answered, each leaves as much room as it took.
    wait_until(lambda: batcher.num_waiting == 0, 5)


def test_closing_answers_waiting_requests(worker):
    batcher = Batcher(worker, max_batch_size=1, max_waiting=20)
    hold(worker, batcher)
    waiting = [submit(batcher, "a", [row]) for row in range(5)]
    threading.Timer(0.05, worker.may.set).start()
    assert batcher.is_alive()
    batcher.close()
    assert [each.result(0) for each in waiting] == [[0], [2], [4], [6], [8]]
    assert not batcher.is_alive()
    with pytest.raises(ClosedError):
        submit(batcher, "a", [1])


def test_the_first_request_waits_for_others_for_the_given_time(worker):
    told = []
    batcher = Batcher(
        worker,
        max_batch_size=3,
        max_waiting=20,
        wait_seconds=60.0,
        count=lambda rows, seconds: told.append(rows),
    )
    waiting = [submit(batcher, "a", [row]) for row in (1, 2, 3)]
    assert [each.result(5) for each in waiting] == [[2], [4], [6]]
    assert worker.batches == [("a", [1, 2, 3])]
    # A request may be a whole batch.
    assert submit(batcher, "a", [5, 6, 7]).result(30) == [10, 12, 14]
    # Closing waits for nobody.
    last = submit(batcher, "a", [4])
    batcher.close()
    assert last.result(0) == [8]
    assert told == [3, 3, 1]

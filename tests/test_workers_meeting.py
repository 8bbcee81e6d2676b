import contextlib
import os
import socket
import subprocess
import sys
import threading
import time

import pytest
from conftest import ROOT, free_ports
from waiting import wait_until

from bert.workers import meeting
from bert.workers.cluster import Cluster
from bert.workers.meeting import LostWorkerError, Meeting
from bert.workers.pace import READS, TAKES, Pace


class SymptomError(Exception):
    """In place of what TensorFlow raises."""


@pytest.fixture
def workers():
    return tuple(f"localhost:{port}" for port in free_ports(3))


def at_once(functions):
    """Returns what each function returns or raises, called in threads of their own."""
    found = [None] * len(functions)

    def call(place, function):
        try:
            found[place] = function()
        except Exception as error:
            found[place] = error

    calls = enumerate(functions)
    threads = [threading.Thread(target=call, args=each, daemon=True) for each in calls]
    for each in threads:
        each.start()
    for each in threads:
        each.join(120)
    assert not any(each.is_alive() for each in threads)
    return found


def meet(workers, do, count=3, seconds=20.0):
    """Returns what `do` gives for each of the workers that come, the others staying away."""

    def come(index):
        with contextlib.closing(Meeting(Cluster(workers, index), seconds)) as met:
            found = do(met)
            # None leaves while others are at it.
            with contextlib.suppress(LostWorkerError):
                met.share(b"")
            return found

    return at_once([lambda i=index: come(i) for index in range(count)])


def test_each_gets_what_all_give(workers):
    large = os.urandom(3_000_000)

    def share(each):
        first = each.share(b"%d" % each.cluster.index)
        return first, each.share(large if each.cluster.index == 1 else b"")

    assert meet(workers, share) == [([b"0", b"1", b"2"], [b"", large, b""])] * 3


def test_one_worker_is_alone():
    [alone] = meet(("localhost:1",), lambda each: (each.share(b"x"), each.agree({"a": 1})), 1)
    assert alone == ([b"x"], None)


def test_workers_that_have_the_same_agree(workers):
    assert meet(workers, lambda each: each.agree({"a": 1, "b": ["c"]})) == [None] * 3


def test_files_count_by_what_is_in_them(workers):
    def agree(digest):
        def agree(each):
            index = each.cluster.index
            each.agree({"a": {"path": f"{index}.ckpt", "sha256": digest[index]}})

        return agree

    assert meet(workers, agree("111")) == [None] * 3
    found = meet(workers, agree("112"))
    assert all("worker 2" in str(each) and "worker 1" not in str(each) for each in found)


def test_workers_that_differ_are_named_on_all(workers):
    def agree(each):
        values = {"--seed": 12345, "code": "1.0", "versions": {"keras": "3"}}
        if each.cluster.index == 2:
            values |= {"--seed": 5, "versions": {"keras": "2"}}
        each.agree(values)

    found = meet(workers, agree)
    expected = (
        "All workers must train with the same. Other than the chief, worker 2 at "
        f'{workers[2]} has --seed 5, not 12345; versions {{"keras": "2"}}, not {{"keras": "3"}}. '
        "Give all the same flags, files and versions."
    )
    assert [(type(each), str(each)) for each in found] == [(ValueError, expected)] * 3


def test_worker_that_never_comes_is_named_on_all(workers):
    found = meet(workers, lambda each: each, 2, 0.5)
    assert {type(each) for each in found} == {LostWorkerError}
    assert all(
        "must come within 0.5 s, or as many as BERT_WORKER_TIMEOUT says" in str(each)
        for each in found
    )
    assert all(f"Not there: worker 2 at {workers[2]}. " in str(each) for each in found)


def test_chief_that_never_comes_is_named(workers):
    [found] = at_once([lambda: Meeting(Cluster(workers, 1), 0.5)])
    assert isinstance(found, LostWorkerError)
    assert f"Not there: worker 0 (the chief) at {workers[0]}. " in str(found)


def test_worker_that_comes_late_is_waited_for(workers):
    def come(index):
        time.sleep(0.6 * (index != 1))
        with contextlib.closing(Meeting(Cluster(workers, index), 20.0)) as met:
            return met.share(b"%d" % index)

    assert at_once([lambda i=i: come(i) for i in range(3)]) == [[b"0", b"1", b"2"]] * 3


def connect(host, port):
    with contextlib.suppress(ConnectionRefusedError):
        return socket.create_connection((host, port))


def test_who_is_no_worker_is_not_counted(workers):
    def come(index):
        if index == 3:
            host, port = workers[0].split(":")
            with wait_until(lambda: connect(host, int(port))) as stranger:
                return stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")
        time.sleep(0.2 * (index > 0))
        with contextlib.closing(Meeting(Cluster(workers, index), 20.0)) as met:
            return met.share(b"")

    assert at_once([lambda i=i: come(i) for i in range(4)]) == [[b""] * 3] * 3 + [None]


def test_two_of_one_number_and_other_lists_are_refused(workers):
    twice = at_once([lambda i=i: Meeting(Cluster(workers, i), 3.0) for i in (0, 1, 1)])
    assert "Two say that they are 1." in str(twice[0])
    assert isinstance(twice[0], ValueError)
    other = (workers[0], workers[2], workers[1])
    lists = at_once(
        [lambda: Meeting(Cluster(workers, 0), 3.0), lambda: Meeting(Cluster(other, 1), 3.0)]
    )
    assert all("must be told of the same workers" in str(each) for each in lists)


def test_port_of_the_chief_must_be_free(workers):
    with socket.create_server(("", int(workers[0].split(":")[1]))):
        [found] = at_once([lambda: Meeting(Cluster(workers, 0), 1.0)])
    assert "must be able to listen at port" in str(found)


def test_tensorflow_can_listen_where_workers_have_met(workers):
    def listen(each):
        if each.cluster.index == 0:
            with socket.socket() as server:
                # As gRPC does.
                server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                server.bind(("", int(workers[0].split(":")[1])))
                server.listen()
        return each.share(b"")

    assert meet(workers, listen) == [[b""] * 3] * 3


# A worker that meets the others and then does as its last argument says.
WORKER = """
import os, signal, sys, time
from bert.workers.cluster import Cluster
from bert.workers.meeting import Meeting
meeting = Meeting(Cluster(tuple(sys.argv[2].split(",")), int(sys.argv[1])), 20.0)
os.kill(os.getpid(), signal.Signals[sys.argv[3]])
time.sleep(60)
"""


@pytest.mark.parametrize("name", ["SIGKILL", "SIGSTOP"])
@pytest.mark.parametrize("victim", [0, 1])
def test_worker_that_dies_or_hangs_is_named_by_the_others(workers, monkeypatch, name, victim):
    monkeypatch.setattr(meeting, "_SECONDS_SUSPECT", 2.0)
    command = [sys.executable, "-c", WORKER, str(victim), ",".join(workers), name]
    process = subprocess.Popen(command, cwd=ROOT)

    def work(index):
        met = Meeting(Cluster(workers, index), 20.0)
        with contextlib.closing(met), met.together(SymptomError):
            process.wait() if name == "SIGKILL" else time.sleep(0.1)
            raise SymptomError

    try:
        others = [index for index in range(3) if index != victim]
        found = at_once([lambda i=i: work(i) for i in others])
    finally:
        process.kill()
        process.wait()
    assert {type(each) for each in found} == {LostWorkerError}, found
    who = Cluster(workers, 0).name(victim).capitalize()
    what = "is gone" if name == "SIGKILL" else "has not been heard of for"
    assert all(str(each).startswith(f"{who} {what}") for each in found)
    assert all(str(each).endswith("goes on from the last checkpoint.") for each in found)


@pytest.mark.parametrize("late", [0, 2])
def test_worker_that_lives_but_does_not_get_on_is_named_on_all(workers, late):
    def work(index):
        met = Meeting(Cluster(workers, index), 20.0, Pace(1.0))
        lost = threading.Event()
        met.wake = lambda _: lost.set()
        with contextlib.closing(met), met.together(SymptomError):
            met.pace.at(5, READS if index == late else TAKES)
            assert lost.wait(20.0)
            raise SymptomError

    found = at_once([lambda i=index: work(i) for index in range(3)])
    who = Cluster(workers, 0).name(late).capitalize()
    assert {type(each) for each in found} == {LostWorkerError}, found
    assert all(f"{who} has not got beyond step 5 in" in str(each) for each in found)


def test_what_one_fails_of_is_told_to_the_others(workers):
    def work(each):
        with each.together(SymptomError):
            if each.cluster.index == 1:
                raise ValueError("record 7 is damaged\nand more")
            time.sleep(0.2)
            raise SymptomError

    chief, culprit, other = meet(workers, work)
    assert type(culprit) is ValueError
    expected = f"Worker 1 at {workers[1]} has failed: record 7 is damaged. "
    assert str(chief).startswith(expected)
    assert str(other).startswith(expected)


def test_after_half_a_message_nothing_more_is_sent():
    with socket.create_server(("localhost", 0)) as server:
        near = socket.create_connection(server.getsockname())
        far, _ = server.accept()
    link, other = meeting._Link(near, 0.1), meeting._Link(far, 5.0)
    with contextlib.closing(link), contextlib.closing(other):
        with pytest.raises(TimeoutError):
            link.send(b"P", bytes(1 << 25))
        [received] = at_once([other.receive])
        assert isinstance(received, ConnectionResetError)
        with pytest.raises(OSError, match="pipe"):
            link.send(b"B")


def test_symptom_without_a_loss_stays_what_it_is(workers, monkeypatch):
    monkeypatch.setattr(meeting, "_SECONDS_TO_NAME", 0.3)

    def work(each):
        with each.together(SymptomError):
            raise SymptomError("of its own")

    found = meet(workers, work)
    assert SymptomError in {type(each) for each in found}


def test_none_leaves_before_all_are_done(workers):
    order = []

    def work(each):
        with each.together(SymptomError):
            if each.cluster.index == 0:
                time.sleep(0.3)
                order.append("chief is done")
        order.append("left")

    assert meet(workers, work) == [None] * 3
    assert order == ["chief is done", *["left"] * 3]


def test_time_to_wait_is_a_number_of_seconds():
    assert meeting.seconds_to_come({}) == 600
    assert meeting.seconds_to_come({"BERT_WORKER_TIMEOUT": "1.5"}) == 1.5
    for wrong in ("soon", "0", "-3", "nan", "inf"):
        with pytest.raises(ValueError, match=f"BERT_WORKER_TIMEOUT.*Received '{wrong}'"):
            meeting.seconds_to_come({"BERT_WORKER_TIMEOUT": wrong})

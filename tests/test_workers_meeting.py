import contextlib
import functools
import json
import os
import socket
import struct
import subprocess
import sys
import threading
import time

import pytest
from conftest import ROOT, free_ports
from helpers.waiting import wait_until

from bert.training import link, meeting
from bert.training.cluster import Cluster
from bert.training.link import LostWorkerError
from bert.training.meeting import READS, TAKES, Meeting, Pace


class SymptomError(Exception):
    """In place of what TensorFlow raises."""


@pytest.fixture
def workers():
    return tuple(f"localhost:{port}" for port in free_ports(3))


def at_once(functions):
    """Returns what each function returns or raises, called in threads of their own.

    A thread that does not end fails the test.
    """
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


def meet(workers, do, count=3, seconds=20.0, tokens=("",) * 3):
    """Returns what `do` gives for each of the workers that come, the others staying away."""

    def come(index):
        cluster, token = Cluster(workers, index), tokens[index]
        with contextlib.closing(Meeting(cluster, seconds, token=token)) as met:
            found = do(met)
            # None leaves while others are at it.
            with contextlib.suppress(LostWorkerError):
                met.all_gather(b"")
            return found

    return at_once([lambda i=index: come(i) for index in range(count)])


def test_all_workers_gather_the_contents_of_all(workers):
    large = os.urandom(3_000_000)

    def share(each):
        first = each.all_gather(b"%d" % each.cluster.index)
        return first, each.all_gather(large if each.cluster.index == 1 else b"")

    assert meet(workers, share) == [([b"0", b"1", b"2"], [b"", large, b""])] * 3


def test_one_worker_is_alone():
    [alone] = meet(
        ("localhost:1",), lambda each: (each.all_gather(b"x"), each.check_same({"a": 1})), 1
    )
    assert alone == ([b"x"], None)


def test_files_are_compared_by_content(workers):
    def agree(digest):
        def agree(each):
            index = each.cluster.index
            each.check_same({"a": {"path": f"{index}.ckpt", "sha256": digest[index]}})

        return agree

    assert meet(workers, agree("111")) == [None] * 3
    found = meet(workers, agree("112"))
    assert all("worker 2" in str(each) and "worker 1" not in str(each) for each in found)


def test_workers_that_differ_are_named_on_all(workers):
    def agree(each):
        values = {"--seed": 12345, "code": "1.0", "versions": {"keras": "3"}}
        if each.cluster.index == 2:
            values |= {"--seed": 5, "versions": {"keras": "2"}}
        each.check_same(values)

    found = meet(workers, agree)
    expected = (
        "All workers must train with the same values. Other than the chief, worker 2 at "
        f'{workers[2]} has --seed 5, not 12345; versions {{"keras": "2"}}, not {{"keras": "3"}}. '
        "Give all the same flags, files and versions."
    )
    assert [(type(each), str(each)) for each in found] == [(ValueError, expected)] * 3


def test_worker_that_never_comes_is_named_on_all(workers):
    found = meet(workers, lambda each: each, 2, 0.5)
    assert {type(each) for each in found} == {LostWorkerError}
    assert all(
        "must connect within 0.5 s, or as many as BERT_WORKER_TIMEOUT says" in str(each)
        for each in found
    )
    assert all(f"Missing: worker 2 at {workers[2]}. " in str(each) for each in found)


def test_chief_that_never_comes_is_named(workers):
    [found] = at_once([lambda: Meeting(Cluster(workers, 1), 0.5)])
    assert isinstance(found, LostWorkerError)
    assert f"Missing: worker 0 (the chief) at {workers[0]}. " in str(found)


def test_a_message_may_take_longer_than_the_silence_that_is_allowed():
    with socket.create_server(("localhost", 0)) as server:
        sender = link.Link(socket.create_connection(server.getsockname()), 1.0)
        receiver, _ = server.accept()
    content = bytes(1 << 25)

    def receive():
        received = bytearray()
        while len(received) < len(content):
            time.sleep(0.2)
            received += receiver.recv(1 << 21, socket.MSG_WAITALL) or pytest.fail("It has ended.")
        return len(received)

    found = at_once([receive, lambda: sender.send(link.PART, content[9:])])
    sender.close()
    receiver.close()
    assert found == [len(content), None]


def test_a_long_message_to_one_worker_is_no_silence_for_another(workers, monkeypatch):
    monkeypatch.setattr(link, "SECONDS_OF_SILENCE", 4.0)
    receive = link.Link._read

    def receive_slowly(each, length):
        parts = []
        while length > 1 << 20:
            parts.append(receive(each, 1 << 20))
            length -= 1 << 20
            time.sleep(0.2)
        return b"".join([*parts, receive(each, length)])

    def share(each):
        if each.index == 1:
            each._links[0]._read = functools.partial(receive_slowly, each._links[0])
        each.all_gather(b"")
        return [*map(len, each.all_gather(bytes(1 << 25 if each.index == 0 else 0)))]

    assert meet(workers, share) == [[1 << 25, 0, 0]] * 3


def test_worker_that_comes_late_is_waited_for(workers):
    def come(index):
        time.sleep(0.6 * (index != 1))
        with contextlib.closing(Meeting(Cluster(workers, index), 20.0)) as met:
            return met.all_gather(b"%d" % index)

    assert at_once([lambda i=i: come(i) for i in range(3)]) == [[b"0", b"1", b"2"]] * 3


def connect(address):
    """Returns a connection to a chief, which may not listen yet."""
    host, _, port = address.rpartition(":")

    def connection():
        with contextlib.suppress(ConnectionRefusedError):
            return socket.create_connection((host, int(port)))

    return wait_until(connection)


def message(kind, content=b"", length=None):
    return struct.pack("!cQ", kind, len(content) if length is None else length) + content


def greeting(workers, index=1, token=""):
    content = json.dumps({"index": index, "workers": [*workers]}).encode()
    return message(b"H", link.prove(token, b"H", content) + content)


@pytest.fixture
def strangers():
    """Returns a list of connections that are open until the test ends."""
    with contextlib.ExitStack() as stack:
        opened = []
        stack.callback(lambda: [each.close() for each in opened])
        yield opened


STRANGERS = {
    "a browser": b"GET / HTTP/1.1\r\n\r\n",
    "nothing": b"",
    "half a header": b"H\0\0",
    "half a greeting": message(b"H", b"{", 100),
    "a greeting of a terabyte": message(b"H", b"{", 1 << 40),
    "another message": message(b"P", b"x"),
    "no proof": message(b"H", b"{}"),
    "another token": greeting(("a:1",), token="guessed"),
    "no JSON": message(b"H", link.prove("secret", b"H", b"[" * 200_000) + b"[" * 200_000),
    "no such worker": greeting(("a:1",) * 3, 7, "secret"),
    "the chief": greeting(("a:1",) * 3, 0, "secret"),
    "no number": greeting(("a:1",) * 3, 1e999, "secret"),
}


@pytest.mark.parametrize("what", STRANGERS)
def test_workers_meet_whatever_a_stranger_says_and_however_long_it_stays(
    workers, strangers, log, what
):
    """The strangers are more than could be heard one behind the other in 10 s."""

    def come(index):
        time.sleep(0.3 * (index > 0))
        with contextlib.closing(Meeting(Cluster(workers, index), 10.0, token="secret")) as met:
            return met.all_gather(b"%d" % index)

    def intrude():
        for _ in range(20):
            strangers.append(connect(workers[0]))
            strangers[-1].sendall(STRANGERS[what])

    met = at_once([intrude, *(lambda i=i: come(i) for i in range(3))])
    assert met == [None, *[[b"0", b"1", b"2"]] * 3]
    warnings = [line for line in log.messages if "BERT_WORKERS_TOKEN" in line]
    # Of greetings without the token, one line is enough, however many there are.
    assert len(warnings) == (what in ("no proof", "another token"))
    assert all("at 127.0.0.1 has another" in line for line in warnings)


def test_a_stranger_that_drips_does_not_hold_the_chief_past_its_limit(workers, strangers):
    def drip():
        strangers.append(connect(workers[0]))
        with contextlib.suppress(OSError):
            for byte in greeting(workers) * 10:
                strangers[0].sendall(bytes([byte]))
                time.sleep(0.02)

    chief, _ = at_once([lambda: Meeting(Cluster(workers, 0), 1.0), drip])
    assert isinstance(chief, LostWorkerError)
    assert "must connect within 1 s" in str(chief)


def test_a_worker_comes_through_a_crowd_that_says_nothing(workers, strangers, monkeypatch):
    monkeypatch.setattr(link, "_MOST_GUESTS", 5)
    monkeypatch.setattr(link, "_SECONDS_TO_GREET", 60.0)

    def come(index):
        time.sleep(0.5 * index)
        with contextlib.closing(Meeting(Cluster(workers, index), 10.0)) as met:
            return met.all_gather(b"%d" % index)

    def crowd():
        strangers.extend(connect(workers[0]) for _ in range(50))

    met = at_once([crowd, *(lambda i=i: come(i) for i in range(3))])
    assert met == [None, *[[b"0", b"1", b"2"]] * 3]


def test_worker_with_another_token_ends_at_once_and_is_not_counted(workers):
    def come(index, token):
        return Meeting(Cluster(workers, index), 1.0, token=token)

    chief, good, bad = at_once([lambda i=i: come(i, "x" if i == 2 else "secret") for i in range(3)])
    assert isinstance(bad, ValueError)
    assert str(bad).startswith("All workers must have the same BERT_WORKERS_TOKEN")
    assert {type(chief), type(good)} == {LostWorkerError}
    assert f"Missing: worker 2 at {workers[2]}." in str(chief)


def test_workers_with_a_token_believe_no_chief_without_it(workers):
    with socket.create_server(("localhost", int(workers[0].split(":")[1]))) as server:

        def pretend():
            # Two tries in a second are two connections at least.
            for _ in range(2):
                with server.accept()[0] as connection:
                    connection.recv(1 << 16)
                    connection.sendall(message(b"B", bytes(link.PROOF_BYTES)) + message(b"H"))
                    connection.recv(1)
            server.close()

        _, found = at_once([pretend, lambda: Meeting(Cluster(workers, 1), 5.0, token="secret")])
    assert isinstance(found, LostWorkerError)
    assert f"Missing: worker 0 (the chief) at {workers[0]}." in str(found)


def test_worker_that_has_died_and_started_again_is_taken_while_others_are_awaited(workers):
    def come(index):
        if index == 1:
            with connect(workers[0]) as first:
                first.sendall(greeting(workers))
                # The chief has answered, so that it counts.
                assert first.recv(1) == b"B"
        time.sleep(0.5 * (index == 2))
        with contextlib.closing(Meeting(Cluster(workers, index), 20.0)) as met:
            return met.all_gather(b"%d" % index)

    assert at_once([lambda i=i: come(i) for i in range(3)]) == [[b"0", b"1", b"2"]] * 3


def test_worker_that_has_greeted_may_be_silent_for_longer_than_a_greeting_takes(
    workers, monkeypatch
):
    monkeypatch.setattr(link, "_SECONDS_TO_GREET", 0.3)

    def work():
        with connect(workers[0]) as chief:
            chief.sendall(greeting(workers[:2]))
            time.sleep(1.0)
            chief.sendall(message(b"P", b"1"))
            while chief.recv(1 << 16):
                pass

    def come():
        with contextlib.closing(Meeting(Cluster(workers[:2], 0), 20.0)) as met:
            return met.all_gather(b"0")

    assert at_once([work, come]) == [None, [b"0", b"1"]]


@pytest.mark.parametrize("victim", [0, 1])
def test_each_call_after_a_loss_raises_it(workers, victim):
    def come(index):
        found = []
        with contextlib.closing(Meeting(Cluster(workers[:2], index), 20.0)) as met:
            for _ in range(3 * (index != victim)):
                with pytest.raises(LostWorkerError) as caught:
                    met.all_gather(b"")
                found.append(str(caught.value))
        return found

    told = at_once([lambda i=i: come(i) for i in range(2)])[1 - victim]
    assert len(told) == 3 and len({*told}) == 1
    assert "is gone" in told[0]


@pytest.mark.parametrize("local", [True, False])
def test_workers_of_one_machine_meet_where_no_other_can_reach_them(workers, local):
    """127.0.0.2 is another interface than 127.0.0.1 to who listens, and needs no network."""
    port = int(workers[0].split(":")[1])
    other = Cluster((workers[0], workers[1] if local else "elsewhere.example:1"), 0)

    def knock():
        connect(workers[0]).close()
        try:
            socket.create_connection(("127.0.0.2", port)).close()
        except ConnectionRefusedError:
            return "closed"
        return "open"

    _, found = at_once([lambda: Meeting(other, 1.0), knock])
    assert found == ("closed" if local else "open")


def test_a_listening_socket_is_restricted_to_the_loopback_device():
    """As `ss` shows it, and as connections from this machine go on to work."""
    with socket.create_server(("", 0)) as server, socket.create_server(("", 0)) as other:
        assert link.hide_from_other_machines(server.getsockname()[1])
        devices = [
            each.getsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, 16)
            for each in (server, other)
        ]
        assert [each.strip(b"\0") for each in devices] == [b"lo", b""]
        with socket.create_connection(("localhost", server.getsockname()[1])) as near:
            far, _ = server.accept()
            with far:
                near.sendall(b"x")
                assert far.recv(1) == b"x"
    assert not link.hide_from_other_machines(1)


def test_two_of_one_number_and_other_lists_are_refused(workers):
    twice = at_once([lambda i=i: Meeting(Cluster(workers, i), 3.0) for i in (0, 1, 1)])
    assert "Two say that they are 1." in str(twice[0])
    assert isinstance(twice[0], ValueError)
    other = (workers[0], workers[2], workers[1])
    lists = at_once(
        [lambda: Meeting(Cluster(workers, 0), 3.0), lambda: Meeting(Cluster(other, 1), 3.0)]
    )
    assert all("must have the same list of workers" in str(each) for each in lists)


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
        return each.all_gather(b"")

    assert meet(workers, listen) == [[b""] * 3] * 3


# A worker that meets the others and then does as its last argument says.
WORKER = """
import os, signal, sys, time
from bert.training.cluster import Cluster
from bert.training.meeting import Meeting
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
    assert all(str(each).endswith("resumes from the last checkpoint.") for each in found)


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


def test_the_error_of_one_worker_is_reported_by_the_others(workers):
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


def connected():
    """Returns the two ends of a connection."""
    with socket.create_server(("localhost", 0)) as server:
        near = socket.create_connection(server.getsockname())
        return near, server.accept()[0]


def test_after_half_a_message_nothing_more_is_sent():
    near, far = connected()
    mine, other = link.Link(near, 0.1), link.Link(far, 5.0)
    with contextlib.closing(mine), contextlib.closing(other):
        with pytest.raises(TimeoutError):
            mine.send(b"P", bytes(1 << 25))
        [received] = at_once([other.receive])
        assert isinstance(received, ConnectionResetError)
        with pytest.raises(OSError, match="pipe"):
            mine.send(b"B")


def receive(send, seconds):
    """Returns what a link receives or raises while a function sends on a bare connection."""
    near, far = connected()
    with near, contextlib.closing(link.Link(far, seconds)) as mine:
        sender = threading.Thread(target=send, args=(near,), daemon=True)
        sender.start()
        [found] = at_once([mine.receive])
    sender.join(20)
    return found


@pytest.mark.parametrize(
    ("kind", "most"), [(b"H", 1 << 20), (b"B", 64), (b"P", 1 << 32), (b"L", 1 << 16)]
)
def test_a_message_has_a_largest_size(kind, most):
    def send(near):
        near.sendall(message(kind, b"", most + 1))

    found = receive(send, 20.0)
    assert str(found) == "its message is not that of a worker"
    if most < 1 << 32:
        content = bytes(most)
        assert receive(lambda near: near.sendall(message(kind, content)), 20.0) == (kind, content)


def test_a_message_that_drips_has_an_end():
    def send(near):
        with contextlib.suppress(OSError):
            for _ in range(1000):
                near.sendall(b"P")
                time.sleep(0.05)

    header = message(b"P", b"", 1 << 10)
    found = receive(lambda near: (near.sendall(header), send(near)), 0.3)
    assert str(found) == "its message takes too long"


def test_symptom_without_a_loss_is_raised_unchanged(workers, monkeypatch):
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


def test_a_worker_alone_waits_for_no_other_before_its_error_is_raised(monkeypatch):
    [port] = free_ports(1)
    with contextlib.closing(Meeting(Cluster((f"localhost:{port}",), 0), 20.0)) as met:
        monkeypatch.setattr(met, "_find_lost", lambda: pytest.fail("It has nobody to lose."))
        with pytest.raises(OSError, match="its own"), met.together(OSError):
            raise OSError("its own")

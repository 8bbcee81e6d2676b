import contextlib
import http.client
import json
import re
import socket
import threading
import time

import pytest
from helpers.served_models import (
    FIELDS,
    TASKS,
    approximately,
    fetch,
    load_pretrained,
    make_model,
    predict,
    rows_of,
    served,
)
from helpers.waiting import wait_until

from bert.serving import server as server_module
from bert.serving.options import Batching, Limits, read_hosts
from bert.serving.served import DEFAULT, Served, Signature
from bert.serving.server import Server, bind


@pytest.mark.parametrize("name", TASKS)
def test_answers_are_those_of_predict(name):
    model = make_model(name)
    rows = rows_of(model.fields)
    expected = model.predict(rows)
    columns = {field: FIELDS[field] for field in model.fields}
    with served(model) as server:
        told = predict(server, {"instances": rows})
        assert (told.status, told.body) == (200, {"predictions": approximately(expected)})
        assert told.body["predictions"][0].keys() == set(model.task.answer_names)
        told = predict(server, {"inputs": columns}).body["outputs"]
        assert told == {
            field: approximately([each[field] for each in expected]) for field in expected[0]
        }
        # What the model, or the server, refuses is said in the words of requests, not of flags.
        for change in ({}, dict.fromkeys(rows[0], " "), {"endings": ["a"]}, {"endings": ["a", ""]}):
            for body in ({"instances": [{**rows[0], **change}]}, {"instances": [change]}):
                told = predict(server, body)
                assert told.status == 200 or "--" not in told.body["error"]
        told = predict(server, {"inputs": columns}).body["outputs"]
        described = described_outputs(server, DEFAULT)
        assert described.keys() == told.keys()
        for field, values in told.items():
            # That no text has any tells nothing of what they would be.
            assert described[field] == describe(values) or not any(values)
        # Each alone, all at once: they go together.
        found = [None] * 12

        def ask(number):
            found[number] = predict(server, {"instances": [rows[number % 3]]}).body

        asked = [threading.Thread(target=ask, args=(number,)) for number in range(len(found))]
        for each in asked:
            each.start()
        for each in asked:
            each.join()
        for number, each in enumerate(found):
            assert each == {"predictions": [approximately(expected[number % 3])]}


def described_outputs(server, signature):
    """Returns types and dimensions as the server tells them."""
    told = fetch(server, "/v1/models/mine/metadata").body["metadata"]["signature_def"]
    outputs = told["signature_def"][signature]["outputs"]
    assert all(each["name"] == name for name, each in outputs.items())
    shapes = {name: each["tensor_shape"] for name, each in outputs.items()}
    return {
        name: (each["dtype"], len(shapes[name]["dim"]), shapes[name]["unknown_rank"])
        for name, each in outputs.items()
    }


def describe(values):
    """Returns what is to be told of what all answers have by a name."""
    rank = 0
    while isinstance(values, list):
        values = next((each for each in values if each not in (None, [])), None)
        rank += 1
    dtypes = {str: "DT_STRING", int: "DT_INT64", float: "DT_FLOAT"}
    dtype = dtypes.get(type(values), "DT_INVALID")
    return (dtype, 0, True) if dtype == "DT_INVALID" else (dtype, rank, False)


def test_a_pre_trained_model_fills_masks_rates_texts_and_encodes():
    model = load_pretrained()
    pair = {"text_a": "the [MASK] of it", "text_b": "a [MASK]"}
    with served(model, top_k=3) as server:
        told = predict(server, {"instances": ["the [MASK]", pair]}).body["predictions"]
        filled = model.fill_mask(["the [MASK]", ("the [MASK] of it", "a [MASK]")], 3)
        for one, other in zip(told, filled, strict=True):
            assert one["masks"] == [
                [{"token": e.token, "probability": pytest.approx(e.probability)} for e in mask]
                for mask in other
            ]
        told = predict(server, {"instances": ["the end"], "signature_name": "score"})
        (rated,) = model.score(["the end"])
        assert told.body["predictions"][0] == {
            "pseudo_log_likelihood": pytest.approx(rated.pseudo_log_likelihood),
            "num_tokens": rated.num_tokens,
            "perplexity": pytest.approx(rated.perplexity),
        }
        told = {name: describe([each]) for name, each in told.body["predictions"][0].items()}
        assert described_outputs(server, "score") == told
        assert described_outputs(server, "encode") == {
            "vector": ("DT_FLOAT", 2, False),
            "num_tokens": ("DT_INT64", 1, False),
        }
        assert described_outputs(server, DEFAULT) == {"masks": ("DT_INVALID", 0, True)}
        told = predict(server, {"inputs": ["the end", "of"], "signature_name": "encode"})
        assert told.body["outputs"]["vector"] == approximately(
            model.encode(["the end", "of"]).tolist()
        )
        # What the model itself refuses, among what it answers.
        told = predict(server, {"instances": ["the [MASK]", "the end"]})
        assert told.status == 400
        assert re.match(r"Text 1, counted from 0, must have \[MASK\]", told.body["error"])
        assert "--" not in told.body["error"]
        # However much of a text is in the message.
        told = predict(server, {"instances": ["the end " * 30]})
        assert (told.status, len(told.body["error"]) < 1000) == (400, True)


class Slow:
    """Answers when it may."""

    def __init__(self):
        self.may = threading.Event()
        self.begun = threading.Event()
        self.ended = threading.Event()
        row = {"text": "a"}
        self.served = Served("mine", 3, "tagging", {DEFAULT: Signature(("text",), self)}, row)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        # A server waits for what is under way, also where a test has failed.
        self.may.set()

    def __call__(self, rows, check):
        self.begun.set()
        if rows[0]["text"] == "exit":
            raise SystemExit
        if rows[0]["text"] == "fail":
            raise RuntimeError("a secret of the server")
        try:
            while not self.may.wait(0.01):
                check()
        finally:
            self.ended.set()
        return [{"words": [row["text"]]} for row in rows]


@pytest.fixture
def slow():
    made = Slow()
    yield made
    made.may.set()


@pytest.fixture(scope="module")
def quick():
    made = Slow()
    made.may.set()
    limits = Limits(max_request_bytes=1000, max_inputs=3)
    with served(made.served, limits, allowed_hosts=["mine.example"]) as server:
        yield server


def test_a_bad_body_is_answered_with_a_line(quick):
    told = predict(quick, b"[1")
    assert told.status == 400
    assert told.body["error"].startswith("The body must be JSON in UTF-8. Received 2 bytes: at")
    assert predict(quick, {"instances": ["a"]}).status == 200


PREDICT = "/v1/models/mine:predict"


@pytest.mark.parametrize(
    ("method", "path", "status", "message"),
    [
        ("GET", PREDICT, 405, "must be asked by POST. Received 'GET'"),
        ("POST", "/v1/models/mine", 405, "must be asked by GET. Received 'POST'"),
        ("PUT", "/", 405, "must be asked by GET"),
        ("POST", "/v1/models/yours:predict", 404, "The model must be 'mine'. Received 'yours'"),
        ("GET", "/v1/models/yours", 404, "The model must be 'mine'"),
        ("POST", "/v1/models/mine/versions/4:predict", 404, "must be 3. Received 4"),
        ("POST", "/v1/models/mine/versions/2:predict", 404, "must be 3. Received 2"),
        ("GET", "/v1/models/mine/versions/4", 404, "must be 3"),
        ("GET", "/v1/models/mine/versions/2", 404, "must be 3"),
        ("POST", "/v1/models/mine:classify", 404, "must be one of /v1/models/mine:predict"),
        ("GET", "/v2/health", 404, "must be one of /v1/models/mine:predict, /v1/models/mine"),
        ("GET", "/../../etc/passwd", 404, "must be one of"),
        ("GET", "/%0d%0aX:%20y", 404, "must be one of"),
        ("GET", "/" + "x" * 5000, 404, "must be one of"),
    ],
)
def test_other_paths_and_methods_are_refused_with_the_valid_ones(
    quick, method, path, status, message
):
    told = fetch(quick, path, b"{}" if method != "GET" else None, method)
    assert told.status == status
    assert re.search(re.escape(message), told.body["error"])
    assert len(told.body["error"]) < 400
    assert ("Allow" in told.headers) == (status == 405)


@pytest.mark.parametrize(
    ("host", "status"),
    [
        *(
            (host, 200)
            for host in ("localhost", "LOCALHOST:8501", "127.0.0.1:1", "[::1]", "1.2.3.4")
        ),
        *((host, 200) for host in ("1.2.3.4", "mine.example", "Mine.Example:80", "")),
        *((host, 403) for host in ("rebound.example", "localhost.rebound.example", "[", "a b")),
    ],
)
def test_a_loopback_server_refuses_foreign_host_names(quick, host, status):
    told = fetch(quick, "/v1/models/mine", headers={"Host": host})
    assert told.status == status
    if status == 403:
        assert f"Received {host!r}" in told.body["error"]
        assert "--" not in told.body["error"]


def test_names_of_hosts_are_read_without_their_ports():
    assert read_hosts("Ask.Example:8501, other,") == ["ask.example", "other"]
    for text in ("http://ask.example", "ask.example/bread", "[", ":8501"):
        with pytest.raises(ValueError, match="`allowed_hosts` must be host names"):
            read_hosts(text)


@pytest.mark.parametrize("host", ["127.0.0.1", "::ffff:127.0.0.1"])
def test_a_loopback_address_has_only_its_own_names(host):
    try:
        bound = bind(host, 0)
    except ValueError:
        pytest.skip("no IPv6")
    with Server(Slow().served, bound, Limits(max_waiting=1), Batching(max_batch_size=1)) as server:
        assert fetch(server, "/readyz", headers={"Host": "any.example"}).status == 403


def test_a_server_of_all_the_network_has_any_name():
    made, bound = Slow().served, bind("0.0.0.0", 0)
    with Server(made, bound, Limits(max_waiting=1), Batching(max_batch_size=1)) as server:
        assert fetch(server, "/readyz", headers={"Host": "any.example"}).status == 200


def test_model_version_and_server_report_their_status(quick):
    status = fetch(quick, "/v1/models/mine").body
    assert status["model_version_status"][0]["version"] == "3"
    assert fetch(quick, "/v1/models/mine/versions/3").body == status
    told = fetch(quick, "/v1/models/mine/metadata").body
    assert told == fetch(quick, "/v1/models/mine/versions/3/metadata").body
    assert DEFAULT in told["metadata"]["signature_def"]["signature_def"]
    for path in ("/healthz", "/readyz"):
        assert fetch(quick, path)[:2] == (200, "ok\n")
        assert fetch(quick, path, method="HEAD")[:2] == (200, "")
    told = fetch(quick, "/v1/models/mine/versions/3:predict", {"instances": ["a"]})
    assert told.body == {"predictions": [{"words": ["a"]}]}


def test_metrics_count_what_was_answered(quick):
    def count(line):
        found = re.search(rf"^{re.escape(line)} (\S+)$", fetch(quick, "/metrics").body, re.M)
        return float(found[1]) if found else 0.0

    good = 'bert_requests_total{status="200",what="predict"}'
    bad = 'bert_requests_total{status="400",what="predict"}'
    before = [count(each) for each in (good, bad, "bert_batch_inputs_sum")]
    predict(quick, {"instances": ["a", "b"]})
    predict(quick, b"{")
    assert [count(each) for each in (good, bad, "bert_batch_inputs_sum")] == [
        before[0] + 1,
        before[1] + 1,
        before[2] + 2,
    ]
    assert fetch(quick, "/metrics").headers["Content-Type"].startswith("text/plain")
    assert count("process_resident_memory_bytes") > 0


def talk(server, *parts, seconds=5.0, pause=0.0):
    """Sends bytes as they are, and returns all that comes until the server closes."""
    with socket.create_connection((server.host, server.port), timeout=seconds) as connection:
        received = b""
        with contextlib.suppress(ConnectionError):
            for part in parts:
                connection.sendall(part)
                time.sleep(pause)
            while part := connection.recv(65536):
                received += part
        return received.decode()


HEAD = f"POST {PREDICT} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n".encode()


@pytest.mark.parametrize(
    ("parts", "status", "message"),
    [
        ([HEAD, b"Content-Length: 1001\r\n\r\n"], 413, "at most 1000 bytes. Received 1001."),
        (
            [HEAD, b"Transfer-Encoding: chunked\r\n\r\n", b"400\r\n" + b"x" * 1024 + b"\r\n"],
            413,
            "at most 1000 bytes. Received more.",
        ),
        (
            [HEAD, b"Content-Encoding: gzip\r\nContent-Length: 4\r\n\r\nabcd"],
            415,
            "without a Content-Encoding. Received 'gzip'.",
        ),
        # Nothing looks for what could unpack it.
        ([HEAD, b"Content-Encoding: br\r\nContent-Length: 4\r\n\r\nabcd"], 415, "Received 'br'."),
        ([HEAD, b"Transfer-Encoding: chunked\r\n\r\nzz\r\n"], 400, ""),
        ([b"not HTTP at all\r\n\r\n"], 400, ""),
        ([b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n"], 400, ""),
        ([HEAD, b"X: " + b"x" * 20000 + b"\r\n\r\n"], 400, ""),
        ([HEAD, b"Content-Length: -1\r\n\r\n"], 400, ""),
    ],
)
def test_malformed_requests_are_refused(quick, parts, status, message, log):
    received = talk(quick, *parts)
    assert received.startswith(f"HTTP/1.1 {status} ") or received.startswith(f"HTTP/1.0 {status} ")
    assert message in received
    assert "Traceback" not in received
    assert log.messages == []


@pytest.mark.parametrize(
    ("parts", "what"),
    [([HEAD, b"Content-Length: 9\r\n\r\n{"], "body"), ([HEAD[:60]], "head of a request")],
)
def test_slow_senders_are_refused(slow, log, parts, what):
    with served(slow.served, Limits(read_timeout=0.2)) as server:
        received = talk(server, *parts)
    assert received.startswith("HTTP/1.1 408 ")
    assert f"The {what} must be sent within 0.2 s." in received
    assert log.messages == []


def test_a_head_must_come_in_time_but_a_client_may_be_idle_between_requests(slow):
    def hear(connection, seconds):
        """Returns what comes, b"" where the connection is closed and None where nothing does."""
        connection.settimeout(seconds)
        try:
            return connection.recv(65536)
        except TimeoutError:
            return None

    with (
        served(slow.served, Limits(read_timeout=1.5)) as server,
        socket.create_connection((server.host, server.port)) as silent,
        socket.create_connection((server.host, server.port)) as dripping,
        socket.create_connection((server.host, server.port)) as idle,
    ):
        whole = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
        idle.sendall(whole)
        assert hear(idle, 5).endswith(b"ok\n")
        # No further byte begins the time anew.
        dripping.sendall(whole[:-2] + b"X: ")
        for _ in range(100):
            dripping.sendall(b"x")
            if (heard := hear(dripping, 0.1)) is not None:
                break
        assert heard.startswith(b"HTTP/1.1 408 ")
        assert hear(silent, 5) == b""
        assert hear(idle, 0.1) is None
        # Of a later request, it counts from the first byte.
        idle.sendall(whole[:20])
        assert hear(idle, 0.1) is None
        idle.sendall(whole[20:])
        assert hear(idle, 5).endswith(b"ok\n")
        idle.sendall(whole[:20])
        assert hear(idle, 5).startswith(b"HTTP/1.1 408 ")


def test_idle_connections_make_room_for_new_ones(slow, monkeypatch):
    monkeypatch.setattr(server_module, "_YOUNG_SECONDS", 0.0)
    with served(slow.served, Limits(max_connections=3)) as server, slow:
        answers = []
        thread = ask_in_thread(server, answers)
        assert slow.begun.wait(5)
        silent = [socket.create_connection((server.host, server.port)) for _ in range(9)]
        # Those that were idle longest are closed, and what is under way is not.
        for each in silent[:-2]:
            each.settimeout(5)
            assert each.recv(1) == b""
        assert fetch(server, "/healthz").status == 200
        slow.may.set()
        thread.join(10)
        assert [each.status for each in answers] == [200]
        for each in silent:
            each.close()


class Large(Slow):
    """Answers at once, by more than the buffers of a connection hold."""

    def __call__(self, rows, check):
        return [{"words": ["x" * 12_000_000]} for _ in rows]


@contextlib.contextmanager
def large_answer(server):
    """Asks for a large answer, and yields a connection that has read one byte of it."""
    body = b'{"instances": ["a"]}'
    head = f"POST {PREDICT} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.settimeout(30)
        connection.connect((server.host, server.port))
        connection.sendall(head.encode() + body)
        assert connection.recv(1) == b"H"
        yield connection


def is_cut(connection):
    """Returns whether a connection ends before the large answer does."""
    size = 0
    with contextlib.suppress(ConnectionError):
        while size < 12_000_000 and (part := connection.recv(1 << 20)):
            size += len(part)
    return size < 12_000_000


def test_clients_that_do_not_read_make_room_like_idle_ones(monkeypatch):
    monkeypatch.setattr(server_module, "_YOUNG_SECONDS", 0.0)
    with (
        served(Large().served, Limits(max_connections=2)) as server,
        contextlib.ExitStack() as all_,
    ):
        unread = [all_.enter_context(large_answer(server)) for _ in range(4)]
        assert [is_cut(each) for each in unread] == [True, True, False, False]


def test_only_clients_that_do_not_read_are_disconnected_in_time(monkeypatch):
    monkeypatch.setattr(server_module, "_STALLED_SECONDS", 2.0)
    with served(Large().served) as server, large_answer(server) as reader:
        assert not is_cut(reader)
        with large_answer(server) as unread:
            wait_until(lambda: len(server._runner.server.connections) == 1, 30)
            assert is_cut(unread)
        reader.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        reader.settimeout(30)
        rest = b""
        while not rest.endswith(b"ok\n"):
            part = reader.recv(65536)
            assert part
            rest += part


def test_the_rest_of_a_refused_body_is_no_beginning_of_a_head(slow, monkeypatch):
    monkeypatch.setattr(server_module, "_LINGERING_SECONDS", 30.0)
    with (
        served(slow.served, Limits(read_timeout=0.3)) as server,
        socket.create_connection((server.host, server.port), timeout=30) as connection,
    ):
        head = b"POST /nowhere HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n"
        connection.sendall(head + b"abc")
        assert connection.recv(65536).startswith(b"HTTP/1.1 404 ")
        for part in (b"def", b"ghi"):
            connection.sendall(part)
        # Longer than a head may take.
        time.sleep(0.8)
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert connection.recv(65536).startswith(b"HTTP/1.1 200 ")
        # Of the next head, the time counts.
        connection.sendall(b"GET /he")
        assert connection.recv(65536).startswith(b"HTTP/1.1 408 ")


def test_no_more_connections_than_allowed_are_served(slow):
    with served(slow.served, Limits(max_connections=2)) as server, slow:
        answers = []
        threads = [ask_in_thread(server, answers) for _ in range(2)]
        wait_until(lambda: server._batcher.num_waiting == 2, 10)
        told = fetch(server, "/healthz")
        assert (told.status, told.headers["Retry-After"]) == (503, "1")
        assert told.body == {"error": "At most 2 connections must be open. Ask later."}
        slow.may.set()
        for each in threads:
            each.join(10)
        assert [each.status for each in answers] == [200] * 2
        wait_until(lambda: fetch(server, "/healthz").status == 200)
        assert 'bert_requests_total{status="503",what="other"}' in fetch(server, "/metrics").body


@pytest.mark.parametrize(
    ("method", "path", "headers", "status"),
    [
        ("POST", PREDICT, {"Site": "cross-site", "Mode": "no-cors", "Dest": "empty"}, 403),
        ("POST", PREDICT, {"Site": "cross-site", "Mode": "navigate", "Dest": "document"}, 403),
        ("GET", "/metrics", {"Site": "cross-site"}, 403),
        ("GET", "/", {"Site": "cross-site", "Mode": "navigate", "Dest": "iframe"}, 403),
        # A link to the page.
        ("GET", "/", {"Site": "cross-site", "Mode": "navigate", "Dest": "document"}, 200),
        ("POST", PREDICT, {"Site": "same-origin", "Mode": "cors", "Dest": "empty"}, 200),
        ("POST", PREDICT, {"Site": "none"}, 200),
    ],
)
def test_pages_of_other_sites_are_not_answered(quick, method, path, headers, status):
    body = {"instances": ["a"]} if method == "POST" else None
    headers = {f"Sec-Fetch-{name}": value for name, value in headers.items()}
    told = fetch(quick, path, body, method, headers)
    assert told.status == status
    assert status == 200 or "Sec-Fetch-Site: cross-site" in told.body["error"]


def test_requests_are_logged_without_their_texts(slow, log):
    slow.may.set()
    with served(slow.served, logs_requests=True) as server:
        predict(server, {"instances": ["a secret"]})
        fetch(server, "/v1/models/" + "x" * 999 + "%0aforged")
    fields = [record.fields for record in log.records if hasattr(record, "fields")]
    assert [each["status"] for each in fields] == [200, 404]
    assert fields[0]["client"] == "127.0.0.1"
    assert (fields[0]["method"], fields[0]["path"]) == ("POST", PREDICT)
    assert fields[0]["request_bytes"] == len('{"instances": ["a secret"]}')
    assert 0 <= fields[0]["seconds"] < 60
    assert len(fields[1]["path"]) < 100
    assert "secret" not in log.text


def test_a_disconnected_client_harms_nobody(quick, log):
    for end in range(0, 200, 20):
        body = json.dumps({"instances": ["a"]}).encode()
        whole = HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body
        with socket.create_connection((quick.host, quick.port)) as connection:
            connection.sendall(whole[:end])
    assert predict(quick, {"instances": ["a"]}).status == 200
    assert log.messages == []


def test_a_failure_of_the_server_is_reported_without_a_trace(quick, log):
    told = predict(quick, {"instances": ["fail"]})
    assert (told.status, told.body) == (
        500,
        {"error": "The server could not answer. Its log says why."},
    )
    assert log.messages == ["A request could not be answered."]
    assert "a secret of the server" in log.text


def ask_in_thread(server, answers):
    thread = threading.Thread(target=lambda: answers.append(predict(server, {"instances": ["a"]})))
    thread.start()
    return thread


def test_too_much_at_once_is_refused_for_now(slow):
    limits = Limits(max_requests=3, max_inputs=5, max_waiting=5)
    with served(slow.served, limits) as server, slow:
        answers = []
        threads = [ask_in_thread(server, answers)]
        assert slow.begun.wait(5)
        told = predict(server, {"instances": ["a"] * 5})
        assert (told.status, told.headers["Retry-After"]) == (429, "1")
        assert "Too much waits already" in told.body["error"]
        threads += [ask_in_thread(server, answers) for _ in range(2)]
        # What watches the server is answered all the while.
        wait_until(lambda: "bert_waiting_inputs 3.0" in fetch(server, "/metrics").body, 5)
        told = predict(server, {"instances": ["a"]})
        assert told.status == 503
        assert told.body["error"].startswith("At most 3 requests must be under way")
        slow.may.set()
        for each in threads:
            each.join()
        assert [each.status for each in answers] == [200] * 3
        # Those that were answered or refused are under way no longer.
        assert predict(server, {"instances": ["a"]}).status == 200


def test_a_timeout_ends_the_request_and_its_work(slow):
    with served(slow.served, Limits(request_timeout=0.1)) as server:
        told = predict(server, {"instances": ["a"]})
        assert told.status == 504
        assert "must take at most 0.1 s" in told.body["error"]
        assert slow.ended.wait(5)
        slow.may.set()
        assert predict(server, {"instances": ["a"]}).status == 200


def test_a_disconnected_client_ends_the_work(slow):
    with served(slow.served) as server:
        connection = http.client.HTTPConnection(server.host, server.port)
        connection.request("POST", PREDICT, json.dumps({"instances": ["a"]}))
        assert slow.begun.wait(5)
        connection.close()
        assert slow.ended.wait(5)
        assert not slow.may.is_set()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_server_whose_threads_have_ended_reports_it(slow):
    before = set(threading.enumerate())
    with served(slow.served) as server:
        batches = [each for each in {*threading.enumerate()} - before if each.name == "batches"]
        assert fetch(server, "/healthz").status == 200
        connection = http.client.HTTPConnection(server.host, server.port)
        connection.request("POST", PREDICT, json.dumps({"instances": ["exit"]}))
        assert slow.begun.wait(5)
        wait_until(lambda: not all(each.is_alive() for each in batches))
        for path in ("/healthz", "/readyz"):
            told = fetch(server, path)
            assert told.status == 503
            assert told.body["error"].endswith("They have ended; restart the server.")
        assert fetch(server, "/metrics").status == 200
        connection.close()


def test_closing_answers_running_requests_and_accepts_no_more(slow, monkeypatch):
    # Time enough, however busy the machine is, for what comes meanwhile.
    monkeypatch.setattr(server_module, "_ENDING_SECONDS", 4.0)
    answers = []
    with served(slow.served) as server, slow:
        idle, kept = (http.client.HTTPConnection(server.host, server.port) for _ in range(2))
        for connection in (idle, kept):
            connection.request("GET", "/readyz")
            with connection.getresponse() as response:
                assert response.read() == b"ok\n"
        threads = [ask_in_thread(server, answers) for _ in range(3)]
        assert slow.begun.wait(5)
        closing = threading.Thread(target=server.close)
        closing.start()
        told = []
        wait_until(lambda: told.append(fetch(server, "/readyz")) or told[-1].status == 503)
        assert told[-1].body == {"error": "The server must be ready. It ends."}
        assert fetch(server, "/healthz").status == 200
        # A balancer that keeps its connections learns that this one ends.
        kept.request("GET", "/healthz")
        with kept.getresponse() as response:
            assert (response.status, response.getheader("Connection")) == (200, "close")
        # Those on their way are still taken.
        threads.append(ask_in_thread(server, answers))

        def is_deaf():
            try:
                # One that comes just as nobody listens any more may wait for an answer in vain.
                fetch(server, "/healthz", timeout=2)
            except OSError:
                return True
            return not closing.is_alive()

        wait_until(is_deaf)
        assert closing.is_alive()
        assert answers == []
        slow.may.set()
        closing.join(5)
        for each in threads:
            each.join()
    # It was closed.
    idle.sock.settimeout(5)
    assert idle.sock.recv(1) == b""
    idle.close()
    assert [each.status for each in answers] == [200] * 4


def test_an_address_that_is_taken_or_none_is_refused(slow):
    taken = bind("127.0.0.1", 0)
    taken.listen()
    with taken, pytest.raises(ValueError, match=r"`port` must be an address .* in use"):
        bind("127.0.0.1", taken.getsockname()[1])
    # Both may be bound to it as long as none listens.
    first = bind("127.0.0.1", 0)
    second = bind(*first.getsockname())
    first.listen()
    with first, second, pytest.raises(ValueError, match=r"`port` must be an address .* in use"):
        Server(slow.served, second, Limits(max_waiting=100), Batching(max_batch_size=4))
    with pytest.raises(ValueError, match="`host` must be an address of this machine"):
        bind("256.0.0.1.", 0)
    with pytest.raises(ValueError, match="must be an address of this machine that is free"):
        bind("192.0.2.1", 0)

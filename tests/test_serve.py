import http.client
import json
import re
import signal
import socket
import sys
import time

import pytest
from helpers.forks import Forked
from helpers.prediction_runs import model_dir, untrained
from helpers.served_models import WORDS, fetch
from helpers.waiting import wait_until

import predict
import serve
from bert.commands.checks import Checks

__all__ = ["model_dir", "untrained"]


@pytest.fixture
def named(monkeypatch):
    """A name of this machine, as /etc/hosts gives it one."""
    find = socket.getaddrinfo
    numbers = {"Mine.Example": "127.0.0.1"}
    monkeypatch.setattr(
        socket,
        "getaddrinfo",
        lambda host, *rest, **how: find(numbers.get(host, host), *rest, **how),
    )
    return "Mine.Example"


def test_what_it_answers_is_what_predict_does(model_dir, tmp_path, named, log):
    (tmp_path / "texts").write_text("red round\nblue\n")
    predict.run(
        predict.Settings(
            model_dir=str(model_dir),
            input_file=str(tmp_path / "texts"),
            output_file=str(tmp_path / "answers.jsonl"),
        )
    )
    lines = (tmp_path / "answers.jsonl").read_text().splitlines()
    given = {"model_dir": str(model_dir), "model_name": "a model? #1 of 50%"}
    settings = serve.Settings(**given, port=0, host=named, engine="tensorflow")
    with serve.open_server(settings) as server:
        asked = {"instances": ["red round", "blue"]}
        (path,) = re.findall(r"into, http://[^/]+(\S+) is for programs", log.text)
        told = fetch(server, path, asked, headers={"Host": f"{named}:1"})
        assert fetch(server, "/readyz", headers={"Host": "other.example"}).status == 403
    for answer, line in zip(told.body["predictions"], lines, strict=True):
        written = json.loads(line)
        assert answer["label"] == written["label"]
        assert answer["probabilities"] == pytest.approx(written["probabilities"], rel=1e-5)


def test_it_ends_at_a_signal_with_what_is_under_way_answered(model_dir, tmp_path):
    log = tmp_path / "log"
    arguments = ["serve.py", f"--model_dir={model_dir}", "--port=0"]
    process = Forked(arguments, tmp_path / "out", log)
    try:
        address = re.compile(r"http://127\.0\.0\.1:(\d+)/")
        wait_until(lambda: address.search(log.read_text()) or process.poll() is not None, 120)
        match = address.search(log.read_text())
        assert match, log.read_text()
        connection = http.client.HTTPConnection("127.0.0.1", int(match[1]), timeout=30)
        body = json.dumps({"instances": [" ".join(WORDS[5:])] * 100}).encode()
        connection.putrequest("POST", "/v1/models/model:predict")
        connection.putheader("Content-Length", str(len(body)))
        connection.endheaders(body[:20])
        # The request has begun, and is not whole yet.
        time.sleep(0.1)
        process.send_signal(signal.SIGTERM)
        wait_until(lambda: "Answering the requests in progress" in log.read_text())
        connection.send(body[20:])
        with connection.getresponse() as response:
            assert response.status == 200
            assert len(json.loads(response.read())["predictions"]) == 100
        connection.close()
        assert process.wait(30) == 0, log.read_text()
    finally:
        process.kill()
    assert "Traceback" not in log.read_text()


def test_what_is_missing_is_told_with_what_to_type(model_dir, monkeypatch):
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(ValueError, match=r"pip install aiohttp prometheus_client.*'\.\[serve\]'"):
        serve.run(serve.Settings(model_dir=str(model_dir), port=0))


@pytest.mark.parametrize("script", [serve, predict])
def test_nothing_is_told_of_an_exported_model(script, tmp_path):
    (tmp_path / "saved_model.pb").touch()
    settings = {"model_dir": str(tmp_path), "precision": "mixed_bfloat16"}
    if script is serve:
        settings["port"] = 0
    with pytest.raises(ValueError, match="`precision` must not be given for an exported model"):
        script.run(script.Settings(**settings))
    if script is serve:
        settings["precision"] = "float32"
        with pytest.raises(ValueError, match="`pooling` must not be given for an exported model"):
            serve.run(serve.Settings(**settings, pooling="mean"))


@pytest.mark.parametrize("name", ["a/b", "a:b", "/", "a:"])
def test_a_name_without_an_address_is_refused(name):
    settings = serve.Settings(model_dir="nowhere", port=0, model_name=name)
    with pytest.raises(ValueError, match=f"`model_name` must have neither / nor :.*'{name}'"):
        serve.run(settings)


def test_what_it_needs_is_checked(model_dir, capsys):
    checks = Checks()
    serve.check(serve.Settings(model_dir=str(model_dir), port=0), checks)
    assert len(checks.faults) == 0
    assert "model: classification" in capsys.readouterr().out
    checks = Checks()
    settings = serve.Settings(
        model_dir="nowhere",
        port=0,
        host="192.0.2.1",
        max_inputs=20,
        max_waiting=9,
        model_name="a/b",
    )
    serve.check(settings, checks)
    assert len(checks.faults) == 4
    told = capsys.readouterr().out
    for each in (
        "`--model_name` must",
        "`--max_inputs` must be at most",
        "`--host` and `--port`",
        "`--model_dir` must",
    ):
        assert each in told

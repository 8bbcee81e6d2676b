import hashlib
import http.server
import json
import os
import subprocess
import sys
import threading
import urllib.parse
from pathlib import Path

import pytest
from helpers.forks import fork_python

from bert.files.stored_models import WEIGHTS_ENDINGS
from bert.weights import checkpoint, hub

ROOT = Path(__file__).parents[1]
NAME = "google/bert_tiny"
COMMIT = "0123456789abcdef0123456789abcdef01234567"
FILES = {
    "README.md": b"A model.",
    "config.json": b"{}",
    "vocab.txt": b"[PAD]\n",
    "tokenizer_config.json": b'{"do_lower_case": true}',
    "added_tokens.json": b'{"[E1]": 1}',
    "special_tokens_map.json": b"{}",
    "task.json": b"{}",
    "model.safetensors": bytes(range(256)) * 9,
    "model-00001-of-00002.safetensors": b"part",
    "modules.json": b"[]",
    "1_Pooling/config.json": b"{}",
    "sentence_bert_config.json": b"{}",
    "config_sentence_transformers.json": b"{}",
    "pytorch_model.bin": b"a pickle",
    "tf_model.h5": b"",
    "onnx/model.onnx": b"",
}


class Hub(http.server.BaseHTTPRequestHandler):
    """Answers as the hub does, from `server.models`: files by name@revision."""

    def do_GET(self):
        path = urllib.parse.unquote(urllib.parse.urlsplit(self.path).path)
        self.server.requests.append(f"{self.command} {path}")
        parts = path.strip("/").split("/")
        if parts[:2] == ["api", "models"]:
            self._answer_api("/".join(parts[2:4]), parts[4], "/".join(parts[5:]))
        else:
            self._send_file("/".join(parts[:2]), parts[3], "/".join(parts[4:]))

    do_HEAD = do_GET  # noqa: N815

    def _answer_api(self, name, kind, revision):
        if kind == "revision" and name == NAME and revision not in self.server.revisions:
            self._send(404, b"{}", {"X-Error-Code": "RevisionNotFound"})
        elif name != NAME:
            self._send(404, b"{}", {"X-Error-Code": "RepoNotFound"})
        elif kind == "revision":
            siblings = [{"rfilename": path} for path in self.server.files]
            self._send_json({"id": name, "sha": COMMIT, "siblings": siblings})
        else:
            self._send_json(
                [
                    {"type": "file", "path": path, "size": len(content), "oid": etag(content)}
                    for path, content in self.server.files.items()
                ]
            )

    def _send_file(self, name, revision, path):
        if (name, revision) != (NAME, COMMIT) or path not in self.server.files:
            self._send(404, b"", {"X-Error-Code": "EntryNotFound"})
            return
        content = self.server.files[path]
        self._send(200, content, {"ETag": f'"{etag(content)}"', "X-Repo-Commit": COMMIT})

    def _send_json(self, values):
        self._send(200, json.dumps(values).encode(), {"Content-Type": "application/json"})

    def _send(self, status, content, headers):
        self.send_response(status)
        for key, value in {**headers, "Content-Length": str(len(content))}.items():
            self.send_header(key, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content)

    def log_message(self, *_):
        pass


def etag(content):
    return hashlib.sha1(content, usedforsecurity=False).hexdigest()


@pytest.fixture
def server():
    pytest.importorskip("huggingface_hub")
    server = http.server.ThreadingHTTPServer(("localhost", 0), Hub)
    server.files, server.revisions, server.requests = FILES, {"main", "refs/pr/1"}, []
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


FETCH = "import sys; from bert.weights import hub; print(hub.fetch(sys.argv[1]))"


@pytest.fixture
def ask(tmp_path, server):
    """A function that fetches by name in a fresh process, and gives the folder or the error."""

    def ask(
        name=NAME,
        code=FETCH,
        **env,
    ):
        result = fork_python(
            "-c",
            code,
            name,
            check=False,
            **{
                "HF_HOME": str(tmp_path / "cache"),
                "HF_ENDPOINT": f"http://localhost:{server.server_port}",
                "NO_PROXY": "localhost",
                "HF_HUB_OFFLINE": "0",
                **env,
            },
        )
        last = (result.stdout if result.returncode == 0 else result.stderr).splitlines()[-1]
        return Path(last) if result.returncode == 0 else last

    return ask


def test_only_what_a_model_needs_is_fetched_and_its_bytes_are_the_hubs(ask, server):
    folder = ask()
    names = {"config.json", "vocab.txt", "tokenizer_config.json"}
    names |= {"added_tokens.json", "special_tokens_map.json", "task.json"}
    names |= {"model.safetensors", "model-00001-of-00002.safetensors"}
    names |= {"modules.json", "1_Pooling/config.json", "sentence_bert_config.json"}
    names |= {"config_sentence_transformers.json"}
    found = [path for path in folder.rglob("*") if path.is_file()]
    assert {str(path.relative_to(folder)) for path in found} == names
    for name in names:
        assert (folder / name).read_bytes() == FILES[name]
    assert not any("pytorch_model.bin" in request for request in server.requests)


def test_a_cached_model_is_not_fetched_again_and_loads_offline(ask, server):
    folder = ask()
    server.requests.clear()
    assert ask() == folder
    assert not [request for request in server.requests if request.startswith("GET /google")]
    server.requests.clear()
    assert ask(HF_HUB_OFFLINE="1") == folder
    assert server.requests == []
    assert ask(HF_ENDPOINT="http://localhost:9") == folder


@pytest.mark.parametrize(
    ("script", "given"),
    [
        ("predict.py", ["--model_dir"]),
        ("create_word_vectors.py", ["--output_file=out", "--init_checkpoint"]),
    ],
)
def test_check_asks_the_hub_for_nothing(ask, server, script, given):
    code = (
        f"import runpy, sys; sys.argv[:] = [{script!r}, '--check', *{given}, sys.argv[1]]; "
        f"runpy.run_path({script!r}, run_name='__main__')"
    )
    for fetch in (lambda: None, ask):
        fetch()
        server.requests.clear()
        assert "would end the run" in ask(code=code)
        assert server.requests == []


def test_a_revision_may_be_named(ask, server):
    ask(f"{NAME}@refs/pr/1")
    assert any(request.endswith("/revision/refs/pr/1") for request in server.requests)
    assert "shows no such model or revision" in ask(f"{NAME}@v9")


@pytest.mark.parametrize("env", [{"HF_HUB_OFFLINE": "1"}, {"HF_ENDPOINT": "http://localhost:9"}])
def test_without_a_network_the_error_says_what_to_download_by_hand(ask, env):
    error = ask(**env)
    assert error.startswith("bert.options.OptionError: `init_checkpoint` must name a checkpoint")
    assert "'google/bert_tiny' is no local path" in error
    assert "It could not be fetched" in error
    endpoint = env.get("HF_ENDPOINT", "http://localhost:")
    assert "download config.json, vocab.txt, tokenizer_config.json and model.safetensors" in error
    assert endpoint in error
    assert "/google/bert_tiny/tree/main into one folder" in error


def test_an_unknown_model_is_an_error(ask):
    error = ask("google/bert_huge")
    assert "shows no such model or revision" in error
    assert "'google/bert_huge' is no local path" in error


def test_a_name_that_had_no_owner_once_is_google_berts(ask, server):
    error = ask("bert-base-uncased")
    assert "'google-bert/bert-base-uncased'" in error
    assert any("/google-bert/bert-base-uncased/" in request for request in server.requests)


def test_a_model_with_a_pickle_alone_is_refused(ask, server):
    server.files = {name: FILES[name] for name in ("config.json", "pytorch_model.bin")}
    error = ask()
    assert "must name a model with weights as safetensors" in error
    assert "google/bert_tiny@refs/pr/1" in error


def test_without_the_package_the_error_says_so():
    code = (
        "import sys; sys.modules['huggingface_hub'] = None; "
        "from bert.weights import hub; hub.fetch('a/b', 'x')"
    )
    result = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={key: value for key, value in os.environ.items() if key != "HF_ENDPOINT"},
        capture_output=True,
        text=True,
        check=False,
    )
    error = result.stderr.splitlines()[-1]
    assert "`x` must name a checkpoint" in error
    assert "huggingface_hub, which would fetch it, is not installed" in error
    assert "https://huggingface.co/a/b/tree/main" in error


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("google/bert_uncased_L-2_H-128_A-2", True),
        ("google/bert-base@refs/pr/1", True),
        # Of google-bert's.
        ("bert-base-uncased", True),
        ("bert-large-cased-whole-word-masking@main", True),
        ("bert-huge-uncased", False),
        ("a/b/c", False),
        ("/models/bert", False),
        ("./bert", False),
        ("../bert", False),
        ("gs://bucket/bert", False),
        ("my_bert/bert_model.ckpt", False),
        ("my_bert/model.ckpt-20", False),
        ("my_bert/model.safetensors", False),
        ("my_bert/epoch3.pt", False),
        ("my_bert/epoch3.pt@main", False),
        ("my_bert/epochs@v3.pt", True),
        ("my_bert/pytorch_model.bin.index.json", False),
        *((f"my_bert/model{ending}", False) for ending in WEIGHTS_ENDINGS),
        ("", False),
    ],
)
def test_names_are_distinguished_from_paths(path, expected):
    assert hub.is_name(path) == expected


@pytest.mark.parametrize("made", ["google/bert_tiny/", "google/bert_tiny.index"])
def test_a_local_path_wins(tmp_path, monkeypatch, made):
    monkeypatch.chdir(tmp_path)
    assert hub.is_name(NAME)
    if made.endswith("/"):
        (tmp_path / made).mkdir(parents=True)
    else:
        (tmp_path / made).parent.mkdir()
        (tmp_path / made).touch()
    assert not hub.is_name(NAME)


def test_files_missing_in_a_local_folder_are_not_fetched(tmp_path, monkeypatch):
    (tmp_path / "runs/my_classifier").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    # It would end in the attempt to fetch it.
    monkeypatch.setattr(hub, "fetch", None)
    for path in ("runs/my_clasifier", "./my_clasifier", "runs/my/clasifier", "mine/of/1"):
        with pytest.raises(ValueError, match=rf"must name a checkpoint.*Received '{path}'"):
            checkpoint.Stored.open(path)
    with pytest.raises(ValueError, match=r"\['my_classifier'\].*give 'runs/my_clasifier@main'"):
        checkpoint.Stored.open("runs/my_clasifier")
    with pytest.raises(ValueError, match=r"\['my_classifier'\]\.$"):
        checkpoint.Stored.open("runs/bert.gguf")
    assert hub.is_name("runs/my_clasifier@main")
    assert hub.is_name("google/bert_tiny")


@pytest.mark.parametrize("made", ["bert-base-uncased", "bert-base-uncased.index"])
def test_a_local_path_wins_over_a_name_without_owner(tmp_path, monkeypatch, made):
    monkeypatch.chdir(tmp_path)
    assert hub.is_name("bert-base-uncased")
    (tmp_path / made).touch()
    assert not hub.is_name("bert-base-uncased")


def test_a_name_serves_wherever_a_checkpoint_is_taken(ask):
    code = (
        "import os, sys; from bert.weights import checkpoint; "
        "path = checkpoint.Stored.open(sys.argv[1]).prefix; "
        "assert os.path.basename(path) == 'model.safetensors'; print(os.path.dirname(path))"
    )
    folder = ask(code=code)
    assert (folder / "vocab.txt").read_bytes() == FILES["vocab.txt"]
    assert "`init_checkpoint` must name a checkpoint" in ask("google/bert_huge", code=code)

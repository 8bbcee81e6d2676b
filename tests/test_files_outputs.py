import os

import pytest

from bert.files.durable import write_text
from bert.files.outputs import check_open_files, check_outputs, make_folder, name_shards


@pytest.mark.parametrize(
    ("outputs", "message"),
    [
        (["out", "out"], r"must name each file once\. Received '.*out' again"),
        (["out", "./out"], r"must name each file once\. Received '.*out' again"),
        (["out", None], r"must name files\. Received an empty name among"),
        (["in"], r"must not name an input file\. Received '.*in'"),
        (["link"], r"must not name an input file\. Received '.*link'"),
        (["nowhere/out"], r"must name files that can be written\. .*No such file or directory"),
        (["in/out"], r"must name files that can be written\. .*Not a directory"),
        (["folder"], r"must name files that can be written\. .*folder' is not a regular file"),
        (["out", "/dev/null"], r"must name files that can be written\. .* is not a regular file"),
    ],
)
def test_impossible_outputs_are_refused_and_nothing_remains(tmp_path, outputs, message):
    (tmp_path / "in").touch()
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("in")
    paths = [os.path.join(tmp_path, name) if name else "" for name in outputs]
    with pytest.raises(ValueError, match="^`out` " + message):
        check_outputs(paths, [str(tmp_path / "in")], "out", lambda _: True)
    assert sorted(os.listdir(tmp_path)) == ["folder", "in", "link"]


def test_an_input_elsewhere_is_not_written_either():
    path = "ram://test_files_outputs/in"
    with pytest.raises(ValueError, match="`out` must not name an input file"):
        check_outputs([path], [path], "out", lambda _: True)


def test_checking_outputs_changes_nothing(tmp_path):
    (tmp_path / "a").write_bytes(b"before")
    check_outputs([str(tmp_path / "a"), str(tmp_path / "b")], [], "out", lambda _: True)
    assert os.listdir(tmp_path) == ["a"]
    assert (tmp_path / "a").read_bytes() == b"before"


@pytest.mark.parametrize(
    ("name", "weights"),
    [
        ("vocab.txt", "bert_model.ckpt.index"),
        ("bert_config.json", "model.ckpt-7.index"),
        ("task.json", "bert_model.ckpt.data-00000-of-00001"),
        ("tokenizer.json", "model.safetensors"),
        ("config.json", "model-00001-of-00002.safetensors"),
        ("checkpoint", "model.ckpt-7.index"),
        ("bert_model.ckpt.meta", "bert_model.ckpt.index"),
        ("model.safetensors", "model.safetensors"),
        ("assets/vocab.txt", "saved_model.pb"),
    ],
)
def test_a_file_of_a_model_is_never_replaced(tmp_path, name, weights):
    for each in (name, weights):
        (tmp_path / each).parent.mkdir(exist_ok=True)
        (tmp_path / each).write_text("x")
    os.symlink(tmp_path / name, tmp_path / "link")
    for path in (tmp_path / name, tmp_path / "link"):
        with pytest.raises(ValueError, match=r"`out` must not name a file of a model.*belongs to"):
            check_outputs([str(path)], [], "out", lambda _: True)
    (tmp_path / "answers.jsonl").write_text("x")
    check_outputs([str(tmp_path / "answers.jsonl")], [], "out", lambda _: True)


def test_an_existing_file_is_replaced_only_where_it_may_be(tmp_path):
    full, empty, new = (str(tmp_path / name) for name in ("vocab.txt", "empty", "new"))
    write_text(full, "x")
    write_text(empty, "")
    check_outputs([new], [], "out", lambda _: False)
    for path in (full, empty):
        check_outputs([path], [], "out", lambda other, path=path: other == path)
        with pytest.raises(ValueError, match=r"`out` must name a new file\. Received .*, which is"):
            check_outputs([new, path], [], "out", lambda _: False)


def test_the_number_of_outputs_is_limited_by_open_files(monkeypatch):
    resource = pytest.importorskip("resource")
    limits = [(256, 1024)]
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda _, pair: limits.append(pair))
    monkeypatch.setattr(os, "listdir", lambda _: ["0", "1", "2"])
    check_open_files(name_shards("out", 300))
    assert limits[-1] == (667, 1024)
    check_open_files(name_shards(",".join(map(str, range(500))), None))
    assert limits[-1] == (1024, 1024)
    check_open_files(name_shards("gs://bucket/out", 10_000))
    with pytest.raises(ValueError, match=r"There must be at most 504 output files.* Received 505"):
        check_open_files(name_shards("out", 505))


def test_a_dangling_link_is_named_as_a_link(tmp_path):
    link = tmp_path / "out"
    link.symlink_to(tmp_path / "purged")
    with pytest.raises(ValueError, match=r"a link to '.*/purged', which is not there"):
        make_folder(str(link))
    (tmp_path / "purged").mkdir()
    make_folder(str(link))
    assert link.is_symlink()

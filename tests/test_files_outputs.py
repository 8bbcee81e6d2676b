import errno
import os

import pytest
from helpers.power_loss import PowerLoss

from bert.files.durable import write_text
from bert.files.outputs import (
    check_folder,
    check_open_files,
    check_outputs,
    check_saved_model,
    make_folder,
    name_shards,
    try_outputs,
)


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


def test_shards_are_numbered_from_zero_and_have_one_name():
    assert name_shards("out", 2) == ["out-00000-of-00002", "out-00001-of-00002"]
    assert name_shards("a,b", None) == ["a", "b"]
    with pytest.raises(ValueError, match=r"`output_file` must be one name .* Received 'a,b'"):
        name_shards("a,b", 2)


def test_a_folder_may_be_written_only_by_its_permissions(tmp_path, monkeypatch):
    # Whoever may do everything may write there, too.
    monkeypatch.setattr(os, "access", lambda _, mode: not mode & os.W_OK)
    with pytest.raises(ValueError, match=r"`output_dir` must be a folder.*Permission denied"):
        check_folder(str(tmp_path / "new"))
    with pytest.raises(ValueError, match=r"`out` must name files that can be .*Permission denied"):
        check_outputs([str(tmp_path / "new")], [], "out", lambda _: True)


def test_a_file_system_that_refuses_a_write_is_named_before_the_work(tmp_path, monkeypatch):
    def refuse(path, *_):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(ValueError, match=r"`output_dir` must name .*Read-only"):
        make_folder(str(tmp_path))
    with pytest.raises(ValueError, match=r"`output` must name .*Read-only"):
        make_folder(str(tmp_path), "output")
    with pytest.raises(ValueError, match=r"`out` must name .*Read-only"):
        try_outputs(["-", str(tmp_path / "out")], "out")


@pytest.mark.parametrize("folder", ["new", "new/", "a/new"])
def test_a_new_folder_outlives_a_loss_of_power(tmp_path, monkeypatch, folder):
    (tmp_path / folder).parent.mkdir(exist_ok=True)
    with monkeypatch.context() as patch, PowerLoss(tmp_path, patch) as power:
        make_folder(f"{tmp_path}/{folder}")
    assert [f"{folder.rstrip('/')}/" in state for state in power.last] == [True]


@pytest.mark.parametrize("file", ["saved_model.pb", "model.onnx"])
def test_an_exported_model_takes_a_place_of_its_own_or_one_of_its_kind(tmp_path, file):
    for name in ("empty", "again", "other"):
        (tmp_path / name).mkdir()
    (tmp_path / "again" / file).touch()
    (tmp_path / "other" / "thesis.txt").touch()
    for name in ("new", "empty", "again"):
        assert check_saved_model(str(tmp_path / name), file) == str(tmp_path / name)
    for name in ("other", "other/thesis.txt"):
        with pytest.raises(ValueError, match="must be written to a new folder"):
            check_saved_model(str(tmp_path / name), file)


def test_a_dangling_link_is_named_as_a_link(tmp_path):
    link = tmp_path / "out"
    link.symlink_to(tmp_path / "purged")
    with pytest.raises(ValueError, match=r"a link to '.*/purged', which is not there"):
        make_folder(str(link))
    (tmp_path / "purged").mkdir()
    make_folder(str(link))
    assert link.is_symlink()

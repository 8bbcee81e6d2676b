import gzip
import os
import resource

import pytest
import tensorflow as tf
from conftest import run_python
from power_loss import PowerLoss

from bert.files.durable import remove, replace_files, write_text
from bert.files.outputs import check_outputs
from bert.files.paths import (
    describe_folder,
    file_size,
    find_file,
    index_path,
    is_file,
    list_folder,
    match_files,
    read_lines,
)
from bert.files.records import write_records

RAM = "ram://test_files_paths"


def write_half(paths, error):
    with replace_files(paths) as files:
        files[0].write(b"half")
        raise error


@pytest.fixture
def folder(tmp_path):
    for name in ("b.txt", "a10.txt", "a2.txt", "[x].txt"):
        (tmp_path / name).write_text(name)
    (tmp_path / "sub.txt").mkdir()
    return tmp_path


@pytest.mark.parametrize(
    ("patterns", "names"),
    [
        ("b.txt,a2.txt", ["b.txt", "a2.txt"]),
        ("a*.txt", ["a10.txt", "a2.txt"]),
        ("b.txt,*.txt", ["b.txt", "[x].txt", "a10.txt", "a2.txt", "b.txt"]),
        ("[x].txt", ["[x].txt"]),
        ("a?.txt", ["a2.txt"]),
    ],
)
def test_patterns_name_files_in_their_order(folder, patterns, names):
    patterns = ",".join(str(folder / pattern) for pattern in patterns.split(","))
    expected = [str(folder / name) for name in names]
    assert match_files(patterns, "input_file") == expected


def test_a_pattern_takes_no_index_of_a_file_for_a_file(tmp_path):
    for name in ("a", ".a.index", ".b.index"):
        (tmp_path / name).touch()
    assert index_path(str(tmp_path / "a")) == str(tmp_path / ".a.index")
    matched = match_files(str(tmp_path / "*"), "input_file")
    assert matched == [str(tmp_path / name) for name in (".b.index", "a")]
    named = str(tmp_path / ".a.index")
    assert match_files(named, "input_file") == [named]


@pytest.mark.parametrize("missing", ["none.txt", "none*.txt", "sub.txt", ""])
def test_a_pattern_without_a_file_is_named_with_its_flag(folder, missing):
    pattern = str(folder / missing) if missing else ""
    with pytest.raises(ValueError, match=r"`--corpus` must name existing files\. ") as error:
        match_files(f"{folder}/b.txt,{pattern}", "corpus")
    assert repr(pattern) in str(error.value)


def test_gzip_is_known_by_its_content(tmp_path):
    content = b"one\r\n\ntwo \xff\nlast"
    plain, packed = tmp_path / "plain.gz", tmp_path / "packed.txt"
    plain.write_bytes(content)
    packed.write_bytes(gzip.compress(content[:7]) + gzip.compress(content[7:]))
    for path in (plain, packed):
        lines = list(read_lines(str(path)))
        assert [line for line, _ in lines] == [b"one\r\n", b"\n", b"two \xff\n", b"last"]
        assert lines[-1][1] == file_size(str(path))


@pytest.mark.parametrize("damage", [lambda b: b[:-9], lambda b: b[:20] + b"\0\0\0" + b[23:]])
def test_damaged_gzip_is_named(tmp_path, damage):
    path = tmp_path / "text.gz"
    path.write_bytes(damage(gzip.compress(os.urandom(5000))))
    with pytest.raises(ValueError, match=r"text\.gz' must be a whole gzip file"):
        list(read_lines(str(path)))


def test_an_empty_file_has_no_lines(tmp_path):
    (tmp_path / "empty").touch()
    assert list(read_lines(str(tmp_path / "empty"))) == []


def test_files_appear_together_when_all_are_whole(tmp_path):
    paths = [str(tmp_path / "a"), str(tmp_path / "b")]
    (tmp_path / "a").write_bytes(b"before")
    with replace_files(paths) as [a, b]:
        a.write(b"1")
        b.write(b"2")
        assert (tmp_path / "a").read_bytes() == b"before"
        assert not (tmp_path / "b").exists()
    assert [(tmp_path / name).read_bytes() for name in "ab"] == [b"1", b"2"]
    assert sorted(os.listdir(tmp_path)) == ["a", "b"]


def test_a_loss_of_power_leaves_whole_files(tmp_path, monkeypatch):
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "a").write_bytes(b"before")
    with monkeypatch.context() as patch, PowerLoss(folder, patch) as power:
        with replace_files([str(folder / "a"), str(folder / "b")]) as [a, b]:
            a.write(b"1" * 100)
            b.write(b"2" * 100)
        power.states.clear()
        power.strike()
        # When it has returned, nothing can be lost any more.
        assert list(power.states.values()) == [{"a": b"1" * 100, "b": b"2" * 100}]
    for state in power.states.values():
        assert state["a"] in (b"before", b"1" * 100)
        assert state.get("b", b"2" * 100) == b"2" * 100


def write_two(folder):
    with replace_files([str(folder / "a"), str(folder / "b")]) as [a, b]:
        a.write(b"1")
        b.write(b"2" * 20)


def test_no_file_appears_before_all_are_closed(tmp_path):
    (tmp_path / "a").write_bytes(b"before")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    # What is written waits in memory; that it is too much is seen when the file is closed.
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            write_two(tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"a": b"before"}


def test_what_is_removed_is_the_link(tmp_path):
    (tmp_path / "disk").mkdir()
    (tmp_path / "disk" / "file").write_text("kept")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "inner").symlink_to(tmp_path / "disk")
    (tmp_path / "link").symlink_to(tmp_path / "disk")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    for name in ("folder", "link", "dangling"):
        remove(str(tmp_path / name))
    assert os.listdir(tmp_path) == ["disk"]
    assert os.listdir(tmp_path / "disk") == ["file"]


@pytest.mark.skipif(os.getuid() == 0, reason="Whoever may do everything may read it, too.")
def test_a_folder_that_cannot_be_read_is_written(tmp_path):
    tmp_path.chmod(0o300)
    with replace_files([str(tmp_path / "file")]) as [file]:
        file.write(b"text")
    assert (tmp_path / "file").read_bytes() == b"text"


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_an_exception_leaves_files_as_they_were(tmp_path, error):
    (tmp_path / "a").write_bytes(b"before")
    with pytest.raises(error):
        write_half([str(tmp_path / "a"), str(tmp_path / "b")], error)
    assert os.listdir(tmp_path) == ["a"]
    assert (tmp_path / "a").read_bytes() == b"before"


def test_an_output_that_cannot_be_opened_takes_the_others_with_it(tmp_path):
    with (
        pytest.raises(FileNotFoundError),
        replace_files([str(tmp_path / "a"), str(tmp_path / "nowhere" / "b")]),
    ):
        pass
    assert os.listdir(tmp_path) == []


def test_a_link_stays_a_link(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "file").write_bytes(b"before")
    (tmp_path / "link").symlink_to(tmp_path / "real" / "file")
    with replace_files([str(tmp_path / "link")]) as [file]:
        file.write(b"after")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real" / "file").read_bytes() == b"after"


@pytest.mark.parametrize(
    ("outputs", "message"),
    [
        (["out", "out"], r"must name each file once\. Received '.*out' again"),
        (["out", "./out"], r"must name each file once\. Received '.*out' again"),
        (["out", None], r"must name files\. Received an empty name among"),
        (["in"], r"must not name an input file\. Received '.*in'"),
        (["nowhere/out"], r"must name files that can be written\. .*No such file or directory"),
        (["in/out"], r"must name files that can be written\. .*Not a directory"),
        (["folder"], r"must name files that can be written\. .*folder' is not a regular file"),
        (["out", "/dev/null"], r"must name files that can be written\. .* is not a regular file"),
    ],
)
def test_outputs_that_cannot_be_are_refused_and_nothing_remains(tmp_path, outputs, message):
    (tmp_path / "in").touch()
    (tmp_path / "folder").mkdir()
    paths = [os.path.join(tmp_path, name) if name else "" for name in outputs]
    with pytest.raises(ValueError, match="^`--out` " + message):
        check_outputs(paths, [str(tmp_path / "in")], "out")
    assert sorted(os.listdir(tmp_path)) == ["folder", "in"]


def test_checking_outputs_changes_nothing(tmp_path):
    (tmp_path / "a").write_bytes(b"before")
    check_outputs([str(tmp_path / "a"), str(tmp_path / "b")], [], "out")
    assert os.listdir(tmp_path) == ["a"]
    assert (tmp_path / "a").read_bytes() == b"before"


def test_paths_may_be_what_tensorflow_reads():
    paths = [f"{RAM}/a.tfrecord", f"{RAM}/b.tfrecord"]
    tf.io.gfile.makedirs(RAM)
    check_outputs(paths, [], "out")
    assert tf.io.gfile.listdir(RAM) == []
    with write_records(paths) as writers:
        for index, writer in enumerate(writers):
            writer.write(b"record\n" * index)
    with pytest.raises(KeyError):
        write_half(paths, KeyError)
    assert match_files(f"{RAM}/*", "in") == paths
    assert list(tf.data.TFRecordDataset(paths).as_numpy_iterator()) == [b"", b"record\n"]
    size = file_size(paths[1])
    assert list(read_lines(paths[1]))[-1][1] == size
    with pytest.raises(ValueError, match="`--in` must name existing files"):
        match_files(f"{RAM}/none", "in")
    with pytest.raises(ValueError, match="`--out` must name files that can be written"):
        check_outputs(["gs-nowhere://x/y"], [], "out")


def test_local_files_do_not_need_tensorflow(tmp_path):
    code = (
        "import sys\n"
        "from bert.files import paths, records\n"
        "with records.write_records([sys.argv[1]]) as [writer]:\n"
        "    writer.write(records.encode_example({'a': [1]}))\n"
        "list(paths.read_lines(paths.match_files(sys.argv[1], 'f')[0]))\n"
        "assert 'tensorflow' not in sys.modules"
    )
    run_python("-c", code, str(tmp_path / "r.tfrecord"))


@pytest.mark.parametrize("remote", [False, True])
def test_files_are_found_and_folders_described(tmp_path, remote):
    folder = "ram://test_tables/folder" if remote else str(tmp_path / "folder")
    missing = " not a folder" if not remote else " empty"
    assert describe_folder(folder) == f"{folder!r}, which is{missing}"
    tf.io.gfile.makedirs(folder)
    assert describe_folder(folder) == f"{folder!r}, which is empty"
    names = [f"{i:02}.txt" for i in range(14)]
    for name in names:
        with tf.io.gfile.GFile(f"{folder}/{name}", "w") as file:
            file.write("a")
    assert list_folder(folder) == names
    assert describe_folder(folder) == f"{folder!r}, which holds {names[:12]} and 2 more"
    assert find_file(folder, ["x", "03.txt", "01.txt"]) == f"{folder}/03.txt"
    assert find_file(folder, ["x"]) is None


@pytest.mark.parametrize("name", ["plain", "a,b", "a[1]", "a*"])
def test_remote_files_are_found_whatever_their_names(name):
    folder = f"{RAM}/{name}"
    tf.io.gfile.makedirs(folder)
    with tf.io.gfile.GFile(f"{folder}/x", "w") as file:
        file.write("a")
    assert is_file(f"{folder}/x")
    assert not is_file(folder)
    assert not is_file(f"{folder}/y")


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
def test_a_file_of_a_model_never_goes(tmp_path, name, weights):
    for each in (name, weights):
        (tmp_path / each).parent.mkdir(exist_ok=True)
        (tmp_path / each).write_text("x")
    os.symlink(tmp_path / name, tmp_path / "link")
    for path in (tmp_path / name, tmp_path / "link"):
        with pytest.raises(
            ValueError, match=r"`--out` must not name a file of a model.*belongs to"
        ):
            check_outputs([str(path)], [], "out", lambda _: True)
    (tmp_path / "answers.jsonl").write_text("x")
    check_outputs([str(tmp_path / "answers.jsonl")], [], "out", lambda _: True)


def test_a_file_with_something_in_it_goes_only_where_it_may(tmp_path):
    full, empty, new = (str(tmp_path / name) for name in ("vocab.txt", "empty", "new"))
    write_text(full, "x")
    write_text(empty, "")
    check_outputs([empty, new], [], "out", lambda _: False)
    check_outputs([full], [], "out", lambda path: path == full)
    with pytest.raises(ValueError, match=r"`--out` must name a new file\. Received .*vocab\.txt"):
        check_outputs([new, full], [], "out", lambda _: False)


def test_what_a_killed_run_has_left_goes_and_nothing_else(tmp_path):
    out = str(tmp_path / "out")
    code = (
        "import os, signal, sys\n"
        "from bert.files.durable import replace_files\n"
        "with replace_files(sys.argv[1:]) as files:\n"
        "    files[0].write(b'half')\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    run_python("-c", code, out, str(tmp_path / "other"), check=False)
    left = sorted(os.listdir(tmp_path))
    assert [name.split(".")[0] for name in left] == ["other", "out"]
    mine = {f"out.{'0' * 31}g.tmp", f"out.{'0' * 32}.tmp.bak", "out.tmp", f"outer.{'0' * 32}.tmp"}
    for name in mine:
        (tmp_path / name).write_text("mine")
    with replace_files([out]) as [file]:
        # That of a run that is at work.
        at_work = set(os.listdir(tmp_path)) - mine - {left[0]}
        check_outputs([out], [], "out")
        assert at_work <= set(os.listdir(tmp_path))
        file.write(b"whole")
    assert set(os.listdir(tmp_path)) == mine | {left[0], "out"}
    assert (tmp_path / "out").read_bytes() == b"whole"

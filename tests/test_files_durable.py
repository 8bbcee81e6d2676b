import errno
import fcntl
import os
import resource
import signal
import stat
import threading
from contextlib import nullcontext
from pathlib import Path

import pytest
import tensorflow as tf
from conftest import run_python
from helpers.power_loss import PowerLoss
from helpers.served_models import save_model
from helpers.waiting import wait_until

import create_vocab
import predict
import split_sentences
from bert.files import durable
from bert.files.durable import (
    NoLocksError,
    open_locked,
    remove,
    remove_leftovers,
    replace_files,
    replace_folder,
    write_text,
)
from bert.files.outputs import try_outputs
from bert.files.paths import file_size, match_files, read_lines
from bert.files.process import Stop, watched_signals
from bert.files.records import write_records
from bert.options import OptionError

RAM = "ram://test_files_durable"


def write_half(paths, error):
    with replace_files(paths) as files:
        files[0].write(b"half")
        raise error


def test_files_appear_together_when_all_are_complete(tmp_path):
    paths = [str(tmp_path / "a"), str(tmp_path / "b")]
    (tmp_path / "a").write_bytes(b"before")
    with replace_files(paths) as [a, b]:
        a.write(b"1")
        b.write(b"2")
        assert (tmp_path / "a").read_bytes() == b"before"
        assert not (tmp_path / "b").exists()
    assert [(tmp_path / name).read_bytes() for name in "ab"] == [b"1", b"2"]
    assert sorted(os.listdir(tmp_path)) == ["a", "b"]


def stop_behind_a_rename(monkeypatch, act):
    """Acts once, when something has got another name."""
    replace = os.replace

    def stop(old, new):
        replace(old, new)
        monkeypatch.setattr(os, "replace", replace)
        act()

    monkeypatch.setattr(os, "replace", stop)


def test_a_signal_between_renames_leaves_all_files_new(tmp_path, monkeypatch):
    for name in "ab":
        write_text(str(tmp_path / name), "old")
    stop_behind_a_rename(monkeypatch, lambda: os.kill(os.getpid(), signal.SIGINT))
    with watched_signals(), pytest.raises(Stop):
        write_two(tmp_path)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"a": "1", "b": "2" * 20}


def interrupt():
    raise KeyboardInterrupt


def test_a_stop_within_an_exchange_leaves_the_old_folder_in_its_place(tmp_path, monkeypatch):
    place = tmp_path / "model"
    place.mkdir()
    (place / "file").write_text("old")
    # Of a program that is no script, for nobody defers it there.
    stop_behind_a_rename(monkeypatch, interrupt)
    with pytest.raises(KeyboardInterrupt), replace_folder(str(place)) as partial:
        os.mkdir(partial)
    assert (place / "file").read_text() == "old"
    assert os.listdir(tmp_path) == ["model"]


def test_what_a_killed_process_has_left_is_no_part_of_the_next_folder(tmp_path):
    for name in ("model", "model.partial", "model.old.tmp"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "old").write_text("old")
    with replace_folder(str(tmp_path / "model")) as partial:
        os.makedirs(partial, exist_ok=True)
        write_text(os.path.join(partial, "new"), "new")
    assert os.listdir(tmp_path) == ["model"]
    assert os.listdir(tmp_path / "model") == ["new"]


def test_a_copy_beside_a_folder_is_not_removed_when_the_folder_is_replaced(tmp_path):
    for name in ("model", "model.old"):
        (tmp_path / name).mkdir()
    (tmp_path / "model.old/mine").write_text("mine")
    with replace_folder(str(tmp_path / "model")) as partial:
        os.mkdir(partial)
    assert sorted(os.listdir(tmp_path)) == ["model", "model.old"]
    assert (tmp_path / "model.old/mine").read_text() == "mine"


@pytest.mark.parametrize(("one", "other"), [("a", "b"), ("x/a", "y/b")])
def test_a_loss_of_power_leaves_whole_files(tmp_path, monkeypatch, one, other):
    folder = tmp_path / "run"
    for name in (one, other):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / one).write_bytes(b"before")
    with (
        monkeypatch.context() as patch,
        PowerLoss(folder, patch) as power,
        replace_files([str(folder / one), str(folder / other)]) as [first, second],
    ):
        first.write(b"1" * 100)
        second.write(b"2" * 100)
    # When it has returned, nothing can be lost any more.
    [last] = power.last
    assert {name: content for name, content in last.items() if content} == {
        one: b"1" * 100,
        other: b"2" * 100,
    }
    assert {state[one] for state in power.states.values()} == {b"before", b"1" * 100}
    assert {state.get(other) for state in power.states.values()} == {None, b"2" * 100}


def write_list(**files):
    create_vocab.run(create_vocab.Settings(**files, vocab_size=30, num_unused=0, overwrite=True))


def write_sentences(**files):
    split_sentences.run(**files, overwrite=True)


def write_answers(input_file, output_file):
    model = save_model("labels", Path(input_file).parent / "model")
    files = {"model_dir": model, "input_file": input_file, "output_file": output_file}
    predict.run(predict.Settings(**files, overwrite=True))


@pytest.mark.parametrize(
    ("write", "name"),
    [
        (write_list, "vocab.txt"),
        (write_sentences, "sentences.txt"),
        (write_answers, "answers.jsonl"),
        (write_answers, "answers.csv"),
    ],
)
def test_a_loss_of_power_leaves_the_whole_output_of_a_script_or_the_one_before(
    tmp_path, monkeypatch, write, name
):
    (tmp_path / "text.txt").write_text("red a b\ngreen c\n")
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / name).write_bytes(b"before")
    with monkeypatch.context() as patch, PowerLoss(folder, patch) as power:
        write(input_file=str(tmp_path / "text.txt"), output_file=str(folder / name))
    whole = (folder / name).read_bytes()
    assert whole.count(b"\n") >= 2
    assert {state.get(name) for state in power.states.values()} == {b"before", whole}
    assert {state[name] for state in power.last} == {whole}


@pytest.mark.parametrize("again", [False, True])
def test_a_loss_of_power_leaves_a_whole_folder(tmp_path, monkeypatch, again):
    def write(folder, content):
        os.makedirs(f"{folder}/inner")
        for name in ("a", "inner/b"):
            with open(f"{folder}/{name}", "wb") as file:
                file.write(content)

    root = tmp_path / "run"
    root.mkdir()
    before, after = (
        {"model/": b"", "model/a": each, "model/inner/": b"", "model/inner/b": each}
        for each in (b"1", b"22")
    )
    if again:
        write(root / "model", b"1")
    with (
        monkeypatch.context() as patch,
        PowerLoss(root, patch) as power,
        replace_folder(str(root / "model")) as partial,
    ):
        write(partial, b"22")
    assert power.last == [after]
    # Where there is one already, it is away for a moment.
    expected = [before, {}, after] if again else [{}, after]
    assert [*power.states.values()] == expected


@pytest.mark.parametrize(
    ("number", "is_raised"),
    [(errno.EIO, True), (errno.ENOSPC, True), (errno.EINVAL, False), (errno.ENOTSUP, False)],
)
def test_what_the_disk_says_of_a_folder_is_an_error_unless_it_cannot_do_it(
    tmp_path, monkeypatch, number, is_raised
):
    fsync = os.fsync

    def fail_for_folders(descriptor):
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(number, os.strerror(number))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", fail_for_folders)
    with pytest.raises(OSError, match=os.strerror(number)) if is_raised else nullcontext():
        write_text(str(tmp_path / "a"), "text")
    assert (tmp_path / "a").read_text() == "text"


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


def test_links_are_removed_without_their_targets(tmp_path):
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


def test_no_output_remains_where_one_cannot_be_opened(tmp_path):
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


def test_only_leftovers_of_killed_runs_are_removed(tmp_path):
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
    assert [name.split(".")[1] for name in left] == ["other", "out"]
    # A pattern reads none of them, as it reads no index.
    with pytest.raises(OptionError, match="matches none"):
        match_files(f"{out}*", "in")
    mine = {f"out.{'0' * 31}g.tmp", f"out.{'0' * 32}.tmp.bak", "out.tmp", f"outer.{'0' * 32}.tmp"}
    for name in mine:
        (tmp_path / name).write_text("mine")
    # Earlier versions did not hide them.
    (tmp_path / f"out.{'0' * 32}.tmp").touch()
    with replace_files([out]) as [file]:
        # That of a run that is at work.
        at_work = set(os.listdir(tmp_path)) - mine - {left[0]}
        try_outputs([out], "out")
        assert at_work <= set(os.listdir(tmp_path))
        file.write(b"whole")
    assert set(os.listdir(tmp_path)) == mine | {left[0], "out"}
    assert (tmp_path / "out").read_bytes() == b"whole"


def test_paths_may_be_on_file_systems_of_tensorflow():
    paths = [f"{RAM}/a.tfrecord", f"{RAM}/b.tfrecord"]
    tf.io.gfile.makedirs(RAM)
    try_outputs(paths, "out")
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
    with pytest.raises(ValueError, match="`in` must name existing files"):
        match_files(f"{RAM}/none", "in")
    with pytest.raises(ValueError, match="`out` must name files that can be written"):
        try_outputs(["gs-nowhere://x/y"], "out")


def test_a_file_has_one_lock_at_a_time(tmp_path):
    path = str(tmp_path / "file")
    with open_locked(path) as file:
        file.write(b"kept")
        file.flush()
        with pytest.raises(BlockingIOError):
            open_locked(path)
    with open_locked(path) as file:
        assert file.read() == b"kept"


@pytest.mark.parametrize("leave", [os.remove, lambda path: os.rename(path, path + ".whole")])
def test_waiting_for_the_lock_of_a_file_that_is_removed_creates_a_new_file(tmp_path, leave):
    path = str(tmp_path / "file")
    first = open_locked(path)
    got = []
    other = threading.Thread(target=lambda: got.append(open_locked(path, waits=True)))
    other.start()
    leave(path)
    first.close()
    other.join()
    with got[0] as file:
        assert os.path.samestat(os.fstat(file.fileno()), os.stat(path))


def test_a_lock_does_not_follow_links(tmp_path):
    (tmp_path / "thesis").write_text("mine")
    (tmp_path / "link").symlink_to(tmp_path / "thesis")
    with pytest.raises(OSError, match="symbolic"):
        open_locked(str(tmp_path / "link"))


def test_without_locks_a_file_is_opened_unless_a_lock_is_required(tmp_path, monkeypatch):
    def fail(*_):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", fail)
    with open_locked(str(tmp_path / "file")) as file:
        file.write(b"text")
    with pytest.raises(NoLocksError, match="No locks available"):
        open_locked(str(tmp_path / "file"), required=True)
    with replace_files([str(tmp_path / "file")]) as [file]:
        file.write(b"more")
    assert (tmp_path / "file").read_bytes() == b"more"


def test_a_leftover_that_cannot_be_opened_does_not_keep_the_next(tmp_path):
    tail = "." + "0" * 32 + ".tmp"
    (tmp_path / ("a" + tail)).mkdir()
    (tmp_path / ("b" + tail)).touch()
    (tmp_path / ("c" + tail)).touch()
    remove_leftovers(str(tmp_path), ["a", "b"])
    assert sorted(os.listdir(tmp_path)) == ["a" + tail, "c" + tail]


def test_what_is_no_regular_file_is_not_replaced(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="not a regular file"):
        write_text(str(tmp_path / "pipe"), "text")
    assert stat.S_ISFIFO(os.stat(tmp_path / "pipe").st_mode)
    assert os.listdir(tmp_path) == ["pipe"]


def test_a_new_file_may_be_read_by_whom_the_process_lets_read(tmp_path):
    before = os.umask(0o027)
    try:
        write_text(str(tmp_path / "a"), "text")
    finally:
        os.umask(before)
    assert stat.S_IMODE(os.stat(tmp_path / "a").st_mode) == 0o640


def test_the_current_folder_is_locked_by_its_empty_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    other = os.open(tmp_path, os.O_RDONLY)
    with durable.locked_folder(""):
        assert not durable.lock(other, waits=False)
    assert durable.lock(other, waits=False)
    os.close(other)


def test_a_long_wait_for_the_lock_of_a_folder_is_logged(tmp_path, monkeypatch, log):
    monkeypatch.setattr(durable, "_SECONDS_OF_PATIENCE", 0.0)
    held = os.open(tmp_path, os.O_RDONLY)
    durable.lock(held)
    entered = threading.Event()

    def enter():
        with durable.locked_folder(str(tmp_path)):
            entered.set()

    thread = threading.Thread(target=enter)
    thread.start()
    wait_until(lambda: log.messages)
    assert f"holds a lock on the folder {str(tmp_path)!r} itself" in log.text
    assert not entered.is_set()
    os.close(held)
    thread.join()
    assert entered.is_set()

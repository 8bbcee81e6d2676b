"""A run's own files are told from all others, and no other is ever replaced or deleted."""

import json
import os
import signal

import pytest
from helpers.forks import Forked
from helpers.waiting import LONGEST, wait_until

from bert.files import durable, owned

KEPT = "vocab.txt.kept-1"


def write(path, text="mine"):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def claim(folder, name, text="run"):
    write(folder / name, text) if owned.claim(str(folder), name) else None


def names_in(folder):
    return sorted(
        os.path.relpath(os.path.join(place, name), folder)
        for place, _, names in os.walk(folder)
        for name in names
    )


def test_only_claimed_files_are_cleared(tmp_path):
    users = ["predictions.csv", "predictions_of_my_boss.xlsx", "run_1/a", "eval/b", "notes.partial"]
    for name in users:
        write(tmp_path / name)
    for name in ("predictions.tsv", "eval/events", "checkpoint"):
        claim(tmp_path, name)
    owned.clear(str(tmp_path))
    assert names_in(tmp_path) == sorted(users)


def test_names_that_are_not_cleared_are_still_claimed(tmp_path):
    claim(tmp_path, "vocab.txt")
    claim(tmp_path, "task.json")
    owned.clear(str(tmp_path), but=["vocab.txt"])
    assert names_in(tmp_path) == [owned.LIST_FILE, "vocab.txt"]
    assert owned.read_names(str(tmp_path)) == ["vocab.txt"]


def test_a_file_that_no_run_has_written_is_renamed(tmp_path, log):
    write(tmp_path / "eval_results.txt", "old")
    write(tmp_path / "eval_results.txt.kept-1", "older")
    claim(tmp_path, "eval_results.txt", "new")
    claim(tmp_path, "eval_results.txt", "newer")
    assert (tmp_path / "eval_results.txt").read_text() == "newer"
    assert (tmp_path / "eval_results.txt.kept-2").read_text() == "old"
    assert (tmp_path / "eval_results.txt.kept-1").read_text() == "older"
    assert "renamed to" in log.text


def test_links_are_unlinked_and_never_followed(tmp_path):
    out, disk = tmp_path / "out", tmp_path / "disk"
    write(disk / "model.ckpt-1.index")
    out.mkdir()
    (out / "best").symlink_to(disk)
    best = owned.claim_folder(str(out), "best")
    owned.adopt(best, ["model.ckpt-1.index"])
    (out / "vocab.txt").symlink_to(disk / "model.ckpt-1.index")
    owned.adopt(str(out), ["vocab.txt", "best/model.ckpt-1.index"])
    owned.clear(str(out))
    assert os.listdir(out) == []
    assert (disk / "model.ckpt-1.index").exists()


def test_a_manifest_that_is_a_link_is_that_of_another_folder(tmp_path):
    """As `cp -rs` leaves it: nothing there is this folder's own, nor changed by its runs."""
    thesis, copy = tmp_path / "thesis", tmp_path / "copy"
    claim(thesis, "vocab.txt")
    before = (thesis / owned.LIST_FILE).read_bytes()
    copy.mkdir()
    for name in (owned.LIST_FILE, "vocab.txt"):
        (copy / name).symlink_to(thesis / name)
    assert owned.read_names(str(copy)) == []
    claim(copy, "task.json")
    assert owned.read_names(str(copy)) == ["task.json"]
    assert (thesis / owned.LIST_FILE).read_bytes() == before
    owned.clear(str(copy))
    assert names_in(copy) == ["vocab.txt"]


def test_a_claimed_name_leads_nowhere_else(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run/vocab.txt").symlink_to(tmp_path / "purged")
    claim(tmp_path / "run", "vocab.txt")
    assert names_in(tmp_path) == [f"run/{n}" for n in (owned.LIST_FILE, "vocab.txt", KEPT)]
    assert (tmp_path / "run" / KEPT).is_symlink()


def test_folders_that_removed_files_leave_empty_go_at_any_depth(tmp_path):
    claim(tmp_path, "a/b/c/events")
    write(tmp_path / "a/mine")
    owned.remove(str(tmp_path), ["a/b/c/events"])
    assert names_in(tmp_path) == [owned.LIST_FILE, "a/mine"]
    assert os.listdir(tmp_path / "a") == ["mine"]


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("act", ["clear", "remove", "lock"])
def test_what_is_behind_a_link_stays_at_any_depth(tmp_path, act, depth):
    """A folder that came with a link, in it or at its end, empties no other run's."""
    out, other = tmp_path / "out", tmp_path / "other"
    tail = f".{'0' * 32}.tmp"
    inner = "/".join("ab"[:depth])
    names = ["w.index", "saved_model/", "model.ckpt-1.index"]
    last = other / "b" if depth == 2 else other
    owned.adopt(str(last), names)
    for name in ("w.index", "saved_model.partial/x", "w.index" + tail, "model.ckpt-1.partial.data"):
        write(last / name)
    (last / "saved_model").mkdir()
    owned.adopt(str(out), [f"{inner}/{name}" for name in [owned.LIST_FILE, *names]])
    (out / "a").symlink_to(other)
    before = sorted(other.rglob("*"))
    if act == "clear":
        owned.clear(str(out))
    elif act == "remove":
        owned.remove(str(out), owned.read_names(str(out)))
    else:
        with owned.lock(str(out)):
            pass
    assert sorted(other.rglob("*")) == before


def test_an_interrupted_clear_leaves_no_incomplete_checkpoint(tmp_path, monkeypatch):
    """After each single removal, the newest checkpoint is complete or there is none."""
    names = ["a.txt", "checkpoint", "model.ckpt-1.data-00000-of-00001", "model.ckpt-1.index"]

    def state():
        left = set(names_in(tmp_path)) & set(names)
        return "checkpoint" in left, "model.ckpt-1.index" in left, names[2] in left

    states = []
    remove = durable.remove

    def noted(path):
        remove(path)
        states.append(state())

    for name in names:
        claim(tmp_path, name)
    monkeypatch.setattr(durable, "remove", noted)
    owned.clear(str(tmp_path))
    assert states[-1] == (False, False, False)
    for is_named, has_index, has_weights in states:
        assert has_weights or not has_index
        assert has_index or not is_named


@pytest.mark.parametrize(
    ("path", "is_own"),
    [
        ("model", False),
        ("model2", True),
        ("model2.index", True),
        ("best", True),
        ("bes", False),
        ("best/model.ckpt-1", True),
        ("best/model.ckpt", False),
        ("best/log", True),
        ("other", False),
        ("", True),
    ],
)
def test_a_run_owns_complete_names_only(tmp_path, path, is_own):
    owned.adopt(str(tmp_path), ["model2.index", f"best/{owned.LIST_FILE}", "best/log"])
    owned.adopt(str(tmp_path / "best"), ["model.ckpt-1.index"])
    (tmp_path / "new").mkdir()
    assert owned.is_own(str(tmp_path), str(tmp_path / path)) is is_own
    assert not owned.is_own(str(tmp_path / "new"), str(tmp_path / "new"))


def test_inner_folders_are_cleared_by_their_own_manifest(tmp_path):
    best = owned.claim_folder(str(tmp_path), "best")
    owned.adopt(best, ["model.ckpt-1.index"])
    write(tmp_path / "best/model.ckpt-1.index")
    write(tmp_path / "best/mine")
    owned.clear(str(tmp_path))
    assert names_in(tmp_path) == ["best/mine"]


@pytest.mark.parametrize("name", ["../thesis", "/etc/passwd", "a/../../b", "", 7, None, "a\0"])
def test_a_manifest_with_a_path_outside_of_its_folder_is_refused(tmp_path, name):
    (tmp_path / owned.LIST_FILE).write_text(json.dumps(["a", name]))
    with pytest.raises(ValueError, match="It is damaged"):
        owned.clear(str(tmp_path))


def test_only_leftovers_of_claimed_names_are_removed(tmp_path):
    tail = "." + "0" * 32 + ".tmp"
    names = ["vocab.txt", "model.ckpt-1.index", "saved_model/", "best/.own_files.json"]
    owned.adopt(str(tmp_path), names)
    users = [
        *("notes.partial.txt", "mine" + tail, "x.old", "notes.partial", "saved_model/a" + tail),
        *("vocab.txt.old", "vocab.txt.partial.txt", "model.ckpt-1.partial.notes", "best.old/a"),
        *("best.partial/a", "saved_model.old/saved_model.pb"),
    ]
    leftovers = [
        "vocab.txt" + tail,
        owned.LIST_FILE + tail,
        "model.ckpt-1.partial.index",
        "model.ckpt-1.partial.data-00000-of-00001.tempstate7",
        "saved_model.partial/variables/a",
        "saved_model.partial.partial/a",
        "saved_model.old.tmp/saved_model.pb",
    ]
    # One that is being written is none.
    writing = open(tmp_path / ("vocab.txt" + tail.replace("0", "1")), "w")  # noqa: SIM115
    assert durable.lock(writing)
    users.append(os.path.basename(writing.name))
    for name in (*users[:-1], *leftovers):
        write(tmp_path / name)
    with writing, owned.lock(str(tmp_path)):
        pass
    assert names_in(tmp_path) == sorted([*users, owned.LIST_FILE])


def test_leftovers_are_removed_from_inner_folders_with_manifests(tmp_path):
    best = tmp_path / "best"
    owned.claim_folder(str(tmp_path), "best")
    owned.claim_all(str(best), ["model.ckpt-7.index"])
    left = "model.ckpt-7.partial.data-00000-of-00001.tempstate777"
    write(best / "notes.txt")
    with owned.lock(str(best)):
        # Another process may be at work there.
        write(best / left)
        owned._remove_leftovers(str(tmp_path))
        assert (best / left).exists()
    with owned.lock(str(tmp_path)):
        pass
    assert names_in(best) == [owned.LIST_FILE, "notes.txt"]


def test_leftovers_are_removed_from_a_folder_that_a_link_leads_to(tmp_path):
    (tmp_path / "disk").mkdir()
    (tmp_path / "run").symlink_to(tmp_path / "disk")
    owned.adopt(str(tmp_path / "run"), ["vocab.txt"])
    write(tmp_path / f"disk/vocab.txt.{'0' * 32}.tmp")
    with owned.lock(str(tmp_path / "run")):
        pass
    assert names_in(tmp_path / "disk") == [owned.LIST_FILE]


def test_each_folder_is_listed_once_for_leftovers(tmp_path, monkeypatch):
    owned.adopt(str(tmp_path), [f"{inner}{n}.index" for inner in ("", "a/") for n in range(50)])
    listed = []
    listdir = os.listdir
    monkeypatch.setattr(os, "listdir", lambda path: [listed.append(path), *listdir(path)][1:])
    (tmp_path / "a").mkdir()
    with owned.lock(str(tmp_path)):
        pass
    assert len(listed) <= 4


def test_a_folder_whose_replacement_was_interrupted_is_not_lost(tmp_path):
    owned.claim_tree(str(tmp_path), "saved_model")
    for name in ("saved_model.partial", "saved_model.old.tmp"):
        write(tmp_path / name / "saved_model.pb", name)
    with owned.lock(str(tmp_path)):
        pass
    assert (tmp_path / "saved_model/saved_model.pb").read_text() == "saved_model.old.tmp"
    assert names_in(tmp_path) == [owned.LIST_FILE, "saved_model/saved_model.pb"]


def test_a_lock_that_is_a_link_is_not_followed(tmp_path):
    write(tmp_path / "thesis")
    (tmp_path / owned.LOCK_FILE).symlink_to(tmp_path / "thesis")
    with pytest.raises(OSError, match="symbolic"), owned.lock(str(tmp_path)):
        pass
    assert (tmp_path / "thesis").read_text() == "mine"


CLAIM = """
import sys
from bert.files import owned
for number in range(40):
    owned.claim(sys.argv[1], f"{sys.argv[2]}-{number}")
"""


def test_no_claim_is_lost_where_processes_claim_at_once(tmp_path):
    (tmp_path / "claimed").mkdir()
    processes = [
        Forked(["-c", CLAIM, tmp_path / "claimed", name], *[tmp_path / name] * 2) for name in "abc"
    ]
    assert [process.wait() for process in processes] == [0, 0, 0]
    assert set(owned.read_names(str(tmp_path / "claimed"))) == {
        f"{name}-{number}" for name in "abc" for number in range(40)
    }


def test_a_folder_in_which_another_process_trains_is_not_cleared(tmp_path):
    inner = owned.claim_folder(str(tmp_path), "run_1")
    claim(tmp_path / "run_1", "checkpoint")
    with owned.lock(inner), pytest.raises(ValueError, match="nothing else trains"):
        owned.clear(str(tmp_path))
    assert (tmp_path / "run_1/checkpoint").exists()


def test_claiming_an_inner_folder_does_not_change_its_manifest(tmp_path):
    claim(tmp_path / "run_1", "checkpoint")
    owned.claim_folder(str(tmp_path), "run_1")
    assert owned.read_names(str(tmp_path / "run_1")) == ["checkpoint"]


HOLD = """
import os, sys, time
from bert.files import owned
with owned.lock(sys.argv[1]):
    print(os.getpid(), flush=True)
    time.sleep(60)
"""


def test_two_processes_do_not_share_a_folder(tmp_path):
    folder = tmp_path / "shared"
    folder.mkdir()
    # What one that was killed had written, longer than what is written now.
    (folder / owned.LOCK_FILE).write_text("x" * 999)
    other = Forked(["-c", HOLD, folder], tmp_path / "stdout", tmp_path / "stderr")
    wait_until(lambda: other.stdout.read_text().endswith("\n"), LONGEST)
    refused = pytest.raises(ValueError, match=f"process {int(other.stdout.read_text())} on .* does")
    with refused, owned.lock(str(folder)):
        pass
    other.send_signal(signal.SIGKILL)
    other.wait()
    # What the killed process has left tells nothing.
    assert (folder / owned.LOCK_FILE).exists()
    with owned.lock(str(folder)):
        pass
    assert names_in(folder) == []


def test_a_tree_with_a_file_of_somebody_else_is_not_replaced(tmp_path):
    place, inner = tmp_path / "saved_model", "variables/inner"
    for names, kept in (
        (["saved_model.pb", f"{inner}/index"], []),
        ([f"{inner}/mine"], ["saved_model.kept-1"]),
    ):
        for name in names:
            write(place / name)
        if not kept:
            owned.adopt_tree(str(tmp_path), "saved_model")
        assert owned.claim_tree(str(tmp_path), "saved_model") == str(place)
        assert [path.name for path in tmp_path.glob("*.kept-1")] == kept
    assert (tmp_path / "saved_model.kept-1" / inner / "mine").exists()


@pytest.mark.parametrize("is_mine", [False, True])
def test_a_tree_is_removed_with_its_empty_folders(tmp_path, is_mine):
    """TensorFlow's exports have a folder `assets`, with or without anything in it."""
    place = tmp_path / "saved_model"
    owned.claim_tree(str(tmp_path), "saved_model")
    (place / "assets").mkdir(parents=True)
    (place / "saved_model.pb").write_text("graph")
    write(place / "variables/inner/index")
    owned.adopt_tree(str(tmp_path), "saved_model")
    if is_mine:
        (place / "notes.txt").write_text("mine")
    owned.clear(str(tmp_path))
    left = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*"))
    assert left == ["saved_model", "saved_model/notes.txt"] * is_mine

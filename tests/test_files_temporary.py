import os
import re
from pathlib import Path

import pytest

from bert.files import durable
from bert.files.owned import LOCK_FILE, scratch_folder

NAMES = re.compile(r"ids|seeds-\d+")
MARKER = ".bert.scratch"


def use(path):
    """Makes files in the folder, and ends."""
    with scratch_folder(str(path), NAMES) as folder:
        assert [name for name in os.listdir(folder) if name != MARKER] == []
        for name in ("ids", "seeds-12"):
            with open(os.path.join(folder, name), "wb") as file:
                file.write(b"x")


def tree(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_nothing_remains_after_the_block(tmp_path):
    use(tmp_path / "out")
    with pytest.raises(IsADirectoryError), scratch_folder(str(tmp_path / "out"), NAMES) as folder:
        Path(folder).write_bytes(b"")
    assert tree(tmp_path) == []


@pytest.mark.parametrize(
    "names",
    [["ids"], [LOCK_FILE, "model.ckpt-1.index"], [MARKER, "ids", "mine"], [MARKER, "ids/mine"]],
)
def test_a_folder_with_foreign_files_is_refused_and_unchanged(tmp_path, names):
    for name in names:
        path = tmp_path / "out.partial" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    before = tree(tmp_path)
    with pytest.raises(ValueError, match=r"out\.partial' must be free.*out\.partial/[\w.-]+'"):
        use(tmp_path / "out")
    assert tree(tmp_path) == before


def test_a_link_or_a_file_in_its_place_is_refused_before_the_work(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "out.partial").symlink_to("elsewhere")
    (tmp_path / "file.partial").touch()
    for name in ("out", "file"):
        with pytest.raises(ValueError, match="must be free"):
            use(tmp_path / name)
    assert tree(tmp_path) == ["elsewhere", "file.partial", "out.partial"]


def test_leftovers_of_a_killed_run_are_removed_and_a_running_one_is_respected(tmp_path):
    left = tmp_path / "out.partial"
    left.mkdir()
    for name in (MARKER, "ids", "seeds-3"):
        (left / name).write_bytes(b"x")
    with (
        scratch_folder(str(tmp_path / "out"), NAMES),
        pytest.raises(ValueError, match="One process at a time must write"),
    ):
        use(tmp_path / "out")
    assert tree(tmp_path) == []


def test_files_that_cannot_be_removed_are_removed_by_the_next_run(tmp_path, monkeypatch):
    def refuse(path):
        raise OSError(path)

    with monkeypatch.context() as patch:
        patch.setattr(os, "remove", refuse)
        use(tmp_path / "out")
    assert tree(tmp_path) == [
        f"out.partial{end}" for end in ("", f"/{MARKER}", "/ids", "/seeds-12")
    ]
    use(tmp_path / "out")
    assert tree(tmp_path) == []


def test_without_locks_each_run_has_a_folder_of_its_own(tmp_path, monkeypatch):
    fcntl = pytest.importorskip("fcntl")

    def refuse(*_):
        raise OSError("no locks")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(durable.NoLocksError):
        durable.open_locked(str(tmp_path / "x"), required=True)
    (tmp_path / "x").unlink()
    with scratch_folder(str(tmp_path / "out"), NAMES) as folder:
        (tmp_path / folder / "ids").touch()
        use(tmp_path / "out")
        assert os.listdir(folder) == ["ids"]
    assert tree(tmp_path) == []

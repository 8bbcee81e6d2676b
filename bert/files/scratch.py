"""A folder for what a run needs only while it lasts."""

import contextlib
import os
import re
import tempfile
from collections.abc import Iterator

from bert.files.durable import NoLocksError, open_locked
from bert.files.places import is_remote

# Tells such a folder from all others, and is locked by the run that has it.
_MARKER = ".bert.scratch"
# What the names of folders of models begin with.
_MODEL = "bert-model-"


def model_folder() -> "tempfile.TemporaryDirectory[str]":
    """Gives a folder for a model that a run makes of other files, until the block ends."""
    return tempfile.TemporaryDirectory(prefix=_MODEL)


def is_of_model_folder(value: object) -> bool:
    """Returns whether it is a path in such a folder, which means nothing to anybody later."""
    return isinstance(value, str) and value.startswith(os.path.join(tempfile.gettempdir(), _MODEL))


@contextlib.contextmanager
def scratch_folder(path: str, names: re.Pattern[str]) -> Iterator[str]:
    """Gives the path of a local folder that is there, and empty, until the block ends.

    It is beside the file that the run makes, for there is room. What a run left of it that was
    killed is removed by the next one.

    Args:
      path: That of the file. Where it is not local, the folder is where the system wants such.
      names: Those of the files that are made there. No others are ever removed.

    Raises:
      ValueError: where another process has it, or it is somebody else's.
    """
    if is_remote(path):
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            yield folder
        return
    folder = f"{path}.partial"
    if strange := _strange(folder, names):
        raise ValueError(
            f"{folder!r} must be free, for files that are needed for a while. Something else is "
            f"there: {strange!r}. Move it, or give the output another name."
        )
    os.makedirs(folder, exist_ok=True)
    marker = os.path.join(folder, _MARKER)
    try:
        lock = open_locked(marker, required=True)
    except BlockingIOError as error:
        raise ValueError(
            f"One process at a time must write {path!r}. Another one does. Wait for it, or give "
            "another name."
        ) from error
    except NoLocksError:
        # Whether another run needs what is there cannot be told.
        with _folder_of_its_own(folder) as own:
            yield own
        return
    try:
        with lock:
            try:
                _clear(folder, names)
                yield folder
            finally:
                # What cannot be removed now is removed by the next run, as long as it is marked.
                with contextlib.suppress(OSError):
                    _clear(folder, names)
                    os.remove(marker)
    finally:
        # Not before: some file systems keep a name for what is open.
        with contextlib.suppress(OSError):
            os.rmdir(folder)


@contextlib.contextmanager
def _folder_of_its_own(folder: str) -> Iterator[str]:
    with contextlib.suppress(OSError):
        if os.listdir(folder) == [_MARKER]:
            os.remove(os.path.join(folder, _MARKER))
            os.rmdir(folder)
    above, name = os.path.split(folder)
    with tempfile.TemporaryDirectory(
        prefix=f"{name}-", dir=above or ".", ignore_cleanup_errors=True
    ) as own:
        yield own


def _strange(folder: str, names: re.Pattern[str]) -> str | None:
    """Returns the path of something that no run has left; None where there is nothing."""
    if not os.path.lexists(folder):
        return None
    if os.path.islink(folder) or not os.path.isdir(folder):
        return folder
    found = sorted(os.scandir(folder), key=lambda each: each.name)
    is_marked = any(each.name == _MARKER for each in found)
    for each in found:
        is_own = is_marked and (each.name == _MARKER or names.fullmatch(each.name))
        if not is_own or not each.is_file(follow_symlinks=False):
            return each.path
    return None


def _clear(folder: str, names: re.Pattern[str]) -> None:
    for each in os.listdir(folder):
        if names.fullmatch(each):
            os.remove(os.path.join(folder, each))

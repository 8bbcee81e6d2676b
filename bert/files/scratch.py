"""A folder for what a run needs only while it lasts."""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator

from bert.files.durable import open_locked
from bert.files.places import is_remote

_LOCK = ".bert.lock"


@contextlib.contextmanager
def scratch_folder(path: str) -> Iterator[str]:
    """Gives the path of a local folder that is there, and empty, until the block ends.

    It is beside the file that the run makes, for there is room. What a run left of it that was
    killed is removed by the next one.

    Args:
      path: That of the file. Where it is not local, the folder is where the system wants such.

    Raises:
      ValueError: where another process has it, or it is somebody else's.
    """
    if is_remote(path):
        with tempfile.TemporaryDirectory() as folder:
            yield folder
        return
    folder = f"{path}.partial"
    if not _is_scratch(folder):
        raise ValueError(
            f"{folder!r} must be free, for files that are needed for a while. Something else is "
            "there. Move it, or give the output another name."
        )
    os.makedirs(folder, exist_ok=True)
    try:
        lock = open_locked(os.path.join(folder, _LOCK))
    except BlockingIOError as error:
        raise ValueError(
            f"One process at a time must write {path!r}. Another one does. Wait for it, or give "
            "another name."
        ) from error
    with lock:
        try:
            for each in os.scandir(folder):
                if each.name != _LOCK:
                    os.remove(each.path)
            yield folder
        finally:
            shutil.rmtree(folder)


def _is_scratch(folder: str) -> bool:
    """Returns whether there is nothing, or what another run has left."""
    if not os.path.lexists(folder):
        return True
    names = os.listdir(folder) if os.path.isdir(folder) else ["."]
    return not names or _LOCK in names

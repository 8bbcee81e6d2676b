"""The manifest of the files that runs own in a folder, the folder's lock, and temporary folders.

A run claims a name before it writes the file. Only claimed files are replaced or deleted; where a
run needs the name of another file, that file is renamed.
"""

import contextlib
import json
import os
import re
import socket
import tempfile
from collections.abc import Collection, Iterator
from typing import Any

from bert.files import durable
from bert.files.durable import NoLocksError, open_locked, write_text
from bert.files.paths import file_system, is_remote, list_folder, parse_json, read_file
from bert.files.stored_models import unfinished_prefix_of
from bert.log import logger
from bert.options import OptionError

LIST_FILE = ".own_files.json"
LOCK_FILE = ".bert.lock"

# Marks a temporary folder, and is locked by the run that uses it.
_MARKER = ".bert.scratch"
# The prefix of temporary folders of models.
_MODEL = "bert-model-"


def read_names(folder: str) -> list[str]:
    """Returns the names that runs have claimed, relative to the folder.

    Raises:
      ValueError: where the manifest is damaged.
    """
    path = os.path.join(folder, LIST_FILE)
    # A link leads to the manifest of another folder, which this folder was copied from.
    if os.path.islink(path) or not file_system().exists(path):
        return []
    try:
        names = parse_json(read_file(path))
    except ValueError:
        names = None
    if not isinstance(names, list) or not all(map(_is_inside, names)):
        raise ValueError(
            f"{path!r} must list the files that runs have written there. It is damaged; remove it, "
            "and no file in the folder counts as written by a run."
        )
    return names


def _is_inside(name: Any) -> bool:
    """Returns whether a name is a path within its folder."""
    if not isinstance(name, str) or not name or os.path.isabs(name):
        return False
    return ".." not in name.split("/") and "\0" not in name


def claim(folder: str, name: str) -> str:
    """Claims a name and returns its path; an existing file that no run has claimed is renamed."""
    claim_all(folder, [name])
    return os.path.join(folder, name)


def claim_all(folder: str, names: Collection[str]) -> None:
    """Claims several names with one write of the manifest, as `claim`."""
    with _list_of(folder) as owned:
        for name in names:
            if name not in owned:
                _set_aside(os.path.join(folder, name))
                owned.append(name)


def _set_aside(path: str) -> None:
    gfile = file_system()
    if not gfile.exists(path) and not os.path.islink(path):
        return
    number = 1
    while gfile.exists(backup := f"{path}.kept-{number}"):
        number += 1
    durable.rename(path, backup)
    logger.warning("%r was not written by a training run; renamed to %r.", path, backup)


@contextlib.contextmanager
def _list_of(folder: str) -> Iterator[list[str]]:
    """Yields the claimed names, under a lock, and writes the manifest if the block changes them."""
    if folder:
        durable.make_folders(folder)
    with durable.locked_folder(folder):
        names = read_names(folder)
        before = list(names)
        yield names
        if names != before:
            path = os.path.join(folder, LIST_FILE)
            if os.path.islink(path):
                durable.remove(path)
            text = json.dumps(sorted(names), indent=0, ensure_ascii=False)
            write_text(path, text + "\n")


def remove(folder: str, names: Collection[str]) -> None:
    """Deletes files that runs have claimed, in this order; links are not followed."""
    with _list_of(folder) as owned:
        for name in names:
            if name in owned:
                _remove(folder, name)
                owned.remove(name)


def _remove(folder: str, name: str) -> None:
    """Deletes a file, and the folders above it that are empty then."""
    gfile = file_system()
    inner = os.path.dirname(name)
    if _crosses_link(folder, inner):
        return
    path = os.path.join(folder, name)
    if os.path.islink(path) or (gfile.exists(path) and not gfile.isdir(path)):
        durable.remove(path)
    while inner:
        place = os.path.join(folder, inner)
        if gfile.isdir(place) and not gfile.listdir(place):
            gfile.rmtree(place)
        inner = os.path.dirname(inner)


def _crosses_link(folder: str, inner: str) -> bool:
    """Returns whether the path from a folder to an inner one has a link in it."""
    parts = inner.split("/") if inner else []
    return any(os.path.islink(os.path.join(folder, *parts[:n])) for n in range(1, len(parts) + 1))


def _remove_empty(place: str) -> None:
    """Removes the empty folders of a tree, such as an export leaves."""
    for inner, _, _ in file_system().walk(place, topdown=False):
        if not file_system().listdir(inner):
            file_system().rmtree(inner)


def clear(folder: str, *, but: Collection[str] = ()) -> None:
    """Deletes all files that runs have claimed, also in inner folders, except the names `but`."""
    names = [name for name in read_names(folder) if name not in but]
    for name in names:
        inner, last = os.path.split(name)
        place = os.path.join(folder, inner)
        if last != LIST_FILE or not inner or _crosses_link(folder, os.path.dirname(inner)):
            continue
        if os.path.islink(place):
            durable.remove(place)
        elif file_system().isdir(place):
            with lock(place):
                clear(place)
    # The index is deleted first: without it, the other files are no checkpoint.
    remove(folder, sorted(names, key=lambda name: (name != "checkpoint", name[-6:] != ".index")))
    for name in names:
        if name.endswith("/") and not _crosses_link(folder, name.rstrip("/")):
            _remove_empty(os.path.join(folder, name.rstrip("/")))
    if not read_names(folder):
        path = os.path.join(folder, LIST_FILE)
        if file_system().exists(path):
            durable.remove(path)


def claim_folder(folder: str, name: str) -> str:
    """Creates an inner folder with a manifest of its own, and returns its path."""
    adopt(folder, [f"{name}/{LIST_FILE}"])
    path = os.path.join(folder, name)
    durable.make_folders(path)
    return path


def resolve(folder: str, path: str) -> tuple[str, str]:
    """Returns a folder, with a slash at its end, and a path, with links resolved in both."""
    if is_remote(folder) or is_remote(path):
        return folder.rstrip("/") + "/", path.rstrip("/")
    return os.path.realpath(folder) + "/", os.path.realpath(path)


def is_own(folder: str, path: str) -> bool:
    """Returns whether runs in a folder have claimed `path`: a file, a checkpoint or a folder."""
    folder, path = resolve(folder, path)
    if f"{path}/" == folder:
        return bool(read_names(folder))
    if not path.startswith(folder):
        return False
    name = path.removeprefix(folder)
    owned = read_names(folder)
    inner = os.path.dirname(path)
    if inner != folder:
        owned += [f"{os.path.dirname(name)}/{below}" for below in read_names(inner)]
    return any(own == name or own.startswith((f"{name}.", f"{name}/")) for own in owned)


def claim_tree(folder: str, name: str) -> str:
    """Returns the path of an inner folder to replace, renamed if it has unclaimed files."""
    place = os.path.join(folder, name)
    if not {*_files_within(place, name)} <= {*read_names(folder)}:
        _set_aside(place)
    # Recognizes leftovers if this process is killed.
    adopt(folder, [f"{name}/"])
    return place


def adopt_tree(folder: str, name: str) -> None:
    """Claims all files in a folder that this process has just written."""
    adopt(folder, _files_within(os.path.join(folder, name), name))


def _files_within(place: str, name: str) -> list[str]:
    found = []
    for inner, _, files in file_system().walk(place):
        below = os.path.join(name, inner.removeprefix(place).strip("/"))
        found += [os.path.join(below, file) for file in files]
    return found


def adopt(folder: str, names: Collection[str]) -> None:
    """Claims files that this process has just written."""
    with _list_of(folder) as owned:
        owned.extend(name for name in dict.fromkeys(names) if name not in owned)


def _remove_leftovers(folder: str) -> None:
    """Removes unfinished files of killed runs; requires the lock of the folder."""
    owned: dict[str, set[str]] = {}
    for name in (*read_names(folder), LIST_FILE):
        inner, last = os.path.split(name)
        owned.setdefault(inner, set()).add(last)
    for inner, names in owned.items():
        place = os.path.join(folder, inner)
        if _crosses_link(folder, inner):
            continue
        if inner and LIST_FILE in names and not _is_locked(place):
            _remove_leftovers(place)
        if "" in names:
            # The name of a folder, with a slash at its end, was claimed.
            _finish_exchange(place)
        durable.remove_leftovers(place, names)
        for file in list_folder(place):
            prefix = unfinished_prefix_of(file)
            if prefix and f"{prefix}.index" in names:
                durable.remove(os.path.join(place, file))


def _finish_exchange(place: str) -> None:
    """Completes or undoes the replacement of a folder by a killed process."""
    gfile = file_system()
    old, partial = place + durable.OLD, f"{place}.partial"
    if gfile.isdir(old) and not gfile.exists(place):
        durable.rename(old, place)
    # `.partial.partial` is from an export that is written before it is compared.
    for left in (old, partial, f"{partial}.partial"):
        if gfile.isdir(left):
            durable.remove(left)


@contextlib.contextmanager
def lock(folder: str) -> Iterator[None]:
    """Locks a folder against other training runs, and removes unfinished files of killed runs.

    The system releases the lock when the process ends; the file only names its holder. Remote
    folders are not locked.

    Raises:
      ValueError: where another process has the lock.
    """
    if is_remote(folder):
        yield
        return
    path = os.path.join(folder, LOCK_FILE)
    try:
        file = open_locked(path, required=True)
    except BlockingIOError as error:
        raise _held(path) from error
    except NoLocksError as error:
        logger.warning("%r cannot be locked here (%s).", folder, error)
        yield
        return
    try:
        file.truncate(0)
        holder = {"host": socket.gethostname(), "process": os.getpid()}
        file.write(json.dumps(holder).encode())
        file.flush()
        _remove_leftovers(folder)
        yield
    finally:
        with contextlib.suppress(OSError):
            os.remove(path)
        file.close()


def check_lock(folder: str) -> None:
    """Raises `ValueError` where another process has the lock of a folder."""
    if _is_locked(folder):
        raise _held(os.path.join(folder, LOCK_FILE))


def _is_locked(folder: str) -> bool:
    path = os.path.join(folder, LOCK_FILE)
    if is_remote(folder) or not os.path.isfile(path):
        return False
    # The holder may remove the file at any time. Closing the file releases the lock.
    with contextlib.suppress(FileNotFoundError, NoLocksError), open(path, "rb") as file:
        return not durable.lock(file, waits=False)
    return False


def _held(path: str) -> OptionError:
    try:
        values = parse_json(read_file(path))
        who = f"process {values['process']} on {values['host']}"
    except (OSError, ValueError, TypeError, KeyError):
        who = "another process"
    return OptionError(
        "output_dir",
        "be a folder in which nothing else trains",
        remedy=f"In {os.path.dirname(path)!r}, {who} does. Wait for it or stop it, or give another "
        "folder.",
    )


def model_folder() -> "tempfile.TemporaryDirectory[str]":
    """Returns a temporary folder for a model that a run converts from other files."""
    return tempfile.TemporaryDirectory(prefix=_MODEL)


def is_of_model_folder(value: object) -> bool:
    """Returns whether a value is a path in a folder of `model_folder`."""
    return isinstance(value, str) and value.startswith(os.path.join(tempfile.gettempdir(), _MODEL))


@contextlib.contextmanager
def scratch_folder(path: str, names: re.Pattern[str]) -> Iterator[str]:
    """Yields an empty temporary folder beside a file that a run writes.

    The next run removes the files that a killed run has left.

    Args:
      path: The file. If it is remote, the folder is in the system's temporary folder.
      names: The names of the files in the folder. No other files are removed.

    Raises:
      ValueError: where another process uses the folder, or something else has its name.
    """
    if is_remote(path):
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            yield folder
        return
    folder = f"{path}.partial"
    if strange := _find_foreign(folder, names):
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
        # Without locks, another run may be using the folder.
        with _folder_of_its_own(folder) as own:
            yield own
        return
    try:
        with lock:
            try:
                _clear_temporary(folder, names)
                yield folder
            finally:
                # The next run removes the rest, as long as the marker is there.
                with contextlib.suppress(OSError):
                    _clear_temporary(folder, names)
                    os.remove(marker)
    finally:
        # After closing the marker, since some file systems keep the name of an open file.
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


def _find_foreign(folder: str, names: re.Pattern[str]) -> str | None:
    """Returns a path in the folder that was not left by a run, or None."""
    if not os.path.lexists(folder):
        return None
    if os.path.islink(folder) or not os.path.isdir(folder):
        return folder
    entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    is_marked = any(entry.name == _MARKER for entry in entries)
    for entry in entries:
        is_own = is_marked and (entry.name == _MARKER or names.fullmatch(entry.name))
        if not is_own or not entry.is_file(follow_symlinks=False):
            return entry.path
    return None


def _clear_temporary(folder: str, names: re.Pattern[str]) -> None:
    for name in filter(names.fullmatch, os.listdir(folder)):
        os.remove(os.path.join(folder, name))

"""Durable writes: only complete files appear, whatever ends the process or the power.

They are local or anything else that `tf.io.gfile` writes, as in `bert.files.paths`.
"""

import contextlib
import errno
import os
import re
import shutil
import time
import uuid
from collections.abc import Collection, Iterator, Sequence
from typing import IO, Any, BinaryIO

from absl import logging

from bert.files.paths import file_system, is_remote, open_file, os_errors
from bert.files.signals import deferred_stop

# Ends the name of a folder whose place another one takes. Nobody calls a copy of his own so.
OLD = ".old.tmp"

# The name of a file that is being written, with a suffix that is different each time.
_TEMPORARY = re.compile(r"(.+)\.[0-9a-f]{32}\.tmp", re.DOTALL)


# How long the lock of a folder may be held without a word, and how often it is tried.
_SECONDS_OF_PATIENCE = 30.0
_SECONDS_BETWEEN_TRIES = 0.01


class NoLocksError(OSError):
    """Files cannot be locked here."""


@contextlib.contextmanager
def replace_files(paths: Sequence[str]) -> Iterator[list[BinaryIO]]:
    """Opens files for bytes that take the place of `paths` when the block ends.

    Where it ends with an exception, nothing of them remains, and what was there before does. The
    same goes for a loss of power: they are on the disk before they have their names.
    """
    opened: list[tuple[str, BinaryIO]] = []
    try:
        for path in paths:
            opened.append(open_beside(path))
        yield [file for _, file in opened]
        _put_in_place(paths, opened)
    except BaseException:
        discard(opened)
        raise


def _put_in_place(paths: Sequence[str], opened: Sequence[tuple[str, BinaryIO]]) -> None:
    """Renames written files, once all of them are complete on the disk."""
    for temporary, file in opened:
        with os_errors(temporary):
            if is_remote(temporary):
                file.close()
            else:
                file.flush()
                os.fsync(file.fileno())
    # Else some would be new and others old.
    with deferred_stop():
        for path, (temporary, _) in zip(paths, opened, strict=True):
            # A link stays a link.
            rename(temporary, path if is_remote(path) else os.path.realpath(path))
        # Not before: what is no longer locked is taken for a leftover.
        for _, file in opened:
            file.close()
        for folder in dict.fromkeys(os.path.dirname(temporary) for temporary, _ in opened):
            sync(folder)


def write_text(path: str, text: str) -> None:
    """Writes a text; readers find the old file or the complete new one."""
    with replace_files([path]) as (file,):
        file.write(text.encode())


def open_beside(path: str) -> tuple[str, BinaryIO]:
    """Opens a new file in the folder of `path`; returns its name, too."""
    tail = f".{uuid.uuid4().hex}.tmp"
    if is_remote(path):
        with os_errors(path):
            file = open_file(path + tail, "wb")
            file.write(b"")
            return path + tail, file
    # A link stays a link; a folder, a pipe or a device is no place for a file.
    path = os.path.realpath(path)
    if os.path.exists(path) and not os.path.isfile(path):
        raise OSError(f"{path!r} is not a regular file")
    folder, name = os.path.split(path)
    remove_leftovers(folder, [name])
    # Locked while it is written, and no longer, however the process ends. Another run that takes it
    # for a leftover just before holds it for a moment.
    return path + tail, open_locked(path + tail, waits=True)


def discard(opened: Sequence[tuple[str, BinaryIO]]) -> None:
    """Closes and removes what `open_beside` has opened."""
    for temporary, file in opened:
        # What went wrong is on its way already; clearing up must not hide it.
        with contextlib.suppress(OSError), os_errors(temporary):
            file.close()
        with contextlib.suppress(OSError):
            remove(temporary)


@contextlib.contextmanager
def replace_folder(place: str) -> Iterator[str]:
    """Gives the path of a folder to make, which takes the place of `place` when the block ends.

    Where the block ends with an exception, nothing of it remains, and what was there before does. A
    folder cannot be replaced in one step, so for a moment there is none; a process that is killed
    then leaves both beside, under the names `<place>.old.tmp` and `<place>.partial`.

    Args:
      place: Any path that `tf.io.gfile` writes, links followed.
    """
    partial = f"{place}.partial"
    _remove_folder(partial)
    try:
        yield partial
        sync_tree(partial)
        _exchange(partial, place, place + OLD)
    except BaseException:
        _remove_folder(partial)
        raise
    _remove_folder(place + OLD)


def _exchange(partial: str, place: str, old: str) -> None:
    """Renames `partial` to `place` and what is there to `old`; or nothing, if it fails."""
    gfile = file_system()
    if not gfile.exists(place):
        rename(partial, place)
    else:
        _remove_folder(old)
        with deferred_stop():
            try:
                rename(place, old)
                rename(partial, place)
            except BaseException:
                # A local one that is there has not gone yet, or is the new one.
                if gfile.exists(old) and (is_remote(place) or not gfile.exists(place)):
                    rename(old, place)
                raise
    sync(os.path.dirname(place))


def _remove_folder(folder: str) -> None:
    if file_system().exists(folder):
        remove(folder)


def remove_leftovers(folder: str, names: Collection[str]) -> None:
    """Removes what runs have left that were killed while they wrote files of a local folder.

    Only files of the names that `open_beside` gives for these, and which no process holds.
    """
    # What cannot be seen, opened or locked here is left alone.
    with contextlib.suppress(OSError):
        for each in os.listdir(folder):
            match = _TEMPORARY.fullmatch(each)
            if not match or match[1] not in names:
                continue
            path = os.path.join(folder, each)
            with contextlib.suppress(OSError), open_file(path, "r+b") as file:
                if lock(file, waits=False):
                    os.remove(path)


def open_locked(path: str, *, waits: bool = False, required: bool = False) -> BinaryIO:
    """Opens a local file to read and to write, made if it is not there, with a lock on it.

    Args:
      path: A link is not followed to a file that is something else.
      waits: Whether to wait for another process that holds it.
      required: Whether to fail where there are no locks, rather than to go on without one.

    Raises:
      BlockingIOError: where another process holds it.
      NoLocksError: as `required`.
    """
    while True:
        # Neither cut nor moved to its end.
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o666)
        file = os.fdopen(descriptor, "r+b")
        with contextlib.ExitStack() as stack:
            stack.callback(file.close)
            try:
                if not lock(file, waits=waits):
                    raise BlockingIOError(errno.EAGAIN, "Another process holds it", path)
            except NoLocksError:
                if required:
                    raise
            # Its holder may have removed or renamed it since it was opened: open it again.
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.stat(path), os.fstat(descriptor)):
                    stack.pop_all()
                    return file


def lock(file: IO[Any] | int, *, waits: bool = True) -> bool:
    """Locks a local file until it is closed or the process ends.

    Args:
      file: Open, or the number of what is open, such as a folder.
      waits: Whether to wait for another process that holds it.

    Returns:
      Whether it is locked; False where another process holds it.

    Raises:
      NoLocksError: as its name says.
    """
    try:
        import fcntl  # noqa: PLC0415 (not everywhere)
    except ImportError as error:
        raise NoLocksError(str(error)) from error
    try:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if waits else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except OSError as error:
        raise NoLocksError(*error.args) from error
    return True


@contextlib.contextmanager
def locked_folder(folder: str) -> Iterator[None]:
    """Keeps other processes from doing what they do with the same folder under this lock.

    Where there are no locks, it does nothing.
    """
    with contextlib.ExitStack() as stack:
        # Windows does not open folders.
        with contextlib.suppress(OSError):
            if not is_remote(folder):
                descriptor = os.open(folder or ".", os.O_RDONLY)
                stack.callback(os.close, descriptor)
                _lock_patiently(descriptor, folder)
        yield


def _lock_patiently(descriptor: int, folder: str) -> None:
    """Waits for the lock of a folder, and warns if that takes long, for nobody holds it long."""
    began = time.monotonic()
    while not lock(descriptor, waits=False):
        if time.monotonic() - began > _SECONDS_OF_PATIENCE:
            logging.warning(
                "Another process holds a lock on the folder %r itself, as `flock` does. Waiting "
                "for it; lock a file instead of the folder.",
                folder or ".",
            )
            lock(descriptor)
            return
        time.sleep(_SECONDS_BETWEEN_TRIES)


def rename(old: str, new: str) -> None:
    """Gives a file, or a folder where there is none yet, another name.

    A file or a link that has that name is replaced.
    """
    if is_remote(new):
        with os_errors(new):
            file_system().rename(old, new, overwrite=True)
    else:
        os.replace(old, new)


def make_folders(path: str) -> None:
    """Makes a folder, and those above it, as far as they are not there."""
    if is_remote(path):
        with os_errors(path):
            file_system().makedirs(path)
    else:
        os.makedirs(path, exist_ok=True)


def remove(path: str) -> None:
    """Removes a file, or a folder with all that is in it; of a link, the link alone."""
    if is_remote(path):
        gfile = file_system()
        with os_errors(path):
            (gfile.rmtree if gfile.isdir(path) else gfile.remove)(path)
    elif os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    else:
        os.remove(path)


def sync(path: str) -> None:
    """Waits until a file, or the names in a folder, would outlive a loss of power.

    Other file systems than the local ones see to that themselves.
    """
    if is_remote(path):
        return
    try:
        descriptor = os.open(path or ".", os.O_RDONLY)
    except PermissionError:
        # Who may write to a folder need not be allowed to read it.
        return
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some file systems cannot do it for a folder.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)


def sync_tree(folder: str) -> None:
    """Does as `sync` for a folder and all that is in it."""
    if is_remote(folder):
        return
    for inner, _, names in os.walk(folder):
        for name in names:
            sync(os.path.join(inner, name))
        sync(inner)

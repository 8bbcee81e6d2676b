"""Durable writes: after a kill or a loss of power, a file is complete or absent.

Paths are local or on any file system that `tf.io.gfile` writes, as in `bert.files.paths`.
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

from bert.files.paths import file_system, hidden_path, is_remote, open_file, os_errors, real_path
from bert.files.process import deferred_stop
from bert.log import logger

# The suffix of a folder that is being replaced, unlikely for a user's own copy.
OLD = ".old.tmp"

# The name of a file that is being written, with an ending that is different each time. A dot in
# front hides it from patterns such as `train.tfrecord*`; earlier versions put none there.
_TEMPORARY = re.compile(r"(\.?)(.+)\.[0-9a-f]{32}\.tmp", re.DOTALL)


# After how long a wait for the lock of a folder is logged, and the time between attempts.
_SECONDS_OF_PATIENCE = 30.0
_SECONDS_BETWEEN_TRIES = 0.01


class NoLocksError(OSError):
    """The system or the file system cannot lock files."""


@contextlib.contextmanager
def replace_files(paths: Sequence[str]) -> Iterator[list[BinaryIO]]:
    """Opens temporary binary files that replace `paths` when the block ends.

    After an exception or a loss of power, the previous files remain: new files are on the disk
    before they are renamed.
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
    """Renames written files when all of them are complete on the disk."""
    for temporary, file in opened:
        with os_errors(temporary):
            if is_remote(temporary):
                file.close()
            else:
                file.flush()
                os.fsync(file.fileno())
    # A stop here would leave some files new and some old.
    with deferred_stop():
        for path, (temporary, _) in zip(paths, opened, strict=True):
            # A link stays a link.
            rename(temporary, real_path(path))
        # Closed only now, since an unlocked temporary file counts as a leftover.
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
    # The file that a link leads to is replaced, not the link.
    path = real_path(path)
    folder, name = os.path.split(path)
    temporary = hidden_path(path, f"{uuid.uuid4().hex}.tmp")
    if is_remote(path):
        with os_errors(path):
            file = open_file(temporary, "wb")
            file.write(b"")
            return temporary, file
    if os.path.exists(path) and not os.path.isfile(path):
        raise OSError(f"{path!r} is not a regular file")
    remove_leftovers(folder, [name])
    # The lock ends with the process. Another run may hold it for a moment, to see whether this is a
    # leftover.
    return temporary, open_locked(temporary, waits=True)


def discard(opened: Sequence[tuple[str, BinaryIO]]) -> None:
    """Closes and removes files of `open_beside`."""
    for temporary, file in opened:
        # The exception that is being raised must not be hidden.
        with contextlib.suppress(OSError), os_errors(temporary):
            file.close()
        with contextlib.suppress(OSError):
            remove(temporary)


@contextlib.contextmanager
def replace_folder(place: str) -> Iterator[str]:
    """Yields the path of a folder to make, which replaces `place` when the block ends.

    After an exception, the previous folder remains. A folder cannot be replaced in one step: a
    process that is killed between the two leaves both, as `<place>.old.tmp` and `<place>.partial`.

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
    """Renames `place` to `old`, and `partial` to `place`; undoes the first if the second fails."""
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
                # A local `place` that exists was not renamed yet, or is the new folder.
                if gfile.exists(old) and (is_remote(place) or not gfile.exists(place)):
                    rename(old, place)
                raise
    sync(os.path.dirname(place))


def _remove_folder(folder: str) -> None:
    if file_system().exists(folder):
        remove(folder)


def remove_leftovers(folder: str, names: Collection[str]) -> None:
    """Removes the temporary files that killed runs have left beside local files.

    Only unlocked files with the names of `open_beside` for `names` are removed.
    """
    # Files that cannot be listed, opened or locked stay.
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):
            match = _TEMPORARY.fullmatch(name)
            if not match or {match[2], match[1] + match[2]}.isdisjoint(names):
                continue
            path = os.path.join(folder, name)
            with contextlib.suppress(OSError), open_file(path, "r+b") as file:
                if lock(file, waits=False):
                    os.remove(path)


def open_locked(path: str, *, waits: bool = False, required: bool = False) -> BinaryIO:
    """Opens a local file to read and write, created if it does not exist, and locks it.

    Args:
      path: The file; a link is not followed.
      waits: Whether to wait for another process that holds the lock.
      required: Whether to raise where files cannot be locked, rather than open without a lock.

    Raises:
      BlockingIOError: where another process holds the lock.
      NoLocksError: where files cannot be locked, if a lock is required.
    """
    while True:
        # The file is neither truncated nor positioned at its end.
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
            # Opened again if the previous holder has removed or renamed it.
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.stat(path), os.fstat(descriptor)):
                    stack.pop_all()
                    return file


def lock(file: IO[Any] | int, *, waits: bool = True) -> bool:
    """Locks a local file until it is closed or the process ends.

    Args:
      file: An open file, or a descriptor, also of a folder.
      waits: Whether to wait for another process that holds the lock.

    Returns:
      True, or False where another process holds the lock.

    Raises:
      NoLocksError: where files cannot be locked.
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
    """Holds a lock on a local folder during a block, if the folder can be locked."""
    with contextlib.ExitStack() as stack:
        # Windows does not open folders.
        with contextlib.suppress(OSError):
            if not is_remote(folder):
                descriptor = os.open(folder or ".", os.O_RDONLY)
                stack.callback(os.close, descriptor)
                _lock_patiently(descriptor, folder)
        yield


def _lock_patiently(descriptor: int, folder: str) -> None:
    """Waits for the lock of a folder, and warns after a time that no run of ours would take."""
    began = time.monotonic()
    while not lock(descriptor, waits=False):
        if time.monotonic() - began > _SECONDS_OF_PATIENCE:
            logger.warning(
                "Another process holds a lock on the folder %r itself, as `flock` does. Waiting "
                "for it; lock a file instead of the folder.",
                folder or ".",
            )
            lock(descriptor)
            return
        time.sleep(_SECONDS_BETWEEN_TRIES)


def rename(old: str, new: str) -> None:
    """Renames a file, or a folder; `new` must not be a folder, a file or a link is replaced."""
    if is_remote(new):
        with os_errors(new):
            file_system().rename(old, new, overwrite=True)
    else:
        os.replace(old, new)


def make_folders(path: str) -> None:
    """Creates a folder and its missing parents."""
    if is_remote(path):
        with os_errors(path):
            file_system().makedirs(path)
    else:
        os.makedirs(path, exist_ok=True)


def remove(path: str) -> None:
    """Removes a file, a link, or a folder with its content."""
    if is_remote(path):
        gfile = file_system()
        with os_errors(path):
            (gfile.rmtree if gfile.isdir(path) else gfile.remove)(path)
    elif os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    else:
        os.remove(path)


def sync(path: str) -> None:
    """Waits until a local file, or the names in a folder, would survive a loss of power."""
    if is_remote(path):
        return
    try:
        descriptor = os.open(path or ".", os.O_RDONLY)
    except PermissionError:
        # A folder may be writable but not readable.
        return
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some file systems cannot sync a folder.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)


def sync_tree(folder: str) -> None:
    """Applies `sync` to a folder and its content."""
    if is_remote(folder):
        return
    for inner, _, names in os.walk(folder):
        for name in names:
            sync(os.path.join(inner, name))
        sync(inner)

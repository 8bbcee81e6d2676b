"""Paths: files found, read, and written so that only whole ones appear.

They are local or anything else that `tf.io.gfile` reads. TensorFlow is imported for the latter and
for patterns only: that takes longer than the rest of a small corpus's preparation.
"""

import contextlib
import errno
import gzip
import os
import re
import shutil
import sys
import uuid
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import IO, Any, BinaryIO

from bert.command_line.checks import is_checking
from bert.files.places import check_folder, check_place, is_remote

WILDCARDS = frozenset("*?[\\")

# Names of a folder's content that fit into a message.
_NAMES_SHOWN = 12

# What follows the name of a file that is being written.
_TEMPORARY = re.compile(r"\.[0-9a-f]{32}\.tmp")

# Names of a model's weights, and of the files beside them without which it is none.
_WEIGHTS = r"saved_model\.pb|.+\.(index|data-\d{5}-of-\d{5}|safetensors|h5)"
_MODEL_FILES = re.compile(
    rf"{_WEIGHTS}|.+\.meta|.+\.index\.json|checkpoint|vocab\.txt|(bert_)?config\.json|task\.json"
    r"|tokenizer(_config)?\.json|special_tokens_map\.json"
)


def _tensorflow() -> Any:
    from bert.command_line import quiet_import  # noqa: F401, I001, PLC0415
    import tensorflow as tf  # noqa: PLC0415

    return tf


def _gfile() -> Any:
    return _tensorflow().io.gfile


def file_system() -> Any:
    """Returns `tf.io.gfile`."""
    return _gfile()


@contextlib.contextmanager
def _os_errors(path: str) -> Iterator[None]:
    """Makes an `OSError` of what TensorFlow raises for a path that is not local."""
    if not is_remote(path):
        yield
        return
    errors = _tensorflow().errors
    try:
        yield
    except errors.NotFoundError as error:
        raise FileNotFoundError(error.message) from error
    except errors.OpError as error:
        raise OSError(error.message) from error


def match_files(patterns: str, flag: str) -> list[str]:
    """Returns the files that a comma-separated list of paths or patterns names, in its order.

    Args:
      patterns: Anything that `tf.io.gfile.glob` takes.
      flag: The flag that gave them, for the message.

    Raises:
      ValueError: where a pattern matches no file.
    """
    files: list[str] = []
    for pattern in patterns.split(","):
        # Departs: the original reads what a pattern matches in the order of the file system, which
        # differs from one copy of a folder to the next.
        matched = sorted(_match(pattern.strip()))
        if not matched:
            raise ValueError(f"`--{flag}` must name existing files. {pattern!r} matches none.")
        files.extend(matched)
    return files


def _match(pattern: str) -> list[str]:
    if not is_remote(pattern):
        if os.path.isfile(pattern):
            return [pattern]
        if not WILDCARDS & set(pattern):
            return []
    gfile = _gfile()
    with _os_errors(pattern):
        matched = [path for path in gfile.glob(pattern) if not gfile.isdir(path)]
    indexes = set(map(index_path, matched))
    return [path for path in matched if path not in indexes]


def index_path(path: str) -> str:
    """Returns where the index of a TFRecord file is, where it has one.

    Its name begins with a dot, so that a pattern such as `train.tfrecord*` does not match it for
    the original, which would read it as records.
    """
    folder, name = os.path.split(path)
    return os.path.join(folder, f".{name}.index")


def open_file(path: str, mode: str = "rb") -> BinaryIO:
    """Opens a file of bytes."""
    if not is_remote(path):
        return open(path, mode)  # type: ignore[return-value]
    return _gfile().GFile(path, mode)


def read_file(path: str) -> bytes:
    """Returns what a file holds.

    Raises:
      OSError: where it cannot be read, on other file systems too.
    """
    with _os_errors(path), open_file(path) as file:
        return file.read()


def file_size(path: str) -> int:
    """Returns the size in bytes, as stored."""
    if not is_remote(path):
        return os.path.getsize(path)
    gfile = _gfile()
    with _os_errors(path):
        return int(gfile.stat(path).length)


def read_lines(path: str) -> Iterator[tuple[bytes, int]]:
    """Yields each line with the number of bytes read from the file so far.

    What begins like a gzip file is unpacked, whatever its name.

    Raises:
      ValueError: where a gzip file is damaged.
    """
    with open_file(path) as file:
        is_gzip = file.read(2) == b"\x1f\x8b"
        file.seek(0)
        lines: Any = gzip.GzipFile(fileobj=file) if is_gzip else file
        count = 0
        try:
            for line in lines:
                # Where a gzip file stands is known; elsewhere counting is cheaper than asking.
                count = file.tell() if is_gzip else count + len(line)
                yield line, count
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise ValueError(f"{path!r} must be a whole gzip file. Received: {error}.") from error


def check_outputs(
    paths: Sequence[str],
    inputs: Sequence[str],
    flag: str,
    may_replace: Callable[[str], bool] | None = None,
) -> None:
    """Checks that files can be written, before what goes into them is made.

    Args:
      paths: The files to write.
      inputs: Files that must not be among them.
      flag: The flag that gave the paths, for the messages.
      may_replace: Whether a file that is there may go. A model's never may, an empty one always;
        None for files of a run's own folder.

    Raises:
      ValueError: naming the flag and the path.
    """
    read = {os.path.realpath(path) for path in inputs}
    seen: set[str] = set()
    for path in paths:
        place = path if is_remote(path) else os.path.realpath(path)
        if not path:
            raise ValueError(f"`--{flag}` must name files. Received an empty name among {paths}.")
        if place in seen:
            raise ValueError(f"`--{flag}` must name each file once. Received {path!r} again.")
        if place in read:
            raise ValueError(f"`--{flag}` must not name an input file. Received {path!r}.")
        seen.add(place)
    try:
        for path in paths:
            if may_replace and is_file(path) and file_size(path):
                _check_replaced(path, flag, may_replace)
            if not is_checking():
                _discard([_open_beside(path)])
            else:
                check_place(path, within_new=may_replace is None)
    except OSError as error:
        raise ValueError(f"`--{flag}` must name files that can be written. {error}.") from error


def _check_replaced(path: str, flag: str, may_replace: Callable[[str], bool]) -> None:
    """Checks that the file at `path` may go."""
    if weights := _model_of(path):
        raise ValueError(
            f"`--{flag}` must not name a file of a model. Received {path!r}, which belongs to "
            f"{weights!r}. Give another name."
        )
    if not may_replace(path):
        raise ValueError(
            f"`--{flag}` must name a new file. Received {path!r}, which is there. Give another "
            "name, or `--overwrite` to replace it."
        )


def _model_of(path: str) -> str | None:
    """Returns weights to which a file belongs, by its name and place, or None."""
    place = path if is_remote(path) else os.path.realpath(path)
    folder, name = os.path.split(place)
    if not _MODEL_FILES.fullmatch(name):
        return None
    if os.path.basename(folder) == "assets":
        # Of a module of TensorFlow Hub.
        folder = os.path.dirname(folder)
    # Hidden is the index of records.
    names = [
        each
        for each in list_folder(folder)
        if re.fullmatch(_WEIGHTS, each) and not each.startswith(".")
    ]
    return os.path.join(folder, name if name in names else names[0]) if names else None


@contextlib.contextmanager
def replace_files(paths: Sequence[str]) -> Iterator[list[BinaryIO]]:
    """Opens files for bytes that take the place of `paths` when the block ends.

    Where it ends with an exception, nothing of them remains, and what was there before does. The
    same goes for a loss of power: they are on the disk before they have their names.
    """
    opened: list[tuple[str, BinaryIO]] = []
    try:
        for path in paths:
            opened.append(_open_beside(path))
        yield [file for _, file in opened]
        _put_in_place(paths, opened)
    except BaseException:
        _discard(opened)
        raise


def _put_in_place(paths: Sequence[str], opened: Sequence[tuple[str, BinaryIO]]) -> None:
    """Gives written files their names, none before all are whole on the disk."""
    for temporary, file in opened:
        with _os_errors(temporary):
            if is_remote(temporary):
                file.close()
            else:
                file.flush()
                os.fsync(file.fileno())
    for path, (temporary, _) in zip(paths, opened, strict=True):
        # A link stays a link.
        rename(temporary, path if is_remote(path) else os.path.realpath(path))
    # Not before: what is no longer locked is taken for a leftover.
    for _, file in opened:
        file.close()
    for folder in dict.fromkeys(os.path.dirname(temporary) for temporary, _ in opened):
        sync(folder)


@contextlib.contextmanager
def open_output(path: str) -> Iterator[BinaryIO]:
    """Opens `--output_file`: standard output for -, else a file that appears when it is whole."""
    if path == "-":
        yield sys.stdout.buffer
        return
    with replace_files([path]) as (file,):
        yield file


def rename(old: str, new: str) -> None:
    """Gives a file, or a folder where there is none yet, another name.

    A file or a link that has that name is replaced.
    """
    if is_remote(new):
        with _os_errors(new):
            _gfile().rename(old, new, overwrite=True)
    else:
        os.replace(old, new)


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


def remove(path: str) -> None:
    """Removes a file, or a folder with all that is in it; of a link, the link alone."""
    if is_remote(path):
        gfile = _gfile()
        with _os_errors(path):
            (gfile.rmtree if gfile.isdir(path) else gfile.remove)(path)
    elif os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    else:
        os.remove(path)


def _open_beside(path: str) -> tuple[str, BinaryIO]:
    """Opens a new file in the folder of `path`; returns its name, too."""
    if is_remote(path):
        temporary = f"{path}.{uuid.uuid4().hex}.tmp"
        with _os_errors(path):
            file = open_file(temporary, "wb")
            file.write(b"")
            return temporary, file
    # A link stays a link; a folder, a pipe or a device is no place for a file.
    path = os.path.realpath(path)
    if os.path.exists(path) and not os.path.isfile(path):
        raise OSError(f"{path!r} is not a regular file")
    remove_leftovers(path)
    while True:
        temporary = f"{path}.{uuid.uuid4().hex}.tmp"
        file = open_file(temporary, "xb")
        # Held while it is written, and no longer, however the process ends. Some file systems know
        # no locks.
        with contextlib.suppress(OSError):
            lock(file)
        # Another run may have taken it for a leftover just before.
        if os.fstat(file.fileno()).st_nlink:
            return temporary, file
        file.close()


def lock(file: IO[Any] | int, *, waits: bool = True) -> bool:
    """Locks a local file until it is closed or the process ends.

    Args:
      file: Open, or the number of what is open, such as a folder.
      waits: Whether to wait for another process that holds it.

    Returns:
      Whether it is locked; False where another process holds it.

    Raises:
      OSError: where there are no locks.
    """
    try:
        import fcntl  # noqa: PLC0415 (not everywhere)
    except ImportError as error:
        raise OSError(str(error)) from error
    try:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if waits else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    return True


@contextlib.contextmanager
def locked_folder(folder: str) -> Iterator[None]:
    """Keeps other processes from doing what they do with the same folder under this lock.

    Where there are no locks, they are not kept from it.
    """
    with contextlib.ExitStack() as stack:
        # Windows does not open folders.
        with contextlib.suppress(OSError):
            if not is_remote(folder):
                descriptor = os.open(folder or ".", os.O_RDONLY)
                stack.callback(os.close, descriptor)
                lock(descriptor)
        yield


def remove_leftovers(path: str) -> None:
    """Removes what runs have left that were killed while they wrote `path`.

    Only files of the names that `_open_beside` gives, and which no process holds.
    """
    folder, name = os.path.split(path)
    # What cannot be seen, opened or locked here is left alone.
    with contextlib.suppress(OSError):
        for each in os.listdir(folder):
            if not each.startswith(name) or not _TEMPORARY.fullmatch(each, len(name)):
                continue
            temporary = os.path.join(folder, each)
            with open_file(temporary, "r+b") as file:
                if lock(file, waits=False):
                    os.remove(temporary)


def _discard(opened: Sequence[tuple[str, BinaryIO]]) -> None:
    for temporary, file in opened:
        # What went wrong is on its way already; clearing up must not hide it.
        with contextlib.suppress(OSError), _os_errors(temporary):
            file.close()
        with contextlib.suppress(OSError):
            remove(temporary)


def is_file(path: str) -> bool:
    """Returns whether a file is there, on any file system that `tf.io.gfile` knows."""
    if not is_remote(path):
        return os.path.isfile(path)
    gfile = _gfile()
    with _os_errors(path):
        return gfile.exists(path) and not gfile.isdir(path)


def list_folder(folder: str) -> list[str]:
    """Returns the names within a folder in alphabetical order, none if it is not there."""
    if not is_remote(folder):
        return sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    try:
        paths = match_files(os.path.join(folder, "*"), "data_dir")
    except ValueError:
        return []
    return [os.path.basename(path) for path in paths]


def describe_folder(folder: str) -> str:
    """Returns what to say of a folder in which something was not found."""
    names = list_folder(folder)
    if names:
        more = f" and {len(names) - _NAMES_SHOWN} more" if len(names) > _NAMES_SHOWN else ""
        return f"{folder!r}, which holds {names[:_NAMES_SHOWN]}{more}"
    if is_remote(folder) or os.path.isdir(folder):
        return f"{folder!r}, which is empty"
    return f"{folder!r}, which is not a folder"


def find_file(folder: str, names: Mapping[str, Any] | Iterable[str]) -> str | None:
    """Returns the path of the first of these names that is a file in a folder."""
    paths = (os.path.join(folder, name) for name in names)
    return next(filter(is_file, paths), None)


def paths_from(start: str) -> list[str]:
    """Returns the paths of files that begin so; a folder's name may hold `*` or `[`."""
    folder, beginning = os.path.split(start)
    gfile = _gfile()
    names = sorted(gfile.listdir(folder)) if gfile.isdir(folder) else []
    return [os.path.join(folder, name) for name in names if name.startswith(beginning)]


def write_text(path: str, text: str) -> None:
    """Writes `text` to `path`; whoever reads finds the old file or the whole new one."""
    with replace_files([path]) as (file,):
        file.write(text.encode())


def make_folder(output_dir: str) -> None:
    """Makes the folder if need be, and tries whether it can be written.

    Raises:
      ValueError: where it cannot.
    """
    tf = _tensorflow()
    if is_checking():
        check_folder(output_dir)
        return
    try:
        if not tf.io.gfile.isdir(output_dir):
            tf.io.gfile.makedirs(output_dir)
            sync(os.path.dirname(output_dir.rstrip("/")))
        check_outputs([os.path.join(output_dir, "checkpoint")], [], "output_dir")
    except tf.errors.OpError as error:
        raise ValueError(
            f"`--output_dir` must be a folder that can be written. Received {output_dir!r}: "
            f"{error.message}"
        ) from error


# Without this file, a folder is none of ours to replace.
_SAVED_GRAPH = "saved_model.pb"


def check_saved_model(folder: str) -> str:
    """Returns the place of `folder`, links followed, if a SavedModel may be written there.

    Raises:
      ValueError: where there is something else than a SavedModel.
    """
    place = folder if is_remote(folder) else os.path.realpath(folder)
    place = place.rstrip("/")
    gfile = _gfile()
    if gfile.exists(place) and not gfile.exists(os.path.join(place, _SAVED_GRAPH)):
        if gfile.isdir(place) and not gfile.listdir(place):
            return place
        raise ValueError(
            f"A SavedModel must be written to a new folder, or replace another SavedModel. "
            f"Received {folder!r}, which holds no {_SAVED_GRAPH!r}. Give another folder, or remove "
            "that one."
        )
    return place

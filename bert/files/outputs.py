"""Checks output files and folders before anything is computed, and opens them."""

import contextlib
import errno
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import BinaryIO, cast

from bert.files.display import no_bars, visible_lines
from bert.files.durable import discard, make_folders, open_beside, replace_files, sync
from bert.files.machine import allow_open_files
from bert.files.paths import file_system, is_file, is_folder, is_remote, list_folder, real_path
from bert.files.stored_models import SAVED_MODEL_FILE, is_of_model, is_weights
from bert.options import Message, MessageError, Option, OptionError

# Open files besides the outputs: how many there may be, and how many there always are.
_OTHER_FILES = 64
_FEWEST_OTHERS = 16
_NUM_SHARDS = Option("num_shards")


def name_shards(output_file: str, num_shards: int | None) -> list[str]:
    """Returns the names of the files that `output_file` and `num_shards` request.

    Args:
      output_file: A name, or several with commas between them.
      num_shards: The number of files, whose numbers end their names; None for the names alone.

    Raises:
      OptionError: where there are several names for numbered files.
    """
    names = output_file.split(",")
    if num_shards is not None:
        if len(names) > 1:
            raise OptionError(
                "output_file",
                Message("be one name where %s is given, which numbers the files", _NUM_SHARDS),
                output_file,
                "Leave one of them out.",
            )
        names = [f"{output_file}-{number:05}-of-{num_shards:05}" for number in range(num_shards)]
    return names


def check_open_files(paths: Sequence[str]) -> None:
    """Raises the limit on open files for these files and their indexes.

    Raises:
      MessageError: where the system does not allow so many.
    """
    count = 2 * sum(not is_remote(path) for path in paths)
    most = allow_open_files(count + _OTHER_FILES)
    if most is not None and most < count + _FEWEST_OTHERS:
        raise MessageError(
            "There must be at most %s output files, for no more may be open at once. Received %s. "
            "Lower %s, or raise what `ulimit -n` says.",
            (most - _FEWEST_OTHERS) // 2,
            len(paths),
            _NUM_SHARDS,
        )


def check_outputs(
    paths: Sequence[str],
    inputs: Sequence[str],
    option: str,
    may_replace: Callable[[str], bool],
) -> None:
    """Checks that files can be written, before their content is computed; writes nothing.

    Args:
      paths: The files to write.
      inputs: Files that must not be written.
      option: The name of the option that has the paths, for the messages.
      may_replace: Whether an existing file may be replaced; a file of a model never may.

    Raises:
      OptionError: naming the option and the path.
    """
    read = {*map(real_path, inputs)}
    seen: set[str] = set()
    for path in paths:
        place = real_path(path)
        if not path:
            raise OptionError(option, "name files", Message("an empty name among %s", [*paths]))
        if place in seen:
            raise OptionError(option, "name each file once", Message("%r again", path))
        if place in read:
            raise OptionError(option, "not name an input file", path)
        seen.add(place)
    with _write_errors(option):
        for path in paths:
            check_replaced(path, option, may_replace)
            _check_place(path)


def try_outputs(paths: Sequence[str], option: str) -> None:
    """Creates and removes files beside `paths`, since a file system may refuse writes.

    Raises:
      OptionError: where a file cannot be written; - for standard output always can.
    """
    with _write_errors(option):
        for path in paths:
            if path != "-":
                discard([open_beside(path)])


@contextlib.contextmanager
def _write_errors(option: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        must = "name files that can be written"
        raise OptionError(option, must, remedy=f"{error}.") from error


def check_replaced(path: str, option: str, may_replace: Callable[[str], bool]) -> None:
    """Raises `OptionError` where an existing file must not be replaced."""
    if not is_file(path):
        return
    if weights := _model_of(path):
        received = Message("%r, which belongs to %r", path, weights)
        raise OptionError(option, "not name a file of a model", received, "Give another name.")
    if not may_replace(path):
        remedy = Message("Give another name, or %s to replace it.", Option("overwrite", True))
        raise OptionError(option, "name a new file", Message("%r, which is there", path), remedy)


def _model_of(path: str) -> str | None:
    """Returns the weights that a file belongs to, by its name and folder, or None."""
    folder, name = os.path.split(real_path(path))
    if not is_of_model(name):
        return None
    if os.path.basename(folder) == "assets":
        # A module of TensorFlow Hub has its vocabulary there.
        folder = os.path.dirname(folder)
    names = list(filter(is_weights, list_folder(folder)))
    return os.path.join(folder, name if name in names else names[0]) if names else None


class _Terminal:
    """A terminal to which control characters are written as escapes."""

    def __init__(self, stream: BinaryIO) -> None:
        self.flush = stream.flush
        self._stream = stream

    def write(self, content: bytes) -> int:
        shown = visible_lines(content.decode("utf-8", "replace"))
        self._stream.write(shown.encode("utf-8", "replace"))
        return len(content)


@contextlib.contextmanager
def open_output(path: str) -> Iterator[BinaryIO]:
    """Opens an output: standard output for -, or a file that appears when it is complete."""
    if path != "-":
        with replace_files([path]) as (file,):
            yield file
    elif sys.stdout.isatty():
        # A progress bar would be drawn between the lines.
        with no_bars():
            yield cast(BinaryIO, _Terminal(sys.stdout.buffer))
    else:
        yield sys.stdout.buffer


def make_folder(output_dir: str, option: str = "output_dir") -> None:
    """Creates an output folder if it does not exist, and checks that it can be written.

    Raises:
      OptionError: where it cannot, naming the option.
    """
    if os.path.islink(output_dir):
        check_folder(output_dir, option)
    try:
        if not is_folder(output_dir):
            make_folders(output_dir)
            sync(os.path.dirname(output_dir.rstrip("/")))
    except OSError as error:
        raise _folder_error(option, Message("%r: %s", output_dir, str(error))) from error
    try_outputs([os.path.join(output_dir, "checkpoint")], option)


def check_folder(output_dir: str, option: str = "output_dir") -> None:
    """Checks that a folder can be written, or created in its first existing parent.

    Raises:
      OptionError: where it cannot, naming the option.
    """
    if is_remote(output_dir):
        return
    place = os.path.realpath(output_dir)
    if os.path.islink(output_dir) and not os.path.lexists(place):
        received = Message("%r, a link to %r, which is not there", output_dir, place)
        raise _folder_error(option, received, "Make that folder, or remove the link.")
    while not os.path.lexists(place):
        place = os.path.dirname(place)
    if problem := _problem(place):
        raise _folder_error(option, Message("%r: %r: %s", output_dir, place, os.strerror(problem)))


def _folder_error(option: str, received: Message, remedy: str = "") -> OptionError:
    return OptionError(option, "be a folder that can be written", received, remedy)


def check_saved_model(folder: str, file: str = SAVED_MODEL_FILE) -> str:
    """Returns the real path of a folder, if an exported model may be written there.

    Args:
      folder: The folder of the exported model.
      file: A file that every folder with such a model has.

    Raises:
      ValueError: where the folder has something else in it.
    """
    place = real_path(folder).rstrip("/")
    gfile = file_system()
    if gfile.exists(place) and not gfile.exists(os.path.join(place, file)):
        if gfile.isdir(place) and not gfile.listdir(place):
            return place
        kind = "A SavedModel" if file == SAVED_MODEL_FILE else "An exported model"
        raise ValueError(
            f"{kind} must be written to a new folder, or replace another of its kind. "
            f"Received {folder!r}, which holds no {file!r}. Give another folder, or "
            "remove that one."
        )
    return place


def _check_place(path: str) -> None:
    """Raises `OSError` where a local file cannot be written, by the permissions of its folder."""
    if is_remote(path):
        return
    path = os.path.realpath(path)
    if os.path.exists(path) and not os.path.isfile(path):
        raise OSError(f"{path!r} is not a regular file")
    folder = os.path.dirname(path)
    if problem := _problem(folder):
        raise OSError(problem, os.strerror(problem), folder)


def _problem(folder: str) -> int:
    """Returns the number of the error that a write in a folder would raise, or 0."""
    if not os.path.isdir(folder):
        return errno.ENOTDIR if os.path.lexists(folder) else errno.ENOENT
    return 0 if os.access(folder, os.W_OK | os.X_OK) else errno.EACCES

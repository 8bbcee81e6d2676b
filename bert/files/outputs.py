"""What a command is told to write: checked before anything is made."""

import contextlib
import errno
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import BinaryIO, cast

from bert.commands.checks import is_checking
from bert.files.durable import discard, make_folders, open_beside, replace_files, sync
from bert.files.machine import allow_open_files
from bert.files.paths import file_size, file_system, is_file, is_folder, is_remote, list_folder
from bert.files.progress import no_bars
from bert.files.visible import visible_lines
from bert.files.weight_names import SAVED_MODEL_FILE, is_of_model, is_weights

# Files that may be open beside the outputs, and those that always are.
_OTHER_FILES = 64
_FEWEST_OTHERS = 16


def name_shards(output_file: str, num_shards: int | None) -> list[str]:
    """Returns the names of the files that `--output_file` and `--num_shards` ask for.

    Args:
      output_file: A name, or several with commas between them.
      num_shards: So many files, whose numbers are put behind the name; None for the names alone.

    Raises:
      ValueError: where there are several names for numbered files.
    """
    names = output_file.split(",")
    if num_shards is not None:
        if len(names) > 1:
            raise ValueError(
                "`--output_file` must be one name where `--num_shards` is given, which numbers the "
                f"files. Received {output_file!r}. Leave one of them out."
            )
        names = [f"{output_file}-{number:05}-of-{num_shards:05}" for number in range(num_shards)]
    return names


def check_open_files(paths: Sequence[str]) -> None:
    """Lets all of some files be open at once, each with its index.

    Raises:
      ValueError: where the system does not.
    """
    count = 2 * sum(not is_remote(path) for path in paths)
    most = allow_open_files(count + _OTHER_FILES)
    if most is not None and most < count + _FEWEST_OTHERS:
        raise ValueError(
            f"There must be at most {(most - _FEWEST_OTHERS) // 2} output files, for no more may "
            f"be open at once. Received {len(paths)}. Lower `--num_shards`, or raise what "
            "`ulimit -n` says."
        )


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
    read = {*map(_place, inputs)}
    seen: set[str] = set()
    for path in paths:
        place = _place(path)
        if not path:
            raise ValueError(f"`--{flag}` must name files. Received an empty name among {paths}.")
        if place in seen:
            raise ValueError(f"`--{flag}` must name each file once. Received {path!r} again.")
        if place in read:
            raise ValueError(f"`--{flag}` must not name an input file. Received {path!r}.")
        seen.add(place)
    try:
        for path in paths:
            if may_replace:
                check_replaced(path, flag, may_replace)
            if not is_checking():
                discard([open_beside(path)])
            else:
                check_place(path, within_new=may_replace is None)
    except OSError as error:
        raise ValueError(f"`--{flag}` must name files that can be written. {error}.") from error


def _place(path: str) -> str:
    """Returns where a file or a folder is, links followed."""
    return path if is_remote(path) else os.path.realpath(path)


def check_replaced(path: str, flag: str, may_replace: Callable[[str], bool]) -> None:
    """Raises `ValueError` where a file at `path` is there that must stay; as `check_outputs`."""
    if not is_file(path) or not file_size(path):
        return
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
    folder, name = os.path.split(_place(path))
    if not is_of_model(name):
        return None
    if os.path.basename(folder) == "assets":
        # Of a module of TensorFlow Hub.
        folder = os.path.dirname(folder)
    names = list(filter(is_weights, list_folder(folder)))
    return os.path.join(folder, name if name in names else names[0]) if names else None


class _Terminal:
    """Writes to a terminal what it does not obey."""

    def __init__(self, stream: BinaryIO) -> None:
        self.flush = stream.flush
        self._stream = stream

    def write(self, content: bytes) -> int:
        shown = visible_lines(content.decode("utf-8", "replace"))
        self._stream.write(shown.encode("utf-8", "replace"))
        return len(content)


@contextlib.contextmanager
def open_output(path: str) -> Iterator[BinaryIO]:
    """Opens `--output_file`: standard output for -, else a file that appears when it is whole."""
    if path == "-":
        # A bar would be drawn between the answers.
        if not sys.stdout.isatty():
            yield sys.stdout.buffer
            return
        with no_bars():
            yield cast(BinaryIO, _Terminal(sys.stdout.buffer))
        return
    with replace_files([path]) as (file,):
        yield file


def make_folder(output_dir: str) -> None:
    """Makes the folder if need be, and tries whether it can be written.

    Raises:
      ValueError: where it cannot.
    """
    if is_checking() or os.path.islink(output_dir):
        check_folder(output_dir)
    if is_checking():
        return
    try:
        if not is_folder(output_dir):
            make_folders(output_dir)
            sync(os.path.dirname(output_dir.rstrip("/")))
    except OSError as error:
        raise ValueError(
            f"`--output_dir` must be a folder that can be written. Received {output_dir!r}: {error}"
        ) from error
    check_outputs([os.path.join(output_dir, "checkpoint")], [], "output_dir")


def check_saved_model(folder: str, file: str = SAVED_MODEL_FILE) -> str:
    """Returns the place of `folder`, links followed, if an exported model may be written there.

    Args:
      folder: Where it is to be.
      file: The file that makes a folder that of such a model.

    Raises:
      ValueError: where there is something else.
    """
    place = _place(folder).rstrip("/")
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


def check_place(path: str, *, within_new: bool = False) -> None:
    """Checks that a file can be written.

    Args:
      path: The file.
      within_new: Whether its folder is made for it.

    Raises:
      OSError: where it cannot.
    """
    if is_remote(path):
        return
    path = os.path.realpath(path)
    if os.path.exists(path) and not os.path.isfile(path):
        raise OSError(f"{path!r} is not a regular file")
    folder = os.path.dirname(path)
    problem = _problem(folder)
    if problem and not (within_new and problem == errno.ENOENT):
        raise OSError(problem, os.strerror(problem), folder)


def check_folder(output_dir: str) -> None:
    """Checks that a folder can be written, or made within the first one above it that is there.

    Raises:
      ValueError: where it cannot.
    """
    if is_remote(output_dir):
        return
    place = os.path.realpath(output_dir)
    if os.path.islink(output_dir) and not os.path.lexists(place):
        raise ValueError(
            f"`--output_dir` must be a folder that can be written. Received {output_dir!r}, a link "
            f"to {place!r}, which is not there. Make that folder, or remove the link."
        )
    while not os.path.lexists(place):
        place = os.path.dirname(place)
    if problem := _problem(place):
        raise ValueError(
            f"`--output_dir` must be a folder that can be written. Received {output_dir!r}: "
            f"{place!r}: {os.strerror(problem)}."
        )


def _problem(folder: str) -> int:
    """Returns the number of the error that writing in a folder would end with, or 0."""
    if not os.path.isdir(folder):
        return errno.ENOTDIR if os.path.lexists(folder) else errno.ENOENT
    return 0 if os.access(folder, os.W_OK | os.X_OK) else errno.EACCES

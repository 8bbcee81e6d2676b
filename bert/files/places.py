"""Whether files can be written, by what their folders say: nothing is made or tried.

Of what is not local nothing is known.
"""

import errno
import os


def is_remote(path: str) -> bool:
    """Returns whether a path needs `tf.io.gfile`."""
    return "://" in path


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

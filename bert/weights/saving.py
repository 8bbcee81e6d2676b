"""Checkpoints of TensorFlow 1, written and removed."""

import errno
import functools
import os
import re
import shutil
from collections.abc import Collection, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from bert.files import durable, owned
from bert.files.paths import is_remote, paths_from
from bert.files.stored_models import PARTIAL, SUFFIXES, of_step, prefix_of
from bert.weights.checkpoint import CheckpointList
from bert.weights.formats import UnsoundError, find_not_finite
from bert.weights.variables import GLOBAL_STEP

# The ending of a checkpoint's name in the manifest while it is to be removed.
_GOING = ".going"
# Names that a variable of TensorFlow 1 can have; tensors of other programs may have others.
_VARIABLE = re.compile(r"[A-Za-z0-9.][A-Za-z0-9_.\\/>-]*")


def remove(prefix: str) -> None:
    """Removes a checkpoint of a run, its index first: without it, there is no checkpoint."""
    folder, stem = os.path.split(prefix)
    names = [name for name in owned.read_names(folder) if prefix_of(name) == stem]
    owned.remove(folder, [name for name in names if name.endswith(".index")])
    durable.sync(folder)
    owned.remove(folder, names)


def mark_for_removal(folder: str, names: Collection[str]) -> None:
    """Marks checkpoints of a run in the manifest, for `remove_marked`."""
    owned.adopt(folder, [name + _GOING for name in names])


def remove_marked(folder: str, but: Collection[str]) -> None:
    """Removes the marked checkpoints of a folder, also those of a process that was killed.

    Checkpoints named in `but` lose their mark and stay.
    """
    marks = [name for name in owned.read_names(folder) if name.endswith(_GOING)]
    for name in (mark.removesuffix(_GOING) for mark in marks):
        if name not in but:
            remove(os.path.join(folder, name))
    if marks:
        owned.remove(folder, marks)


def save_tensors(prefix: str, tensors: Mapping[str, np.ndarray | tf.Tensor]) -> None:
    """Writes a TF1 checkpoint of these tensors, which appears at `prefix` when complete.

    A loss of power, too, leaves the one that was there, or none, or the new one.

    Raises:
      UnsoundError: where a value is not finite; nothing is written.
    """
    arrays = {name: np.asarray(values) for name, values in tensors.items()}
    if problem := find_not_finite(arrays):
        raise UnsoundError(
            "Only finite numbers are saved. %s, so nothing was written to %r.",
            f"{problem[0].upper()}{problem[1:]}",
            prefix,
        )
    partial = f"{prefix}{PARTIAL}"
    try:
        _write_files(partial, tensors)
    except BaseException as error:
        for path in paths_from(partial):
            durable.remove(path)
        if isinstance(error, OSError | tf.errors.OpError):
            _check_room(prefix, sum(values.nbytes for values in arrays.values()))
        raise
    folder = os.path.dirname(prefix)
    # Without its index a checkpoint does not exist: the old one goes first, the new one comes last.
    if tf.io.gfile.exists(f"{prefix}.index"):
        durable.remove(f"{prefix}.index")
    durable.sync(folder)
    index, *others = SUFFIXES
    for suffix in others:
        durable.rename(partial + suffix, prefix + suffix)
    durable.sync(folder)
    durable.rename(partial + index, prefix + index)
    durable.sync(folder)


def save_variables(prefix: str, variables: Mapping[str, keras.Variable], step: int) -> None:
    """Writes the variables of a run under their names, with the step, as `save_tensors`."""
    folder, name = os.path.split(prefix)
    owned.claim_all(folder, [name + suffix for suffix in SUFFIXES])
    # One copy from a GPU, and none of what is in memory: where a variable changes meanwhile,
    # TensorFlow leaves these values as they are.
    with tf.device("/CPU:0"):
        tensors = {name: tf.identity(variable.value) for name, variable in variables.items()}
    save_tensors(prefix, {**tensors, GLOBAL_STEP: np.asarray(step, np.int64)})


def _check_room(prefix: str, needed: int) -> None:
    """Checks that the disk has enough room for a checkpoint."""
    if is_remote(prefix):
        return
    free = shutil.disk_usage(os.path.dirname(prefix) or ".").free
    if free < needed:
        reason = f"{prefix!r} needs {needed:,} bytes, and {free:,} are free"
        raise OSError(errno.ENOSPC, f"{os.strerror(errno.ENOSPC)}: {reason}")


def _write_files(prefix: str, tensors: Mapping[str, np.ndarray | tf.Tensor]) -> None:
    """Writes the files of a checkpoint, and waits until they are on the disk."""
    names = sorted(tensors)
    with tf.device("/CPU:0"):
        tf.raw_ops.SaveV2(
            prefix=prefix,
            tensor_names=names,
            shape_and_slices=[""] * len(names),
            tensors=[tf.convert_to_tensor(tensors[name]) for name in names],
        )
    declarations = tuple(
        (name, tuple(tensors[name].shape), tensors[name].dtype.name)
        for name in names
        if _VARIABLE.fullmatch(name)
    )
    with tf.io.gfile.GFile(f"{prefix}.meta", "wb") as writer:
        writer.write(_meta_graph(declarations).SerializeToString(deterministic=True))
    for suffix in reversed(SUFFIXES):
        durable.sync(prefix + suffix)


@functools.lru_cache(maxsize=4)
def _meta_graph(declarations: tuple[tuple[str, tuple[int, ...], str], ...]) -> Any:
    """Returns the graph with which `tf.compat.v1.train.import_meta_graph` restores the variables.

    Departs: the original's `.meta` files hold the computation, too, as a TF1 graph.
    """
    with tf.Graph().as_default() as graph:
        variables = [
            tf.compat.v1.get_variable(name, shape, dtype, tf.compat.v1.zeros_initializer())
            for name, shape, dtype in declarations
        ]
        saver = tf.compat.v1.train.Saver(variables)
        return tf.compat.v1.train.export_meta_graph(graph=graph, saver_def=saver.as_saver_def())


class Checkpoints(CheckpointList):
    """The checkpoints that a run writes into a folder.

    A checkpoint appears when it is complete and on the disk: its files are written beside, then
    renamed, the index last; `checkpoint` is written after that, and old ones are removed last.
    Nothing outside the folder is removed, whatever `checkpoint` says.

    Args:
      folder: Any path that `tf.io.gfile` writes.
      keep_checkpoint_max: The number of latest checkpoints that stay; 0 for all.
    """

    def __init__(self, folder: str, keep_checkpoint_max: int = 5) -> None:
        super().__init__(folder)
        self.keep_checkpoint_max = keep_checkpoint_max

    def save(self, variables: Mapping[str, keras.Variable], step: int) -> str:
        """Writes the variables under their names and returns the prefix."""
        name = of_step(step)
        save_variables(self._prefix(name), variables, step)
        saved = self._listed() or self._found()[::-1]
        self._list([*(other for other in saved if other != name), name])
        return self._prefix(name)

    def remove(self, step: int) -> None:
        """Removes the checkpoint of a step, and the list, as far as runs have written them."""
        owned.remove(self.folder, ["checkpoint"])
        remove(self._prefix(of_step(step)))

    def _list(self, names: list[str]) -> None:
        """Writes the list of the latest checkpoints, and removes the others."""
        latest = names[-self.keep_checkpoint_max :]
        lines = [("model_checkpoint_path", latest[-1])]
        lines += [("all_model_checkpoint_paths", name) for name in latest]
        # Relative paths, so that the folder may move.
        text = "".join(f'{key}: "{name}"\n' for key, name in lines)
        path = owned.claim(self.folder, "checkpoint")
        if os.path.islink(path):
            # Writing through a link would change the list of another folder.
            durable.remove(path)
        if len(latest) < len(names):
            mark_for_removal(self.folder, names[: len(names) - len(latest)])
        durable.write_text(path, text)
        remove_marked(self.folder, but=latest)

"""Files of checkpoints of TensorFlow 1: written, removed, and recognised in their first format.

A checkpoint appears when it is complete. In the first format it is a single file, without an index
beside it: a Saver wrote it before version 0.12, and later with `write_version=SaverDef.V1`.
TensorFlow's reader reads both formats.
"""

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
from bert.files.paths import file_size, is_file, is_remote, open_file, paths_from
from bert.files.stored_models import PARTIAL, SUFFIXES, prefix_of
from bert.options import MessageError

GLOBAL_STEP = "global_step"
# The optimizer's variables, beside each variable that it trains.
SLOTS = ("adam_m", "adam_v")

# The ending of a checkpoint's name in the manifest while it is to be removed.
_GOING = ".going"

# How the table ends that such a file is (tensorflow/core/lib/io/format.h, kTableMagicNumber).
_TABLE_END = bytes.fromhex("57fb808b247547db")
# How pickles of PyTorch begin, which may have the same names: an archive, or a bare pickle.
PICKLES = (b"PK", b"\x80")
# Names that a variable of TensorFlow 1 can have; tensors of other programs may have others.
_VARIABLE = re.compile(r"[A-Za-z0-9.][A-Za-z0-9_.\\/>-]*")
_SINGLE_FILE = re.compile(r".+\.ckpt(?:-\d+)?")


class UnsoundError(MessageError):
    """A checkpoint is damaged, or there are values in it that are not finite."""


def is_slot(name: str) -> bool:
    """Returns whether a tensor of that name is one of the optimizer's."""
    return name.rpartition("/")[2] in SLOTS


def find_not_finite(tensors: Mapping[str, np.ndarray]) -> str | None:
    """Returns a sentence about the first tensor with a value that is not finite, or None.

    Numbers whose squares are not finite count as well: no loss of such weights can be computed.
    """
    for name, values in tensors.items():
        if values.dtype.kind not in "fV":
            continue
        with np.errstate(all="ignore"):
            # The sum of the squares needs no other array; it may be infinite of itself.
            if values.dtype == np.float32 and np.isfinite(np.vdot(values, values)):
                continue
            finite = np.isfinite(np.square(values, dtype=np.result_type(values, np.float32)))
        if count := values.size - int(finite.sum()):
            return f"{count} of {values.size} values of `{name}` are not finite"
    return None


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


def is_single_file(path: str) -> bool:
    """Returns whether a file is in the first format, or, by its name, was so once."""
    if not is_file(path) or is_file(f"{path}.index"):
        return False
    with open_file(path) as file:
        start = file.read(2)
        file.seek(max(file_size(path) - len(_TABLE_END), 0))
        if file.read() == _TABLE_END:
            return True
    return bool(_SINGLE_FILE.fullmatch(path)) and not start.startswith(PICKLES)


def find_single_files(folder: str) -> list[str]:
    """Returns the files of a folder that are in the first format and have the usual names."""
    paths = paths_from(os.path.join(folder, ""))
    return [path for path in paths if _SINGLE_FILE.fullmatch(path) and is_single_file(path)]

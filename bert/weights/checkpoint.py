"""Checkpoints in the original's format: TF1 files in which every tensor is stored by its name.

A variable's name is its path. A resumable checkpoint also holds, for every trained variable, the
slots `<name>/adam_m` and `<name>/adam_v`, and `global_step` (original: optimization.py).
"""

import functools
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from absl import logging

from bert.files import own_files, paths
from bert.files.paths import paths_from, write_text
from bert.weights import hub, huggingface, provenance
from bert.weights.variables import encoder_shapes, find_differences
from modeling import BertConfig

GLOBAL_STEP = "global_step"
SLOTS = ("adam_m", "adam_v")
# The weights alone, under the name of the released checkpoints.
WEIGHTS = "bert_model.ckpt"
# Models that need no pooler, such as those that tag tokens, are also saved without it.
_POOLER = ("bert/pooler/dense/kernel", "bert/pooler/dense/bias")
_SUFFIXES = (".index", ".meta", ".data-00000-of-00001")
# How the files of a checkpoint end, those of the original's with several devices included.
_FILE = re.compile(r"\.(index|meta|data-\d{5}-of-\d{5})")


class Stored:
    """A checkpoint, which is looked for once and opened once, when it is first asked for anything.

    Args:
      prefix: Of the checkpoint, or its file of safetensors.
      flag: The flag that gave it, for messages.
      path: What the flag gave, where that is not the prefix.

    Attributes:
      prefix: As above.
      flag: As above.
      path: As above.
      folder: Where the files lie.
      is_huggingface: Whether they are those of transformers.
    """

    def __init__(self, prefix: str, flag: str = "init_checkpoint", path: str = "") -> None:
        self.prefix = prefix
        self.flag = flag
        self.path = path or prefix
        self.folder = os.path.dirname(prefix)
        self.is_huggingface = huggingface.is_weights(prefix)

    @classmethod
    def open(cls, path: str, flag: str = "init_checkpoint") -> "Stored":
        """Returns the checkpoint that `path` names.

        Args:
          path: A prefix, one of the checkpoint's own files, or a folder that holds one checkpoint,
            a `checkpoint` file, or a Hugging Face model; or the name of one on the hub, which is
            fetched.
          flag: The flag that gave the path, for messages.

        Raises:
          ValueError: where there is no checkpoint.
        """
        return cls(_find_prefix(path, flag), flag, path)

    @functools.cached_property
    def _reader(self) -> Any:
        if self.is_huggingface:
            return huggingface.Reader(self.prefix, self.flag)
        try:
            # tf.train.load_checkpoint would take some prefixes on other file systems for folders.
            reader = tf.compat.v1.train.NewCheckpointReader(self.prefix)
        except (tf.errors.OpError, RuntimeError, ValueError, IndexError) as error:
            raise self._broken(error) from error
        if reader.has_tensor("_CHECKPOINTABLE_OBJECT_GRAPH"):
            raise ValueError(
                f"`--{self.flag}` must name a checkpoint that stores variables by name, as "
                f"TensorFlow 1 did. {self.prefix!r} was written by tf.train.Checkpoint or Keras "
                "and stores objects."
            )
        return reader

    def _broken(self, error: Exception) -> ValueError:
        return ValueError(
            f"`--{self.flag}` must name a whole checkpoint. {self.prefix!r} cannot be read: {error}"
        )

    @functools.cached_property
    def shapes(self) -> dict[str, list[int]]:
        """The shape of every tensor, by name.

        Raises:
          ValueError: where the files cannot be read, or store objects rather than names.
        """
        return dict(self._reader.get_variable_to_shape_map())

    def read(self, names: Iterable[str] | None = None) -> dict[str, np.ndarray]:
        """Returns the tensors of these names, all of them or none; without names, all there are.

        Raises:
          ValueError: where the files are damaged.
        """
        names = self.shapes if names is None else names
        try:
            return {name: self._reader.get_tensor(name) for name in names}
        except (tf.errors.OpError, RuntimeError, IndexError) as error:
            raise self._broken(error) from error

    def check_fit(self, config: BertConfig) -> None:
        """Checks that there is an encoder of this shape; reads no weights.

        Raises:
          ValueError: where there is not, with the key of the configuration that differs.
        """
        wanted = encoder_shapes(config)
        self._check_encoder(list(wanted))
        self._check_shapes(wanted)

    def _check_encoder(self, names: Sequence[str]) -> None:
        """Checks that the encoder's variables are there; a pooler may be lacking as a whole."""
        missing = [name for name in names if name not in self.shapes]
        lacking = [name for name in missing if name.startswith("bert/")]
        if len(missing) == len(names) or (lacking and sorted(lacking) != sorted(_POOLER)):
            raise ValueError(
                f"`--{self.flag}` must hold the whole encoder. {self.prefix!r} has "
                f"{len(names) - len(missing)} of the model's {len(names)} variables and "
                f"{len(self.shapes)} in all. Missing: {_some(missing)}. It holds: "
                f"{_some(sorted(self.shapes))}. Does `--bert_config_file` belong to it?"
            )

    def _check_shapes(self, wanted: Mapping[str, Sequence[int]]) -> None:
        if lines := find_differences(wanted, self.shapes):
            raise ValueError(
                f"The checkpoint {self.prefix!r} must have the shapes that `--bert_config_file` "
                f"asks for. {_some(lines, limit=3, separator='; ')}."
            )

    def assign(self, variables: Sequence[keras.Variable], *, with_head: bool = False) -> None:
        """Assigns the variables that are there and logs a report by name.

        A head or a pooler that the checkpoint lacks keeps its initial value. Optimizer slots are
        not read.

        Args:
          variables: Those of a model.
          with_head: Whether the head must be there, too, because nothing will train it.

        Raises:
          ValueError: before any assignment, where no variable or not the whole encoder is found, a
            shape differs, or a file is damaged.
        """
        self._check_encoder([variable.path for variable in variables])
        found = [v for v in variables if v.path in self.shapes]
        missing = [v.path for v in variables if v.path not in self.shapes]
        # Of a pooler that nothing trains, nothing depends, either.
        unused = {v.path for v in variables if not v.trainable} & set(_POOLER)
        if with_head and (lacking := [name for name in missing if name not in unused]):
            raise ValueError(
                f"`--{self.flag}` must hold the task's own weights, since nothing is trained. "
                f"{self.prefix!r} lacks {_some(lacking)}. Give `--do_train`, or a checkpoint "
                "trained for the task."
            )
        self._check_shapes({v.path: list(v.shape) for v in found})
        values = self.read([v.path for v in found])
        for variable in found:
            variable.assign(values[variable.path])
        self._report(found, missing)

    def _report(self, found: Sequence[keras.Variable], missing: Sequence[str]) -> None:
        unused = sorted(self.shapes.keys() - {v.path for v in found} - {GLOBAL_STEP})
        slots = [name for name in unused if is_slot(name)]
        others = [name for name in unused if not is_slot(name)]
        count = len(found)
        total = count + len(missing)
        logging.info("Loaded %d of the model's %d variables from %s.", count, total, self.prefix)
        for variable in found:
            logging.debug("Loaded %s %s", variable.path, tuple(variable.shape))
        for name in missing:
            logging.info("Missing there, so it starts at random: %s", name)
        if set(missing) & set(_POOLER):
            logging.warning("%s has no pooler. What is made of [CLS] needs training.", self.prefix)
        for name in others:
            logging.info("Unused there: %s %s", name, self.shapes[name])
        if slots:
            logging.info("Unused there: %d optimizer slots.", len(slots))
        if deeper := [name for name in others if name.startswith("bert/encoder/layer_")]:
            logging.warning(
                "The checkpoint has encoder layers that the model has not, such as %s: look at "
                "`num_hidden_layers` in --bert_config_file.",
                deeper[0],
            )


def is_slot(name: str) -> bool:
    """Returns whether a tensor of that name is one of the optimizer's."""
    return name.rpartition("/")[2] in SLOTS


def _some(names: Sequence[str], *, limit: int = 5, separator: str = ", ") -> str:
    more = len(names) - limit
    return separator.join(names[:limit]) + (f" and {more} more" if more > 0 else "") or "none"


def _find_prefix(path: str, flag: str) -> str:
    for suffix in _SUFFIXES:
        path = path.removesuffix(suffix)
    if tf.io.gfile.exists(path + ".index"):
        return path
    if tf.io.gfile.isdir(path):
        return _only_checkpoint(path, flag)
    if found := huggingface.find(path, flag):
        return found
    if hub.is_name(path):
        return _only_checkpoint(hub.fetch(path, flag), flag)
    raise ValueError(
        f"`--{flag}` must name a checkpoint: its prefix, such as '.../bert_model.ckpt', its "
        f"'.index' file, or its folder. Received {path!r}; there is no {path + '.index'!r}."
    )


def _only_checkpoint(folder: str, flag: str) -> str:
    if trained := find_trained(folder):
        provenance.check_trained(folder, step_of(trained), flag)
        return trained
    found = [name for name in paths_from(os.path.join(folder, "")) if name.endswith(".index")]
    if not found and (weights_file := huggingface.find(folder, flag)):
        return weights_file
    if len(found) != 1:
        raise ValueError(
            f"`--{flag}` must name one checkpoint. The folder {folder!r} holds "
            f"{[os.path.basename(name) for name in found]}; give the prefix of one."
        )
    return found[0].removesuffix(".index")


def step_of(prefix: str) -> int | None:
    """Returns the step that the name of a checkpoint or of its index tells, or None."""
    match = re.fullmatch(r"model\.ckpt-(\d+)(\.index)?", os.path.basename(prefix))
    return int(match[1]) if match else None


def weight_files(folder: str) -> list[str]:
    """Returns the names of the files in a folder that are the heads of weights."""
    names = (os.path.basename(path) for path in paths_from(os.path.join(folder, "")))
    return [name for name in names if name.endswith(".index") or huggingface.is_weights(name)]


def find_trained(folder: str) -> str | None:
    """Returns the prefix of the weights that a training has left in its folder, or None."""
    weights = os.path.join(folder, WEIGHTS)
    if tf.io.gfile.exists(f"{weights}.index"):
        return weights
    return Checkpoints(folder).latest()


class Checkpoints:
    """The checkpoints `model.ckpt-<step>` of one folder, and its `checkpoint` file.

    A checkpoint appears when it is whole and on the disk: its files are written beside, then
    renamed, the index last; `checkpoint` is written after that, and old ones go when it is there.
    Nothing outside the folder is read or removed, whatever `checkpoint` says.

    Args:
      folder: Any path that `tf.io.gfile` writes.
      keep_checkpoint_max: How many to keep, the latest ones; 0 for all.
    """

    def __init__(self, folder: str, keep_checkpoint_max: int = 5) -> None:
        self.folder = folder
        self.keep_checkpoint_max = keep_checkpoint_max

    def latest(self) -> str | None:
        """Returns the prefix of the latest checkpoint, or None where none was ever written.

        Raises:
          ValueError: where `checkpoint` names checkpoints of which none is left.
        """
        names = self._listed()
        existing = [name for name in names if tf.io.gfile.exists(f"{self._prefix(name)}.index")]
        if names and not existing:
            raise ValueError(
                f"{self._prefix('checkpoint')!r} names {_some(names)}, but none is there. Restore "
                "the files, or delete that file to begin anew."
            )
        return self._prefix(existing[-1]) if existing else None

    def _prefix(self, name: str) -> str:
        return os.path.join(self.folder, name)

    def _listed(self) -> list[str]:
        """Returns the names in the file `checkpoint`, the latest at the end."""
        path = self._prefix("checkpoint")
        if not tf.io.gfile.exists(path):
            return []
        try:
            state = tf.train.get_checkpoint_state(self.folder)
        except (tf.errors.OpError, ValueError):
            state = None
        if state is None:
            raise ValueError(
                f"{path!r} must list checkpoints. It cannot be read; delete it to begin anew."
            )
        # TensorFlow 1 lists whole paths, which of a copied folder lead to where it was.
        listed = [*state.all_model_checkpoint_paths, state.model_checkpoint_path]
        names = [os.path.basename(path) for path in listed]
        return [name for name in dict.fromkeys(reversed(names)) if name][::-1]

    def save(self, variables: Mapping[str, keras.Variable], step: int) -> str:
        """Writes the variables under their names and returns the prefix."""
        name = f"model.ckpt-{step}"
        self._write(name, variables, step)
        self._keep([other for other in self._listed() if other != name] + [name])
        return self._prefix(name)

    def _write(self, name: str, variables: Mapping[str, keras.Variable], step: int) -> None:
        """Writes a checkpoint's files; nothing else here does."""
        save_variables(self._prefix(name), variables, step)

    def _keep(self, names: list[str]) -> None:
        kept = names[-self.keep_checkpoint_max :]
        lines = [("model_checkpoint_path", kept[-1])]
        lines += [("all_model_checkpoint_paths", name) for name in kept]
        # Relative paths, so that the folder may move.
        text = "".join(f'{key}: "{name}"\n' for key, name in lines)
        path = own_files.claim(self.folder, "checkpoint")
        if os.path.islink(path):
            # It would change the list of another folder.
            paths.remove(path)
        write_text(path, text)
        for name in names[: len(names) - len(kept)]:
            self._remove(name)

    def _remove(self, name: str) -> None:
        """Removes a checkpoint's files; nothing else here does."""
        remove(self._prefix(name))

    def restore(self, variables: Mapping[str, keras.Variable], prefix: str) -> int:
        """Assigns every variable from the checkpoint at `prefix` and returns its step.

        Raises:
          ValueError: before any assignment, where one is missing, has another shape, or cannot be
            read.
        """
        stored = Stored(prefix, "output_dir")
        missing = [name for name in (*variables, GLOBAL_STEP) if name not in stored.shapes]
        if missing:
            raise ValueError(
                f"`--output_dir` must hold a checkpoint of this model, optimizer included. "
                f"{prefix!r} lacks {_some(missing)}. Give another `--output_dir`; a checkpoint "
                "without optimizer slots may be the `--init_checkpoint`."
            )
        for name, variable in variables.items():
            if list(variable.shape) != list(stored.shapes[name]):
                raise ValueError(
                    f"`--output_dir` must hold a checkpoint of this model. `{name}` is "
                    f"{stored.shapes[name]} in {prefix!r} and {list(variable.shape)} in the model."
                )
        values = stored.read([*variables, GLOBAL_STEP])
        for name, variable in variables.items():
            variable.assign(values[name])
        return int(values[GLOBAL_STEP])


def remove(prefix: str) -> None:
    """Removes a checkpoint of a run: its index first, without which it is none."""
    folder = os.path.dirname(prefix)
    names = [os.path.basename(path) for path in paths_from(f"{prefix}.") if _is_part(path, prefix)]
    own_files.remove(folder, [name for name in names if name.endswith(".index")])
    paths.sync(folder)
    own_files.remove(folder, names)


def _is_part(path: str, prefix: str) -> bool:
    return _FILE.fullmatch(path.removeprefix(prefix)) is not None


def save_variables(prefix: str, variables: Mapping[str, keras.Variable], step: int) -> None:
    """Writes the variables of a run under their names, with the step, as `save_tensors`."""
    folder, name = os.path.split(prefix)
    own_files.claim_all(folder, [name + suffix for suffix in _SUFFIXES])
    tensors = {name: np.asarray(variable) for name, variable in variables.items()}
    save_tensors(prefix, {**tensors, GLOBAL_STEP: np.asarray(step, np.int64)})


def save_tensors(prefix: str, tensors: Mapping[str, np.ndarray]) -> None:
    """Writes a TF1 checkpoint of these tensors, which appears at `prefix` only when whole.

    A loss of power, too, leaves the one that was there, or none, or the new one.
    """
    partial = f"{prefix}.partial"
    try:
        _write_files(partial, tensors)
    except BaseException:
        for path in paths_from(partial):
            paths.remove(path)
        raise
    folder = os.path.dirname(prefix)
    # Without its index a checkpoint does not exist: the old one goes first, the new one comes last.
    if tf.io.gfile.exists(f"{prefix}.index"):
        paths.remove(f"{prefix}.index")
    paths.sync(folder)
    index, *others = _SUFFIXES
    for suffix in others:
        paths.rename(partial + suffix, prefix + suffix)
    paths.sync(folder)
    paths.rename(partial + index, prefix + index)
    paths.sync(folder)


def _write_files(prefix: str, tensors: Mapping[str, np.ndarray]) -> None:
    """Writes the files of a checkpoint, and waits until they are on the disk."""
    names = sorted(tensors)
    with tf.device("/CPU:0"):
        tf.raw_ops.SaveV2(
            prefix=prefix,
            tensor_names=names,
            shape_and_slices=[""] * len(names),
            tensors=[tf.constant(tensors[name]) for name in names],
        )
    declarations = tuple((name, tensors[name].shape, tensors[name].dtype.name) for name in names)
    with tf.io.gfile.GFile(f"{prefix}.meta", "wb") as writer:
        writer.write(_meta_graph(declarations).SerializeToString(deterministic=True))
    for suffix in reversed(_SUFFIXES):
        paths.sync(prefix + suffix)


@functools.lru_cache(maxsize=4)
def _meta_graph(declarations: tuple[tuple[str, tuple[int, ...], str], ...]) -> Any:
    """Returns what `tf.compat.v1.train.import_meta_graph` needs to restore the variables.

    Departs: the original's `.meta` files hold the computation, too, as a TF1 graph.
    """
    with tf.Graph().as_default() as graph:
        variables = [
            tf.compat.v1.get_variable(name, shape, dtype, tf.compat.v1.zeros_initializer())
            for name, shape, dtype in declarations
        ]
        saver = tf.compat.v1.train.Saver(variables)
        return tf.compat.v1.train.export_meta_graph(graph=graph, saver_def=saver.as_saver_def())

"""Checkpoints in the original's format: TF1 files in which every tensor is stored by its name.

A variable's name is its path. A resumable checkpoint also holds, for every trained variable, the
slots `<name>/adam_m` and `<name>/adam_v`, and `global_step` (original: optimization.py).
"""

import functools
import math
import os
import tempfile
import weakref
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from absl import logging

from bert.files import durable, fingerprints, owned
from bert.files.durable import write_text
from bert.files.paths import WILDCARDS, describe_folder, file_size, is_remote, paths_from
from bert.files.weight_names import (
    SUFFIXES,
    WEIGHTS,
    is_index,
    is_safetensors,
    of_step,
    prefix_of,
    step_of,
)
from bert.weights import hub, huggingface, provenance, version1
from bert.weights.saving import (
    UnsoundError,
    find_not_finite,
    let_go,
    remove,
    remove_let_go,
    save_tensors,
)
from bert.weights.variables import encoder_shapes, find_differences
from modeling import BertConfig

GLOBAL_STEP = "global_step"
SLOTS = ("adam_m", "adam_v")
# Models that need no pooler, such as those that tag tokens, are also saved without it.
_POOLER = ("bert/pooler/dense/kernel", "bert/pooler/dense/bias")


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
        self.is_huggingface = is_safetensors(prefix)

    @classmethod
    def open(cls, path: str | os.PathLike[str], flag: str = "init_checkpoint") -> "Stored":
        """Returns the checkpoint that `path` names.

        Args:
          path: A prefix, one of the checkpoint's own files, or a folder that holds one checkpoint,
            a `checkpoint` file, or a Hugging Face model; or the name of one on the hub, which is
            fetched.
          flag: The flag that gave the path, for messages.

        Raises:
          ValueError: where there is no checkpoint.
        """
        path = os.fspath(path)
        return cls(_find_prefix(path, flag), flag, path)

    @functools.cached_property
    def _reader(self) -> Any:
        if self.is_huggingface:
            return huggingface.Reader(self.prefix, self.flag)
        try:
            # tf.train.load_checkpoint would take some prefixes on other file systems for folders.
            reader = tf.compat.v1.train.NewCheckpointReader(self._readable_prefix())
        except (tf.errors.OpError, RuntimeError, ValueError, IndexError) as error:
            raise self._broken(error) from error
        if reader.has_tensor("_CHECKPOINTABLE_OBJECT_GRAPH"):
            raise ValueError(
                f"`--{self.flag}` must name a checkpoint that stores variables by name, as "
                f"TensorFlow 1 did. {self.prefix!r} was written by tf.train.Checkpoint or Keras "
                "and stores objects, like the TensorFlow 2 checkpoints of tensorflow/models. Of "
                "a released BERT, take the same weights from Google's original release "
                "(docs/weights.md has the links) or from the hub, such as "
                "google-bert/bert-base-uncased."
            )
        return reader

    def _readable_prefix(self) -> str:
        """Returns the prefix, or where TensorFlow took it for a pattern, one through a link."""
        is_file = self.index == self.prefix
        source = self.prefix if is_file else self.folder
        if is_remote(self.prefix) or not WILDCARDS & set(source):
            return self.prefix
        place = tempfile.TemporaryDirectory(prefix="bert-link-")
        weakref.finalize(self, place.cleanup)
        link = os.path.join(place.name, "link")
        os.symlink(os.path.abspath(source), link)
        return link if is_file else os.path.join(link, os.path.basename(self.prefix))

    def _broken(self, error: Exception | str) -> UnsoundError:
        return UnsoundError(
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
          UnsoundError: where the files are damaged, or a value is not finite.
        """
        names = self.shapes if names is None else names
        try:
            tensors = {name: self._reader.get_tensor(name) for name in names}
        except (tf.errors.OpError, RuntimeError, IndexError) as error:
            raise self._broken(error) from error
        if problem := find_not_finite(tensors):
            raise UnsoundError(
                f"`--{self.flag}` must name a checkpoint of numbers that are finite. In "
                f"{self.prefix!r}, {problem}: its training has diverged."
            )
        return tensors

    @property
    def index(self) -> str:
        """The path of the index, which has the checksums of all tensors, or of the only file."""
        path = f"{self.prefix}.index"
        is_single = self.is_huggingface or version1.is_checkpoint(self.prefix)
        return self.prefix if is_single else path

    @property
    def parts(self) -> list[str]:
        """The files of the weights, but one that has the name of the prefix."""
        if self.is_huggingface:
            return list(self._reader.parts)
        return paths_from(f"{self.prefix}.")

    def check_whole(self) -> None:
        """Checks that the bytes of all tensors are there, without reading them.

        Raises:
          UnsoundError: where they are not.
        """
        if self.index == self.prefix:
            # To open it is to find its end.
            if not self.shapes:
                raise self._broken("it has no variables")
            return
        needed = sum(
            math.prod(self.shapes[name]) * kind.size
            for name, kind in self._reader.get_variable_to_dtype_map().items()
            if kind != tf.string
        )
        stored = sum(map(file_size, paths_from(f"{self.prefix}.data-")))
        if stored < needed:
            raise self._broken(f"its data have {stored} bytes of {needed}")

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
            # Each array goes when TensorFlow has its copy: memory need not hold them all twice.
            variable.assign(values.pop(variable.path))
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
        if missing:
            logging.info("Missing there, so they start at random: %s", ", ".join(missing))
        if set(missing) & set(_POOLER):
            logging.warning("%s has no pooler. What is made of [CLS] needs training.", self.prefix)
        for name in others:
            logging.debug("Unused there: %s %s", name, self.shapes[name])
        if unused:
            logging.info(
                "Unused there: %d variables and %d optimizer slots (--verbosity=1 names them).",
                len(others),
                len(slots),
            )
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
    path = prefix_of(path) or path
    if tf.io.gfile.exists(path + ".index"):
        return path
    if tf.io.gfile.isdir(path):
        return _only_checkpoint(path, flag)
    if version1.is_checkpoint(path):
        return path
    if found := huggingface.find(path, flag):
        return found
    if hub.is_name(path):
        return _only_checkpoint(hub.fetch(path, flag), flag)
    # With a revision, it is a name whatever folders there are.
    name = f"{path}@main"
    hint = f" For the model on the hub, give {name!r}." if hub.is_name(name) else ""
    raise ValueError(
        f"`--{flag}` must name a checkpoint: its prefix, such as '.../bert_model.ckpt', its "
        f"'.index' file, or its folder; or a model of the Hugging Face hub, such as "
        f"'google-bert/bert-base-uncased'. Received {path!r}; there is no {path + '.index'!r} in "
        f"{describe_folder(os.path.dirname(path) or os.curdir)}.{hint}"
    )


def _only_checkpoint(folder: str, flag: str) -> str:
    indices = [name for name in paths_from(os.path.join(folder, "")) if is_index(name)]
    found = indices or version1.find(folder)
    try:
        trained = find_trained(folder)
    except ValueError as error:
        if not found:
            raise
        # Who renames or unpacks files may leave a list of others beside them.
        raise ValueError(
            f"`--{flag}` must name one checkpoint. What {os.path.join(folder, 'checkpoint')!r} "
            f"lists is not whole there; give a prefix, such as {found[0].removesuffix('.index')!r}."
        ) from error
    if trained:
        provenance.check_trained(folder, step_of(trained), flag)
        return trained
    if not indices and (weights_file := huggingface.find(folder, flag)):
        return weights_file
    if len(found) != 1:
        raise ValueError(
            f"`--{flag}` must name one checkpoint. The folder {folder!r} holds "
            f"{[os.path.basename(name) for name in found]}; give the prefix of one."
        )
    return found[0].removesuffix(".index")


def weight_files(folder: str) -> list[str]:
    """Returns the names of the files in a folder that are the heads of weights."""
    names = (os.path.basename(path) for path in paths_from(os.path.join(folder, "")))
    tables = map(os.path.basename, version1.find(folder))
    return [*(name for name in names if is_index(name) or is_safetensors(name)), *tables]


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
        """Returns the prefix of the latest whole checkpoint, or None where none was ever written.

        Raises:
          ValueError: where there are some, or `checkpoint` says so, but none is whole.
        """
        return next((stored.prefix for stored in self._whole()), None)

    def resume(
        self, variables: Mapping[str, keras.Variable], optional: Collection[str] = ()
    ) -> int | None:
        """Assigns every variable from the latest checkpoint that is sound.

        Args:
          variables: By name.
          optional: As for `restore`.

        Returns:
          Its step, or None where no checkpoint was ever written.

        Raises:
          ValueError: where none is sound, or the latest one that is has other variables.
        """
        for stored in self._whole():
            try:
                return self.restore(variables, stored.prefix, optional)
            except UnsoundError as error:
                _warn_of(error)
        return None

    def _whole(self) -> Iterator[Stored]:
        """Yields the checkpoints that are whole, the latest first; at the end, fails if asked on.

        Those that are listed come before others: who edits the list goes back by intention.
        """
        listed, found = self._listed(), self._found()
        names = [*reversed(listed or []), *(name for name in found if name not in (listed or []))]
        for name in names:
            stored = Stored(self._prefix(name), "output_dir")
            try:
                stored.check_whole()
            except UnsoundError as error:
                _warn_of(error)
            else:
                yield stored
        path = self._prefix("checkpoint")
        if names:
            raise ValueError(
                f"`--output_dir` must hold a whole checkpoint of finite numbers. {self.folder!r} "
                f"should have {_some(names)}, but none is there that is. Restore the files, or "
                f"delete them and {path!r} to begin anew."
            )
        if listed is None and tf.io.gfile.exists(path):
            raise ValueError(
                f"{path!r} must list checkpoints. It cannot be read, and none is there; delete it "
                "to begin anew."
            )

    def _prefix(self, name: str) -> str:
        return os.path.join(self.folder, name)

    def _listed(self) -> list[str] | None:
        """Returns the names in the file `checkpoint`, the latest at the end; None if it is lost."""
        if not tf.io.gfile.exists(self._prefix("checkpoint")):
            return None
        try:
            state = tf.train.get_checkpoint_state(self.folder)
        except (tf.errors.OpError, ValueError):
            state = None
        if state is None:
            return None
        # TensorFlow 1 lists whole paths, which of a copied folder lead to where it was.
        listed = [*state.all_model_checkpoint_paths, state.model_checkpoint_path]
        names = [os.path.basename(path) for path in listed]
        return [name for name in dict.fromkeys(reversed(names)) if name][::-1]

    def _found(self) -> list[str]:
        """Returns the names of the checkpoints whose index is there, the latest first."""
        indices = filter(is_index, paths_from(self._prefix("model.ckpt-")))
        steps = [step for path in indices if (step := step_of(path)) is not None]
        return [of_step(step) for step in sorted(steps, reverse=True)]

    def save(self, variables: Mapping[str, keras.Variable], step: int) -> str:
        """Writes the variables under their names and returns the prefix."""
        name = of_step(step)
        self._write(name, variables, step)
        others = self._listed() or self._found()[::-1]
        self._keep([other for other in others if other != name] + [name])
        return self._prefix(name)

    def remove(self, step: int) -> None:
        """Removes the checkpoint of a step, and the list, as far as runs have written them."""
        owned.remove(self.folder, ["checkpoint"])
        remove(self._prefix(of_step(step)))

    def _write(self, name: str, variables: Mapping[str, keras.Variable], step: int) -> None:
        """Writes a checkpoint's files; nothing else here does."""
        save_variables(self._prefix(name), variables, step)

    def _keep(self, names: list[str]) -> None:
        kept = names[-self.keep_checkpoint_max :]
        lines = [("model_checkpoint_path", kept[-1])]
        lines += [("all_model_checkpoint_paths", name) for name in kept]
        # Relative paths, so that the folder may move.
        text = "".join(f'{key}: "{name}"\n' for key, name in lines)
        path = owned.claim(self.folder, "checkpoint")
        if os.path.islink(path):
            # It would change the list of another folder.
            durable.remove(path)
        if len(kept) < len(names):
            let_go(self.folder, names[: len(names) - len(kept)])
        write_text(path, text)
        remove_let_go(self.folder, but=kept)

    def restore(
        self,
        variables: Mapping[str, keras.Variable],
        prefix: str,
        optional: Collection[str] = (),
    ) -> int:
        """Assigns every variable from the checkpoint at `prefix` and returns its step.

        Args:
          variables: By name.
          prefix: Of the checkpoint.
          optional: Names of variables that stay as they are where the checkpoint lacks them.

        Raises:
          ValueError: before any assignment, where one is missing, has another shape, or cannot be
            read.
        """
        stored = Stored(prefix, "output_dir")
        lacking = [name for name in (*variables, GLOBAL_STEP) if name not in stored.shapes]
        if missing := [name for name in lacking if name not in optional]:
            raise ValueError(
                f"`--output_dir` must hold a checkpoint of this model, optimizer included. "
                f"{prefix!r} lacks {_some(missing)}. Give another `--output_dir`; a checkpoint "
                "without optimizer slots may be the `--init_checkpoint`."
            )
        variables = {name: each for name, each in variables.items() if name not in lacking}
        for name, variable in variables.items():
            if list(variable.shape) != list(stored.shapes[name]):
                raise ValueError(
                    f"`--output_dir` must hold a checkpoint of this model. `{name}` is "
                    f"{stored.shapes[name]} in {prefix!r} and {list(variable.shape)} in the model."
                )
        values = stored.read([*variables, GLOBAL_STEP])
        step = int(values[GLOBAL_STEP])
        for name, variable in variables.items():
            variable.assign(values.pop(name))
        return step


@functools.lru_cache
def _warn(message: str) -> None:
    """Warns once, however often a folder is looked into."""
    logging.warning(message)


def _warn_of(error: UnsoundError) -> None:
    _warn(f"{error} The latest one before it is looked for; nothing is deleted.")


def save_variables(prefix: str, variables: Mapping[str, keras.Variable], step: int) -> None:
    """Writes the variables of a run under their names, with the step, as `save_tensors`."""
    folder, name = os.path.split(prefix)
    owned.claim_all(folder, [name + suffix for suffix in SUFFIXES])
    # One copy from a GPU, and none of what is in memory: where a variable changes meanwhile,
    # TensorFlow leaves these values as they are.
    with tf.device("/CPU:0"):
        tensors = {name: tf.identity(variable.value) for name, variable in variables.items()}
    save_tensors(prefix, {**tensors, GLOBAL_STEP: np.asarray(step, np.int64)})


def describe_weights(init: Stored | None) -> dict[str, str] | None:
    """Returns what `run.json` keeps of weights that a training is made of: name and digest."""
    if init is None:
        return None
    files = [init.index]
    if init.is_huggingface:
        # There may be several.
        beside = paths_from(os.path.join(init.folder, ""))
        others = [path for path in beside if path.endswith(".safetensors") and path != init.prefix]
        files = [init.prefix, *(others if init.prefix.endswith(".json") else [])]
    return {"path": os.path.basename(init.path), "sha256": fingerprints.of_files(files)}

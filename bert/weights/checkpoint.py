"""Checkpoints in the original's format: TF1 files in which every tensor is stored by its name.

A variable's name is its path. A resumable checkpoint also holds, for every trained variable, the
slots `<name>/adam_m` and `<name>/adam_v`, and `global_step` (original: optimization.py).
"""

import contextlib
import functools
import math
import os
import weakref
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from bert.files import fingerprints
from bert.files.paths import describe_folder, file_size, is_file, paths_from, without_wildcards
from bert.files.stored_models import (
    SAVED_MODEL_FILE,
    WEIGHTS,
    is_index,
    is_safetensors,
    of_step,
    prefix_of,
    step_of,
)
from bert.log import logger
from bert.names import load
from bert.options import Message, MessageError, Option, OptionError
from bert.weights import provenance, readers, saved_models
from bert.weights.formats import (
    DAMAGES,
    FormatError,
    OtherModelError,
    UnsoundError,
    find_not_finite,
)
from bert.weights.loading import POOLER, find_loadable, log_loaded
from bert.weights.readers import find_single_files, is_single_file
from bert.weights.variables import GLOBAL_STEP, encoder_shapes, find_differences
from modeling import BertConfig


class Stored:
    """A checkpoint, located and opened once, when it is first read.

    Args:
      prefix: The prefix of the checkpoint, or its file, of any format.
      option: The option that named it, for messages.
      path: The value of that option, where it is not the prefix.
    """

    def __init__(self, prefix: str, option: str = "init_checkpoint", path: str = "") -> None:
        self.prefix = prefix
        self.option = option
        self.path = path or prefix
        self.folder = saved_models.find_folder(prefix) or os.path.dirname(prefix)
        self._format = readers.find_format(prefix)

    def __reduce__(self) -> tuple[Any, ...]:
        # A reader stays in its process.
        return Stored, (self.prefix, self.option, self.path)

    @classmethod
    def open(
        cls, path: str | os.PathLike[str], option: str = "init_checkpoint", *, fetches: bool = True
    ) -> "Stored":
        """Returns the checkpoint that `path` names.

        Args:
          path: A prefix, one of the checkpoint's own files, a folder that holds one checkpoint, a
            `checkpoint` file or a Hugging Face model, or the name of a model on the hub.
          option: The option that gave the path, for messages.
          fetches: Whether a model of the hub that is not in the local cache is fetched.

        Raises:
          ValueError: where there is no checkpoint.
        """
        path = os.fspath(path)
        return cls(_find_prefix(path, option, fetches), option, path)

    @functools.cached_property
    def _reader(self) -> Any:
        try:
            if self._format:
                return readers.Reader(self._format.read(self.prefix))
            # tf.train.load_checkpoint would take some prefixes on other file systems for folders.
            return readers.wrap(tf.compat.v1.train.NewCheckpointReader(self._readable_prefix()))
        except (tf.errors.OpError, *DAMAGES) as error:
            raise self._broken(error) from error

    @property
    def is_huggingface(self) -> bool:
        """Whether the weights are those of transformers, whose configuration is `config.json`."""
        return is_safetensors(self.prefix) or getattr(self._reader, "is_huggingface", False)

    @property
    def gelu(self) -> str | None:
        """What "gelu" means in a configuration beside the weights, as `Reader.gelu`."""
        return getattr(self._reader, "gelu", None)

    @functools.cached_property
    def shape(self) -> dict[str, Any] | None:
        """A configuration in the files of the weights, as `BertConfig.from_dict` takes it."""
        if saved_models.find_folder(self.prefix):
            return saved_models.find_shape(self.shapes)
        return self._format.read_shape(self.prefix) if self._format else None

    def _readable_prefix(self) -> str:
        """Returns the prefix, or where TensorFlow took it for a pattern, one through a link."""
        is_file = self.index == self.prefix
        folder, name = os.path.split(self.prefix)
        stack = contextlib.ExitStack()
        weakref.finalize(self, stack.close)
        path = stack.enter_context(without_wildcards(self.prefix if is_file else folder))
        return path if is_file else os.path.join(path, name)

    def _error(self, must: str, template: str, *arguments: Any) -> OptionError:
        return OptionError(self.option, must, remedy=Message(template, *arguments))

    def _broken(self, error: Exception | str) -> UnsoundError | OptionError:
        if isinstance(error, OtherModelError):
            saved_models.check_encodes(saved_models.find_folder(self.prefix) or "", self.option)
            return self._error("name a BERT", "%r is another model: %s.", self.prefix, error)
        if isinstance(error, LookupError | TypeError | EOFError | MemoryError):
            error = f"{type(error).__name__}: {error}"
        return UnsoundError(
            "%s must name a whole checkpoint. %r cannot be read: %s",
            Option(self.option),
            self.prefix,
            error,
        )

    @functools.cached_property
    def shapes(self) -> dict[str, list[int]]:
        """The shape of every tensor, by name."""
        return dict(self._reader.get_variable_to_shape_map())

    def read(self, names: Iterable[str] | None = None) -> dict[str, np.ndarray]:
        """Returns the tensors of these names, all of them or none; without names, every tensor.

        Raises:
          KeyError: where there is no tensor of a name.
          UnsoundError: where the files are damaged, or a value is not finite.
        """
        names = [*self.shapes] if names is None else [*names]
        if missing := [name for name in names if name not in self.shapes]:
            raise KeyError(f"{self.prefix!r} lacks {missing}. It has {_some(sorted(self.shapes))}.")
        try:
            tensors = {name: self._reader.get_tensor(name) for name in names}
        except (tf.errors.OpError, *DAMAGES) as error:
            raise self._broken(error) from error
        if problem := find_not_finite(tensors):
            raise UnsoundError(
                "%s must name a checkpoint of finite numbers. In %r, %s: the training diverged.",
                Option(self.option),
                self.prefix,
                problem,
            )
        return tensors

    @property
    def index(self) -> str:
        """The path of the index, which has the checksums of all tensors, or of the only file."""
        return self.prefix + ("" if self._format or is_single_file(self.prefix) else ".index")

    @property
    def parts(self) -> list[str]:
        """The files of the weights, apart from a file that is the prefix itself."""
        if self._format is None:
            return paths_from(f"{self.prefix}.")
        try:
            return self._format.find_parts(self.prefix)
        except FormatError as error:
            raise self._broken(error) from error

    def describe(self) -> dict[str, str]:
        """Returns the name and the digest of the weights, for `run.json`."""
        files = [self.index, *(self.parts if self._format else ())]
        return {"path": os.path.basename(self.path), "sha256": fingerprints.of_files(files)}

    def check_whole(self) -> None:
        """Checks that the bytes of all tensors are there, without reading them."""
        if self.index == self.prefix or isinstance(self._reader, readers.Reader):
            # To open a single file is to find its end.
            if self.shapes:
                return
            raise self._broken("it has no variables")
        needed = sum(
            math.prod(self.shapes[name]) * kind.size
            for name, kind in self._reader.get_variable_to_dtype_map().items()
            if kind != tf.string
        )
        stored = sum(map(file_size, paths_from(f"{self.prefix}.data-")))
        if stored < needed:
            raise self._broken(f"its data have {stored} bytes of {needed}")

    def check_fit(self, config: BertConfig) -> None:
        """Checks that the checkpoint has an encoder of this shape; reads no weights."""
        shapes = encoder_shapes(config)
        self._check_encoder(shapes)
        self._check_shapes(shapes)

    def _check_encoder(self, names: Collection[str]) -> None:
        """Checks that the encoder's variables are there; a complete pooler may be missing."""
        missing = [name for name in names if name not in self.shapes]
        lacking = [name for name in missing if name.startswith("bert/")]
        if len(missing) == len(names) or (lacking and sorted(lacking) != sorted(POOLER)):
            if other := load("bert.weights.libraries", "find_other")(self.shapes):
                raise self._broken(other)
            raise self._error(
                "hold the whole encoder",
                "%r has %d of the model's %d variables and %d in all. Missing: %s. It holds: %s. "
                "Does %s belong to it?",
                self.prefix,
                len(names) - len(missing),
                len(names),
                len(self.shapes),
                _some(missing),
                _some(sorted(self.shapes)),
                Option("bert_config_file"),
            )

    def _check_shapes(self, wanted: Mapping[str, Sequence[int]]) -> None:
        if lines := find_differences(wanted, self.shapes):
            raise MessageError(
                "The checkpoint %r must have the shapes that %s asks for. %s.",
                self.prefix,
                Option("bert_config_file"),
                _some(lines, limit=3, separator="; "),
            )

    def fill(self, variables: Sequence[keras.Variable]) -> None:
        """Assigns stored variables one at a time, so that memory never holds two of all."""
        self._check_shapes({v.path: list(v.shape) for v in variables})
        for variable in variables:
            variable.assign(self.read([variable.path])[variable.path])

    def assign(
        self, variables: Sequence[keras.Variable], *, with_head: bool = False
    ) -> list[keras.Variable]:
        """Assigns the variables that are stored, returns them, and logs a report by name.

        A head or pooler that is not stored keeps its initial value; so does a head for another
        number of labels, unless `with_head`. No optimizer slot is read.

        Args:
          variables: The variables of a model.
          with_head: Whether the head must be stored, too, because nothing will train it.

        Raises:
          ValueError: before any assignment, where not the whole encoder is found, or a shape
            differs; after some, where a file is damaged or a number not finite.
        """
        self._check_encoder([variable.path for variable in variables])
        found, missing = find_loadable(variables, self.shapes, self.prefix, with_head=with_head)
        # The encoder is there, and no score depends on other weights that nothing trains.
        needed = {v.path for v in variables if v.trainable}
        if with_head and (lacking := [name for name in missing if name in needed]):
            raise self._error(
                "hold the task's own weights, since nothing is trained",
                "%r lacks %s. Give %s, or a checkpoint trained for the task.",
                self.prefix,
                _some(lacking),
                Option("do_train"),
            )
        self.fill(found)
        log_loaded(self.prefix, self.shapes, found, missing)
        return found


def _some(names: Sequence[str], *, limit: int = 5, separator: str = ", ") -> str:
    more = len(names) - limit
    return separator.join(names[:limit]) + (f" and {more} more" if more > 0 else "") or "none"


def _find_prefix(path: str, option: str, fetches: bool) -> str:
    path = (prefix_of(path) or path).removesuffix(f"/{SAVED_MODEL_FILE}")
    if tf.io.gfile.exists(path + ".index") or is_single_file(path):
        return path
    if tf.io.gfile.isdir(path):
        return _only_checkpoint(path, option)
    if found := readers.find(path, option):
        return found
    hub = load("bert.weights.hub")
    if hub.is_name(path):
        return _only_checkpoint(hub.fetch(path, option, fetches=fetches), option)
    # With a revision, it is a name whatever folders there are.
    hint = f" For the model on the hub, give '{path}@main'." if hub.is_name(f"{path}@main") else ""
    if tf.io.gfile.isdir(os.path.dirname(path)) and readers.weight_files(os.path.dirname(path)):
        hint = f" For the weights there, give {os.path.dirname(path)!r}."
    raise OptionError(
        option,
        "name a checkpoint: its prefix, such as '.../bert_model.ckpt', its '.index' file, or its "
        "folder; or a model of the Hugging Face hub, such as 'google-bert/bert-base-uncased'",
        remedy=f"Received {path!r}; there is no {path + '.index'!r} in "
        f"{describe_folder(os.path.dirname(path) or os.curdir)}.{hint}",
    )


def _only_checkpoint(folder: str, option: str) -> str:
    indices = [name for name in paths_from(os.path.join(folder, "")) if is_index(name)]
    found = indices or find_single_files(folder)
    try:
        trained = find_trained(folder)
    except ValueError as error:
        if not found:
            raise
        # Who renames or unpacks files may leave a list of others beside them.
        listed, first = os.path.join(folder, "checkpoint"), found[0].removesuffix(".index")
        remedy = f"What {listed!r} lists is not complete there; give a prefix, such as {first!r}."
        raise OptionError(option, "name one checkpoint", remedy=remedy) from error
    if trained:
        provenance.check_trained(folder, step_of(trained), option)
        return trained
    if not indices and (weights_file := readers.find(folder, option)):
        return weights_file
    if not found and (prefix := saved_models.find_prefix(folder)):
        return prefix
    if len(found) != 1:
        names = [os.path.basename(name) for name in found]
        remedy = f"The folder {folder!r} holds {names}; give the prefix of one."
        if not found:
            remedy = f"Received {describe_folder(folder)}: no weights. Give the folder of a model."
        raise OptionError(option, "name one checkpoint", remedy=remedy)
    return found[0].removesuffix(".index")


def find_trained(folder: str) -> str | None:
    """Returns the prefix of the weights that a training run has left in its folder, or None."""
    weights = os.path.join(folder, WEIGHTS)
    return weights if is_file(f"{weights}.index") else CheckpointList(folder).latest()


class CheckpointList:
    """The checkpoints `model.ckpt-<step>` of one folder, as its `checkpoint` file lists them.

    Nothing outside the folder is read, whatever `checkpoint` says.

    Args:
      folder: Any path that `tf.io.gfile` reads.
    """

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def latest(self) -> str | None:
        """Returns the prefix of the latest complete checkpoint, or None where none was written.

        Raises:
          ValueError: where there are some, or `checkpoint` says so, but none is complete.
        """
        return next((stored.prefix for stored in self._whole()), None)

    def resume(
        self, variables: Mapping[str, keras.Variable], optional: Collection[str] = ()
    ) -> int | None:
        """Assigns every variable from the latest checkpoint that is sound, as `restore`.

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
        """Yields complete checkpoints, the latest first; raises where none is left to yield.

        Listed checkpoints come before others: who edits the list goes back by intention.
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
            raise OptionError(
                "output_dir",
                "hold a whole checkpoint of finite numbers",
                remedy=f"{self.folder!r} should have {_some(names)}, but none is there that is. "
                f"Restore the files, or delete them and {path!r} to start over.",
            )
        if listed is None and tf.io.gfile.exists(path):
            raise ValueError(
                f"{path!r} must list checkpoints. It cannot be read, and none is there; delete it "
                "to start over."
            )

    def _prefix(self, name: str) -> str:
        return os.path.join(self.folder, name)

    def _listed(self) -> list[str] | None:
        """Returns the names in the file `checkpoint`, the latest at the end; None if it is lost."""
        state = None
        with contextlib.suppress(tf.errors.OpError, ValueError):
            state = tf.train.get_checkpoint_state(self.folder)
        if state is None:
            return None
        # TensorFlow 1 lists full paths, which in a copied folder lead to the original one.
        listed = [*state.all_model_checkpoint_paths, state.model_checkpoint_path]
        names = [os.path.basename(path) for path in listed]
        return [name for name in dict.fromkeys(reversed(names)) if name][::-1]

    def _found(self) -> list[str]:
        """Returns the names of the checkpoints whose index is there, the latest first."""
        indices = filter(is_index, paths_from(self._prefix("model.ckpt-")))
        steps = [step for path in indices if (step := step_of(path)) is not None]
        return [of_step(step) for step in sorted(steps, reverse=True)]

    def restore(
        self, variables: Mapping[str, keras.Variable], prefix: str, optional: Collection[str] = ()
    ) -> int:
        """Assigns every variable, by name, from the checkpoint at `prefix` and returns its step.

        Variables named in `optional` stay as they are where the checkpoint lacks them.

        Raises:
          ValueError: before any assignment, where one is missing, misshapen or unreadable.
        """
        stored = Stored(prefix, "output_dir")
        lacking = [name for name in (*variables, GLOBAL_STEP) if name not in stored.shapes]
        if missing := [name for name in lacking if name not in optional]:
            raise stored._error(
                "hold a checkpoint of this model, optimizer included",
                "%r lacks %s. Give another %s; a checkpoint without optimizer slots may be the %s.",
                prefix,
                _some(missing),
                Option("output_dir"),
                Option("init_checkpoint"),
            )
        variables = {name: v for name, v in variables.items() if name not in lacking}
        stored._check_shapes({name: list(v.shape) for name, v in variables.items()})
        values = stored.read([*variables, GLOBAL_STEP])
        step = int(values[GLOBAL_STEP])
        for name, variable in variables.items():
            variable.assign(values.pop(name))
        return step


# Warnings that were logged: a folder is read several times.
_warned: set[str] = set()


def _warn_of(error: UnsoundError) -> None:
    if str(error) not in _warned:
        _warned.add(str(error))
        logger.warning("%s The latest one before it is looked for; nothing is deleted.", error)

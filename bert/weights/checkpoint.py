"""Checkpoints in the original's format: TF1 files in which every tensor is stored by its name.

A variable's name is its path. A resumable checkpoint also holds, for every trained variable, the
slots `<name>/adam_m` and `<name>/adam_v`, and `global_step` (original: optimization.py).
"""

import functools
import os
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from absl import logging

from bert.files.paths import LEFTOVER, paths_from, write_text
from bert.weights import hub, huggingface
from modeling import BertConfig

GLOBAL_STEP = "global_step"
SLOTS = ("adam_m", "adam_v")
CONFIG_FILE = "bert_config.json"
VOCAB_FILE = "vocab.txt"
# What a fine-tuned model decides.
TASK_FILE = "task.json"
# The weights alone, under the name of the released checkpoints.
WEIGHTS = "bert_model.ckpt"
# Models that need no pooler, such as those that tag tokens, are also saved without it.
_POOLER = ("bert/pooler/dense/kernel", "bert/pooler/dense/bias")
_SUFFIXES = (".index", ".meta", ".data-00000-of-00001")


def resolve(path: str, *, flag: str = "init_checkpoint") -> str:
    """Returns the prefix of the checkpoint that `path` names, or its file of safetensors.

    Args:
      path: A prefix, one of the checkpoint's own files, or a folder that holds one checkpoint, a
        `checkpoint` file, or a Hugging Face model; or the name of one on the hub, which is fetched.
      flag: The flag that gave the path, for the message.

    Raises:
      ValueError: where there is no checkpoint.
    """
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
    weights = os.path.join(folder, WEIGHTS)
    if tf.io.gfile.exists(f"{weights}.index"):
        return weights
    if latest := Checkpoints(folder).latest():
        return latest
    found = [name for name in paths_from(os.path.join(folder, "")) if name.endswith(".index")]
    if not found and (weights_file := huggingface.find(folder, flag)):
        return weights_file
    if len(found) != 1:
        raise ValueError(
            f"`--{flag}` must name one checkpoint. The folder {folder!r} holds "
            f"{[os.path.basename(name) for name in found]}; give the prefix of one."
        )
    return found[0].removesuffix(".index")


def open_reader(prefix: str, *, flag: str = "init_checkpoint") -> Any:
    """Returns the reader of the checkpoint at `prefix`, which `resolve` has given.

    Raises:
      ValueError: where the files cannot be read, or store objects rather than names.
    """
    if huggingface.is_weights(prefix):
        return huggingface.Reader(prefix, flag)
    try:
        # tf.train.load_checkpoint would take some prefixes on other file systems for folders.
        reader = tf.compat.v1.train.NewCheckpointReader(prefix)
    except (tf.errors.OpError, RuntimeError, ValueError) as error:
        raise _broken(prefix, flag, error) from error
    if reader.has_tensor("_CHECKPOINTABLE_OBJECT_GRAPH"):
        raise ValueError(
            f"`--{flag}` must name a checkpoint that stores variables by name, as TensorFlow 1 "
            f"did. {prefix!r} was written by tf.train.Checkpoint or Keras and stores objects."
        )
    return reader


def _broken(prefix: str, flag: str, error: Exception) -> ValueError:
    return ValueError(
        f"`--{flag}` must name a whole checkpoint. {prefix!r} cannot be read: {error}"
    )


def _read(reader: Any, names: Sequence[str], prefix: str, flag: str) -> list[np.ndarray]:
    """Returns the tensors of these names, all of them or none."""
    try:
        return [reader.get_tensor(name) for name in names]
    except (tf.errors.OpError, RuntimeError, IndexError) as error:
        raise _broken(prefix, flag, error) from error


def load_weights(
    variables: Sequence[keras.Variable],
    path: str,
    *,
    flag: str = "init_checkpoint",
    with_head: bool = False,
) -> None:
    """Assigns the variables that the checkpoint at `path` holds and logs a report by name.

    A head or a pooler that the checkpoint lacks keeps its initial value. Optimizer slots are not
    read.

    Args:
      variables: Those of a model.
      path: As `resolve`.
      flag: The flag that gave the path, for messages.
      with_head: Whether the checkpoint must hold the head, too, because nothing will train it.

    Raises:
      ValueError: before any assignment, where no variable or not the whole encoder is found, a
        shape differs, or a file is damaged.
    """
    prefix = resolve(path, flag=flag)
    reader = open_reader(prefix, flag=flag)
    shapes = reader.get_variable_to_shape_map()
    _check_encoder([variable.path for variable in variables], shapes, prefix, flag)
    found = [variable for variable in variables if variable.path in shapes]
    missing = [variable.path for variable in variables if variable.path not in shapes]
    # Of a pooler that nothing trains, nothing depends, either.
    unused = {variable.path for variable in variables if not variable.trainable} & set(_POOLER)
    if with_head and (lacking := [name for name in missing if name not in unused]):
        raise ValueError(
            f"`--{flag}` must hold the task's own weights, since nothing is trained. {prefix!r} "
            f"lacks {_some(lacking)}. Give `--do_train`, or a checkpoint trained for the task."
        )
    _check_shapes({v.path: list(v.shape) for v in found}, shapes, prefix)
    values = _read(reader, [variable.path for variable in found], prefix, flag)
    for variable, value in zip(found, values, strict=True):
        variable.assign(value)
    _report(prefix, found, missing, shapes)


def check_fit(path: str, config: BertConfig, *, flag: str = "init_checkpoint") -> None:
    """Checks that the checkpoint at `path` has an encoder of this shape; reads no weights.

    Raises:
      ValueError: where it has not, with the key of the configuration that differs.
    """
    prefix = resolve(path, flag=flag)
    shapes = open_reader(prefix, flag=flag).get_variable_to_shape_map()
    wanted = expected(config)
    _check_encoder(list(wanted), shapes, prefix, flag)
    _check_shapes(wanted, shapes, prefix)


def _check_encoder(
    names: Sequence[str], shapes: Mapping[str, Sequence[int]], prefix: str, flag: str
) -> None:
    """Checks that the encoder's variables are there; a pooler may be lacking as a whole."""
    missing = [name for name in names if name not in shapes]
    lacking = [name for name in missing if name.startswith("bert/")]
    if len(missing) == len(names) or (lacking and sorted(lacking) != sorted(_POOLER)):
        raise ValueError(
            f"`--{flag}` must hold the whole encoder. {prefix!r} has {len(names) - len(missing)} "
            f"of the model's {len(names)} variables and {len(shapes)} in all. Missing: "
            f"{_some(missing)}. It holds: {_some(sorted(shapes))}. Does `--bert_config_file` "
            "belong to it?"
        )


def _check_shapes(
    wanted: Mapping[str, Sequence[int]], shapes: Mapping[str, Sequence[int]], prefix: str
) -> None:
    if lines := differences(wanted, shapes):
        raise ValueError(
            f"The checkpoint {prefix!r} must have the shapes that `--bert_config_file` asks for. "
            f"{_some(lines, limit=3, separator='; ')}."
        )


def _some(names: Sequence[str], *, limit: int = 5, separator: str = ", ") -> str:
    more = len(names) - limit
    return separator.join(names[:limit]) + (f" and {more} more" if more > 0 else "") or "none"


def _report(
    prefix: str,
    found: Sequence[keras.Variable],
    missing: Sequence[str],
    shapes: Mapping[str, Sequence[int]],
) -> None:
    loaded = {variable.path for variable in found}
    unused = sorted(shapes.keys() - loaded - {GLOBAL_STEP})
    slots = [name for name in unused if name.rpartition("/")[2] in SLOTS]
    others = sorted(set(unused) - set(slots))
    logging.info(
        "Loaded %d of the model's %d variables from %s.",
        len(found),
        len(found) + len(missing),
        prefix,
    )
    for variable in found:
        logging.debug("Loaded %s %s", variable.path, tuple(variable.shape))
    for name in missing:
        logging.info("Missing there, so it starts at random: %s", name)
    if set(missing) & set(_POOLER):
        logging.warning("%s has no pooler. What is made of [CLS] needs training.", prefix)
    for name in others:
        logging.info("Unused there: %s %s", name, shapes[name])
    if slots:
        logging.info("Unused there: %d optimizer slots.", len(slots))
    if deeper := [name for name in others if name.startswith("bert/encoder/layer_")]:
        logging.warning(
            "The checkpoint has encoder layers that the model has not, such as %s: look at "
            "`num_hidden_layers` in --bert_config_file.",
            deeper[0],
        )


class Checkpoints:
    """The checkpoints `model.ckpt-<step>` of one folder, and its `checkpoint` file.

    A checkpoint appears when it is whole: its files are written beside, then renamed, the index
    last; `checkpoint` is written after that.

    Args:
      folder: Any path that `tf.io.gfile` writes.
      keep_checkpoint_max: How many to keep, the latest ones; 0 for all.
    """

    def __init__(self, folder: str, keep_checkpoint_max: int = 5) -> None:
        self.folder = folder
        self.keep_checkpoint_max = keep_checkpoint_max

    def remove_partial(self) -> None:
        """Removes what a run that was killed while it wrote has left."""
        for path in paths_from(os.path.join(self.folder, "")):
            name = os.path.basename(path.rstrip("/"))
            if not LEFTOVER.search(name):
                continue
            if tf.io.gfile.isdir(path):
                tf.io.gfile.rmtree(path)
            else:
                tf.io.gfile.remove(path)

    def latest(self) -> str | None:
        """Returns the prefix of the latest checkpoint, or None where none was ever written.

        Raises:
          ValueError: where `checkpoint` names checkpoints of which none is left.
        """
        paths = self._listed()
        existing = [path for path in paths if tf.io.gfile.exists(path + ".index")]
        if paths and not existing:
            raise ValueError(
                f"{os.path.join(self.folder, 'checkpoint')!r} names {_some(paths)}, but none is "
                "there. Restore the files, or delete that file to begin anew."
            )
        return existing[-1] if existing else None

    def _listed(self) -> list[str]:
        path = os.path.join(self.folder, "checkpoint")
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
        return list(state.all_model_checkpoint_paths)

    def save(self, variables: Mapping[str, keras.Variable], step: int) -> str:
        """Writes the variables under their names and returns the prefix."""
        prefix = os.path.join(self.folder, f"model.ckpt-{step}")
        save_variables(prefix, variables, step)
        self._keep([path for path in self._listed() if path != prefix] + [prefix])
        return prefix

    def _keep(self, paths: list[str]) -> None:
        kept = paths[-self.keep_checkpoint_max :]
        lines = [("model_checkpoint_path", kept[-1])]
        lines += [("all_model_checkpoint_paths", path) for path in kept]
        # Relative paths, so that the folder may move.
        text = "".join(f'{key}: "{os.path.basename(path)}"\n' for key, path in lines)
        write_text(os.path.join(self.folder, "checkpoint"), text)
        for path in paths[: len(paths) - len(kept)]:
            remove(path)

    def restore(self, variables: Mapping[str, keras.Variable], prefix: str) -> int:
        """Assigns every variable from the checkpoint at `prefix` and returns its step.

        Raises:
          ValueError: before any assignment, where one is missing, has another shape, or cannot be
            read.
        """
        reader = open_reader(prefix, flag="output_dir")
        shapes = reader.get_variable_to_shape_map()
        missing = [name for name in (*variables, GLOBAL_STEP) if name not in shapes]
        if missing:
            raise ValueError(
                f"`--output_dir` must hold a checkpoint of this model, optimizer included. "
                f"{prefix!r} lacks {_some(missing)}. Give another `--output_dir`; a checkpoint "
                "without optimizer slots may be the `--init_checkpoint`."
            )
        for name, variable in variables.items():
            if list(variable.shape) != list(shapes[name]):
                raise ValueError(
                    f"`--output_dir` must hold a checkpoint of this model. `{name}` is "
                    f"{shapes[name]} in {prefix!r} and {list(variable.shape)} in the model."
                )
        *values, step = _read(reader, [*variables, GLOBAL_STEP], prefix, "output_dir")
        for variable, value in zip(variables.values(), values, strict=True):
            variable.assign(value)
        return int(step)


def remove(prefix: str) -> None:
    """Removes a checkpoint, if it is there: its index first, without which it is none."""
    for name in sorted(paths_from(f"{prefix}."), key=lambda name: not name.endswith(".index")):
        tf.io.gfile.remove(name)


def save_variables(prefix: str, variables: Mapping[str, keras.Variable], step: int) -> None:
    """Writes the variables under their names, with the step, as `save_tensors`."""
    tensors = {name: np.asarray(variable) for name, variable in variables.items()}
    save_tensors(prefix, {**tensors, GLOBAL_STEP: np.asarray(step, np.int64)})


def save_tensors(prefix: str, tensors: Mapping[str, np.ndarray]) -> None:
    """Writes a TF1 checkpoint of these tensors, which appears at `prefix` only when whole."""
    partial = f"{prefix}.partial"
    names = sorted(tensors)
    with tf.device("/CPU:0"):
        tf.raw_ops.SaveV2(
            prefix=partial,
            tensor_names=names,
            shape_and_slices=[""] * len(names),
            tensors=[tf.constant(tensors[name]) for name in names],
        )
    declarations = tuple((name, tensors[name].shape, tensors[name].dtype.name) for name in names)
    with tf.io.gfile.GFile(f"{partial}.meta", "wb") as writer:
        writer.write(_meta_graph(declarations).SerializeToString(deterministic=True))
    # Without its index a checkpoint does not exist: the old one goes first, the new one comes last.
    if tf.io.gfile.exists(f"{prefix}.index"):
        tf.io.gfile.remove(f"{prefix}.index")
    for suffix in reversed(_SUFFIXES):
        tf.io.gfile.rename(partial + suffix, prefix + suffix, overwrite=True)


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


Shapes = dict[str, list[int]]


# Which key of `bert_config.json` gives which dimension of a variable, by the end of its name.
_CONFIG_KEYS = {
    "word_embeddings": ("vocab_size", "hidden_size"),
    "token_type_embeddings": ("type_vocab_size", "hidden_size"),
    "position_embeddings": ("max_position_embeddings", "hidden_size"),
    "predictions/output_bias": ("vocab_size",),
    "intermediate/dense/kernel": ("hidden_size", "intermediate_size"),
    "intermediate/dense/bias": ("intermediate_size",),
}


def expected(config: BertConfig) -> Shapes:
    """Returns the shapes of the encoder's variables by name; a test holds them to the model's."""
    width, inner = config.hidden_size, config.intermediate_size
    shapes = {
        "bert/embeddings/word_embeddings": [config.vocab_size, width],
        "bert/embeddings/token_type_embeddings": [config.type_vocab_size, width],
        "bert/embeddings/position_embeddings": [config.max_position_embeddings, width],
        **_layer_norm("bert/embeddings", width),
        **_dense("bert/pooler/dense", width, width),
    }
    for number in range(config.num_hidden_layers):
        layer = f"bert/encoder/layer_{number}"
        for name in ("self/query", "self/key", "self/value", "output/dense"):
            shapes |= _dense(f"{layer}/attention/{name}", width, width)
        shapes |= _layer_norm(f"{layer}/attention/output", width)
        shapes |= _dense(f"{layer}/intermediate/dense", width, inner)
        shapes |= _dense(f"{layer}/output/dense", inner, width)
        shapes |= _layer_norm(f"{layer}/output", width)
    return shapes


def _dense(scope: str, inputs: int, outputs: int) -> Shapes:
    return {f"{scope}/kernel": [inputs, outputs], f"{scope}/bias": [outputs]}


def _layer_norm(scope: str, width: int) -> Shapes:
    return {f"{scope}/LayerNorm/gamma": [width], f"{scope}/LayerNorm/beta": [width]}


def differences(
    wanted: Mapping[str, Sequence[int]], stored: Mapping[str, Sequence[int]]
) -> list[str]:
    """Returns a sentence for each variable that is stored in another shape, with the cause."""
    return [
        f"`{name}` is {list(stored[name])} there and {list(shape)} in the model"
        f"{_cause(name, stored[name], shape)}"
        for name, shape in wanted.items()
        if name in stored and list(stored[name]) != list(shape)
    ]


def _cause(name: str, stored: Sequence[int], wanted: Sequence[int]) -> str:
    """Returns the key of `bert_config.json` that explains a difference of shapes, if one does."""
    if name in ("output_weights", "output_bias"):
        return " (its head is that of another task or of other labels)"
    for ending, keys in _CONFIG_KEYS.items():
        if name.endswith(ending) and len(stored) == len(keys):
            causes = [
                f"`{key}` should be {there}"
                for key, there, here in zip(keys, stored, wanted, strict=True)
                if there != here
            ]
            return f" ({', '.join(causes)})"
    return ""

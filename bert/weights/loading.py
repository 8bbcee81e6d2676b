"""The configuration that weights mean, and the report of what was loaded from them."""

import os
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import keras

from bert.files import stored_models
from bert.files.paths import read_json_object
from bert.log import logger
from bert.options import Option
from bert.weights.tokenizers import HUGGINGFACE_CONFIG_FILE
from bert.weights.variables import GLOBAL_STEP, LABEL_HEAD, PROJECTION, check_size, is_slot
from modeling import BertConfig

# Models that need no pooler, such as those that tag tokens, are also saved without it.
POOLER = ("bert/pooler/dense/kernel", "bert/pooler/dense/bias")

# The embeddings or a layer, by names here or in PyTorch.
_PLACE = re.compile(r"(?:bert[./])?(?:embeddings|encoder[./]layer[._]\d+)[./]")
# What is as large as a task or a teacher: the beginning of its names, the axis, and a warning.
_SIZED = (
    (LABEL_HEAD, 0, "The head of %s is for %d labels, and not for %d: it is not loaded."),
    (
        (PROJECTION,),
        1,
        "The teacher of %s has a width of %d, and not of %d: projections to it are not loaded.",
    ),
)


def find_loadable(
    variables: Sequence[keras.Variable],
    shapes: Mapping[str, Sequence[int]],
    prefix: str,
    *,
    with_head: bool,
) -> tuple[list[keras.Variable], list[str]]:
    """Returns the variables that a checkpoint has, and the names of the others.

    A head for another number of labels, and a projection to a teacher of another width, count as
    absent.

    Args:
      variables: The variables of a model.
      shapes: The shape of every tensor in the checkpoint, by name.
      prefix: The checkpoint.
      with_head: Whether nothing will train the head, so that it counts whatever its shape.
    """
    stored = [variable for variable in variables if variable.path in shapes]
    left_out: list[str] = []
    for start, axis, text in () if with_head else _SIZED:
        others = [v for v in stored if v.path.startswith(start)]
        others = [v for v in others if list(v.shape) != list(shapes[v.path])]
        if others:
            first = others[0]
            logger.warning(text, prefix, shapes[first.path][axis], first.shape[axis])
        left_out += [variable.path for variable in others]
    found = [variable for variable in stored if variable.path not in left_out]
    return found, [v.path for v in variables if v.path not in shapes or v.path in left_out]


def log_loaded(
    prefix: str,
    shapes: Mapping[str, Sequence[int]],
    found: Sequence[keras.Variable],
    missing: Sequence[str],
) -> None:
    """Logs which variables of a model a checkpoint has, which it lacks, and what else it has.

    Args:
      prefix: The checkpoint.
      shapes: The shape of every tensor in it, by name.
      found: The variables that were assigned.
      missing: The names of the others.
    """
    unused = sorted(shapes.keys() - {v.path for v in found} - {GLOBAL_STEP})
    others = [name for name in unused if not is_slot(name)]
    logger.info(
        "Loaded %d of the model's %d variables from %s.",
        len(found),
        len(found) + len(missing),
        prefix,
    )
    for variable in found:
        logger.debug("Loaded %s %s", variable.path, tuple(variable.shape))
    if missing:
        logger.info("Missing there, so they start at random: %s", ", ".join(missing))
    if set(missing) & set(POOLER):
        logger.warning("%s has no pooler: the output for [CLS] needs training.", prefix)
    for name in others:
        logger.debug("Unused there: %s %s", name, shapes[name])
    if unused:
        logger.info(
            "Unused there: %d variables and %d optimizer slots (%s names them).",
            len(others),
            len(unused) - len(others),
            Option("verbosity", 1),
        )
    _warn_of_encoder({*(v.path for v in found), *missing}, others)


def _warn_of_encoder(known: Collection[str], others: Sequence[str]) -> None:
    """Warns of weights within the encoder that a model has not, by the names of the model's."""
    layers = {found[0] for name in known if (found := _PLACE.match(name))}
    # Programs have slots of their own beside each variable.
    within = {
        name: found[0]
        for name in others
        if (found := _PLACE.match(name)) and name.rpartition("/")[0] not in known
    }
    deeper = [n for n in within if n.startswith("bert/encoder/") and within[n] not in layers]
    if deeper:
        logger.warning(
            "The checkpoint has encoder layers that the model has not, such as %s: look at "
            "`num_hidden_layers` in %s.",
            deeper[0],
            Option("bert_config_file"),
        )
    if foreign := [name for name in within if name not in deeper]:
        logger.warning(
            "The checkpoint has weights within the encoder that no BERT has, such as %s. Where the "
            "program that wrote it computes with them, the model does not compute the same.",
            foreign[0],
        )


def read_config(path: str, stored: Any) -> BertConfig:
    """Returns the shape of a model.

    The format of the weights, where there are any, says which "gelu" is meant: a `bert_config.json`
    beside weights of the original may have keys of transformers.

    Args:
      path: The file of the configuration; "" where the file of the weights has it.
      stored: The weights, as `Stored`, or None.

    Raises:
      ValueError: naming the file, where it does not describe a BERT, or one that is too large.
    """
    if path:
        config = BertConfig.from_json_file(path)
        meant = _find_meant_gelu(path, stored)
        if meant:
            config = BertConfig.from_dict({**config.to_dict(), "hidden_act": meant})
    else:
        path = stored.prefix
        try:
            config = BertConfig.from_dict(stored.shape)
            config.check()
        except ValueError as error:
            raise ValueError(f"{path!r}: {error}") from error
    check_size(config, path)
    return config


def _find_meant_gelu(path: str, stored: Any) -> str | None:
    """Returns the activation that weights mean where it differs from that of the configuration."""
    values = read_json_object(path)
    if stored is None or values.get("hidden_act", "gelu") != "gelu":
        return None
    if stored.gelu:
        return str(stored.gelu)
    is_theirs = stored_models.is_huggingface_config(values)
    if not stored.is_huggingface and is_theirs:
        return "gelu"
    # Programs for PyTorch had the exact form before they had a `config.json`.
    is_old = not stored_models.is_safetensors(stored.prefix)
    is_named = os.path.basename(path) == HUGGINGFACE_CONFIG_FILE
    if stored.is_huggingface and not is_theirs and (is_named or is_old):
        return str(stored_models.from_huggingface(values)["hidden_act"])
    return None

"""The files that belong to a checkpoint: its configuration, its vocabulary and its casing."""

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import tensorflow as tf
from absl import logging

import tokenization
from bert.files import huggingface as huggingface_files
from bert.files.paths import (
    is_file,
    open_file,
    write_text,
)
from bert.weights import checkpoint
from modeling import BertConfig

TOKENIZER_FILE = "tokenizer.json"

# By flag, the names that its file may have in the folder of a checkpoint.
_NAMES = {
    "bert_config_file": (checkpoint.CONFIG_FILE, huggingface_files.CONFIG_FILE),
    "vocab_file": (checkpoint.VOCAB_FILE, TOKENIZER_FILE),
}

SettingsType = TypeVar("SettingsType")


def complete(settings: SettingsType) -> SettingsType:
    """Returns settings with the files that they leave out taken from the folder of the checkpoint.

    That is the folder of `init_checkpoint`, or where there is none, `output_dir`.

    Args:
      settings: A data class that has `bert_config_file`; `vocab_file` and `do_lower_case` need not
        be among its fields.

    Raises:
      ValueError: where a file is neither given nor there, or the casing is not that of the model.
    """
    init_checkpoint = getattr(settings, "init_checkpoint", None)
    output_dir = getattr(settings, "output_dir", "")
    stored = checkpoint.Stored.open(init_checkpoint) if init_checkpoint else None
    folder = stored.folder if stored else output_dir
    is_huggingface = stored is not None and stored.is_huggingface
    found: dict[str, Any] = {}
    for flag in _NAMES:
        if hasattr(settings, flag) and not getattr(settings, flag):
            found[flag] = find_file(folder, flag, is_huggingface=is_huggingface)
    if found:
        logging.info("Not given, so taken from beside the weights: %s.", ", ".join(found.values()))
    if init_checkpoint and hasattr(settings, "do_lower_case"):
        check_casing(folder, settings.do_lower_case)
    return dataclasses.replace(settings, **found)  # type: ignore[type-var]


def find_file(folder: str, flag: str, *, is_huggingface: bool = False) -> str:
    """Returns the path of the file that a flag would name.

    Args:
      folder: That of the weights.
      flag: "bert_config_file" or "vocab_file".
      is_huggingface: Whether the weights are; two configurations may lie side by side.

    Raises:
      ValueError: where it is not there.
    """
    names = _NAMES[flag]
    if is_huggingface and flag == "bert_config_file":
        names = names[::-1]
    for name in names:
        path = os.path.join(folder, name)
        if is_file(path):
            return path
    raise ValueError(
        f"`--{flag}` must be given, for there is neither {names[0]!r} nor {names[1]!r} in "
        f"{folder!r}."
    )


def read_casing(folder: str) -> tuple[bool, str] | None:
    """Returns whether the model in a folder is lower-cased, and the file that says so, if any."""
    readers = {checkpoint.TASK_FILE: _read_key, huggingface_files.TOKENIZER_CONFIG_FILE: _read_key}
    for name, read in {**readers, TOKENIZER_FILE: _read_normalizer}.items():
        path = os.path.join(folder, name)
        if is_file(path) and (casing := read(path)) is not None:
            return casing, path
    return None


def _read_key(path: str) -> bool | None:
    casing = huggingface_files.read_json(path).get("do_lower_case")
    return casing if isinstance(casing, bool) else None


def _read_normalizer(path: str) -> bool | None:
    with open_file(path) as file:
        return huggingface_files.read_casing(file.read(), path)


def check_casing(folder: str, do_lower_case: bool) -> None:
    """Checks the casing of texts against what the folder says of its model.

    Raises:
      ValueError: where they differ.
    """
    stored = read_casing(folder)
    if stored and stored[0] != do_lower_case:
        raise ValueError(
            f"`--do_lower_case` must be {stored[0]} for this model, as {stored[1]!r} says. "
            f"Received {do_lower_case}."
        )
    path = os.path.join(folder, huggingface_files.TOKENIZER_CONFIG_FILE)
    if not is_file(path):
        return
    values = huggingface_files.read_json(path)
    for key, expected in (("strip_accents", do_lower_case), ("tokenize_chinese_chars", True)):
        value = values.get(key)
        if value is not None and value != expected:
            logging.warning(
                "%s says that `%s` is %s, but texts are tokenized with %s: the original's "
                "tokenizer knows nothing else.",
                path,
                key,
                value,
                expected,
            )


def check_labels(init_checkpoint: str, labels: Sequence[str]) -> None:
    """Checks the order of a task's labels against what a Hugging Face model says of its outputs.

    Where it has other names for all or some of them, a warning says which is taken for which.

    Raises:
      ValueError: where it has the same labels in another order.
    """
    weights = checkpoint.Stored.open(init_checkpoint)
    path = os.path.join(weights.folder, huggingface_files.CONFIG_FILE)
    if not weights.is_huggingface or not is_file(path):
        return
    stored = huggingface_files.labels(huggingface_files.read_json(path))
    # transformers writes LABEL_0, LABEL_1 and so on where nobody has named them.
    if stored is None or stored == list(labels) or stored[0] == "LABEL_0":
        return
    if sorted(stored) == sorted(labels):
        raise ValueError(
            f"The task's labels must come in the order of the model's outputs. They are "
            f"{list(labels)}; {path!r} has {stored}. convert_checkpoint.py makes a folder of the "
            "model for predict.py, which keeps its order; with a custom task, "
            f"`--labels={','.join(stored)}` does, too."
        )
    pairs = ", ".join(f"{theirs} as {ours}" for theirs, ours in zip(stored, labels, strict=False))
    logging.warning("The labels in %s are not those of the task. Taken are: %s.", path, pairs)


def check_config(output_dir: str, config: BertConfig) -> None:
    """Checks `config` against the one that `keep_config` has stored in `output_dir`, if any.

    Raises:
      ValueError: where they differ, naming the keys.
    """
    path = os.path.join(output_dir, checkpoint.CONFIG_FILE)
    if not tf.io.gfile.exists(path):
        return
    stored = BertConfig.from_json_file(path).to_dict()
    differences = [
        f"`{key}` is {stored[key]!r} there and {value!r} in `--bert_config_file`"
        for key, value in config.to_dict().items()
        if stored[key] != value
    ]
    if differences:
        raise ValueError(
            f"`--output_dir` must belong to the same configuration. In {output_dir!r}, "
            f"{'; '.join(differences)}. Give another `--output_dir`, or the old configuration."
        )


def keep_config(output_dir: str, config: BertConfig) -> None:
    """Stores `config` in `output_dir`."""
    write_text(os.path.join(output_dir, checkpoint.CONFIG_FILE), config.to_json_string())


def load_tokenizer(
    vocab_file: str, do_lower_case: bool, vocab_size: int, special_tokens: Sequence[str]
) -> tokenization.FullTokenizer:
    """Returns the tokenizer of a model.

    Args:
      vocab_file: A path that `tf.io.gfile` reads.
      do_lower_case: Whether the model is uncased.
      vocab_size: What `bert_config.json` says.
      special_tokens: Tokens that the vocabulary must hold.

    Raises:
      ValueError: where the vocabulary does not fit.
    """
    tokenizer = tokenization.FullTokenizer(vocab_file, do_lower_case)
    check_vocabulary(tokenizer.vocab, vocab_file, vocab_size, special_tokens)
    return tokenizer


def check_vocabulary(
    vocab: Mapping[str, int], vocab_file: str, vocab_size: int, special_tokens: Sequence[str]
) -> None:
    """Checks that a vocabulary has the special tokens and fits the model.

    Args:
      vocab: The id of every token.
      vocab_file: Where it is from, for messages.
      vocab_size: What `bert_config.json` says.
      special_tokens: Tokens that it must hold.

    Raises:
      ValueError: where it does not.
    """
    if missing := [token for token in special_tokens if token not in vocab]:
        raise ValueError(
            f"`--vocab_file` must hold {list(special_tokens)}. {vocab_file!r} lacks {missing}."
        )
    size = max(vocab.values()) + 1
    if size > vocab_size:
        raise ValueError(
            f"`--vocab_file` must have at most {vocab_size} tokens, the `vocab_size` in "
            f"--bert_config_file. {vocab_file!r} has {size}; do they belong together?"
        )
    if size < vocab_size:
        logging.warning(
            "%r has %d tokens, but `vocab_size` in --bert_config_file is %d. Do they belong "
            "together?",
            vocab_file,
            size,
            vocab_size,
        )


def require_segments(config: BertConfig, what: str) -> None:
    """Raises `ValueError` if a model has no two types of segments, which `what` has."""
    if config.type_vocab_size < 2:
        raise ValueError(
            f"`type_vocab_size` in --bert_config_file must be at least 2, for {what}. "
            f"Received {config.type_vocab_size}."
        )

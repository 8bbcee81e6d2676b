"""The files of a model on disk: their names, and the `config.json` of transformers.

The checkpoint of a prefix is the file `<prefix>.index` and those beside it. Where the name begins
with a dot, it is the index of records (`bert.files.paths.index_path`).
"""

import os
import re
from collections.abc import Mapping
from typing import Any

# The weights alone, under the name of the released checkpoints.
WEIGHTS = "bert_model.ckpt"
# Of a checkpoint as it is written here. Without the first one, it is none.
SUFFIXES = (".index", ".meta", ".data-00000-of-00001")
# Ends the prefix of one that is being written, or was when its process was killed.
PARTIAL = ".partial"

SAFETENSORS_FILE = "model.safetensors"
# Of a model in several files.
SAFETENSORS_INDEX_FILE = "model.safetensors.index.json"
SAVED_MODEL_FILE = "saved_model.pb"
# Of Keras' own form.
KERAS_ENDING = ".weights.h5"
KERAS_FILE = f"bert_model{KERAS_ENDING}"
# Of an archive of Keras, and of a preset of keras-hub.
KERAS_WEIGHTS_FILE = f"model{KERAS_ENDING}"
# Of files with weights that other programs write.
WEIGHTS_ENDINGS = (
    *(".safetensors", ".h5", ".keras", ".msgpack", ".gguf", ".pb"),
    *(".bin", ".pt", ".pth", ".ckpt"),
)
# Beside the weights of a fine-tuned model, what it decides.
TASK_FILE = "task.json"

_OF_STEP = re.compile(r"model\.ckpt-(\d+)")
# Names that the original writes with several devices are included.
_SUFFIX = r"\.(?:index|meta|data-\d{5}-of-\d{5})"
_OF_CHECKPOINT = re.compile(rf"(.+){_SUFFIX}", re.DOTALL)
# While it is open, TensorFlow adds a number.
_OF_PARTIAL = re.compile(rf"(.+){re.escape(PARTIAL)}{_SUFFIX}(?:\.tempstate\d+)?", re.DOTALL)

# Files of any content end in .bin.
_OF_ENDINGS = "|".join(re.escape(end) for end in WEIGHTS_ENDINGS if end != ".bin")
_WEIGHTS = re.compile(
    rf"[^.].*(\.index|\.data-\d{{5}}-of-\d{{5}}|{_OF_ENDINGS})|pytorch_model.*\.bin"
)
# What makes a model of weights, beside them.
_BESIDE = re.compile(
    r".+\.meta|.+\.index\.json|checkpoint|vocab\.txt|(bert_)?config\.json|task\.json"
    r"|tokenizer(_config)?\.json|special_tokens_map\.json|added_tokens\.json"
    r"|modules\.json|sentence_bert_config\.json|config_sentence_transformers\.json"
)


def of_step(step: int) -> str:
    """Returns the name of a training's checkpoint."""
    return f"model.ckpt-{step}"


def step_of(path: str) -> int | None:
    """Returns the step that the name of a checkpoint, or of one of its files, tells, or None."""
    match = _OF_STEP.fullmatch(os.path.basename(prefix_of(path) or path))
    return int(match[1]) if match else None


def prefix_of(path: str) -> str | None:
    """Returns the prefix of the checkpoint to which a file belongs, or None."""
    match = _OF_CHECKPOINT.fullmatch(path)
    return match[1] if match else None


def unfinished_prefix_of(path: str) -> str | None:
    """Returns the prefix of the checkpoint that a file which is not finished is for, or None."""
    match = _OF_PARTIAL.fullmatch(path)
    return match[1] if match else None


def is_index(path: str) -> bool:
    """Returns whether a path is the index of a whole checkpoint."""
    is_hidden = os.path.basename(path).startswith(".")
    return path.endswith(".index") and not is_hidden and not unfinished_prefix_of(path)


def is_safetensors(path: str) -> bool:
    """Returns whether a path is that of safetensors, or of the index of several such files."""
    return path.endswith(".safetensors") or os.path.basename(path) == SAFETENSORS_INDEX_FILE


def is_weights(name: str) -> bool:
    """Returns whether a file of that name holds weights, of any kind."""
    return bool(_WEIGHTS.fullmatch(name))


def is_of_model(name: str) -> bool:
    """Returns whether a file of that name is a model's, if there are weights in its folder."""
    return is_weights(name) or bool(_BESIDE.fullmatch(name))


# Their "gelu" is the error-function form; Google's, and so this project's, is the tanh form.
_ACTIVATIONS = {
    "gelu": "gelu_erf",
    "gelu_python": "gelu_erf",
    "gelu_new": "gelu",
    "gelu_fast": "gelu",
    "gelu_pytorch_tanh": "gelu",
    "relu": "relu",
    "tanh": "tanh",
    "linear": "linear",
}

# The keys of `bert_config.json`, with what transformers takes where they are absent.
_SHAPE = {
    "vocab_size": 30522,
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.1,
    "max_position_embeddings": 512,
    "type_vocab_size": 2,
    "initializer_range": 0.02,
}

# What this project computes; another value would give other numbers.
HUGGINGFACE_FIXED = {
    "model_type": "bert",
    "position_embedding_type": "absolute",
    "layer_norm_eps": 1e-12,
    "is_decoder": False,
    "add_cross_attention": False,
    "is_encoder_decoder": False,
    "pruned_heads": {},
    "quantization_config": None,
    "auto_map": None,
}

# None of these is a key of `bert_config.json`.
_MARKS = ("model_type", "architectures", "transformers_version", "layer_norm_eps")


def is_huggingface_config(values: Mapping[str, Any]) -> bool:
    """Returns whether a parsed configuration is one of transformers."""
    return any(mark in values for mark in _MARKS)


def from_huggingface(values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the keys and values of a `bert_config.json` for the same model.

    Args:
      values: A parsed `config.json`.

    Raises:
      ValueError: where it describes what this project does not compute, naming key and value.
    """
    for key, only in HUGGINGFACE_FIXED.items():
        value = values.get(key, only)
        if value != only and not (value is None and not only):
            raise ValueError(f"`{key}` must be {only!r}, or absent. Received {value!r}.")
    shape = {key: values.get(key, default) for key, default in _SHAPE.items()}
    activation = shape["hidden_act"]
    if not isinstance(activation, str) or activation not in _ACTIVATIONS:
        raise ValueError(
            f"`hidden_act` must be among {sorted(_ACTIVATIONS)}. Received {activation!r}."
        )
    return {**shape, "hidden_act": _ACTIVATIONS[activation]}


# Keys of an encoder of keras-hub and keras-nlp, with those of `bert_config.json`.
_OF_KERAS_HUB = {
    "vocabulary_size": "vocab_size",
    "hidden_dim": "hidden_size",
    "num_layers": "num_hidden_layers",
    "num_heads": "num_attention_heads",
    "intermediate_dim": "intermediate_size",
    "max_sequence_length": "max_position_embeddings",
    "num_segments": "type_vocab_size",
}
_OWN_ENCODER = "bert>BertModel"


def is_keras_config(values: Mapping[str, Any]) -> bool:
    """Returns whether an object is an encoder as Keras describes it."""
    name = values.get("registered_name")
    return isinstance(name, str) and (name == _OWN_ENCODER or name.endswith("Backbone"))


def from_keras(values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the keys and values of a `bert_config.json` for an encoder that Keras describes.

    Args:
      values: An object for which `is_keras_config` holds.

    Raises:
      ValueError: where the encoder is no BERT, or is not described.
    """
    config = values.get("config")
    if not str(values["registered_name"]).endswith((">BertBackbone", _OWN_ENCODER)):
        raise ValueError(f"The model must be a BERT. It is a {values['registered_name']!r:.80}.")
    if isinstance(config, dict) and values["registered_name"] == _OWN_ENCODER:
        config = config.get("config")
    if not isinstance(config, dict):
        raise ValueError(f"`config` must be an object. Received {config!r:.80}.")
    if values["registered_name"] == _OWN_ENCODER:
        return config
    return {ours: config.get(theirs) for theirs, ours in _OF_KERAS_HUB.items()}

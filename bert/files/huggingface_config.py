"""Reads the `config.json` of a BERT of transformers as the `bert_config.json` of the same model."""

from collections.abc import Mapping
from typing import Any

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
FIXED = {
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


def is_config(values: Mapping[str, Any]) -> bool:
    """Returns whether a parsed configuration is one of transformers."""
    return any(mark in values for mark in _MARKS)


def to_bert(values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the keys and values of a `bert_config.json` for the same model.

    Args:
      values: A parsed `config.json`.

    Raises:
      ValueError: where it describes what this project does not compute, naming key and value.
    """
    for key, only in FIXED.items():
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

"""Finds the names in a TF1 checkpoint of the tensors in files of other programs.

PyTorch's names are those of modules, with kernels transposed (`Variable.theirs`); those of Keras
are in the tables of `libraries`.
"""

import math
import re

import numpy as np

from bert.weights import libraries
from bert.weights.formats import FormatError, OtherModelError, Tensor, Tensors, check_limits
from bert.weights.variables import find_variables

_TIED = {
    "cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
    "cls.predictions.decoder.bias": "cls.predictions.bias",
}
# Buffers of some versions of transformers: 0, 1, 2 and so on.
_BUFFERS = ("bert.embeddings.position_ids", "bert.embeddings.token_type_ids")

# Parts of names that other architectures have, and no BERT.
_OTHERS = {
    **{name.lower(): name for name in ("RoBERTa", "DistilBERT", "ALBERT", "ELECTRA", "DeBERTa")},
    **{name.lower(): name for name in ("MobileBERT", "Longformer")},
    **{"q_lin": "DistilBERT", "embedding_hidden_mapping_in": "ALBERT"},
    **{"embeddings_project": "ELECTRA", "rel_embeddings": "DeBERTa", "in_proj": "DeBERTa"},
    # Layers of keras-hub, bert4keras and bert-for-tf2.
    **{"token_and_position_embedding": "RoBERTa or DistilBERT", "layer_shared": "ALBERT"},
    **{"roberta_backbone": "RoBERTa", "distil_bert_backbone": "DistilBERT"},
    **{"albert_backbone": "ALBERT", "electra_backbone": "ELECTRA"},
    **{"deberta_v3_backbone": "DeBERTa", "disentangled_attention_encoder": "DeBERTa"},
    **{"Embedding-Mapping": "ALBERT or ELECTRA", "albert_layer_groups": "ALBERT"},
    **{"funnel": "Funnel Transformer", "rel_attn": "XLNet"},
}


def name_tensors(stored: Tensors) -> Tensors:
    """Returns tensors by their names in a TF1 checkpoint, in its layouts.

    Args:
      stored: The tensors by their names in a file.

    Raises:
      FormatError: where a tensor is there twice or contradicts another, or the model is no BERT.
    """
    check_limits(stored)
    _check_architecture(stored)
    plain = {name: _plain(name) for name in stored}
    table = {v.theirs: v for v in find_variables(plain.values()).values()}
    ordered = libraries.order(stored)
    library = libraries.find_library(ordered.values())
    sources: dict[str, str] = {}
    tensors: dict[str, Tensor] = {}
    for theirs in sorted(stored):
        if plain[theirs] in _BUFFERS or plain[theirs] in _TIED:
            continue
        variable = table.get(plain[theirs])
        if variable is None:
            found = libraries.find_name(ordered[theirs], library)
            name, tensor = _as_stored_in_tf1(found or theirs.removesuffix(":0"), stored[theirs])
        else:
            tensor = stored[theirs].transposed() if variable.is_transposed else stored[theirs]
            name = variable.name
        if name in tensors and not _are_equal(tensors[name], tensor):
            raise FormatError(
                f"it must have each tensor once, and has {sources[name]!r} and {theirs!r}"
            )
        sources[name], tensors[name] = theirs, tensor
    by_plain = {name: theirs for theirs, name in plain.items()}
    for name, twin in _TIED.items():
        if not {name, twin} <= by_plain.keys():
            continue
        if not _are_equal(stored[by_plain[name]], stored[by_plain[twin]]):
            raise FormatError(
                "BERT's output weights are tied to the embeddings, and its "
                f"{by_plain[name]!r} differs from {by_plain[twin]!r}"
            )
    if bias := by_plain.get("cls.predictions.decoder.bias"):
        tensors.setdefault("cls/predictions/output_bias", stored[bias])
    return tensors


def _are_equal(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and np.array_equal(one.read(), other.read())


def _check_architecture(stored: Tensors) -> None:
    for name in stored:
        for part in re.split(r"[./]", name):
            if part in _OTHERS:
                raise OtherModelError(
                    f"it is a {_OTHERS[part]}, as its {name!r} shows, and no BERT, whose weights "
                    "are what is read here"
                )


def _as_stored_in_tf1(name: str, tensor: Tensor) -> tuple[str, Tensor]:
    """Returns a tensor of Keras in the layout of a TF1 checkpoint, with its name there."""
    if name.endswith("output_kernel"):
        return name.removesuffix("kernel") + "weights", tensor.transposed()
    return name, _without_heads(name, tensor)


def _without_heads(name: str, tensor: Tensor) -> Tensor:
    """Returns a tensor of the Model Garden, which has an axis for heads, without that axis."""
    if "/attention/" not in name or len(tensor.shape) == 1 + name.endswith("/kernel"):
        return tensor
    if name.endswith("/bias"):
        return tensor.reshaped(math.prod(tensor.shape))
    if "/output/" in name:
        return tensor.reshaped(math.prod(tensor.shape[:-1]), tensor.shape[-1])
    return tensor.reshaped(tensor.shape[0], math.prod(tensor.shape[1:]))


def _plain(stored: str) -> str:
    """Returns the current name of a tensor in PyTorch, with the prefix of the encoder."""
    stored = stored.removeprefix("module.")
    if stored.startswith(("embeddings.", "encoder.", "pooler.")):
        stored = f"bert.{stored}"
    module, _, leaf = stored.rpartition(".")
    if module.endswith("LayerNorm"):
        leaf = {"gamma": "weight", "beta": "bias"}.get(leaf, leaf)
    return f"{module}.{leaf}" if module else leaf

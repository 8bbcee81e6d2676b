"""Names and layouts of variables in files of other libraries, as in a TF1 checkpoint.

PyTorch's names are those of modules, with kernels transposed (`Variable.theirs`). A library of
Keras or Flax names the layers of its models, so that a name in a file ends as a table here says.
Where layers are only numbered, as `dense_7`, they are in the order in which a model makes them.
"""

import math
import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np

from bert.log import logger
from bert.weights.formats import FormatError, OtherModelError, Tensor, Tensors, check_limits
from bert.weights.variables import WORD_TABLE, find_variables

_LAYER = r"bert/encoder/layer_\g<layer>"
_NORM = "(?P<leaf>gamma|beta)"
_DENSE = "(?P<leaf>kernel|bias)"
_LEAF = r"\g<leaf>"
_ATTENTION = (
    *("attention/self/query", "attention/self/key", "attention/self/value"),
    "attention/output/dense",
)
_FEED_FORWARD = ("intermediate/dense", "output/dense")
_TABLES = (
    WORD_TABLE,
    "bert/embeddings/token_type_embeddings",
    "bert/embeddings/position_embeddings",
)
_TRANSFORM = "cls/predictions/transform"
# Kernels of classes, whose names end in "output_kernel", are transposed in a TF1 checkpoint.
_PAIRS = "cls/seq_relationship/output_"


class Library(NamedTuple):
    """A library whose models are read.

    Attributes:
      mark: The end of a name that is in all of its files, and in no other's.
      names: Ends of names, as patterns, with the names in a TF1 checkpoint.
      gelu: What it computes for the `hidden_act` "gelu" of a configuration; None for what the
        program computes that the configuration is of.
      first_layer: The number of its first layer.
    """

    mark: str
    names: Mapping[str, str]
    gelu: str | None = None
    first_layer: int = 0


def _hyphenated(layer: str, pooler: str, pairs: str, output_bias: str) -> dict[str, str]:
    """Returns the names that keras-bert and bert4keras have in common but for these."""
    kinds = zip(("Token", "Segment", "Position"), _TABLES, strict=True)
    attention, feed_forward = f"{layer}-MultiHeadSelfAttention", f"{layer}-FeedForward"
    return {
        **{f"Embedding-{kind}/embeddings": table for kind, table in kinds},
        f"Embedding-Norm/{_NORM}": f"bert/embeddings/LayerNorm/{_LEAF}",
        f"{attention}-Norm/{_NORM}": f"{_LAYER}/attention/output/LayerNorm/{_LEAF}",
        f"{feed_forward}-Norm/{_NORM}": f"{_LAYER}/output/LayerNorm/{_LEAF}",
        f"{pooler}/{_DENSE}": f"bert/pooler/dense/{_LEAF}",
        f"{pairs}/{_DENSE}": f"{_PAIRS}{_LEAF}",
        f"MLM-Dense/{_DENSE}": f"{_TRANSFORM}/dense/{_LEAF}",
        f"MLM-Norm/{_NORM}": f"{_TRANSFORM}/LayerNorm/{_LEAF}",
        output_bias: "cls/predictions/output_bias",
    }


def _lettered(start: str, letters: str, parts: Iterable[str]) -> dict[str, str]:
    """Returns the names of kernels `W` and biases `b`, as keras-bert has them."""
    return {
        f"{start}_{kind}{letter}": f"{_LAYER}/{part}/{leaf}"
        for letter, part in zip(letters, parts, strict=True)
        for kind, leaf in (("W", "kernel"), ("b", "bias"))
    }


def _numbered(start: str, parts: Iterable[str]) -> dict[str, str]:
    """Returns the names of dense layers that are known by their order in a layer."""
    return {
        f"{start}/dense#{number}/{_DENSE}": f"{_LAYER}/{part}/{_LEAF}"
        for number, part in enumerate(parts)
    }


_ENCODER = r"Encoder-(?P<layer>\d+)"
_KERAS_BERT = Library(
    mark=r"Encoder-\d+-MultiHeadSelfAttention_Wq",
    names={
        **_hyphenated(_ENCODER, "NSP-Dense", "NSP", "MLM-Sim/bias"),
        **_lettered(f"{_ENCODER}-MultiHeadSelfAttention", "qkvo", _ATTENTION),
        **_lettered(f"{_ENCODER}-FeedForward", "12", _FEED_FORWARD),
    },
    first_layer=1,
)
_TRANSFORMER = r"Transformer-(?P<layer>\d+)"
_BERT4KERAS = Library(
    mark=r"Transformer-\d+-MultiHeadSelfAttention/dense#3/kernel",
    names={
        **_hyphenated(_TRANSFORMER, "Pooler-Dense", "NSP-Proba", "MLM-Bias/beta"),
        **_numbered(f"{_TRANSFORMER}-MultiHeadSelfAttention", _ATTENTION),
        **_numbered(f"{_TRANSFORMER}-FeedForward", _FEED_FORWARD),
    },
    gelu="gelu_erf",
)
# bert-for-tf2: names of the original, but for an axis less in the path of a layer.
_BERT_FOR_TF2 = Library(
    mark=r"encoder/layer_\d+/intermediate/kernel",
    names={
        rf"encoder/layer_(?P<layer>\d+)/intermediate/{_DENSE}": f"{_LAYER}/intermediate/dense/"
        + _LEAF,
        r"(encoder/layer_\d+/(?:attention|output)/.+)": r"bert/\1",
        r"embeddings/(\w+_embeddings)/embeddings": r"bert/embeddings/\1",
        f"embeddings/LayerNorm/{_NORM}": f"bert/embeddings/LayerNorm/{_LEAF}",
    },
)


def _in_order(path: str, name: str, leaves: Iterable[str] = ("kernel", "bias")) -> dict[str, str]:
    """Returns the names of variables of a layer, which Keras 3 stores by their order."""
    return {f"{path}/vars/{number}": f"{name}/{leaf}" for number, leaf in enumerate(leaves)}


def _keras_hub(mark: str, backbone: str, head: str) -> Library:
    """Returns the names of keras-hub and keras-nlp.

    Args:
      mark: As for `Library`.
      backbone: The beginning of names in the encoder.
      head: The layer of classes.
    """
    layer = f"{backbone}transformer_encoder#(?P<layer>\\d+)"
    dense = zip(("query", "key", "value", "output"), _ATTENTION, strict=True)
    names = {
        f"{backbone}reversible_embedding/vars/0": WORD_TABLE,
        # What the head of keras-nlp shares with the encoder is stored there.
        "masked_lm_head/token_embedding/vars/0": WORD_TABLE,
        f"{backbone}embedding/vars/0": _TABLES[1],
        f"{backbone}position_embedding/vars/0": _TABLES[2],
        **_norm(f"{backbone}layer_normalization", "bert/embeddings"),
        **_norm(f"{layer}/_self_attention_layer_norm", f"{_LAYER}/attention/output"),
        **_norm(f"{layer}/_feedforward_layer_norm", f"{_LAYER}/output"),
        **_in_order(f"{layer}/_feedforward_intermediate_dense", f"{_LAYER}/intermediate/dense"),
        **_in_order(f"{layer}/_feedforward_output_dense", f"{_LAYER}/output/dense"),
        **_in_order(f"{backbone}dense", "bert/pooler/dense"),
    }
    for kind, part in dense:
        names |= _in_order(f"{layer}/_self_attention_layer/_?{kind}_dense", f"{_LAYER}/{part}")
    names |= {f"{head}/vars/0": "output_kernel", f"{head}/vars/1": "output_bias"}
    return Library(mark, names, gelu="gelu")


def _norm(path: str, name: str) -> dict[str, str]:
    return _in_order(path, f"{name}/LayerNorm", ("gamma", "beta"))


_KERAS_HUB_TASK = _keras_hub(
    "bert_backbone/layers/transformer_encoder#0/.+", "bert_backbone/layers/", "layers/dense"
)
# The head of a preset is in a file of its own.
_KERAS_HUB = _keras_hub("layers/transformer_encoder#0/.+", "(?<!task/)layers/", "task/layers/dense")


def _of_make_model() -> Library:
    """Returns the names of models of this project's `make_model`."""
    layer = "bert_model/encoder/transformer_layers/transformer_layer#(?P<layer>\\d+)"
    embeddings = "bert_model/embeddings"
    transform = "pretraining_heads/predictions/transform"
    names = {
        **{f"{embeddings}/vars/{number}": table for number, table in enumerate(_TABLES)},
        **_norm(f"{embeddings}/layer_norm", "bert/embeddings"),
        **_norm(f"{layer}/attention/output_projection/layer_norm", f"{_LAYER}/attention/output"),
        **_norm(f"{layer}/output_projection/layer_norm", f"{_LAYER}/output"),
        **_in_order(f"{layer}/attention/output_projection/dense", f"{_LAYER}/{_ATTENTION[3]}"),
        **_in_order(f"{layer}/intermediate/dense", f"{_LAYER}/intermediate/dense"),
        **_in_order(f"{layer}/output_projection/dense", f"{_LAYER}/output/dense"),
        **_in_order("bert_model/pooler/dense", "bert/pooler/dense"),
        **_norm(f"{transform}/layer_norm", _TRANSFORM),
        **_in_order(f"{transform}/dense", f"{_TRANSFORM}/dense"),
        "pretraining_heads/predictions/vars/0": "cls/predictions/output_bias",
        "pretraining_heads/seq_relationship/vars/0": f"{_PAIRS}weights",
        "pretraining_heads/seq_relationship/vars/1": f"{_PAIRS}bias",
    }
    for number, part in enumerate(_ATTENTION[:3]):
        path = f"{layer}/attention/self_attention/projections/dense#{number}"
        names |= _in_order(path, f"{_LAYER}/{part}")
    for number, direction in enumerate(("forward", "backward")):
        path = f"bert_model/encoder/lstm_layers/bilstm_layer#(?P<layer>\\d+)/lstms/lstm#{number}"
        leaves = ("kernel", "recurrent_kernel", "bias")
        names |= _in_order(path, f"{_LAYER}/{direction}", leaves)
        path = f"{transform}/transforms/prediction_transform#{number}"
        names |= _norm(f"{path}/layer_norm", f"{_TRANSFORM}/{direction}")
        names |= _in_order(f"{path}/dense", f"{_TRANSFORM}/{direction}/dense")
    for head, scope in (("output_layer", ""), ("span", "cls/squad/")):
        names |= {
            f"{head}/vars/{number}": f"{scope}output_{leaf}"
            for number, leaf in enumerate(("weights", "bias"))
        }
    return Library("bert_model/embeddings/vars/0", names)


# Flax* of transformers.
_FLAX_LAYER = r"encoder/layer/(?P<layer>\d+)"
_FLAX = Library(
    mark=rf"{_FLAX_LAYER}/attention/self/query/kernel",
    names={
        r"embeddings/(\w+_embeddings)/embedding": r"bert/embeddings/\1",
        r"embeddings/LayerNorm/scale": "bert/embeddings/LayerNorm/gamma",
        r"embeddings/LayerNorm/bias": "bert/embeddings/LayerNorm/beta",
        rf"{_FLAX_LAYER}/(.+)/LayerNorm/scale": rf"{_LAYER}/\2/LayerNorm/gamma",
        rf"{_FLAX_LAYER}/(.+)/LayerNorm/bias": rf"{_LAYER}/\2/LayerNorm/beta",
        rf"{_FLAX_LAYER}/(.+)": rf"{_LAYER}/\2",
        f"pooler/dense/{_DENSE}": f"bert/pooler/dense/{_LEAF}",
        "cls/predictions/transform/LayerNorm/scale": f"{_TRANSFORM}/LayerNorm/gamma",
        "cls/predictions/transform/LayerNorm/bias": f"{_TRANSFORM}/LayerNorm/beta",
        f"cls/predictions/transform/dense/{_DENSE}": f"{_TRANSFORM}/dense/{_LEAF}",
        "cls/predictions/bias": "cls/predictions/output_bias",
        f"cls/seq_relationship/{_DENSE}": f"{_PAIRS}{_LEAF}",
        f"qa_outputs/{_DENSE}": f"cls/squad/output_{_LEAF}",
        f"classifier/{_DENSE}": f"output_{_LEAF}",
    },
)

_BLOCK = r"(?:transformer|encoder)/layer_(?P<layer>\d+)/"
_GARDEN_HEAD = "(?:next_sentence|sentence_prediction)"
# A pooler that a head of the Model Garden with a pooler of its own passes over, and the head of
# `BertPretrainer`, whose name other models give to another one.
_POOLER = r"pooler_transform/(.+)"
_PAIRS_OF_PRETRAINER = r"predictions/transform/logits/(kernel|bias)"
# This project in the older format of Keras, TFBert* of transformers, and the Model Garden, of 2019
# on (official/nlp/tools/tf1_bert_checkpoint_converter_lib.py).
_NAMES = {
    r"(bert/encoder/layer_\d+/.+)": r"\1",
    r"(cls/\w+/output_(?:weights|bias))": r"\1",
    r"(output_(?:weights|bias))": r"\1",
    r"bert/encoder/layer_\._(\d+)/(.+)": r"bert/encoder/layer_\1/\2",
    r"bert/embeddings/(\w+_embeddings)/(?:weight|embeddings)": r"bert/embeddings/\1",
    r"(bert/(?:embeddings|pooler)/.+)": r"\1",
    r"mlm___cls/predictions/bias": r"cls/predictions/output_bias",
    r"mlm___(cls/predictions/.+)": r"\1",
    r"nsp___cls/seq_relationship/(kernel|bias)": rf"{_PAIRS}\1",
    r"qa_outputs/(kernel|bias)": r"cls/squad/output_\1",
    r"classifier/(kernel|bias)": r"output_\1",
    r"word_embeddings/embeddings": WORD_TABLE,
    r"(?:embedding_postprocessor/type_embeddings|type_embeddings/embeddings)": _TABLES[1],
    r"(?:embedding_postprocessor/position_embeddings|position_embedding/embeddings)": _TABLES[2],
    r"(?:embedding_postprocessor|embeddings)/layer_norm/(.+)": r"bert/embeddings/LayerNorm/\1",
    rf"{_BLOCK}self_attention/(query|key|value)/(.+)": rf"{_LAYER}/attention/self/\2/\3",
    rf"{_BLOCK}self_attention(?:/attention)?_output/(.+)": rf"{_LAYER}/attention/output/dense/\2",
    rf"{_BLOCK}self_attention_layer_norm/(.+)": rf"{_LAYER}/attention/output/LayerNorm/\2",
    rf"{_BLOCK}(intermediate|output)/(.+)": rf"{_LAYER}/\2/dense/\3",
    rf"{_BLOCK}output_layer_norm/(.+)": rf"{_LAYER}/output/LayerNorm/\2",
    _POOLER: r"bert/pooler/dense/\1",
    rf"{_GARDEN_HEAD}/pooler_dense/(.+)": r"bert/pooler/dense/\1",
    r"cls/predictions/output_bias/bias": r"cls/predictions/output_bias",
    r"(cls/predictions/transform/.+)": r"\1",
    r"next_sentence/logits/(kernel|bias)": rf"{_PAIRS}\1",
    r"sentence_prediction/logits/(kernel|bias)": r"output_\1",
    _PAIRS_OF_PRETRAINER: rf"{_PAIRS}\1",
}
# Its names are in part those of bert-for-tf2.
_GARDEN_OF_2019 = Library("self_attention_output/kernel", _NAMES)
_LIBRARIES = (
    *(_KERAS_BERT, _BERT4KERAS, _GARDEN_OF_2019, _BERT_FOR_TF2, _FLAX),
    *(_KERAS_HUB_TASK, _KERAS_HUB, _of_make_model()),
)
# Layers that Keras numbers, where several are in one place.
_COUNTED = re.compile(
    r"(?<=/)(dense|transformer_encoder|transformer_layer|bilstm_layer|lstm|prediction_transform)"
    r"(?:_(\d+))?(?=/)"
)


def find_library(names: Iterable[str]) -> Library:
    """Returns the library that wrote a file with tensors of these names, as `order` has them."""
    names = [*names]
    for library in _LIBRARIES:
        if any(re.fullmatch(f"(?:.*/)?{library.mark}", name) for name in names):
            return library
    left_out = []
    if any(re.search(rf"{_GARDEN_HEAD}/pooler_dense/", name) for name in names):
        left_out.append(_POOLER)
    if not any("cls/predictions/transform/" in name for name in names):
        left_out.append(_PAIRS_OF_PRETRAINER)
    return Library("", {key: name for key, name in _NAMES.items() if key not in left_out})


def order(names: Iterable[str]) -> dict[str, str]:
    """Returns names by which layers can be found, by the names in a file.

    A layer that Keras has numbered as it liked is there by its order: of `dense_5` and `dense_9` in
    one layer, the first is `dense#0`.
    """
    names = [*names]
    numbers: dict[tuple[str, str], set[int]] = {}
    for name in names:
        for found in _COUNTED.finditer(name):
            place = (name[: found.start()], found[1])
            numbers.setdefault(place, set()).add(int(found[2] or 0))
    ranks = {
        (*place, number): f"{place[1]}#{rank}"
        for place, found in numbers.items()
        for rank, number in enumerate(sorted(found))
        if len(found) > 1 or place[1] != "dense"
    }

    def ranked(found: re.Match[str]) -> str:
        place = (found.string[: found.start()], found[1], int(found[2] or 0))
        return ranks.get(place, found[0])

    return {name: _COUNTED.sub(ranked, name.removesuffix(":0")) for name in names}


def find_name(name: str, library: Library) -> str | None:
    """Returns the name in a TF1 checkpoint of a variable, as `order` has it; None for no name."""
    for pattern, replacement in library.names.items():
        if match := re.fullmatch(f"(?:.*/)?{pattern}", name):
            found = match.expand(replacement)
            return re.sub(
                r"(?<=encoder/layer_)\d+",
                lambda number: str(int(number[0]) - library.first_layer),
                found,
            )
    return None


# Copies of other tensors in a masked-LM head that is tied to the embeddings, as BERT's is.
_TIED = {
    "cls.predictions.decoder.weight": WORD_TABLE,
    "cls.predictions.decoder.bias": "cls/predictions/output_bias",
    # Flax has it only where the head is not tied, and in another shape.
    "cls/predictions/decoder/kernel": WORD_TABLE,
}
# What is before the names of a model in PyTorch that DataParallel, torch.compile, a module of
# Lightning, or sentence-transformers holds.
_AROUND = re.compile(r"^((module|_orig_mod|model|0\.auto_model)\.)+")
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
      FormatError: where a tensor is there twice, or the model is no BERT.
    """
    check_limits(stored)
    if other := find_other(stored):
        raise other
    plain = {name: _plain(name) for name in stored}
    table = {v.theirs: v for v in find_variables(plain.values()).values()}
    ordered = order(stored)
    library = find_library(ordered.values())
    sources: dict[str, str] = {}
    tensors: dict[str, Tensor] = {}
    for theirs in sorted(stored):
        if plain[theirs] in _BUFFERS or plain[theirs] in _TIED:
            continue
        variable = table.get(plain[theirs])
        if variable is None:
            found = find_name(ordered[theirs], library)
            name, tensor = _as_stored_in_tf1(found or theirs.removesuffix(":0"), stored[theirs])
        else:
            tensor = stored[theirs].transposed() if variable.is_transposed else stored[theirs]
            name = variable.name
        if name in tensors and not _are_equal(tensors[name], tensor):
            raise FormatError(
                f"it must have each tensor once, and has {sources[name]!r} and {theirs!r}"
            )
        sources[name], tensors[name] = theirs, tensor
    return _tie(tensors, {plain[name]: stored[name] for name in stored if plain[name] in _TIED})


def _tie(tensors: Tensors, copies: Tensors) -> Tensors:
    """Returns tensors without a masked-LM head that is not tied to the embeddings.

    Args:
      tensors: The tensors by their names in a TF1 checkpoint.
      copies: The tensors of the names in `_TIED`.
    """
    tied = {**{_TIED[name]: tensor for name, tensor in copies.items()}, **tensors}
    pairs = ((name, tied[twin]) for name, twin in _TIED.items() if name in copies)
    untied = [name for name, twin in pairs if not _are_equal(twin, copies[name])]
    if not untied:
        return tied
    logger.warning(
        "The masked-LM head has output weights of its own, %s, and BERT's are those of the "
        "embeddings: the head is left out.",
        untied[0],
    )
    return {name: tied[name] for name in tied if not name.startswith("cls/predictions/")}


def _are_equal(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and np.array_equal(one.read(), other.read())


def find_other(names: Iterable[str]) -> OtherModelError | None:
    """Returns an error that names the other architecture of tensors, None where none is known."""
    for name in names:
        for part in re.split(r"[./]", name):
            if part in _OTHERS:
                return OtherModelError(
                    f"it is a {_OTHERS[part]}, as its {name!r} shows, and no BERT, whose weights "
                    "are what is read here"
                )
    return None


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
    # NVIDIA's programs compute a layer and its activation in one module.
    stored = _AROUND.sub("", stored).replace(".dense_act.", ".dense.")
    if stored.startswith(("embeddings.", "encoder.", "pooler.")):
        stored = f"bert.{stored}"
    module, _, leaf = stored.rpartition(".")
    if module.endswith("LayerNorm"):
        leaf = {"gamma": "weight", "beta": "bias"}.get(leaf, leaf)
    return f"{module}.{leaf}" if module else leaf

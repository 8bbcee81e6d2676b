"""Weights of transformers: found in a folder, read by their names in a TF1 checkpoint, and written.

PyTorch's names are those of modules, with kernels transposed (`Variable.theirs`). Keras' names are
those of TF1 scopes but for a few (transformers: modeling_tf_bert.py). `write` makes safetensors.
"""

import json
import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, BinaryIO

import numpy as np
import safetensors.numpy

from bert.files.paths import open_file, parse_json, read_json_object
from bert.files.stored_models import (
    KERAS_ENDING,
    SAFETENSORS_FILE,
    SAFETENSORS_INDEX_FILE,
    is_safetensors,
)
from bert.options import Message, Option, OptionError
from bert.weights.formats import (
    FormatError,
    OtherModelError,
    Tensor,
    Tensors,
    check_limits,
    read_hdf5,
    read_objects,
    read_safetensors,
)
from bert.weights.options import ARCHITECTURES
from bert.weights.pickles import read_pickle
from bert.weights.saving import GLOBAL_STEP, PICKLES, is_single_file
from bert.weights.variables import WORD_TABLE, Table, find_variables

# The weights in a folder of transformers, in one file or several; the first that is there.
FILES = (
    *(SAFETENSORS_FILE, SAFETENSORS_INDEX_FILE),
    *("tf_model.h5", "tf_model.h5.index.json"),
    *("pytorch_model.bin", "pytorch_model.bin.index.json"),
)
# The endings of weights under other names, and of what is beside them and has other content.
_ENDINGS = (".h5", ".bin", ".pt", ".pth", ".ckpt")
_BESIDE = re.compile(r"(training_args|optimizer|scheduler|scaler|rng_state.*)\.(bin|pt|pth)")
_UNREAD = (".msgpack", ".onnx")
# How files of HDF5 begin.
_HDF5 = b"\x89HDF\r\n\x1a\n"

_TIED = {
    "cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
    "cls.predictions.decoder.bias": "cls.predictions.bias",
}
# Buffers of some versions of transformers: 0, 1, 2 and so on.
_BUFFERS = ("bert.embeddings.position_ids", "bert.embeddings.token_type_ids")

_BLOCK, _LAYER = r"transformer/layer_(\d+)/", r"bert/encoder/layer_\1/"
_GARDEN_HEAD = "(?:next_sentence|sentence_prediction)"
# A pooler that a head of the Model Garden with a pooler of its own passes over, and the head of
# `BertPretrainer`, whose name other models give to another one.
_POOLER = r"pooler_transform/(.+)"
_PAIRS = r"predictions/transform/logits/(kernel|bias)"
# The end of a name that Keras writes, with the name in a TF1 checkpoint.
_KERAS_NAMES = {
    # TFBert* of transformers.
    r"bert/encoder/layer_\._(\d+)/(.+)": r"bert/encoder/layer_\1/\2",
    r"bert/embeddings/(\w+_embeddings)/(?:weight|embeddings)": r"bert/embeddings/\1",
    r"(bert/(?:embeddings|pooler)/.+)": r"\1",
    r"mlm___cls/predictions/bias": r"cls/predictions/output_bias",
    r"mlm___(cls/predictions/.+)": r"\1",
    r"nsp___cls/seq_relationship/(kernel|bias)": r"cls/seq_relationship/output_\1",
    r"qa_outputs/(kernel|bias)": r"cls/squad/output_\1",
    r"classifier/(kernel|bias)": r"output_\1",
    # The Model Garden (official/nlp/tools/tf1_bert_checkpoint_converter_lib.py).
    r"word_embeddings/embeddings": r"bert/embeddings/word_embeddings",
    r"position_embedding/embeddings": r"bert/embeddings/position_embeddings",
    r"type_embeddings/embeddings": r"bert/embeddings/token_type_embeddings",
    r"embeddings/layer_norm/(.+)": r"bert/embeddings/LayerNorm/\1",
    rf"{_BLOCK}self_attention/(query|key|value)/(.+)": rf"{_LAYER}attention/self/\2/\3",
    rf"{_BLOCK}self_attention/attention_output/(.+)": rf"{_LAYER}attention/output/dense/\2",
    rf"{_BLOCK}self_attention_layer_norm/(.+)": rf"{_LAYER}attention/output/LayerNorm/\2",
    rf"{_BLOCK}(intermediate|output)/(.+)": rf"{_LAYER}\2/dense/\3",
    rf"{_BLOCK}output_layer_norm/(.+)": rf"{_LAYER}output/LayerNorm/\2",
    _POOLER: r"bert/pooler/dense/\1",
    rf"{_GARDEN_HEAD}/pooler_dense/(.+)": r"bert/pooler/dense/\1",
    r"cls/predictions/output_bias/bias": r"cls/predictions/output_bias",
    r"(cls/predictions/transform/.+)": r"\1",
    r"next_sentence/logits/(kernel|bias)": r"cls/seq_relationship/output_\1",
    r"sentence_prediction/logits/(kernel|bias)": r"output_\1",
    _PAIRS: r"cls/seq_relationship/output_\1",
}
# Parts of names that other architectures have, and no BERT.
_OTHERS = {
    **{name.lower(): name for name in ("RoBERTa", "DistilBERT", "ALBERT", "ELECTRA", "DeBERTa")},
    **{name.lower(): name for name in ("MobileBERT", "Longformer")},
    **{"q_lin": "DistilBERT", "embedding_hidden_mapping_in": "ALBERT"},
    **{"embeddings_project": "ELECTRA", "rel_embeddings": "DeBERTa", "in_proj": "DeBERTa"},
    **{"funnel": "Funnel Transformer", "rel_attn": "XLNet"},
}


def find_reader(path: str) -> Callable[[str], Tensors] | None:
    """Returns the reader of a file, by its name or its first bytes; None for other files."""
    if path.endswith(".index.json"):
        return _read_shards
    if is_safetensors(path):
        return read_safetensors
    if path.endswith(KERAS_ENDING) or not os.path.isfile(path):
        return None
    with open_file(path) as file:
        start = file.read(len(_HDF5))
    if start == _HDF5:
        return read_hdf5
    return read_pickle if start.startswith(PICKLES) else None


def is_usual(name: str) -> bool:
    """Returns whether a file of that name has weights in a folder of transformers."""
    return name in FILES or is_safetensors(name)


def find(path: str, option: str) -> str | None:
    """Returns the file of weights that `path` names or its folder holds, or None.

    Raises:
      ValueError: where there are several, or weights of formats that are not read; `option` gave
        the path.
    """
    found = [path] if os.path.isfile(path) else []
    if os.path.isdir(path):
        names = sorted(os.listdir(path))
        usual = [name for name in FILES if name in names][:1]
        others = [name for name in names if not _BESIDE.fullmatch(name)]
        found = [os.path.join(path, name) for name in usual or others]
    endings = (".index.json", ".safetensors", *_ENDINGS)
    readable = [file for file in found if file.endswith(endings) and find_reader(file)]
    if len(readable) == 1:
        return readable[0]
    if readable:
        names = [os.path.basename(file) for file in readable]
        raise OptionError(option, "name one file", remedy=f"The folder {path!r} holds {names}.")
    for other in found:
        if other.endswith(KERAS_ENDING):
            raise OptionError(
                option,
                "name a checkpoint or a safetensors file",
                remedy=Message(
                    "%r holds weights of Keras: convert_checkpoint.py makes a checkpoint of them, "
                    "with %s.",
                    *(other, Option("format", "tf")),
                ),
            )
        if other.endswith((*_ENDINGS, *_UNREAD)) and not is_single_file(other):
            raise OptionError(
                option,
                "name weights in a format that is read here",
                remedy=f"{other!r} is none: neither safetensors, nor HDF5, nor of torch.save. "
                f"To have {SAFETENSORS_FILE}, load it with transformers, and call "
                "`model.save_pretrained(folder, safe_serialization=True)`.",
            )
    return None


class Reader:
    """Reads the tensors of a model by their names in a TF1 checkpoint.

    Numbers of 16 bits become float32. Tensors without a name in this project keep their own.

    Args:
      stored: The tensors by their names in a file.

    Attributes:
      is_huggingface: Whether the names are those of transformers.

    Raises:
      FormatError: where a tensor is there twice or contradicts another, or the model is no BERT.
    """

    def __init__(self, stored: Tensors) -> None:
        self.is_huggingface = any("layer_._" in name or "encoder.layer" in name for name in stored)
        self._tensors = name_tensors(stored)

    def get_variable_to_shape_map(self) -> dict[str, list[int]]:
        """Returns the shape of each tensor as a TF1 checkpoint has it."""
        return {name: [*tensor.shape] for name, tensor in self._tensors.items()}

    def has_tensor(self, name: str) -> bool:
        """Returns whether there is such a tensor."""
        return name in self._tensors

    def get_tensor(self, name: str) -> np.ndarray:
        """Returns the tensor of that name."""
        value = self._tensors[name].read()
        return value.astype(np.float32) if value.dtype == np.float16 else value


def open_objects(reader: Any) -> Reader:
    """Returns the tensors of a model that TensorFlow 2 has stored by objects, as `read_objects`."""
    found = Reader(read_objects(reader))
    if not found.has_tensor(WORD_TABLE):
        raise OtherModelError(
            "it was written by tf.train.Checkpoint or Keras and stores objects, none of which is "
            "the encoder of transformers or the Model Garden by name. Of a released BERT, take "
            "the weights of Google's original release (docs/weights.md has the links) or of the "
            "hub, such as google-bert/bert-base-uncased"
        )
    return found


def find_shards(path: str) -> list[str]:
    """Returns the files that an index lists."""
    listed = read_json_object(path).get("weight_map")
    if not isinstance(listed, dict) or not all(isinstance(v, str) for v in listed.values()):
        raise FormatError("it must have a `weight_map` from names to files")
    files = []
    for name in sorted(set(listed.values())):
        file = os.path.join(os.path.dirname(path), name)
        if name != os.path.basename(name) or not os.path.isfile(file):
            raise FormatError(f"it must have all of the files that it lists; {name!r} is not there")
        files.append(file)
    return files


def _read_shards(path: str) -> Tensors:
    """Returns the tensors of all files of an index."""
    tensors: dict[str, Tensor] = {}
    for file in find_shards(path):
        reader = find_reader(file)
        if reader is None or reader is _read_shards:
            raise FormatError(f"{file!r} holds no weights")
        try:
            found = reader(file)
        except FormatError as error:
            raise FormatError(f"{file!r}: {error}") from error
        tensors |= found
    return tensors


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
    patterns = _find_patterns(stored)
    sources: dict[str, str] = {}
    tensors: dict[str, Tensor] = {}
    for theirs in sorted(stored):
        if plain[theirs] in _BUFFERS or plain[theirs] in _TIED:
            continue
        variable = table.get(plain[theirs])
        if variable is None:
            name, tensor = _from_keras(theirs, stored[theirs], patterns)
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


def _find_patterns(stored: Tensors) -> dict[str, str]:
    """Returns the rows of `_KERAS_NAMES` that hold for a file."""
    left_out = []
    if any(re.search(rf"{_GARDEN_HEAD}/pooler_dense/", name) for name in stored):
        left_out.append(_POOLER)
    if not any("cls/predictions/transform/" in name for name in stored):
        left_out.append(_PAIRS)
    return {pattern: name for pattern, name in _KERAS_NAMES.items() if pattern not in left_out}


def _from_keras(stored: str, tensor: Tensor, patterns: dict[str, str]) -> tuple[str, Tensor]:
    """Returns a tensor with the name of TF1, or as it is stored where Keras writes no such name."""
    for pattern, replacement in patterns.items():
        if match := re.fullmatch(f"(?:.*/)?{pattern}", stored.removesuffix(":0")):
            name = match.expand(replacement)
            if name.endswith("output_kernel"):
                return name.removesuffix("kernel") + "weights", tensor.transposed()
            return name, _without_heads(name, tensor)
    return stored, tensor


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


def split(tensor_names: Sequence[str]) -> tuple[Table, list[str]]:
    """Returns the variables of tensors by name, and the names without one in transformers."""
    table = find_variables(tensor_names)
    known = {name: table[name] for name in tensor_names if name in table}
    return known, [name for name in tensor_names if name not in table and name != GLOBAL_STEP]


def architecture_of(tensor_names: Sequence[str]) -> str:
    """Returns the first of `ARCHITECTURES` all heads of which are among the tensors."""
    present = set(tensor_names)
    return next(name for name, heads in ARCHITECTURES.items() if present.issuperset(heads))


def write(file: BinaryIO, tensors: Mapping[str, np.ndarray], architecture: str) -> None:
    """Writes `model.safetensors`.

    Args:
      file: Open for bytes.
      tensors: By their names in a TF1 checkpoint; tensors without a name in transformers are left
        out, and `global_step` becomes metadata.
      architecture: One of `ARCHITECTURES`.
    """
    known, _ = split(list(tensors))
    # The encoder alone is saved without the prefix that it has within other models.
    prefix = "bert." if architecture == "BertModel" else ""
    stored = {}
    for name, variable in known.items():
        value = tensors[name].T if variable.is_transposed else tensors[name]
        stored[variable.theirs.removeprefix(prefix)] = np.ascontiguousarray(value)
    metadata = {"format": "pt"}
    if GLOBAL_STEP in tensors:
        metadata[GLOBAL_STEP] = str(int(tensors[GLOBAL_STEP]))
    content = memoryview(safetensors.numpy.save(dict(sorted(stored.items())), metadata))
    # The library writes the entries of the metadata in a random order, in a header that is padded.
    end = 8 + int.from_bytes(content[:8], "little")
    header = {**parse_json(bytes(content[8:end]).decode()), "__metadata__": metadata}
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False)
    file.write(content[:8])
    file.write(text.encode().ljust(end - 8))
    file.write(content[end:])

"""SavedModels as folders of weights: variables, and the vocabulary and casing of TensorFlow Hub.

A module of TensorFlow Hub has its vocabulary in `assets/`. Casing and vocabulary are constants in
its graph, behind the outputs of the signature `tokenization_info`, or the casing is a variable:
they are read as they are stored. The graph, which may do anything to the machine it runs on, is
never run nor loaded.
"""

import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf
from google.protobuf.message import DecodeError
from tensorflow.core.protobuf import meta_graph_pb2, saved_model_pb2

from bert.files.paths import is_file, read_file
from bert.files.stored_models import SAVED_MODEL_FILE
from bert.options import Message, Option, OptionError
from bert.weights.formats import FormatError
from bert.weights.variables import WORD_TABLE

# The head size of all released modules.
HEAD_SIZE = 64
SIGNATURE = "tokenization_info"
CASING = "do_lower_case"
_ASSETS = "saved_model_assets"
_VARIABLES = "variables"
# What splits text in a graph that may fold cases in another operation.
_SPLITTING = "WordpieceTokenizeWithOffsets"


def find_prefix(folder: str) -> str | None:
    """Returns the prefix of the variables of a SavedModel in a folder, or None."""
    prefix = os.path.join(folder, _VARIABLES, _VARIABLES)
    has_graph = is_file(os.path.join(folder, SAVED_MODEL_FILE))
    return prefix if has_graph and is_file(f"{prefix}.index") else None


def find_folder(prefix: str) -> str | None:
    """Returns the folder of the SavedModel whose variables a prefix names, or None."""
    folder = os.path.dirname(os.path.dirname(prefix))
    return folder if find_prefix(folder) == prefix else None


def has_only_weights(folder: str) -> bool:
    """Returns whether a SavedModel has variables, and takes no texts, as exports here do."""
    try:
        graphs = read_graphs(folder) if find_prefix(folder) else []
    except FormatError:
        return False
    serving = [graph.signature_def["serving_default"] for graph in graphs]
    dtypes = {info.dtype for signature in serving for info in signature.inputs.values()}
    return bool(graphs) and tf.string.as_datatype_enum not in dtypes


def find_shape(shapes: Mapping[str, Sequence[int]]) -> dict[str, Any] | None:
    """Returns the keys of a `bert_config.json` by the shapes of variables.

    Returns None where there is no encoder, or none with heads of the size that modules have.
    """
    numbers = [int(found[1]) for name in shapes if (found := re.search(r"/layer_(\d+)/", name))]
    inner = "bert/encoder/layer_0/intermediate/dense/bias"
    tables = [f"bert/embeddings/{kind}_embeddings" for kind in ("position", "token_type")]
    if not numbers or not {WORD_TABLE, inner, *tables} <= shapes.keys():
        return None
    vocab_size, width = shapes[WORD_TABLE]
    if width % HEAD_SIZE:
        return None
    return {
        "vocab_size": vocab_size,
        "hidden_size": width,
        "num_hidden_layers": max(numbers) + 1,
        "num_attention_heads": width // HEAD_SIZE,
        "intermediate_size": shapes[inner][0],
        "max_position_embeddings": shapes[tables[0]][0],
        "type_vocab_size": shapes[tables[1]][0],
    }


def find_vocabulary(folder: str) -> str | None:
    """Returns the only asset of a SavedModel, or the one that its graph names, or None."""
    assets = os.path.join(folder, "assets")
    names = tf.io.gfile.listdir(assets) if tf.io.gfile.isdir(assets) else []
    if len(names) > 1 and is_file(os.path.join(folder, SAVED_MODEL_FILE)):
        named = {name for graph in read_graphs(folder) for name in _named_assets(graph)}
        names = sorted(named.intersection(names))
    if len(names) == 1 and is_file(os.path.join(assets, names[0])):
        return os.path.join(assets, names[0])
    return None


def find_preprocessing(folder: str) -> tuple[str, bool | None] | None:
    """Returns the vocabulary and the casing of a preprocessing model of TensorFlow Hub, or None.

    Such a model splits texts for an encoder. It is uncased if it folds cases; None as the casing
    means that its operations do not say it. A damaged file is named by whoever reads it next.
    """
    try:
        has_graph = is_file(os.path.join(folder, SAVED_MODEL_FILE))
        graphs = read_graphs(folder) if has_graph else []
    except FormatError:
        return None
    functions = [each for graph in graphs for each in graph.graph_def.library.function]
    operations = {node.op for function in functions for node in function.node_def}
    vocabulary = find_vocabulary(folder)
    if not vocabulary or not any("Wordpiece" in name for name in operations):
        return None
    return vocabulary, "CaseFoldUTF8" in operations if _SPLITTING in operations else None


def find_text_options(
    vocab_file: str | None, do_lower_case: bool | None
) -> tuple[str | None, bool | None]:
    """Returns a vocabulary's file and casing as given, or those of a preprocessing model.

    Args:
      vocab_file: A file, or the folder of a preprocessing model, if any.
      do_lower_case: The given casing, if any.

    Raises:
      OptionError: where the casing is not the one of the preprocessing model.
    """
    found = find_preprocessing(vocab_file) if vocab_file else None
    vocabulary, casing = found or (vocab_file, do_lower_case)
    if None not in (casing, do_lower_case) and casing != do_lower_case:
        must = f"be {casing} for the preprocessing model {vocab_file!r}"
        raise OptionError("do_lower_case", must, do_lower_case)
    return vocabulary, do_lower_case if casing is None else casing


def check_encodes(folder: str, option: str) -> None:
    """Checks that a SavedModel is no preprocessing model.

    Raises:
      OptionError: where it is one.
    """
    if find_preprocessing(folder):
        raise OptionError(
            option,
            "name a model with an encoder",
            folder,
            Message(
                "It is a preprocessing model: it has a vocabulary, and no weights. Name the "
                "encoder that belongs to it, and give this folder as %s.",
                Option("vocab_file"),
            ),
        )


def read_casing(stored: Any) -> tuple[bool, str] | None:
    """Returns whether variables are those of an uncased SavedModel, and its file, or None.

    Its graph says it, or one of its variables.

    Args:
      stored: Weights, as `Stored`.
    """
    folder = find_folder(stored.prefix)
    if not folder:
        return None
    path = os.path.join(folder, SAVED_MODEL_FILE)
    for graph in read_graphs(folder):
        casing = _constant_bool(_source(graph, CASING))
        if casing is not None:
            return casing, path
    return (bool(stored.read([CASING])[CASING]), path) if CASING in stored.shapes else None


def read_graphs(folder: str) -> Sequence[meta_graph_pb2.MetaGraphDef]:
    """Returns the graphs of a SavedModel, as messages.

    Raises:
      FormatError: where the file is damaged.
    """
    path = os.path.join(folder, SAVED_MODEL_FILE)
    try:
        return list(saved_model_pb2.SavedModel.FromString(read_file(path)).meta_graphs)
    except DecodeError as error:
        raise FormatError(f"{path!r} is not a SavedModel: {error}.") from error


def _source(graph: meta_graph_pb2.MetaGraphDef, output: str) -> Any:
    """Returns the node from which an output of the signature comes unchanged, or None."""
    if SIGNATURE not in graph.signature_def:
        return None
    outputs = graph.signature_def[SIGNATURE].outputs
    name = outputs[output].name if output in outputs else ""
    nodes = {node.name: node for node in graph.graph_def.node}
    seen: set[str] = set()
    while (node := nodes.get(name.removesuffix(":0"))) and node.name not in seen:
        seen.add(node.name)
        if node.op != "Identity":
            return node
        name = node.input[0] if node.input else ""
    return None


def _constant_bool(node: Any) -> bool | None:
    """Returns the value of a node that is a constant truth value, else None."""
    if node is None or node.op != "Const":
        return None
    tensor = node.attr["value"].tensor
    if tensor.dtype != tf.bool.as_datatype_enum or any(
        d.size != 1 for d in tensor.tensor_shape.dim
    ):
        return None
    stored = [*tensor.bool_val, *tensor.tensor_content]
    return bool(stored[0]) if len(stored) == 1 else None


def _named_assets(graph: meta_graph_pb2.MetaGraphDef) -> list[str]:
    """Returns the names of the files in `assets/` that the signature gives as vocabulary."""
    node = _source(graph, "vocab_file")
    names = []
    for stored in graph.collection_def[_ASSETS].any_list.value if node is not None else ():
        asset = meta_graph_pb2.AssetFileDef()
        if stored.Unpack(asset) and asset.tensor_info.name.removesuffix(":0") == node.name:
            names.append(asset.filename)
    return names

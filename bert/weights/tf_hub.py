"""BERT modules of TensorFlow Hub, such as bert_uncased_L-12_H-768_A-12/1, up to version 4.

A module is a folder, as its archive unpacks: `saved_model.pb`, `variables/` with the names of the
original's checkpoints, or from version 2 on those of the Model Garden, and the vocabulary in
`assets/`. The shapes of its variables give its configuration. Casing and vocabulary are constants
in its graph, behind the outputs of the signature `tokenization_info`, or the casing is a variable:
they are read as they are stored. The graph, which may do anything to the machine it runs on, is
never run nor loaded.
"""

import functools
import os
import re
from collections.abc import Sequence
from typing import Any

import tensorflow as tf
from google.protobuf.message import DecodeError
from tensorflow.core.protobuf import meta_graph_pb2, saved_model_pb2

from bert.files.paths import is_file, read_file
from bert.files.stored_models import SAVED_MODEL_FILE
from bert.options import Message, Option, OptionError
from bert.weights.checkpoint import Stored
from bert.weights.folder import ModelFolder
from bert.weights.saving import UnsoundError
from modeling import BertConfig

OPTION = "bert_hub_module_handle"
# The head size of all released modules.
HEAD_SIZE = 64
_SIGNATURE = "tokenization_info"
_ASSETS = "saved_model_assets"


def is_module(folder: str) -> bool:
    """Returns whether a folder holds a module, or another SavedModel."""
    return tf.io.gfile.exists(os.path.join(folder, SAVED_MODEL_FILE))


def check_local(handle: str) -> None:
    """Checks that a module is not named by its address, as TensorFlow Hub took it."""
    if handle.startswith(("http:", "https:")):
        raise OptionError(
            OPTION,
            "be a folder",
            handle,
            "Fetch its archive and unpack it, or name the model on the Hugging Face hub, such as "
            "google-bert/bert-base-uncased.",
        )


class Module(ModelFolder):
    """The folder of a module, which holds its configuration and its casing in its own way.

    Args:
      path: A folder for which `is_module` holds.
      vocab_file: The vocabulary, for a module without one.
      do_lower_case: The casing, for a module that does not say it.

    Raises:
      ValueError: where the module is none of a BERT, with what to give instead.
    """

    def __init__(
        self, path: str, *, vocab_file: str | None = None, do_lower_case: bool | None = None
    ) -> None:
        check_local(path)
        stored = Stored(os.path.join(path, "variables", "variables"), OPTION)
        try:
            shapes = stored.shapes
        except UnsoundError:
            raise
        except ValueError:
            # Of objects, as TensorFlow 2 stores them.
            shapes = {}
        if "bert/embeddings/word_embeddings" not in shapes:
            raise OptionError(
                OPTION,
                "be a BERT module of TensorFlow Hub, with the variables of the original or of the "
                "Model Garden and a vocabulary",
                remedy=Message(
                    "%r is a SavedModel of another kind. What %s of run_classifier.py takes will "
                    "do, too: a checkpoint or its folder, or a Hugging Face model.",
                    *(path, Option("init_checkpoint")),
                ),
            )
        self._graphs = _read_graphs(path)
        super().__init__(path, OPTION, stored, vocab_file=self._find_vocabulary(path, vocab_file))
        self._casing = do_lower_case

    def _find_vocabulary(self, path: str, given: str | None) -> str:
        """Returns the only asset, or the one that the graph names, or else what is given."""
        assets = os.path.join(path, "assets")
        names = tf.io.gfile.listdir(assets) if tf.io.gfile.isdir(assets) else []
        if len(names) > 1:
            named = {name for graph in self._graphs for name in _named_assets(graph)}
            names = sorted(named.intersection(names))
        if len(names) == 1 and is_file(os.path.join(assets, names[0])):
            return os.path.join(assets, names[0])
        if given:
            return given
        raise OptionError(
            "vocab_file",
            "be given for a module without a vocabulary",
            remedy=f"{path!r} has none as the only file in its folder 'assets', or as the one that "
            f"its signature {_SIGNATURE!r} names.",
        )

    @functools.cached_property
    def config(self) -> BertConfig:
        """The shape of the model, by the shapes of its variables."""
        shapes = self.stored.shapes
        vocab_size, width = shapes["bert/embeddings/word_embeddings"]
        numbers = [int(found[1]) for name in shapes if (found := re.search(r"/layer_(\d+)/", name))]
        return BertConfig(
            vocab_size=vocab_size,
            hidden_size=width,
            num_hidden_layers=max(numbers) + 1,
            num_attention_heads=width // HEAD_SIZE,
            intermediate_size=shapes["bert/encoder/layer_0/intermediate/dense/bias"][0],
            max_position_embeddings=shapes["bert/embeddings/position_embeddings"][0],
            type_vocab_size=shapes["bert/embeddings/token_type_embeddings"][0],
        )

    @functools.cached_property
    def do_lower_case(self) -> bool:
        """Whether the model is uncased, by its graph, or else as given."""
        for graph in self._graphs:
            casing = _constant_bool(_source(graph, "do_lower_case"))
            if casing is not None:
                return casing
        if "do_lower_case" in self.stored.shapes:
            return bool(self.stored.read(["do_lower_case"])["do_lower_case"])
        if self._casing is not None:
            return self._casing
        raise OptionError(
            "do_lower_case",
            "be given, as true or false, for a module that does not say its casing",
            remedy=f"{self.path!r} has no plain constant as `do_lower_case` of a signature "
            f"{_SIGNATURE!r}; its graph is not run to find out.",
        )


def _read_graphs(folder: str) -> Sequence[meta_graph_pb2.MetaGraphDef]:
    """Returns the graphs of a module that have the signature of tokenization, as messages."""
    path = os.path.join(folder, SAVED_MODEL_FILE)
    try:
        saved = saved_model_pb2.SavedModel.FromString(read_file(path))
    except DecodeError as error:
        remedy = f"{path!r} is not a SavedModel: {error}."
        raise OptionError(OPTION, "be a whole module", remedy=remedy) from error
    return [graph for graph in saved.meta_graphs if _SIGNATURE in graph.signature_def]


def _source(graph: meta_graph_pb2.MetaGraphDef, output: str) -> Any:
    """Returns the node from which an output of the signature comes unchanged, or None."""
    outputs = graph.signature_def[_SIGNATURE].outputs
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

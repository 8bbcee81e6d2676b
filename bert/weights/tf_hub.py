"""BERT modules of TensorFlow Hub in its first format, such as bert_uncased_L-12_H-768_A-12/1.

A module is a folder, as its archive unpacks: `saved_model.pb`, `variables/` with the names of the
original's checkpoints, and the vocabulary as the only file in `assets/`. Its configuration is told
by the shapes of its variables, and its casing by its signature `tokenization_info`.
"""

import functools
import os
import re

import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from bert.weights.checkpoint import Stored
from bert.weights.folder import ModelFolder
from modeling import BertConfig

FLAG = "bert_hub_module_handle"
# That of all released modules.
HEAD_SIZE = 64
_SIGNATURE = "tokenization_info"


def is_module(folder: str) -> bool:
    """Returns whether a folder holds a module, or another SavedModel."""
    return tf.io.gfile.exists(os.path.join(folder, "saved_model.pb"))


class Module(ModelFolder):
    """The module in a folder, which tells its configuration and its casing in its own way.

    Args:
      path: A folder that `is_module` knows.

    Raises:
      ValueError: where it is none of a BERT, with what to give instead.
    """

    def __init__(self, path: str) -> None:
        stored = Stored(os.path.join(path, "variables", "variables"), FLAG)
        assets = os.path.join(path, "assets")
        files = tf.io.gfile.listdir(assets) if tf.io.gfile.isdir(assets) else []
        if "bert/embeddings/word_embeddings" not in stored.shapes or len(files) != 1:
            raise ValueError(
                f"`--{FLAG}` must be a BERT module in the format of TensorFlow Hub 1, with the "
                f"variables of the original and a vocabulary. {path!r} is a SavedModel of another "
                "kind. What --init_checkpoint of run_classifier.py takes will do, too: a "
                "checkpoint or its folder, or a Hugging Face model."
            )
        super().__init__(path, FLAG, stored, vocab_file=os.path.join(assets, files[0]))

    @functools.cached_property
    def config(self) -> BertConfig:
        """The shape of the model, by that of its variables."""
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
        """Whether the model is uncased, by its signature; a `ValueError` where it has none."""
        return _read_casing(self.path)


def _read_casing(folder: str) -> bool:
    path = os.path.join(folder, "saved_model.pb")
    with tf.io.gfile.GFile(path, "rb") as file:
        content = file.read()
    try:
        saved = saved_model_pb2.SavedModel.FromString(content)
        graphs = [each for each in saved.meta_graphs if _SIGNATURE in each.signature_def]
        output = graphs[0].signature_def[_SIGNATURE].outputs["do_lower_case"].name
        with tf.Graph().as_default() as graph, tf.compat.v1.Session() as session:
            tf.import_graph_def(graphs[0].graph_def, name="")
            return bool(session.run(graph.get_tensor_by_name(output)))
    except Exception as error:  # Whatever TensorFlow says of a graph that it cannot read.
        raise ValueError(
            f"`--{FLAG}` must tell its casing by a signature {_SIGNATURE!r} with "
            f"`do_lower_case`. {path!r} does not ({type(error).__name__}: {error})."
        ) from error

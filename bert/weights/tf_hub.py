"""BERT modules of TensorFlow Hub in its first format, such as bert_uncased_L-12_H-768_A-12/1.

A module is a folder, as its archive unpacks: `saved_model.pb`, `variables/` with the names of the
original's checkpoints, and the vocabulary as the only file in `assets/`. Its configuration is told
by the shapes of its variables, and its casing by its signature `tokenization_info`.
"""

import dataclasses
import os
import re

import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

import modeling
from bert.weights.checkpoint import Stored

# That of all released modules.
HEAD_SIZE = 64
_SIGNATURE = "tokenization_info"


@dataclasses.dataclass(frozen=True)
class Module:
    """What a module holds.

    Attributes:
      vocab_file: Path of its vocabulary.
      do_lower_case: Whether its texts are lower-cased.
      init_checkpoint: Prefix of its weights.
      config: Its shape.
    """

    vocab_file: str
    do_lower_case: bool
    init_checkpoint: str
    config: modeling.BertConfig


def is_module(folder: str) -> bool:
    """Returns whether a folder holds a module, or another SavedModel."""
    return tf.io.gfile.exists(os.path.join(folder, "saved_model.pb"))


def read(folder: str, *, flag: str = "bert_hub_module_handle") -> Module:
    """Returns what the module in a folder holds.

    Args:
      folder: As `is_module` knows it.
      flag: The flag that gave the folder, for messages.

    Raises:
      ValueError: where it is none of a BERT, with what to give instead.
    """
    prefix = os.path.join(folder, "variables", "variables")
    shapes = Stored(prefix, flag).shapes
    assets = os.path.join(folder, "assets")
    files = tf.io.gfile.listdir(assets) if tf.io.gfile.isdir(assets) else []
    if "bert/embeddings/word_embeddings" not in shapes or len(files) != 1:
        raise ValueError(
            f"`--{flag}` must be a BERT module in the format of TensorFlow Hub 1, with the "
            f"variables of the original and a vocabulary. {folder!r} is a SavedModel of another "
            "kind. What --init_checkpoint of run_classifier.py takes will do, too: a checkpoint "
            "or its folder, or a Hugging Face model."
        )
    return Module(
        vocab_file=os.path.join(assets, files[0]),
        do_lower_case=_read_casing(folder, flag),
        init_checkpoint=prefix,
        config=_config(shapes),
    )


def _read_casing(folder: str, flag: str) -> bool:
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
            f"`--{flag}` must tell its casing by a signature {_SIGNATURE!r} with "
            f"`do_lower_case`. {path!r} does not ({type(error).__name__}: {error})."
        ) from error


def _config(shapes: dict[str, list[int]]) -> modeling.BertConfig:
    vocab_size, width = shapes["bert/embeddings/word_embeddings"]
    numbers = [int(found[1]) for name in shapes if (found := re.search(r"/layer_(\d+)/", name))]
    return modeling.BertConfig(
        vocab_size=vocab_size,
        hidden_size=width,
        num_hidden_layers=max(numbers) + 1,
        num_attention_heads=width // HEAD_SIZE,
        intermediate_size=shapes["bert/encoder/layer_0/intermediate/dense/bias"][0],
        max_position_embeddings=shapes["bert/embeddings/position_embeddings"][0],
        type_vocab_size=shapes["bert/embeddings/token_type_embeddings"][0],
    )

"""Saves a small model of random weights as kashgari does with a BERT in it, and its outputs.

    python3.7 -m pip install kashgari==2.0.2 tensorflow==2.3.4 'protobuf<3.21'
    TF_KERAS=1 python3.7 make_kashgari.py

`kashgari.zip` has the folder of a classifier on a BERT, with the `bert_config.json` of the BERT,
and `outputs.npz`.
"""

import numpy as np
import tensorflow as tf
from bert4keras.models import build_transformer_model
from common import draw_weights, make_inputs, save_outputs, write_archive
from kashgari.embeddings import BertEmbedding
from kashgari.tasks.classification import BiLSTM_Model
from tensorflow import keras

PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmnopqrstuvwxy"]


def save_checkpoint(builder, prefix):
    """Writes the checkpoint of the original that kashgari loads."""
    tensors = {}
    for layer, names in builder.variable_mapping().items():
        if layer in builder.layers:
            values = builder.layers[layer].trainable_weights
            tensors.update(zip(names, values))
    names = sorted(tensors)
    tf.raw_ops.SaveV2(
        prefix=prefix,
        tensor_names=names,
        shape_and_slices=[""] * len(names),
        tensors=[tf.convert_to_tensor(tensors[name]) for name in names],
    )


def save_all(root):
    """Saves the classifier."""
    source, folder = root / "source", root / "kashgari"
    source.mkdir()
    folder.mkdir()
    save_outputs(source, {})
    (source / "vocab.txt").write_text("\n".join(PIECES) + "\n")
    path = str(source / "bert_config.json")
    builder = build_transformer_model(path, None, "bert", return_keras_model=False)
    model = builder.model
    model.set_weights(draw_weights([(each.name, each.shape) for each in model.weights]))
    inputs = make_inputs()
    names = [f"Transformer-{number}-FeedForward-Norm" for number in range(2)]
    layers = keras.Model(model.inputs, [model.get_layer(name).output for name in names])
    found = layers.predict([inputs["input_ids"], inputs["segment_ids"]])
    save_outputs(folder, {"layers": np.stack(found)})
    save_checkpoint(builder, str(source / "bert_model.ckpt"))
    texts = [["a", "b", "c"], ["d", "e"], ["f", "g"], ["h", "i"]]
    sizes = BiLSTM_Model.default_hyper_parameters()
    sizes["layer_bi_lstm"]["units"] = 4
    embedding = BertEmbedding(str(source))
    classifier = BiLSTM_Model(embedding, sequence_length=8, hyper_parameters=sizes)
    classifier.build_model(texts, ["yes", "no", "yes", "no"])
    classifier.save(str(folder))
    for path in source.iterdir():
        path.unlink()


write_archive("kashgari.zip", save_all)

"""Saves a small BERT of random weights as graphs of TensorFlow 1, and its outputs.

    python3.7 -m pip install tensorflow==1.15.5 'h5py<3' 'protobuf<3.21' keras-bert==0.89.0
    python3.7 make_frozen.py

`frozen.zip` has a folder with a frozen graph, and a SavedModel, each with `bert_config.json` and
`outputs.npz`.
"""

import keras_bert
import numpy as np
import tensorflow as tf
from common import CONFIG, draw_weights, make_inputs, save_outputs, write_archive

NUM_LAYERS = CONFIG["num_hidden_layers"]


def save_all(root):
    """Saves both graphs."""
    keras = tf.keras
    model = keras_bert.get_model(
        token_num=CONFIG["vocab_size"],
        pos_num=CONFIG["max_position_embeddings"],
        seq_len=None,
        embed_dim=CONFIG["hidden_size"],
        transformer_num=NUM_LAYERS,
        head_num=CONFIG["num_attention_heads"],
        feed_forward_dim=CONFIG["intermediate_size"],
        training=True,
    )
    described = [(weight.name, keras.backend.int_shape(weight)) for weight in model.weights]
    model.set_weights(draw_weights(described))
    names = [f"Encoder-{number + 1}-FeedForward-Norm" for number in range(NUM_LAYERS)]
    layers = keras.models.Model(model.inputs, [model.get_layer(each).output for each in names])
    inputs = make_inputs()
    given = [inputs["input_ids"], inputs["segment_ids"], inputs["input_mask"]]
    outputs = {"layers": np.stack(layers.predict(given))}
    masked, pairs = model.predict(given)
    outputs.update(masked_lm_probabilities=masked, next_sentence_probabilities=pairs)
    session = keras.backend.get_session()
    graph = tf.compat.v1.graph_util.convert_variables_to_constants(
        session, session.graph_def, [output.op.name for output in model.outputs]
    )
    (root / "frozen").mkdir()
    (root / "frozen" / "frozen.pb").write_bytes(graph.SerializeToString())
    tf.compat.v1.saved_model.simple_save(
        session,
        str(root / "saved_model"),
        {each.op.name: each for each in model.inputs},
        {each.op.name: each for each in model.outputs},
    )
    for name in ("frozen", "saved_model"):
        save_outputs(root / name, outputs)


write_archive("frozen.zip", save_all)

"""Saves small models of random weights as keras-bert and bert4keras do, and their outputs.

    python3.7 -m pip install tensorflow==1.15.5 keras==2.3.1 'h5py<3' 'protobuf<3.21' \
      keras-bert==0.89.0 bert4keras==0.11.5
    python3.7 make_keras.py

`keras.zip` has a folder for each model: its weights, `bert_config.json`, and `outputs.npz`.
"""

import keras
import keras_bert
import numpy as np
import tensorflow as tf
from bert4keras.models import build_transformer_model
from common import CONFIG, draw_weights, make_inputs, save_outputs, write_archive

NUM_LAYERS = CONFIG["num_hidden_layers"]


def save_keras_bert(root, name, *, training):
    """Saves a model of keras-bert, which is made of Keras in TensorFlow."""
    tf.keras.backend.clear_session()
    model = keras_bert.get_model(
        token_num=CONFIG["vocab_size"],
        pos_num=CONFIG["max_position_embeddings"],
        seq_len=None,
        embed_dim=CONFIG["hidden_size"],
        transformer_num=NUM_LAYERS,
        head_num=CONFIG["num_attention_heads"],
        feed_forward_dim=CONFIG["intermediate_size"],
        training=training,
    )
    if not training:
        inputs, encoded = model
        first = tf.keras.layers.Lambda(lambda x: x[:, 0])(encoded)
        classes = tf.keras.layers.Dense(3, activation="softmax")(first)
        model = tf.keras.models.Model(inputs, classes)
    names = [f"Encoder-{number + 1}-FeedForward-Norm" for number in range(NUM_LAYERS)]
    inputs = make_inputs()
    # With every position masked, the model predicts at each.
    given = [inputs["input_ids"], inputs["segment_ids"], inputs["input_mask"]]
    save(root, name, tf.keras, model, names, given[: len(model.inputs)])


def save_bert4keras(root, name, **options):
    """Saves a model of bert4keras, which is made of Keras 2.3."""
    keras.backend.clear_session()
    path = root.parent / "bert_config.json"
    save_outputs(root.parent, {})
    model = build_transformer_model(str(path), None, "bert", **options)
    names = [f"Transformer-{number}-FeedForward-Norm" for number in range(NUM_LAYERS)]
    inputs = make_inputs()
    save(root, name, keras, model, names, [inputs["input_ids"], inputs["segment_ids"]])


def save(root, name, keras, model, names, inputs):
    """Draws the weights of a model, and saves it with its inputs and outputs."""
    described = [(weight.name, keras.backend.int_shape(weight)) for weight in model.weights]
    model.set_weights(draw_weights(described))
    layers = [model.get_layer(each).output for each in names]
    found = keras.models.Model(model.inputs, layers + model.outputs).predict(inputs)
    outputs = {"layers": np.stack(found[:NUM_LAYERS])}
    for values in found[NUM_LAYERS:]:
        kind = {30: "masked_lm", 2: "next_sentence"}.get(values.shape[-1])
        if kind:
            outputs[kind + "_probabilities"] = values
    folder = root / name
    folder.mkdir()
    save_outputs(folder, outputs)
    if name.endswith("_model"):
        model.compile("adam", "mse")
        model.save(str(folder / "model.h5"))
    else:
        model.save_weights(str(folder / "weights.h5"))


def save_all(root):
    """Saves all models."""
    save_keras_bert(root, "keras_bert", training=True)
    save_keras_bert(root, "keras_bert_model", training=True)
    save_keras_bert(root, "keras_bert_encoder", training=False)
    save_bert4keras(root, "bert4keras", with_mlm=True, with_nsp=True)
    save_bert4keras(root, "bert4keras_model", with_mlm=True)
    save_bert4keras(root, "bert4keras_encoder")


write_archive("keras.zip", save_all)

"""Saves small models of random weights as bert-for-tf2 does, and their outputs.

    python3.8 -m pip install 'setuptools<58' wheel
    python3.8 -m pip install --no-build-isolation tensorflow==2.4.4 'protobuf<3.21' \
      bert-for-tf2==0.14.9
    python3.8 make_bert_for_tf2.py

`bert_for_tf2.zip` has a folder for each way of saving: the weights, `bert_config.json`, and
`outputs.npz`. The library has no pooler and no heads.
"""

import numpy as np
from common import CONFIG, LENGTH, draw_weights, make_inputs, save_outputs, write_archive
from tensorflow import keras

import bert


def save_all(root):
    """Saves one model in every way."""
    params = bert.loader.map_stock_config_to_params(bert.loader.StockBertConfig(**CONFIG))
    layer = bert.BertModelLayer.from_params(params, name="bert", out_layer_ndxs=[0, 1])
    inputs = make_inputs()
    shapes = [keras.Input((LENGTH,), dtype="int32", name=name) for name in ("ids", "segments")]
    layers = layer(shapes)
    classes = keras.layers.Dense(3, name="classes")(layers[-1][:, 0])
    model = keras.Model(shapes, [*layers, classes])
    model.set_weights(draw_weights([(each.name, each.shape) for each in model.weights]))
    *layers, _ = model([inputs["input_ids"], inputs["segment_ids"]])
    for name in ("weights", "model", "checkpoint"):
        folder = root / ("bert_for_tf2_" + name)
        folder.mkdir()
        # Without `mask_zero`, which is the default, padding is attended to.
        mask = np.ones_like(inputs["input_mask"])
        save_outputs(folder, {"layers": np.stack(layers), "input_mask": mask})
        if name == "weights":
            model.save_weights(str(folder / "weights.h5"))
        elif name == "model":
            model.save(str(folder / "model.h5"))
        else:
            model.save_weights(str(folder / "bert_model.ckpt"))
            (folder / "checkpoint").unlink()


write_archive("bert_for_tf2.zip", save_all)

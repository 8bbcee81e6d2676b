"""Saves small models of random weights as keras-hub or keras-nlp does, and their outputs.

    python3.11 -m pip install keras-hub==0.32.0 tensorflow-cpu tensorflow-text
    python3.11 make_keras_hub.py

    python3.11 -m pip install keras-nlp==0.8.2 tensorflow-cpu==2.15.1 tensorflow-text==2.15.0
    python3.11 make_keras_hub.py

`keras_hub.zip`, or `keras_nlp.zip`, has a folder for each model: a preset, a `.weights.h5` with its
`bert_config.json`, or a `.keras` archive; and `outputs.npz`.
"""

import keras
import numpy as np
from common import CONFIG, draw_weights, make_inputs, save_outputs, write_archive

try:
    import keras_hub as hub

    NAME = "keras_hub"
except ImportError:
    import keras_nlp as hub
    from keras_nlp.src.utils import preset_utils

    NAME = "keras_nlp"

PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmnopqrstuvwxy"]


def make_backbone():
    """Returns an encoder."""
    return hub.models.BertBackbone(
        vocabulary_size=CONFIG["vocab_size"],
        num_layers=CONFIG["num_hidden_layers"],
        num_heads=CONFIG["num_attention_heads"],
        hidden_dim=CONFIG["hidden_size"],
        intermediate_dim=CONFIG["intermediate_size"],
        max_sequence_length=CONFIG["max_position_embeddings"],
    )


def compute(model):
    """Returns the outputs of a model, and of the layers of its encoder."""
    backbone = getattr(model, "backbone", model)
    inputs = make_inputs()
    given = {
        "token_ids": inputs["input_ids"],
        "padding_mask": inputs["input_mask"],
        "segment_ids": inputs["segment_ids"],
    }
    names = [f"transformer_layer_{number}" for number in range(CONFIG["num_hidden_layers"])]
    layers = keras.Model(backbone.input, [backbone.get_layer(name).output for name in names])
    outputs = {"layers": np.stack([np.asarray(values) for values in layers(given)])}
    outputs.update({"pooled_output": backbone(given)["pooled_output"]})
    if type(model).__name__ == "BertMaskedLM":
        places = np.tile(np.arange(inputs["input_ids"].shape[1]), (len(inputs["input_ids"]), 1))
        outputs["masked_lm_probabilities"] = model({**given, "mask_positions": places})
    elif model is not backbone:
        outputs["logits"] = model(given)
    return outputs


def save_preset(part, folder):
    """Saves a model or a tokenizer into a preset."""
    if hasattr(part, "save_to_preset"):
        part.save_to_preset(str(folder))
    else:
        is_tokenizer = type(part).__name__ == "BertTokenizer"
        name = "tokenizer.json" if is_tokenizer else "config.json"
        preset_utils.save_to_preset(part, str(folder), config_filename=name)


def save(root, name, model, how):
    """Draws the weights of a model, and saves it with its inputs and outputs."""
    described = [
        (weight.path if hasattr(weight, "path") else weight.name, weight.shape)
        for weight in model.weights
    ]
    model.set_weights(draw_weights(described))
    folder = root / (NAME + "_" + name)
    folder.mkdir()
    save_outputs(folder, compute(model), CONFIG if how == "weights" else None)
    if how == "weights":
        model.save_weights(str(folder / "model.weights.h5"))
    elif how == "archive":
        model.save(str(folder / "model.keras"))
    else:
        save_preset(model, folder)


def save_all(root):
    """Saves all models."""
    tokenizer = hub.models.BertTokenizer(vocabulary=PIECES, lowercase=True)
    save(root, "backbone", make_backbone(), "preset")
    save_preset(tokenizer, root / (NAME + "_backbone"))
    save(root, "encoder", make_backbone(), "weights")
    save(root, "encoder_archive", make_backbone(), "archive")
    make = getattr(hub.models, "BertTextClassifier", None) or hub.models.BertClassifier
    classifier = make(make_backbone(), num_classes=3)
    save(root, "classifier", classifier, "weights")
    save(root, "classifier_archive", classifier, "archive")
    save(root, "masked_lm", hub.models.BertMaskedLM(make_backbone()), "weights")
    if NAME == "keras_hub":
        classifier = make(
            make_backbone(),
            num_classes=3,
            preprocessor=hub.models.BertTextClassifierPreprocessor(tokenizer, sequence_length=8),
        )
        save(root, "task", classifier, "preset")


write_archive(NAME + ".zip", save_all)

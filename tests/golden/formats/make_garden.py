"""Saves small models of random weights as the Model Garden does, and their outputs.

    python -m pip install tensorflow-cpu==2.18.1 tf-keras==2.18.0 scipy sentencepiece gin-config
    python -m pip install --no-deps tf-models-official==2.18.0 tensorflow-hub
    TF_USE_LEGACY_KERAS=1 python make_garden.py

`garden.zip` has a folder for each model: `bert_model.ckpt-1.*`, which `tf.train.Checkpoint` wrote,
`bert_config.json`, and what the model computes in `outputs.npz`.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from common import write_archive
from official.nlp.modeling import layers, models, networks

SIZES = {"vocab_size": 30, "hidden_size": 8, "num_layers": 2, "num_attention_heads": 2}
CONFIG = {
    "vocab_size": 30,
    "hidden_size": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 12,
    "hidden_act": "gelu",
    "max_position_embeddings": 16,
    "type_vocab_size": 2,
}
LENGTH = 7


def make_inputs() -> dict[str, np.ndarray]:
    """Returns three rows, the last one with padding."""
    rng = np.random.default_rng(3)
    mask = np.ones((3, LENGTH), np.int32)
    mask[-1, 4:] = 0
    return {
        "input_word_ids": (rng.integers(5, 30, mask.shape) * mask).astype(np.int32),
        "input_mask": mask,
        "input_type_ids": (rng.integers(0, 2, mask.shape) * mask).astype(np.int32),
    }


def old_encoder() -> Any:
    """Returns the encoder of the first releases for TensorFlow 2."""
    return networks.BertEncoder(
        **SIZES, intermediate_size=12, max_sequence_length=16, type_vocab_size=2
    )


def save(root: Path, name: str, model: Any, **items: Any) -> None:
    """Draws the weights of a model, and saves it with its inputs and outputs."""
    inputs = make_inputs()
    places = np.tile(np.arange(LENGTH, dtype=np.int32), (3, 1))
    given = {**inputs, "masked_lm_positions": places} if name.startswith("pretrainer") else inputs
    model(given)
    rng = np.random.default_rng(7)
    for variable in model.weights:
        variable.assign(rng.normal(1.0 if "gamma" in variable.name else 0.0, 0.3, variable.shape))
    outputs = model(given)
    if not isinstance(outputs, dict):
        names = ("masked_lm", "next_sentence") if isinstance(outputs, list) else ("logits",)
        outputs = dict(zip(names, outputs if isinstance(outputs, list) else [outputs], strict=True))
    if "encoder_outputs" in outputs:
        outputs["layers"] = tf.stack(outputs.pop("encoder_outputs"))
    (root / name).mkdir()
    tf.train.Checkpoint(**(items or {"model": model})).save(root / name / "bert_model.ckpt")
    (root / name / "checkpoint").unlink()
    (root / name / "bert_config.json").write_text(json.dumps(CONFIG))
    arrays = {key: np.asarray(value) for key, value in outputs.items() if value is not None}
    np.savez_compressed(root / name / "outputs.npz", **arrays, **inputs)


def save_all(root: Path) -> None:
    """Saves all models."""
    encoder = networks.BertEncoder(
        **SIZES,
        intermediate_size=12,
        max_sequence_length=16,
        type_vocab_size=2,
        return_all_encoder_outputs=True,
        dict_outputs=True,
    )
    save(root, "encoder", encoder, encoder=encoder)
    encoder = networks.BertEncoderV2(
        **SIZES, inner_dim=12, max_sequence_length=16, type_vocab_size=2
    )
    save(root, "encoder_v2", encoder, encoder=encoder)
    encoder = networks.BertEncoderV2(
        **SIZES, inner_dim=12, max_sequence_length=16, type_vocab_size=2
    )
    head = layers.ClassificationHead(inner_dim=8, num_classes=2, name="next_sentence")
    gelu = tf.keras.layers.Activation(lambda x: tf.keras.activations.gelu(x, approximate=True))
    model = models.BertPretrainerV2(encoder, gelu, classification_heads=[head])
    save(root, "pretrainer_v2", model)
    model = models.BertPretrainer(
        old_encoder(), num_classes=2, num_token_predictions=LENGTH, activation=gelu
    )
    save(root, "pretrainer", model)
    save(root, "classifier", models.BertClassifier(old_encoder(), num_classes=3))


write_archive("garden.zip", save_all)

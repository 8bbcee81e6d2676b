"""Saves small models of random weights as transformers does with TensorFlow, and their outputs.

    python -m pip install transformers==4.49.0 tensorflow-cpu==2.18.1 tf-keras==2.18.0
    TF_USE_LEGACY_KERAS=1 python make_transformers.py

`transformers.zip` has a folder for each model: its files, and what it computes in `outputs.npz`.
"""

from pathlib import Path

import numpy as np
import tensorflow as tf
import transformers
from common import write_archive

SHAPE = {
    "vocab_size": 30,
    "hidden_size": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 12,
    "max_position_embeddings": 16,
}
LABELS = {0: "no", 1: "perhaps", 2: "yes"}
HEADS = {
    "BertModel": {"hidden_act": "gelu"},
    "BertForPreTraining": {"hidden_act": "gelu_new"},
    "BertForMaskedLM": {"hidden_act": "relu"},
    "BertForNextSentencePrediction": {},
    "BertForSequenceClassification": {"id2label": LABELS},
    "BertForTokenClassification": {"id2label": LABELS, "type_vocab_size": 3},
    "BertForQuestionAnswering": {},
    "BertForMultipleChoice": {},
}
LENGTH = 7


def make_inputs(architecture: str) -> dict[str, np.ndarray]:
    """Returns three rows, or two of three choices, the last one with padding."""
    rng = np.random.default_rng(len(architecture))
    size = (2, 3, LENGTH) if architecture == "BertForMultipleChoice" else (3, LENGTH)
    mask = np.ones(size, np.int32)
    mask[-1, ..., 4:] = 0
    ids = rng.integers(5, SHAPE["vocab_size"], size) * mask
    segments = rng.integers(0, 2, size) * mask
    return {"input_ids": ids, "attention_mask": mask, "token_type_ids": segments}


def save(model: transformers.TFPreTrainedModel, architecture: str, folder: Path) -> None:
    """Draws the weights of a model, and saves it with its inputs and outputs."""
    rng = np.random.default_rng(7)
    model(model.dummy_inputs)
    for variable in model.weights:
        center = 1.0 if "gamma" in variable.name else 0.0
        variable.assign(rng.normal(center, 0.3, variable.shape))
    inputs = make_inputs(architecture)
    tensors = {name: tf.constant(values, tf.int32) for name, values in inputs.items()}
    outputs = model(tensors, output_hidden_states=True)
    arrays = {
        name: np.asarray(values) for name, values in outputs.items() if name != "hidden_states"
    }
    arrays["hidden_states"] = np.stack(outputs["hidden_states"])
    folder.mkdir()
    np.savez_compressed(folder / "outputs.npz", **arrays, **inputs)


def save_all(root: Path) -> None:
    """Saves all models."""
    for architecture, options in HEADS.items():
        config = transformers.BertConfig(**{**SHAPE, **options})
        model = getattr(transformers, f"TF{architecture}")(config)
        save(model, architecture, root / architecture)
        model.save_pretrained(root / architecture)
        if architecture == "BertForPreTraining":
            save(model, architecture, root / "sharded")
            model.save_pretrained(root / "sharded", max_shard_size="4KB")
        if architecture == "BertForSequenceClassification":
            for kind, path in (("save_weights", "weights.h5"), ("objects", "weights")):
                save(model, architecture, root / kind)
                config.save_pretrained(root / kind)
                model.save_weights(root / kind / path)
    roberta = transformers.RobertaConfig(**SHAPE)
    model = transformers.TFRobertaModel(roberta)
    model(model.dummy_inputs)
    model.save_pretrained(root / "roberta")


write_archive("transformers.zip", save_all)

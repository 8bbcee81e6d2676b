"""What tests of several modules share of `weights_huggingface`."""

import functools
import json
import os

import numpy as np
import pytest
import safetensors.numpy

import modeling
from bert.pretraining import heads as pretraining_heads
from bert.weights import huggingface_weights
from helpers.tokenizer_files import CONFIG


@functools.cache
def _pretraining_shapes(config_text):
    config = modeling.BertConfig.from_dict(json.loads(config_text))
    return {v.path: v.shape for v in pretraining_heads.pretraining_model(config).weights}


@pytest.fixture
def tensors(still_config):
    """Random values for the variables of a pre-trained model."""
    rng, shapes = np.random.RandomState(3), _pretraining_shapes(still_config.to_json_string())
    return {path: rng.standard_normal(shape).astype(np.float32) for path, shape in shapes.items()}


def write(folder, tensors, architecture="BertForPreTraining", config=CONFIG):
    """Writes a folder as transformers does."""
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "model.safetensors"), "wb") as file:
        huggingface_weights.write(file, tensors, architecture)
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
        json.dump(config, file)
    return str(folder)


def stored_in(folder):
    return safetensors.numpy.load_file(os.path.join(folder, "model.safetensors"))

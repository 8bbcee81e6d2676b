"""What tests of several modules share of `weights_huggingface`."""

import json
import os

import numpy as np
import pytest
import safetensors.numpy

from bert.pretraining import heads as pretraining_heads
from bert.weights import huggingface_weights
from helpers.tokenizer_files import CONFIG


@pytest.fixture
def tensors(still_config):
    """Random values for the variables of a pre-trained model."""
    rng = np.random.RandomState(3)
    weights = pretraining_heads.pretraining_model(still_config).weights
    return {v.path: rng.standard_normal(v.shape).astype(np.float32) for v in weights}


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

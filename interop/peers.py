"""Models of several shapes, which this project and transformers compute, and their comparison."""

import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

import convert_checkpoint
import modeling
from bert.weights import checkpoint

ROOT = Path(__file__).parents[1]
PYTHON = Path(os.environ.get("INTEROP_PYTHON", ROOT / ".venv-interop/bin/python"))

SHAPES = {
    "erf": {
        "vocab_size": 50,
        "hidden_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 32,
        "hidden_act": "gelu",
        "max_position_embeddings": 24,
    },
    "tanh": {
        "vocab_size": 61,
        "hidden_size": 24,
        "num_hidden_layers": 3,
        "num_attention_heads": 3,
        "intermediate_size": 40,
        "hidden_act": "gelu_new",
        "max_position_embeddings": 16,
    },
    "wide": {
        "vocab_size": 300,
        "hidden_size": 64,
        "num_hidden_layers": 1,
        "num_attention_heads": 4,
        "intermediate_size": 24,
        "hidden_act": "relu",
        "max_position_embeddings": 20,
        "type_vocab_size": 3,
    },
}

# The outputs of each architecture by their names in transformers, with the names here.
OUTPUTS = {
    "BertModel": {"last_hidden_state": "sequence_output", "pooler_output": "pooled_output"},
    "BertForPreTraining": {
        "prediction_logits": "masked_lm_logits",
        "seq_relationship_logits": "next_sentence_logits",
    },
    "BertForMaskedLM": {"logits": "masked_lm_logits"},
    "BertForNextSentencePrediction": {"logits": "next_sentence_logits"},
    "BertForSequenceClassification": {"logits": "logits"},
    "BertForQuestionAnswering": {"start_logits": "start_logits", "end_logits": "end_logits"},
    "BertForTokenClassification": {"logits": "logits"},
    "BertForMultipleChoice": {"logits": "logits"},
}
CASES = [(shape, architecture) for shape in SHAPES for architecture in OUTPUTS]
NUM_LABELS = 5
LENGTH = 12


def work(folder, jobs):
    """Runs the jobs with transformers."""
    if not PYTHON.exists():
        pytest.fail(f"{PYTHON} is not there: `make test-interop` sets it up.")
    (folder / "jobs.json").write_text(json.dumps(jobs), encoding="utf-8")
    result = subprocess.run(
        [PYTHON, ROOT / "interop/worker.py", folder / "jobs.json"],
        env={**os.environ, "HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout


def make_inputs(shape, architecture):
    """Returns inputs under the names here; the last row has padding."""
    rng = np.random.RandomState(1)
    size = (2, 3, LENGTH) if architecture == "BertForMultipleChoice" else (3, LENGTH)
    lengths = rng.randint(5, LENGTH + 1, size[:-1])
    mask = np.arange(LENGTH) < lengths[..., None]
    types = SHAPES[shape].get("type_vocab_size", 2)
    inputs = {
        "input_ids": rng.randint(0, SHAPES[shape]["vocab_size"], size) * mask,
        "input_mask": mask,
        "segment_ids": rng.randint(0, types, size) * mask,
    }
    if OUTPUTS[architecture].keys() & {"prediction_logits"} or architecture == "BertForMaskedLM":
        inputs["masked_lm_positions"] = rng.randint(0, 5, (3, 4))
    elif architecture == "BertForNextSentencePrediction":
        inputs["masked_lm_positions"] = np.zeros((3, 1))
    return {name: values.astype(np.int32) for name, values in inputs.items()}


def run_job(folder, model, shape, architecture):
    inputs = make_inputs(shape, architecture)
    names = {
        "input_ids": "input_ids",
        "attention_mask": "input_mask",
        "token_type_ids": "segment_ids",
    }
    np.savez(f"{folder}.inputs.npz", **{n: inputs[o].astype(np.int64) for n, o in names.items()})
    return {
        "kind": "run",
        "folder": str(model),
        "architecture": architecture,
        "inputs": f"{folder}.inputs.npz",
        "outputs": f"{folder}.outputs.npz",
    }


def theirs(folder):
    with np.load(f"{folder}.outputs.npz") as outputs:
        return dict(outputs)


def compute(config_file, prefix, architecture, shape):
    """Returns what this project computes with the weights at `prefix`."""
    config = modeling.BertConfig.from_json_file(str(config_file))
    model = convert_checkpoint.make_model(architecture, config, NUM_LABELS)
    checkpoint.Stored.open(str(prefix)).assign(model.weights)
    inputs = make_inputs(shape, architecture)
    return {name: value.numpy() for name, value in model(inputs, training=False).items()}


def assert_equal(ours, theirs, architecture, shape):
    positions = make_inputs(shape, architecture).get("masked_lm_positions")
    for name, our_name in OUTPUTS[architecture].items():
        values = theirs[name]
        if our_name == "masked_lm_logits":
            values = np.take_along_axis(values, positions[:, :, None], axis=1)
        assert np.abs(values).max() > 0.1
        np.testing.assert_allclose(ours[our_name], values, rtol=0, atol=1e-5, err_msg=name)


def convert(source, output, kind):
    has_vocabulary = any((source / name).exists() for name in ("vocab.txt", "tokenizer.json"))
    settings = convert_checkpoint.Settings(
        input=str(source),
        output=str(output),
        format=kind,
        verify=False,
        without_vocabulary=not has_vocabulary,
    )
    return convert_checkpoint.run(settings)

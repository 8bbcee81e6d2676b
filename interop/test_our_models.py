"""Holds models of this project to what transformers computes with their weights."""

import json
from pathlib import Path

import numpy as np
import pytest
from peers import CASES, NUM_LABELS, SHAPES, assert_equal, compute, convert, run_job, theirs, work

import convert_checkpoint
import modeling
from bert.models import fine_tuned
from bert.weights import checkpoint, saving
from bert.weights.variables import GLOBAL_STEP


@pytest.fixture(scope="session")
def converted(tmp_path_factory):
    """A folder of random models of this project, and with transformers' outputs for them."""
    folder = tmp_path_factory.mktemp("converted")
    jobs = []
    for shape, architecture in CASES:
        name = f"{shape}-{architecture}"
        source = folder / f"{name}.tf"
        source.mkdir()
        config = modeling.BertConfig.from_dict({"model_type": "bert", **SHAPES[shape]})
        (source / "bert_config.json").write_text(config.to_json_string(), encoding="utf-8")
        (source / "task.json").write_text(json.dumps(task_of(architecture)), encoding="utf-8")
        rng = np.random.RandomState(len(jobs))
        model = convert_checkpoint.make_model(architecture, config, NUM_LABELS)
        tensors = {
            v.path: rng.normal(v.path.endswith("gamma"), 0.2, v.shape).astype(np.float32)
            for v in model.weights
        }
        heads = {
            "BertForMaskedLM": "cls/seq_relationship",
            "BertForNextSentencePrediction": "cls/predictions",
        }
        left_out = heads.get(architecture, "nothing")
        tensors = {n: value for n, value in tensors.items() if not n.startswith(left_out)}
        saving.save_tensors(str(source / "bert_model.ckpt"), tensors)
        convert(source, folder / name, "huggingface")
        jobs.append(run_job(folder / name, folder / name, shape, architecture))
    work(folder, jobs)
    return folder


def task_of(architecture):
    names = {name: kind for kind, name in fine_tuned.FINE_TUNED.items()}
    return {"kind": names.get(architecture, ""), "do_lower_case": True}


@pytest.mark.parametrize(("shape", "architecture"), CASES)
def test_our_models_compute_the_same_there(converted, shape, architecture):
    folder = converted / f"{shape}-{architecture}"
    source = converted / f"{shape}-{architecture}.tf"
    ours = compute(source / "bert_config.json", source, architecture, shape)
    assert_equal(ours, theirs(folder), architecture, shape)
    keys = json.loads(Path(f"{folder}.outputs.json").read_text(encoding="utf-8"))
    assert keys["missing_keys"] == keys["mismatched_keys"] == []
    # Their models for tokens have no pooler; it is stored all the same, so that none is lost.
    assert all("pooler" in name for name in keys["unexpected_keys"])


@pytest.mark.parametrize(("shape", "architecture"), CASES)
def test_a_round_trip_gives_back_every_byte(converted, tmp_path, shape, architecture):
    convert(converted / f"{shape}-{architecture}", tmp_path, "tf")
    before, after = (
        checkpoint.Stored.open(str(folder)).read()
        for folder in (converted / f"{shape}-{architecture}.tf", tmp_path)
    )
    assert after.keys() - {GLOBAL_STEP} == before.keys()
    for name, value in before.items():
        assert value.tobytes() == after[name].tobytes(), name

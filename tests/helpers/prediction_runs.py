"""What tests of several modules share of `predict`."""

import shutil

import numpy as np
import pytest
from conftest import change

import tokenization
from bert.tasks.classification.classifier import Classification
from bert.tasks.classification.examples import ClassificationTask
from bert.weights import saving
from bert.weights.folder import ModelFolder

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "red", "blue", "green", "round", "square"]


@pytest.fixture(scope="session")
def untrained(tmp_path_factory, tiny_config):
    """The folder of a classifier that nobody has trained; no test changes it."""
    folder = tmp_path_factory.mktemp("untrained")
    # One layer: what is done with answers does not depend on their number.
    sizes = {"vocab_size": len(WORDS), "num_hidden_layers": 1}
    still = dict.fromkeys(("hidden_dropout_prob", "attention_probs_dropout_prob"), 0.0)
    config = change(tiny_config, **sizes, **still)
    vocabulary = "".join(f"{word}\n" for word in WORDS).encode()
    (folder / "vocab.txt").write_bytes(vocabulary)
    tokenizer = tokenization.FullTokenizer(str(folder / "vocab.txt"))
    labels = ClassificationTask(
        name="custom",
        task_type="classification",
        labels=("yes", "no"),
        is_pair=False,
        metric="accuracy",
    )
    task = Classification(config, tokenizer, 12, labels)
    ModelFolder(str(folder)).save(config, vocabulary, task.stored())
    model = task.make_model("float32")
    rng = np.random.RandomState(0)
    weights = {v.path: rng.normal(size=v.shape).astype(np.float32) for v in model.weights}
    saving.save_tensors(str(folder / "bert_model.ckpt"), weights)
    return folder


@pytest.fixture
def model_dir(untrained, tmp_path):
    """A copy of `untrained`, for each test to do with as it likes."""
    return shutil.copytree(untrained, tmp_path / "model")

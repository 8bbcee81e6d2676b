"""What tests of several modules share of `predict`."""

import numpy as np
import pytest
from conftest import change

import tokenization
from bert.tasks.classification.classifier import Classification
from bert.tasks.classification.examples import ClassificationTask
from bert.weights import checkpoint
from bert.weights.folder import ModelFolder

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "red", "blue", "green", "round", "square"]


@pytest.fixture
def model_dir(tmp_path, still_config):
    """The folder of a classifier that nobody has trained."""
    folder = tmp_path / "model"
    folder.mkdir()
    config = change(still_config, vocab_size=len(WORDS))
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
    checkpoint.save_tensors(str(folder / "bert_model.ckpt"), weights)
    return folder

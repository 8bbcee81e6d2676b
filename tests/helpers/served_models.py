"""Tiny models of every kind that can be served, and a way to ask a server."""

import contextlib
import json
import urllib.error
import urllib.request
from typing import Any, NamedTuple

import numpy as np
import pytest
from conftest import GOLDEN, small_config

import bert
import tokenization
from bert.models.fine_tuned import LoadedModel
from bert.serving.options import Batching, Limits
from bert.serving.served import serve
from bert.serving.server import Server, bind
from bert.tasks.classification.classifier import Classification
from bert.tasks.classification.examples import ClassificationTask
from bert.tasks.squad.options import DecodingOptions
from bert.tasks.squad.question_answering import QuestionAnswering
from bert.tasks.swag.multiple_choice import MultipleChoice
from bert.tasks.tagging.tagger import Tagging
from bert.tasks.tagging.tags import TagSet
from bert.weights import saving
from bert.weights.folder import ModelFolder

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefgh", "red", "green", "blue", "?"]
CONFIG = small_config(len(WORDS), max_position_embeddings=32)
TOKENIZER = tokenization.FullTokenizer.from_vocab({word: i for i, word in enumerate(WORDS)})


def classification(task_type, labels, *, is_pair, config=CONFIG, length=16):
    task = ClassificationTask(
        name="custom",
        task_type=task_type,
        labels=labels,
        is_pair=is_pair,
        metric={"regression": "pearson"}.get(task_type, "accuracy"),
    )
    words = {word: i for i, word in enumerate(WORDS[: config.vocab_size])}
    tokenizer = tokenization.FullTokenizer.from_vocab(words)
    return Classification(config, tokenizer, length, task)


TASKS = {
    "labels": classification("classification", ("no", "yes", "perhaps"), is_pair=False),
    "pairs": classification("classification", ("no", "yes"), is_pair=True),
    "several": classification("multi_label", ("red", "green"), is_pair=False),
    "number": classification("regression", (), is_pair=True),
    "answers": QuestionAnswering(CONFIG, TOKENIZER, 16, 4, 6, DecodingOptions()),
    "entities": Tagging(CONFIG, TOKENIZER, 16, TagSet(labels=("O", "B-X", "I-X"), scheme="iob2")),
    "choices": MultipleChoice(CONFIG, TOKENIZER, 16),
}
# For each field, texts that differ.
FIELDS: dict[str, list[Any]] = {
    "text_a": ["a b c", "red \U0001f600 é \x00 green", "d " * 40],
    "text_b": ["b", "", "c d red"],
    "question": ["which ?", "red ?", ""],
    "context": ["a red b green", "c \U0001f600 blue", "d e red " * 30],
    "text": ["a red b", "", "\U0001f600 blue d " * 20],
    "endings": [["a", "b c"], ["red"] * 5, ["blue", "green", "a"]],
}


def make_model(name):
    task = TASKS[name]
    model = task.make_model("float32")
    rng = np.random.RandomState(3)
    for variable in model.weights:
        variable.assign(rng.normal(0, 0.4, variable.shape))
    return LoadedModel(task, model, 4)


def save_model(name, folder):
    """Makes the folder that a training of the model leaves, and returns its path."""
    model = make_model(name)
    vocabulary = "".join(f"{word}\n" for word in model.task.tokenizer.vocab).encode()
    folder.mkdir()
    ModelFolder(str(folder)).save(model.task.config, vocabulary, model.task.stored())
    weights = {variable.path: variable.numpy() for variable in model.model.weights}
    saving.save_tensors(str(folder / "bert_model.ckpt"), weights)
    return str(folder)


def load_pretrained():
    return bert.load(str(GOLDEN), do_lower_case=True)


def rows_of(fields):
    return [{field: FIELDS[field][number] for field in fields} for number in range(3)]


def approximately(value):
    """Equal, but for the rounding of other batches."""
    if isinstance(value, dict):
        return {name: approximately(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [approximately(each) for each in value]
    return pytest.approx(value, rel=1e-4, abs=1e-5) if isinstance(value, float) else value


class Answered(NamedTuple):
    status: int
    body: Any
    headers: Any


@contextlib.contextmanager
def served(model, limits=None, top_k=5, **options):
    """Serves a model at a free port, as `mine`."""
    batching = Batching(max_batch_size=4)
    offered = serve(model, "mine", 3, top_k) if not hasattr(model, "signatures") else model
    bound = bind("127.0.0.1", 0)
    with Server(offered, bound, limits or Limits(max_waiting=100), batching, **options) as server:
        yield server


def fetch(server, path, body=None, method=None, headers=(), timeout=30):
    """Asks a server; a body that is no bytes is sent as JSON."""
    if body is not None and not isinstance(body, bytes):
        body = json.dumps(body).encode()
    request = urllib.request.Request(
        f"{server.address.rstrip('/')}{path}", body, dict(headers), method=method
    )
    try:
        with urllib.request.urlopen(request, timeout=timeout) as response:
            status, text, found = response.status, response.read(), response.headers
    except urllib.error.HTTPError as error:
        with error:
            status, text, found = error.code, error.read(), error.headers
    is_json = "json" in found.get("Content-Type", "")
    return Answered(status, json.loads(text) if is_json else text.decode(), found)


def predict(server, body, **options):
    return fetch(server, "/v1/models/mine:predict", body, **options)

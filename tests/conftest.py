from helpers import quiet  # noqa: F401  # isort: skip
import contextlib
import functools
import gc
import importlib.util
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import hypothesis
import keras
import numpy as np
import pytest
import tensorflow as tf
from helpers.forks import python_for_shells
from helpers.logs import log  # noqa: F401
from helpers.waiting import LONGEST

import modeling
import run_pretraining
from bert.pretraining import heads as pretraining_heads
from bert.pretraining.objectives import pretraining_features
from bert.training.batches import Batches
from bert.training.meeting import Meeting, Pace, Place
from bert.training.records import Records


def optimize_graphs(is_optimized: bool) -> None:
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": not is_optimized})


# It takes longer than running a graph a few times. Scripts in processes of their own have it, and
# tests that compare with the original, or with what the processes of a pipeline make.
HAS_BEAM = importlib.util.find_spec("apache_beam") is not None
optimize_graphs(HAS_BEAM)

# No test depends on how fast the machine is. `make test-exhaustive` tries more examples.
hypothesis.settings.register_profile("project", deadline=None, max_examples=40)
hypothesis.settings.register_profile("exhaustive", deadline=None, max_examples=300)
hypothesis.settings.load_profile("project")

ROOT = Path(__file__).parents[1]
GOLDEN = ROOT / "tests" / "golden"
# The same outputs for a larger model and real texts, too large to be part of the project.
LARGE_GOLDEN = ROOT.parent / "shared" / "golden"

# `make test-beam` runs these, in an environment that has Beam.
collect_ignore = [] if HAS_BEAM else ["beam"]

# No test waits for a disk. Tests that cut the power have one of their own: helpers/power_loss.py.
os.fsync = lambda _: None

LENGTH, PREDICTIONS = 12, 3


def pytest_configure():
    # A shell has what it starts in the background ignore Ctrl-C, and so would what this starts.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items):
    # The last minutes have work for every process if they are made of short tests.
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)


def pytest_collection_finish():
    # What the imports have made stays: the garbage collector need not look through it, nor through
    # the graphs of each single test.
    gc.freeze()
    gc.set_threshold(20_000)


@pytest.fixture(autouse=True, scope="session")
def _no_cache_of_the_user(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(autouse=True)
def _same_initial_values():
    keras.utils.set_random_seed(7)


@pytest.fixture
def opened(monkeypatch):
    """The prefixes of the TF1 checkpoints that are opened, in their order."""
    prefixes = []
    open_reader = tf.compat.v1.train.NewCheckpointReader

    def record(prefix):
        prefixes.append(prefix)
        return open_reader(prefix)

    monkeypatch.setattr(tf.compat.v1.train, "NewCheckpointReader", record)
    return prefixes


@pytest.fixture(scope="session")
def tiny_config():
    """Two layers in which no two sizes are the same, so that none can stand in for another."""
    return modeling.BertConfig(
        vocab_size=29,
        hidden_size=8,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=12,
        max_position_embeddings=16,
        type_vocab_size=3,
    )


@pytest.fixture
def still_config(tiny_config):
    """`tiny_config` without dropout."""
    return change(tiny_config, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)


@pytest.fixture
def optimized():
    """Graphs are optimized, as users have them."""
    optimize_graphs(True)
    yield
    optimize_graphs(HAS_BEAM)


@pytest.fixture(params=["portable", "large"])
def golden(request, optimized):
    """A folder of the original's outputs."""
    folder = GOLDEN if request.param == "portable" else LARGE_GOLDEN
    if not folder.exists():
        pytest.skip(f"{folder} is not there.")
    return folder


def exhaustive(*values):
    """Returns parameters that `make test` leaves out, as others stand for them."""
    return [
        pytest.param(
            *(value if isinstance(value, tuple) else (value,)), marks=pytest.mark.exhaustive
        )
        for value in values
    ]


# For what takes seconds with the large ones.
mostly_portable = pytest.mark.parametrize(
    "golden", ["portable", *exhaustive("large")], indirect=True
)


def record_places(monkeypatch, module, batches) -> tuple[Pace, list[Place]]:
    """Returns the pace of a module from now on, and its place as each batch is read."""
    pace, seen = Pace(), []
    monkeypatch.setattr(module, "meeting_of", lambda strategy: Meeting(pace=pace))
    iterate = batches.iterate

    def read(*arguments):
        for batch in iterate(*arguments):
            seen.append(pace.place)
            yield batch

    monkeypatch.setattr(batches, "iterate", read)
    return pace, seen


def change(config: modeling.BertConfig, **values) -> modeling.BertConfig:
    return modeling.BertConfig.from_dict({**config.to_dict(), **values})


def small_config(vocab_size: int, **changes) -> modeling.BertConfig:
    """Returns a configuration of a small model whose outputs differ much from input to input."""
    sizes = {
        "hidden_size": 8,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 12,
        "max_position_embeddings": 16,
        "type_vocab_size": 2,
        "initializer_range": 1.0,
    }
    return modeling.BertConfig(vocab_size, **{**sizes, **changes})


def write_model_files(
    folder: Path, words: list[str], *, max_position_embeddings: int, num_hidden_layers: int = 1
) -> None:
    """Writes `vocab.txt` of these tokens and, for a model that learns quickly, `config.json`."""
    (folder / "vocab.txt").write_text("\n".join(words) + "\n", encoding="utf-8")
    config = modeling.BertConfig(
        vocab_size=len(words),
        hidden_size=32,
        num_hidden_layers=num_hidden_layers,
        num_attention_heads=4,
        intermediate_size=48,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        max_position_embeddings=max_position_embeddings,
        type_vocab_size=2,
        initializer_range=0.1,
    )
    (folder / "config.json").write_text(config.to_json_string())


def make_examples(
    config: modeling.BertConfig,
    count: int,
    *,
    length: int = LENGTH,
    predictions: int = PREDICTIONS,
    seed: int = 0,
) -> dict[str, np.ndarray]:
    """Returns pre-training examples of random ids; padding and weights are of several lengths."""
    rng = np.random.RandomState(seed)
    real = rng.randint(predictions + 1, length + 1, size=(count, 1))
    masked = rng.randint(1, predictions + 1, size=(count, 1))
    mask = (np.arange(length) < real).astype(np.int32)
    weights = np.arange(predictions) < masked
    positions = np.stack([rng.permutation(n)[:predictions] for n in real[:, 0]])
    return {
        "input_ids": rng.randint(1, config.vocab_size, size=(count, length)).astype(np.int32)
        * mask,
        "input_mask": mask,
        "segment_ids": (np.arange(length) >= real // 2).astype(np.int32) * mask,
        "masked_lm_positions": (positions * weights).astype(np.int32),
        "masked_lm_ids": (
            rng.randint(1, config.vocab_size, size=(count, predictions)) * weights
        ).astype(np.int32),
        "masked_lm_weights": weights.astype(np.float32),
        "next_sentence_labels": rng.randint(0, 2, size=(count, 1)).astype(np.int32),
    }


def serialize(example: dict[str, np.ndarray]) -> bytes:
    """Returns a tf.train.Example; floats become float lists, and integers int64 lists."""
    features = {}
    for name, values in example.items():
        if np.asarray(values).dtype.kind == "f":
            feature = tf.train.Feature(float_list=tf.train.FloatList(value=values))
        else:
            feature = tf.train.Feature(int64_list=tf.train.Int64List(value=values))
        features[name] = feature
    return tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString(
        deterministic=True
    )


def split_examples(examples: dict[str, np.ndarray]) -> list[dict[str, np.ndarray]]:
    count = len(next(iter(examples.values())))
    return [{name: values[i] for name, values in examples.items()} for i in range(count)]


def write_records(path, records: list[bytes]) -> str:
    with tf.io.TFRecordWriter(str(path)) as writer:
        for record in records:
            writer.write(record)
    return str(path)


def write_examples(path, examples: dict[str, np.ndarray]) -> str:
    return write_records(path, [serialize(example) for example in split_examples(examples)])


def copy_golden(folder: Path) -> Path:
    """Copies the original's small model and its vocabulary; returns the folder."""
    folder.mkdir(exist_ok=True)
    for path in (*GOLDEN.glob("bert_*"), GOLDEN / "vocab.txt"):
        shutil.copy(path, folder)
    return folder


def read_tensors(prefix: str | Path) -> dict[str, np.ndarray]:
    """Returns the tensors of a checkpoint, read without the code under test."""
    reader = tf.train.load_checkpoint(str(prefix))
    return {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}


def golden_batch(folder: Path) -> dict[str, np.ndarray]:
    """Returns the examples of `pretrain_batch.tfrecord`."""
    with np.load(folder / "pretrain_records.npz") as records:
        count = 16 if folder == GOLDEN else 32
        return {name: records[name][:count] for name in records.files}


def golden_model(folder: Path, **kwargs) -> keras.Model:
    """Returns the model with the original's weights, read without the code under test."""
    config = modeling.BertConfig.from_json_file(str(folder / "bert_config.json"))
    model = pretraining_heads.pretraining_model(config, **kwargs)
    reader = tf.train.load_checkpoint(str(folder / "bert_model.ckpt"))
    for variable in model.weights:
        variable.assign(reader.get_tensor(variable.path))
    return model


def model_inputs(examples: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    names = ("input_ids", "input_mask", "segment_ids", "masked_lm_positions")
    return {name: examples[name] for name in names}


def spread(model: keras.Layer, seed: int = 3) -> None:
    """Sets all weights, biases and LayerNorm included, to values of the order of 1."""
    rng = np.random.RandomState(seed)
    for variable in model.weights:
        near_one = 1.0 if variable.path.endswith("gamma") else 0.0
        variable.assign(near_one + 0.5 * rng.standard_normal(variable.shape))


@contextlib.contextmanager
def eagerly(is_eager: bool = True) -> Iterator[None]:
    """Runs functions as they are written, without a graph of them."""
    tf.config.run_functions_eagerly(is_eager)
    try:
        with warnings.catch_warnings():
            # TensorFlow says that it does not hold for tf.data.
            warnings.filterwarnings("ignore", "Even though the `tf.config.experimental_run")
            yield
    finally:
        tf.config.run_functions_eagerly(False)


@pytest.fixture
def eager():
    """For runs of a few steps, of which building the graph would take the longest."""
    with eagerly():
        yield


def to_numpy(outputs: Mapping[str, Any]) -> dict[str, Any]:
    """Returns tensors, or lists of them, as arrays."""
    return {
        name: [np.asarray(each) for each in value] if isinstance(value, list) else np.asarray(value)
        for name, value in outputs.items()
    }


def run_python(
    *arguments: str, check: bool = True, folder: Path = ROOT, **env: str
) -> subprocess.CompletedProcess:
    """Runs this interpreter, at the root of the project if in no other folder."""
    result = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        check=False,
        timeout=LONGEST,
    )
    if check:
        assert result.returncode == 0, result.stderr
    return result


@pytest.fixture(scope="session")
def python(tmp_path_factory):
    """The folder of a `python` that starts quickly, and outside of the project."""
    folder = tmp_path_factory.mktemp("python")
    with python_for_shells(folder):
        yield folder


def read_report(folder: Path) -> dict[str, Any]:
    """Returns what the page of a run shows, with its sections by title."""
    text = (folder / "report.html").read_text(encoding="utf-8")
    content = json.loads(re.search(r'id="content">(.*?)</script>', text, re.DOTALL)[1])
    return {**content, "sections": {each["title"]: each for each in content["sections"]}}


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("localhost", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def pretraining_settings_in(folder, config):
    """Writes small files for run_pretraining; returns a function that makes settings of them."""
    (folder / "bert_config.json").write_text(config.to_json_string())
    input_file = write_examples(folder / "train.tfrecord", make_examples(config, 20))

    def settings(**changes) -> run_pretraining.Settings:
        return run_pretraining.Settings(
            **{
                "bert_config_file": str(folder / "bert_config.json"),
                "input_file": input_file,
                "output_dir": str(folder / "output"),
                "do_train": True,
                "max_seq_length": LENGTH,
                "max_predictions_per_seq": PREDICTIONS,
                "train_batch_size": 4,
                "eval_batch_size": 4,
                "num_train_steps": 4,
                "num_warmup_steps": 1,
                "learning_rate": 0.01,
                **changes,
            }
        )

    return settings


@pytest.fixture
def pretraining_run(tmp_path, tiny_config):
    """`pretraining_settings_in` for this test and a layer of `tiny_config`."""
    return pretraining_settings_in(tmp_path, change(tiny_config, num_hidden_layers=1))


def batches_in(folder, config, batch_size, seed=5, count=20, examples=None, **kwargs):
    """Writes pre-training examples; returns batches of them; of training, where given a seed."""
    examples = make_examples(config, count) if examples is None else examples
    path = write_examples(folder / "train.tfrecord", examples)
    features = pretraining_features(
        max_seq_length=LENGTH,
        max_predictions_per_seq=PREDICTIONS,
        vocab_size=config.vocab_size,
        type_vocab_size=config.type_vocab_size,
    )
    return Batches(Records([path]), features, batch_size, seed, **kwargs)


@pytest.fixture
def make_batches(tmp_path, tiny_config):
    """`batches_in` for this test and `tiny_config`."""
    return functools.partial(batches_in, tmp_path, tiny_config)

"""Engines: other runtimes that answer for a model, and the cache of what is converted for them."""

import dataclasses
import importlib.util
import json
import logging
import multiprocessing
import os
import shutil
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

import keras
import numpy as np
import pytest
from conftest import GOLDEN, eagerly, exhaustive
from helpers import classifier_runs
from helpers.forks import fork_workers
from helpers.overlaps import second_of_two
from helpers.served_models import CONFIG, TASKS, classification, fetch, rows_of, save_model

import bert
import run_classifier
import serve
from bert.export import portable
from bert.files import cache
from bert.models import engines
from bert.models.options import Overrides
from bert.weights.checkpoint import Stored
from bert.weights.folder import ModelFolder
from bert.weights.saving import save_tensors

for package in ("tf2onnx", "onnxruntime", "ai_edge_litert"):
    pytest.importorskip(package)


@pytest.fixture(autouse=True)
def cache_folder(tmp_path, monkeypatch):
    """The cache of engines, empty at the beginning of each test."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache/bert-engines"


@pytest.fixture(scope="module")
def classifier(tmp_path_factory):
    folder = tmp_path_factory.mktemp("engines")
    classifier_runs.write_task(folder, lambda color: color, count=8)
    keras.utils.set_random_seed(1)
    with eagerly():
        run_classifier.run(classifier_runs.settings_in(folder)(do_train=True, num_train_epochs=1.0))
    return folder / "out"


@pytest.fixture(scope="module")
def converted(tmp_path_factory, classifier):
    """A cache with the classifier for both engines, and the names of its entries."""
    folder, names = tmp_path_factory.mktemp("converted"), {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder))
        for engine in ("onnx", "litert"):
            bert.load(str(classifier), engine=engine)
            [names[engine]] = {*entries(folder / "bert-engines")} - {*names.values()}
    return folder / "bert-engines", names


@pytest.fixture
def filled(converted, cache_folder):
    """The names of what is in the cache already, by engine."""
    shutil.copytree(converted[0], cache_folder)
    return converted[1]


def entries(folder):
    return sorted(path.name for path in folder.iterdir())


TEXTS = ["red", "a blue b", "green " * 20, "c"]


def chances(model):
    answers = model.predict(TEXTS)
    return np.array([[*answer["probabilities"].values()] for answer in answers])


@pytest.mark.parametrize(
    ("engine", "precision"), [("onnx", "float32"), ("litert", "float32"), ("litert", "int8")]
)
def test_an_engine_answers_as_tensorflow_does(
    classifier, converted, cache_folder, engine, precision
):
    expected = chances(bert.load(str(classifier)))
    if precision == "float32":
        name = converted[1][engine]
        cache_folder.mkdir(parents=True)
        shutil.copy(converted[0] / name, cache_folder / name)
    before = {path: path.stat().st_mtime_ns for path in classifier.iterdir()}
    model = bert.load(str(classifier), engine=engine, precision=precision)
    limit = 1e-5 if precision == "float32" else 0.1
    np.testing.assert_allclose(chances(model), expected, rtol=0, atol=limit)
    (name,) = entries(cache_folder)
    # The second time, what is kept answers the same; nothing is written beside the model.
    again = bert.load(str(classifier), engine=engine, precision=precision)
    np.testing.assert_array_equal(chances(again), chances(model))
    assert entries(cache_folder) == [name]
    assert {path: path.stat().st_mtime_ns for path in classifier.iterdir()} == before


@pytest.mark.parametrize("name", ["labels", *exhaustive("answers", "entities", "choices")])
@pytest.mark.parametrize("engine", ["onnx", "litert"])
def test_an_answer_of_eight_bits_does_not_depend_on_what_is_beside_it(tmp_path, engine, name):
    model = bert.load(save_model(name, tmp_path / name), engine=engine, precision="int8")
    rows = rows_of(model.fields) * 3
    alone = [answer for row in rows for answer in model.predict([row])]
    assert_same(model.predict(rows), alone)


@pytest.mark.usefixtures("filled")
def test_vectors_are_those_of_tensorflow_which_loads_for_the_first(classifier, tmp_path):
    folder = tmp_path / "moved"
    shutil.copytree(classifier, folder)
    expected = bert.load(str(folder))
    model = bert.load(str(folder), engine="onnx")
    assert model.methods == expected.methods
    # Answers need no weights, so none have been read.
    weights = [path for path in folder.iterdir() if "ckpt" in path.name]
    for path in weights:
        path.rename(tmp_path / path.name)
    np.testing.assert_allclose(chances(model), chances(expected), rtol=0, atol=1e-5)
    with pytest.raises((ValueError, OSError)):
        model.encode(TEXTS)
    for path in weights:
        (tmp_path / path.name).rename(path)
    np.testing.assert_array_equal(model.encode(TEXTS), expected.encode(TEXTS))
    assert model.encoder.config == expected.encoder.config


def open_source(folder, batch_size=4, config=None, **given):
    opened = ModelFolder.open(folder, "model", bert_config_file=config)
    return engines._Source(opened, Overrides(**given), batch_size)


def test_vectors_beside_an_engine_are_pooled_and_cut_as_the_model_says(tmp_path):
    folder = save_model("labels", tmp_path / "model")
    kinds = {"Transformer": "", "Pooling": "1_Pooling", "Normalize": "2_Normalize"}
    modules = [{"type": f"x.{kind}", "path": path} for kind, path in kinds.items()]
    (tmp_path / "model/modules.json").write_text(json.dumps(modules))
    (tmp_path / "model/1_Pooling").mkdir()
    (tmp_path / "model/1_Pooling/config.json").write_text('{"pooling_mode": "max"}')
    expected = bert.load(folder, max_seq_length=5, batch_size=2)
    source = open_source(folder, 2, max_seq_length=5)
    # What computes answers computes no vectors.
    model = engines.ConvertedModel(source, portable.Runtime(lambda _: {}, {"input_ids": 2}))
    vectors = model.encode(TEXTS)
    np.testing.assert_array_equal(vectors, expected.encode(TEXTS))
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=1e-5)
    assert model.inputs(TEXTS)["input_ids"].shape == (len(TEXTS), 5)
    assert source.load().batch_size == 2


def test_whatever_changes_a_converted_model_has_another_entry(tmp_path):
    folder = save_model("labels", tmp_path / "model")
    other = dataclasses.replace(CONFIG, hidden_act="relu")
    (tmp_path / "other.json").write_text(other.to_json_string())
    sources = [
        *(open_source(folder), open_source(folder, max_seq_length=9)),
        *(open_source(folder, config=str(tmp_path / "other.json")),),
        open_source(save_model("several", tmp_path / "several")),
    ]
    names = [
        source.entry(*given).path
        for source in sources
        for given in (("onnx", "float32"), ("onnx", "int8"), ("litert", "float32"))
    ]
    assert len({*names}) == len(names)
    # How many texts go through it at a time changes nothing of it.
    assert open_source(folder, 9).entry("onnx", "int8").path == names[1]


def test_packages_count_by_whatever_name_they_are_installed(tmp_path, monkeypatch):
    installed = {
        "tensorflow_cpu": "tensorflow",
        "onnxruntime_gpu": "onnxruntime",
        "tf2onnx": "tf2onnx",
    }
    for name, module in installed.items():
        folder = tmp_path / f"{name}-1.2.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Name: {name}\nVersion: 1.2\n")
        (folder / "top_level.txt").write_text(f"{module}\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    found = engines._versions.__wrapped__
    assert found("onnx") == ["tf2onnx 1.2", "onnxruntime_gpu 1.2"]
    assert found("tflite") == ["tensorflow_cpu 1.2"]


@pytest.mark.usefixtures("filled")
@pytest.mark.parametrize("engine", ["litert", "onnx"])
def test_two_threads_have_their_own_answers(classifier, engine):
    model = bert.load(str(classifier), engine=engine)
    texts = [["red"], ["a blue b " * 9] * 3]
    expected = [model.predict(each) for each in texts]

    def ask(number):
        return all(model.predict(texts[number]) == expected[number] for _ in range(50))

    with ThreadPoolExecutor(2) as pool:
        assert [*pool.map(ask, (0, 1))] == [True, True]


def test_auto_is_tensorflow_where_no_other_engine_can_compute(
    classifier, cache_folder, log, monkeypatch
):
    expected = chances(bert.load(str(classifier)))
    bert.load(str(GOLDEN), do_lower_case=True, engine="auto").fill_mask("a [MASK]")
    assert "The engine is tensorflow: the model is only pre-trained." in log.messages
    bert.load(str(classifier), engine="auto", precision="mixed_bfloat16")
    assert "The engine is tensorflow, which alone computes in mixed_bfloat16." in log.messages
    find = importlib.util.find_spec
    packages = ("ai_edge_litert", "onnx", "onnxruntime", "tf2onnx")
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name in packages else find(name)
    )
    np.testing.assert_array_equal(chances(bert.load(str(classifier), engine="auto")), expected)
    told = "The engine is tensorflow: neither LiteRT nor ONNX Runtime is installed."
    assert told in log.messages
    with pytest.raises(ValueError, match="`precision` must be float32 where no engine"):
        bert.load(str(classifier), engine="auto", precision="int8")
    assert not cache_folder.exists()


def test_a_server_answers_with_the_fastest_engine_and_gives_vectors(classifier, cache_folder, log):
    model = bert.load(str(classifier))
    log.clear()
    with serve.open_server(serve.Settings(model_dir=str(classifier), port=0)) as server:
        assert any(line.startswith("The engine is ") for line in log.messages)
        [measured] = [line for line in log.messages if "Milliseconds for one text and" in line]
        assert "for 32: tensorflow" in measured and "litert" in measured and "onnx" in measured
        told = fetch(server, "/v1/models/out:predict", {"instances": TEXTS}).body["predictions"]
        found = [[*each["probabilities"].values()] for each in told]
        np.testing.assert_allclose(found, chances(model), rtol=0, atol=1e-5)
        told = fetch(server, "/v1/embeddings", {"input": TEXTS}).body["data"]
        found = [each["embedding"] for each in told]
        np.testing.assert_allclose(found, model.encode(TEXTS), rtol=0, atol=1e-5)
    # Two models, and the choice.
    assert len(entries(cache_folder)) == 3
    log.clear()
    found = chances(bert.load(str(classifier), engine="auto"))
    np.testing.assert_allclose(found, chances(model), rtol=0, atol=1e-5)
    assert "the fastest on this machine when it was measured" in log.messages[-1]


def assert_same(found, expected):
    """Asserts that answers are equal, numbers but for rounding."""
    if isinstance(expected, dict):
        assert found.keys() == expected.keys()
        found, expected = [*found.values()], [*expected.values()]
    if isinstance(expected, list | tuple):
        assert len(found) == len(expected)
        for pair in zip(found, expected, strict=True):
            assert_same(*pair)
    else:
        wanted = pytest.approx(expected, abs=1e-4) if isinstance(expected, float) else expected
        assert found == wanted


ONES = {"num_attention_heads": 1}, {"max_position_embeddings": 5}, {"vocab_size": 4}


@pytest.mark.parametrize("changes", [ONES[0] | ONES[1] | ONES[2], *exhaustive(*ONES)])
@pytest.mark.parametrize("engine", ["onnx", *exhaustive("litert")])
def test_engines_compute_models_of_any_size(tmp_path, monkeypatch, engine, changes):
    config = dataclasses.replace(CONFIG, **changes)
    options = {"is_pair": False, "config": config, "length": 5}
    task = classification("classification", ("no", "yes"), **options)
    monkeypatch.setitem(TASKS, "small", task)
    folder = save_model("small", tmp_path / "small")
    model, fast = (bert.load(folder, engine=name) for name in ("tensorflow", engine))
    assert_same(fast.predict(TEXTS), model.predict(TEXTS))


def test_an_engine_that_fails_when_it_computes_is_left_out(classifier, monkeypatch, log):
    def fail(inputs):
        raise RuntimeError(f"no {[*inputs]}")

    make = engines.portable.make_runtime
    monkeypatch.setattr(
        engines.portable,
        "make_runtime",
        lambda *given: engines.portable.Runtime(fail, make(*given).ranks),
    )
    monkeypatch.setattr(engines, "FORMS", {"onnx": engines.FORMS["onnx"]})
    expected = chances(bert.load(str(classifier)))
    np.testing.assert_array_equal(chances(bert.load(str(classifier), engine="auto")), expected)
    left_out = [line for line in log.messages if "engine onnx is left out. `engine` must" in line]
    assert len(left_out) == 1 and "no ['input_ids'" in left_out[0]


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("answers", {"question": "which", "context": "a b red."}),
        ("choices", {"context": "a", "endings": ["blue b", "red", "a b red"]}),
        *exhaustive(("entities", {"text": "a red b"})),
    ],
)
def test_questions_tags_and_choices_are_answered_by_an_engine(tmp_path, name, given):
    # Their weights are so large that rounding decides nothing.
    folder = save_model(name, tmp_path / name)
    model, fast = (bert.load(folder, engine=engine) for engine in ("tensorflow", "onnx"))
    assert_same(fast.predict([given]), model.predict([given]))


def test_a_large_model_is_converted_in_a_process_of_its_own(
    classifier, cache_folder, filled, monkeypatch, tmp_path
):
    expected = chances(bert.load(str(classifier), engine="litert"))
    shutil.rmtree(cache_folder)
    fork_workers(monkeypatch)
    monkeypatch.setattr(engines, "_LARGE", 0)
    # This process converts nothing, and leaves no file.
    monkeypatch.delattr(engines.portable, "convert")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    model = bert.load(str(classifier), engine="litert")
    np.testing.assert_allclose(chances(model), expected, rtol=0, atol=1e-6)
    assert entries(cache_folder) == [filled["litert"]]
    assert not multiprocessing.active_children() and not [*(tmp_path / "temporary").iterdir()]
    # Where nothing can be kept, its file is used all the same.
    shutil.rmtree(cache_folder)
    cache_folder.write_text("")
    model = bert.load(str(classifier), engine="litert")
    np.testing.assert_allclose(chances(model), expected, rtol=0, atol=1e-6)


def end_unless_tensorflow(source, given):
    """Measures TensorFlow, and ends the process where a model is to be converted."""
    del source
    if given[0] != "tensorflow":
        os._exit(1)
    return [0.1, 0.1], None


def test_a_conversion_that_the_system_stops_leaves_tensorflow(
    classifier, cache_folder, monkeypatch, log
):
    expected = chances(bert.load(str(classifier)))
    fork_workers(monkeypatch)
    monkeypatch.setattr(engines, "_LARGE", 0)
    monkeypatch.setattr(engines, "_prepare", end_unless_tensorflow)
    # Each process that ends is followed by another one.
    monkeypatch.setattr(engines, "FORMS", {"litert": engines.FORMS["litert"]})
    np.testing.assert_array_equal(chances(bert.load(str(classifier), engine="auto")), expected)
    left_out = [line for line in log.messages if "is left out. A process ended" in line]
    assert len(left_out) == 1
    # The next time may have more memory.
    assert not cache_folder.exists()
    with pytest.raises(OSError, match="for want of memory"):
        bert.load(str(classifier), engine="litert")


def test_what_is_kept_is_made_anew_where_it_is_damaged(classifier, cache_folder, filled, log):
    expected = chances(bert.load(str(classifier), engine="litert"))
    path = cache_folder / filled["litert"]
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    log.clear()
    found = chances(bert.load(str(classifier), engine="litert"))
    np.testing.assert_array_equal(found, expected)
    assert any("is damaged" in line for line in log.messages)
    assert path.read_bytes() == whole


@pytest.mark.parametrize("left", [0, 9, 34])
def test_what_is_kept_in_part_is_not_read(log, left):
    entry = cache.Entry.find("bert-engines", "a" * 64)
    entry.write(b"entry")
    os.truncate(entry.path, left)
    assert entry.read() is None
    assert any("is damaged" in line for line in log.messages)
    entry.write(b"entry")
    assert entry.read() == b"entry"


def test_other_weights_are_another_entry(classifier, cache_folder, filled, tmp_path):
    other = tmp_path / "other"
    shutil.copytree(classifier, other)
    model = bert.load(str(other))
    bias = next(each for each in model.model.weights if each.path == "output_bias")
    stored = Stored.open(str(other))
    values = {**stored.read(), bias.path: bias.numpy() + np.arange(bias.shape[0])}
    for path in other.glob("*.ckpt*"):
        path.unlink()
    save_tensors(str(other / "bert_model.ckpt"), values)
    changed = chances(bert.load(str(other), engine="litert"))
    np.testing.assert_allclose(changed, chances(bert.load(str(other))), rtol=0, atol=1e-5)
    assert np.abs(changed - chances(bert.load(str(classifier)))).max() > 0.1
    assert len(entries(cache_folder)) == 1 + len({*filled.values()})


def test_the_oldest_entries_are_removed_and_no_file_of_others(cache_folder, monkeypatch, tmp_path):
    monkeypatch.setattr(cache, "_MAX_BYTES", 250)
    others = [cache_folder / "notes", cache_folder / "mine.entry"]
    for number, key in enumerate("abcd"):
        entry = cache.Entry.find("bert-engines", key * 64)
        entry.write(b"x" * 100)
        os.utime(entry.path, (number + 1, number + 1))
        if key == "a":
            for path in others:
                path.write_text("mine")
            (cache_folder / ("0" * 64)).symlink_to(tmp_path)
    kept = [key for key in "abcd" if cache.Entry.find("bert-engines", key * 64).read()]
    assert kept == ["d"]
    assert all(path.read_text() == "mine" for path in others)
    assert (cache_folder / ("0" * 64)).is_symlink() and tmp_path.exists()


def test_two_threads_that_convert_leave_the_levels_of_loggers(monkeypatch):
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "3")
    before = logging.getLogger().level
    with second_of_two(portable.hushed):
        assert logging.getLogger().level == logging.ERROR
    assert logging.getLogger().level == before


def test_an_entry_that_another_process_removes_meanwhile_is_no_error(
    cache_folder, monkeypatch, log
):
    old, new = (cache.Entry.find("bert-engines", key * 64) for key in "ab")
    old.write(b"old")
    scan = os.scandir

    def scan_and_lose(folder):
        if folder != new.root:
            return scan(folder)
        found = list(scan(folder))
        os.remove(old.path)
        return found

    monkeypatch.setattr(os, "scandir", scan_and_lose)
    new.write(b"new")
    assert new.read() == b"new"
    assert not old.exists
    assert not log.messages


def test_a_cache_that_cannot_be_written_is_named(classifier, monkeypatch, tmp_path, log):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    expected = chances(bert.load(str(classifier)))
    found = chances(bert.load(str(classifier), engine="litert"))
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)
    assert any("Nothing is kept for the next time" in line for line in log.messages)


def test_an_engine_that_computes_something_else_is_refused(classifier, cache_folder, monkeypatch):
    make = engines.portable.make_runtime

    def wrong(*arguments):
        runtime = make(*arguments)
        run = lambda inputs: {name: each + 0.1 for name, each in runtime(inputs).items()}  # noqa: E731
        return engines.portable.Runtime(run, runtime.ranks)

    monkeypatch.setattr(engines.portable, "make_runtime", wrong)
    with pytest.raises(ValueError, match=r"`engine` must compute what the model computes.*differ"):
        bert.load(str(classifier), engine="litert")
    assert not cache_folder.exists()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"engine": "torch"}, "`engine` must be one of tensorflow, litert, onnx, auto"),
        ({"precision": "int8"}, "`precision` must be another one unless `engine` is litert"),
        (
            {"engine": "onnx", "precision": "bfloat16"},
            "must be float32 or int8 with `engine='onnx'`",
        ),
    ],
)
def test_engines_and_precisions_that_do_not_fit_are_refused(classifier, given, message):
    with pytest.raises(ValueError, match=message):
        bert.load(str(classifier), **given)


def test_no_engine_computes_a_model_that_is_only_pre_trained_in_8_bits():
    with pytest.raises(ValueError, match="`precision` must be another one for a model that is on"):
        bert.load(str(GOLDEN), do_lower_case=True, engine="auto", precision="int8")

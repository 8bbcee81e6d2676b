"""What a SavedModel may hold for `bert.load`, predict.py and serve.py to load it."""

import errno
import gzip
import os
import re
import shutil

import numpy as np
import pytest
import tensorflow as tf
from conftest import GOLDEN, exhaustive
from helpers.checked_runs import check, wrong_texts
from helpers.served_models import TASKS, approximately, make_model, rows_of, save_model
from tensorflow.core.protobuf import saved_model_pb2

import bert
import predict
import serve
from bert.export import formats
from bert.export.operations import read_graph
from bert.models.open import open_model
from bert.models.options import EngineModel

EXPORTS = sorted((GOLDEN / "exports").glob("*.pb.gz"), key=lambda path: path.name)
TEXT = tf.TensorSpec([None], tf.string, name="text_a")


def read(folder):
    return saved_model_pb2.SavedModel.FromString((folder / "saved_model.pb").read_bytes())


def write(folder, saved):
    (folder / "saved_model.pb").write_bytes(saved.SerializeToString())


def nodes_of(saved):
    """Returns the nodes of a SavedModel, those of functions first."""
    [graph] = (each.graph_def for each in saved.meta_graphs)
    return [*(node for each in graph.library.function for node in each.node_def), *graph.node]


@pytest.mark.parametrize("path", EXPORTS, ids=lambda path: path.name.partition(".")[0])
def test_whatever_was_exported_may_be_loaded(tmp_path, path):
    (tmp_path / "saved_model.pb").write_bytes(gzip.decompress(path.read_bytes()))
    graph = read_graph(str(tmp_path), "model")
    assert "logits" in graph.signature_def["features"].outputs or "start_logits" in (
        graph.signature_def["features"].outputs
    )


def test_nothing_may_be_loaded_that_no_export_has(tmp_path):
    """Each operation of TensorFlow is put into an export, and refused if none of them has it."""
    saved = saved_model_pb2.SavedModel.FromString(gzip.decompress(EXPORTS[0].read_bytes()))
    known = set()
    for path in EXPORTS:
        each = saved_model_pb2.SavedModel.FromString(gzip.decompress(path.read_bytes()))
        known |= {node.op for node in nodes_of(each)}
    others = {name for name in dir(tf.raw_ops) if name[0].isupper()} - known
    assert others >= {"ReadFile", "WriteFile", "PyFunc", "EagerPyFunc", "MatchingFiles", "Print"}
    [function, *_] = saved.meta_graphs[0].graph_def.library.function
    # As many as a message names.
    ordered = sorted(others)
    for first in range(0, len(ordered), 8):
        names = ordered[first : first + 8]
        for name in names:
            function.node_def.add(op=name)
        write(tmp_path, saved)
        with pytest.raises(ValueError, match=rf"no export has: {', '.join(names)}\. Nothing of it"):
            read_graph(str(tmp_path), "model")
        del function.node_def[-len(names) :]


def answer(text):
    return {"logits": tf.zeros([tf.size(text), 2]), "label": text, "probabilities": tf.ones([1, 2])}


def save(folder, serve, part=None):
    """Saves a SavedModel that takes `text_a` and gives what a classifier does."""
    module = tf.Module()
    module.part = part
    module.labels = tf.function(lambda: {"labels": tf.constant(["a", "b"])}, input_signature=[])
    signatures = {
        "serving_default": tf.function(serve, input_signature=[TEXT]),
        "labels": module.labels,
    }
    tf.saved_model.save(module, str(folder), signatures)


class Initializer(tf.lookup.KeyValueTensorInitializer):
    """Fills a table, and copies a file before that."""

    def __init__(self, source, target):
        super().__init__(["a"], [1], tf.string, tf.int32)
        self.source, self.target = source, target

    def initialize(self, table):
        tf.io.write_file(self.target, tf.io.read_file(self.source))
        return super().initialize(table)


def copy_when_loaded(folder, source, target):
    table = tf.lookup.StaticHashTable(Initializer(source, target), 0)
    # What writes when the table is made here is not what is tested.
    tf.io.gfile.remove(target)
    save(folder, lambda text_a: {"ids": table.lookup(text_a), **answer(text_a)}, table)


def copy_when_run(folder, source, target):
    def serve(text_a):
        def copy():
            tf.io.write_file(target, tf.io.read_file(source))
            return text_a

        # Within functions that functions call.
        return answer(tf.cond(tf.size(text_a) > 0, copy, lambda: text_a))

    save(folder, serve)


def save_when_run(folder, source, target):
    """Has no operation but those with which each SavedModel saves its variables."""

    def serve(text_a):
        tensors = {"tensor_names": ["x"], "shape_and_slices": [""], "tensors": [text_a]}
        with tf.control_dependencies([tf.raw_ops.SaveV2(prefix=target, **tensors)]):
            return answer(tf.identity(text_a))

    save(folder, serve)


class Saving(tf.saved_model.experimental.TrackableResource):
    """Saves when it is loaded."""

    def __init__(self, target):
        super().__init__()
        self.target = target

    def _create_resource(self):
        return tf.raw_ops.HashTableV2(key_dtype=tf.string, value_dtype=tf.int32)

    def _initialize(self):
        tf.raw_ops.SaveV2(
            prefix=self.target, tensor_names=["x"], shape_and_slices=[""], tensors=[1]
        )


def save_when_loaded(folder, source, target):
    """Names what saves as TensorFlow names what it saves by, and only where it is called."""
    save(folder, answer, Saving(target))
    saved = read(folder)
    [graph] = saved.meta_graphs
    [function] = (
        each
        for each in graph.graph_def.library.function
        if "SaveV2" in {node.op for node in each.node_def} and "initializer" in each.signature.name
    )
    before, after = function.signature.name, "__inference__traced_restore_1"
    function.signature.name = after
    # The map says what a function gives.
    function.signature.ClearField("output_arg")
    function.ret.clear()
    del graph.object_graph_def.concrete_functions[before]
    for node in graph.object_graph_def.nodes:
        names = {*node.function.concrete_functions}
        if before in names | {node.bare_concrete_function.concrete_function_name}:
            node.bare_concrete_function.Clear()
            node.bare_concrete_function.concrete_function_name = after
    write(folder, saved)


def write_by_tensorflow_1(folder, source, target):
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        text = tf.compat.v1.placeholder(tf.string, [None])
        outputs = {"logits": tf.zeros([1, 2]), "label": text}
        main_op = tf.io.write_file(target, "written")
        tf.compat.v1.saved_model.simple_save(
            session, str(folder), {"text_a": text}, outputs, legacy_init_op=main_op
        )


@pytest.mark.parametrize(
    ("make", "found"),
    [
        (copy_when_loaded, "ReadFile, WriteFile"),
        (copy_when_run, "ReadFile, WriteFile"),
        (save_when_run, "SaveV2"),
        (save_when_loaded, "RestoreV2, SaveV2"),
        (write_by_tensorflow_1, "graphs in the form of TensorFlow 1"),
    ],
)
def test_a_program_is_refused_before_it_runs(tmp_path, make, found):
    folder, source, target = tmp_path / "model", tmp_path / "secret", tmp_path / "copied"
    source.write_text("secret")
    make(folder, str(source), str(target))
    before = sorted(os.listdir(tmp_path))
    # What it does where it is loaded, and asked.
    tf.saved_model.load(str(folder)).signatures["serving_default"](tf.constant(["a"]))
    made = set(os.listdir(tmp_path)) - {*before}
    assert made
    for name in made:
        (tmp_path / name).unlink()
    settings = {"model_dir": str(folder)}
    message = re.escape(f"what no export has: {found}. Nothing of it was run.")
    for load in (
        lambda: bert.load(str(folder)),
        lambda: predict.run(predict.Settings(**settings)),
        lambda: serve.run(serve.Settings(**settings, port=0)),
    ):
        with pytest.raises(ValueError, match=message):
            load()
    for script, port in ((predict, {}), (serve, {"port": 0})):
        [text] = wrong_texts(check(script, script.Settings(**settings, **port)))
        assert re.search(message, text)
    assert sorted(os.listdir(tmp_path)) == before


def call_from_function(graph, name):
    node = graph.graph_def.library.function[0].node_def.add(op="PartitionedCall")
    node.attr["f"].func.name = name


def call_within_attribute(graph, name):
    node = graph.graph_def.library.function[0].node_def.add(op="PartitionedCall")
    node.attr["f"].func.attr["g"].func.name = name


def call_by_implementation(graph, name):
    for function in graph.graph_def.library.function:
        if function.signature.name == name:
            function.attr["api_implements"].s = b"x"


def call_second(graph, name):
    """Has two functions of the name, of which the last one saves nothing."""
    graph.graph_def.library.function.add().signature.name = name


CALLS = {
    "map": lambda graph, name: graph.object_graph_def.concrete_functions[name].bound_inputs.append(
        0
    ),
    "function": lambda graph, name: (
        graph.object_graph_def.nodes.add().function.concrete_functions.append(name)
    ),
    "bare_concrete_function": lambda graph, name: setattr(
        graph.object_graph_def.nodes.add().bare_concrete_function, "concrete_function_name", name
    ),
    "captured_tensor": lambda graph, name: setattr(
        graph.object_graph_def.nodes.add().captured_tensor, "concrete_function", name
    ),
    "gradient": lambda graph, name: graph.graph_def.library.gradient.add(gradient_func=name),
    "registered_gradient": lambda graph, name: graph.graph_def.library.registered_gradients.add(
        gradient_func=name
    ),
    "call": call_from_function,
    "attribute": call_within_attribute,
    "implementation": call_by_implementation,
    "second": call_second,
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize("operation", ["SaveV2", "RestoreV2"])
def test_what_saves_an_export_may_be_called_nowhere(tmp_path, operation, call):
    saved = saved_model_pb2.SavedModel.FromString(gzip.decompress(EXPORTS[0].read_bytes()))
    [graph] = saved.meta_graphs
    [name] = (
        each.signature.name
        for each in graph.graph_def.library.function
        if operation in {node.op for node in each.node_def}
    )
    call(graph, name)
    write(tmp_path, saved)
    with pytest.raises(ValueError, match=rf"no export has: .*{operation}.*\. Nothing of it"):
        read_graph(str(tmp_path), "model")


def test_an_export_that_does_not_say_what_its_labels_are_is_refused(tmp_path):
    save(tmp_path / "model", answer)
    with pytest.raises(ValueError, match=r"does not say what its labels are; export the model"):
        bert.load(str(tmp_path / "model"))


def test_check_of_an_export_runs_no_graph(tmp_path, exported, monkeypatch):
    folder = tmp_path / "out"
    shutil.copytree(exported, folder)
    # It would end in the attempt to load it.
    monkeypatch.setattr(tf.saved_model, "load", None)
    opened = open_model(EngineModel(model_dir=str(folder)), "model", dry=True)
    assert (opened.fields, opened.kind) == (TASKS["labels"].fields, TASKS["labels"].kind)
    for script, port in ((predict, {}), (serve, {"port": 0})):
        settings = script.Settings(model_dir=str(folder), check=True, **port)
        assert wrong_texts(check(script, settings)) == []
    # The weights are read.
    path = folder / "variables/variables.data-00000-of-00001"
    path.write_bytes(path.read_bytes()[:-9])
    [text] = wrong_texts(check(script, settings))
    assert "must be a complete SavedModel" in text


def test_weights_go_before_a_graph(tmp_path, monkeypatch):
    folder = tmp_path / "model"
    save_model("labels", folder)
    copy_when_run(tmp_path / "foreign", "secret", "copied")
    shutil.copytree(tmp_path / "foreign", folder, dirs_exist_ok=True)
    monkeypatch.setattr(tf.saved_model, "load", None)
    rows = rows_of(TASKS["labels"].fields)
    found, expected = bert.load(str(folder)).predict(rows), make_model("labels").predict(rows)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(
            list(one["probabilities"].values()), list(other["probabilities"].values())
        )
    for script, port in ((predict, {}), (serve, {"port": 0})):
        lines = check(script, script.Settings(model_dir=str(folder), max_seq_length=12, **port))
        assert wrong_texts(lines) == []


def truncate_file(name, size):
    def spoil(folder):
        (folder / name).write_bytes((folder / name).read_bytes()[:size])

    return spoil


def rename_nodes(folder):
    saved = read(folder)
    for node in nodes_of(saved):
        node.name = f"x{node.name}"
    write(folder, saved)


def number_objects(folder):
    saved = read(folder)
    for each in saved.meta_graphs[0].object_graph_def.nodes:
        for child in each.children:
            child.node_id += 1000
    write(folder, saved)


def drop_functions(folder):
    saved = read(folder)
    del saved.meta_graphs[0].graph_def.library.function[:]
    write(folder, saved)


def drop_nodes(folder):
    saved = read(folder)
    del saved.meta_graphs[0].graph_def.node[:]
    write(folder, saved)


def add_graph(folder):
    saved = read(folder)
    saved.meta_graphs.add()
    write(folder, saved)


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """The folder of a SavedModel."""
    folder = tmp_path_factory.mktemp("exported") / "out"
    model = make_model("labels")
    model.task.export(str(folder), model.model)
    return folder


@pytest.mark.parametrize("name", ["entities", *exhaustive("labels", "pairs", "answers", "choices")])
def test_an_export_with_the_tokenizer_of_tensorflow_text_answers_the_same(name, tmp_path):
    pytest.importorskip("tensorflow_text")
    model = make_model(name)
    model.task.export(str(tmp_path), model.model, formats.TEXT)
    rows = rows_of(model.fields)
    for one, other in zip(bert.load(str(tmp_path)).predict(rows), model.predict(rows), strict=True):
        assert one == approximately({key: other[key] for key in one})


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (truncate_file("saved_model.pb", 0), "what no export has: no graph"),
        (truncate_file("saved_model.pb", 1000), "a complete SavedModel"),
        (truncate_file("variables/variables.index", 0), "a complete SavedModel"),
        (truncate_file("variables/variables.data-00000-of-00001", 9), "a complete SavedModel"),
        (lambda folder: shutil.rmtree(folder / "variables"), "a complete SavedModel"),
        (rename_nodes, "a complete SavedModel"),
        (number_objects, "a complete SavedModel"),
        (drop_functions, "a complete SavedModel"),
        (drop_nodes, "a complete SavedModel"),
        (add_graph, "graphs in the form of TensorFlow 1"),
    ],
)
def test_a_damaged_export_is_named_in_a_line(tmp_path, exported, spoil, message):
    folder = tmp_path / "out"
    shutil.copytree(exported, folder)
    spoil(folder)
    with pytest.raises(ValueError, match=rf"^`.*model` must be .*{message}") as caught:
        bert.load(str(folder))
    assert str(folder) in str(caught.value)
    assert "\n" not in str(caught.value)


REFUSED = "/a/variables.index; {}"


@pytest.mark.parametrize(
    "error",
    [
        tf.errors.ResourceExhaustedError(None, None, "OOM when allocating tensor with shape[9,9]"),
        tf.errors.PermissionDeniedError(None, None, "403 Forbidden"),
        # As what reads the weights tells it.
        *(
            tf.errors.OpError(None, None, REFUSED.format(os.strerror(number)), tf.errors.UNKNOWN)
            for number in (errno.EACCES, errno.EMFILE)
        ),
        *(
            OSError(number, os.strerror(number), "/a")
            for number in (errno.EACCES, errno.EMFILE, errno.EIO)
        ),
    ],
    ids=lambda error: f"{type(error).__name__}-{str(error)[-12:]}",
)
def test_what_the_machine_refuses_is_no_damage_of_an_export(exported, monkeypatch, error):
    def fail(*_):
        raise error

    monkeypatch.setattr(tf.saved_model, "load", fail)
    monkeypatch.setattr(tf.train, "load_checkpoint", fail)
    with pytest.raises(type(error)) as caught:
        bert.load(str(exported))
    assert caught.value is error
    with pytest.raises(type(error)) as caught:
        bert.load(str(exported))
    assert caught.value is error

import itertools
import json
import os
import pickle
import re
import resource
import shutil
import tracemalloc
from pathlib import Path

import keras
import numpy as np
import pytest
import safetensors.numpy
import tensorflow as tf
from conftest import GOLDEN, change, exhaustive, make_examples, read_tensors
from helpers.power_loss import PowerLoss
from helpers.tf1_checkpoints import save_by_tf1
from helpers.trainers import assert_same

import modeling
import optimization
import run_pretraining
from bert.files import fingerprints, owned
from bert.files.outputs import make_folder
from bert.files.stored_models import SUFFIXES
from bert.network.heads import classifier_model, span_model, tagging_model
from bert.pretraining import heads as pretraining_heads
from bert.training.trainer import Trainer, initialize
from bert.weights import checkpoint, readers, saving
from bert.weights.formats import UnsoundError
from bert.weights.variables import GLOBAL_STEP, encoder_shapes, find_variables


@pytest.fixture(scope="module")
def one_trainer(tiny_config):
    model = pretraining_heads.pretraining_model(change(tiny_config, num_hidden_layers=1))
    return Trainer(model, optimization.bert_optimizer(0.1, 10, 0), run_pretraining.OBJECTIVE)


@pytest.fixture
def trainer(one_trainer):
    """A trainer with slots that are not zero, at step 3."""
    trainer, rng = one_trainer, np.random.RandomState(0)
    for name, variable in trainer.state().items():
        if name == "global_step":
            variable.assign(3)
        else:
            variable.assign(rng.standard_normal(variable.shape))
    return trainer


def values_of(variables):
    return {name: np.asarray(variable.numpy()) for name, variable in variables.items()}


def zero(variables):
    for variable in variables.values():
        variable.assign(np.zeros(variable.shape))


def load_by_tf1(prefix, shapes_and_types):
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        variables = {
            name: tf.compat.v1.get_variable(name, shape, dtype, use_resource=False)
            for name, (shape, dtype) in shapes_and_types.items()
        }
        tf.compat.v1.train.Saver(variables).restore(session, prefix)
        return session.run(variables)


def encoder_weights(config, seed=1):
    """Returns random values for the variables of an encoder by their names."""
    model = modeling.BertModel(config)
    model.build(None)
    rng = np.random.RandomState(seed)
    return {v.path: rng.standard_normal(v.shape).astype("float32") for v in model.weights}


def test_what_is_saved_is_restored_bit_for_bit(tmp_path, trainer):
    state = trainer.state()
    saved = values_of(state)
    prefix = saving.Checkpoints(str(tmp_path)).save(state, 3)
    assert os.path.basename(prefix) == "model.ckpt-3"
    zero(state)
    assert saving.Checkpoints(str(tmp_path)).restore(state, prefix) == 3
    assert_same(values_of(state), saved)


def test_names_are_those_of_the_original(tmp_path, trainer):
    prefix = saving.Checkpoints(str(tmp_path)).save(trainer.state(), 3)
    stored = read_tensors(prefix)
    weights = {variable.path for variable in trainer.model.weights}
    slots = {f"{name}/{slot}" for name in weights for slot in ("adam_m", "adam_v")}
    assert stored.keys() == weights | slots | {"global_step"}
    assert "bert/encoder/layer_0/attention/self/query/kernel/adam_v" in slots
    assert stored["global_step"].dtype == np.int64
    assert stored["global_step"].shape == ()


def test_the_scope_of_a_module_around_names_is_left_out(tmp_path, tiny_config):
    """As in runs of the original's run_classifier_with_tfhub.py."""
    weights = encoder_weights(tiny_config)
    encoder = {f"{name}{slot}": v for name, v in weights.items() for slot in ("", "/adam_m")}
    head = {f"output_weights{slot}": np.ones((2, 8), np.float32) for slot in ("", "/adam_m")}
    others = {**head, "global_step": np.asarray(7, np.int64)}
    scoped = {f"module/{name}": values for name, values in encoder.items()}
    saving.save_tensors(str(tmp_path / "model.ckpt-7"), {**scoped, **others})
    stored = checkpoint.Stored.open(str(tmp_path))
    assert_same(stored.read(), {**encoder, **others})
    stored.check_fit(tiny_config)
    assert (stored.is_huggingface, stored.gelu) == (False, None)
    other = {"module_1/bert/pooler/dense/bias": np.ones(8, np.float32)}
    saving.save_tensors(str(tmp_path / "two"), {**scoped, **other})
    with pytest.raises(ValueError, match=r"once, and has 'module/bert/pooler.* and 'module_1/"):
        checkpoint.Stored.open(str(tmp_path / "two")).read()


def test_tensorflow_1_loads_our_files(tmp_path, trainer):
    state = trainer.state()
    prefix = saving.Checkpoints(str(tmp_path)).save(state, 3)
    expected = {**values_of(state), "global_step": np.int64(3)}
    shapes_and_types = {name: (value.shape, value.dtype) for name, value in expected.items()}
    assert_same(load_by_tf1(prefix, shapes_and_types), expected)


def test_run_of_tensorflow_1_is_resumed(tmp_path, trainer):
    state = trainer.state()
    rng = np.random.RandomState(5)
    tensors = {
        name: rng.standard_normal(variable.shape).astype("float32")
        for name, variable in state.items()
    }
    tensors["global_step"] = np.int64(77)
    save_by_tf1(str(tmp_path / "model.ckpt-77"), tensors)
    checkpoints = saving.Checkpoints(str(tmp_path))
    step = initialize(trainer.model, state, checkpoints, None)
    assert step == trainer.step == 77
    assert_same(values_of(state), {**tensors, "global_step": np.asarray(77)})
    # And saving goes on where TensorFlow 1 left off.
    checkpoints.save(state, 78)
    assert checkpoints.latest() == str(tmp_path / "model.ckpt-78")
    assert tf.train.latest_checkpoint(str(tmp_path)) == str(tmp_path / "model.ckpt-78")
    assert (tmp_path / "model.ckpt-77.index").exists()


def test_checkpoints_survive_a_move_of_their_folder(tmp_path, trainer):
    saving.Checkpoints(str(tmp_path / "old")).save(trainer.state(), 3)
    os.rename(tmp_path / "old", tmp_path / "new")
    latest = saving.Checkpoints(str(tmp_path / "new")).latest()
    assert latest == str(tmp_path / "new" / "model.ckpt-3")


def test_checkpoints_live_on_any_file_system(trainer):
    folder = "ram://test_checkpoint/run"
    state = trainer.state()
    saved = values_of(state)
    checkpoints = saving.Checkpoints(folder, keep_checkpoint_max=2)
    tf.io.gfile.makedirs(folder)
    for step in (3, 4, 5):
        checkpoints.save(state, step)
    assert checkpoints.latest() == f"{folder}/model.ckpt-5"
    assert not tf.io.gfile.exists(f"{folder}/model.ckpt-3.index")
    zero(state)
    checkpoints.restore(state, checkpoints.latest())
    assert_same(values_of(state), {**saved, "global_step": np.asarray(5)})
    weights = {variable.path: variable for variable in trainer.model.weights}
    zero(weights)
    checkpoint.Stored.open(folder).assign(trainer.model.weights)
    assert_same(values_of(weights), {name: saved[name] for name in weights})


# --init_checkpoint.


@pytest.fixture(scope="module")
def golden_model():
    config = modeling.BertConfig.from_json_file(str(GOLDEN / "bert_config.json"))
    return pretraining_heads.pretraining_model(config)


@pytest.fixture
def golden_variables(golden_model):
    """The variables of the original's small model, without its values."""
    for variable in golden_model.weights:
        variable.assign(np.zeros(variable.shape))
    return golden_model.weights


@pytest.mark.parametrize(
    "form",
    [*(f"/bert_model.ckpt{suffix}" for suffix in ("", *SUFFIXES)), "", "/"],
)
def test_init_checkpoint_takes_every_form(tmp_path, golden_variables, form):
    for path in GOLDEN.glob("bert_model.ckpt.*"):
        shutil.copy(path, tmp_path)
    stored = checkpoint.Stored.open(f"{tmp_path}{form}")
    assert stored.prefix == str(tmp_path / "bert_model.ckpt")
    stored.assign(golden_variables)
    stored = read_tensors(str(GOLDEN / "bert_model.ckpt"))
    assert_same({v.path: v.numpy() for v in golden_variables}, stored)


@pytest.fixture(scope="module")
def version_1(tmp_path_factory):
    """A folder with the golden weights in the first format, a single file."""
    folder = tmp_path_factory.mktemp("version_1")
    tensors = read_tensors(str(GOLDEN / "bert_model.ckpt"))
    version = tf.compat.v1.train.SaverDef.V1
    save_by_tf1(str(folder / "bert_model.ckpt"), {**tensors, "global_step": 9}, version)
    assert {path.name for path in folder.iterdir()} == {
        *("bert_model.ckpt", "bert_model.ckpt.meta", "checkpoint")
    }
    return folder


@pytest.mark.parametrize(
    "form", ["bert_model.ckpt", "bert_model.ckpt.meta", "a[1]*/bert_model.ckpt", "listed", "alone"]
)
def test_the_first_format_of_tensorflow_is_read(tmp_path, golden_variables, version_1, form):
    folder = tmp_path / (os.path.dirname(form) or "folder")
    shutil.copytree(version_1, folder)
    if form == "alone":
        (folder / "checkpoint").unlink()
    path = folder / (os.path.basename(form) if "." in form else "")
    stored = checkpoint.Stored.open(str(path))
    assert stored.prefix == str(folder / "bert_model.ckpt")
    stored.assign(golden_variables)
    tensors = read_tensors(str(GOLDEN / "bert_model.ckpt"))
    assert_same({v.path: v.numpy() for v in golden_variables}, tensors)
    assert stored.prefix not in stored.parts
    digest = fingerprints.of_files([str(version_1 / "bert_model.ckpt")])
    assert stored.describe() == {"path": path.name, "sha256": digest}


@pytest.mark.parametrize("where", [0, 0.001, 0.3, 0.9, 0.999, None])
def test_damage_to_the_first_format_is_an_error(tmp_path, version_1, where):
    data = bytearray((version_1 / "bert_model.ckpt").read_bytes())
    if where is None:
        del data[len(data) // 2 :]
    else:
        data[int(where * len(data))] ^= 0x55
    path = tmp_path / "bert_model.ckpt"
    path.write_bytes(data)
    with pytest.raises(UnsoundError, match="must name a whole checkpoint"):
        checkpoint.Stored.open(str(path)).read()


# A sound table of the first format that lists no variables.
EMPTY = bytes.fromhex(
    "000000000000000100000000bb116558000000000100000000c0f2a1b0000102ff000b00000000010000000081a8"
    "c41a10081d0e" + "00" * 36 + "57fb808b247547db"
)


def test_a_listed_file_of_the_first_format_without_variables_is_skipped(tmp_path, version_1):
    (tmp_path / "model.ckpt-2").write_bytes(EMPTY)
    listed = tmp_path / "checkpoint"
    listed.write_text('model_checkpoint_path: "model.ckpt-2"\n')
    assert checkpoint.Stored.open(str(tmp_path / "model.ckpt-2")).shapes == {}
    with pytest.raises(ValueError, match=r"must hold a whole checkpoint .* model\.ckpt-2"):
        saving.Checkpoints(str(tmp_path)).latest()
    shutil.copy(version_1 / "bert_model.ckpt", tmp_path / "model.ckpt-1")
    listed.write_text(listed.read_text() + 'all_model_checkpoint_paths: "model.ckpt-1"\n')
    assert saving.Checkpoints(str(tmp_path)).latest() == str(tmp_path / "model.ckpt-1")


def test_several_of_the_first_format_are_named(tmp_path, version_1):
    for name in ("model.ckpt-1", "model.ckpt-2"):
        shutil.copy(version_1 / "bert_model.ckpt", tmp_path / name)
    with pytest.raises(ValueError, match=r"must name one .*'model.ckpt-1', 'model.ckpt-2'"):
        checkpoint.Stored.open(str(tmp_path))
    assert sorted(readers.weight_files(str(tmp_path))) == ["model.ckpt-1", "model.ckpt-2"]
    # Safetensors come first, and so does the second format.
    (tmp_path / "model.safetensors").touch()
    assert checkpoint.Stored.open(str(tmp_path)).is_huggingface


def test_a_list_of_other_files_does_not_hide_weights(tmp_path, golden_variables):
    for path in GOLDEN.glob("bert_model.ckpt.*"):
        (tmp_path / path.name.replace("bert_model", "other_model")).write_bytes(path.read_bytes())
    (tmp_path / "checkpoint").write_text('model_checkpoint_path: "/old/model.ckpt-1000"\n')
    with pytest.raises(ValueError, match=r"`x` must name one .* such as '.*/other_model\.ckpt'"):
        checkpoint.Stored.open(str(tmp_path), "x")


def test_folder_with_two_checkpoints_is_refused(tmp_path):
    for name in ("one.ckpt", "two.ckpt"):
        saving.save_tensors(str(tmp_path / name), {"x": np.zeros(1, np.float32)})
    with pytest.raises(ValueError, match=r"`init_checkpoint`.*'one.ckpt.index', 'two.ckpt"):
        checkpoint.Stored.open(str(tmp_path))


@pytest.mark.parametrize("path", ["nothing.ckpt", "missing/folder/bert_model.ckpt", "empty"])
def test_missing_checkpoint_is_named(tmp_path, path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="`init_checkpoint` must name") as caught:
        checkpoint.Stored.open(str(tmp_path / path))
    assert str(tmp_path / path) in str(caught.value)
    (tmp_path / "model.safetensors").touch()
    with pytest.raises(ValueError, match=rf"For the weights there, give '{tmp_path}'\."):
        checkpoint.Stored.open(str(tmp_path / "bert_model.ckpt"))


def test_report_names_what_was_loaded_missing_and_unused(tmp_path, log, tiny_config):
    tensors = encoder_weights(tiny_config)
    tensors["bert/pooler/dense/kernel/adam_m"] = np.zeros((8, 8), np.float32)
    tensors["bert/pooler/dense/kernel/adam_v"] = np.zeros((8, 8), np.float32)
    tensors["cls/squad/output_weights"] = np.zeros((2, 8), np.float32)
    tensors["global_step"] = np.int64(9)
    save_by_tf1(str(tmp_path / "old.ckpt"), tensors)
    model = pretraining_heads.pretraining_model(tiny_config)
    before = {v.path: v.numpy() for v in model.weights}
    checkpoint.Stored.open(str(tmp_path / "old.ckpt")).assign(model.weights)
    heads = sorted(name for name in before if name.startswith("cls/"))
    found = len(before) - len(heads)
    assert log.messages[0] == (
        f"Loaded {found} of the model's {len(before)} variables from {tmp_path}/old.ckpt."
    )
    [missing] = [message for message in log.messages if message.startswith("Missing")]
    assert sorted(missing.rpartition(": ")[2].split(", ")) == heads
    unused = [message for message in log.messages if message.startswith("Unused")]
    assert unused == ["Unused there: 1 variables and 2 optimizer slots (`verbosity=1` names them)."]
    after = {v.path: v.numpy() for v in model.weights}
    assert_same(after, {name: tensors.get(name, before[name]) for name in before})


def test_deeper_checkpoint_is_loaded_with_a_warning(tmp_path, log, tiny_config):
    saving.save_tensors(
        str(tmp_path / "deep.ckpt"), encoder_weights(change(tiny_config, num_hidden_layers=3))
    )
    model = pretraining_heads.pretraining_model(tiny_config)
    checkpoint.Stored.open(str(tmp_path / "deep.ckpt")).assign(model.weights)
    warnings = [record.getMessage() for record in log.records if record.levelname == "WARNING"]
    assert len(warnings) == 1
    assert "layer_2" in warnings[0]
    assert "`num_hidden_layers`" in warnings[0]


@pytest.mark.parametrize(
    ("name", "is_foreign"),
    [
        ("bert/encoder/layer_0/output/adapters/down/w", True),
        ("bert.encoder.layer.1.attention.self.query.lora_A.weight", True),
        ("embeddings.task_type_embeddings.weight", True),
        ("bert/encoder/layer_0/output/dense/kernel/Adam_1", False),
        ("adapters/layer_0/kernel", False),
    ],
)
def test_weights_within_the_encoder_that_no_bert_has_are_named(
    tmp_path, log, tiny_config, name, is_foreign
):
    tensors = {**encoder_weights(tiny_config), name: np.ones((2, 2), np.float32)}
    saving.save_tensors(str(tmp_path / "model"), tensors)
    model = pretraining_heads.pretraining_model(tiny_config)
    checkpoint.Stored.open(str(tmp_path / "model")).assign(model.weights)
    warnings = [record.getMessage() for record in log.records if record.levelname == "WARNING"]
    assert [f"no BERT has, such as {name}." in warning for warning in warnings] == [True] * (
        is_foreign
    )


def drop(part):
    return lambda tensors: {name: tensors[name] for name in tensors if part not in name}


def rename_scope(tensors):
    return {f"x{name}": value for name, value in tensors.items()}


def transpose(name):
    def apply(tensors):
        return {**tensors, name: tensors[name].T.copy()}

    return apply


def other_config(**values):
    def apply(_):
        base = modeling.BertConfig.from_json_file(str(GOLDEN / "bert_config.json"))
        return encoder_weights(change(base, **values))

    return apply


@pytest.mark.parametrize(
    ("break_tensors", "message"),
    [
        (
            drop("pooler/dense/kernel"),
            r"whole encoder.*NN of the model's NN.*Missing: bert/pooler/dense/k",
        ),
        (rename_scope, r"has 0 of the model's .*It holds: xbert.*bert_config_file"),
        (lambda _: {"x": np.zeros(3, np.float32)}, r"has 0 of the model's .*It holds: x\."),
        (
            transpose("bert/encoder/layer_0/intermediate/dense/kernel"),
            r"layer_0/intermediate/dense/kernel` is \[32, 16\] there and \[16, 32\] in the model",
        ),
        (other_config(num_hidden_layers=1), r"whole encoder.*Missing: bert/encoder/layer_1"),
        (other_config(vocab_size=500), r"`vocab_size` should be 500"),
        (other_config(hidden_size=32), r"`hidden_size` should be 32"),
        (other_config(intermediate_size=48), r"`intermediate_size` should be 48"),
        (other_config(max_position_embeddings=128), r"`max_position_embeddings` should be 128"),
        (other_config(type_vocab_size=16), r"`type_vocab_size` should be 16"),
    ],
)
def test_checkpoint_that_does_not_fit_changes_nothing(
    tmp_path, golden_variables, break_tensors, message
):
    config = modeling.BertConfig.from_json_file(str(GOLDEN / "bert_config.json"))
    variables = golden_variables
    tensors = read_tensors(str(GOLDEN / "bert_model.ckpt"))
    prefix = str(tmp_path / "broken.ckpt")
    saving.save_tensors(prefix, break_tensors(tensors))
    before = {v.path: v.numpy() for v in variables}
    message = message.replace("NN", r"\d+")
    with pytest.raises(ValueError, match=message) as caught:
        checkpoint.Stored.open(prefix).assign(variables)
    assert prefix in str(caught.value)
    assert_same({v.path: v.numpy() for v in variables}, before)
    # The same is found out without a model.
    with pytest.raises(ValueError, match=message.partition(".*")[0]):
        checkpoint.Stored.open(prefix).check_fit(config)


@pytest.mark.parametrize("make", [modeling.BertModel, span_model])
def test_shapes_of_the_encoder_need_no_model(tiny_config, make):
    config = change(tiny_config, num_hidden_layers=3)
    model = make(config)
    model.build(None)
    shapes = {v.path: list(v.shape) for v in model.weights if v.path.startswith("bert/")}
    assert encoder_shapes(config) == shapes


@pytest.mark.parametrize(
    "make", [pretraining_heads.pretraining_model, span_model, lambda c: classifier_model(c, 5)]
)
def test_the_table_has_every_variable_and_the_keys_of_its_sizes(tiny_config, make):
    weights = make(tiny_config).weights
    table = find_variables(variable.path for variable in weights)
    for variable in weights:
        keys = table[variable.path].keys
        assert len(keys) == len(variable.shape)
        for key, size in zip(keys, variable.shape, strict=True):
            assert key is None or getattr(tiny_config, key) == size


def test_a_checkpoint_is_opened_once(tmp_path, opened, tiny_config):
    prefix = str(tmp_path / "model.ckpt")
    saving.save_tensors(prefix, encoder_weights(tiny_config))
    stored = checkpoint.Stored.open(str(tmp_path))
    assert opened == []
    stored.check_fit(tiny_config)
    stored.assign(span_model(tiny_config).weights)
    assert stored.read().keys() == stored.shapes.keys()
    assert opened == [prefix]


def test_a_checkpoint_is_the_same_in_another_process(tmp_path):
    saving.save_tensors(str(tmp_path / "bert_model.ckpt"), {"a": np.ones(2)})
    stored = checkpoint.Stored.open(str(tmp_path), "model_dir")
    other = pickle.loads(pickle.dumps(stored))
    assert other.path == stored.path == str(tmp_path) and other.option == "model_dir"
    assert other.describe() == stored.describe()
    assert_same(other.read(), stored.read())


def test_an_index_counts_more_than_a_file_of_the_prefix_alone(tmp_path):
    """As in a folder into which a checkpoint of the first format was unpacked, too."""
    prefix = tmp_path / "bert_model.ckpt"
    saving.save_tensors(str(prefix), {"a": np.ones(2)})
    prefix.write_bytes(b"of another kind")
    for path in (prefix, f"{prefix}.index", tmp_path):
        stored = checkpoint.Stored.open(path)
        assert stored.index == f"{prefix}.index"
        assert stored.read().keys() == {"a"}


@pytest.mark.parametrize("form", ["bert_model.ckpt", "model.safetensors"])
def test_a_name_that_is_not_there_is_no_damage(tmp_path, form):
    path = tmp_path / form
    if form.endswith("ckpt"):
        saving.save_tensors(str(path), {"a/b": np.ones(2, np.float32)})
    else:
        safetensors.numpy.save_file({"a/b": np.ones(2, np.float32)}, path)
    message = r"lacks \['a/c', 'a/d'\]\. It has a/b\."
    with pytest.raises(KeyError, match=message):
        checkpoint.Stored(str(path)).read(["a/b", "a/c", "a/d"])


def test_fit_is_checked_without_reading_weights(tmp_path, tiny_config):
    prefix = str(tmp_path / "model.ckpt")
    saving.save_tensors(prefix, encoder_weights(tiny_config))
    (tmp_path / "model.ckpt.data-00000-of-00001").write_bytes(b"")
    checkpoint.Stored.open(prefix).check_fit(tiny_config)
    with pytest.raises(ValueError, match=r"`model`|`vocab_size` should be 29"):
        checkpoint.Stored.open(prefix, "model").check_fit(change(tiny_config, vocab_size=30))


def test_a_missing_pooler_is_accepted_where_it_is_trained_or_unused(tmp_path, tiny_config, log):
    prefix = str(tmp_path / "model.ckpt")
    head = {
        "cls/squad/output_weights": np.ones((2, 8), np.float32),
        "cls/squad/output_bias": np.zeros(2, np.float32),
        "output_weights": np.ones((2, 8), np.float32),
        "output_bias": np.zeros(2, np.float32),
    }
    saving.save_tensors(prefix, {**drop("pooler")(encoder_weights(tiny_config)), **head})
    classifier = classifier_model(tiny_config, 2).weights
    checkpoint.Stored.open(prefix).assign(classifier)
    warnings = [record.getMessage() for record in log.records if record.levelname == "WARNING"]
    assert warnings == [f"{prefix} has no pooler: the output for [CLS] needs training."]
    with pytest.raises(ValueError, match=r"nothing is trained.*lacks bert/pooler/dense/kernel"):
        checkpoint.Stored.open(prefix).assign(classifier, with_head=True)
    checkpoint.Stored.open(prefix).assign(span_model(tiny_config).weights, with_head=True)


def truncate(path):
    path.write_bytes(path.read_bytes()[:-100])


def flip_a_bit(path):
    stored = bytearray(path.read_bytes())
    stored[len(stored) // 2] ^= 1
    path.write_bytes(bytes(stored))


DAMAGES = [truncate, flip_a_bit, os.remove, lambda path: path.write_bytes(b"")]


@pytest.mark.parametrize("suffix", [".data-00000-of-00001", ".index"])
@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_checkpoint_is_named_and_resuming_changes_nothing(
    tmp_path, golden_variables, suffix, damage
):
    tensors = read_tensors(str(GOLDEN / "bert_model.ckpt"))
    prefix = str(tmp_path / "model.ckpt-5")
    saving.save_tensors(prefix, {**tensors, "global_step": np.int64(5)})
    damage(tmp_path / f"model.ckpt-5{suffix}")
    variables = {variable.path: variable for variable in golden_variables}
    with pytest.raises(ValueError, match="`init_checkpoint` must name") as caught:
        checkpoint.Stored.open(prefix).assign(golden_variables)
    assert "model.ckpt-5" in str(caught.value)
    before = values_of(variables)
    with pytest.raises(ValueError, match="output_dir"):
        saving.Checkpoints(str(tmp_path)).restore(variables, prefix)
    assert_same(values_of(variables), before)


def test_a_head_for_other_labels_is_not_loaded_unless_nothing_trains_it(tmp_path, tiny_config, log):
    three = tagging_model(tiny_config, 3, add_crf=True)
    saving.save_tensors(str(tmp_path / "model"), {v.path: v.numpy() for v in three.weights})
    stored = checkpoint.Stored.open(str(tmp_path / "model"))
    two = tagging_model(tiny_config, 2, add_crf=True)
    heads = [v for v in two.weights if not v.path.startswith("bert/")]
    before = [v.numpy() for v in heads]
    found = stored.assign(two.weights)
    assert {v.path for v in found} == {v.path for v in two.weights} - {v.path for v in heads}
    assert_same(
        values_of({v.path: v for v in found}),
        values_of({v.path: v for v in three.weights if v.path.startswith("bert/")}),
    )
    for value, variable in zip(before, heads, strict=True):
        np.testing.assert_array_equal(value, variable.numpy())
    assert "is for 3 labels, and not for 2" in log.text
    with pytest.raises(ValueError, match="head is that of another task or of other labels"):
        stored.assign(two.weights, with_head=True)


def test_projections_to_a_teacher_of_another_width_are_not_loaded(tmp_path, tiny_config, log):
    def make_student(width):
        model = classifier_model(tiny_config, 2)
        projection = keras.layers.Dense(width, use_bias=False, name="distillation_0")
        projection.build((None, tiny_config.hidden_size))
        return [*model.weights, *projection.weights]

    taught = make_student(12)
    saving.save_tensors(str(tmp_path / "model"), {v.path: v.numpy() for v in taught})
    stored = checkpoint.Stored.open(str(tmp_path / "model"))
    assert [v.path for v in stored.assign(make_student(12))] == [v.path for v in taught]
    assert [v.path for v in stored.assign(make_student(20))] == [v.path for v in taught[:-1]]
    assert "has a width of 12, and not of 20" in log.text


def test_object_based_checkpoint_is_refused(tmp_path, golden_variables):
    path = tf.train.Checkpoint(x=tf.Variable(1.0)).save(str(tmp_path / "objects"))
    with pytest.raises(ValueError, match=r"tf\.train\.Checkpoint or Keras.*by name.*weights\.md"):
        checkpoint.Stored.open(path).assign(golden_variables)


def test_resumed_checkpoint_must_hold_everything(tmp_path, trainer):
    state = trainer.state()
    stored = values_of(state)
    slot = "bert/pooler/dense/bias/adam_v"
    checkpoints = saving.Checkpoints(str(tmp_path))
    without_slot = {name: value for name, value in stored.items() if name != slot}
    saving.save_tensors(str(tmp_path / "a"), {**without_slot, "global_step": np.int64(1)})
    with pytest.raises(ValueError, match=f"`output_dir`.*lacks {slot}"):
        checkpoints.restore(state, str(tmp_path / "a"))
    weights = {variable.path: variable for variable in trainer.model.weights}
    saving.save_tensors(str(tmp_path / "stepless"), values_of(weights))
    with pytest.raises(ValueError, match=r"`output_dir`.*lacks global_step"):
        checkpoints.restore(weights, str(tmp_path / "stepless"))
    wrong = {**stored, slot: np.zeros(9, np.float32)}
    saving.save_tensors(str(tmp_path / "b"), wrong)
    with pytest.raises(ValueError, match=rf"`{slot}` is \[9\] there and \[8\] in the model"):
        checkpoints.restore(state, str(tmp_path / "b"))
    assert_same(values_of(state), stored)


def test_checkpoints_beyond_the_maximum_are_removed(tmp_path, trainer):
    checkpoints = saving.Checkpoints(str(tmp_path), keep_checkpoint_max=2)
    for step in (1, 9, 10, 11, 100):
        checkpoints.save(trainer.state(), step)
    names = {"model.ckpt-100", "model.ckpt-11"}
    listed = {"checkpoint", owned.LIST_FILE}
    assert set(os.listdir(tmp_path)) == listed | {
        name + suffix for name in names for suffix in SUFFIXES
    }
    state = tf.train.get_checkpoint_state(str(tmp_path))
    assert [*map(os.path.basename, state.all_model_checkpoint_paths)] == sorted(names)[::-1]
    assert checkpoints.latest() == str(tmp_path / "model.ckpt-100")
    assert checkpoint.Stored.open(str(tmp_path)).prefix == checkpoints.latest()


def test_no_checkpoint_is_removed_with_a_maximum_of_zero(tmp_path, trainer):
    checkpoints = saving.Checkpoints(str(tmp_path), keep_checkpoint_max=0)
    for step in range(7):
        checkpoints.save(trainer.state(), step)
    assert len(list(tmp_path.glob("*.index"))) == 7


def test_folder_may_have_the_characters_of_a_pattern(tmp_path, trainer):
    folder = tmp_path / "run[1]*"
    folder.mkdir()
    checkpoints = saving.Checkpoints(str(folder), keep_checkpoint_max=1)
    for step in (1, 2):
        checkpoints.save(trainer.state(), step)
    assert checkpoints.resume(trainer.state()) == 2
    files = {f"model.ckpt-2{suffix}" for suffix in SUFFIXES}
    assert set(os.listdir(folder)) == {owned.LIST_FILE, "checkpoint", *files}
    assert checkpoint.Stored.open(str(folder)).prefix == str(folder / "model.ckpt-2")


def test_a_saved_model_may_be_in_a_folder_with_the_characters_of_a_pattern(tmp_path, trainer):
    folder = tmp_path / "model[1]"
    (folder / "variables").mkdir(parents=True)
    saving.save_variables(str(folder / "variables" / "variables"), trainer.state(), 1)
    (folder / "saved_model.pb").touch()
    stored = checkpoint.Stored.open(str(folder))
    assert stored.read([GLOBAL_STEP]) == {GLOBAL_STEP: 1}


def test_a_list_of_missing_checkpoints_is_an_error(tmp_path, trainer):
    checkpoints = saving.Checkpoints(str(tmp_path))
    checkpoints.save(trainer.state(), 1)
    os.remove(tmp_path / "model.ckpt-1.index")
    with pytest.raises(ValueError, match=r"should have model.ckpt-1, but none is there"):
        checkpoints.latest()
    # TensorFlow takes a file it cannot parse for none, and the run would begin anew.
    for text in ("not a checkpoint file", ""):
        (tmp_path / "checkpoint").write_text(text)
        with pytest.raises(ValueError, match=r"checkpoint' must list checkpoints"):
            checkpoints.latest()


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_list_that_is_lost_or_damaged_is_not_needed(tmp_path, trainer, damage):
    state = trainer.state()
    checkpoints = saving.Checkpoints(str(tmp_path), 2)
    for step in (9, 10):
        state["global_step"].assign(step)
        checkpoints.save(state, step)
    (tmp_path / "model.ckpt-99.partial.index").touch()
    if damage in (truncate, flip_a_bit):
        (tmp_path / "checkpoint").write_bytes(os.urandom(300))
    damage(tmp_path / "checkpoint")
    assert checkpoints.latest() == str(tmp_path / "model.ckpt-10")
    assert checkpoint.Stored.open(str(tmp_path)).prefix == str(tmp_path / "model.ckpt-10")
    assert checkpoints.resume(state) == 10
    checkpoints.save(state, 11)
    names = re.findall(r'^all.*: "(.*)"', (tmp_path / "checkpoint").read_text(), re.MULTILINE)
    assert names == ["model.ckpt-10", "model.ckpt-11"]


def test_an_edited_list_precedes_other_checkpoints(tmp_path, trainer):
    checkpoints = saving.Checkpoints(str(tmp_path))
    for step in (1, 2, 3):
        checkpoints.save(trainer.state(), step)
    names = [f'all_model_checkpoint_paths: "model.ckpt-{step}"\n' for step in (1, 2, 3)]
    (tmp_path / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-2"\n' + names[0])
    assert checkpoints.latest() == str(tmp_path / "model.ckpt-2")
    (tmp_path / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-1"\n' + "".join(names))
    assert checkpoints.latest() == str(tmp_path / "model.ckpt-1")


@pytest.mark.parametrize("suffix", [".data-00000-of-00001", ".index"])
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_checkpoint_gives_way_to_the_latest_sound_one(
    tmp_path, trainer, log, suffix, damage
):
    state = trainer.state()
    checkpoints = saving.Checkpoints(str(tmp_path))
    contents = {}
    for step in (1, 2, 3):
        state["cls/seq_relationship/output_bias"].assign([step, step])
        state["global_step"].assign(step)
        checkpoints.save(state, step)
        contents[step] = values_of(state)
    damage(tmp_path / f"model.ckpt-3{suffix}")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert checkpoints.resume(state) == 2
    assert_same(values_of(state), contents[2])
    warnings = [each.getMessage() for each in log.records if each.levelname == "WARNING"]
    assert len(warnings) == 1
    assert "model.ckpt-3" in warnings[0]
    assert "nothing is deleted" in warnings[0]
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    # All but a flipped bit is seen without reading the weights.
    seen = damage is not flip_a_bit or suffix == ".index"
    assert checkpoints.latest() == str(tmp_path / f"model.ckpt-{2 if seen else 3}")
    # The run goes on, and writes what was damaged anew.
    checkpoints.save(state, 3)
    assert checkpoints.resume(state) == 3


def test_a_run_without_a_sound_checkpoint_does_not_start_over(tmp_path, trainer):
    checkpoints = saving.Checkpoints(str(tmp_path))
    for step in (1, 2):
        checkpoints.save(trainer.state(), step)
        flip_a_bit(tmp_path / f"model.ckpt-{step}.data-00000-of-00001")
    with pytest.raises(
        ValueError, match=r"model\.ckpt-2, model\.ckpt-1, but none is there that is"
    ):
        checkpoints.resume(trainer.state())
    assert len(list(tmp_path.glob("model.ckpt-*"))) == 6


KINDS = ("float32", "float16", "float64", "bfloat16")


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        *itertools.product([np.nan, np.inf, -np.inf], KINDS),
        # Their squares are not finite.
        *itertools.product([3e38], ["float32", "bfloat16"]),
    ],
)
def test_numbers_that_are_not_finite_are_neither_saved_nor_read(tmp_path, value, dtype):
    prefix = str(tmp_path / "model.ckpt-1")
    tensors = {
        "steps": np.full(3, 7),
        "fine": np.full((2, 3), 1e19, "float32"),
        "ruined": np.array([1, value, 2, -value], tf.as_dtype(dtype).as_numpy_dtype),
    }
    message = "2 of 4 values of `ruined` are not finite"
    with pytest.raises(UnsoundError, match=message):
        saving.save_tensors(prefix, tensors)
    assert list(tmp_path.iterdir()) == []
    save_by_tf1(prefix, tensors)
    stored = checkpoint.Stored.open(prefix)
    # A sum of squares beyond the largest number is none of these.
    assert stored.read(["fine", "steps"]).keys() == {"fine", "steps"}
    with pytest.raises(UnsoundError, match=message):
        stored.read()


def test_a_ruined_checkpoint_is_not_resumed(tmp_path, trainer, log):
    state = trainer.state()
    checkpoints = saving.Checkpoints(str(tmp_path))
    checkpoints.save(state, 1)
    tensors = {**values_of(state), "global_step": np.int64(2)}
    name = "bert/pooler/dense/bias/adam_v"
    save_by_tf1(str(tmp_path / "model.ckpt-2"), {**tensors, name: np.full(8, np.inf, np.float32)})
    (tmp_path / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-2"\n')
    assert checkpoints.resume(state) == 1
    assert f"8 of 8 values of `{name}` are not finite" in log.text


def test_a_save_without_room_leaves_what_was_there(tmp_path, trainer, monkeypatch):
    checkpoints = saving.Checkpoints(str(tmp_path))
    checkpoints.save(trainer.state(), 1)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        with pytest.raises(tf.errors.OpError, match="File too large"):
            checkpoints.save(trainer.state(), 2)
        # Here the data fit, and the graph that is written after them does not.
        with pytest.raises(tf.errors.OpError, match="File too large"):
            saving.save_tensors(str(tmp_path / "small"), {"small": np.zeros(1)})
        # Where the disk is full, that is what the error says.
        full = type(shutil.disk_usage(tmp_path))(10, 10, 0)
        with monkeypatch.context() as patch:
            patch.setattr(shutil, "disk_usage", lambda _: full)
            with pytest.raises(OSError, match=r"small' needs 8 bytes, and 0 are free"):
                saving.save_tensors(str(tmp_path / "small"), {"small": np.zeros(1)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    # Names are claimed before anything is written.
    claimed = tmp_path / owned.LIST_FILE
    assert set(json.loads(before.pop(claimed.name))) < set(json.loads(claimed.read_text()))
    claimed.unlink()
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    needed = 2 * shutil.disk_usage(tmp_path).total
    message = rf"model.ckpt-2' needs {needed:,} bytes, and [\d,]+ are free"
    with pytest.raises(OSError, match=message):
        saving._check_room(str(tmp_path / "model.ckpt-2"), needed)


@pytest.mark.usefixtures("eager")
def test_adams_slots_have_the_names_of_their_moments(tmp_path, tiny_config):
    trainer = Trainer(
        pretraining_heads.pretraining_model(tiny_config),
        optimization.bert_optimizer(0.1, 10, 0),
        run_pretraining.OBJECTIVE,
    )
    trainer.train_step({n: tf.constant(v) for n, v in make_examples(tiny_config, 4).items()})
    stored = read_tensors(saving.Checkpoints(str(tmp_path)).save(trainer.state(), 1))
    first = {name for name in stored if name.endswith("/adam_m")}
    assert len(first) == len(trainer.model.trainable_variables)
    for name in first:
        # After one step, of a gradient g: m = 0.1 g and v = 0.001 g².
        m, v = stored[name], stored[f"{name[:-1]}v"]
        np.testing.assert_allclose(v, 0.1 * m**2, rtol=1e-4, atol=1e-12, err_msg=name)
    assert any((stored[name] < 0).any() for name in first)


@pytest.mark.parametrize("place", ["{}/thesis/model.ckpt-1", "../thesis/model.ckpt-1", "{}/link"])
def test_nothing_outside_the_folder_is_read_or_removed(tmp_path, trainer, place):
    """As in a folder of the original's that was copied: its list names the place it was in."""
    thesis, copy = (saving.Checkpoints(str(tmp_path / name), 1) for name in ("thesis", "copy"))
    for each in (thesis, copy):
        os.mkdir(each.folder)
    thesis.save(trainer.state(), 1)
    (tmp_path / "link").symlink_to(tmp_path / "thesis" / "model.ckpt-1")
    before = {path.name: path.read_bytes() for path in (tmp_path / "thesis").iterdir()}
    listed = place.format(tmp_path)
    (tmp_path / "copy" / "checkpoint").write_text(
        f'model_checkpoint_path: "{listed}"\nall_model_checkpoint_paths: "{listed}"\n'
    )
    with pytest.raises(ValueError, match="none is there"):
        copy.latest()
    for step in (2, 3):
        copy.save(trainer.state(), step)
    assert {path.name: path.read_bytes() for path in (tmp_path / "thesis").iterdir()} == before
    assert copy.latest() == str(tmp_path / "copy" / "model.ckpt-3")
    # A copy with its files goes on in its own place.
    for name in before.keys() - {"checkpoint"}:
        shutil.copy(tmp_path / "thesis" / name, tmp_path / "copy" / name)
    (tmp_path / "copy" / "checkpoint").write_text(f'model_checkpoint_path: "{listed}"\n')
    if listed.endswith("model.ckpt-1"):
        assert copy.latest() == str(tmp_path / "copy" / "model.ckpt-1")


def test_only_the_files_of_a_checkpoint_are_removed(tmp_path, trainer):
    kept = {"model.ckpt-1.notes", "model.ckpt-1.index.txt", "model.ckpt-10.index", "vocab.txt"}
    for name in kept:
        (tmp_path / name).write_text("a user's")
    (tmp_path / "checkpoint").write_text(
        'model_checkpoint_path: "vocab"\nall_model_checkpoint_paths: ".."\n'
        'all_model_checkpoint_paths: "vocab"\n'
    )
    checkpoints = saving.Checkpoints(str(tmp_path), keep_checkpoint_max=1)
    for step in (1, 2):
        checkpoints.save(trainer.state(), step)
    assert {path.name for path in tmp_path.iterdir()} == kept | {
        owned.LIST_FILE,
        "checkpoint",
        "checkpoint.kept-1",
        *(f"model.ckpt-2{suffix}" for suffix in SUFFIXES),
    }


@pytest.mark.parametrize("gone", [None, [], [".index"], [".index", ".meta"]])
def test_a_removal_that_was_cut_off_is_ended(tmp_path, trainer, monkeypatch, gone):
    """What is not listed any more would else stay for ever, whole or without its index.

    `gone`: what is removed when the process dies; None where it dies as soon as the list is there.
    """
    checkpoints = saving.Checkpoints(str(tmp_path), keep_checkpoint_max=1)
    checkpoints.save(trainer.state(), 1)
    (tmp_path / "model.ckpt-0.meta").write_text("of no run")

    def die(folder, but):
        for suffix in gone:
            (tmp_path / f"model.ckpt-1{suffix}").unlink()
        raise KeyboardInterrupt

    replace = os.replace

    def die_behind_the_list(old, new):
        replace(old, new)
        if os.path.basename(new) == "checkpoint":
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        if gone is None:
            patch.setattr(os, "replace", die_behind_the_list)
        else:
            patch.setattr(saving, "remove_marked", die)
        with pytest.raises(KeyboardInterrupt):
            checkpoints.save(trainer.state(), 2)
    assert (tmp_path / "model.ckpt-1.data-00000-of-00001").exists()
    checkpoints.save(trainer.state(), 3)
    others = {"checkpoint", ".own_files.json", "model.ckpt-0.meta"}
    files = {f"model.ckpt-3{each}" for each in SUFFIXES}
    assert set(os.listdir(tmp_path)) == others | files
    assert set(owned.read_names(str(tmp_path))) == {"checkpoint", *files}


def test_a_checkpoint_that_is_listed_again_is_not_removed(tmp_path, trainer, monkeypatch):
    checkpoints = saving.Checkpoints(str(tmp_path), keep_checkpoint_max=1)
    checkpoints.save(trainer.state(), 1)

    def die(path, text):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(saving.durable, "write_text", die)
        with pytest.raises(KeyboardInterrupt):
            checkpoints.save(trainer.state(), 2)
    saving.Checkpoints(str(tmp_path), keep_checkpoint_max=2).save(trainer.state(), 3)
    assert (tmp_path / "model.ckpt-1.index").exists()
    assert not any("going" in name for name in owned.read_names(str(tmp_path)))


def test_links_are_removed_and_their_targets_are_not(tmp_path, trainer):
    disk, folder = tmp_path / "disk", tmp_path / "run"
    for each in (disk, folder):
        each.mkdir()
    original = saving.Checkpoints(str(disk))
    original.save(trainer.state(), 1)
    before = {path: path.read_bytes() for path in disk.rglob("*") if path.is_file()}
    # A copy of links, as `cp -rs` makes it.
    for path in disk.iterdir():
        (folder / path.name).symlink_to(path)
    copy = saving.Checkpoints(str(folder), keep_checkpoint_max=1)
    for step in (1, 2):
        copy.save(trainer.state(), step)
    assert {path: path.read_bytes() for path in disk.rglob("*") if path.is_file()} == before
    assert copy.latest() == str(folder / "model.ckpt-2")
    assert not (folder / "checkpoint").is_symlink()
    # A list that the run wrote may have been replaced by a link since.
    (folder / "checkpoint").unlink()
    (folder / "checkpoint").symlink_to(disk / "checkpoint")
    copy.save(trainer.state(), 3)
    assert {path: path.read_bytes() for path in disk.rglob("*") if path.is_file()} == before
    assert not (folder / "checkpoint").is_symlink()
    assert copy.latest() == str(folder / "model.ckpt-3")
    # A folder that is a link is written into.
    (tmp_path / "best").symlink_to(disk)
    saving.Checkpoints(str(tmp_path / "best")).save(trainer.state(), 5)
    assert original.latest() == str(disk / "model.ckpt-5")
    assert (tmp_path / "best").is_symlink()


class _Killed(BaseException):
    pass


class _DiesAt:
    """Lets a number of file operations pass and dies before or after the next one."""

    def __init__(self, monkeypatch, count, *, after):
        self.left, self.after = count, after
        operations = (tf.raw_ops, "SaveV2"), (os, "replace"), (os, "remove"), (os, "fsync")
        for module, name in operations:
            monkeypatch.setattr(module, name, self.wrap(getattr(module, name)))

    def wrap(self, operation):
        def wrapped(*args, **kwargs):
            if self.left == 0 and not self.after:
                raise _Killed
            result = operation(*args, **kwargs)
            if self.left == 0:
                raise _Killed
            self.left -= 1
            return result

        return wrapped


@pytest.mark.parametrize("again", [True, *exhaustive(False)])
@pytest.mark.parametrize("after", [False, True])
def test_a_killed_save_leaves_a_complete_checkpoint(tmp_path, monkeypatch, trainer, after, again):
    """`again`: the checkpoint that is written has been there already, unlisted or not."""
    state = trainer.state()
    outcomes, contents = [], {}
    for step in (1, 2, 3) if again else (1, 2):
        state["cls/seq_relationship/output_bias"].assign([step, step])
        saving.Checkpoints(str(tmp_path / "before"), keep_checkpoint_max=2).save(state, step)
        contents[step] = values_of(state) | {"global_step": np.asarray(step)}
    for count in range(40):
        folder = shutil.copytree(tmp_path / "before", tmp_path / str(count))
        checkpoints = saving.Checkpoints(str(folder), keep_checkpoint_max=2)
        state["cls/seq_relationship/output_bias"].assign([7, 7])
        with monkeypatch.context() as patch:
            _DiesAt(patch, count, after=after)
            try:
                checkpoints.save(state, 3)
            except _Killed:
                finished = False
            else:
                finished = True
        new = values_of(state) | {"global_step": np.asarray(3)}
        step = checkpoints.restore(state, checkpoints.latest())
        found = float(state["cls/seq_relationship/output_bias"].numpy()[0])
        outcomes.append(found)
        assert found in ({2, 3, 7} if again else {2, 7})
        assert_same(values_of(state), new if found == 7 else contents[step])
        if finished:
            break
    assert finished
    # Killed early, an old one is the latest; killed late, the new one is.
    assert outcomes[0] == (3 if again else 2)
    assert outcomes[-1] == 7
    changes = sum(one != other for one, other in itertools.pairwise(outcomes))
    assert changes <= 2


@pytest.mark.parametrize("again", [False, True])
def test_a_loss_of_power_leaves_a_complete_checkpoint(tmp_path, monkeypatch, trainer, again):
    """`again`: the checkpoint that is written has been there already."""
    state = trainer.state()
    folder = tmp_path / "run"
    folder.mkdir()
    checkpoints = saving.Checkpoints(str(folder), keep_checkpoint_max=2)
    contents = []
    for step in (1, 2, 3) if again else (1, 2):
        state["cls/seq_relationship/output_bias"].assign([step, step])
        checkpoints.save(state, step)
        contents.append(values_of(state) | {"global_step": np.asarray(step)})
    state["cls/seq_relationship/output_bias"].assign([7, 7])
    with monkeypatch.context() as patch, PowerLoss(folder, patch) as power:
        checkpoints.save(state, 3)
    contents.append(values_of(state) | {"global_step": np.asarray(3)})
    assert len(power.states) > 3
    for place in power.write_states(tmp_path):
        found = saving.Checkpoints(str(place))
        step = found.restore(state, found.latest())
        assert any(
            step == each["global_step"]
            and all(np.array_equal(value, each[name]) for name, value in values_of(state).items())
            for each in contents
        )
        listed = re.findall(r'^all.*: "(.*)"', (place / "checkpoint").read_text(), re.MULTILINE)
        assert len(listed) == len(set(listed)) == 2
        whole = [path.stem for path in place.glob("*.index")]
        for name in whole:
            assert read_tensors(str(place / name)).keys() == contents[0].keys()
        # What is being written again is not there for a moment.
        assert set(listed) - set(whole) <= ({"model.ckpt-3"} if again else set())
    # Once it is saved, it stays.
    assert step == 3
    assert_same(values_of(state), {**contents[-1], "global_step": np.asarray(3)})


def test_a_loss_of_power_while_one_is_removed_leaves_a_folder_that_resumes(
    tmp_path, monkeypatch, trainer
):
    folder = tmp_path / "run"
    folder.mkdir()
    checkpoints = saving.Checkpoints(str(folder))
    checkpoints.save(trainer.state(), 0)
    with monkeypatch.context() as patch, PowerLoss(folder, patch) as power:
        checkpoints.remove(0)
    assert len(power.states) > 2
    found = [saving.Checkpoints(str(place)).latest() for place in power.write_states(tmp_path)]
    assert None in found and any(found)
    assert checkpoints.latest() is None


@pytest.mark.parametrize("place", ["file", "file/run"])
def test_output_folder_that_cannot_be_written_is_named(tmp_path, place):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(ValueError, match="`output_dir` must be a folder") as caught:
        make_folder(str(tmp_path / place))
    assert place in str(caught.value)


def test_a_flipped_bit_of_an_index_is_an_error_of_one_line_or_harmless(tmp_path):
    """Some make TensorFlow raise an `IndexError`, which is no error of this program's user."""
    prefix = str(tmp_path / "model.ckpt")
    tensors = {f"{name}/x": np.arange(9.0, dtype=np.float32) for name in ("a", "b")}
    saving.save_tensors(prefix, tensors)
    index = Path(f"{prefix}.index")
    whole = index.read_bytes()
    for bit in range(8 * len(whole)):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        index.write_bytes(damaged)
        try:
            stored = checkpoint.Stored(prefix).read()
        except ValueError as error:
            assert "must name a whole checkpoint" in str(error)  # noqa: PT017
        else:
            assert stored.keys() == tensors.keys()
            for name, values in tensors.items():
                np.testing.assert_array_equal(stored[name], values)


def test_variables_are_written_without_copies(tmp_path):
    variable = keras.Variable(np.ones((1024, 1024), np.float32), name="x")
    tracemalloc.start()
    saving.save_variables(str(tmp_path / "a"), {"x": variable}, 7)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < variable.value.numpy().nbytes / 2
    saving.save_tensors(
        str(tmp_path / "b"), {"x": np.asarray(variable), "global_step": np.int64(7)}
    )
    for suffix in SUFFIXES:
        assert (tmp_path / f"a{suffix}").read_bytes() == (tmp_path / f"b{suffix}").read_bytes()

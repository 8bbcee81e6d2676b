import io
import json
import os
import re
import struct

import numpy as np
import pytest
import safetensors.numpy
import tensorflow as tf
from conftest import change, make_examples, model_inputs
from helpers.huggingface_models import stored_in, write
from helpers.huggingface_models import tensors as tensors  # noqa: PLC0414 (a fixture)
from helpers.tokenizer_files import CONFIG

import bert
import modeling
from bert.network.heads import choice_model, classifier_model, span_model
from bert.pretraining import heads as pretraining_heads
from bert.weights import checkpoint, huggingface_weights
from bert.weights.folder import ModelFolder

# Some of the names in its files, and those of the same tensors in a TF1 checkpoint.
NAMES = {
    "bert.embeddings.word_embeddings.weight": "bert/embeddings/word_embeddings",
    "bert.embeddings.token_type_embeddings.weight": "bert/embeddings/token_type_embeddings",
    "bert.embeddings.position_embeddings.weight": "bert/embeddings/position_embeddings",
    "bert.embeddings.LayerNorm.weight": "bert/embeddings/LayerNorm/gamma",
    "bert.embeddings.LayerNorm.bias": "bert/embeddings/LayerNorm/beta",
    "bert.encoder.layer.1.attention.self.query.bias": (
        "bert/encoder/layer_1/attention/self/query/bias"
    ),
    "bert.encoder.layer.1.attention.output.LayerNorm.weight": (
        "bert/encoder/layer_1/attention/output/LayerNorm/gamma"
    ),
    "bert.encoder.layer.0.output.LayerNorm.bias": "bert/encoder/layer_0/output/LayerNorm/beta",
    "cls.predictions.bias": "cls/predictions/output_bias",
    "cls.predictions.transform.LayerNorm.weight": "cls/predictions/transform/LayerNorm/gamma",
    "cls.seq_relationship.weight": "cls/seq_relationship/output_weights",
    "cls.seq_relationship.bias": "cls/seq_relationship/output_bias",
}
TRANSPOSED = {
    "bert.encoder.layer.0.attention.self.key.weight": (
        "bert/encoder/layer_0/attention/self/key/kernel"
    ),
    "bert.encoder.layer.1.intermediate.dense.weight": (
        "bert/encoder/layer_1/intermediate/dense/kernel"
    ),
    "bert.encoder.layer.1.output.dense.weight": "bert/encoder/layer_1/output/dense/kernel",
    "bert.pooler.dense.weight": "bert/pooler/dense/kernel",
    "cls.predictions.transform.dense.weight": "cls/predictions/transform/dense/kernel",
}


def store(folder, tensors):
    safetensors.numpy.save_file(tensors, os.path.join(folder, "model.safetensors"))


def read(folder):
    stored = checkpoint.Stored.open(str(folder))
    values = stored.read()
    assert {name: list(value.shape) for name, value in values.items()} == stored.shapes
    return values


def assert_same(one, other):
    assert one.keys() == other.keys()
    for name, value in one.items():
        assert value.dtype == other[name].dtype, name
        np.testing.assert_array_equal(value, other[name], err_msg=name)


def test_names_and_layouts_are_those_of_transformers(tmp_path, tensors):
    stored = stored_in(write(tmp_path, tensors))
    assert len(stored) == len(tensors)
    for theirs, ours in NAMES.items():
        np.testing.assert_array_equal(stored[theirs], tensors[ours], err_msg=theirs)
    for theirs, ours in TRANSPOSED.items():
        np.testing.assert_array_equal(stored[theirs], tensors[ours].T, err_msg=theirs)
    with safetensors.safe_open(tmp_path / "model.safetensors", "np") as file:
        assert file.metadata() == {"format": "pt"}


@pytest.mark.parametrize(
    ("architecture", "model", "names"),
    [
        (
            "BertForSequenceClassification",
            lambda config: classifier_model(config, 3),
            {"classifier.weight": (3, 8), "classifier.bias": (3,)},
        ),
        (
            "BertForQuestionAnswering",
            span_model,
            {"qa_outputs.weight": (2, 8), "qa_outputs.bias": (2,)},
        ),
        (
            "BertForMultipleChoice",
            choice_model,
            {"classifier.weight": (1, 8), "classifier.bias": (1,)},
        ),
    ],
)
def test_every_head_has_its_name(tmp_path, still_config, architecture, model, names):
    tensors = {v.path: v.numpy() for v in model(still_config).weights}
    folder = write(tmp_path, tensors, architecture)
    shapes = {name: value.shape for name, value in stored_in(folder).items()}
    assert {n: shape for n, shape in shapes.items() if not n.startswith("bert.")} == names
    assert_same(read(folder), tensors)


def test_tensors_are_read_as_written_bit_for_bit(tmp_path, tensors):
    tensors["global_step"] = np.asarray(70000, np.int64)
    assert_same(read(write(tmp_path, tensors)), tensors)


def rename(pattern, replacement):
    def apply(stored):
        return {re.sub(pattern, replacement, name): value for name, value in stored.items()}

    return apply


def add(**named):
    def apply(stored):
        return {**stored, **{name.replace("__", "."): value for name, value in named.items()}}

    return apply


def tie(stored):
    return {
        **stored,
        "cls.predictions.decoder.weight": stored["bert.embeddings.word_embeddings.weight"].copy(),
        "cls.predictions.decoder.bias": stored["cls.predictions.bias"].copy(),
    }


def move_bias(stored):
    stored = tie(stored)
    del stored["cls.predictions.bias"]
    return stored


@pytest.mark.parametrize(
    "edit",
    [
        lambda stored: rename(r"LayerNorm\.bias$", "LayerNorm.beta")(
            rename(r"LayerNorm\.weight$", "LayerNorm.gamma")(stored)
        ),
        rename(r"^bert\.", ""),
        rename("^", "model._orig_mod.module."),
        rename(r"(intermediate|pooler|transform)\.dense", r"\1.dense_act"),
        add(bert__embeddings__position_ids=np.arange(16)[None]),
        tie,
        move_bias,
    ],
    ids=[
        *("gamma and beta", "without prefix", "with the names of modules around", "NVIDIA"),
        *("buffers", "tied copies", "bias of the decoder"),
    ],
)
def test_other_namings_give_the_same_tensors(tmp_path, tensors, edit):
    folder = write(tmp_path, tensors)
    store(folder, edit(stored_in(folder)))
    assert_same(read(folder), tensors)


def test_encoder_alone_has_no_prefix(tmp_path, tensors):
    encoder = {name: value for name, value in tensors.items() if name.startswith("bert/")}
    folder = write(tmp_path, encoder, "BertModel")
    assert "embeddings.word_embeddings.weight" in stored_in(folder)
    assert_same(read(folder), encoder)


def test_models_of_several_files_are_read_as_one(tmp_path, tensors):
    folder = write(tmp_path, tensors)
    stored = stored_in(folder)
    os.remove(tmp_path / "model.safetensors")
    files = {name: f"model-0000{i % 3 + 1}-of-00003.safetensors" for i, name in enumerate(stored)}
    for file in set(files.values()):
        part = {name: value for name, value in stored.items() if files[name] == file}
        safetensors.numpy.save_file(part, tmp_path / file)
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {"total_size": 1}, "weight_map": files}))
    assert_same(read(folder), tensors)
    assert checkpoint.Stored.open(str(index)).prefix == str(index)
    # What a prediction is made of: it does not go on with answers of other ones.
    (tmp_path / "added_tokens.json").write_text("{}")
    made_of = {os.path.basename(path) for path in ModelFolder.open(folder).files}
    assert made_of == {"config.json", "added_tokens.json", index.name, *files.values()}
    os.remove(tmp_path / "model-00002-of-00003.safetensors")
    with pytest.raises(ValueError, match=r"`init_checkpoint` .* must have all.*'model-00002-of-"):
        read(folder)
    index.write_text(json.dumps({"weight_map": {"x": "../model.safetensors"}}))
    with pytest.raises(ValueError, match=r"must have all of the files.*'../model.safetensors'"):
        read(folder)
    # Nor one that is there.
    (tmp_path / "inner").mkdir()
    inner = tmp_path / "inner" / index.name
    for name in files:
        files[name] = "../model-00001-of-00003.safetensors"
    inner.write_text(json.dumps({"weight_map": files}))
    with pytest.raises(ValueError, match=r"must have all of the files.*'../model-00001-of-"):
        read(tmp_path / "inner")
    index.write_text("{}")
    with pytest.raises(ValueError, match=r"index.json' .* must have a `weight_map`"):
        read(folder)


def write_bfloat16(path, tensors):
    """Writes a safetensors file by hand: the length of the header, the header, the numbers."""
    header, place = {}, 0
    for name, value in tensors.items():
        end = place + value.nbytes
        header[name] = {"dtype": "BF16", "shape": value.shape, "data_offsets": [place, end]}
        place = end
    text = json.dumps(header).encode()
    numbers = b"".join(value.tobytes() for value in tensors.values())
    path.write_bytes(struct.pack("<Q", len(text)) + text + numbers)


def test_double_precision_becomes_float32(tmp_path, tensors):
    store(
        tmp_path,
        {n: value.astype(np.float64) for n, value in stored_in(write(tmp_path, tensors)).items()},
    )
    assert_same(read(tmp_path), tensors)


def test_half_precision_becomes_float32(tmp_path, tensors):
    folder = write(tmp_path, tensors)
    stored = stored_in(folder)
    store(folder, {name: value.astype(np.float16) for name, value in stored.items()})
    expected = {n: value.astype(np.float16).astype(np.float32) for n, value in tensors.items()}
    assert_same(read(folder), expected)
    write_bfloat16(
        tmp_path / "model.safetensors",
        {name: tf.cast(value, tf.bfloat16).numpy() for name, value in stored.items()},
    )
    expected = {n: tf.cast(value, tf.bfloat16).numpy() for n, value in tensors.items()}
    assert_same(read(folder), {n: value.astype(np.float32) for n, value in expected.items()})
    # What the process has read of a file of that name is no answer to what it holds now.
    write_bfloat16(
        tmp_path / "model.safetensors",
        {name: tf.cast(-value, tf.bfloat16).numpy() for name, value in stored.items()},
    )
    assert_same(read(folder), {n: -value.astype(np.float32) for n, value in expected.items()})


def test_a_folder_is_an_init_checkpoint(tmp_path, tensors, log):
    tensors["strange.tensor"] = np.ones(2, np.float32)
    folder = write(tmp_path, tensors)
    store(folder, {**stored_in(folder), "strange.tensor": np.ones(2, np.float32)})
    config = modeling.BertConfig.from_json_file(str(tmp_path / "config.json"))
    model = pretraining_heads.pretraining_model(config)
    checkpoint.Stored.open(folder).assign(model.weights)
    count = len(model.weights)
    assert log.messages[0] == (
        f"Loaded {count} of the model's {count} variables from {folder}/model.safetensors."
    )
    assert log.messages[1:] == [
        "Unused there: 1 variables and 0 optimizer slots (`verbosity=1` names them)."
    ]
    del tensors["strange.tensor"]
    assert_same({v.path: v.numpy() for v in model.weights}, tensors)


def test_gelu_means_the_exact_form_there_and_the_tanh_form_here(still_config, tensors):
    inputs = model_inputs(make_examples(still_config, 2))

    def logits(config):
        model = pretraining_heads.pretraining_model(config)
        for variable in model.weights:
            variable.assign(tensors[variable.path])
        return model(inputs)["masked_lm_logits"].numpy()

    theirs = logits(modeling.BertConfig.from_dict(CONFIG))
    tanh = logits(modeling.BertConfig.from_dict({**CONFIG, "hidden_act": "gelu_new"}))
    np.testing.assert_array_equal(tanh, logits(still_config))
    np.testing.assert_array_equal(theirs, logits(change(still_config, hidden_act="gelu_erf")))
    assert np.abs(theirs - tanh).max() > 1e-4


@pytest.mark.parametrize("name", ["model.onnx", "pytorch_model.bin", "tf_model.h5", "weights.pt"])
def test_files_of_other_formats_are_refused_with_the_remedy(tmp_path, name):
    (tmp_path / name).write_bytes(b"some other format")
    for path in (tmp_path, tmp_path / name):
        with pytest.raises(ValueError, match=name) as caught:
            checkpoint.Stored.open(str(path))
        assert "safe_serialization=True" in str(caught.value)
    (tmp_path / "model.safetensors").touch()
    assert checkpoint.Stored.open(str(tmp_path)).prefix == str(tmp_path / "model.safetensors")


@pytest.mark.parametrize("leaf", ["weight", "bias"])
def test_a_head_that_is_not_tied_is_left_out(tmp_path, tensors, log, leaf):
    folder = write(tmp_path, tensors)
    stored = tie(stored_in(folder))
    stored[f"cls.predictions.decoder.{leaf}"] *= np.float32(1 + 1e-6)
    store(folder, stored)
    rest = {name: v for name, v in tensors.items() if not name.startswith("cls/predictions/")}
    assert_same(read(folder), rest)
    assert [message for message in log.messages if f"decoder.{leaf}, and" in message]
    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\ncat\n" + "x\n" * 23)
    model = bert.load(folder, do_lower_case=True)
    assert model.methods == ("encode", "inputs")
    with pytest.raises(ValueError, match=r"must have the masked-LM head of pre-training"):
        model.fill_mask(["cat [MASK]"])


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (
            add(embeddings__word_embeddings__weight=np.ones((29, 8), np.float32)),
            r"each tensor once.*'bert.embeddings.word_embeddings.weight' and 'embeddings.word",
        ),
        (rename("^bert.encoder.layer.0.output.dense.bias$", "x"), r"whole encoder.*Missing: bert/"),
        (
            lambda stored: {**stored, "bert.embeddings.word_embeddings.weight": np.ones((30, 8))},
            r"`vocab_size` should be 30",
        ),
    ],
)
def test_tensors_that_do_not_fit_are_named(tmp_path, tensors, edit, message):
    folder = write(tmp_path, tensors)
    store(folder, edit(stored_in(folder)))
    config = modeling.BertConfig.from_json_file(str(tmp_path / "config.json"))
    with pytest.raises(ValueError, match=message):
        checkpoint.Stored.open(folder).check_fit(config)
    with pytest.raises(ValueError, match=message):
        checkpoint.Stored.open(folder).assign(pretraining_heads.pretraining_model(config).weights)


@pytest.mark.parametrize("size", [0, 4, 100, -10])
def test_damaged_files_are_named(tmp_path, tensors, size):
    folder = write(tmp_path, tensors)
    path = tmp_path / "model.safetensors"
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(ValueError, match=r"whole checkpoint.*model.safetensors' cannot"):
        read(folder)


@pytest.mark.parametrize(
    "name", ["model.safetensors", "pytorch_model.bin", "tf_model.h5", "bert_model.ckpt"]
)
def test_a_clone_without_git_lfs_is_named(tmp_path, name):
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 440449768\n"
    (tmp_path / name).write_text(pointer)
    with pytest.raises(ValueError, match=rf"{name}' cannot be read: it is a pointer.*git lfs pull"):
        read(str(tmp_path))


def test_the_same_weights_make_the_same_file(tensors):
    written = set()
    for _ in range(20):
        file = io.BytesIO()
        huggingface_weights.write(
            file, {**tensors, "global_step": np.int64(7)}, "BertForPreTraining"
        )
        written.add(file.getvalue())
    assert len(written) == 1
    table = safetensors.numpy.load(*written)
    np.testing.assert_array_equal(
        table["cls.predictions.bias"], tensors["cls/predictions/output_bias"]
    )

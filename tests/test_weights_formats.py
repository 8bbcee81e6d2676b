"""Files of weights that other programs wrote: what they compute is what is computed here."""

import dataclasses
import json
import os
import shutil
import warnings
import zipfile
from pathlib import Path

import h5py
import keras
import numpy as np
import pytest
import tensorflow as tf
from conftest import GOLDEN, change, exhaustive
from safetensors.numpy import save_file

import bert
import convert_checkpoint
import modeling
from bert.models import keras_models
from bert.weights import pickles, tf_hub
from bert.weights.checkpoint import Stored
from bert.weights.folder import ModelFolder
from bert.weights.formats import FormatError, Tensor
from bert.weights.libraries import name_tensors
from bert.weights.msgpacks import read_msgpack
from bert.weights.saving import save_tensors

# Outputs by their names in transformers, with the names here.
OUTPUTS = {
    "last_hidden_state": "sequence_output",
    "pooler_output": "pooled_output",
    "prediction_logits": "masked_lm_logits",
    "seq_relationship_logits": "next_sentence_logits",
    "start_logits": "start_logits",
    "end_logits": "end_logits",
}
INPUTS = {
    "input_ids": "input_ids",
    "attention_mask": "input_mask",
    "token_type_ids": "segment_ids",
}
ARCHITECTURES = (
    *("BertModel", "BertForPreTraining", "BertForMaskedLM", "BertForNextSentencePrediction"),
    *("BertForSequenceClassification", "BertForTokenClassification", "BertForQuestionAnswering"),
    "BertForMultipleChoice",
)
TRANSFORMERS = (*ARCHITECTURES, "sharded", "save_weights", "objects")
# Sums in another order, in float32.
TOLERANCE = 1e-5


# The head of one name in transformers whose outputs have another one here.
LOGITS = {
    "BertForMaskedLM": "masked_lm_logits",
    "BertForNextSentencePrediction": "next_sentence_logits",
}
TORCH = ("archive", "legacy", "shards", "half", "bfloat16")


@pytest.fixture(scope="session")
def formats(tmp_path_factory):
    """The folders of all archives of models that other programs saved.

    `make test-formats` names a folder of archives that were saved anew.
    """
    folder = tmp_path_factory.mktemp("formats")
    archives = {path.name: path for path in Path(GOLDEN, "formats").glob("*.zip")}
    anew = Path(os.environ.get("BERT_FORMATS", os.devnull)).glob("*.zip")
    for path in (archives | {path.name: path for path in anew}).values():
        with zipfile.ZipFile(path) as archive:
            archive.extractall(folder)
    return folder


def make_model(opened, architecture):
    """Returns a model with the weights of a folder; what a file lacks stays at random."""
    model = keras_models.make_model(architecture, opened.config, len(opened.labels or [0, 0]))
    opened.stored.assign(model.weights)
    return model


def compute(model, inputs):
    """Returns the outputs of a model, those of the masked-LM head at every position."""
    given = dict(inputs)
    if "masked_lm_positions" in model.input:
        places = np.arange(given["input_ids"].shape[-1])
        given["masked_lm_positions"] = np.tile(places, (len(given["input_ids"]), 1))
    return {name: np.asarray(value) for name, value in model(given, training=False).items()}


def compute_layers(model, inputs):
    """Returns the output of the embeddings and of each layer of the encoder, [L + 1, B, S, H]."""
    rows = {name: values.reshape(-1, values.shape[-1]) for name, values in inputs.items()}
    found = model.get_layer("bert")(rows)
    return np.stack([found["embedding_output"], *found["encoder_layers"]])


@pytest.mark.parametrize("name", [*TRANSFORMERS, *TORCH])
def test_every_layer_and_head_computes_what_the_program_that_saved_it_does(formats, name):
    expected = np.load(formats / name / "outputs.npz")
    inputs = {ours: expected[theirs] for theirs, ours in INPUTS.items()}
    opened = ModelFolder.open(str(formats / name))
    (architecture,) = opened.huggingface_config["architectures"]
    model = make_model(opened, architecture)
    layers = compute_layers(model, inputs)
    np.testing.assert_allclose(layers, expected["hidden_states"], rtol=0, atol=TOLERANCE)
    outputs = compute(model, inputs)
    names = {**OUTPUTS, "logits": LOGITS.get(architecture, "logits")}
    compared = {theirs: ours for theirs, ours in names.items() if theirs in expected}
    assert compared
    for theirs, ours in compared.items():
        np.testing.assert_allclose(outputs[ours], expected[theirs], rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize(
    ("name", "architecture", "names"),
    [
        *(
            (name, "BertModel", {n: n for n in ("sequence_output", "pooled_output")})
            for name in ("encoder", "encoder_v2")
        ),
        (
            "pretrainer",
            "BertForPreTraining",
            {"masked_lm": "masked_lm_logits", "classification": "next_sentence_logits"},
        ),
        (
            "pretrainer_v2",
            "BertForPreTraining",
            {"mlm_logits": "masked_lm_logits", "next_sentence": "next_sentence_logits"},
        ),
        ("classifier", "BertForSequenceClassification", {"logits": "logits"}),
    ],
)
def test_a_model_of_the_garden_computes_what_it_did_there(formats, name, architecture, names):
    expected = np.load(formats / name / "outputs.npz")
    inputs = {
        "input_ids": expected["input_word_ids"],
        "input_mask": expected["input_mask"],
        "segment_ids": expected["input_type_ids"],
    }
    opened = ModelFolder.open(str(formats / name))
    model = keras_models.make_model(architecture, opened.config, 3)
    opened.stored.assign(model.weights)
    if "layers" in expected:
        layers = compute_layers(model, inputs)[1:]
        np.testing.assert_allclose(layers, expected["layers"], rtol=0, atol=TOLERANCE)
    outputs = compute(model, inputs)
    for theirs, ours in names.items():
        np.testing.assert_allclose(outputs[ours], expected[theirs], rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize(
    "name",
    [
        *("BertForSequenceClassification/tf_model.h5", "save_weights/weights.h5"),
        *("objects/weights.index", "archive/pytorch_model.bin", "half/epoch3.pt"),
        *("classifier/bert_model.ckpt-1.index", "kashgari/model_weights.h5"),
        "flax_BertForQuestionAnswering/flax_model.msgpack",
    ],
)
def test_a_model_is_converted_from_a_file_with_its_configuration(formats, name, tmp_path):
    path = formats / name
    names = ("config.json", "bert_config.json")
    config = next(file for file in map(path.parent.joinpath, names) if file.exists())
    settings = convert_checkpoint.Settings(
        input=str(path),
        output=str(tmp_path / "converted"),
        format="tf",
        bert_config_file=str(config),
        without_vocabulary=True,
        verify=False,
    )
    report = convert_checkpoint.run(settings)
    before, after = Stored.open(str(path)), Stored.open(str(tmp_path / "converted"))
    assert {*report.converted} <= before.shapes.keys()
    for tensor, values in before.read().items():
        if np.asarray(values).dtype.kind == "f" and tensor in after.shapes:
            np.testing.assert_array_equal(after.read([tensor])[tensor], values)


def test_files_of_keras_and_of_pytorch_load_with_their_vocabulary(formats, tmp_path):
    for name, is_file in (("BertModel/tf_model.h5", False), ("legacy/pytorch_model.bin", True)):
        source = formats / name
        folder = tmp_path / source.parent.name
        shutil.copytree(source.parent, folder)
        words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmnopqrstuvwxy"]
        (folder / "vocab.txt").write_text("\n".join(words) + "\n")
        given = {"bert_config_file": folder / "config.json"} if is_file else {}
        path = folder / source.name if is_file else folder
        vectors = bert.load(path, do_lower_case=True, **given).encode(["a b c"])
        assert vectors.shape == (1, 8) and np.abs(vectors).max() > 0


def cut(path, size):
    path.write_bytes(path.read_bytes()[:size])


@pytest.mark.parametrize("size", [0, 5, 1000, -100])
@pytest.mark.parametrize(
    "name",
    [
        *("BertModel/tf_model.h5", "archive/pytorch_model.bin", "legacy/pytorch_model.bin"),
        *("keras_bert_model/model.h5", "keras_hub_encoder_archive/model.keras"),
        *("flax_BertModel/flax_model.msgpack", "gguf_F32/model.gguf", "frozen/frozen.pb"),
    ],
)
def test_a_file_that_was_cut_is_named_before_a_weight_is_set(formats, tmp_path, name, size):
    path = tmp_path / Path(name).name
    shutil.copy(formats / name, path)
    (tmp_path / "config.json").write_bytes((formats / "encoder/bert_config.json").read_bytes())
    cut(path, size)
    with pytest.raises(ValueError, match=path.name) as caught:
        Stored.open(str(path)).check_fit(
            modeling.BertConfig.from_json_file(f"{tmp_path}/config.json")
        )
    assert "\n" not in str(caught.value)


def test_a_flipped_bit_among_the_numbers_of_an_archive_is_found(formats, tmp_path):
    path = tmp_path / "pytorch_model.bin"
    content = bytearray((formats / "archive/pytorch_model.bin").read_bytes())
    values = Stored.open(str(formats / "archive")).read(["bert/embeddings/word_embeddings"])
    place = content.index(values["bert/embeddings/word_embeddings"].tobytes())
    content[place + 5] ^= 1
    path.write_bytes(content)
    with pytest.raises(ValueError, match="CRC-32"):
        Stored.open(str(path)).read()


@pytest.mark.parametrize("key", ["state_dict", "model_state_dict", "model"])
def test_a_tensor_beside_the_weights_does_not_hide_them(key):
    weight, loss = (
        pickles._View(pickles._Storage(np.dtype("f4"), "0", 4), 0, shape, (1,) * len(shape))
        for shape in ((4,), ())
    )
    saved = {"epoch": 3, "loss": loss, key: {"weight": weight}}
    assert pickles._find_views(saved) == {"weight": weight}
    assert pickles._find_views({"weight": weight, key: {"epoch": 3}}) == {"weight": weight}


@pytest.mark.parametrize("name", ["hostile.bin", "hostile_plain.bin"])
def test_a_pickle_that_would_run_a_command_is_refused_and_runs_none(
    formats, tmp_path, monkeypatch, name
):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=rf"{name}.*names (posix|nt)\.system"):
        Stored.open(str(formats / name)).read()
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize(
    ("program", "problem"),
    [
        (b"cbuiltins\neval\n(X\x03\x00\x00\x001+1tR.", r"names builtins\.eval"),
        (b"(i__main__\nMachine\n.", "instruction INST"),
        (b"ctorch._utils\n_rebuild_tensor_v2\n)R.", "TypeError"),
        (b"}q\x00h\x01.", "KeyError"),
        (b"r\xff\xff\xff\xff.", "IndexError"),
        (b"(" * 50, "exhausted before seeing STOP"),
        (b"NQ.", "cannot unpack"),
        (b"\x8d" + (2**60).to_bytes(8, "little"), "MemoryError"),
    ],
    ids=["eval", "instance", "no arguments", "memo", "empty stack", "marks", "storage", "size"],
)
def test_no_other_program_is_followed(tmp_path, program, problem):
    path = tmp_path / "pytorch_model.bin"
    path.write_bytes(b"\x80\x02" + program)
    with pytest.raises(ValueError, match=rf"pytorch_model.bin' cannot be read: .*{problem}"):
        Stored.open(str(path)).read()


@pytest.mark.parametrize("is_external", [True, False])
def test_a_link_out_of_a_file_is_not_followed(formats, tmp_path, is_external):
    path = tmp_path / "tf_model.h5"
    shutil.copy(formats / "BertModel/tf_model.h5", path)
    (tmp_path / "secret").write_bytes(b"12345678")
    with h5py.File(path, "a") as file:
        if is_external:
            file["bert/other"] = h5py.ExternalLink("secret.h5", "/numbers")
        else:
            place = [(str(tmp_path / "secret"), 0, 8)]
            file.create_dataset("bert/other", (2,), "f4", external=place)
    with pytest.raises(ValueError, match=r"'bert/other' (is a link|has its data in another)"):
        Stored.open(str(path)).read()


def test_numbers_that_a_file_only_claims_are_not_read(tmp_path):
    path = tmp_path / "tf_model.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("bert/large", (10**6, 10**7), "f4", chunks=(1000, 1000))
    with pytest.raises(ValueError, match="the numbers of 'bert/large' are not all there"):
        Stored.open(str(path)).read()


def test_a_missing_shard_is_named_with_its_index(tmp_path):
    path = tmp_path / "model.safetensors.index.json"
    path.write_text('{"weight_map": {"a": "model-00001-of-00002.safetensors"}}')
    with pytest.raises(ValueError, match=r"index.json' cannot be read: .*00001-of-00002"):
        Stored.open(str(path)).parts  # noqa: B018


def test_an_output_bias_is_found_under_any_prefix():
    bias = Tensor((3,), lambda: np.arange(3.0))
    for prefix in ("", "module."):
        found = name_tensors({f"{prefix}cls.predictions.decoder.bias": bias})
        assert [*found] == ["cls/predictions/output_bias"]


def test_a_layer_of_any_number_takes_no_more_memory():
    bias = Tensor((3,), lambda: np.arange(3.0))
    found = name_tensors({"bert.encoder.layer.1000000000.output.dense.bias": bias})
    assert [*found] == ["bert/encoder/layer_1000000000/output/dense/bias"]


def test_a_group_within_itself_has_an_end(formats, tmp_path):
    path = tmp_path / "tf_model.h5"
    shutil.copy(formats / "BertModel/tf_model.h5", path)
    with h5py.File(path, "a") as file:
        file["bert/again"] = file["bert"]
    with pytest.raises(ValueError, match="no end"):
        Stored.open(str(path)).read()


def test_another_architecture_is_named(formats):
    with pytest.raises(ValueError, match="RoBERTa"):
        Stored.open(str(formats / "roberta")).check_fit(modeling.BertConfig(vocab_size=30))
    with pytest.raises(ValueError, match=r"`model_type` must be 'bert'.*'roberta'"):
        modeling.BertConfig.from_json_file(str(formats / "roberta" / "config.json"))


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("bert/encoder/embedding_hidden_mapping_in/kernel", "ALBERT"),
        ("electra/embeddings/word_embeddings", "ELECTRA"),
    ],
)
def test_another_architecture_in_a_checkpoint_is_named(tmp_path, name, kind):
    names = ("bert/embeddings/word_embeddings", name)
    save_tensors(str(tmp_path / "model.ckpt"), dict.fromkeys(names, np.ones((30, 8), np.float32)))
    with pytest.raises(ValueError, match=f"must name a BERT.*it is a {kind}, as its '{name}'"):
        Stored.open(str(tmp_path)).check_fit(modeling.BertConfig(vocab_size=30))


@pytest.mark.parametrize(
    "name",
    [
        "distilbert.transformer.layer.0.attention.q_lin.weight",
        "albert.x",
        "funnel.encoder.blocks.0.0.attention.q_head.weight",
        "transformer.layer.0.rel_attn.q",
        "transformer/layer/0/attention/q_lin/kernel",
        "layers/token_and_position_embedding/token_embedding/vars/0",
        "layers/roberta_backbone/layers/dense/vars/0",
        "Embedding-Mapping/Embedding-Mapping/kernel:0",
        "albert/encoder/layer_shared/intermediate/kernel",
    ],
)
def test_the_names_of_another_architecture_are_known(name):
    tensor = Tensor((1,), lambda: np.zeros(1))
    with pytest.raises(FormatError, match="no BERT"):
        name_tensors({name: tensor})


def test_layers_that_a_model_lacks_are_warned_of_and_layers_of_a_file_are_missed(formats, log):
    stored = Stored.open(str(formats / "BertModel"))
    config = ModelFolder.open(str(formats / "BertModel")).config
    shallow = modeling.BertModel(dataclasses.replace(config, num_hidden_layers=1))
    shallow(modeling.encoder_inputs())
    stored.assign(shallow.weights)
    assert "bert/encoder/layer_1" in log.text
    deep = dataclasses.replace(config, num_hidden_layers=3)
    with pytest.raises(ValueError, match=r"whole encoder.*bert/encoder/layer_2"):
        stored.check_fit(deep)
    wide = dataclasses.replace(config, intermediate_size=16)
    with pytest.raises(ValueError, match="`intermediate_size` should be 12"):
        stored.check_fit(wide)


def test_a_module_of_the_hub_has_its_casing_and_shape_in_its_variables(tmp_path):
    sizes = {"word_embeddings": 30, "position_embedding": 16, "type_embeddings": 2}
    names = {f"{name}/embeddings": (size, 64) for name, size in sizes.items()}
    names["transformer/layer_0/intermediate/bias"] = (12,)
    module = tf.Module()
    module.kept = [tf.Variable(tf.ones(shape), name=name) for name, shape in names.items()]
    saved = tf.train.Checkpoint(encoder=module, do_lower_case=tf.Variable(False))
    saved.write(str(tmp_path / "variables" / "variables"))
    (tmp_path / "saved_model.pb").touch()
    (tmp_path / "assets").mkdir()
    (tmp_path / "assets" / "vocab.txt").write_text("[PAD]\n")
    for path in (tmp_path, tmp_path / "saved_model.pb", tmp_path / "variables" / "variables"):
        found = ModelFolder.open(str(path))
        assert found.do_lower_case is False
        assert found.vocab_file == str(tmp_path / "assets" / "vocab.txt")
        config = found.config
        assert (config.vocab_size, config.max_position_embeddings) == (30, 16)
        assert (config.intermediate_size, config.num_attention_heads) == (12, 1)
    assert tf_hub.Module(str(tmp_path)).config == config


def test_gelu_is_exact_beside_weights_of_pytorch_that_have_the_originals_configuration(
    formats, tmp_path
):
    shutil.copy(formats / "legacy" / "pytorch_model.bin", tmp_path)
    shape = json.loads((formats / "encoder" / "bert_config.json").read_text())
    (tmp_path / "bert_config.json").write_text(json.dumps(shape))
    assert ModelFolder.open(str(tmp_path)).config.hidden_act == "gelu_erf"
    for file in (formats / "encoder").glob("bert_model.ckpt*"):
        shutil.copy(file, tmp_path)
    (tmp_path / "pytorch_model.bin").unlink()
    assert ModelFolder.open(str(tmp_path)).config.hidden_act == "gelu"


# Models of libraries whose file has an encoder, and perhaps both heads of pre-training.
LIBRARIES = (
    *("keras_bert", "keras_bert_model", "keras_bert_encoder"),
    *("bert4keras", "bert4keras_model", "bert4keras_encoder"),
    *("bert_for_tf2_weights", "bert_for_tf2_model", "bert_for_tf2_checkpoint"),
    *("kashgari", "frozen", "saved_model"),
)


def read_outputs(folder):
    """Returns what a program computed, its inputs, and the model here."""
    expected = np.load(folder / "outputs.npz")
    inputs = {ours: expected[ours] for ours in INPUTS.values()}
    return expected, inputs, ModelFolder.open(str(folder))


@pytest.mark.parametrize("name", LIBRARIES)
def test_a_model_of_a_library_computes_what_it_did_there(formats, name):
    expected, inputs, opened = read_outputs(formats / name)
    real = inputs["input_mask"] == 1
    heads = {key.partition("_probabilities")[0] for key in expected if "_prob" in key}
    architecture = "BertForPreTraining" if heads else "BertModel"
    model = make_model(opened, architecture)
    layers = compute_layers(model, inputs)[1:]
    np.testing.assert_allclose(layers[:, real], expected["layers"][:, real], rtol=0, atol=TOLERANCE)
    outputs = compute(model, inputs)
    for head in heads:
        found = tf.nn.softmax(outputs[f"{head}_logits"]).numpy()
        theirs = expected[f"{head}_probabilities"]
        kept = real if head == "masked_lm" else ...
        np.testing.assert_allclose(found[kept], theirs[kept], rtol=0, atol=TOLERANCE)


HUBS = [
    f"{program}_{kind}"
    for program in ("keras_hub", "keras_nlp")
    for kind in ("backbone", "encoder", "encoder_archive", "classifier", "classifier_archive")
]


@pytest.mark.parametrize(
    "name", [*HUBS, "keras_hub_task", "keras_hub_masked_lm", "keras_nlp_masked_lm"]
)
def test_a_model_of_keras_hub_computes_what_it_did_there(formats, name):
    expected, inputs, opened = read_outputs(formats / name)
    real = inputs["input_mask"] == 1
    has_classes = "logits" in expected
    architecture = "BertForSequenceClassification" if has_classes else "BertModel"
    model = keras_models.make_model(architecture, opened.config, 3)
    opened.stored.assign(model.weights, with_head=True)
    layers = compute_layers(model, inputs)[1:]
    np.testing.assert_allclose(layers[:, real], expected["layers"][:, real], rtol=0, atol=TOLERANCE)
    head = "logits" if has_classes else "pooled_output"
    outputs = compute(model, inputs)
    np.testing.assert_allclose(outputs[head], expected[head], rtol=0, atol=TOLERANCE)


def test_the_digest_of_a_preset_covers_its_head(formats, tmp_path, monkeypatch):
    folder = shutil.copytree(formats / "keras_hub_task", tmp_path / "preset")
    before = Stored.open(str(folder))
    assert before.parts == [str(folder / "task.weights.h5")]
    # It is the head of no other file in that folder.
    other = shutil.copy(folder / "model.weights.h5", folder / "other.weights.h5")
    assert Stored(str(other)).parts == []
    os.remove(other)
    digest = before.describe()
    with h5py.File(folder / "task.weights.h5", "r+") as file:
        (bias,) = [file[f"{at}/1"] for at in _layers(file) if file[f"{at}/1"].shape == (3,)]
        bias[...] = bias[...] + 1
    assert Stored.open(str(folder)).describe() != digest
    # It is found from within the folder, too.
    monkeypatch.chdir(folder)
    assert Stored.open("model.weights.h5").shapes == before.shapes


def _layers(file):
    """Returns the groups of the variables of layers that have two."""
    found = []
    file.visit(lambda name: found.append(name) if name.endswith("vars") else None)
    return [name for name in found if "1" in file[name]]


def assert_outputs(outputs, expected):
    """Checks every output that the archive has under the name here."""
    names = outputs.keys() & {*expected}
    assert names
    for name in names:
        np.testing.assert_allclose(outputs[name], expected[name], rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize(
    "kind",
    ["Model", "ForPreTraining", "ForSequenceClassification", "ForQuestionAnswering", "shards"],
)
def test_a_model_of_flax_computes_what_it_did_there(formats, kind):
    folder = formats / (f"flax_Bert{kind}" if kind != "shards" else "flax_shards")
    expected, inputs, opened = read_outputs(folder)
    (architecture,) = opened.huggingface_config["architectures"]
    model = make_model(opened, architecture)
    layers = compute_layers(model, inputs)[1:]
    np.testing.assert_allclose(layers, expected["layers"], rtol=0, atol=TOLERANCE)
    assert_outputs(compute(model, inputs), expected)


def test_safetensors_of_flax_have_the_same_tensors(formats, tmp_path):
    path = formats / "flax_BertForPreTraining" / "flax_model.msgpack"
    stored = {name.replace("/", "."): t.read() for name, t in read_msgpack(str(path)).items()}
    assert "bert.encoder.layer.0.attention.output.LayerNorm.scale" in stored
    save_file(stored, tmp_path / "model.safetensors", metadata={"format": "flax"})
    expected, found = Stored.open(str(path)).read(), Stored.open(str(tmp_path)).read()
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)


def test_a_head_of_flax_that_is_not_tied_is_left_out(formats):
    stored = read_msgpack(str(formats / "flax_BertForPreTraining" / "flax_model.msgpack"))
    assert "cls/predictions/output_bias" in name_tensors(stored)
    decoder = Tensor((8, 29), lambda: np.ones((8, 29), np.float32))
    found = name_tensors({**stored, "cls/predictions/decoder/kernel": decoder})
    assert not [name for name in found if name.startswith("cls/predictions/")]
    assert "cls/seq_relationship/output_weights" in found and "bert/pooler/dense/bias" in found


@pytest.mark.parametrize("kind", ["F32", "F16", "BF16", "Q8_0"])
def test_a_file_of_gguf_has_the_numbers_that_its_library_reads(formats, tmp_path, kind):
    folder = formats / f"gguf_{kind}"
    expected = name_tensors(
        {
            name: Tensor(v.shape, lambda v=v: v)
            for name, v in np.load(folder / "weights.npz").items()
        }
    )
    opened = ModelFolder.open(str(folder / "model.gguf"))
    opened.stored.check_fit(dataclasses.replace(opened.config))
    assert opened.config.hidden_act == "gelu_erf" and opened.config.num_attention_heads == 2
    found = opened.stored.read()
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        np.testing.assert_array_equal(found[name], tensor.read())


def test_other_models_and_kinds_of_numbers_in_gguf_are_named(formats, tmp_path):
    content = (formats / "gguf_F32" / "model.gguf").read_bytes()
    path = tmp_path / "model.gguf"
    path.write_bytes(content.replace(b"\4\0\0\0\0\0\0\0bert", b"\4\0\0\0\0\0\0\0t5xx", 1))
    with pytest.raises(ValueError, match=r"model\.gguf' is another model: it is a 't5xx'"):
        Stored.open(str(path)).read()
    heads = content.index(b"bert.attention.head_count") + len(b"bert.attention.head_count") + 4
    path.write_bytes(content[:heads] + b"\5" + content[heads + 1 :])
    with pytest.raises(ValueError, match=r"model\.gguf': .*`num_attention_heads`"):
        ModelFolder.open(str(path)).config  # noqa: B018
    name = b"blk.0.ffn_up.weight"
    start = content.index(name) + len(name) + 4 + 16
    path.write_bytes(content[:start] + b"\2" + content[start + 1 :])
    with pytest.raises(ValueError, match=r"'blk\.0\.ffn_up\.weight' has numbers of the type 2"):
        Stored.open(str(path)).read()


def test_an_array_in_chunks_is_joined(tmp_path):
    def array(values):
        content = values.tobytes()
        body = b"\x93\x91" + bytes([len(values)]) + b"\xa7float32\xc4" + bytes([len(content)])
        return b"\xc7" + bytes([len(body + content)]) + b"\x01" + body + content

    def text(value):
        return bytes([0xA0 + len(value)]) + value.encode()

    chunks = b"\x82" + b"".join(
        text(str(n)) + array(np.arange(3 * n, 3 * n + 3, dtype="f4")) for n in range(2)
    )
    shape = b"\x82" + text("0") + b"\x02" + text("1") + b"\x03"
    mark = "__msgpack_chunked_array__"
    content = b"\x81" + text("a") + b"\x83" + text(mark) + b"\xc3" + text("shape") + shape
    path = tmp_path / "flax_model.msgpack"
    path.write_bytes(content + text("chunks") + chunks)
    found = read_msgpack(str(path))["a"]
    np.testing.assert_array_equal(found.read(), np.arange(6.0).reshape(2, 3))


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"\x81\x01\x01", "keys must be texts"),
        (b"\x91" * 200, "no end"),
        (b"\xdd\xff\xff\xff\xff", "ends within a value"),
        (b"\xdb\xff\xff\xff\xff", "which no name has"),
        (b"\xc6\xff\xff\xff\xff", "ends within 4,294,967,295 bytes"),
        (b"\xc1", "the byte 0xc1"),
        (b"\x82\xa1a\x01\xa1a\x01", "each once"),
        (b"\x81\xa1a\x01", "no dictionary of arrays"),
        (b"\xc7\x05\x01\x93\x91\x01\xa0\xc4", "ends within a value"),
        *(
            (
                b"\x81\xa1a\xc7%c\x01\x93\x91\x02\xa7float32\xc4%c" % (13 + size, size)
                + bytes(size),
                rf"of shape \[2\] has {size} bytes of 8",
            )
            for size in (4, 12)
        ),
    ],
)
def test_a_damaged_messagepack_is_refused(tmp_path, content, problem):
    path = tmp_path / "flax_model.msgpack"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=rf"flax_model.msgpack' cannot be read: .*{problem}"):
        Stored.open(str(path)).read()


def test_a_preset_of_keras_hub_has_its_vocabulary_and_casing(formats, tmp_path):
    for name in ("keras_hub_backbone", "keras_nlp_backbone"):
        folder = ModelFolder.open(str(formats / name))
        assert folder.do_lower_case is True
        # keras-hub keeps accents, whatever the casing.
        assert folder.load_tokenizer(()).tokenize("B É") == ["b", "[UNK]"]
        assert bert.load(formats / name).encode(["a b c"]).shape == (1, 8)
    other = json.loads((formats / "keras_hub_backbone" / "config.json").read_text())
    other["registered_name"] = "keras_hub>RobertaBackbone"
    (tmp_path / "config.json").write_text(json.dumps(other))
    with pytest.raises(ValueError, match=r"config\.json': .*must be a BERT.*RobertaBackbone"):
        modeling.BertConfig.from_json_file(str(tmp_path / "config.json"))


@pytest.mark.parametrize(
    ("architecture", "ending"),
    [
        ("BertForPreTraining", ".keras"),
        ("BertForQuestionAnswering", ".weights.h5"),
        ("BertForQuestionAnswering", ".h5"),
        *exhaustive(
            ("BertForPreTraining", ".weights.h5"),
            ("BertForPreTraining", ".h5"),
            ("BertForQuestionAnswering", ".keras"),
        ),
    ],
)
def test_what_keras_saves_of_a_model_of_this_project_opens(formats, tmp_path, architecture, ending):
    config = ModelFolder.open(str(formats / "BertForTokenClassification")).config
    check_saved_model_opens(architecture, config, tmp_path / f"model{ending}")
    if ending == ".keras":
        assert ModelFolder.open(str(tmp_path / "model.keras")).config == config


def test_weights_that_keras_saves_of_lstms_open(formats, tmp_path):
    config = ModelFolder.open(str(formats / "BertForTokenClassification")).config
    lstms = change(config, encoder_type="bilstm")
    check_saved_model_opens("BertForPreTraining", lstms, tmp_path / "model.weights.h5")


def check_saved_model_opens(architecture, config, path):
    """Checks that what Keras saves at a path is read by the names of the variables."""
    keras.utils.clear_session()
    model = keras_models.make_model(architecture, config, 3)
    rng = np.random.default_rng(7)
    for variable in model.weights:
        variable.assign(rng.normal(size=variable.shape))
    save = model.save_weights if path.name.endswith(".weights.h5") else model.save
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        save(path)
    stored = Stored.open(str(path))
    for variable in model.weights:
        found = stored.read([variable.path])[variable.path]
        np.testing.assert_array_equal(found, variable.numpy())


def rewrite_archive(source, path, describe, **others):
    """Writes an archive of Keras with another description of the model, and other members."""
    with zipfile.ZipFile(source) as archive, zipfile.ZipFile(path, "w") as target:
        target.writestr("config.json", describe(archive.read("config.json")))
        for name, content in others.items():
            target.writestr(name, content)
        target.writestr("model.weights.h5", archive.read("model.weights.h5"))


def test_a_layer_of_an_archive_runs_no_code(formats, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code = {"class_name": "Lambda", "config": {"function": "__import__('os').mkdir('here')"}}
    path = tmp_path / "model.keras"
    source = formats / "keras_hub_encoder_archive" / "model.keras"
    rewrite_archive(
        source, path, lambda text: json.dumps([code, json.loads(text)]), **{"../outside": b""}
    )
    opened = ModelFolder.open(str(path))
    opened.stored.check_fit(opened.config)
    assert [*tmp_path.iterdir()] == [path]


def test_another_architecture_in_an_archive_is_named(formats, tmp_path):
    path = tmp_path / "model.keras"
    source = formats / "keras_hub_encoder_archive" / "model.keras"
    rewrite_archive(source, path, lambda text: text.replace(b">BertBackbone", b">ElectraBackbone"))
    with pytest.raises(ValueError, match=r"model\.keras' is another model: .*ElectraBackbone"):
        Stored.open(str(path)).read()


def test_a_compressed_archive_is_refused_before_it_grows(tmp_path):
    path = tmp_path / "model.keras"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("model.weights.h5", bytes(10**7))
    with pytest.raises(ValueError, match=r"model\.keras' cannot be read: .*is compressed"):
        Stored.open(str(path)).read()

import json

import numpy as np
import pytest
from conftest import change
from helpers.tokenizer_files import CONFIG, VOCAB, write

import modeling
import tokenization
from bert.files import stored_models
from bert.files.paths import read_json_object
from bert.text.vocabulary import read_json_casing, read_json_vocab, vocab_text
from bert.weights import model_files, saving
from bert.weights.model_files import WORDS_FILE, projector_files

TABLE = "bert/embeddings/word_embeddings"


def test_vocabulary_is_that_of_the_text_file(tmp_path):
    (tmp_path / "vocab.txt").write_bytes(vocab_text(VOCAB))
    expected = tokenization.load_vocab(str(tmp_path / "vocab.txt"))
    vocab = tokenization.load_vocab(write(tmp_path / "tokenizer.json"))
    assert vocab == expected
    assert list(vocab) == VOCAB
    tokenizer = tokenization.FullTokenizer(str(tmp_path / "tokenizer.json"), False)
    assert tokenizer.tokenize("ab é") == ["a", "##b", "é"]


def test_added_tokens_follow_the_vocabulary(tmp_path):
    added = [{"id": 0, "content": "[PAD]"}, {"id": 8, "content": "[NEW]"}]
    vocab = tokenization.load_vocab(write(tmp_path / "tokenizer.json", added=added))
    assert list(vocab) == [*VOCAB, "[NEW]"]


@pytest.mark.parametrize(
    ("normalizer", "casing"),
    [({"lowercase": True}, True), ({"lowercase": False}, False), ({}, None), (None, None)],
)
def test_casing_is_that_of_the_normalizer(tmp_path, normalizer, casing):
    path = tmp_path / "tokenizer.json"
    write(path, normalizer=normalizer)
    assert read_json_casing(path.read_bytes(), str(path)) is casing


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"type": "BPE"}, "`type` of the tokenizer in .* must be 'WordPiece'. Received 'BPE'"),
        ({"continuing_subword_prefix": "@"}, "`continuing_subword_prefix` .* must be '##'"),
        ({"vocab": {"a": 0, "b": 2}}, "ids of the tokens in .* must be 0, 1, 2"),
        ({"vocab": [["a", -1.0]]}, "whose `model` has no `vocab`"),
    ],
)
def test_other_tokenizers_are_refused(tmp_path, changes, message):
    path = write(tmp_path / "tokenizer.json", **changes)
    with pytest.raises(ValueError, match=message) as caught:
        tokenization.load_vocab(path)
    assert "tokenizer.json" in str(caught.value)


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"model": 3}', "[" * 100_000])
def test_a_file_without_a_tokenizer_is_named(tmp_path, text):
    (tmp_path / "tokenizer.json").write_text(text)
    with pytest.raises(ValueError, match=r"tokenizer.json', whose `model` has no `vocab`"):
        tokenization.load_vocab(str(tmp_path / "tokenizer.json"))


def test_configuration_is_read_and_written(still_config):
    config = modeling.BertConfig.from_dict(CONFIG)
    assert config == change(still_config, hidden_act="gelu_erf")
    written = model_files.make_huggingface_config(config.to_dict(), "BertForPreTraining")
    assert written.keys() <= CONFIG.keys()
    assert {key: CONFIG[key] for key in written} == written


@pytest.mark.parametrize("activation", [*modeling.ACTIVATIONS, "GELU", ""])
def test_activation_comes_back_from_a_round_trip(still_config, activation):
    config = change(still_config, hidden_act=activation)
    theirs = model_files.make_huggingface_config(config.to_dict(), "BertModel")
    back = modeling.BertConfig.from_dict(theirs)
    function = modeling.get_activation(activation)
    assert modeling.get_activation(back.hidden_act) is function


def test_absent_keys_have_the_values_of_transformers():
    config = modeling.BertConfig.from_dict({"model_type": "bert"})
    assert (config.vocab_size, config.type_vocab_size) == (30522, 2)
    assert config.hidden_act == "gelu_erf"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "roberta"}, "`model_type` must be 'bert', or absent. Received 'roberta'"),
        ({"position_embedding_type": "relative_key"}, "`position_embedding_type` must be 'absol"),
        ({"layer_norm_eps": 1e-5}, r"`layer_norm_eps` must be 1e-12, or absent. Received 1e-05"),
        ({"is_decoder": True}, "`is_decoder` must be False"),
        ({"add_cross_attention": True}, "`add_cross_attention` must be False"),
        ({"pruned_heads": {"0": [1]}}, r"`pruned_heads` must be {}.*Received {'0': \[1\]}"),
        ({"quantization_config": {"bits": 8}}, "`quantization_config` must be None"),
        ({"auto_map": {"AutoModel": "code.Model"}}, "`auto_map` must be None"),
        ({"hidden_act": "silu"}, r"`hidden_act` must be among \['gelu', .*Received 'silu'"),
        ({"hidden_size": 9}, "`hidden_size` must be a multiple"),
    ],
)
def test_an_unsupported_configuration_is_refused_with_key_and_value(tmp_path, changes, message):
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**CONFIG, **changes}))
    with pytest.raises(ValueError, match=message) as caught:
        modeling.BertConfig.from_json_file(str(path))
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("id2label", "expected"),
    [({"1": "good", "0": "bad"}, ["bad", "good"]), ({}, None), (None, None)],
)
def test_labels_are_in_the_order_of_the_outputs(id2label, expected):
    assert model_files.read_labels({"id2label": id2label}) == expected
    if expected:
        shape = modeling.BertConfig(9).to_dict()
        written = model_files.make_huggingface_config(shape, "BertModel", expected)
        assert model_files.read_labels(written) == expected


@pytest.mark.parametrize("id2label", [{"1": "a"}, {"x": "a"}, ["a"]])
def test_labels_without_their_numbers_are_refused(id2label):
    with pytest.raises(ValueError, match="`id2label` must number the labels from 0"):
        model_files.read_labels({"id2label": id2label})


def test_a_missing_remote_file_is_an_error_like_a_local_one():
    with pytest.raises(FileNotFoundError):
        read_json_object("ram://test_files_huggingface/none.json")


@pytest.mark.parametrize("text", ["", "{", "[1]", "[" * 100_000, "9" * 5000])
def test_json_without_an_object_is_an_error_of_one_line(tmp_path, text):
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(ValueError, match=r"config\.json' must (be JSON|hold a JSON object)"):
        read_json_object(str(tmp_path / "config.json"))


@pytest.mark.parametrize(
    "changes",
    [
        {"added_tokens": 3},
        {"added_tokens": ["[PAD]"]},
        {"added_tokens": [{"content": "[PAD]"}]},
        {"added_tokens": [{"id": 0}]},
        {"added_tokens": [{"id": "0", "content": "[PAD]"}]},
        {"added_tokens": [{"id": 0, "content": ["[PAD]"]}]},
        {"normalizer": True},
        {"model": {"vocab": {"[UNK]": "0"}}},
        {"model": {"vocab": {"[UNK]": [0]}}},
        {"model": {"vocab": {"[UNK]": False}}},
    ],
)
def test_a_tokenizer_of_wrong_types_is_an_error_of_one_line(changes):
    whole = {"model": {"type": "WordPiece", "vocab": {"[UNK]": 0}}}
    text = json.dumps({**whole, **changes}).encode()
    for read in (read_json_vocab, read_json_casing):
        with pytest.raises(ValueError, match=r"tokenizer\.json"):
            read(text, "tokenizer.json")


@pytest.mark.parametrize("value", [[1], {"a": 1}, 1.5, 7])
def test_a_configuration_of_wrong_types_is_an_error_of_one_line(value):
    with pytest.raises(ValueError, match="`hidden_act` must be among"):
        stored_models.from_huggingface({**CONFIG, "hidden_act": value})
    with pytest.raises(ValueError, match="`id2label` must number the labels"):
        model_files.read_labels({"id2label": value})
    assert model_files.read_task_type({"problem_type": value}) is None


def test_every_row_has_one_label_and_none_is_blank():
    vocabulary = "[PAD]\nthe\n \n a\tb\u2028c\r\n\u00e9".encode()
    words = projector_files(vocabulary, 7)[WORDS_FILE].decode()
    assert words.split("\n") == ["[PAD]", "the", "[2]", "a b c", "\u00e9", "[5]", "[6]", ""]
    assert projector_files(vocabulary, 2)[WORDS_FILE] == b"[PAD]\nthe\n"


def test_tensorboard_shows_the_table_with_its_words(tmp_path):
    projector = pytest.importorskip("tensorboard.plugins.projector.projector_plugin")
    base_plugin = pytest.importorskip("tensorboard.plugins.base_plugin")
    test = pytest.importorskip("werkzeug.test")
    table = np.arange(12, dtype=np.float32).reshape(4, 3)
    saving.save_tensors(str(tmp_path / "model.ckpt-2"), {TABLE: table})
    (tmp_path / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-2"\n')
    for name, text in projector_files(b"[PAD]\nthe\ncat\n", 4).items():
        (tmp_path / name).write_bytes(text)
    plugin = projector.ProjectorPlugin(base_plugin.TBContext(logdir=str(tmp_path)))
    apps = plugin.get_plugin_apps()

    def get(route, **query):
        return test.Client(apps[route]).get("/", query_string=query).data

    assert json.loads(get("/runs")) == ["."]
    (found,) = [
        each for each in json.loads(get("/info", run="."))["embeddings"] if "metadataPath" in each
    ]
    assert found["tensorName"].partition(":")[0] == TABLE
    assert found["tensorShape"] == [4, 3]
    name = found["tensorName"]
    values = np.frombuffer(get("/tensor", run=".", name=name), np.float32)
    np.testing.assert_array_equal(values.reshape(4, 3), table)
    assert get("/metadata", run=".", name=name) == b"[PAD]\nthe\ncat\n[3]\n"

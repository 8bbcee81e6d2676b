import contextlib
import json

import numpy as np
import pytest
import tensorflow as tf
from conftest import change
from helpers.huggingface_models import CONFIG, write
from helpers.tokenizer_files import write as write_tokenizer
from tensorflow.core.protobuf import saved_model_pb2

import bert
import modeling
from bert.files import owned
from bert.files.outputs import make_folder
from bert.runs.recipes import CasedTextModel, TextModel
from bert.weights import (
    checkpoint,
    readers,
    saved_models,
    saving,
    sentence_transformers,
    tokenizers,
)
from bert.weights.folder import ModelFolder
from bert.weights.model_files import TASK_FILE
from bert.weights.options import ModelSource, VocabularySource
from bert.weights.variables import encoder_shapes, require_segments


@pytest.fixture
def encoder(tiny_config):
    model = modeling.BertModel(tiny_config)
    model.build(None)
    return {v.path: v.numpy() for v in model.weights}


@pytest.fixture
def folder(tmp_path, encoder):
    """A Hugging Face folder with everything."""
    folder = tmp_path / "model"
    write(folder, encoder, "BertModel")
    (folder / "vocab.txt").write_text("[UNK]\n")
    return folder


def complete(output_dir="nowhere", vocab_file="", do_lower_case=True, **values):
    vocabulary = VocabularySource(vocab_file=vocab_file, do_lower_case=do_lower_case)
    return ModelFolder.of(ModelSource(**values), vocabulary, output_dir)


def test_files_come_from_the_folder_of_the_checkpoint(folder, log):
    settings = complete(init_checkpoint=str(folder))
    assert settings.bert_config_file == str(folder / "config.json")
    assert settings.vocab_file == str(folder / "vocab.txt")
    assert log.messages == [
        f"Not given, so taken from beside the weights: {folder}/config.json, {folder}/vocab.txt."
    ]
    # However the weights are named.
    assert complete(init_checkpoint=str(folder / "model.safetensors")).vocab_file


def test_given_options_override_the_folder(folder, log):
    settings = complete(init_checkpoint=str(folder), bert_config_file="a", vocab_file="b")
    assert (settings.bert_config_file, settings.vocab_file) == ("a", "b")
    assert log.messages == []


def test_each_kind_of_weights_has_its_configuration(folder, encoder):
    (folder / "bert_config.json").write_text("{}")
    assert complete(init_checkpoint=str(folder)).bert_config_file.endswith("/config.json")
    saving.save_tensors(str(folder / "bert_model.ckpt"), encoder)
    settings = complete(init_checkpoint=str(folder))
    assert settings.bert_config_file == str(folder / "bert_config.json")


MARKS = {"model_type": "bert", "architectures": ["BertModel"], "layer_norm_eps": 1e-12}


@pytest.mark.parametrize("marks", [{}, MARKS, {"architectures": None}, {"layer_norm_eps": 1e-12}])
def test_the_form_of_the_weights_says_which_gelu_is_meant(tmp_path, encoder, tiny_config, marks):
    values = {**tiny_config.to_dict(), **marks}
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    write(theirs, encoder, "BertModel")
    (theirs / "config.json").write_text(json.dumps(values))
    assert values["hidden_act"] == "gelu"
    assert ModelFolder.open(str(theirs)).config == change(tiny_config, hidden_act="gelu_erf")
    ours.mkdir()
    saving.save_tensors(str(ours / "bert_model.ckpt"), encoder)
    (ours / "bert_config.json").write_text(json.dumps(values))
    assert ModelFolder.open(str(ours)).config == tiny_config
    (ours / "bert_config.json").rename(ours / "config.json")
    assert ModelFolder.open(str(ours)).config == tiny_config
    # Given beside one or the other.
    given = {"bert_config_file": str(theirs / "config.json"), "vocab_file": "v"}
    assert complete(init_checkpoint=str(ours), **given).config == tiny_config
    # Without weights, the keys are all there is to go by.
    assert complete(**given).config.hidden_act == ("gelu_erf" if marks else "gelu")


@pytest.mark.parametrize(
    ("name", "ours"), [("relu", "relu"), ("gelu_new", "gelu"), ("gelu_python", "gelu_erf")]
)
def test_other_activations_are_the_same_in_all_forms(tmp_path, encoder, tiny_config, name, ours):
    saving.save_tensors(str(tmp_path / "bert_model.ckpt"), encoder)
    values = {**tiny_config.to_dict(), **MARKS, "hidden_act": name}
    (tmp_path / "bert_config.json").write_text(json.dumps(values))
    assert ModelFolder.open(str(tmp_path)).config == change(tiny_config, hidden_act=ours)


def test_the_casing_is_found_in_the_vocabulary(tmp_path, tiny_config, log):
    words = [f"Word{number}" for number in range(200)]
    (tmp_path / "vocab.txt").write_text("\n".join(["[UNK]", "[CLS]", "[SEP]", *words]))
    config = change(tiny_config, vocab_size=203)
    (tmp_path / "bert_config.json").write_text(config.to_json_string())
    for do_lower_case, count in ((False, 0), (True, 1), (None, 2)):
        ModelFolder(str(tmp_path), do_lower_case=do_lower_case).load_tokenizer()
        assert sum("is the vocabulary of a cased model" in m for m in log.messages) == count


def test_a_trained_folder_has_its_files(folder):
    settings = complete(output_dir=str(folder))
    assert settings.vocab_file == str(folder / "vocab.txt")


def test_tokenizer_json_takes_the_place_of_a_missing_vocabulary(folder):
    write_tokenizer(folder / "tokenizer.json")
    assert complete(init_checkpoint=str(folder)).vocab_file.endswith("vocab.txt")
    (folder / "vocab.txt").unlink()
    assert complete(init_checkpoint=str(folder)).vocab_file == str(folder / "tokenizer.json")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("config.json", "`bert_config_file` must be given, .* neither 'config.json' nor 'bert_c"),
        ("vocab.txt", "`vocab_file` must be given, .* neither 'vocab.txt' nor 'tokenizer.json'"),
    ],
)
def test_a_missing_file_is_an_error_of_its_option(folder, name, message):
    (folder / name).unlink()
    with pytest.raises(ValueError, match=message) as caught:
        complete(init_checkpoint=str(folder))
    assert str(folder) in str(caught.value)


def test_without_any_weights_a_checkpoint_is_requested_before_the_files():
    message = r"`init_checkpoint` must be given, or else `bert_config_file`.*'nowhere'"
    with pytest.raises(ValueError, match=message):
        complete()


@pytest.mark.parametrize("name", ["tokenizer_config.json", "task.json"])
def test_casing_of_the_folder_must_be_that_of_the_flag(folder, name):
    (folder / name).write_text(json.dumps({"do_lower_case": False}))
    complete(init_checkpoint=str(folder), do_lower_case=False)
    with pytest.raises(ValueError, match=rf"`do_lower_case` must be False .*{name}' says.*True"):
        complete(init_checkpoint=str(folder))


@pytest.mark.parametrize("casing", ["false", 0])
def test_a_casing_that_is_neither_true_nor_false_is_named(folder, casing):
    (folder / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": casing}))
    with pytest.raises(ValueError, match=r"_config.json' must be true or false. Received .*(0|se)"):
        complete(init_checkpoint=str(folder))


def test_casing_of_the_normalizer_counts_where_nothing_else_says(folder):
    write_tokenizer(folder / "tokenizer.json", normalizer={"lowercase": True})
    complete(init_checkpoint=str(folder))
    with pytest.raises(ValueError, match=r"`do_lower_case` must be True.*tokenizer.json' says"):
        complete(init_checkpoint=str(folder), do_lower_case=False)
    (folder / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": False}))
    complete(init_checkpoint=str(folder), do_lower_case=False)


@pytest.mark.parametrize(
    ("kind", "follows_json"),
    [
        ("BertTokenizer", False),
        ("BertTokenizerFast", False),
        ("PreTrainedTokenizerFast", True),
        ("TokenizersBackend", True),
    ],
)
@pytest.mark.parametrize("casing", [False, True])
def test_of_two_casings_that_of_transformers_counts(folder, kind, follows_json, casing):
    """As `AutoTokenizer` of transformers 5.23 lower-cases with these files."""
    write_tokenizer(folder / "tokenizer.json", normalizer={"lowercase": not casing})
    said = {"tokenizer_class": kind, "do_lower_case": casing}
    (folder / "tokenizer_config.json").write_text(json.dumps(said))
    assert ModelFolder.open(str(folder)).do_lower_case == casing ^ follows_json


def test_a_given_tokenizer_says_how_texts_are_split_where_the_folder_does_not(folder, tmp_path):
    (folder / "vocab.txt").unlink()
    step = {"type": "BertNormalizer", "lowercase": False, "handle_chinese_chars": False}
    given = write_tokenizer(tmp_path / "tokenizer.json", normalizer=step)

    def read():
        found = ModelFolder(str(folder), vocab_file=given)
        return found.do_lower_case, found.tokenizer_options

    assert read() == (False, {"tokenize_chinese_chars": False})
    with pytest.raises(ValueError, match=r"`do_lower_case` must be False .*tokenizer\.json' says"):
        complete(init_checkpoint=str(folder), vocab_file=given)
    (folder / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": True}))
    assert read() == (True, {})


WORDS = ["[UNK]", "[CLS]", "[SEP]", "a", "##b", "\xc9", "e", "\u4e2d", "##\u4e2d"]
E1 = {"content": "<e1>", "lstrip": True, "normalized": False, "special": True}


@pytest.fixture
def words(folder):
    """Tokenizes with a vocabulary of some words and what the files of the folder say."""
    (folder / "vocab.txt").write_text("\n".join(WORDS) + "\n", encoding="utf-8")

    def tokenize(text, **files):
        for name, values in files.items():
            (folder / f"{name}.json").write_text(json.dumps(values))
        tokenizer = complete(init_checkpoint=str(folder)).load_tokenizer()
        tokens = tokenizer.tokenize(text)
        assert tokenizer.convert_ids_to_tokens(tokenizer.tokenize_to_ids(text)) == tokens
        return tokens

    return tokenize


def test_accents_and_chinese_characters_are_treated_as_the_folder_says(words, log):
    text = "\xc9 a\u4e2d"
    assert words(text) == ["e", "a", "\u4e2d"]
    config = {"do_lower_case": True, "strip_accents": False, "tokenize_chinese_chars": False}
    assert words(text, tokenizer_config=config) == ["[UNK]", "a", "##\u4e2d"]
    assert words(text, tokenizer_config={"strip_accents": None}) == ["e", "a", "\u4e2d"]
    normalizer = {"lowercase": True, "strip_accents": False, "handle_chinese_chars": False}
    model = {"vocab": {"[UNK]": 0}}
    tokenizer = {"normalizer": normalizer, "model": model}
    assert words(text, tokenizer_config={}, tokenizer=tokenizer) == ["[UNK]", "a", "##\u4e2d"]
    # Of two that differ, as in transformers, this one counts.
    assert words(text, tokenizer_config={"strip_accents": True})[0] == "e"
    assert not any("tokenized with" in message for message in log.messages)


def test_added_tokens_are_those_of_the_folder(words, folder):
    text = "a <e1>b[SEP]"
    number = len(WORDS)
    assert "<e1>" not in words(text)
    listed = {"content": "[SEP]", "normalized": False, "special": True}
    config = {"added_tokens_decoder": {str(number): E1, "2": listed}}
    assert words(text, tokenizer_config=config) == ["a", "<e1>", "[UNK]", "[SEP]"]
    tokenizer = complete(init_checkpoint=str(folder)).load_tokenizer()
    assert tokenizer.vocab["<e1>"] == number
    assert tokenizer.added_tokens[1].lstrip
    # In the older files, too.
    assert words(text, tokenizer_config={}, added_tokens={"<e1>": number}) == [
        "a", "<e1>", "[UNK]", "[UNK]", "[UNK]", "[UNK]"
    ]  # fmt: skip
    special = {"additional_special_tokens": ["<e1>", {"content": "<e2>"}]}
    assert words("<E1><e1><e2>", special_tokens_map=special)[-2:] == ["<e1>", "<e2>"]
    assert words("<E1>")[-1] == "[UNK]"
    (folder / "added_tokens.json").unlink()
    (folder / "special_tokens_map.json").unlink()
    model = {"vocab": {word: index for index, word in enumerate(WORDS)}}
    tokens = [{**E1, "id": number}, {**listed, "id": 2}]
    words(text, tokenizer={"model": model, "added_tokens": tokens})
    (folder / "vocab.txt").unlink()
    assert words(text) == ["a", "<e1>", "[UNK]", "[SEP]"]
    # They are no word pieces, and come behind these.
    source = complete(init_checkpoint=str(folder))
    assert source.vocabulary.decode().splitlines() == WORDS


def test_added_tokens_have_their_ids(words, folder):
    config = {"added_tokens_decoder": {str(len(WORDS) + 5): E1}}
    words("<e1>", tokenizer_config=config)
    tokenizer = complete(init_checkpoint=str(folder)).load_tokenizer()
    assert tokenizer.tokenize_to_ids("<e1>") == [len(WORDS) + 5]


@pytest.mark.parametrize(
    "config",
    [
        {"strip_accents": "no"},
        {"added_tokens_decoder": {"x": E1}},
        {"added_tokens_decoder": {"-1": E1}},
        {"added_tokens_decoder": {"5": "<e1>"}},
        {"added_tokens_decoder": [E1]},
        {"added_tokens_decoder": {"5": {}}},
        {"additional_special_tokens": [3]},
    ],
)
def test_tokenizer_files_that_say_something_else_are_named(words, folder, config):
    with pytest.raises(ValueError, match="must be those of transformers") as caught:
        words("a", tokenizer_config=config)
    assert str(folder) in str(caught.value)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("tokenizer_class", "BertJapaneseTokenizer"),
        ("tokenizer_class", "XLMRobertaTokenizerFast"),
        ("word_tokenizer_type", "mecab"),
        ("subword_tokenizer_type", "character"),
        ("do_basic_tokenize", False),
        ("cls_token", "<s>"),
        ("sep_token", "</s>"),
        ("unk_token", "<unk>"),
    ],
)
def test_a_tokenizer_of_another_kind_is_refused_by_its_name(words, key, value):
    with pytest.raises(ValueError, match=rf"must be BERT's WordPiece\..*`{key}` {value!r}"):
        words("a", tokenizer_config={key: value})


def test_the_marks_around_a_text_are_known_in_both_forms_of_transformers(words):
    marks = {"cls_token": {"content": "[CLS]", "special": True}, "sep_token": "[SEP]"}
    assert words("a", tokenizer_config=marks) == ["a"]


def test_two_vocabularies_of_one_folder_must_give_the_same_ids(words, folder):
    def describe(*tokens):
        return {"model": {"vocab": {token: number for number, token in enumerate(tokens)}}}

    # A token that only one of them has is no contradiction.
    assert words("a", tokenizer=describe(*WORDS[:5], "other")) == ["a"]
    with pytest.raises(ValueError, match=r"vocab\.txt' and .*tokenizer\.json' give 'a' .* 3 and 4"):
        words("a", tokenizer=describe(*WORDS[:3], "other", "a"))
    for name, number in (("vocab.txt", 3), ("tokenizer.json", 4)):
        given = complete(init_checkpoint=str(folder), vocab_file=str(folder / name))
        assert given.load_tokenizer().tokenize_to_ids("a") == [number]
    (folder / "vocab.txt").unlink()
    assert complete(init_checkpoint=str(folder)).load_tokenizer().tokenize_to_ids("a") == [4]


WORDPIECE = {"vocab": {"[UNK]": 0}}
BERT_STEPS = {
    "normalizer": {"type": "BertNormalizer", "lowercase": True, "strip_accents": False},
    "pre_tokenizer": {"type": "BertPreTokenizer"},
}


@pytest.mark.parametrize(
    ("key", "step"),
    [
        ("normalizer", {"type": "Lowercase"}),
        (
            "normalizer",
            {"type": "Sequence", "normalizers": [BERT_STEPS["normalizer"], {"type": "NFC"}]},
        ),
        ("pre_tokenizer", {"type": "Whitespace"}),
        ("pre_tokenizer", {"type": "Sequence", "pretokenizers": [{"type": "Whitespace"}]}),
        ("pre_tokenizer", None),
    ],
)
def test_a_tokenizer_that_takes_other_steps_is_refused(words, key, step):
    values = {**BERT_STEPS, key: step, "model": WORDPIECE}
    with pytest.raises(ValueError, match=rf"tokenizer\.json' has `{key}` .*splits texts otherwise"):
        words("a", tokenizer=values)


@pytest.mark.parametrize("step", [None, {**BERT_STEPS["normalizer"], "clean_text": False}])
def test_a_normalizer_that_counts_must_be_that_of_bert(words, step):
    values = {**BERT_STEPS, "normalizer": step, "model": WORDPIECE}
    config = {"tokenizer_class": "BertTokenizer", "do_lower_case": True}
    # The classes of BERT make their own.
    assert words("A\u4e2d\0", tokenizer=values, tokenizer_config=config) == ["a", "\u4e2d"]
    with pytest.raises(ValueError, match=r"tokenizer\.json' has `normalizer` .*splits texts other"):
        words("a", tokenizer_config={**config, "tokenizer_class": "PreTrainedTokenizerFast"})


def test_a_sequence_of_one_step_is_that_step(words, folder):
    names = {"normalizer": "normalizers", "pre_tokenizer": "pretokenizers"}
    steps = {key: {"type": "Sequence", names[key]: [step]} for key, step in BERT_STEPS.items()}
    for values in (BERT_STEPS, steps):
        assert words("\xc9 a", tokenizer={**values, "model": WORDPIECE}) == ["[UNK]", "a"]
        with pytest.raises(ValueError, match=r"`do_lower_case` must be True.*tokenizer.json' says"):
            complete(init_checkpoint=str(folder), do_lower_case=False)


def test_a_tokenizer_of_another_kind_is_recognized_by_any_file(words, folder):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "tokenizer_class": "MyTokenizer"}))
    with pytest.raises(ValueError, match=r"config.json' has `tokenizer_class` 'MyTokenizer'"):
        words("a")
    # What stands nearer to the vocabulary counts.
    assert words("a", tokenizer_config={"tokenizer_class": "BertTokenizer"}) == ["a"]


def test_a_tokenizer_is_restored_from_its_options(words, folder):
    config = {"strip_accents": False, "added_tokens_decoder": {"11": E1, "3": {"content": "a"}}}
    words("a", tokenizer_config=config)
    source = complete(init_checkpoint=str(folder))
    first = source.load_tokenizer()
    options = json.loads(json.dumps(tokenizers.options_of(first)))
    again = tokenizers.make(source.vocab_file, True, options)
    assert (again.vocab, again.added_tokens) == (first.vocab, first.added_tokens)
    assert tokenizers.options_of(again) == options
    plain = tokenizers.make(source.vocab_file, True, {})
    assert tokenizers.options_of(plain) == {}


def write_preprocessing(folder, *, folds):
    """Writes what looks like a preprocessing model of TensorFlow Hub."""
    (folder.parent / "words.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\nA\na\n")
    module = tf.Module()
    module.file = tf.saved_model.Asset(str(folder.parent / "words.txt"))

    def split(texts):
        return tf.strings.strip(tf.strings.lower(texts) if folds else texts)

    texts = tf.TensorSpec([None], tf.string)
    module.split = tf.function(split, input_signature=[texts], autograph=False)
    tf.saved_model.save(module, str(folder))
    path = folder / "saved_model.pb"
    saved = saved_model_pb2.SavedModel.FromString(path.read_bytes())
    theirs = {"StringLower": "CaseFoldUTF8", "StringStrip": "WordpieceTokenizeWithOffsets"}
    for function in saved.meta_graphs[0].graph_def.library.function:
        for node in function.node_def:
            node.op = theirs.get(node.op, node.op)
    path.write_bytes(saved.SerializeToString())
    return str(folder)


@pytest.mark.parametrize("folds", [True, False])
def test_a_preprocessing_model_is_a_vocabulary_with_its_casing(tmp_path, folder, folds):
    path = write_preprocessing(tmp_path / "preprocess", folds=folds)
    (folder / "vocab.txt").unlink()
    found = complete(init_checkpoint=str(folder), vocab_file=path, do_lower_case=None)
    assert found.vocab_file == f"{path}/assets/words.txt"
    assert found.do_lower_case == folds
    with pytest.raises(ValueError, match=f"`do_lower_case` must be {folds} for .*preprocess"):
        complete(init_checkpoint=str(folder), vocab_file=path, do_lower_case=not folds)
    for load in (bert.load, checkpoint.Stored.open):
        with pytest.raises(ValueError, match=r"preprocessing model.* no weights.*`vocab_file`"):
            _ = load(path).shapes


def test_options_need_no_vocabulary(folder):
    source = ModelSource(init_checkpoint=str(folder))
    assert ModelFolder.named_by(source).config == modeling.BertConfig.from_dict(CONFIG)


def name_labels(folder, *names):
    path = folder / "config.json"
    values = {**json.loads(path.read_text()), "id2label": dict(enumerate(names))}
    path.write_text(json.dumps(values))


def test_labels_in_another_order_than_the_outputs_are_refused(folder):
    name_labels(folder, "good", "bad")
    ModelFolder.open(str(folder)).check_labels(["good", "bad"])
    with pytest.raises(ValueError, match=r"has \['good', 'bad'\].*`labels='good"):
        ModelFolder.open(str(folder)).check_labels(["bad", "good"])


def test_other_labels_are_logged(folder, log):
    name_labels(folder, "POSITIVE", "NEGATIVE")
    ModelFolder.open(str(folder)).check_labels(["1", "0"])
    assert log.messages[-1].endswith("Taken are: POSITIVE as 1, NEGATIVE as 0.")
    count = len(log.messages)
    name_labels(folder, "LABEL_0", "LABEL_1")
    ModelFolder.open(str(folder)).check_labels(["1", "0"])
    assert len(log.messages) == count


def test_a_vocabulary_must_fit_the_model(tmp_path, tiny_config, log):
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a"]

    def load(vocab_size, *special_tokens):
        folder = ModelFolder(str(tmp_path))
        folder.save(change(tiny_config, vocab_size=vocab_size), "\n".join(tokens).encode())
        return folder.load_tokenizer(special_tokens)

    assert load(6, "[MASK]").tokenize("A b") == ["a", "[UNK]"]
    assert not log.messages
    load(7, "[MASK]")
    assert "has 6 tokens, but `vocab_size` in `bert_config_file` is 7" in log.messages[0]
    with pytest.raises(ValueError, match=r"at most 5 tokens.*has 6"):
        load(5, "[MASK]")
    with pytest.raises(ValueError, match=r"must hold \['\[X\]'\].*lacks \['\[X\]'\]"):
        load(6, "[X]")
    # Blank lines behind them are no more tokens.
    tokens += ["", "", ""]
    assert load(6, "[MASK]").tokenize_to_ids("A b") == [5, 1]
    with pytest.raises(ValueError, match=r"at most 5 tokens.*has 6"):
        load(5, "[MASK]")


def test_an_input_of_two_segments_needs_two_segment_types(tiny_config):
    require_segments(tiny_config, "a text and its ending")
    with pytest.raises(ValueError, match=r"at least 2, for pairs of texts\. Received 1\."):
        require_segments(change(tiny_config, type_vocab_size=1), "pairs of texts")


def test_casing_is_as_given_or_unknown_where_the_folder_says_none(folder):
    assert ModelFolder.open(str(folder)).do_lower_case is None
    assert ModelFolder.open(str(folder), do_lower_case=True).do_lower_case


def test_the_casing_is_found_in_the_name_of_a_released_model(folder):
    released = folder.rename(folder.parent / "cased_L-12_H-768_A-12")
    ModelFolder.open(str(released), do_lower_case=False)
    with pytest.raises(ValueError, match="`do_lower_case` must be False for the cased model"):
        ModelFolder.open(str(released), do_lower_case=True)


# A run's own folder.


def test_another_configuration_is_refused_in_an_output_folder(tmp_path, tiny_config):
    folder = str(tmp_path / "run")
    run = ModelFolder(folder)
    run.check_same(tiny_config)
    make_folder(folder)
    run.save(tiny_config)
    run.check_same(tiny_config)
    assert ModelFolder(folder).config == tiny_config
    other = change(tiny_config, hidden_size=16, hidden_act="relu")
    with pytest.raises(ValueError, match="`output_dir` must belong") as caught:
        run.check_same(other)
    assert "`hidden_size` is 8 there and 16 in `bert_config_file`" in str(caught.value)
    assert "`hidden_act` is 'gelu' there and 'relu'" in str(caught.value)
    assert "vocab_size" not in str(caught.value)


TASK = {"kind": "classification", "do_lower_case": False, "task": {"labels": ("no", "yes")}}


def test_the_files_of_a_model_are_read_as_written(tmp_path, tiny_config):
    ModelFolder(str(tmp_path)).save(tiny_config, b"[UNK]\n[CLS]\n[SEP]\nA\n", TASK)
    folder = ModelFolder(str(tmp_path), "model_dir")
    assert folder.read_task().items() > json.loads(json.dumps(TASK)).items()
    assert (folder.config, folder.labels) == (tiny_config, ["no", "yes"])
    assert folder.load_tokenizer().tokenize("A a") == ["A", "[UNK]"]
    assert folder.find_weights() is None
    with pytest.raises(ValueError, match="`model_dir` must hold trained weights"):
        assert folder.stored
    saving.save_tensors(str(tmp_path / "bert_model.ckpt"), {"x": np.ones(1, np.float32)})
    assert folder.stored.shapes == {"x": [1]}
    assert folder.find_weights().prefix == folder.stored.prefix


def test_a_folder_without_a_task_names_the_scripts_that_write_one(tmp_path):
    folder = ModelFolder(str(tmp_path), "model_dir")
    assert folder.task == {}
    with pytest.raises(ValueError, match=r"`model_dir` must be the `output_dir` .* no task"):
        folder.read_task()
    (tmp_path / "task.json").write_text("{")
    with pytest.raises(ValueError, match=r"task.json' must be JSON"):
        folder.read_task()


def test_a_folder_of_another_task_is_refused(tmp_path, tiny_config):
    run = ModelFolder(str(tmp_path))
    run.check_same(tiny_config, b"a", TASK)
    run.save(tiny_config, b"a", TASK)
    run.check_same(tiny_config, b"a", TASK)
    other = {**TASK, "task": {"labels": ["yes", "no"]}}
    with pytest.raises(ValueError, match=r"`task\.labels` is \['no', 'yes'\] there and in another"):
        run.check_same(tiny_config, b"a", other)
    with pytest.raises(ValueError, match=r"its vocab\.txt differs from `vocab_file`"):
        run.check_same(tiny_config, b"b", TASK)


def test_unchanged_files_are_not_written_again(tmp_path, tiny_config):
    """A user's own file of the same content stays theirs."""
    (tmp_path / "vocab.txt").write_bytes(b"a")
    ModelFolder(str(tmp_path)).save(tiny_config, b"a", TASK)
    assert owned.read_names(str(tmp_path)) == ["bert_config.json", "task.json"]


@pytest.mark.parametrize("size", [-1, -3])
def test_a_vocabulary_that_was_cut_does_not_answer(tmp_path, tiny_config, size):
    text = b"[UNK]\n[CLS]\n[SEP]\nA\n"
    ModelFolder(str(tmp_path)).save(tiny_config, text, TASK)
    (tmp_path / "vocab.txt").write_bytes(text[:size])
    folder = ModelFolder(str(tmp_path), "model_dir")
    with pytest.raises(ValueError, match=rf"of {len(text)} bytes, .* of {len(text) + size}\."):
        folder.load_tokenizer()
    # Another one may be given.
    (tmp_path / "mine.txt").write_bytes(text[:size])
    given = ModelFolder(str(tmp_path), vocab_file=str(tmp_path / "mine.txt"))
    assert given.vocabulary == text[:size]


def test_a_configuration_that_was_changed_does_not_answer(tmp_path, tiny_config):
    ModelFolder(str(tmp_path)).save(tiny_config, b"a", TASK)
    other = change(tiny_config, hidden_act="relu")
    (tmp_path / "bert_config.json").write_text(other.to_json_string())
    with pytest.raises(ValueError, match=r"bert_config\.json' must be the file"):
        assert ModelFolder(str(tmp_path)).config


@pytest.mark.parametrize(
    ("name", "overwrites", "is_refused"),
    [
        ("bert_model.ckpt.index", False, True),
        ("model.safetensors", False, True),
        ("model.ckpt-7.index", True, True),
        # What TensorFlow 1 has begun goes on.
        ("model.ckpt-7.index", False, False),
        ("vocab.txt", True, False),
    ],
)
def test_weights_that_were_not_trained_here_are_not_replaced(
    tmp_path, name, overwrites, is_refused
):
    (tmp_path / name).write_text("weights")
    folder = ModelFolder(str(tmp_path))
    expected = pytest.raises(ValueError, match="must not hold weights that were not trained there")
    with expected if is_refused else contextlib.nullcontext():
        folder.check_fillable(overwrites=overwrites)
    owned.adopt(str(tmp_path), [name])
    folder.check_fillable(overwrites=overwrites)


def test_partial_files_of_a_killed_run_are_not_foreign_weights(tmp_path):
    """Else the run could not go on. Nor is the index that lies beside records."""
    (tmp_path / "model.ckpt-8.partial.index").write_text("half")
    (tmp_path / ".train.tfrecord.index").write_text("of records")
    ModelFolder(str(tmp_path)).check_fillable(overwrites=False)
    ModelFolder(str(tmp_path)).check_fillable(overwrites=True)
    assert readers.weight_files(str(tmp_path)) == []


def test_all_that_a_model_is_read_from_is_among_its_files(folder):
    """By these files, parts of one output are known to be of one model."""
    opened = ModelFolder.open(str(folder))
    replaced = ModelFolder.open(str(folder), vocab_file="b.txt", do_lower_case=True)
    (folder / "1_Pooling").mkdir()
    for name in (TASK_FILE, *tokenizers.FILES, *sentence_transformers.FILES):
        (folder / name).write_text("{}")
    assert {*opened.files} == {str(path) for path in folder.rglob("*") if path.is_file()}
    assert "b.txt" in replaced.files and str(folder / "vocab.txt") not in replaced.files


@pytest.mark.parametrize("width", [64, 192, 96])
def test_a_module_without_a_configuration_has_heads_of_the_usual_size(tiny_config, width):
    sizes = {"hidden_size": width, "num_attention_heads": width // 32, "num_hidden_layers": 11}
    config = change(tiny_config, **sizes)
    found = saved_models.find_shape(encoder_shapes(config))
    if width % 64:
        assert found is None
        return
    config.num_attention_heads = width // 64
    assert found == {name: getattr(config, name) for name in found}
    assert len(found) == 7


@pytest.mark.parametrize("said", [None, True, False])
@pytest.mark.parametrize(("source", "default"), [(TextModel, True), (CasedTextModel, False)])
def test_casing_is_the_models_or_else_the_scripts(folder, source, default, said):
    if said is not None:
        (folder / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": said}))
    model = source(init_checkpoint=str(folder))
    opened = ModelFolder.of(model, model)
    assert opened.do_lower_case is (default if said is None else said)
    tokenizer = opened.load_tokenizer(())
    assert tokenizer.basic_tokenizer.do_lower_case is opened.do_lower_case
    assert tokenizer.model_max_length == opened.config.max_position_embeddings


def test_a_vocabulary_that_is_not_the_models_is_refused(folder, tmp_path):
    words = ["[PAD]", "[UNK]", *(f"w{number}" for number in range(12))]
    (folder / "vocab.txt").write_text("\n".join(words))
    (folder / "added_tokens.json").write_text(json.dumps({"new": len(words)}))
    own, given = [*words, "new"], tmp_path / "given.txt"
    for changed, is_right in ((own, True), (own[:2] + own[:1:-1], False), (own[:8], True)):
        given.write_text("\n".join(changed))
        opened = ModelFolder.open(str(folder), vocab_file=str(given))
        with (
            contextlib.nullcontext()
            if is_right
            else pytest.raises(ValueError, match=r"given\.txt' differs from .*vocab\.txt'")
        ):
            opened.load_tokenizer(())

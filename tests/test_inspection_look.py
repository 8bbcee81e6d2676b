import dataclasses

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
from conftest import change
from helpers.served_models import CONFIG, WORDS, load_pretrained, make_model, save_model

import bert
import modeling
import tokenization
from bert.inspection import look as looking
from bert.inspection.look import GOALS, Word, find_goals, look, open_inspected, read, read_words
from bert.inspection.page import format_inspection
from bert.models.options import QueriedModel
from bert.models.vectors import find_encoder
from bert.text.added_tokens import AddedToken
from bert.weights import saving
from bert.weights.folder import ModelFolder

TEXTS = ("The old [MASK] told a story", "who heard the [MASK]?")


def open_folder(folder, **options):
    return open_inspected(QueriedModel(model_dir=str(folder), **options))


@pytest.fixture(scope="module")
def pretrained():
    """The original's small model, with weights that are large enough to say something."""
    model = load_pretrained()
    for variable in model.masked.weights:
        variable.assign(variable * 3)
    return model


@pytest.fixture(scope="module")
def inspection(pretrained):
    return look(pretrained, read(pretrained, TEXTS), top_k=4)


def test_the_text_is_read_as_the_model_reads_it(pretrained, inspection):
    reading = inspection.reading
    expected = pretrained.read_text(TEXTS)
    assert reading.tokens == expected.tokens
    assert (reading.input_ids, reading.segment_ids) == (expected.input_ids, expected.segment_ids)
    pieces = [piece for word in reading.words for piece in word.pieces]
    assert pieces == reading.tokens
    assert [word.typed for word in reading.words if word.typed] == " ".join(TEXTS).replace(
        "?", " ?"
    ).split()


def test_attention_is_that_of_the_encoder_on_the_text(pretrained, inspection):
    reading = inspection.reading
    ids, segments = np.array([reading.input_ids]), np.array([reading.segment_ids])
    encoder = find_encoder(pretrained.model)
    encoded = encoder({"input_ids": ids, "segment_ids": segments}, attention_probs=True)
    config, length = pretrained.config, len(reading.tokens)
    shape = (config.num_hidden_layers, config.num_attention_heads, length, length)
    assert inspection.attention.shape == shape
    for number, layer in enumerate(encoded["attention_probs"]):
        np.testing.assert_array_equal(inspection.attention[number], layer[0])
    assert inspection.attention.std(axis=1).max() > 0.01


def head_probabilities(model, hidden):
    """Returns what the masked-LM head makes of [H], in NumPy: [V]."""
    values = {each.path: each.numpy().astype(np.float64) for each in model.weights}
    scope = "cls/predictions/transform"
    x = hidden @ values[f"{scope}/dense/kernel"] + values[f"{scope}/dense/bias"]
    x = 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
    x = (x - x.mean()) / x.std()
    x = x * values[f"{scope}/LayerNorm/gamma"] + values[f"{scope}/LayerNorm/beta"]
    [table] = [each for name, each in values.items() if "embeddings/word_embeddings" in name]
    logits = x @ table.T + values["cls/predictions/output_bias"]
    return np.exp(logits - logits.max()) / np.exp(logits - logits.max()).sum()


def test_each_layer_is_read_by_the_head(pretrained, inspection):
    reading, masked = inspection.reading, pretrained.masked
    ids, segments = np.array([reading.input_ids]), np.array([reading.segment_ids])
    encoded = masked.get_layer("bert")({"input_ids": ids, "segment_ids": segments})
    layers = [encoded["embedding_output"], *encoded["encoder_layers"]]
    assert list(inspection.masks) == [
        place for place, t in enumerate(reading.tokens) if t == "[MASK]"
    ]
    for position, found in inspection.masks.items():
        assert len(found) == len(layers)
        for guesses, layer in zip(found, layers, strict=True):
            expected = head_probabilities(masked, np.asarray(layer)[0, position].astype(float))
            said = [pretrained.tokenizer.vocab[guess.token] for guess in guesses]
            given = [guess.probability for guess in guesses]
            np.testing.assert_allclose(given, np.sort(expected)[::-1][:4], rtol=1e-3)
            np.testing.assert_allclose(given, expected[said], rtol=1e-3)
    assert found[0] != found[-1]


def test_the_last_layer_says_what_the_model_says(pretrained, inspection):
    [filled] = pretrained.fill_mask([TEXTS], top_k=4)
    for found, expected in zip(inspection.masks.values(), filled, strict=True):
        assert [guess.token for guess in found[-1]] == [guess.token for guess in expected]
        # Its layers are normalized by another kernel.
        given, known = ([guess.probability for guess in each] for each in (found[-1], expected))
        np.testing.assert_allclose(given, known, rtol=1e-3)
    [is_next] = pretrained.next_sentence([TEXTS])
    assert inspection.is_next == pytest.approx(is_next, rel=1e-5)
    assert inspection.notes == []


def test_where_attention_goes_adds_up():
    tokens = ["[CLS]", "a", "b", "c", "[SEP]"]
    attention = np.zeros((1, 2, 5, 5))
    attention[0, 0] = np.eye(5)
    attention[0, 1] = np.eye(5, k=1)
    attention[0, 1, 4, 1] = 1
    shares = dict(zip(GOALS, find_goals(attention, tokens)[0], strict=True))
    # Of the first head, [CLS] and [SEP] see themselves; of the second, c sees [SEP].
    assert shares == pytest.approx(
        {"[CLS]": 0.1, "[SEP]": 0.2, "itself": 0.3, "the one before": 0, "the one after": 0.3,
         "others": 0.1}
    )  # fmt: skip


def test_attention_goes_somewhere(inspection):
    np.testing.assert_allclose(
        find_goals(inspection.attention, inspection.reading.tokens).sum(axis=1), 1, atol=1e-5
    )


ASKED = {
    "labels": ("red a", ""),
    "pairs": ("red a", "b"),
    "number": ("red a", "b"),
    "answers": ("red ?", "a red b green"),
    "entities": ("red a b", ""),
}


@pytest.mark.parametrize("name", ASKED)
def test_a_fine_tuned_model_answers_as_it_does_elsewhere(name, tmp_path):
    folder = save_model(name, tmp_path / "model")
    model = open_folder(folder)
    inspection = look(model, read(model, ASKED[name]))
    [answer] = bert.load(folder).predict([tuple(filter(None, ASKED[name]))])
    assert inspection.answer == answer
    assert inspection.attention.shape[:2] == (1, 2)
    np.testing.assert_allclose(inspection.attention.sum(-1), 1, atol=1e-5)
    assert inspection.masks == {} and inspection.is_next is None and inspection.notes == []


def test_a_tagger_of_characters_reads_them_one_by_one():
    model = make_model("entities")
    tags = dataclasses.replace(model.task.tag_set, unit="character")
    model.task = dataclasses.replace(model.task, tag_set=tags)
    words = read(model, ("\u304b\u306a red", "")).words
    assert [word.typed for word in words] == ["", "\u304b", "\u306a", "red", ""]


@pytest.mark.parametrize(
    ("name", "texts", "note"),
    [
        ("choices", ("a", "b"), "chooses among several endings"),
        ("pairs", ("a", ""), "text_b is given as the second"),
        ("answers", ("a", ""), "context is given as the second"),
    ],
)
def test_what_a_fine_tuned_model_cannot_answer_is_noted(name, texts, note):
    model = make_model(name)
    inspection = look(model, read(model, texts))
    assert inspection.answer is None and note in inspection.notes[0]
    assert inspection.attention.size


def save_encoder(folder, **changes):
    config = change(CONFIG, **changes)
    encoder = modeling.BertModel(config)
    encoder.build(None)
    folder.mkdir()
    vocabulary = "".join(f"{word}\n" for word in WORDS).encode()
    ModelFolder(str(folder)).save(config, vocabulary, do_lower_case=True)
    tensors = {each.path: each.numpy() for each in encoder.weights}
    saving.save_tensors(str(folder / "bert_model.ckpt"), tensors)
    return str(folder)


def test_an_encoder_alone_and_a_decoder_say_what_they_lack(tmp_path):
    model = open_folder(save_encoder(tmp_path / "encoder"))
    inspection = look(model, read(model, ("a b", "")))
    assert "no masked-LM head, cls/predictions" in inspection.notes[0]
    assert inspection.attention.shape == (1, 2, 4, 4)
    model = open_folder(save_encoder(tmp_path / "decoder", is_decoder=True))
    inspection = look(model, read(model, ("a b", "")))
    assert "reads from left to right" in inspection.notes[0]
    assert not np.triu(inspection.attention, 1).any()


def test_what_cannot_be_looked_into_is_an_error(pretrained, tmp_path, monkeypatch):
    with pytest.raises(ValueError, match=r"at least one token. Received \[' ', ''\]"):
        read(pretrained, (" ", ""))
    with pytest.raises(ValueError, match=r"at most 8 tokens.*`max_seq_length`\. It has 9"):
        read(pretrained, ("the " * 7, ""), 8)
    limit = pretrained.config.max_position_embeddings
    with pytest.raises(ValueError, match=rf"at most {limit} tokens.*`max_position_embeddings`"):
        read(pretrained, ("the " * limit, ""))
    model = make_model("labels")
    with pytest.raises(ValueError, match="at most 16 tokens"):
        read(model, ("a " * 15, ""))
    with pytest.raises(ValueError, match=r"`text_b` must not be given.*Received 'b'"):
        read(model, ("a", "b"))
    model = make_model("answers")
    assert read(model, ("a " * 6, "b")).tokens.count("a") == 6
    with pytest.raises(ValueError, match=r"question must have at most 6 .*_query_len.*It has 7\."):
        read(model, ("a " * 7, "b"))
    monkeypatch.setattr(looking, "MAX_WEIGHTS", 4 * 10**2)
    with pytest.raises(ValueError, match=r"at most 10 tokens.*400 weights of attention in 4 heads"):
        read(pretrained, ("the " * 9, ""))
    # LSTMs have no such weights.
    lstms = open_folder(save_encoder(tmp_path / "lstms", encoder_type="bilstm"))
    assert len(read(lstms, ("a " * 28, "")).tokens) == 30
    with pytest.raises(ValueError, match=r"at most 32 tokens.*`max_position_embeddings`"):
        read(lstms, ("a " * 31, ""))
    (tmp_path / "saved_model.pb").write_bytes(b"")
    with pytest.raises(ValueError, match=r"`model_dir` must have the weights.*an export\."):
        open_folder(str(tmp_path))


def test_a_length_that_the_model_lacks_is_that_of_the_flag(tmp_path):
    folder = save_model("labels", tmp_path / "model")
    message = r"^`max_seq_length` must be at most 32, the `max_position_embeddings`.*Received 33"
    with pytest.raises(ValueError, match=message):
        open_folder(folder, max_seq_length=33)
    model = open_folder(folder, max_seq_length=32)
    assert len(read(model, ("a " * 30, "")).tokens) == 32


def test_it_is_told_in_lines(inspection):
    text = format_inspection(inspection)
    for guesses in inspection.masks.values():
        for number, layer in enumerate(guesses[1:]):
            line = "  ".join(f"{each.token} {each.probability:.3f}" for each in layer)
            assert f"layer {number}  {line}".split() in [line.split() for line in text.splitlines()]
    assert f"{inspection.is_next:.4f}  is the probability that the second follows." in text
    first = inspection.reading
    place = first.tokens.index("told")
    assert f"{place} 0 told told told {first.input_ids[place]}".split() in [
        line.split() for line in text.splitlines()
    ]
    assert "≠ cleaning changed it" in text and "? the vocabulary lacks the word" not in text


def test_lines_tell_no_shares_of_attention_where_there_is_none(inspection):
    without = dataclasses.replace(inspection, attention=np.zeros((0, 0, 5, 5)))
    assert "Where attention goes" in format_inspection(inspection)
    assert "Where attention goes" not in format_inspection(without)


def test_nothing_that_cannot_be_seen_reaches_the_terminal(pretrained):
    reading = read(pretrained, ("a\x1b[31m\u202eb\ud800\u200d\xa0", ""))
    text = format_inspection(look(pretrained, reading))
    assert not set(text) & {"\x1b", "\u202e", "\ud800", "\u200d", "\xa0"}
    assert r"a\x1b[31m\u202eb\ud800\u200d\xa0" in text
    assert "? the vocabulary lacks the word" in text


PIECES = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    "the",
    "cafe",
    "##s",
    "don",
    "'",
    "t",
    "中",
    ".",
]
VOCAB = {word: number for number, word in enumerate(PIECES)}
CASED = tokenization.FullTokenizer.from_vocab(VOCAB, do_lower_case=False)
UNCASED = tokenization.FullTokenizer.from_vocab(VOCAB)
ADDED = tokenization.FullTokenizer.from_vocab(
    VOCAB,
    added_tokens=[AddedToken("<a>", normalized=False, lstrip=True), AddedToken("The B")],
)


def test_each_stage_is_told():
    words = read_words("The Cafés\u200b don't 中x [MASK].", UNCASED, "[MASK]")
    assert words == [
        Word("The", "the", ["the"], ["the"]),
        Word("Cafés\u200b", "cafes", ["cafes"], ["cafe", "##s"]),
        Word("don't", "don't", ["don", "'", "t"], ["don", "'", "t"]),
        Word("中x", " 中 x", ["中", "x"], ["中", "[UNK]"]),
        Word("[MASK]", "[MASK]", ["[MASK]"], ["[MASK]"]),
        Word(".", ".", ["."], ["."]),
    ]


def test_a_word_of_which_nothing_remains_is_told_too():
    assert read_words("the \u200b", UNCASED)[1] == Word("\u200b", "", [], [])


def test_cased_words_and_marks_stay():
    [word] = read_words("Cafés", CASED)
    assert (word.cleaned, word.pieces) == ("Cafés", ["[UNK]"])
    # Not of a model that fills masks.
    pieces = [piece for word in read_words("[MASK]", CASED) for piece in word.pieces]
    assert pieces == ["[UNK]"] * 3


def test_added_tokens_stay_whole():
    words = read_words("the <a> the b the", ADDED)
    assert [word.pieces for word in words] == [["the"], ["<a>"], ["The B"], ["the"]]
    assert words[1].typed == " <a>"


@pytest.mark.parametrize("tokenizer", [CASED, UNCASED, ADDED], ids=["cased", "uncased", "added"])
@hypothesis.given(
    text=st.text()
    | st.lists(
        st.sampled_from([*PIECES, "Σ", "ΑΣ", " ", "\x1c", "\x85", "\u2028", "é", "́", "<a>"])
    ).map("".join)
)
def test_pieces_are_those_of_the_tokenizer_and_nothing_typed_is_lost(tokenizer, text):
    words = read_words(text, tokenizer)
    assert [piece for word in words for piece in word.pieces] == tokenizer.tokenize(text)
    if tokenizer is not ADDED:
        assert "".join("".join(word.typed for word in words).split()) == "".join(text.split())

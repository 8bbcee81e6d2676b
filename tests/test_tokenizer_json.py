import json

import pytest

import tokenization
import tokenizer_json

VOCAB = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "##b", "é"]


def write(path, *, added=(), normalizer=None, **model):
    ids = {token: number for number, token in enumerate(VOCAB)}
    # Whatever the order of the file, ids count.
    vocab = dict(sorted(ids.items()))
    values = {
        "added_tokens": list(added),
        "normalizer": normalizer,
        "model": {"type": "WordPiece", "vocab": vocab, **model},
    }
    path.write_text(json.dumps(values), encoding="utf-8")
    return str(path)


def test_vocabulary_is_that_of_the_text_file(tmp_path):
    (tmp_path / "vocab.txt").write_bytes(tokenizer_json.vocab_text(VOCAB))
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
    assert tokenizer_json.read_casing(path.read_bytes(), str(path)) is casing


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


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"model": 3}'])
def test_what_is_no_tokenizer_is_named(tmp_path, text):
    (tmp_path / "tokenizer.json").write_text(text)
    with pytest.raises(ValueError, match=r"tokenizer.json', whose `model` has no `vocab`"):
        tokenization.load_vocab(str(tmp_path / "tokenizer.json"))

"""What the original's tokenization_test.py asks of its module, with words of our own."""

import pytest

import tokenization

WORDS = ["[UNK]", "[CLS]", "[SEP]", "read", "un", "##read", "##able", "##s", "book", ","]


@pytest.fixture
def vocab_file(tmp_path):
    path = tmp_path / "vocab.txt"
    path.write_text("".join(f"{word}\n" for word in WORDS))
    return str(path)


def test_texts_become_ids_as_in_the_original(vocab_file):
    tokenizer = tokenization.FullTokenizer(vocab_file)
    tokens = tokenizer.tokenize("UNr\u00e9adable,books")
    assert tokens == ["un", "##read", "##able", ",", "book", "##s"]
    assert tokenizer.convert_tokens_to_ids(tokens) == [4, 5, 6, 9, 8, 7]
    assert tokenizer.convert_ids_to_tokens([4, 5, 6, 9, 8, 7]) == tokens


def test_chinese_characters_are_words():
    basic = tokenization.BasicTokenizer()
    assert basic.tokenize("to\u5317\u4eacgo") == ["to", "\u5317", "\u4eac", "go"]


@pytest.mark.parametrize(
    ("lower", "words"),
    [
        (True, ["good", "morning", "!", "how", "is", "it", "?", "noel"]),
        (False, ["Good", "MORNING", "!", "how", "Is", "it", "?", "No\u00ebl"]),
    ],
)
def test_basic_tokenization_splits_at_space_and_punctuation(lower, words):
    basic = tokenization.BasicTokenizer(do_lower_case=lower)
    assert basic.tokenize(" \tGood MORNING!how  \n Is it?No\u00ebl ") == words


def test_word_pieces_are_the_longest_that_fit_or_none_at_all():
    pieces = tokenization.WordpieceTokenizer(vocab={word: n for n, word in enumerate(WORDS)})
    assert pieces.tokenize("") == []
    assert pieces.tokenize("unreadable books") == ["un", "##read", "##able", "book", "##s"]
    # One piece that is missing makes all of its word unknown.
    assert pieces.tokenize("unreadableX reads") == ["[UNK]", "read", "##s"]


def test_tokens_and_ids_are_each_others_by_the_vocabulary(vocab_file):
    vocab = tokenization.load_vocab(vocab_file)
    assert list(vocab.items()) == [(word, index) for index, word in enumerate(WORDS)]
    inverse = {index: word for word, index in vocab.items()}
    ids = tokenization.convert_tokens_to_ids(vocab, ["un", "##able", "[CLS]"])
    assert ids == [4, 6, 1]
    assert tokenization.convert_ids_to_tokens(inverse, ids) == ["un", "##able", "[CLS]"]
    assert tokenization.convert_by_vocab(vocab, ["book"]) == [8]


@pytest.mark.parametrize(
    ("is_such", "such", "not_such"),
    [
        (tokenization._is_whitespace, " \t\r\n\u00a0", "A-"),
        (tokenization._is_control, "\u0005", "A \t\r\U0001f4a9"),
        (tokenization._is_punctuation, "-$`.", "A "),
    ],
)
def test_classes_of_characters(is_such, such, not_such):
    assert [bool(is_such(char)) for char in such] == [True] * len(such)
    assert [bool(is_such(char)) for char in not_such] == [False] * len(not_such)


def test_text_is_unicode_in_any_form():
    assert tokenization.convert_to_unicode("No\u00ebl".encode()) == "No\u00ebl"
    assert tokenization.convert_to_unicode("No\u00ebl") == "No\u00ebl"
    assert tokenization.whitespace_tokenize("  a  b\tc \n") == ["a", "b", "c"]
    assert tokenization.whitespace_tokenize("   ") == []

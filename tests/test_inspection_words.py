import hypothesis
import hypothesis.strategies as st
import pytest

import tokenization
from bert.inspection.look import Word, read_words
from bert.text.added_tokens import AddedToken

WORDS = [
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
VOCAB = {word: number for number, word in enumerate(WORDS)}
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
        st.sampled_from([*WORDS, "Σ", "ΑΣ", " ", "\x1c", "\x85", "\u2028", "é", "́", "<a>"])
    ).map("".join)
)
def test_pieces_are_those_of_the_tokenizer_and_nothing_typed_is_lost(tokenizer, text):
    words = read_words(text, tokenizer)
    assert [piece for word in words for piece in word.pieces] == tokenizer.tokenize(text)
    if tokenizer is not ADDED:
        assert "".join("".join(word.typed for word in words).split()) == "".join(text.split())

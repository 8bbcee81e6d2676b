import itertools
import sys
import types
import unicodedata

import pytest
from helpers.raw_texts import is_worth_a_look
from hypothesis import example, given
from hypothesis import strategies as st

import tokenization
from bert.text.added_tokens import SPACES, AddedToken, Finder, is_word_character

VOCAB = {
    token: index for index, token in enumerate(["[UNK]", *"abc<>1/", *("##" + c for c in "abc1")])
}


def tokenize(text, *tokens, **options):
    return tokenization.FullTokenizer.from_vocab(VOCAB, added_tokens=tokens, **options).tokenize(
        text
    )


@pytest.mark.parametrize(
    ("token", "text", "pieces"),
    [
        (AddedToken("<a1>"), "b<a1>c", ["b", "<a1>", "c"]),
        (AddedToken("<a1>"), "<a1", ["<", "a", "##1"]),
        # As the text is cleaned, or as it stands.
        (AddedToken("<A1>"), "<a1>\xad<\xc01>", ["<A1>", "<A1>"]),
        (AddedToken("<A1>", normalized=False), "<a1><A1>", ["<", "a", "##1", ">", "<A1>"]),
        (AddedToken("a b"), "a\tb a\u2028b a  b", ["a b", "a b", "a", "b"]),
        (AddedToken("a b", normalized=False), "a\tb a b", ["a", "b", "a b"]),
        # Within words, or not.
        (AddedToken("ab"), "cabc", ["c", "ab", "c"]),
        (AddedToken("ab", single_word=True), "cabc ab>", ["c", "##a", "##b", "##c", "ab", ">"]),
        (AddedToken("ab", single_word=True, normalized=False), "ab\u24b6 ab", ["[UNK]", "ab"]),
        # A word is not split into a token that is added alone.
        (AddedToken("ab", normalized=False), "AB ab", ["a", "##b", "ab"]),
    ],
)  # fmt: skip
def test_an_added_token_is_not_split(token, text, pieces):
    assert tokenize(text, token) == pieces


@pytest.mark.parametrize(
    ("sides", "parts"),
    [
        ({}, ["a\x1f ", "<1>", " ", "<1>", "\x1f b"]),
        ({"lstrip": True}, ["a\x1f", " <1>", " <1>", "\x1f b"]),
        ({"rstrip": True}, ["a\x1f ", "<1> ", "<1>", "\x1f b"]),
        ({"lstrip": True, "rstrip": True}, ["a\x1f", " <1> ", "<1>", "\x1f b"]),
    ],
)
def test_spaces_beside_a_token_may_belong_to_it(sides, parts):
    token = AddedToken("<1>", **sides)
    assert [part for part, _ in Finder([token]).cut("a\x1f <1> <1>\x1f b")] == parts


def test_the_first_match_counts_and_then_the_longest():
    tokens = [AddedToken("ab"), AddedToken("abc"), AddedToken("bcab"), AddedToken("ca")]
    assert tokenize("abcab", *tokens) == ["abc", "ab"]
    assert tokenize("bcabca", *tokens) == ["bcab", "ca"]


def test_ids_of_added_tokens_follow_the_vocabulary():
    tokens = [AddedToken("<a1>"), AddedToken("a"), AddedToken("<b1>"), AddedToken("<a1>")]
    tokenizer = tokenization.FullTokenizer.from_vocab(VOCAB, added_tokens=tokens)
    size = len(VOCAB)
    assert tokenizer.tokenize_to_ids("<b1>a<a1>") == [size + 1, VOCAB["a"], size]
    assert tokenizer.convert_ids_to_tokens([size + 1]) == ["<b1>"]
    # An id that no token has is left free, so that none is given twice.
    gaps = {**VOCAB, "last": size + 5}
    tokenizer = tokenization.FullTokenizer.from_vocab(gaps, added_tokens=tokens)
    assert tokenizer.tokenize_to_ids("<b1>a<a1>") == [size + 7, VOCAB["a"], size + 6]
    # What is read from a file may have them already.
    again = tokenization.FullTokenizer.from_vocab(tokenizer.vocab, added_tokens=tokens)
    assert again.vocab == tokenizer.vocab


def test_another_way_to_clean_texts_cleans_tokens_too():
    token = AddedToken("<a1>")
    tokenizer = tokenization.FullTokenizer.from_vocab(VOCAB, added_tokens=[token])
    assert tokenizer.tokenize("<a1>b") == ["<a1>", "b"]
    tokenizer.basic_tokenizer.normalize = lambda text: text.replace("c", "a")
    assert tokenizer.tokenize("<c1>b") == ["<a1>", "b"]
    # What only tokenizes cleans nothing.
    tokenizer.basic_tokenizer = types.SimpleNamespace(tokenize=str.split)
    assert tokenizer.tokenize("<a1>b <c1>") == ["<a1>", "b", "[UNK]"]


def test_of_tokens_with_the_same_text_the_special_one_counts_and_then_the_first():
    tokens = [AddedToken("<A>"), AddedToken("<a>", lstrip=True), AddedToken("<\xc1>", special=True)]
    vocab = {**VOCAB, **{token.content: 50 + number for number, token in enumerate(tokens)}}
    for count, (found, *parts) in ((3, ("<\xc1>", "b ", "<a>")), (2, ("<A>", "b ", "<a>"))):
        tokenizer = tokenization.FullTokenizer.from_vocab(vocab, added_tokens=tokens[:count])
        assert tokenizer.tokenize("b <a>") == ["b", found]
        _, finder = tokenizer.added_finders
        assert [part for part, _ in finder.cut("b <a>")] == parts


pieces_of_text = st.lists(
    st.sampled_from(["<1>", "<1", ">", "ab", "abc", " ", "_", "\xe9", "b"]), max_size=8
).map("".join)
random_tokens = st.lists(
    st.builds(
        AddedToken,
        st.sampled_from(["<1>", "ab", "abc", " b", "1>", "\xe9"]),
        *[st.booleans()] * 3,
        normalized=st.just(False),
    ),
    max_size=4,
    unique_by=lambda token: token.content,
)


@given(random_tokens, pieces_of_text)
@example(
    [
        AddedToken("ab", rstrip=True, normalized=False),
        AddedToken(" b", lstrip=True, normalized=False),
    ],
    "ab b",
)
def test_the_parts_are_the_text(tokens, text):
    parts = list(Finder(tokens).cut(text))
    assert "".join(part for part, _ in parts) == text or any(token.rstrip for token in tokens)
    for part, token in parts:
        if token is None:
            # What must be a word of its own, but is none, hides others.
            hidden = any(each.single_word or each.rstrip for each in tokens)
            assert hidden or not any(each.content in part for each in tokens)
        else:
            # Its own space may be that of a token before it.
            takes = any(each.rstrip for each in tokens)
            content = token.content.lstrip() if takes else token.content
            assert part.endswith(content) or token.rstrip
            assert part == token.content or token.lstrip or token.rstrip


def test_word_characters_and_spaces_are_those_of_unicode():
    marked = {
        chr(code)
        for code in range(sys.maxunicode + 1)
        if unicodedata.category(chr(code))[0] in "LM"
    }
    for char in "a\xe91\u0663\u2163_\u203f\u0301\u0903\u24b6\u200d\U0001f130":
        assert is_word_character(char)
    for char in " -\xb2\u2460\u2603\xad\u2028":
        assert not is_word_character(char)
    assert all(map(is_word_character, marked))
    # Python's white space has four separators more.
    pythons = {chr(code) for code in range(0x3001) if chr(code).isspace()}
    assert {*SPACES} == pythons - set("\x1c\x1d\x1e\x1f")


@pytest.mark.parametrize(
    "values", [{}, {"content": ""}, {"content": 3}, {"content": "a", "lstrip": "no"}]
)
def test_a_wrong_added_token_is_named(values):
    with pytest.raises(ValueError, match=r"An added token must have text as `content`.*Received"):
        AddedToken.from_dict(values)


def test_an_added_token_survives_a_file():
    token = AddedToken("<e1>", lstrip=True, special=True)
    assert AddedToken.from_dict(token.to_dict()) == token
    assert AddedToken.from_dict({"content": "<e1>", "id": 5, "__type": "AddedToken"}) == AddedToken(
        "<e1>"
    )


def test_cleaning_twice_is_cleaning_once():
    """So what was cleaned to find tokens in it may be tokenized as any text."""
    characters = [char for char in map(chr, range(0x30000)) if is_worth_a_look(char)]
    for lower, strips, chinese in itertools.product([True, False], repeat=3):
        basic = tokenization.BasicTokenizer(
            lower, strip_accents=strips, tokenize_chinese_chars=chinese
        )
        for char in characters:
            assert basic.tokenize(basic.normalize(char)) == basic.tokenize(char)


def test_remaining_marks_keep_their_order():
    # What stood between them is dropped; to clean once more would change their order.
    text = "c\u302e\U000e01e5\U0001d165"
    vocab = {**VOCAB, "##\u302e": 90, "##\U0001d165": 91}
    for tokens in ([], [AddedToken("ab")]):
        tokenizer = tokenization.FullTokenizer.from_vocab(vocab, added_tokens=tokens)
        assert tokenizer.tokenize(text) == ["c", "##\u302e", "##\U0001d165"]

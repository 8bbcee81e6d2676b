from itertools import chain

import pytest
from conftest import GOLDEN
from hypothesis import example, given
from hypothesis import strategies as st

import tokenization
from bert.text.added_tokens import AddedToken

VOCAB = str(GOLDEN / "vocab.txt")
texts = st.text(
    st.one_of(
        st.sampled_from(
            "abcThe the  .,'-_#[]\0\x01\t\n\r\x0b\x1f\x7f\x85\xa0\xe9\u03a3\u4e2d\u0301"
        ),
        st.characters(max_codepoint=127),
        st.characters(),
    ),
    max_size=30,
)


@pytest.fixture(scope="module", params=[True, False], ids=["uncased", "cased"])
def tokenizer(request):
    return tokenization.FullTokenizer(VOCAB, do_lower_case=request.param)


def line_by_line(tokenizer, lines):
    ids = [tokenizer.tokenize_to_ids(line) for line in lines]
    return list(chain.from_iterable(ids)), [len(each) for each in ids]


def at_once(tokenizer, lines):
    ids, counts = tokenizer.tokenize_lines_to_ids(lines)
    return ids.tolist(), counts.tolist()


@given(st.lists(texts, max_size=6))
@example([])
@example(["", "", "The", ""])
@example(["\0", "the\ncat", "the \0 cat", "a" * 16, "a" * 17, "a" * 201])
def test_many_lines_have_the_ids_of_each(tokenizer, lines):
    assert at_once(tokenizer, lines) == line_by_line(tokenizer, lines)


def test_one_text_bytes_and_lines_that_are_read_once_are_lines_too(tokenizer):
    lines = ["the cat", "thé \0 cat"]
    assert at_once(tokenizer, lines[0]) == line_by_line(tokenizer, lines[:1])
    for several in (iter(lines), [line.encode() for line in lines]):
        assert at_once(tokenizer, several) == line_by_line(tokenizer, lines)
    with pytest.raises(ValueError, match="Received NoneType"):
        tokenizer.tokenize_lines_to_ids([None])


def test_each_byte_is_tokenized_as_in_a_single_line(tokenizer):
    lines = [f"the{chr(code)}cat{chr(code)}" for code in range(256)]
    assert at_once(tokenizer, lines) == line_by_line(tokenizer, lines)


def test_equal_words_have_equal_bytes():
    words = ["abcdefgh", "abcdefg", "abcdefghi", "abcdefghj", "h", "abcdefgh"]
    words += ["abcdefgh" + word for word in words] + ["a" * 17, "a" * 16, "a" * 17, "a" * 16 + "b"]
    vocab = {word: number for number, word in enumerate(["[UNK]", *dict.fromkeys(words)])}
    tokenizer = tokenization.FullTokenizer.from_vocab(vocab)
    ids, counts = at_once(tokenizer, [" ".join(words), *words])
    assert ids == 2 * [vocab[word] for word in words]
    assert counts == [len(words)] + [1] * len(words)


def test_added_tokens_are_not_split(tokenizer):
    added = tokenization.FullTokenizer(VOCAB, added_tokens=[AddedToken("<the>")])
    lines = ["a <the> cat", "<the>", "the"]
    assert at_once(added, lines) == line_by_line(added, lines)
    assert at_once(added, lines) != at_once(tokenizer, lines)


@pytest.mark.parametrize("method", ["tokenize", "tokenize_to_ids"])
def test_a_method_that_a_subclass_overrides_counts(tokenizer, method):
    def reverse(self, text):
        return getattr(tokenization.FullTokenizer, method)(self, text)[::-1]

    other = type("Reversed", (tokenization.FullTokenizer,), {method: reverse})(VOCAB)
    lines = ["the cat.", "a man", "\u4e2d the"]
    assert at_once(other, lines) == line_by_line(other, lines)
    assert at_once(other, lines)[0][:3] == at_once(tokenizer, lines)[0][2::-1]


def test_changes_between_two_calls_count():
    tokenizer = tokenization.FullTokenizer.from_vocab({"[UNK]": 0, "the": 1})
    assert at_once(tokenizer, ["the cat The"])[0] == [1, 0, 1]
    tokenizer.wordpiece_tokenizer.vocab["cat"] = tokenizer.vocab["cat"] = 7
    assert at_once(tokenizer, ["the cat The"])[0] == [1, 7, 1]
    tokenizer.basic_tokenizer.do_lower_case = False
    assert at_once(tokenizer, ["the cat The"])[0] == [1, 7, 0]

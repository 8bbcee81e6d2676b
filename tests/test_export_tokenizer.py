import functools
import gzip
import importlib.util
import itertools
import json

import numpy as np
import pytest
import tensorflow as tf
from conftest import GOLDEN, LARGE_GOLDEN, ROOT, exhaustive
from helpers.raw_texts import (
    BATCH,
    ODD,
    SPECIALS,
    batches,
    characters,
    graph,
    is_worth_a_look,
    many_characters,
    raw_texts,
)
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import tokenization
from bert.export.formats import CORE, TEXT
from bert.export.tokenizer import GraphTokenizer

VOCABULARIES = ROOT.parent / "shared" / "data" / "vocab"


# Tables of all characters take seconds.
END = 0x600


@functools.cache
def every_character(end=0x110000):
    """A vocabulary in which hardly a character before `end` hides behind [UNK]."""
    characters = [chr(code) for code in range(33, end) if not 0xD800 <= code < 0xE000]
    characters = [*filter(is_worth_a_look, characters), *(char for char in ODD if char > " ")]
    tokens = dict.fromkeys([*SPECIALS, *characters, *("##" + char for char in characters)])
    return {token: index for index, token in enumerate(tokens)}


WAYS = {
    "uncased": (True, None, True),
    "cased": (False, None, True),
    "uncased with accents": (True, False, True),
    "cased without accents": (False, True, True),
    "uncased with chinese words": (True, None, False),
    "cased with chinese words": (False, None, False),
}


# Each value of each of the three, but that accents stay, which `ADDED_OFTEN` has; all that they may
# be together takes minutes.
OFTEN = ("uncased", "cased with chinese words")


RARELY = exhaustive(*(way for way in WAYS if way not in OFTEN))


@pytest.fixture(scope="module", params=[*OFTEN, *RARELY])
def pair(request):
    """A tokenizer and its graph."""
    lower, strips, chinese = WAYS[request.param]
    tokenizer = tokenization.FullTokenizer.from_vocab(
        every_character(), lower, strip_accents=strips, tokenize_chinese_chars=chinese
    )
    return tokenizer, graph(GraphTokenizer(tokenizer).tokenize)


def assert_same(pair, batch):
    tokenizer, tokenize = pair
    expected = [tokenizer.tokenize_to_ids(text) for text in batch]
    assert tokenize(tf.constant(batch, tf.string)).to_list() == expected


@given(batches)
@example(
    [
        "\u0391\u03a3.\u0391 \u0391\u03a3\u4e2d \u0391\u03a3, \u0391\u03a3'\u0391",
        "\u03a3",
        "\u03a3a",
    ]
)
@example(["\u0391\u03a3", "\u03a3\u0391", "\u03a3\u03a3 \u0391\u03a3\xad.\u0301 x", "\u0345\u03a3"])
@example(
    ["x\U0001d16d\U0001d165 \U0001d160\u302e\u302f\u0323\u0301\U0001d165", "\u302e\u034f\u302f"]
)
@example(["\xc4\u1e9e\u0130I\u0131 \u1e69 \ud55c\u09cb", "[MASK] [CLS]##a", "\ufeffa\ufffdb"])
def test_graph_tokenizes_any_text_as_python_does(pair, batch):
    assert_same(pair, batch)


@given(st.lists(raw_texts, min_size=BATCH, max_size=BATCH))
@example(
    [
        b"a\xff\xfeb",
        b"\xe4\xb8a\xe4\xb8\xad",
        b"\xed\xa0\x80\xf4\x90\x80\x80c",
        b"\xce\xa3\xff\xce\xa3",
    ]
)
def test_bytes_that_are_not_utf8_are_dropped_as_in_python(pair, batch):
    assert_same(pair, batch)


CONTENTS = ["<e1>", "</e1>", "<E2>", "[MASK]", "ab", "abc", "b", "\xc9", " a", "b ", "\u4e2d\u6587"]
added_texts = st.lists(
    st.one_of(
        st.sampled_from(CONTENTS),
        st.text("abABc xe1<>\xe9\u4e2d\u3000\u2028_", max_size=3),
        characters,
    ),
    max_size=8,
).map("".join)
ADDED = [
    # Each attribute for some of those that overlap.
    {},
    {"lstrip": CONTENTS},
    {"rstrip": CONTENTS},
    {"single_word": CONTENTS, "normalized": ["ab", "\xc9", "<E2>"]},
    {"normalized": CONTENTS},
    {
        "normalized": CONTENTS[::2],
        "lstrip": ["ab", "<e1>"],
        "rstrip": ["abc", "b "],
        "special": ["b"],
        "single_word": ["\xc9", "\u4e2d\u6587"],
    },
]


# One with each attribute.
ADDED_OFTEN = (5, "uncased with accents")
ADDED_WAYS = list(itertools.product(range(len(ADDED)), WAYS))[::5]
ADDED_RARELY = exhaustive(*((each,) for each in ADDED_WAYS))


@pytest.fixture(scope="module", params=[ADDED_OFTEN, *ADDED_RARELY], ids=str)
def added_pair(request):
    """A tokenizer with added tokens and its graph."""
    number, way = request.param
    lower, strips, chinese = WAYS[way]
    names = {"normalized": [], **ADDED[number]}
    tokenizer = tokenization.FullTokenizer.from_vocab(
        every_character(END),
        lower,
        strip_accents=strips,
        tokenize_chinese_chars=chinese,
        added_tokens=[
            tokenization.AddedToken(content, **{name: content in of for name, of in names.items()})
            for content in CONTENTS
        ],
    )
    return tokenizer, graph(GraphTokenizer(tokenizer).tokenize)


@given(st.lists(added_texts, min_size=BATCH, max_size=BATCH))
@example(["x<e1>y", "<e1>", "", "  <e1>  ", "<E2>\xc9a", "abcab", "b b ab", "\u4e2d\u6587\u4e2d"])
@example(["ab\u302e\U000e01e5\U0001d165x", "", "", "", "", "", "", ""])
def test_added_tokens_stay_whole_in_the_graph_as_in_python(added_pair, batch):
    assert_same(added_pair, batch)


@given(st.lists(raw_texts, min_size=BATCH, max_size=BATCH))
def test_broken_text_around_added_tokens_is_dropped_as_in_python(added_pair, batch):
    assert_same(added_pair, [b"a\xffb".join([b"<e1>", text]) for text in batch])


def test_no_text_has_no_added_tokens(added_pair):
    assert_same(added_pair, [])
    assert_same(added_pair, [""])


@pytest.mark.slow
def test_graph_treats_every_character_as_python_does(pair):
    assert_same(pair, [f"A{char}\u03a3{char}b" for char in many_characters()])


def test_no_text_and_empty_texts_have_no_pieces(pair):
    assert_same(pair, [])
    assert_same(pair, ["", "  ", "\u200b", "a"])


NEEDS_TEXT = pytest.mark.skipif(
    importlib.util.find_spec("tensorflow_text") is None, reason="needs tensorflow-text"
)


@pytest.fixture(params=[CORE, pytest.param(TEXT, marks=NEEDS_TEXT)])
def wordpiece(request):
    return request.param


def read_golden(path):
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def assert_equals_golden(vocab_file, path, do_lower_case, wordpiece):
    tokenizer = tokenization.FullTokenizer(str(vocab_file), do_lower_case)
    cases = read_golden(path)
    # Lone surrogates are not text in UTF-8.
    lines = [case["text"].encode("utf-8", "ignore") for case in cases]
    ids = graph(GraphTokenizer(tokenizer, wordpiece).tokenize)(lines).to_list()
    assert [tokenizer.convert_ids_to_tokens(row) for row in ids] == [c["tokens"] for c in cases]


def test_tokens_equal_the_original(wordpiece):
    assert_equals_golden(GOLDEN / "vocab.txt", GOLDEN / "tokens.jsonl.gz", True, wordpiece)


@pytest.mark.skipif(not LARGE_GOLDEN.exists(), reason="needs ../shared/golden")
@pytest.mark.parametrize("name", ["uncased", "cased", "chinese"])
def test_tokens_of_released_vocabularies_equal_the_original(name, wordpiece):
    vocab_file = VOCABULARIES / f"bert-base-{name}-vocab.txt"
    path = LARGE_GOLDEN / f"tokens_{name}.jsonl.gz"
    assert_equals_golden(vocab_file, path, name != "cased", wordpiece)


vocabularies = st.lists(
    st.one_of(
        st.text("ab#\xe9\u4e2d\U0001d7d8", max_size=4),
        st.text("ab\xe9", min_size=1, max_size=4).map("##{}".format),
        st.sampled_from(["", "##", "#", "a b", "a" * 200, "##" + "\U0001d7d8" * 64, "b" * 300]),
    ),
    max_size=20,
)


# All examples are for the same operations.
@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    vocabularies,
    st.lists(st.text("abc#\xe9\u4e2d\U0001d7d8 ", max_size=12), max_size=BATCH),
    st.booleans(),
)
@example(["", "a", "", "a", "##b", "a"], ["a", "ab", "abb"], True)
def test_vocabularies_of_any_kind_give_the_same_pieces(wordpiece, tokens, batch, do_lower_case):
    # Later lines count, so ids have gaps.
    vocab = {token: index for index, token in enumerate([*tokens, *SPECIALS])}
    tokenizer = tokenization.FullTokenizer.from_vocab(vocab, do_lower_case)
    expected = [tokenizer.tokenize_to_ids(text) for text in batch]
    texts = tf.constant(batch, tf.string)
    assert GraphTokenizer(tokenizer, wordpiece).tokenize(texts).to_list() == expected


def test_words_of_more_than_200_characters_are_unknown(wordpiece):
    chars = ["a", "\u0434", "\u3042", "\U0001d7d8"]
    tokens = [each for char in chars for each in (char, "##" + char, char * 201)]
    vocab = {token: index for index, token in enumerate([*SPECIALS, *tokens])}
    tokenizer = tokenization.FullTokenizer.from_vocab(vocab)
    tokenize = graph(GraphTokenizer(tokenizer, wordpiece).tokenize)
    found = tokenize([char * count for char in chars for count in (200, 201)]).to_list()
    assert found[::2] == [[vocab[char]] + [vocab["##" + char]] * 199 for char in chars]
    assert found[1::2] == [[1]] * 4


@NEEDS_TEXT
def test_tokens_too_long_for_a_kernel_are_named():
    vocab = {t: i for i, t in enumerate([*SPECIALS, "##" + "\U0001d7d8" * 65])}
    with pytest.raises(ValueError, match=r"at most 256 bytes\. Received '##\U0001d7d8"):
        GraphTokenizer(tokenization.FullTokenizer.from_vocab(vocab), TEXT)


def test_tokens_may_be_as_long_as_words():
    long = "\U0001d7d8" * 199
    vocab = {t: i for i, t in enumerate([*SPECIALS, "a", "##" + long])}
    tokenizer = GraphTokenizer(tokenization.FullTokenizer.from_vocab(vocab))
    assert tokenizer.tokenize(["a" + long, "aa" + long]).to_list() == [[5, 6], [1]]


def test_the_longest_token_is_taken_first_and_a_word_without_an_end_is_unknown(wordpiece):
    tokens = [*SPECIALS, "un", "una", "##aff", "##ff", "##able", "##a", "##ble", "i"]
    ids = {token: index for index, token in enumerate(tokens)}
    tokenizer = GraphTokenizer(tokenization.FullTokenizer.from_vocab(ids), wordpiece)
    pieces = tokenizer.tokenize(["unaffable unx i", "", "una unable"]).to_list()
    expected = [["una", "##ff", "##able", "[UNK]", "i"], [], ["una", "una", "##ble"]]
    assert pieces == [[ids[token] for token in row] for row in expected]


def test_a_tokenizer_with_steps_of_its_own_is_not_put_into_a_graph():
    class Own(tokenization.BasicTokenizer):
        def _run_strip_accents(self, text):
            return text

    tokenizer = tokenization.FullTokenizer.from_vocab({t: i for i, t in enumerate(SPECIALS)})
    tokenizer.basic_tokenizer = Own()
    with pytest.raises(ValueError, match=r"with no method replaced\. Received .*Own"):
        GraphTokenizer(tokenizer)


def test_what_was_changed_goes_into_the_graph(wordpiece):
    tokenizer = tokenization.FullTokenizer.from_vocab({t: i for i, t in enumerate(SPECIALS)})
    tokenizer.vocab |= {"[?]": 5, "zwz": 6, "zwzw": 7}
    tokenizer.wordpiece_tokenizer.max_input_chars_per_word = 3
    tokenizer.wordpiece_tokenizer.unk_token = "[?]"
    texts = ["zwz a zwzw"]
    assert GraphTokenizer(tokenizer, wordpiece).tokenize(texts).to_list() == [[6, 5, 5]]
    assert tokenizer.tokenize_to_ids(texts[0]) == [6, 5, 5]


def test_the_special_tokens_must_be_in_the_vocabulary():
    tokenizer = tokenization.FullTokenizer.from_vocab({"[UNK]": 0, "[CLS]": 1})
    with pytest.raises(ValueError, match=r"Received '\[SEP\]', which is not among its 2"):
        GraphTokenizer(tokenizer)


@pytest.fixture(scope="module")
def words_pair():
    tokenizer = tokenization.FullTokenizer.from_vocab(every_character(END))
    return tokenizer, graph(GraphTokenizer(tokenizer).tokenize_words)


def split_at_whitespace(text):
    words, starts = [], []
    previous = " "
    for index, char in enumerate(text):
        if char not in " \t\r\n\u202f":
            if previous in " \t\r\n\u202f":
                words.append("")
                starts.append(index)
            words[-1] += char
        previous = char
    return words, starts


@given(st.lists(raw_texts, max_size=BATCH))
@example([b"", b" ", b"a", " \u202fna\xefve \u4e2d\t\u03a3 \xa0x\n".encode(), b"a\xff b"])
def test_words_have_their_place_and_their_pieces(words_pair, batch):
    tokenizer, tokenize_words = words_pair
    words, starts, pieces = tokenize_words(tf.constant(batch, tf.string))
    expected = [split_at_whitespace(text.decode("utf-8", "ignore")) for text in batch]
    assert [[w.decode() for w in row] for row in words.to_list()] == [row[0] for row in expected]
    assert starts.to_list() == [row[1] for row in expected]
    assert pieces.to_list() == [[tokenizer.tokenize_to_ids(w) for w in row[0]] for row in expected]


@functools.cache
def packer():
    return GraphTokenizer(tokenization.FullTokenizer(str(GOLDEN / "vocab.txt")))


def pack_in_python(first, second, max_seq_length):
    """Returns the padded features of token lists, with ids as strings."""
    packed = [
        tokenization.pack(a, b, max_length=max_seq_length)
        for a, b in zip(first, second, strict=True)
    ]
    length = max((len(tokens) for tokens, _ in packed), default=2)
    vocab = tokenization.load_vocab(str(GOLDEN / "vocab.txt"))
    rows = [(tokenization.convert_tokens_to_ids(vocab, tokens), s) for tokens, s in packed]
    return {
        "input_ids": [ids + [0] * (length - len(ids)) for ids, _ in rows],
        "input_mask": [[1] * len(ids) + [0] * (length - len(ids)) for ids, _ in rows],
        "segment_ids": [segments + [0] * (length - len(segments)) for _, segments in rows],
    }


token_lists = st.lists(st.sampled_from(["the", "cat", "##s", "a", "[UNK]"]), max_size=12)


@given(
    st.lists(st.tuples(token_lists, token_lists), max_size=4),
    st.booleans(),
    st.sampled_from([3, 4, 9, 20, 28]),
)
@example([([], [])], True, 3)
@example([(["the"], ["the"]), ([], ["the", "a"]), (["a"], [])], True, 4)
def test_packing_is_that_of_python(pairs, is_pair, max_seq_length):
    vocab = tokenization.load_vocab(str(GOLDEN / "vocab.txt"))
    first = [a for a, _ in pairs]
    second = [b if is_pair else [] for _, b in pairs]

    def ragged(rows):
        ids = [tokenization.convert_tokens_to_ids(vocab, row) for row in rows]
        return tf.ragged.constant(ids, tf.int32, ragged_rank=1, row_splits_dtype=tf.int64)

    given = [ragged(first), ragged(second)] if is_pair else [ragged(first)]
    features = packer().pack(*given, max_seq_length=max_seq_length)
    expected = pack_in_python(first, second, max_seq_length)
    assert features.keys() == expected.keys()
    for name, values in features.items():
        assert values.dtype == tf.int32
        length = values.shape[1]
        np.testing.assert_array_equal(values, np.reshape(expected[name], (len(pairs), length)))


def test_an_empty_batch_keeps_the_width_of_an_empty_text():
    tokenizer = packer()
    nothing = tokenizer.pack(tokenizer.tokenize(tf.constant([], tf.string)), max_seq_length=9)
    assert {name: tuple(values.shape) for name, values in nothing.items()} == {
        "input_ids": (0, 2),
        "input_mask": (0, 2),
        "segment_ids": (0, 2),
    }


@pytest.mark.parametrize(("is_pair", "least"), [(False, 2), (True, 3)])
def test_length_must_leave_room_for_special_tokens(is_pair, least):
    tokenizer = packer()
    ids = tokenizer.tokenize(["the cat"])
    with pytest.raises(ValueError, match=f"at least {least}.* Received {least - 1}"):
        tokenizer.pack(ids, ids if is_pair else None, max_seq_length=least - 1)

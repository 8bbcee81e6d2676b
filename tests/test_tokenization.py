import copy
import gzip
import io
import json
import pickle
import unicodedata

import pytest
from conftest import GOLDEN, LARGE_GOLDEN, ROOT
from hypothesis import example, given
from hypothesis import strategies as st

import tokenization

VOCABULARIES = ROOT.parent / "shared" / "data" / "vocab"

# Characters for which the order of cleaning, lower-casing and splitting matters.
ODD = (
    "\x00\t\n\r\x0b\x0c\x1c\x1d\x1e\x1f\x85\xa0\xad\u180e\u200b\u200d\u2028\u2029\u3000\ufeff\ufffd"
    "\u03a3\u03c3\u0391\u0130\u0131\xdf\u1e9e\u0301\u0345\u4e2d\uf900\U0002f800\U00020000\U0010ffff"
    "\ud800\udfff\u037e\u1fef\u2260 ,.;:'\"_-#[]$^`~<=>+|\u2019\u201c\xb7"
)
texts = st.text(st.one_of(st.sampled_from(ODD + "abABun##able  "), st.characters()), max_size=40)


@pytest.fixture(scope="module", params=[True, False], ids=["uncased", "cased"])
def tokenizer(request):
    return tokenization.FullTokenizer(str(GOLDEN / "vocab.txt"), do_lower_case=request.param)


def write_vocab(path, content):
    path.write_bytes(content)
    return str(path)


def is_cjk(char):
    return (
        "\u3400" <= char <= "\u4dbf"
        or "\u4e00" <= char <= "\u9fff"
        or "\uf900" <= char <= "\ufaff"
        or "\U00020000" <= char <= "\U0002a6df"
        or "\U0002a700" <= char <= "\U0002ceaf"
        or "\U0002f800" <= char <= "\U0002fa1f"
    )


def slow_words(text, do_lower_case):
    """What basic tokenization is, one character and one step at a time."""
    spaced = ""
    for char in text:
        category = unicodedata.category(char)
        if char in "\t\n\r" or category == "Zs":
            spaced += " "
        elif char != "\ufffd" and category not in ("Cc", "Cf"):
            spaced += f" {char} " if is_cjk(char) else char
    words = []
    for word in spaced.split():
        if do_lower_case:
            marked = unicodedata.normalize("NFD", word.lower())
            word = "".join(c for c in marked if unicodedata.category(c) != "Mn")  # noqa: PLW2901
        current = ""
        for char in word:
            is_symbol = char.isascii() and char.isprintable() and not char.isalnum()
            if is_symbol or unicodedata.category(char)[0] == "P":
                words += [current, char]
                current = ""
            else:
                current += char
        words.append(current)
    return " ".join(words).split()


def slow_pieces(word, vocab):
    """What WordPiece is: the longest piece that fits, again and again."""
    pieces, rest = [], word
    while rest and len(word) <= 200:
        for length in range(len(rest), 0, -1):
            piece = ("##" if pieces else "") + rest[:length]
            if piece in vocab:
                pieces.append(piece)
                rest = rest[length:]
                break
        else:
            break
    return ["[UNK]"] if rest else pieces


@given(texts)
@example("\u0391\u03a3.\u0391 \u0391\u03a3\u4e2d \u0391\u03a3, \u0391\u03a3'\u0391")
@example("a\x1fb a\x85b a\u2028b")
def test_tokenize_is_each_step_in_turn(tokenizer, text):
    words = slow_words(text, tokenizer.basic_tokenizer.do_lower_case)
    assert tokenizer.basic_tokenizer.tokenize(text) == words
    expected = [piece for word in words for piece in slow_pieces(word, tokenizer.vocab)]
    assert tokenizer.tokenize(text) == expected


@given(texts)
def test_ids_are_those_of_the_tokens(tokenizer, text):
    tokens = tokenizer.tokenize(text)
    ids = tokenizer.tokenize_to_ids(text)
    assert ids == tokenizer.convert_tokens_to_ids(tokens)
    assert tokenizer.convert_ids_to_tokens(ids) == tokens


@given(st.lists(texts, max_size=5), texts)
def test_tokens_do_not_depend_on_earlier_texts(tokenizer, earlier, text):
    fresh = tokenization.FullTokenizer.from_vocab(
        tokenizer.vocab, tokenizer.basic_tokenizer.do_lower_case
    )
    for other in earlier:
        tokenizer.tokenize(other)
    assert tokenizer.tokenize(text) == fresh.tokenize(text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", []),
        (" \t\r\n\u3000", []),
        ("\x00\ufffd\u200b", []),
        ("a\x00b\x0bc\x1cd\x85e", ["abcde"]),
        ("a\u2028b\u2029c\xa0d", ["a", "b", "c", "d"]),
        ("\xc4\u1e9e\u0130", ["a\xdfi"]),
        ("\u1f08\u03a3\u03a3 \u03a3", ["\u03b1\u03c3\u03c2", "\u03c3"]),
        ("ab\u4e2d\u6587cd", ["ab", "\u4e2d", "\u6587", "cd"]),
        ("\u3042\u30a2\ud55c", ["\u3042\u30a2\u1112\u1161\u11ab"]),
        ("\U00020000x\ud800", ["\U00020000", "x\ud800"]),
        ("$5^`~don't", ["$", "5", "^", "`", "~", "don", "'", "t"]),
        ("[CLS] ##x", ["[", "cls", "]", "#", "#", "x"]),
    ],
)
def test_basic_tokenizer_on_hard_text(text, words):
    assert tokenization.BasicTokenizer().tokenize(text) == words


def test_bytes_are_read_as_utf8(tokenizer):
    text = "The cat\u2019s caf\xe9"
    assert tokenizer.tokenize(text.encode() + b"\xff") == tokenizer.tokenize(text)


def test_no_other_type_is_text(tokenizer):
    for tokenize in (tokenizer.tokenize, tokenizer.basic_tokenizer.tokenize):
        with pytest.raises(ValueError, match="Received int"):
            tokenize(3)


def test_wordpiece_takes_the_longest_piece_first():
    pieces = ["[UNK]", "want", "##want", "##ed", "wa", "un", "runn", "##ing"]
    tokenizer = tokenization.WordpieceTokenizer({piece: i for i, piece in enumerate(pieces)})
    assert tokenizer.tokenize("") == []
    assert tokenizer.tokenize("unwanted running") == ["un", "##want", "##ed", "runn", "##ing"]
    assert tokenizer.tokenize("unwantedX running") == ["[UNK]", "runn", "##ing"]


@pytest.mark.parametrize(("length", "known"), [(200, True), (201, False)])
def test_words_of_more_than_200_characters_are_unknown(length, known):
    vocab = {"[UNK]": 0, "a": 1, "##a": 2, "a" * 201: 3}
    pieces = tokenization.FullTokenizer.from_vocab(vocab).tokenize("a" * length)
    assert pieces == (["a"] + ["##a"] * (length - 1) if known else ["[UNK]"])


def test_memory_is_bounded(tokenizer, monkeypatch):
    monkeypatch.setattr(tokenization, "MEMO_ENTRIES", 10)
    fresh = pickle.loads(pickle.dumps(tokenizer))
    for number in range(100):
        text = f"w{number} v{number} {'x' * (tokenization.MEMO_WORD_LENGTH + 1)}{number}"
        assert fresh.tokenize(text) == tokenizer.tokenize(text)
        assert fresh.tokenize_to_ids(text) == tokenizer.tokenize_to_ids(text)
    assert 0 < len(fresh._pieces) <= 10
    assert 0 < len(fresh._ids) <= 10
    assert max(map(len, fresh._pieces)) <= tokenization.MEMO_WORD_LENGTH


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda t: pickle.loads(pickle.dumps(t))])
def test_a_copy_does_the_same(tokenizer, duplicate):
    text = "The cat \xc9tait here."
    tokens = tokenizer.tokenize(text)
    copied = duplicate(tokenizer)
    assert copied.tokenize(text) == tokens
    assert copied.inv_vocab == tokenizer.inv_vocab


def read_golden(path):
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def test_tokens_equal_the_original():
    tokenizer = tokenization.FullTokenizer(str(GOLDEN / "vocab.txt"))
    cases = read_golden(GOLDEN / "tokens.jsonl.gz")
    assert len(cases) == 210
    assert [tokenizer.tokenize(case["text"]) for case in cases] == [c["tokens"] for c in cases]


@pytest.mark.skipif(not LARGE_GOLDEN.exists(), reason="needs ../shared/golden")
@pytest.mark.parametrize("name", ["uncased", "cased", "chinese"])
def test_tokens_of_released_vocabularies_equal_the_original(name):
    tokenizer = tokenization.FullTokenizer(
        str(VOCABULARIES / f"bert-base-{name}-vocab.txt"), do_lower_case=name != "cased"
    )
    cases = read_golden(LARGE_GOLDEN / f"tokens_{name}.jsonl.gz")
    assert [tokenizer.tokenize(case["text"]) for case in cases] == [c["tokens"] for c in cases]


@pytest.mark.skipif(not VOCABULARIES.exists(), reason="needs ../shared/data")
@pytest.mark.parametrize(
    ("name", "size"), [("uncased", 30522), ("cased", 28996), ("chinese", 21128)]
)
def test_released_vocabularies_are_read_whole_and_without_complaint(name, size, caplog):
    vocab = tokenization.load_vocab(VOCABULARIES / f"bert-base-{name}-vocab.txt")
    assert list(vocab.values()) == list(range(size))
    assert vocab["[PAD]"] == 0
    assert not caplog.records


def test_the_id_of_a_token_is_its_line(tmp_path):
    content = b"\xef\xbb\xbf[PAD]\r\n[UNK] \n\n\ta\rb\n\xe2\x80\xa8\nc\n\r"
    path = write_vocab(tmp_path / "vocab.txt", content)
    expected = {"[PAD]": 0, "[UNK]": 1, "": 4, "ab": 3, "c": 5}
    assert tokenization.load_vocab(path) == expected
    assert tokenization.load_vocab(io.BytesIO(content)) == expected


def test_tokens_listed_twice_are_reported(tmp_path, caplog):
    path = write_vocab(tmp_path / "vocab.txt", b"[UNK]\na\nb\na\n")
    assert tokenization.load_vocab(path) == {"[UNK]": 0, "a": 3, "b": 2}
    assert "'a' on lines 2 and 4" in caplog.text


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "`vocab_file` must hold a token a line. Received .*vocab.txt', which is empty"),
        (b"[UNK]\n\xff\n", r"`vocab_file` must be UTF-8 text. .* line 2 = b'\\xff\\n'"),
        (b"a\nb\n", r"must hold '\[UNK\]'.* Received 2 tokens from 'a' on"),
        (None, "`vocab_file` must be a readable file. .*vocab.txt' .*No such file"),
    ],
)
def test_what_is_no_vocabulary_is_named(tmp_path, content, message):
    path = tmp_path / "vocab.txt"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ValueError, match=message):
        tokenization.FullTokenizer(str(path))


def test_unknown_tokens_and_ids_are_named(tokenizer):
    with pytest.raises(ValueError, match=r"Received '\[NOPE\]', which is not among its 406"):
        tokenizer.convert_tokens_to_ids(["the", "[NOPE]"])
    with pytest.raises(ValueError, match="Received 999"):
        tokenizer.convert_ids_to_tokens([999])


def test_character_classes():
    for char in " \t\n\r\xa0\u3000":
        assert tokenization._is_whitespace(char)
    for char in "\x00\x0b\x85\u200b\xad":
        assert tokenization._is_control(char)
    for char in "!$`~-\u2019\u3002":
        assert tokenization._is_punctuation(char)
    for char in "Az09\xe9\u4e2d":
        assert not tokenization._is_whitespace(char)
        assert not tokenization._is_control(char)
        assert not tokenization._is_punctuation(char)
    assert not tokenization._is_control("\t")
    assert not tokenization._is_punctuation(" ")


@pytest.mark.parametrize(
    ("do_lower_case", "path", "wrong"),
    [
        (True, "x/cased_L-12_H-768_A-12/bert_model.ckpt", True),
        (False, "x/cased_L-12_H-768_A-12/bert_model.ckpt", False),
        (True, "multi_cased_L-12_H-768_A-12/bert_model.ckpt.index", True),
        (True, "wwm_cased_L-24_H-1024_A-16", True),
        (False, "uncased_L-2_H-128_A-2/", True),
        (True, "uncased_L-2_H-128_A-2/bert_model.ckpt", False),
        (False, "chinese_L-12_H-768_A-12/bert_model.ckpt", True),
        (False, "my_own_uncased/bert_model.ckpt", False),
        (False, None, False),
        (True, "", False),
    ],
)
def test_casing_is_held_against_the_name_of_a_released_model(do_lower_case, path, wrong):
    if wrong:
        with pytest.raises(ValueError, match=f"`do_lower_case` must be {not do_lower_case}"):
            tokenization.validate_case_matches_checkpoint(do_lower_case, path)
    else:
        tokenization.validate_case_matches_checkpoint(do_lower_case, path)


token_lists = st.lists(st.sampled_from("abcdef"), max_size=12)


@given(token_lists, token_lists, st.integers(0, 25))
def test_truncation_takes_from_the_longer_one_at_a_time(a, b, budget):
    expected_a, expected_b = list(a), list(b)
    while len(expected_a) + len(expected_b) > budget:
        (expected_a if len(expected_a) > len(expected_b) else expected_b).pop()
    assert tokenization.truncate_pair(a, b, budget=budget) == (expected_a, expected_b)


@given(token_lists, token_lists, st.integers(5, 20))
def test_pack_fits_and_orders_segments(a, b, max_length):
    tokens, segment_ids = tokenization.pack(a, b, max_length=max_length)
    assert len(tokens) == len(segment_ids) <= max_length
    assert segment_ids == sorted(segment_ids)
    assert tokens[0] == "[CLS]"
    assert tokens[-1] == "[SEP]"
    assert tokens.count("[SEP]") == (2 if b else 1)
    if len(a) + len(b) + 3 <= max_length:
        assert [token for token in tokens if len(token) == 1] == a + b


def test_pack_of_one_text_has_one_segment():
    assert tokenization.pack(["a", "b", "c"], max_length=4) == (
        ["[CLS]", "a", "b", "[SEP]"],
        [0, 0, 0, 0],
    )


def test_lengths_without_room_are_refused():
    with pytest.raises(ValueError, match=r"`budget` must not be negative\. Received -1"):
        tokenization.pack(["a"], ["b"], max_length=2)

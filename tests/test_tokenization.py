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
from bert.text import characters

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


def slow_words(text, do_lower_case, strip_accents=None, chinese=True):
    """What basic tokenization is, one character and one step at a time."""
    strips = do_lower_case if strip_accents is None else strip_accents
    spaced = ""
    for char in text:
        category = unicodedata.category(char)
        if char in "\t\n\r" or category == "Zs":
            spaced += " "
        elif char != "\ufffd" and category not in ("Cc", "Cf"):
            spaced += f" {char} " if chinese and is_cjk(char) else char
    words = []
    for word in spaced.split():
        if do_lower_case:
            word = word.lower()  # noqa: PLW2901
        if strips:
            marked = unicodedata.normalize("NFD", word)
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


ways = st.tuples(st.booleans(), st.sampled_from([None, True, False]), st.booleans())


@given(texts, ways)
@example("\u0391\u03a3\u4e2d \xc9\uf900\u0130", (True, False, False))
@example("\uf900\xc9\u03a3 \u1e69", (False, True, False))
def test_accents_and_chinese_characters_are_treated_as_asked(text, way):
    lower, strips, chinese = way
    tokenizer = tokenization.FullTokenizer(
        str(GOLDEN / "vocab.txt"), lower, strip_accents=strips, tokenize_chinese_chars=chinese
    )
    words = slow_words(text, *way)
    assert tokenizer.basic_tokenizer.tokenize(text) == words
    assert tokenizer.basic_tokenizer._tokenize_in_steps(text) == words
    expected = [piece for word in words for piece in slow_pieces(word, tokenizer.vocab)]
    assert tokenizer.tokenize(text) == expected


SIGMA_LETTERS = "\u03a3\u03c3\u03c2\u0391\u03b1a"
SIGMA_MARKS = ",.\"';-_\u201c\u201d\u2019 \u0301\xad\u4e2d:"
sigma_texts = st.text(SIGMA_LETTERS + SIGMA_MARKS, max_size=12)


@given(sigma_texts, st.booleans())
@example("\u0391\u03a3.\u0391", True)
@example("\u0391\u03a3\u2019\u0391 a.b", True)
@example("\u0391\u03a3\xad\u0391", True)
def test_what_surrounds_a_sigma_decides_on_it_before_anything_is_set_apart(text, do_lower_case):
    # No word hides behind [UNK].
    chars = sorted(set(SIGMA_LETTERS + SIGMA_MARKS))
    tokens = ["[UNK]", *chars, *("##" + char for char in chars)]
    vocab = {token: index for index, token in enumerate(tokens)}
    tokenizer = tokenization.FullTokenizer.from_vocab(vocab, do_lower_case)
    words = slow_words(text, do_lower_case)
    assert tokenizer.tokenize(text) == [p for word in words for p in slow_pieces(word, vocab)]


CJK_BLOCKS = [
    (0x3400, 0x4DBF),
    (0x4E00, 0x9FFF),
    (0xF900, 0xFAFF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2CEAF),
    (0x2F800, 0x2FA1F),
]


@pytest.mark.parametrize(("low", "high"), CJK_BLOCKS)
def test_cjk_characters_are_words_to_the_ends_of_their_blocks(low, high):
    cased, uncased = tokenization.BasicTokenizer(False), tokenization.BasicTokenizer()
    codes = {low, low + 1, (low + high) // 2, high - 1, high}
    codes |= set(range(low, high + 1)) if high - low < 1000 else set()
    for char in map(chr, codes):
        assert cased.tokenize(f"a{char}b") == ["a", char, "b"]
        assert uncased.tokenize(f"a{char}b") == ["a", unicodedata.normalize("NFD", char), "b"]
    for char in (chr(low - 1), chr(high + 1)):
        if unicodedata.category(char)[0] != "P":
            assert len(cased.tokenize(f"a{char}b")) == 1


def test_a_path_may_be_bytes(tokenizer):
    path = str(GOLDEN / "vocab.txt").encode()
    assert tokenization.FullTokenizer(path).vocab == tokenizer.vocab


class KeepsDots(tokenization.BasicTokenizer):
    def _run_split_on_punc(self, text):
        return [text]


class NoCleaning(tokenization.BasicTokenizer):
    def _clean_text(self, text):
        return text.replace("#", " ")


class Latin(tokenization.BasicTokenizer):
    def _is_chinese_char(self, cp):
        return chr(cp) == "x"


class KeepsAccents(tokenization.BasicTokenizer):
    def _run_strip_accents(self, text):
        return text


class Apart(tokenization.BasicTokenizer):
    def _tokenize_chinese_chars(self, text):
        return text.replace("o", " o ")


class Letters(tokenization.WordpieceTokenizer):
    def tokenize(self, text):
        return list(text)


OVERRIDDEN = [
    (KeepsDots, "a.b \u4e2d", ["a.b", "\u4e2d"]),
    (NoCleaning, "A#b\xad", ["a", "b\xad"]),
    (Latin, "axb\u4e2d", ["a", "x", "b\u4e2d"]),
    (KeepsAccents, "\xc9.", ["\xe9", "."]),
    (Apart, "dog\u4e2d", ["d", "o", "g\u4e2d"]),
]


@pytest.mark.parametrize(("kind", "text", "words"), OVERRIDDEN)
def test_a_step_that_a_subclass_overrides_counts(kind, text, words):
    assert kind().tokenize(text) == words
    assert kind().tokenize(text) != tokenization.BasicTokenizer().tokenize(text)
    vocab = {token: index for index, token in enumerate(["[UNK]", *words])}
    tokenizer = tokenization.FullTokenizer.from_vocab(vocab)
    before = tokenizer.tokenize(text)
    tokenizer.basic_tokenizer = kind()
    assert tokenizer.tokenize(text) == words != before
    assert tokenizer.tokenize_to_ids(text) == [vocab[word] for word in words]
    # So does one that is set on an object, and it goes with it where that is copied.
    assert copy.deepcopy(tokenizer).tokenize(text) == words
    assert pickle.loads(pickle.dumps(tokenizer)).tokenize(text) == words
    patched = tokenization.FullTokenizer.from_vocab(vocab)
    assert patched.tokenize(text) == before
    (name,) = (name for name in vars(kind) if name.startswith("_") and name[1] != "_")
    setattr(patched.basic_tokenizer, name, getattr(kind(), name))
    assert patched.tokenize(text) == words


def test_a_replaced_method_of_the_class_counts_for_tokenizers_made_after_it(monkeypatch):
    monkeypatch.setattr(
        tokenization.BasicTokenizer, "_run_split_on_punc", KeepsDots._run_split_on_punc
    )
    assert tokenization.BasicTokenizer().tokenize("a.b") == ["a.b"]


def test_another_wordpiece_tokenizer_counts(tokenizer):
    copied = copy.deepcopy(tokenizer)
    assert copied.tokenize("old") == ["old"]
    copied.wordpiece_tokenizer = Letters(copied.vocab)
    assert copied.tokenize("old") == ["o", "l", "d"]
    assert copied.tokenize_to_ids("old") == copied.convert_tokens_to_ids(["o", "l", "d"])
    copied.wordpiece_tokenizer = tokenization.WordpieceTokenizer(
        copied.vocab, max_input_chars_per_word=2
    )
    assert copied.tokenize("old") == ["[UNK]"]
    copied.wordpiece_tokenizer.max_input_chars_per_word = 3
    assert copied.tokenize("old") == ["old"]
    copied.wordpiece_tokenizer.tokenize = lambda text: ["a"]
    assert copied.tokenize("old the") == ["a", "a"]
    assert tokenizer.tokenize("old") == ["old"]


def test_anything_that_tokenizes_may_be_put_in_place():
    class Upper:
        def tokenize(self, text):
            return [text.upper()]

    tokenizer = tokenization.FullTokenizer.from_vocab({"[UNK]": 0, "AB": 1})
    tokenizer.basic_tokenizer = Upper()
    assert tokenizer.tokenize("ab") == ["AB"]
    tokenizer.wordpiece_tokenizer = Upper()
    assert tokenizer.tokenize_to_ids(b"ab") == [1]


def test_a_subclass_that_tokenizes_its_own_way_has_the_ids_of_its_tokens():
    class Twice(tokenization.FullTokenizer):
        def tokenize(self, text):
            return 2 * super().tokenize(text)

    tokenizer = Twice.from_vocab({"[UNK]": 0, "a": 1, "b": 2})
    assert tokenizer.tokenize("a b") == ["a", "b", "a", "b"]
    assert tokenizer.tokenize_to_ids("a b") == [1, 2, 1, 2]


def test_another_casing_counts(tokenizer):
    copied = copy.deepcopy(tokenizer)
    for lower in (True, False, True):
        copied.basic_tokenizer.do_lower_case = lower
        fresh = tokenization.FullTokenizer.from_vocab(tokenizer.vocab, lower)
        assert copied.tokenize("The OLD man") == fresh.tokenize("The OLD man")


MIXED = "Caf\xe9 a\u4e2db <x> zz"
MIXED_TOKENS = ["cafe", "a", "\u4e2d", "b", "<", "x", ">", "[UNK]"]


@pytest.mark.parametrize(
    ("change", "tokens"),
    [
        (
            lambda t: setattr(t.basic_tokenizer, "strip_accents", False),
            ["caf\xe9", *MIXED_TOKENS[1:]],
        ),
        (
            lambda t: setattr(t.basic_tokenizer, "tokenize_chinese_chars", False),
            ["cafe", "a", "##\u4e2d", "##b", *MIXED_TOKENS[4:]],
        ),
        (
            lambda t: setattr(t.wordpiece_tokenizer, "unk_token", "[MASK]"),
            [*MIXED_TOKENS[:-1], "[MASK]"],
        ),
        (
            lambda t: setattr(t, "added_tokens", (tokenization.AddedToken("<x>"),)),
            [*MIXED_TOKENS[:4], "<x>", "[UNK]"],
        ),
        (
            lambda t: setattr(t.wordpiece_tokenizer, "split_word", lambda word: ["b"]),
            ["b"] * len(MIXED_TOKENS),
        ),
    ],
)
def test_what_is_set_after_a_first_text_counts(change, tokens):
    every = ["[UNK]", "[MASK]", *MIXED_TOKENS[:-1], "caf\xe9", "##\u4e2d", "##b", "<x>"]
    vocab = {token: number for number, token in enumerate(every)}
    tokenizer = tokenization.FullTokenizer.from_vocab(vocab)
    assert tokenizer.tokenize(MIXED) == MIXED_TOKENS
    assert tokenizer.tokenize_to_ids(MIXED) == [vocab[token] for token in MIXED_TOKENS]
    change(tokenizer)
    assert tokenizer.tokenize(MIXED) == tokens
    assert tokenizer.tokenize_to_ids(MIXED) == [vocab[token] for token in tokens]
    tokenizer.convert_tokens_to_ids = len
    assert tokenizer.tokenize_to_ids(MIXED) == len(tokens)


CHANGES = [
    lambda vocab: vocab.__setitem__("zwz", 9),
    lambda vocab: vocab.update(zwz=9),
    lambda vocab: vocab.setdefault("zwz", 9),
    lambda vocab: vocab.__ior__({"zwz": 9}),
]


@pytest.mark.parametrize("change", CHANGES)
def test_entries_added_to_the_vocabulary_count(change):
    tokenizer = tokenization.FullTokenizer.from_vocab({"[UNK]": 0, "a": 1, "z": 2})
    assert tokenizer.tokenize("zwz a") == ["[UNK]", "a"]
    change(tokenizer.vocab)
    tokenizer.inv_vocab[9] = "zwz"
    assert tokenizer.tokenize("zwz a") == ["zwz", "a"]
    assert tokenizer.tokenize_to_ids("zwz a") == [9, 1]
    assert tokenizer.convert_ids_to_tokens([9]) == ["zwz"]
    tokenizer.vocab["zwz"] = 7
    assert tokenizer.tokenize_to_ids("zwz a") == [7, 1]
    del tokenizer.vocab["zwz"]
    assert tokenizer.tokenize_to_ids("zwz a") == [0, 1]


@pytest.mark.parametrize(
    "change",
    [
        lambda vocab: vocab.pop("zwz"),
        lambda vocab: vocab.popitem(),
        lambda vocab: vocab.clear(),
        # As many entries as before.
        lambda vocab: vocab.__setitem__("zw", vocab.pop("zwz")),
    ],
)
def test_entries_taken_from_the_vocabulary_count(change):
    tokenizer = tokenization.FullTokenizer.from_vocab({"[UNK]": 0, "a": 1, "zwz": 2})
    split_word = tokenizer.wordpiece_tokenizer.split_word
    assert [tokenizer.tokenize("zwz"), split_word("zwz")] == [["zwz"]] * 2
    change(tokenizer.vocab)
    assert [tokenizer.tokenize("zwz"), split_word("zwz")] == [["[UNK]"]] * 2
    assert (split_word("zw") == ["zw"]) == ("zw" in tokenizer.vocab)


def test_a_wordpiece_tokenizer_looks_at_its_vocabulary():
    vocab = {"a": 0}
    tokenizer = tokenization.WordpieceTokenizer(vocab)
    assert tokenizer.tokenize("aba") == ["[UNK]"]
    vocab["##ba"] = 1
    assert tokenizer.tokenize("aba") == ["a", "##ba"]
    tokenizer.vocab = vocab = {"ab": 0, "##a": 1}
    assert tokenizer.tokenize("aba") == ["ab", "##a"]
    # As many entries as before, of which one is longer.
    vocab["##aab"] = vocab.pop("##a")
    assert tokenizer.tokenize("abaab") == ["ab", "##aab"]


def test_a_vocabulary_put_in_place_gives_other_ids():
    tokenizer = tokenization.FullTokenizer.from_vocab({"[UNK]": 0, "a": 1})
    assert tokenizer.tokenize_to_ids("a") == [1]
    own = {"[UNK]": 5, "a": 6}
    tokenizer.vocab = own
    assert tokenizer.tokenize_to_ids("a b") == [6, 5]
    own["a"] = 8
    assert tokenizer.tokenize_to_ids("a b") == [8, 5]


def test_a_piece_without_an_id_is_an_error_where_a_text_has_it():
    tokenizer = tokenization.FullTokenizer.from_vocab({"[UNK]": 0, "a": 1})
    pieces = characters.Vocabulary({**tokenizer.vocab, "c": 2})
    tokenizer.wordpiece_tokenizer = tokenization.WordpieceTokenizer(pieces)
    assert tokenizer.tokenize_to_ids("a b") == [1, 0]
    with pytest.raises(KeyError, match="Received 'c'"):
        tokenizer.tokenize_to_ids("a c")


def test_what_is_remembered_survives_changes_of_others(tokenizer):
    fresh = tokenization.FullTokenizer.from_vocab(tokenizer.vocab)
    fresh.tokenize_to_ids("the old man")
    kept = fresh._ids
    tokenization.FullTokenizer.from_vocab({"[UNK]": 0}).vocab["x"] = 3
    fresh.tokenize_to_ids("the old man")
    assert fresh._ids is kept
    assert set(kept) >= {"the", "old", "man"}


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


def test_the_mark_of_a_piece_that_follows_is_no_piece():
    tokenizer = tokenization.WordpieceTokenizer({"a": 0, "#": 1, "##": 2, "b": 3})
    assert tokenizer.tokenize("ab") == ["[UNK]"]
    assert tokenizer.tokenize("a") == ["a"]
    assert tokenization.WordpieceTokenizer({"a": 0, "": 1}).tokenize("ab a") == ["[UNK]", "a"]
    assert tokenization.WordpieceTokenizer({}).tokenize("a") == ["[UNK]"]


@pytest.mark.parametrize(("length", "known"), [(200, True), (201, False)])
def test_words_of_more_than_200_characters_are_unknown(length, known):
    vocab = {"[UNK]": 0, "a": 1, "##a": 2, "a" * 201: 3}
    pieces = tokenization.FullTokenizer.from_vocab(vocab).tokenize("a" * length)
    assert pieces == (["a"] + ["##a"] * (length - 1) if known else ["[UNK]"])


def test_memory_is_bounded(tokenizer, monkeypatch):
    monkeypatch.setattr(characters, "MEMO_ENTRIES", 10)
    fresh = pickle.loads(pickle.dumps(tokenizer))
    for number in range(100):
        text = f"w{number} v{number} {'x' * (characters.MEMO_WORD_LENGTH + 1)}{number}"
        assert fresh.tokenize(text) == tokenizer.tokenize(text)
        assert fresh.tokenize_to_ids(text) == tokenizer.tokenize_to_ids(text)
    assert 0 < len(fresh._pieces) <= 10
    assert 0 < len(fresh._ids) <= 10
    assert max(map(len, fresh._pieces)) <= characters.MEMO_WORD_LENGTH


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
    # The original's callers wait for a `KeyError`; the scripts make a line of a `ValueError`.
    for kind in (KeyError, ValueError):
        with pytest.raises(
            kind, match=r"Received '\[NOPE\]', which is not among its 406"
        ) as caught:
            tokenizer.convert_tokens_to_ids(["the", "[NOPE]"])
        assert str(caught.value).startswith("The vocabulary must hold")
        with pytest.raises(kind, match="Received 999"):
            tokenization.convert_ids_to_tokens(tokenizer.inv_vocab, [999])


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
    assert not any(map(tokenization._is_control, "\t\r\U0001f4a9"))
    assert not tokenization._is_punctuation(" ")


def test_functions_of_the_original_convert_texts_and_tokens():
    vocab = {word: number for number, word in enumerate(["[UNK]", "[CLS]", "un", "##able"])}
    inverse = dict(enumerate(vocab))
    assert tokenization.convert_tokens_to_ids(vocab, ["un", "##able", "[CLS]"]) == [2, 3, 1]
    assert tokenization.convert_ids_to_tokens(inverse, [2, 3, 1]) == ["un", "##able", "[CLS]"]
    assert tokenization.convert_by_vocab(vocab, ["un"]) == [2]
    assert tokenization.convert_to_unicode("No\u00ebl".encode()) == "No\u00ebl"
    assert tokenization.convert_to_unicode("No\u00ebl") == "No\u00ebl"
    assert tokenization.whitespace_tokenize("  a  b\tc \n") == ["a", "b", "c"]
    assert tokenization.whitespace_tokenize("   ") == []


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


def test_nothing_is_said_to_be_remembered_before_it_is(monkeypatch):
    """Another thread would tokenize meanwhile as if there were no added tokens."""
    vocab = {token: number for number, token in enumerate(["[UNK]", "a", "<e1>"])}
    marks = [tokenization.AddedToken("<e1>")]
    tokenizer = tokenization.FullTokenizer.from_vocab(vocab, True, added_tokens=marks)
    find, seen = tokenization.Finder, []

    def make_finder(*given):
        seen.append(tokenizer._seen == tokenization.Watched.changes)
        return find(*given)

    monkeypatch.setattr(tokenization, "Finder", make_finder)
    assert tokenizer.tokenize("a<e1>a") == ["a", "<e1>", "a"]
    assert seen and not any(seen)

"""Options of tokenizers, in each form in which files of transformers have them."""

import pytest

from bert.weights import tokenizers

A, B = ({"content": f"<{name}>", "special": True, "normalized": False} for name in "ab")


def read(**files):
    """Returns the options of files, by the beginnings of their names."""
    given = {name: files.get(name.partition(".")[0], {}) for name in tokenizers.FILES}
    return tokenizers.read_tokenizer_options(given)


def added(**files):
    return read(**files).get("added_tokens", [])


@pytest.mark.parametrize(
    "files",
    [
        {"tokenizer_config": {"added_tokens_decoder": {"12": B, "3": A}}},
        {"tokenizer": {"added_tokens": [{**B, "id": 12}, {**A, "id": 3}]}},
        {
            "added_tokens": {"<b>": 12, "<a>": 3},
            "special_tokens_map": {"additional_special_tokens": ["<a>", "<b>"]},
        },
        {"added_tokens": {"<b>": 12}, "tokenizer": {"added_tokens": [{**A, "id": 3}]}}
        | {"tokenizer_config": {"additional_special_tokens": ["<b>"]}},
    ],
    ids=["decoder", "tokenizer.json", "added_tokens.json", "both"],
)
def test_added_tokens_are_in_the_order_of_their_numbers(files):
    assert added(**files) == [{**A, "id": 3}, {**B, "id": 12}]


@pytest.mark.parametrize("key", ["additional_special_tokens", "extra_special_tokens"])
@pytest.mark.parametrize("file", ["tokenizer_config", "special_tokens_map"])
@pytest.mark.parametrize(
    "listed",
    [["<a>", "<b>"], [A, {**B, "special": False}], {"first": "<a>", "second": "<b>"}],
    ids=["texts", "objects", "names"],
)
def test_special_tokens_are_those_of_either_key_file_and_form(key, file, listed):
    assert added(**{file: {key: listed}}) == [A, B]


def test_a_token_that_is_only_added_is_looked_for_in_normalized_text():
    [token] = added(added_tokens={"<a>": 7})
    assert token == {"content": "<a>", "id": 7, "special": False, "normalized": True}


@pytest.mark.parametrize(
    ("config", "normalizer", "options"),
    [
        ({}, {}, {}),
        ({"strip_accents": None, "tokenize_chinese_chars": True}, {}, {}),
        ({"tokenize_chinese_chars": False}, {}, {"tokenize_chinese_chars": False}),
        ({"strip_accents": True}, {}, {"strip_accents": True}),
        ({}, {"strip_accents": False}, {"strip_accents": False}),
        ({"strip_accents": None}, {"strip_accents": False}, {}),
        ({"tokenize_chinese_chars": True}, {"handle_chinese_chars": False}, {}),
        ({}, {"handle_chinese_chars": False}, {"tokenize_chinese_chars": False}),
    ],
)
def test_only_what_differs_from_the_original_is_an_option(config, normalizer, options):
    step = {"type": "BertNormalizer", **normalizer}
    assert read(tokenizer_config=config, tokenizer={"normalizer": step}) == options


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("BertTokenizer", {"strip_accents": False, "added_tokens": [{**A, "id": 4}]}),
        (
            "PreTrainedTokenizerFast",
            # The number is that of the one file, and the rest that of the other.
            {"tokenize_chinese_chars": False} | {"added_tokens": [{**A, "id": 3}, {**B, "id": 12}]},
        ),
    ],
)
def test_of_two_files_that_contradict_each_other_that_of_transformers_counts(kind, options):
    """As `AutoTokenizer` of transformers 5.23 has it."""
    config = {
        "tokenizer_class": kind,
        "strip_accents": False,
        "tokenize_chinese_chars": True,
        "added_tokens_decoder": {"4": A},
    }
    step = {"type": "BertNormalizer", "strip_accents": None, "handle_chinese_chars": False}
    tokens = [{**B, "id": 12}, {**A, "id": 3, "special": False}]
    files = {"normalizer": step, "added_tokens": tokens}
    assert read(tokenizer_config=config, tokenizer=files) == options


@pytest.mark.parametrize("is_uncased", [False, True])
def test_accents_are_split_as_usual_where_they_are_stripped_by_casing(is_uncased):
    for strips in (False, True):
        options = {"strip_accents": strips, "tokenize_chinese_chars": True}
        differs = {} if strips == is_uncased else {"strip_accents": strips}
        assert tokenizers.splitting_options(options, is_uncased) == differs
    no_chinese = {"tokenize_chinese_chars": False}
    assert tokenizers.splitting_options(no_chinese, is_uncased) == no_chinese


def test_the_largest_number_of_a_vocabulary_must_be_a_row_of_the_model():
    vocab = {"[CLS]": 0, "[SEP]": 1, "[UNK]": 2, "a": 9, "": 12}
    tokenizer = tokenizers.make_of_vocab(vocab, True, {})
    tokenizers.check_vocabulary(tokenizer, "vocab.txt", 10, ["[CLS]"])
    with pytest.raises(ValueError, match="at most 9 tokens"):
        tokenizers.check_vocabulary(tokenizer, "vocab.txt", 9, ["[CLS]"])


def test_an_added_token_without_a_row_is_named():
    vocab = {"[UNK]": 0, "a": 1}
    added = [{"content": "<a>", "id": 2}, {"content": "<b>"}]
    tokenizer = tokenizers.make_of_vocab(vocab, True, {"added_tokens": added})
    tokenizers.check_vocabulary(tokenizer, "vocab.txt", 4, [])
    with pytest.raises(ValueError, match=r"table, of 3, .* '<b>' with the id 3 has none"):
        tokenizers.check_vocabulary(tokenizer, "vocab.txt", 3, [])
    with pytest.raises(ValueError, match="at most 1 tokens"):
        tokenizers.check_vocabulary(tokenizer, "vocab.txt", 1, [])


def test_a_word_is_found_as_it_is_written_before_its_lower_case():
    words = ["[UNK]", "Oslo", "oslo", "the"]
    vocab = {word: number for number, word in enumerate(words)}
    tokenizer = tokenizers.WordTokenizer.from_vocab(vocab, do_lower_case=False)
    assert tokenizer.tokenize("Oslo OSLO  The x") == ["Oslo", "oslo", "the", "[UNK]"]
    assert tokenizer.tokenize_to_ids("Oslo OSLO The x") == [1, 2, 3, 0]

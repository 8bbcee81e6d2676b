import numpy as np
import pytest
import tensorflow as tf

import tokenization

WORDS = ["[UNK]", "[PAD]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "c", "d", "x", "y", "##z"]


@pytest.fixture
def tokenizer():
    return tokenization.FullTokenizer.from_vocab({word: i for i, word in enumerate(WORDS)})


def words_of(row):
    return " ".join(WORDS[index] for index in row)


def test_texts_become_the_inputs_of_a_model(tokenizer):
    # [PAD] need not be token 0.
    inputs = tokenizer(["A xz", "b"], ["y", "c [MASK]d"])
    rows = [words_of(row) for row in inputs["input_ids"]]
    assert rows == ["[CLS] a x ##z [SEP] y [SEP]", "[CLS] b [SEP] c [MASK] d [SEP]"]
    assert inputs["segment_ids"].tolist() == [[0, 0, 0, 0, 0, 1, 1], [0, 0, 0, 1, 1, 1, 1]]
    inputs = tokenizer(["a", "b c"], padding="max_length", max_length=6)
    assert [words_of(row) for row in inputs["input_ids"]] == [
        "[CLS] a [SEP] [PAD] [PAD] [PAD]",
        "[CLS] b c [SEP] [PAD] [PAD]",
    ]
    assert inputs["input_mask"].tolist() == [[1, 1, 1, 0, 0, 0], [1, 1, 1, 1, 0, 0]]
    assert {array.dtype for array in inputs.values()} == {np.dtype(np.int32)}
    assert tokenizer([])["input_ids"].shape == (0, 0)
    tensors = tokenizer(["a", "b c"], padding="max_length", max_length=6, return_tensors="tf")
    assert all(tf.is_tensor(tensor) for tensor in tensors.values())
    assert {name: tensor.numpy().tolist() for name, tensor in tensors.items()} == {
        name: array.tolist() for name, array in inputs.items()
    }


def test_special_tokens_are_found_as_the_tokenizer_says():
    mask = tokenization.AddedToken("[MASK]", single_word=True, normalized=False, special=True)
    vocab = {word: i for i, word in enumerate(WORDS)}
    tokenizer = tokenization.FullTokenizer.from_vocab(vocab, added_tokens=[mask])
    (row,) = tokenizer("a[MASK] [MASK] [SEP]b")["input_ids"]
    assert words_of(row) == "[CLS] a [UNK] [UNK] [UNK] [MASK] [SEP] b [SEP]"


def test_ids_become_text_again():
    words = [*WORDS, "'", ".", ",", "...", "##."]
    tokenizer = tokenization.FullTokenizer.from_vocab({word: i for i, word in enumerate(words)})

    def decode(text, **arguments):
        return tokenizer.decode([words.index(word) for word in text.split()], **arguments)

    row = "[CLS] a x ##z ##z , b ' c . [MASK] ... d ##. [SEP] [PAD]"
    assert decode(row) == "[CLS] a xzz, b ' c. [MASK]... d. [SEP] [PAD]"
    assert decode(row, skip_special_tokens=True) == "a xzz, b ' c.... d."
    assert [decode("##z a"), decode(". a"), decode("")] == ["##z a", ". a", ""]
    assert tokenizer.decode(np.int32(words.index("a"))) == "a"
    assert tokenizer.decode(tf.constant([5, 6])) == "a b"
    with pytest.raises(ValueError, match=r"one row\. Received \(2, 1\)"):
        tokenizer.decode([[5], [6]])
    for ids in ([-1], None, [None], "12", iter([5])):
        with pytest.raises(ValueError, match=r"`ids` must .* Received"):
            tokenizer.decode(ids)


@pytest.mark.parametrize(
    ("truncation", "max_length", "expected"),
    [
        (True, 8, ["a b", "x y x"]),  # Of equals, the second keeps one more.
        (True, 9, ["a b c", "x y x"]),
        ("only_first", 8, ["a", "x y x y"]),
        ("only_second", 8, ["a b c d", "x"]),
        (True, 3, ["", ""]),
    ],
)
def test_texts_are_cut_as_the_argument_says(tokenizer, truncation, max_length, expected):
    inputs = tokenizer("a b c d", "x y x y", truncation=truncation, max_length=max_length)
    first, second = words_of(inputs["input_ids"][0]).removeprefix("[CLS]").split("[SEP]")[:2]
    assert [first.strip(), second.strip()] == expected


def test_the_longer_text_is_cut_first_and_a_model_says_how_much_it_takes(tokenizer):
    tokenizer.model_max_length = 7
    inputs = tokenizer(["a", "x y x y"], ["x y x y", "a"], truncation=True)
    rows = [words_of(row) for row in inputs["input_ids"]]
    assert rows == ["[CLS] a [SEP] x y x [SEP]", "[CLS] x y x [SEP] a [SEP]"]
    assert tokenizer("a b c d a b c d")["input_ids"].shape == (1, 10)
    assert tokenizer("a", padding="max_length")["input_ids"].shape == (1, 7)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"texts": ["a", "b c"], "padding": False}, "of 3 to 4"),
        ({"texts": ["a", "b c"], "padding": "do_not_pad"}, "of 3 to 4"),
        ({"texts": "a", "return_tensors": "pt"}, r"one of \('np', 'tf'\)\. Received 'pt'"),
        ({"texts": "a", "truncation": True}, "`max_length` must be given"),
        ({"texts": "a", "padding": "longer"}, "Received 'longer'"),
        ({"texts": ["a", "b c"], "max_length": 3}, "Text 1, .* It has 4"),
        ({"texts": "a b", "truncation": True, "max_length": 1}, "Received 1"),
        ({"texts": ["a", "b"], "text_pairs": ["c"]}, "each of the 2 `texts`. Received 1"),
        ({"texts": ["a", None]}, "Received None"),
        ({"texts": None}, "Received None"),
        ({"texts": b"a"}, "Received b'a'"),
        ({"texts": "a", "max_length": "4"}, "`max_length` must be a whole number. Received '4'"),
        ({"texts": "a", "max_length": 4.0}, "`max_length` must be a whole number. Received 4.0"),
        ({"texts": "a", "text_pairs": [None]}, "Received None"),
        (
            {"texts": "a b", "text_pairs": "c", "truncation": "only_second", "max_length": 4},
            r"the second text .* \[2, 1\], and 2",
        ),
    ],
)
def test_wrong_arguments_are_named(tokenizer, arguments, words):
    with pytest.raises(ValueError, match=words):
        tokenizer(**arguments)

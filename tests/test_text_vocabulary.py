import json

import pytest
from conftest import ROOT

from bert.text.vocabulary import (
    check_same,
    check_size,
    find_casing,
    read_json_vocab,
    warn_of_casing,
)

WHAT = "`--vocab_file`"


@pytest.mark.parametrize(
    ("size", "rows", "is_warned"),
    [
        (30522, 30522, False),
        # Padded to a multiple of 8, 64, or 128.
        (30522, 30528, False),
        (28996, 29056, False),
        (6, 7, True),
        # 128 rows are not padding any more.
        (897, 1024, False),
        (896, 1024, True),
        # The cased vocabulary for the uncased model, and spare rows of a public one.
        (28996, 30522, True),
        (30521, 50000, True),
        (1001, 2001, True),
    ],
)
def test_a_vocabulary_may_have_fewer_tokens_than_the_model_has_rows(size, rows, is_warned, log):
    check_size(size, rows, WHAT, "v.txt")
    assert [f"'v.txt' has {size} tokens, but" in each for each in log.messages] == [
        True
    ] * is_warned


@pytest.mark.parametrize(
    ("size", "rows", "message"),
    [
        (1000, 6000, "must have more than half as many tokens.*6000.*'v.txt' has 1000"),
        (1000, 2000, "so it cannot be the model's"),
        # The Chinese vocabulary for the multilingual model.
        (21128, 119547, "so it cannot be the model's"),
        (30522, 28996, "must have at most 28996 tokens.*'v.txt' has 30522"),
    ],
)
def test_a_vocabulary_of_another_model_is_an_error(size, rows, message):
    with pytest.raises(ValueError, match=message):
        check_size(size, rows, WHAT, "v.txt")


def test_a_given_vocabulary_may_only_extend_the_one_of_the_model(log):
    own = {token: number for number, token in enumerate(["[PAD]", "[unused1]", "a", "b", "c"])}
    check_same(own, WHAT, "v.txt", own=own, own_file="o.txt")
    assert not log.messages
    made = {token: number for number, token in enumerate(["[PAD]", "new", "a", "b", "c", "more"])}
    check_same(made, WHAT, "v.txt", own=own, own_file="o.txt")
    assert log.messages == ["The vocabulary of 'v.txt' differs from 'o.txt' in 1 entries."]
    half = {"[PAD]": 0, "new": 1, "a": 2, "b": 3}
    check_same(half, WHAT, "v.txt", own={**half, "new": 9, "b": 8}, own_file="o.txt")
    other = {token: number for number, token in enumerate(["[PAD]", "c", "b", "a", "x"])}
    with pytest.raises(ValueError, match=r"'v\.txt' differs from 'o\.txt' in 4 of 5 entries"):
        check_same(other, WHAT, "v.txt", own=own, own_file="o.txt")


@pytest.mark.parametrize("pieces", [{"[PAD]": 0, "[UNK]": 1, "a": 2}, {"[PAD]": 0, "a": 2}])
def test_added_tokens_between_the_pieces_are_pieces_and_others_are_if_asked_for(pieces):
    """Words are not split into those that follow the pieces."""
    added = [{"id": 1, "content": "[UNK]"}, {"id": 3, "content": "<e>"}]
    text = json.dumps({"model": {"vocab": pieces}, "added_tokens": added}).encode()
    assert [*read_json_vocab(text, "t", with_added=False)] == ["[PAD]", "[UNK]", "a"]
    assert [*read_json_vocab(text, "t")] == ["[PAD]", "[UNK]", "a", "<e>"]


SPECIAL = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    "<S>",
    *(f"[unused{i}]" for i in range(99)),
]
WORDS = [f"{a}{b}{c}" for a in "abcdefghijklm" for b in "aeiouy" for c in "lmnrstvwxyzp##"]
UNCASED = [*SPECIAL, *"0123456789,.?", *WORDS, *(f"##{word}" for word in WORDS)]
CASED = [*UNCASED, *(word.capitalize() for word in WORDS)]
CHINESE = [*SPECIAL, *map(chr, range(0x4E00, 0x8E00))]


@pytest.mark.parametrize(
    ("vocab", "is_cased"),
    [
        (UNCASED, False),
        (CASED, True),
        # A slip or two among many words, as in real vocabularies.
        ([*UNCASED, "iPhone"], False),
        ([*UNCASED, *"ABCDEFGHIJKLMNOPQRSTUVWXYZ"], None),
        (CHINESE, None),
        ([*CHINESE, *WORDS[:300]], None),
        (["[UNK]", "the", "cat"], None),
        (["[UNK]", "The", "Cat"], None),
        ([], None),
    ],
)
def test_casing_is_found_where_it_is_certain(vocab, is_cased):
    assert find_casing(vocab) is is_cased


@pytest.mark.parametrize(("vocab", "kind"), [(UNCASED, "an uncased"), (CASED, "a cased")])
def test_a_flag_that_contradicts_the_vocabulary_is_a_warning(vocab, kind, log):
    warn_of_casing(vocab, "v.txt", vocab is UNCASED)
    assert log.messages == []
    warn_of_casing(vocab, "v.txt", vocab is CASED)
    (message,) = log.messages
    assert message.startswith(f"v.txt is the vocabulary of {kind} model, but `do_lower_case` is")
    assert message.endswith(f"Is `do_lower_case={vocab is UNCASED}` meant?")


@pytest.mark.parametrize(
    ("name", "is_cased"), [("cased", True), ("uncased", False), ("chinese", False)]
)
def test_casing_of_the_released_vocabularies_is_known(name, is_cased):
    path = ROOT.parent / "shared" / "data" / "vocab" / f"bert-base-{name}-vocab.txt"
    if not path.exists():
        pytest.skip(f"{path} is not there.")
    assert find_casing(path.read_text(encoding="utf-8").splitlines()) is is_cased

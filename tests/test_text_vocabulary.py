import pytest

from bert.text.vocabulary import check_same, check_size

WHAT = "`--vocab_file`"


@pytest.mark.parametrize(
    ("size", "rows", "is_warned"),
    [
        (30522, 30522, False),
        # Padded to a multiple of 8, 64, or 128.
        (30522, 30528, False),
        (28996, 29056, False),
        (6, 7, True),
        # The cased vocabulary for the uncased model, and spare rows of a public one.
        (28996, 30522, True),
        (30521, 50000, True),
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
    other = {token: number for number, token in enumerate(["[PAD]", "c", "b", "a", "x"])}
    with pytest.raises(ValueError, match=r"'v\.txt' differs from 'o\.txt' in 4 of 5 entries"):
        check_same(other, WHAT, "v.txt", own=own, own_file="o.txt")

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert.tasks.tagging.words import UNITS, find_spans


def cut(text, unit):
    return [text[start:end] for start, end in find_spans(text, unit)]


@pytest.mark.parametrize(
    "words",
    [
        ["Paris", "'s", "mayor", ",", "Mr", ".", "O'Brien", ",", "is", "here", "."],
        ["He", "said", ":", '"', "It", "’s", "a", "U.S.", "plan", '"', "(", "e.g.", ")", "!"],  # noqa: RUF001
        ["On", "1996-08-22", ",", "10,000", "shares", "rose", "3.5", "%", "to", "$", "4.20", "."],
        ["Jean-Paul", "at", "AT&T", "wrote", "to", "a.b@c.org", "and", "x/y", "."],
        ["Ünïcödé", "cafe\u0301", "в", "Москве", ",", "हिन्दी"],
        ["北", "京", "市", "。"],
        ["don't", "we", "?", "Yes", "-", "no"],
    ],
)
def test_words_are_split_as_in_tagged_texts(words):
    text = ""
    for word in words:
        closes = word in {"'s", "’s", ",", ".", "%", "?", "!", ":", ")", "。"}  # noqa: RUF001
        opens = text.endswith(("$", "(", ' "'))
        text += word if closes or opens or not text else f" {word}"
    assert cut(text, "word") == words


@pytest.mark.parametrize(
    ("text", "characters"),
    [
        ("我在iPhone 13上。", ["我", "在", "iPhone", "13", "上", "。"]),
        ("東京へ", ["東", "京", "へ"]),
        ("กำลัง", ["ก", "ำ", "ลั", "ง"]),
        ("naïve cafe\u0301!", ["naïve", "cafe\u0301", "!"]),
    ],
)
def test_characters_of_unspaced_scripts_stand_alone(text, characters):
    assert cut(text, "character") == characters


@given(st.text(), st.sampled_from(UNITS))
def test_spans_cover_all_but_whitespace_in_order(text, unit):
    spans = find_spans(text, unit)
    assert "".join(text[start:end] for start, end in spans) == "".join(text.split())
    ends = [0, *(end for _, end in spans)]
    assert all(end <= start for end, (start, _) in zip(ends, spans, strict=False))
    assert all(start < end for start, end in spans)

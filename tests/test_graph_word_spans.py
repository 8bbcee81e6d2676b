import pytest
import tensorflow as tf
from hypothesis import example, given, settings
from hypothesis import strategies as st
from test_export_tokenizer import batches, graph, is_worth_a_look

import word_spans
from graph_word_spans import GraphWordSpans

# Marks within words and numbers, possessives, and scripts without spaces.
marked = st.text("aAsSx19''\u2019.,:;-&/@_ \u0301\u200d\u4e2d\u30ab\u0e01\xa0", max_size=40)


@pytest.fixture(scope="module", params=word_spans.UNITS)
def find(request):
    """A function of texts, and the unit."""
    return graph(GraphWordSpans(request.param).find), request.param


def check(find, batch):
    words, starts, ends = (each.to_list() for each in find[0](tf.constant(batch, tf.string)))
    expected = [word_spans.find_spans(text, find[1]) for text in batch]
    found = [list(zip(*each, strict=True)) for each in zip(starts, ends, strict=True)]
    assert found == expected
    assert [[word.decode() for word in row] for row in words] == [
        [text[start:end] for start, end in spans]
        for text, spans in zip(batch, expected, strict=True)
    ]


@settings(max_examples=50)
@given(st.one_of(batches, st.lists(marked, max_size=8)))
@example(["the U.S. won 3,000:1, e.g. 's it's 'sit 's's dogs' o'clock's", "a-b&c/d@e.f 1,x ,1"])
@example(["", "'", "s", "\u2019S", "1,", "2", "\u0301a", "\u200d \u0301\u4e2d\u0301\u30ab"])
@example([])
def test_words_are_where_python_finds_them(find, batch):
    check(find, batch)


@pytest.mark.slow
def test_every_character_is_taken_as_in_python(find):
    chars = [chr(code) for code in range(0x110000) if not 0xD800 <= code < 0xE000]
    chars = [char for char in chars if is_worth_a_look(char) or ord(char) % 64 == 0]
    check(find, [f"a{char}a'{char}1,{char}" for char in chars])

"""The small functions of the original's run_squad.py."""

import collections
import math

import numpy as np
import pytest
from conftest import GOLDEN
from hypothesis import given
from hypothesis import strategies as st

import run_squad
import tokenization
from bert.tasks.squad import windows as squad_windows

DocSpan = collections.namedtuple("DocSpan", ["start", "length"])


@given(st.lists(st.integers(-3, 3), max_size=12), st.integers(1, 15))
def test_best_indexes_are_those_of_the_largest_and_of_equal_ones_the_first(logits, count):
    indexes = run_squad._get_best_indexes([float(each) for each in logits], count)
    assert indexes == sorted(range(len(logits)), key=lambda i: (-logits[i], i))[:count]
    assert all(type(each) is int for each in indexes)


@given(st.lists(st.floats(-50, 50), max_size=9))
def test_softmax_is_one_in_all(scores):
    probabilities = run_squad._compute_softmax(scores)
    assert len(probabilities) == len(scores)
    if scores:
        assert sum(probabilities) == pytest.approx(1)
        logs = [math.exp(each - max(scores)) for each in scores]
        assert probabilities == pytest.approx([each / sum(logs) for each in logs])


class OwnTokenizer:
    """What the original asks of a tokenizer, and no more."""

    def __init__(self):
        whole = tokenization.FullTokenizer(str(GOLDEN / "vocab.txt"))
        self.tokenize = whole.tokenize
        self.convert_tokens_to_ids = whole.convert_tokens_to_ids
        self.convert_ids_to_tokens = whole.convert_ids_to_tokens


def test_tokenizers_of_other_makes_cut_windows_too():
    examples = [run_squad.SquadExample("q", "the ||| end", ["never", "(always", "the"] * 9)]
    windows = []
    for tokenizer in (OwnTokenizer(), tokenization.FullTokenizer(str(GOLDEN / "vocab.txt"))):
        found = []
        run_squad.convert_examples_to_features(
            examples, tokenizer, 24, 4, 8, is_training=False, output_fn=found.append
        )
        windows.append(found)
    assert windows[0] == windows[1] and len(windows[0]) > 2
    # As of any object, people keep more with them.
    windows[0][0].more = examples[0].more = 1


def test_an_answer_is_found_within_its_words():
    tokenizer = tokenization.FullTokenizer(str(GOLDEN / "vocab.txt"))
    words = tokenizer.tokenize("never ( always - never ) . always")
    improve = run_squad._improve_answer_span
    whole = 0, len(words) - 1
    for answer in ("always", "( always", "never )"):
        tokens = tokenizer.tokenize(answer)
        start, end = improve(words, *whole, tokenizer, answer)
        assert words[start : end + 1] == tokens
        assert words.index(tokens[0]) == start or answer == "never )"
    # Within the span alone, and the whole of it where the answer is not there.
    assert improve(words, 4, whole[1], tokenizer, "( always") == (4, whole[1])
    assert improve(words, 2, 2, tokenizer, words[2]) == (2, 2)


@given(st.integers(1, 40), st.integers(2, 12), st.integers(1, 12))
def test_one_span_alone_shows_a_token_best_as_in_the_table(num_tokens, room, stride):
    starts = squad_windows.slide(np.array([num_tokens]), np.array([room]), stride)[0].tolist()
    spans = [DocSpan(start, min(room, num_tokens - start)) for start in starts]
    for position in range(num_tokens):
        best = [
            index
            for index in range(len(spans))
            if run_squad._check_is_max_context(spans, index, position)
        ]
        scores = [
            min(position - span.start, span.start + span.length - 1 - position) + 0.01 * span.length
            if span.start <= position < span.start + span.length
            else -1.0
            for span in spans
        ]
        assert best == [scores.index(max(scores))]

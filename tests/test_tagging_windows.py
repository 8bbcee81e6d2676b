import itertools

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import tokenization
from bert.tasks.tagging.sentences import Sentence
from bert.tasks.tagging.tags import TagSet, convert
from bert.tasks.tagging.text_tagger import RawText
from bert.tasks.tagging.windows import (
    NO_WORD,
    Prediction,
    by_word,
    context,
    decode,
    is_known,
    loss,
    make_features,
    score,
    split,
    text_entities,
)

# Word w<n> has n pieces: "w", then "##1" up to "##<n - 1>".
PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "w", *(f"##{number}" for number in range(1, 10))]
TOKENIZER = tokenization.FullTokenizer.from_vocab({p: i for i, p in enumerate(PIECES)}, False)
TAG_SET = TagSet(labels=("O", "B-X", "I-X", "B-Y", "I-Y"), scheme="iob2")


def word(num_pieces):
    return "w" + "".join(map(str, range(1, num_pieces)))


def sentence(sizes, tags=None, document=0):
    return Sentence([word(size) for size in sizes], tags, document)


sizes = st.lists(st.integers(1, 6), min_size=1, max_size=30)
documents = st.lists(st.lists(sizes, min_size=1, max_size=4), min_size=1, max_size=3)


def sentences_of(drawn):
    return [sentence(each, None, number) for number, group in enumerate(drawn) for each in group]


def check(features, sentences, max_seq_length):
    """Checks what must hold of any features."""
    words = [each for one in sentences for each in one.words]
    found = features["word_ids"][features["word_ids"] != NO_WORD]
    assert sorted(found) == list(range(len(words)))
    np.testing.assert_array_equal(features["label_mask"], features["word_ids"] != NO_WORD)
    for row in range(len(features["input_ids"])):
        length = features["input_mask"][row].sum()
        assert features["input_mask"][row].tolist() == [1] * length + [0] * (
            max_seq_length - length
        )
        pieces = [PIECES[index] for index in features["input_ids"][row]]
        assert pieces[0] == "[CLS]"
        assert pieces[length - 1] == "[SEP]"
        assert pieces[length:] == ["[PAD]"] * (max_seq_length - length)
        for place in np.flatnonzero(features["label_mask"][row]):
            expected = TOKENIZER.tokenize(words[features["word_ids"][row, place]])
            # Of a word longer than a window, the end is missing.
            kept = min(len(expected), max_seq_length - 2)
            assert pieces[place : place + kept] == expected[:kept]
    assert not features["segment_ids"].any()
    # A window in which no word is predicted would be computed in vain.
    assert features["label_mask"].any(axis=1).all()


# The last window but one has no word that has its most context there.
RARE = [1, 4, 4, 2, 6, 2, 2, 3, 1, 1, 1, 1, 6, 4, 4, 1, 3, 1, 1, 4]


@example([[RARE]], 11, False)
@given(documents, st.integers(3, 24), st.booleans())
def test_every_word_is_predicted_once_at_its_first_piece(drawn, max_seq_length, context):
    sentences = sentences_of(drawn)
    features = make_features(
        sentences, TAG_SET, TOKENIZER, max_seq_length, document_context=context
    )
    check(features, sentences, max_seq_length)


@given(sizes, st.integers(1, 20))
def test_a_word_is_predicted_where_it_has_most_context(lengths, budget):
    starts = list(itertools.accumulate(lengths, initial=0))
    windows = list(split(starts, 0, len(lengths), budget))
    features = make_features([sentence(lengths)], TAG_SET, TOKENIZER, budget + 2)
    owners = {}
    for row, ids in enumerate(features["word_ids"]):
        for index in ids[ids != NO_WORD]:
            owners[int(index)] = row
    # Rows are windows, but for those that own no word.
    rows = {}
    for index in range(len(lengths)):
        having = [each for each in windows if index in range(*each)]
        best = max(having, key=lambda each: context(starts, *each, index))
        rows.setdefault(owners[index], set()).add(best)
    assert all(len(each) == 1 for each in rows.values())


@given(sizes, st.integers(1, 20))
def test_windows_overlap_and_are_full(lengths, budget):
    starts = list(itertools.accumulate(lengths, initial=0))
    windows = list(split(starts, 0, len(lengths), budget))
    assert windows[0][0] == 0
    assert windows[-1][1] == len(lengths)
    for first, last in windows:
        assert starts[last] - starts[first] <= budget or last == first + 1
    for (first, last), (next_first, next_last) in itertools.pairwise(windows):
        assert first < next_first <= last < next_last
        # No further word would have fitted.
        assert starts[last + 1] - starts[first] > budget
    # Nor a word before those of the last window.
    first, last = windows[-1]
    assert first == 0 or starts[last] - starts[first - 1] > budget


def test_a_long_sentence_is_split_in_halves_that_overlap():
    features = make_features([sentence([1] * 8)], TAG_SET, TOKENIZER, 6)
    np.testing.assert_array_equal(
        features["word_ids"],
        [
            [-1, 0, 1, 2, -1, -1],
            [-1, -1, 3, 4, -1, -1],
            [-1, -1, 5, 6, 7, -1],
        ],
    )


def test_neighbours_fill_the_window_within_their_document(log):
    sentences = [
        sentence([1, 1], document=0),
        sentence([1, 3], document=0),
        sentence([2], document=0),
        sentence([4], document=1),
    ]
    features = make_features(sentences, TAG_SET, TOKENIZER, 9, document_context=True)
    rows = [
        [PIECES[index] for index in row[mask > 0]][1:-1]
        for row, mask in zip(features["input_ids"], features["input_mask"], strict=True)
    ]
    one, two, three, four = ["w"], ["w", "##1"], ["w", "##1", "##2"], ["w", "##1", "##2", "##3"]
    assert rows == [
        [*one, *one, *one, *three],
        # Room for three pieces, of which one goes before and two after.
        [*one, *one, *three, *two],
        [*one, *one, *three, *two],
        four,
    ]
    np.testing.assert_array_equal(
        np.argwhere(features["word_ids"] >= 0),
        [[0, 1], [0, 2], [1, 2], [1, 3], [2, 6], [3, 1]],
    )
    # A window has no words of another document, though there is room.
    features = make_features(sentences, TAG_SET, TOKENIZER, 24, document_context=True)
    assert features["input_mask"].sum(axis=1).tolist() == [10, 10, 10, 6]
    # What no word before has room for is for the words after.
    others = [sentence([size], document=0) for size in (3, 1, 1, 1, 1, 1)]
    more = make_features([*others, sentences[3]], TAG_SET, TOKENIZER, 7, document_context=True)
    assert more["input_mask"].sum(axis=1)[1] == 7
    assert not log.messages
    make_features(sentences[:3], TAG_SET, TOKENIZER, 9, document_context=True)
    assert "All sentences are of one document" in log.messages[-1]


def test_labels_do_not_depend_on_the_scheme_of_the_tags():
    for tags in (
        ["B-X", "I-X", "O", "B-Y"],
        ["I-X", "I-X", "O", "I-Y"],
        ["B-X", "E-X", "O", "S-Y"],
    ):
        features = make_features([sentence([1, 2, 3, 1], tags)], TAG_SET, TOKENIZER, 12)
        np.testing.assert_array_equal(features["label_ids"], [[0, 1, 2, 0, 0, 0, 0, 3, 0, 0, 0, 0]])
        np.testing.assert_array_equal(
            features["label_mask"], [[0, 1, 1, 0, 1, 0, 0, 1, 0, 0, 0, 0]]
        )


@given(documents, st.integers(3, 24), st.booleans(), st.randoms(use_true_random=False))
def test_predictions_are_returned_to_their_words(drawn, max_seq_length, context, rng):
    sentences = [
        Sentence(each.words, rng.choices(TAG_SET.labels, k=len(each.words)), each.document)
        for each in sentences_of(drawn)
    ]
    gold = [convert(each.tags, "iob2") for each in sentences]
    features = make_features(
        sentences, TAG_SET, TOKENIZER, max_seq_length, document_context=context
    )
    logits = 3.0 * np.eye(len(TAG_SET.labels))[features["label_ids"]]
    predictions = decode(TAG_SET, sentences, by_word(features, logits))
    assert [each.tags for each in predictions] == gold
    probability = np.exp(3) / (np.exp(3) + 4)
    for each in predictions:
        np.testing.assert_allclose(each.probabilities, probability)
    assert loss(features, logits) == pytest.approx(-np.log(probability))
    scores = score(TAG_SET, sentences, predictions)
    assert scores["accuracy"] == 1
    assert scores["num_correct"] == scores["num_gold"] == scores["num_found"]


def test_words_with_unknown_plain_tags_do_not_count_in_the_loss():
    tag_set = TagSet(labels=("A", "B"), scheme="none")
    sentences = [sentence([1, 1], ["A", "C"]), sentence([1], ["B"])]
    features = make_features(sentences, tag_set, TOKENIZER, 8)
    known = is_known(sentences, tag_set)
    assert known.tolist() == [True, False, True]
    logits = np.random.RandomState(0).randn(*features["label_ids"].shape, 2)
    words = by_word(features, logits)
    log_probs = words - np.log(np.exp(words).sum(axis=1, keepdims=True))
    expected = -(log_probs[0, 0] + log_probs[2, 1]) / 2
    assert loss(features, logits, known) == pytest.approx(expected)
    assert np.isnan(loss(features, logits, known & False))


def test_a_word_without_a_piece_is_predicted_and_counted(log):
    words = Sentence(["w", "\u200b", "w1"], ["O", "B-X", "O"])
    features = make_features([words], TAG_SET, TOKENIZER, 8)
    pieces = [PIECES[index] for index in features["input_ids"][0]]
    assert pieces == ["[CLS]", "w", "[UNK]", "w", "##1", "[SEP]", "[PAD]", "[PAD]"]
    assert features["label_ids"][0, 2] == 1
    assert features["label_mask"][0].tolist() == [0, 1, 1, 1, 0, 0, 0, 0]
    assert r"1 of 3 words, such as '\u200b', have no word piece" in log.messages[0]


def test_unknown_words_are_counted(log):
    make_features([Sentence(["w", "x"])], TAG_SET, TOKENIZER, 8)
    assert "50.0 % of the words are [UNK]" in log.messages[0]


def test_a_sentence_without_words_has_no_window_and_no_tags():
    sentences = [sentence([1]), Sentence([]), sentence([2])]
    features = make_features(sentences, TAG_SET, TOKENIZER, 8)
    assert len(features["input_ids"]) == 2
    logits = np.zeros((*features["input_ids"].shape, len(TAG_SET.labels)))
    predictions = decode(TAG_SET, sentences, by_word(features, logits))
    assert [each.tags for each in predictions] == [["O"], [], ["O"]]
    empty = make_features([Sentence([])], TAG_SET, TOKENIZER, 8)
    assert empty["input_ids"].shape == (0, 8)
    assert decode(TAG_SET, [Sentence([])], np.zeros((0, 5)))[0].tags == []


def test_entities_of_raw_text_have_their_characters():
    text = " Frau Müller,  aus  New York."
    raw = RawText.read(text, "word")
    assert raw.words == ["Frau", "Müller", ",", "aus", "New", "York", "."]
    prediction = Prediction(
        ["B-PER", "I-PER", "O", "O", "I-LOC", "I-LOC", "O"], [0.9, 0.7, 1, 1, 0.5, 0.25, 1]
    )
    entities = text_entities(text, raw.spans, prediction, "iob2")
    assert entities == [
        {"type": "PER", "start": 1, "end": 12, "text": "Frau Müller", "score": pytest.approx(0.8)},
        {"type": "LOC", "start": 20, "end": 28, "text": "New York", "score": 0.375},
    ]
    assert all(text[each["start"] : each["end"]] == each["text"] for each in entities)
    assert RawText.read(" \n", "character").words == []

import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from conftest import GOLDEN
from hypothesis import given
from hypothesis import strategies as st

import tokenization
from bert.original import squad as original_squad
from bert.tasks.squad import answers as squad_answers
from bert.tasks.squad import questions as squad_questions
from bert.tasks.squad import windows as squad_windows
from bert.tasks.squad.options import DecodingOptions
from bert.tasks.squad.questions import SquadExample

WORDS = "the leader was john smith ( ) - , . 1895 1943 un ##able ' s"
VOCAB = {token: i for i, token in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", *WORDS.split()])}
TOKENIZER = tokenization.FullTokenizer.from_vocab(VOCAB)
LENGTH = 20

# [CLS] john [SEP] the leader was john smith ( 1895 - 1943 ) . [SEP]
CONTEXT = "The leader  was John Smith (1895-1943)."
EXAMPLE = SquadExample("q", "john", CONTEXT.split(), context=CONTEXT)
PLACES = {token: 3 + i for i, token in enumerate(WORDS.split()[:6])}


def table_of(*examples, length=LENGTH, stride=4):
    return squad_windows.make_features(examples, TOKENIZER, length, stride, 4, False)


def logits(**values):
    """Returns logits of -1 but for some tokens; `pad` is the last position, `cls` the first."""
    row = np.full(LENGTH, -1, np.float32)
    for token, value in values.items():
        row[{"cls": 0, "question": 1, "pad": LENGTH - 1, "year": 9, **PLACES}[token]] = value
    return row


def find(examples, table, rows, tokenizer=TOKENIZER, **decoding):
    return list(
        squad_answers.find_answers(examples, table, rows, tokenizer, DecodingOptions(**decoding))
    )


def answer(start, end, example=EXAMPLE, **decoding):
    (prediction,) = find([example], table_of(example), [(start, end)], **decoding)
    return prediction


def texts(prediction):
    return [entry.text for entry in prediction.nbest]


def test_the_answer_is_the_best_span_as_text_of_the_paragraph():
    prediction = answer(logits(john=5), logits(smith=5))
    assert prediction.text == "John Smith"
    assert prediction.qas_id == "q"
    best = prediction.best
    begin, end = best.span.in_context(EXAMPLE)
    assert CONTEXT[begin:end] == "John Smith"
    assert (best.start_logit, best.end_logit) == (5.0, 5.0)
    assert prediction.null_odds is None


def test_a_span_over_two_spaces_has_one_in_its_text():
    prediction = answer(logits(leader=5), logits(was=5))
    assert prediction.text == "leader was"
    begin, end = prediction.best.span.in_context(EXAMPLE)
    assert CONTEXT[begin:end] == "leader  was"


def test_a_part_of_a_word_is_an_answer():
    assert answer(logits(year=5), logits(year=5)).text == "1895"


def test_padding_competes_for_places_among_the_best():
    start, end = logits(pad=9, question=8, john=7), logits(smith=7)
    assert answer(start, end, n_best_size=3).text == "John Smith"
    assert answer(start, end, n_best_size=2).text == "empty"
    # Where it is left out of the logits, it does not.
    assert answer(start[:-1], end[:-1], n_best_size=2).text == "John Smith"


def test_an_answer_begins_only_in_the_window_with_the_most_context_of_its_token():
    example = SquadExample("q", "was", ["john", "smith"] * 20)
    table = table_of(example)
    rows = np.full((len(table), 2, LENGTH), -1, np.float32)
    # The last token of a window has more context in the next one.
    first, _, length = table.parts[0]
    rows[0, :, first + length - 1] = 9
    (prediction,) = find([example], table, rows)
    assert prediction.best.start_logit == -1
    assert prediction.best.end_logit == 9


@pytest.mark.parametrize("seed", range(20))
def test_answers_are_those_of_the_definition(seed):
    rng = np.random.default_rng(seed)
    example = SquadExample("q", "was", rng.choice(["John", "the", "(", "Smith"], 40).tolist())
    table = table_of(example, length=48)
    # Many equal scores.
    start, end = rows = np.round(rng.normal(size=(2, 48)) * 2).astype(np.float32)
    (prediction,) = find([example], table, [rows], n_best_size=20, max_answer_length=7)

    best_starts = sorted(range(48), key=lambda place: -start[place])[:20]
    best_ends = sorted(range(48), key=lambda place: -end[place])[:20]
    spans = [(i, j) for i in best_starts for j in best_ends if 3 <= i <= j < 43 and j - i + 1 <= 7]
    spans.sort(key=lambda span: -(start[span[0]] + end[span[1]]))
    expected = {" ".join(example.doc_tokens[i - 3 : j - 2]): (i, j) for i, j in reversed(spans)}
    ranked = sorted(expected.items(), key=lambda item: spans.index(item[1]))[:20]
    assert texts(prediction) == [text for text, _ in ranked]
    assert [(entry.start_logit, entry.end_logit) for entry in prediction.nbest] == [
        (start[i], end[j]) for _, (i, j) in ranked
    ]


def test_a_paragraph_of_one_word_is_searched_once_for_each_answer(monkeypatch):
    """Else the time would grow with the square of its length."""
    count = 400
    example = SquadExample("q", "", ["[" * count])
    windows = [
        squad_answers.Window(0, ["["] * 8, np.zeros(8, int), np.ones(8, bool))
        for _ in range(0, count, 8)
    ]
    rng = np.random.RandomState(0)
    rows = [(rng.randn(9).astype("f"), rng.randn(9).astype("f")) for _ in windows]
    looked, look = [], squad_answers._num_characters
    monkeypatch.setattr(
        squad_answers, "_num_characters", lambda text: looked.append(text) or look(text)
    )
    basic = TOKENIZER.basic_tokenizer
    prediction = squad_answers.decode_windows(example, windows, rows, DecodingOptions(), basic)
    assert {entry.text for entry in prediction.nbest} == {"[" * n for n in range(1, 9)}
    # For each answer, at the words as they are and as the tokenizer leaves them.
    assert len(looked) == 2 * 8


@given(st.lists(st.floats(-30, 30, width=32), min_size=2 * LENGTH, max_size=2 * LENGTH))
def test_probabilities_are_the_softmax_of_the_listed_scores(values):
    row = np.array(values, np.float32)
    prediction = answer(row[:LENGTH], row[LENGTH:])
    scores = np.array([entry.score for entry in prediction.nbest])
    weights = np.exp(scores - scores.max())
    given_probabilities = [entry.probability for entry in prediction.nbest]
    np.testing.assert_allclose(given_probabilities, weights / weights.sum(), rtol=1e-9)
    assert given_probabilities == sorted(given_probabilities, reverse=True)
    assert len(set(texts(prediction))) == len(prediction.nbest)


VERSION_2 = {"version_2_with_negative": True}


@pytest.mark.parametrize(
    ("null", "threshold", "text"),
    [(9, 0, "John Smith"), (11, 0, ""), (10, 0, "John Smith"), (11, 1, "John Smith"), (9, -2, "")],
)
def test_no_answer_is_predicted_if_its_odds_exceed_the_threshold(null, threshold, text):
    prediction = answer(
        logits(john=5, cls=null - 5),
        logits(smith=5, cls=5),
        null_score_diff_threshold=threshold,
        **VERSION_2,
    )
    assert prediction.text == text
    assert prediction.null_odds == null - 10
    assert sorted(texts(prediction)[:2]) == sorted(["", "John Smith"])
    assert prediction.best.text == text


def test_no_answer_is_added_to_the_n_best_if_it_is_not_among_them():
    start, end = (logits(cls=-9, the=3, leader=2, was=1) for _ in range(2))
    assert "" not in texts(answer(start, end, n_best_size=3))
    listed = answer(start, end, n_best_size=3, **VERSION_2)
    assert len(listed.nbest) == 4
    assert listed.nbest[-1].text == ""
    assert listed.nbest[-1].score == -18


def test_no_answer_has_its_lowest_score_of_all_windows():
    example = SquadExample("q", "was", ["john", "smith"] * 20)
    table = table_of(example)
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(len(table), 2, LENGTH)).astype(np.float32)
    assert len(table) > 2
    # Neither logit alone is the lowest there.
    rows[:3, :, 0] = [[-9, 5], [-5, -5], [5, -9]]
    (prediction,) = find([example], table, rows, **VERSION_2)
    (null,) = (entry for entry in prediction.nbest if not entry.text)
    assert null.score == min(float(start[0]) + float(end[0]) for start, end in rows)


@pytest.mark.parametrize("version_2", [False, True])
@pytest.mark.parametrize("blank", [False, True])
def test_without_a_possible_span_there_is_no_answer(log, version_2, blank):
    example = SquadExample("q", "was", []) if blank else EXAMPLE
    table = table_of(example)
    rows = [(logits(cls=9), logits(pad=9))] * len(table)
    assert len(rows) == 1 - blank
    decoding = {"n_best_size": 1, "version_2_with_negative": version_2}
    (prediction,) = find([example], table, rows, **decoding)
    assert prediction.text == ("" if version_2 else "empty")
    assert prediction.null_odds == (1000000.0 if version_2 else None)
    assert [entry.probability for entry in prediction.nbest] == [1.0]
    squad_answers.log_summary([prediction])
    assert "For 1 questions no span could be the answer" in log.messages[-1]
    # Where a span could be, "no answer" beside it is none to warn of.
    answered = answer(logits(john=5), logits(smith=5), **{**decoding, "n_best_size": 20})
    squad_answers.log_summary([answered])
    assert "1 questions answered, 0 of them with an empty text" in log.messages[-1]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([(logits()[:10], logits())], "start logits .* 15 tokens. Received 10 for question 'q'"),
        ([(logits(), logits(john=np.nan))], "end logits .* 1 of them not finite"),
        # Padding competes with the tokens.
        ([(logits(pad=np.nan), logits())], "start logits .* 1 of them not finite"),
    ],
)
def test_logits_must_be_long_enough_and_finite(rows, message):
    with pytest.raises(ValueError, match=message):
        find([EXAMPLE], table_of(EXAMPLE), rows)


@pytest.mark.parametrize(
    ("predicted", "original", "lower", "text"),
    [
        ("steve smith", "Steve Smith's", True, "Steve Smith"),
        ("steve smith's", "Steve Smith's", True, "Steve Smith's"),
        ("cafe", "(Café)", True, "Café"),
        ("1895", "(1895-1943).", True, "1895"),
        ("b", "a  b.", True, "b"),
        # What cannot be found, or not character by character, is all of the text.
        ("[UNK]", "Steve Smith's", True, "Steve Smith's"),
        ("steve", "Steve", False, "Steve"),
        ("Steve", "Steve's", False, "Steve"),
        ("smith", "Smith\u200b Jones", True, "Smith\u200b Jones"),
        ("", "Steve", True, "Steve"),
        ("北", "北京", True, "北"),
    ],
)
def test_text_is_projected_back_to_the_original(predicted, original, lower, text):
    assert original_squad.get_final_text(predicted, original, lower) == text


def test_the_reason_of_a_failed_projection_is_logged_on_request(log):
    original_squad.get_final_text("x", "Steve", True)
    assert not log.messages
    for predicted in ("x", "", "smith"):
        original_squad.get_final_text(predicted, "Smith\u200b", True, verbose_logging=True)
    original_squad.get_final_text("", "Smith", True, verbose_logging=True)
    assert [message.split()[0] for message in log.messages] == [
        "Unable", "Length", "Length", "Couldn't",
    ]  # fmt: skip


@given(st.text(max_size=30), st.integers(0, 5), st.integers(1, 6), st.booleans())
def test_words_are_always_projected_to_a_part_of_the_text(text, first, count, lower):
    original = " ".join(text.split())
    tokenize = tokenization.BasicTokenizer(lower).tokenize
    predicted = " ".join(tokenize(original)[first : first + count])
    begin, end = squad_answers.align(predicted, original, tokenize)
    assert 0 <= begin <= end <= len(original)
    if end - begin < len(original):
        assert len(original[begin:end].replace(" ", "")) == len(predicted.replace(" ", ""))


@pytest.mark.parametrize(
    ("predicted", "options", "span"),
    [
        ("\xe9t\xe9", {}, (0, 8)),
        ("\xe9t\xe9", {"strip_accents": False}, (0, 3)),
        ("\u6587", {"strip_accents": False}, (5, 6)),
        ("\u4e2d\u6587", {"strip_accents": False, "tokenize_chinese_chars": False}, (4, 6)),
    ],
)
def test_words_are_projected_as_the_tokenizer_splits_them(predicted, options, span):
    tokenize = tokenization.BasicTokenizer(**options).tokenize
    assert squad_answers.align(predicted, "\xc9t\xe9 \u4e2d\u6587 x", tokenize) == span


def golden_questions(version):
    tokenizer = tokenization.FullTokenizer(str(GOLDEN / "vocab.txt"))
    path = str(GOLDEN / f"squad_v{version}.json")
    examples = squad_questions.read_squad_examples(path, False, version == 2)
    return examples, tokenizer


@pytest.mark.parametrize("version", [1, 2])
def test_the_functions_of_the_original_write_the_same_files(tmp_path, version):
    """What `run_squad.run` writes is compared with the original in `test_run_squad`."""
    examples, tokenizer = golden_questions(version)
    lengths = (48, 16, 12)
    table = squad_windows.make_features(examples, tokenizer, *lengths, False)
    logits = np.random.default_rng(0).normal(size=(len(table), 2, 48)).astype(np.float32)
    names = ("predictions", "nbest", "odds")
    ours, theirs = ([str(tmp_path / who / name) for name in names] for who in ("we", "they"))
    for paths in (ours, theirs):
        Path(paths[0]).parent.mkdir()
    is_v2 = version == 2
    # Between the odds of the questions.
    given = {"version_2_with_negative": is_v2, "null_score_diff_threshold": -2.0}
    decoding = {"n_best_size": 5, "max_answer_length": 8, **given}
    predictions = find(examples, table, logits, tokenizer, **decoding)
    squad_answers.write_answers(predictions, *ours[:2], ours[2] if is_v2 else None)

    features = []
    original_squad.convert_examples_to_features(
        examples, tokenizer, *lengths, False, features.append
    )
    for window in features:
        # What is not there counts as false, as in the original.
        shown = window.token_is_max_context.items()
        window.token_is_max_context = {place: True for place, is_best in shown if is_best}
    results = [
        original_squad.RawResult(window.unique_id, start.tolist(), end.tolist())
        for window, (start, end) in zip(features, logits, strict=True)
    ]
    original_squad.write_predictions(
        examples, features, results[::-1], 5, 8, True, *theirs, **given
    )
    for our, their in zip(ours[: 2 + is_v2], theirs, strict=False):
        assert Path(our).read_bytes() == Path(their).read_bytes()
    assert Path(theirs[2]).exists() == is_v2


def test_every_window_needs_its_result(tmp_path):
    features = list(original_squad.input_features(table_of(EXAMPLE), 0, TOKENIZER))
    files = [str(tmp_path / name) for name in ("p", "n", "o")]
    with pytest.raises(ValueError, match="none for 1000000000"):
        original_squad.write_predictions([EXAMPLE], features, [], 20, 30, True, *files)
    assert list(tmp_path.iterdir()) == []


def test_the_golden_answers_are_at_their_places():
    examples, tokenizer = golden_questions(1)
    table = squad_windows.make_features(examples, tokenizer, 48, 16, 12, False)
    rows = np.random.default_rng(0).normal(size=(len(table), 2, 48))
    predictions = find(examples, table, rows, tokenizer)
    for example, prediction in zip(examples, predictions, strict=True):
        for entry in prediction.nbest:
            begin, end = entry.span.in_context(example)
            assert " ".join(example.context[begin:end].split()) == entry.text


def test_no_paragraph_is_kept_after_its_answer():
    window = squad_answers.Window(0, ["x", "b"], np.arange(2), np.ones(2, bool))
    rows = [(np.array([1, 0, 0], "f"), np.array([0, 1, 0], "f"))]
    basic = TOKENIZER.basic_tokenizer
    tracemalloc.start()
    try:
        for number in range(10):
            text = f"{number}{'a' * 200_000} b"
            example = SquadExample("q", "", text.split(), context=text)
            found = squad_answers.decode_windows(example, [window], rows, DecodingOptions(), basic)
            assert found.best.span.in_context(example) == (0, len(text))
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # The last text and its words.
    assert kept < 1_000_000

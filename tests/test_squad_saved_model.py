import keras
import numpy as np
import pytest
import tensorflow as tf
from conftest import exhaustive, mostly_portable, small_config
from helpers.opened_tasks import open_task
from helpers.raw_texts import SPECIALS, raw_texts
from helpers.saved_models import as_lists, call_elsewhere
from helpers.served_models import approximately
from helpers.squad_runs import golden_settings, read_json
from hypothesis import example, given, settings
from hypothesis import strategies as st

import bert
import modeling
import run_squad
import tokenization
from bert.export.tokenizer import GraphTokenizer
from bert.models.fine_tuned import LoadedModel
from bert.network.heads import span_model
from bert.runs import identity
from bert.tasks.examples import Part
from bert.tasks.squad import export as squad_saved_model
from bert.tasks.squad import questions as squad_questions
from bert.tasks.squad.export import export_answerer
from bert.tasks.squad.options import DecodingOptions
from bert.tasks.squad.question_answering import QuestionAnswering
from bert.weights.folder import ModelFolder

DECODINGS = {
    1: {"n_best_size": 20, "max_answer_length": 30},
    2: {"n_best_size": 3, "max_answer_length": 5, "version_2_with_negative": True},
}
LENGTHS = {"max_seq_length": 16, "doc_stride": 5, "max_query_length": 6}
BATCH = 4

# Letters that change their number or place in lower case, separators, and odd whitespace.
ODD = (
    "\xe9\xc9e\u0301o\u0308\u0301\xdf\u0130\u0131\u03a3\u03c3\u03c2\u0391\xad\u200b\ufeff\ufffd\x00"
    "\xa0\u202f\u3000\x0b\x1c\x85\u2028\t\n\r\u4e2d\u6587\u3042\uac00\uac01\U0001f600\U00020000#.,'-$"
)
contexts = st.text(st.sampled_from(ODD + "aabbAB      "), max_size=80)
questions = st.text(st.sampled_from(ODD + "ab  "), max_size=12)
pairs = st.lists(st.tuples(questions, contexts), min_size=BATCH, max_size=BATCH)


def make_tokenizer(do_lower_case=True):
    """Returns a tokenizer of letters and marks; some characters are unknown to it."""
    letters = "abAB\xdf\u03c3\u03c2\u03b1\u0131\u4e2d\u3042\u1100\u1161#.,'-\xe9ei\u0307"
    letters = [*letters, "ab", "##b", "ba", "\U0001f600", "unk", "[", "]"]
    pieces = [f"##{letter}" for letter in letters if not letter.startswith("##")]
    tokens = dict.fromkeys([*SPECIALS, *letters, *pieces])
    vocab = {token: index for index, token in enumerate(tokens)}
    return tokenization.FullTokenizer.from_vocab(vocab, do_lower_case)


def make_model(tokenizer):
    """Returns a small model whose logits differ much from place to place."""
    config = small_config(len(tokenizer.vocab))
    keras.utils.set_random_seed(3)
    model = span_model(config)
    model.weights[-2].assign(4 * np.random.RandomState(0).randn(2, 8))
    return config, model


def compare(loaded, answer, rows):
    """Compares answers to questions and contexts, bytes of UTF-8."""
    question, context = ([row[place] for row in rows] for place in range(2))
    outputs = answer(
        question=tf.constant(question, tf.string), context=tf.constant(context, tf.string)
    )
    outputs = {name: values.numpy().tolist() for name, values in outputs.items()}
    texts = [tuple(text.decode("utf-8", "ignore") for text in row) for row in rows]
    expected = loaded.predict(texts)
    assert [text.decode() for text in outputs["answer"]] == [each["answer"] for each in expected]
    for name in ("start", "end"):
        there = [-1 if each[name] is None else each[name] for each in expected]
        assert outputs[name] == there
    np.testing.assert_allclose(
        outputs["score"], [each["score"] for each in expected], rtol=0, atol=1e-4
    )
    return expected


RARELY = [pytest.param((1, lower), marks=pytest.mark.exhaustive) for lower in (True, False)]


@pytest.fixture(scope="module", params=[(2, True), *RARELY], ids=str)
def answerer(request, tmp_path_factory):
    """A model as `predict.py` has it, the signature of its SavedModel, and the folder."""
    version, do_lower_case = request.param
    tokenizer = make_tokenizer(do_lower_case)
    config, model = make_model(tokenizer)
    decoding = DecodingOptions(**DECODINGS[version])
    folder = str(tmp_path_factory.mktemp("answerer") / "saved_model")
    export_answerer(folder, model, GraphTokenizer(tokenizer), **LENGTHS, decoding=decoding)
    task = QuestionAnswering(config, tokenizer, **LENGTHS, decoding=decoding)
    loaded = LoadedModel(task, model)
    return loaded, tf.saved_model.load(folder).signatures["serving_default"], folder


# What lower case, marks and spaces do to places, and answers in texts that have none.
TRICKY = [
    ("ab", "b" * 40 + " a. \xc9\xc9 ab"),
    ("a" * 30, "\u0130\u0131 \u0391\u03a3\xa0\u03a3.\u0391 a\u0301b, ##b #\u202fb" * 3),
    ("", " \t\u202f"),
    ("", "\u4e2d\u6587a.b\u3042\U0001f600" * 9),
]


@settings(max_examples=15)
@given(pairs)
@example(TRICKY)
@example([])
def test_answers_are_those_of_python(answerer, batch):
    compare(*answerer[:2], [tuple(text.encode() for text in row) for row in batch])


@settings(max_examples=6)
@given(st.lists(st.tuples(raw_texts, raw_texts), min_size=BATCH, max_size=BATCH))
@example([(b"a\xffb", b"\xe4\xb8a \xc3\xa9b\xff \xed\xa0\x80a b")])
def test_bytes_that_are_not_utf8_are_dropped_as_in_python(answerer, batch):
    compare(*answerer[:2], batch)


def test_answers_come_from_all_windows_and_are_parts_of_words(answerer):
    loaded, answer, _ = answerer
    # Marks belong to words, and a word is longer than a window.
    rng = np.random.RandomState(1)
    texts = ["".join(rng.choice(list("abAB.,    "), 300)) for _ in range(20)]
    texts += ["".join(rng.choice(list("abAB.,"), 60)) for _ in range(20)]
    rows = [(b"ab", text.encode()) for text in texts]
    found = compare(loaded, answer, rows)
    found = [each for each in found if each["start"] is not None]
    assert max(each["start"] for each in found) > 100
    parts = [each for each in found if len(each["answer"].split(" ")) == 1]
    assert any(
        row[1].split(b" ").count(each["answer"].encode()) == 0 for row in rows for each in parts
    )
    # More windows than go through the model at once.
    compare(loaded, answer, [(b"", b"ab a. " * 200), (b"b", b""), (b"b", b"a")])


def test_the_folder_of_an_export_answers_as_its_model(answerer):
    loaded, _, folder = answerer
    exported = bert.load(folder)
    assert (exported.fields, exported.kind) == (loaded.fields, loaded.task.kind)
    for mine, theirs in zip(exported.predict(TRICKY), loaded.predict(TRICKY), strict=True):
        # The graph has the best answer alone.
        assert mine == approximately({name: theirs[name] for name in exported.answer_names})


def test_an_answer_is_the_text_at_its_place(answerer):
    text = "B\t a.\n\nb ,a" * 5
    outputs = answerer[1](question=tf.constant(["a"]), context=tf.constant([text]))
    start, end = int(outputs["start"][0]), int(outputs["end"][0])
    assert outputs["answer"].numpy()[0].decode() == " ".join(text[start:end].split())


@pytest.mark.parametrize("answerer", [(2, True)], indirect=True, ids=str)
def test_answers_are_the_same_elsewhere(answerer, tmp_path, python):
    loaded, _, folder = answerer
    texts = {"question": ["ab", "", "b"], "context": ["a b " * 30, "", "\xc9. ab,\u4e2d\n a"]}
    questions = loaded.task.parse([{"question": "b", "context": "ab a. b"}])
    features = loaded.task.make_inputs(Part("test"), questions).arrays
    logits = loaded.model({n: tf.constant(v) for n, v in features.items()}, training=False)
    from_texts, from_features = call_elsewhere(
        folder, [("serving_default", texts), ("features", as_lists(features))], tmp_path, python
    )
    expected = loaded.predict(list(zip(*texts.values(), strict=True)))
    assert from_texts["answer"] == [each["answer"] for each in expected]
    starts = [-1 if each["start"] is None else each["start"] for each in expected]
    assert from_texts["start"] == starts
    for name in ("start_logits", "end_logits"):
        np.testing.assert_allclose(from_features[name], logits[name], atol=1e-4)


def test_questions_without_a_context_are_refused(answerer):
    with pytest.raises(tf.errors.InvalidArgumentError, match="must be equally many"):
        answerer[1](question=tf.constant(["a"]), context=tf.constant(["a", "b"]))


@mostly_portable
@pytest.mark.parametrize("version", [2, *exhaustive(1)])
def test_golden_contexts_are_answered_as_by_predict(tmp_path, golden, version):
    flags = golden_settings(golden, version, tmp_path, do_predict=False, do_export=True)
    assert run_squad.run(flags) == {}
    tokenizer = tokenization.FullTokenizer(flags.vocab_file, flags.do_lower_case)
    config = modeling.BertConfig.from_json_file(flags.bert_config_file)
    task = open_task(run_squad, flags, config, tokenizer)
    model = task.make_model("float32")
    source = ModelFolder.of(flags, flags, flags.output_dir)
    identity.load_weights(flags, source, model, is_given=bool(flags.init_checkpoint))
    examples = squad_questions.read_squad_examples(flags.predict_file, False, version == 2)
    rows = [(each.question_text.encode(), each.context.encode()) for each in examples]
    loaded = tf.saved_model.load(str(tmp_path / "saved_model"))
    answers = compare(LoadedModel(task, model), loaded.signatures["serving_default"], rows)
    predictions = read_json(golden / f"squad_v{version}_predictions.json")
    # Where padding was among the n best of the original, they may differ.
    same = [
        each["answer"] == predictions[e.qas_id] for e, each in zip(examples, answers, strict=True)
    ]
    assert np.mean(same) > 0.9


def test_windows_that_the_model_does_not_take_are_refused(tmp_path):
    tokenizer, message = make_tokenizer(), "`max_seq_length` must be at most 16, .* Received 17"
    with pytest.raises(ValueError, match=message):
        export_answerer(
            str(tmp_path / "saved_model"),
            make_model(tokenizer)[1],
            GraphTokenizer(tokenizer),
            **{**LENGTHS, "max_seq_length": 17},
            decoding=DecodingOptions(),
        )
    assert list(tmp_path.iterdir()) == []


EXTREMES = exhaustive(-100.0, 100.0)


@pytest.mark.parametrize("threshold", [0.0, *EXTREMES])
def test_one_best_answer_is_that_of_python(threshold):
    """Such a span begins and ends at the best places, so that "there is no answer" is no better."""
    tokenizer = make_tokenizer()
    config, model = make_model(tokenizer)
    decoding = DecodingOptions(
        n_best_size=1, version_2_with_negative=True, null_score_diff_threshold=threshold
    )
    answerer = squad_saved_model._Answerer(
        model, GraphTokenizer(tokenizer), *LENGTHS.values(), decoding
    )
    loaded = LoadedModel(QuestionAnswering(config, tokenizer, **LENGTHS, decoding=decoding), model)
    rng = np.random.RandomState(2)
    texts = ["".join(rng.choice(list("abAB.,  "), 12)).encode() for _ in range(60)]
    rows = [(b"ab", text) for text in texts] + [(text[:5], b"ab") for text in texts]
    found = compare(loaded, lambda **given: answerer.answer(*given.values()), rows)
    answered = sum(each["start"] is not None for each in found)
    assert answered == 0 if threshold < 0 else 0 < answered < len(rows)


@pytest.mark.parametrize(
    ("odds", "threshold", "is_null"),
    [(0.0, 0.0, False), (2.5, 2.5, False), (-1.5, -1.5, False), (2.5000001, 2.5, True)],
)
def test_odds_that_equal_the_threshold_leave_the_answer(odds, threshold, is_null):
    """As in Python, where they must be above it."""
    tokenizer = make_tokenizer()
    _, model = make_model(tokenizer)
    decoding = DecodingOptions(null_score_diff_threshold=threshold, **DECODINGS[2])
    answerer = squad_saved_model._Answerer(
        model, GraphTokenizer(tokenizer), *LENGTHS.values(), decoding
    )
    one = tf.constant([1.0], tf.float64)
    row = tf.constant([0], tf.int64)
    spans = squad_saved_model._Spans(row, row, row, start_logits=one, end_logits=one)
    assert answerer._is_null(tf.constant([2.0 + odds], tf.float64), spans).numpy() == [is_null]

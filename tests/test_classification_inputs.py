import dataclasses
import json

import numpy as np
import pytest
import tensorflow as tf
from conftest import eagerly, exhaustive, read_report
from helpers import opened_tasks
from helpers.classifier_runs import COLORS, read_tsv, settings_in, write_task, write_tsv
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import softmax

import bert
import run_classifier
import tokenization
from bert.export.saved_model import ExportedModel
from bert.export.tokenizer import GraphTokenizer
from bert.serving.served import serve
from bert.tasks.classification.examples import ClassificationTask, InputExample
from bert.tasks.classification.export import _run_long
from bert.tasks.classification.inputs import count_windows, make_features, pool_windows
from bert.tasks.classification.long_texts import LongTexts
from bert.weights.folder import ModelFolder

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *map(str, range(600))]
TOKENIZER = tokenization.FullTokenizer.from_vocab({word: i for i, word in enumerate(WORDS)})
TASK = ClassificationTask(
    name="t", task_type="classification", labels=("no", "yes"), is_pair=False, metric="accuracy"
)


def text_of(num_words):
    return " ".join(map(str, range(num_words)))


def words_of(row, arrays):
    """Returns the words of a row without [CLS] and [SEP], as numbers."""
    ids = arrays["input_ids"][row][arrays["input_mask"][row] > 0]
    assert (WORDS[ids[0]], WORDS[ids[-1]]) == ("[CLS]", "[SEP]")
    return [int(WORDS[each]) for each in ids[1:-1]]


def features_of(texts, max_seq_length, labels=None, **options):
    labels = labels or [None] * len(texts)
    examples = [
        InputExample(str(i), text, label=label)
        for i, (text, label) in enumerate(zip(texts, labels, strict=True))
    ]
    return make_features(examples, TASK, TOKENIZER, max_seq_length, long_texts=LongTexts(**options))


def test_a_long_text_keeps_its_beginning_its_end_or_both_as_sun_et_al_do():
    kept = {
        truncation: words_of(0, features_of([text_of(600)], 512, truncation=truncation))
        for truncation in ("head", "tail", "head_tail")
    }
    assert kept["head"] == [*range(510)]
    assert kept["tail"] == [*range(90, 600)]
    assert kept["head_tail"] == [*range(128), *range(218, 600)]


@pytest.mark.parametrize("truncation", ["head", "tail", "head_tail"])
def test_a_text_that_fits_is_kept_whole(truncation):
    arrays = features_of([text_of(10), text_of(11), ""], 12, truncation=truncation)
    assert words_of(0, arrays) == [*range(10)]
    assert len(words_of(1, arrays)) == 10
    assert words_of(2, arrays) == []


@given(st.lists(st.integers(0, 60), min_size=1, max_size=5), st.integers(5, 20), st.data())
def test_windows_overlap_and_hold_every_token(lengths, max_seq_length, data):
    room = max_seq_length - 2
    stride = data.draw(st.integers(1, room - 1))
    most = data.draw(st.none() | st.integers(1, 4))
    labels = ["yes" if number % 2 else "no" for number in range(len(lengths))]
    texts = [text_of(length) for length in lengths]
    arrays = features_of(texts, max_seq_length, labels, doc_stride=stride, max_windows=most)
    windows = [words_of(row, arrays) for row in range(len(arrays["input_ids"]))]
    counts = []
    for number, length in enumerate(lengths):
        rows = np.flatnonzero(arrays["window_of"][:, 0] == number)
        assert {*arrays["label_ids"][rows, 0].tolist()} == {number % 2}
        needed = 1 + -(-max(length - room, 0) // stride)
        counts.append(min(needed, most or needed))
        assert len(rows) == counts[-1]
        for place, row in enumerate(rows):
            start = place * stride
            assert windows[row] == [*range(start, min(start + room, length))]
        if len(rows) == needed:
            assert {*range(length)} == {word for row in rows for word in windows[row]}
    assert count_windows(arrays).tolist() == counts


@pytest.mark.parametrize("pooling", ["mean", "max"])
def test_the_logits_of_a_text_are_pooled_over_its_windows_alone(pooling):
    logits = np.random.RandomState(0).normal(0, 3, (6, 4)).astype(np.float32)
    arrays = {"window_of": np.array([[0], [1], [1], [1], [2], [2]])}
    parts = [logits[:1], logits[1:4], logits[4:]]
    expected = [getattr(part, pooling)(axis=0) for part in parts]
    np.testing.assert_allclose(pool_windows(logits, arrays, pooling), expected, rtol=1e-6)
    np.testing.assert_array_equal(pool_windows(logits, {}, pooling), logits)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"doc_stride": 10}, r"`doc_stride` must be less than 10, the tokens of a text in "),
        ({"max_windows": 2}, "`max_windows` must be given with `doc_stride`"),
        ({"window_pooling": "max"}, "`window_pooling` must be given with `doc_stride`"),
        (
            {"doc_stride": 4, "truncation": "tail"},
            "`truncation` must be left out with `doc_stride`.* Received 'tail'",
        ),
    ],
)
def test_options_that_do_not_fit_together_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        LongTexts(**options).check(12, is_pair=False)


@pytest.mark.parametrize("options", [{"doc_stride": 4}, {"truncation": "tail"}])
def test_pairs_are_refused(options):
    [name] = options
    with pytest.raises(ValueError, match=f"`{name}` must be left out for pairs"):
        LongTexts(**options).check(12, is_pair=True)
    LongTexts().check(12, is_pair=True)


def test_a_trained_model_reads_long_texts_as_before_or_as_it_is_told(tmp_path, tiny_config):
    write_task(tmp_path, lambda color: color)
    make = settings_in(tmp_path)
    vocabulary = (tmp_path / "vocab.txt").read_bytes()
    tokenizer = tokenization.FullTokenizer(str(tmp_path / "vocab.txt"))

    def open_task(**options):
        return opened_tasks.open_task(run_classifier, make(**options), tiny_config, tokenizer)

    trained = {"doc_stride": 5, "window_pooling": "max", "max_windows": 3}
    stored = open_task(do_train=True, **trained).stored()
    ModelFolder(str(tmp_path / "out")).save(tiny_config, vocabulary, stored)
    for options, expected in (
        ({}, trained),
        ({"doc_stride": 5}, trained),
        ({"max_windows": 2}, {**trained, "max_windows": 2}),
        # The default, where it is given.
        ({"window_pooling": "mean"}, {**trained, "window_pooling": "mean"}),
        ({"doc_stride": 4}, {"doc_stride": 4}),
        ({"truncation": "tail"}, {"truncation": "tail"}),
    ):
        assert open_task(do_eval=True, **options).long_texts == LongTexts(**expected)


def write_long_texts(folder, count=52):
    """Writes texts whose color, by which they are labelled, is beyond 10 tokens, or soon."""
    rng = np.random.RandomState(0)
    for name in ("train", "dev", "test"):
        rows = []
        for number in range(count):
            color = COLORS[number % 4]
            before = rng.choice(list("abcd"), rng.choice([2, 14, 21]))
            rows.append((" ".join([*before, color, *"ab"]), color))
        write_tsv(folder / f"{name}.tsv", rows)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Returns a folder with a model of windows, and a function that makes its settings."""
    folder = tmp_path_factory.mktemp("windows")
    write_long_texts(folder)
    make = settings_in(folder)
    options = {"doc_stride": 5, "window_pooling": "max"}
    run_classifier.run(make(do_train=True, do_eval=True, num_train_epochs=30.0, **options))
    return folder, make


def chances_of(answers):
    return [[answer["probabilities"][color] for color in COLORS] for answer in answers]


def test_windows_are_learned_from_and_answers_do_not_depend_on_how_they_are_computed(
    trained, tmp_path
):
    folder, make = trained
    scores = json.loads((folder / "out/eval_results.json").read_text())
    # The first window of a third of the texts has the color: alone, it would reach a half.
    assert scores["accuracy"] > 0.7
    assert json.loads((folder / "out/task.json").read_text())["doc_stride"] == 5
    shown = read_report(folder / "out")["sections"]["Windows of the texts of the dev set"]
    assert shown["columns"] == ["windows", "texts"]
    assert sum(texts for _, texts in shown["rows"]) == 52
    assert len(shown["rows"]) > 1
    texts = [row["text"] for row in read_tsv(folder / "test.tsv")]
    expected = chances_of(bert.load(folder / "out").predict(texts))
    alone = bert.load(folder / "out", batch_size=1)
    np.testing.assert_allclose(
        chances_of([alone.predict([text])[0] for text in texts]), expected, atol=1e-5
    )
    # Later runs need not repeat the options.
    for size, padded in ((3, True), (32, False)):
        run_classifier.run(make(do_predict=True, predict_batch_size=size, pad_to_max_length=padded))
        rows = read_tsv(folder / "out/predictions.tsv")
        assert [row["text_a"] for row in rows] == texts
        found = [[float(row[f"probability_{color}"]) for color in COLORS] for row in rows]
        np.testing.assert_allclose(found, expected, atol=1e-5)


def reading(trained, **options):
    """Returns the model with other options, and texts of several lengths."""
    model = bert.load(trained[0] / "out")
    model.task = dataclasses.replace(model.task, long_texts=LongTexts(**options))
    rng = np.random.RandomState(2)
    return model, [" ".join(rng.choice([*COLORS, *"abcd"], size)) for size in (0, 3, 10, 11, 60)]


def test_an_export_holds_how_long_texts_are_read(trained, tmp_path):
    model, texts = reading(trained, doc_stride=4, max_windows=2)
    model.task.export(str(tmp_path / "exported"), model.model)
    found, expected = (each.predict(texts) for each in (bert.load(tmp_path / "exported"), model))
    np.testing.assert_allclose(chances_of(found), chances_of(expected), atol=1e-5)
    answer_nobody = tf.saved_model.load(tmp_path / "exported").signatures["serving_default"]
    assert answer_nobody(text_a=tf.zeros(0, tf.string))["probabilities"].shape == (0, 4)


@pytest.mark.parametrize(
    "options",
    [
        {"doc_stride": 5, "window_pooling": "max"},
        {"doc_stride": 4, "max_windows": 2},
        {"truncation": "head_tail"},
        *exhaustive({"doc_stride": 3}, {"truncation": "tail"}),
    ],
)
def test_exports_and_servers_read_long_texts_as_the_model_does(trained, options):
    model, texts = reading(trained, **options)
    expected = chances_of(model.predict(texts))
    task = model.task
    exported = ExportedModel(model.model, GraphTokenizer(task.tokenizer), task.max_seq_length)
    logits = _run_long(exported, tf.constant(texts), task.long_texts)["logits"]
    columns = [sorted(COLORS).index(color) for color in COLORS]
    np.testing.assert_allclose(softmax(logits, axis=1)[:, columns], expected, atol=1e-5)
    # A server cuts what is longer than 3,500 characters, where the rest is not read.
    rows = [{"text_a": f"{text}{' a' * 2000} {text}"} for text in texts]
    served = serve(model, "m", 1).answer("serving_default", rows, lambda: None)
    wanted = model.predict([row["text_a"] for row in rows])
    np.testing.assert_allclose(chances_of(served), chances_of(wanted), atol=1e-5)


def test_what_comes_after_the_last_window_is_counted_and_not_read(log):
    first = features_of([text_of(40)], 12, doc_stride=5, max_windows=2)
    other = features_of([text_of(600)], 12, doc_stride=5, max_windows=2)
    np.testing.assert_array_equal(first["input_ids"], other["input_ids"])
    features_of([text_of(40), text_of(3), text_of(15)], 12, doc_stride=5, max_windows=2)
    assert "3 texts have 5 windows: 1 with 1, 2 with 2." in log.text
    assert "1 of 3 texts are longer than `max_windows=2`" in log.text


def read_features(path, name):
    records = tf.data.TFRecordDataset(str(path))
    features = [tf.train.Example.FromString(each.numpy()).features.feature for each in records]
    assert not any("window_of" in each for each in features)
    return [[*each[name].float_list.value] for each in features]


def test_windows_are_learned_from_the_answer_of_a_teacher_to_their_text(trained):
    folder, make = trained
    out = folder / "student"
    with eagerly():
        run_classifier.run(
            make(
                output_dir=str(out),
                do_train=True,
                do_eval=True,
                calibrate=True,
                doc_stride=4,
                num_train_epochs=0.2,
                teacher=str(folder / "out"),
                class_weights="balanced",
            )
        )
    taught = read_features(out / "train.tf_record", "teacher_logits")
    texts = [row["text"] for row in read_tsv(folder / "train.tsv")]
    counts = [1 + -(-max(len(text.split()) - 10, 0) // 4) for text in texts]
    assert len({*counts}) > 1
    answers = bert.load(folder / "out").predict(texts)
    chances = np.exp(taught) / np.exp(taught).sum(axis=1, keepdims=True)
    expected = [list(answer["probabilities"].values()) for answer in answers]
    expected = np.repeat(expected, counts, axis=0)
    np.testing.assert_allclose(chances, expected, atol=1e-4)
    assert json.loads((out / "task.json").read_text())["temperature"] != 1.0


def test_a_record_of_training_has_the_weight_of_its_window(trained):
    folder, _ = trained
    weights = read_features(folder / "out/train.tf_record", "example_weights")
    assert len(weights) > 52
    # All texts weigh the same.
    assert np.sum(weights) == pytest.approx(52)


def test_only_windows_change_the_records(tmp_path):
    write_long_texts(tmp_path)
    make = settings_in(tmp_path)
    contents = []
    for options in ({}, {"truncation": "head"}, {"truncation": "tail"}):
        out = tmp_path / str(len(contents))
        with eagerly():
            run_classifier.run(
                make(do_train=True, num_train_epochs=0.2, output_dir=str(out), **options)
            )
        contents.append((out / "train.tf_record").read_bytes())
    assert contents[0] == contents[1] != contents[2]
    assert b"example_weights" not in contents[0]

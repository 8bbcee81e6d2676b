import keras
import numpy as np
import pytest
import tensorflow as tf
from conftest import GOLDEN, small_config
from helpers.raw_texts import texts
from helpers.saved_models import as_lists, call_elsewhere
from hypothesis import example, given, settings
from hypothesis import strategies as st

import tokenization
from bert.export.tokenizer import GraphTokenizer
from bert.models.exported import ExportedModel
from bert.network.heads import choice_model
from bert.tasks.swag import examples as swag_examples
from bert.tasks.swag.chooser import export_chooser

LENGTH = 12
BATCH = 4

contexts = st.lists(st.one_of(texts, st.just("the cat " * 9)), min_size=BATCH, max_size=BATCH)
endings = st.lists(
    st.lists(texts.filter(str.strip), min_size=2, max_size=4), min_size=BATCH, max_size=BATCH
)


@pytest.fixture(scope="module")
def tokenizer():
    return tokenization.FullTokenizer(str(GOLDEN / "vocab.txt"))


def make_config():
    return small_config(406, max_position_embeddings=LENGTH, initializer_range=0.5)


@pytest.fixture(scope="module")
def chooser(tmp_path_factory, tokenizer):
    """A function that answers in Python, another for logits, and the folder of a SavedModel."""
    keras.utils.set_random_seed(5)
    model = choice_model(make_config())
    model.weights[-2].assign(4 * np.random.RandomState(0).randn(1, 8))
    folder = str(tmp_path_factory.mktemp("chooser") / "saved_model")
    export_chooser(folder, model, GraphTokenizer(tokenizer), LENGTH)
    run = tf.function(lambda features: model(features, training=False)["logits"])

    def choose(contexts, endings):
        examples = [
            swag_examples.Example("", *each) for each in zip(contexts, endings, strict=True)
        ]
        features = swag_examples.make_features(examples, tokenizer, LENGTH)
        inputs = {name: features[name] for name in model.input}
        logits = run(inputs).numpy()
        return swag_examples.decode(examples, features, logits), as_lists(inputs), logits

    return choose, folder


@pytest.fixture(scope="module")
def choose(chooser):
    return tf.saved_model.load(chooser[1]).signatures["serving_default"]


def fill(rows):
    """Returns as many endings for all, with empty ones at the ends of rows."""
    most = max(map(len, rows))
    return [[*row, *[""] * (most - len(row))] for row in rows]


def check(outputs, expected):
    assert list(outputs["label"]) == [each["label"] for each in expected]
    for row, each in zip(np.asarray(outputs["probabilities"]), expected, strict=True):
        count = len(each["probabilities"])
        np.testing.assert_allclose(row[:count], each["probabilities"], rtol=0, atol=1e-5)
        assert not row[count:].any()


@settings(max_examples=15)
@given(contexts, endings)
@example([""] * 4, [["a", "the cat"], ["\u200b", "a", "b"], ["it was"] * 2, ["the cat " * 9, "a"]])
def test_choices_are_those_of_python(chooser, choose, first, rows):
    outputs = choose(context=tf.constant(first), endings=tf.constant(fill(rows)))
    outputs = {name: values.numpy() for name, values in outputs.items()}
    expected, _, _ = chooser[0](first, rows)
    # Endings that the model cannot tell apart may swap.
    best = [sorted(each["probabilities"])[-2:] for each in expected]
    sure = [high - low > 1e-5 for low, high in best]
    keep = np.flatnonzero(sure)
    outputs = {name: values[keep] for name, values in outputs.items()}
    expected = [expected[place] for place in keep]
    check(outputs, expected)
    assert [text.decode() for text in outputs["ending"]] == [each["ending"] for each in expected]


def test_absent_endings_may_be_at_any_position(choose):
    first = tf.constant(["the cat", "a man"])
    rows = tf.constant([["it was", "the", "a cat"], ["old", "dog", "rain"]])
    gaps = tf.constant([["", "it was", "the", "", "a cat"], ["old", "dog", "", "rain", ""]])
    whole, gapped = choose(context=first, endings=rows), choose(context=first, endings=gaps)
    assert whole["ending"].numpy().tolist() == gapped["ending"].numpy().tolist()
    numbers = [[1, 2, 4], [0, 1, 3]]
    probabilities = gapped["probabilities"].numpy()
    np.testing.assert_allclose(
        np.take_along_axis(probabilities, np.array(numbers), 1), whole["probabilities"], atol=1e-6
    )
    np.testing.assert_allclose(probabilities.sum(1), 1, atol=1e-6)
    labels = [row[label] for row, label in zip(numbers, whole["label"].numpy(), strict=True)]
    assert gapped["label"].numpy().tolist() == labels


def test_an_exported_chooser_needs_none_of_this_project(chooser, tmp_path, python):
    first = ["The cat sat.", "", "It rains"]
    rows = [["a dog", "the old man and the sea"], ["it", "was"], ["the", "the"]]
    expected, features, logits = chooser[0](first, rows)
    from_features, from_texts = call_elsewhere(
        chooser[1],
        [
            ("features", features),
            ("serving_default", {"context": first[:2], "endings": rows[:2]}),
        ],
        tmp_path,
        python,
    )
    np.testing.assert_allclose(from_features["logits"], logits, atol=1e-5)
    check(from_texts, expected[:2])


def test_spaces_around_endings_change_no_answer_of_an_exported_chooser(chooser):
    model = ExportedModel(chooser[1])
    rows = [("The cat sat.", ["a dog", "the sea"]), ("It rains", ["the", "a man"])]
    padded = [(context, [f" \t{ending}\n" for ending in endings]) for context, endings in rows]
    answers = model.predict(rows)
    assert model.predict(padded) == answers
    for (_, endings), answer in zip(rows, answers, strict=True):
        assert answer["ending"] == endings[answer["label"]]


def test_no_example_has_no_choice(choose):
    outputs = choose(
        context=tf.constant([], tf.string), endings=tf.constant([], tf.string, shape=[0, 4])
    )
    assert {name: values.shape.as_list() for name, values in outputs.items()} == {
        "label": [0],
        "ending": [0],
        "probabilities": [0, 4],
    }


@pytest.mark.parametrize(
    ("context", "endings", "message"),
    [
        (["a"], [["a", "b"], ["a", "b"]], "must have a row for each `context`"),
        (["a", "b"], [["a", "b"], ["a", ""]], "must have at least two that are not blank"),
    ],
)
def test_invalid_choices_are_refused(choose, context, endings, message):
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        choose(context=tf.constant(context), endings=tf.constant(endings))


@pytest.mark.parametrize(
    ("length", "message"),
    [(4, "`max_seq_length` must be at least 5. Received 4"), (13, "must be at most 12")],
)
def test_lengths_that_do_not_fit_are_named(tmp_path, tokenizer, length, message):
    model = choice_model(make_config())
    with pytest.raises(ValueError, match=message):
        export_chooser(str(tmp_path / "saved_model"), model, GraphTokenizer(tokenizer), length)
    assert list(tmp_path.iterdir()) == []

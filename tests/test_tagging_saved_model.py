import keras
import numpy as np
import pytest
import tensorflow as tf
from conftest import small_config
from helpers.raw_texts import SPECIALS, graph, many_characters, texts
from helpers.raw_texts import batches as any_texts
from helpers.saved_models import as_lists, call_elsewhere
from hypothesis import example, given, settings
from hypothesis import strategies as st

import tokenization
from bert.export.tokenizer import GraphTokenizer
from bert.tasks.examples import QUERIES
from bert.tasks.tagging.export import GraphWordSpans, export_tagger
from bert.tasks.tagging.feature_tagging import FeatureTagging
from bert.tasks.tagging.tagger import Tagging
from bert.tasks.tagging.tags import UNITS, TagSet, find_spans, list_labels
from bert.tasks.tagging.text_tagger import RawText
from bert.tasks.tagging.windows import text_entities

LENGTH = 10
BATCH = 4
TAG_SETS = {
    "word": TagSet(labels=tuple(list_labels(["PER", "LOC"], "iob2")), scheme="iob2"),
    "character": TagSet(
        # In no particular order, and an entity without a type.
        labels=("I-X", "B", "S-X", "O", "E-X", "I", "B-X"),
        scheme="iobes",
        unit="character",
    ),
}

# Long enough for several windows; words of many pieces, and of none.
long_texts = st.lists(
    st.sampled_from(
        ["a", "b", "B.", "ab", "abba", "ab" * 9, "\u200b", "\xe9", "\u4e2d\u6587", "b's", "1,0"]
    ),
    max_size=40,
).map(" ".join)
batches = st.lists(st.one_of(texts, long_texts), min_size=BATCH, max_size=BATCH)


def make_tokenizer():
    letters = list("abes1,.'\u4e2d\u6587\xdf\u03c3")
    tokens = [*SPECIALS, *letters, *(f"##{letter}" for letter in letters), "ab", "##ba"]
    vocab = {token: index for index, token in enumerate(tokens)}
    return tokenization.FullTokenizer.from_vocab(vocab)


def make_task(tag_set, feature_layers=None, add_crf=False):
    """Returns the task of a small model, of a BiLSTM on such layers if they are given."""
    tokenizer = make_tokenizer()
    num_layers = 2 if feature_layers else 1
    sizes = {"num_hidden_layers": num_layers, "max_position_embeddings": LENGTH}
    config = small_config(len(tokenizer.vocab), **sizes)
    given = (config, tokenizer, LENGTH, tag_set)
    if feature_layers:
        return FeatureTagging(*given, add_crf=add_crf, layers=feature_layers, lstm_size=8)
    return Tagging(*given, add_crf=add_crf)


def make_model(task):
    """Returns a model of the task that is of many minds."""
    keras.utils.set_random_seed(3)
    model = task.whole_model(task.make_model("float32"))
    rng = np.random.RandomState(0)
    for weight in model.weights:
        if weight.path.endswith("output_weights") or weight.path.startswith("crf/"):
            weight.assign(rng.randn(*weight.shape))
    return model


RARELY = [
    pytest.param(each, marks=pytest.mark.exhaustive)
    for each in (("word", "weighted", False), ("word", None, False))
]


# Of words, without a CRF, tests/test_export_operations.py has an export.
@pytest.fixture(scope="module", params=[("character", None, True), *RARELY], ids=str)
def tagger(request, tmp_path_factory):
    """A function that answers in Python, another for logits, and the folder of a SavedModel."""
    unit, layers, add_crf = request.param
    tag_set = TAG_SETS[unit]
    task = make_task(tag_set, layers, add_crf)
    model = make_model(task)
    folder = str(tmp_path_factory.mktemp("tagger") / "saved_model")
    task.export(folder, model)
    run = tf.function(
        lambda features: model(features, training=False),
        input_signature=[{name: tf.TensorSpec([None, None], tf.int32) for name in model.input}],
    )

    def find(batch):
        texts = [RawText.read(text, tag_set.unit) for text in batch]
        inputs = task.make_inputs(QUERIES, texts)
        features = {name: inputs.arrays[name] for name in model.input}
        outputs = {name: each.numpy() for name, each in run(features).items()}
        predictions = task.decode(inputs, [(np.arange(inputs.num_rows), outputs)])
        entities = [
            text_entities(raw.text, raw.spans, each, tag_set.scheme)
            for raw, each in zip(texts, predictions.sentences, strict=True)
        ]
        return entities, as_lists(features), outputs["logits"]

    return find, folder


@pytest.fixture(scope="module")
def find_entities(tagger):
    return tf.saved_model.load(tagger[1]).signatures["serving_default"]


def check(outputs, expected):
    """Compares what the SavedModel gives, as lists, with the entities of each text."""
    most = max(map(len, expected), default=0)
    assert outputs["num_entities"] == list(map(len, expected))
    for name, key, absent in (
        ("entity_type", "type", ""),
        ("entity_text", "text", ""),
        ("start", "start", -1),
        ("end", "end", -1),
    ):
        rows = [[each[key] for each in row] for row in expected]
        assert outputs[name] == [row + [absent] * (most - len(row)) for row in rows], name
    for row, each in zip(outputs["score"], expected, strict=True):
        scores = [entity["score"] for entity in each]
        np.testing.assert_allclose(row, scores + [0.0] * (most - len(scores)), atol=1e-5)


def as_python(outputs):
    values = {name: each.numpy().tolist() for name, each in outputs.items()}
    for name in ("entity_type", "entity_text"):
        values[name] = [[text.decode() for text in row] for row in values[name]]
    return values


@settings(max_examples=15)
@given(batches)
@example(["ab" * 40, "", "a " * 60, "\u200b " * 20])
@example(["", " ", "\xa0", "a"])
def test_entities_are_those_of_python(tagger, find_entities, batch):
    check(as_python(find_entities(text=tf.constant(batch))), tagger[0](batch)[0])


def test_long_texts_have_entities_to_the_end(tagger, find_entities):
    rng = np.random.RandomState(0)
    # More windows than go through the model at once.
    batch = [" ".join(rng.choice(["a", "ab", "abba", "b", "b,a"], size)) for size in (300, 7, 90)]
    expected = tagger[0](batch)[0]
    check(as_python(find_entities(text=tf.constant(batch))), expected)
    assert expected[0][-1]["end"] > 0.9 * len(batch[0])
    assert any(" " in entity["text"] for entity in expected[0])
    assert len({entity["type"] for entity in expected[0]}) == 2


def test_no_text_has_no_entities(find_entities):
    outputs = as_python(find_entities(text=tf.constant([], tf.string)))
    assert outputs == {name: [] for name in outputs}
    blank = as_python(find_entities(text=tf.constant(["", "\t"])))
    assert blank.pop("num_entities") == [0, 0]
    assert blank == {name: [[], []] for name in blank}


def test_bytes_that_are_not_utf8_are_dropped_and_not_counted(tagger, find_entities):
    text = "ab \xe9. a b " * 3
    broken = text.encode().replace(b" ", b"\xff ").replace(b".", b"\xe4\xb8.")
    check(as_python(find_entities(text=tf.constant([broken]))), tagger[0]([text])[0])


def test_entities_are_the_same_elsewhere(tagger, tmp_path, python):
    batch = ["a b ab " * 9, "", "\u4e2d\u6587a b's"]
    expected, features, logits = tagger[0](batch)
    from_texts, from_features, labels = call_elsewhere(
        tagger[1],
        [("serving_default", {"text": batch}), ("features", features), ("labels", {})],
        tmp_path,
        python,
    )
    check(from_texts, expected)
    np.testing.assert_allclose(from_features["logits"], logits, atol=1e-4)
    assert tuple(labels["labels"]) in {each.labels for each in TAG_SETS.values()}


def test_windows_that_the_model_does_not_take_are_refused(tmp_path):
    task = make_task(TAG_SETS["word"])
    folder, tokenizer = str(tmp_path / "saved_model"), GraphTokenizer(task.tokenizer)
    message = "`max_seq_length` must be at most 10, .* Received 11"
    with pytest.raises(ValueError, match=message):
        export_tagger(folder, make_model(task), tokenizer, task.tag_set, 11)
    assert list(tmp_path.iterdir()) == []


# Marks within words and numbers, possessives, and scripts without spaces.
marked = st.text("aAsSx19''\u2019.,:;-&/@_ \u0301\u200d\u4e2d\u30ab\u0e01\xa0", max_size=40)


@pytest.fixture(scope="module", params=UNITS)
def find(request):
    """A function of texts, and the unit."""
    return graph(GraphWordSpans(request.param).find), request.param


def check_words(find, batch):
    words, starts, ends = (each.to_list() for each in find[0](tf.constant(batch, tf.string)))
    expected = [find_spans(text, find[1]) for text in batch]
    found = [list(zip(*each, strict=True)) for each in zip(starts, ends, strict=True)]
    assert found == expected
    assert [[word.decode() for word in row] for row in words] == [
        [text[start:end] for start, end in spans]
        for text, spans in zip(batch, expected, strict=True)
    ]


@settings(max_examples=50)
@given(st.one_of(any_texts, st.lists(marked, max_size=8)))
@example(["the U.S. won 3,000:1, e.g. 's it's 'sit 's's dogs' o'clock's", "a-b&c/d@e.f 1,x ,1"])
@example(["", "'", "s", "\u2019S", "1,", "2", "\u0301a", "\u200d \u0301\u4e2d\u0301\u30ab"])
@example([])
def test_words_are_where_python_finds_them(find, batch):
    check_words(find, batch)


@pytest.mark.slow
def test_every_character_is_treated_as_in_python(find):
    check_words(find, [f"a{char}a'{char}1,{char}" for char in many_characters()])

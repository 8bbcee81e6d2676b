import os

import keras
import numpy as np
import pytest
import tensorflow as tf
from conftest import GOLDEN, exhaustive, small_config
from helpers.saved_models import as_lists, call_elsewhere

import bert
import modeling
import tokenization
from bert.export import saved_model
from bert.export.tokenizer import GraphTokenizer
from bert.tasks.classification.examples import METRICS, ClassificationTask
from bert.tasks.classification.export import export_classifier

VOCAB_FILE = str(GOLDEN / "vocab.txt")
MAX_SEQ_LENGTH = 12

FIRST = [
    "The cat sat on the mat.",
    "",
    "[MASK] [CLS] a [SEP]",
    "\u0391\u03a3 \xc9t\xe9 \u4e2d\u6587 na\u0308ive",
    b"caf\xc3\xa9 \xff\xfe old\xe4\xb8".decode("utf-8", "surrogateescape"),
    "x" * 300 + " the",
    "the dog and the cat and the old man and the house and the rain and the sea",
]
SECOND = ["", "", "It was late.", "the", "A cat?", "the cat and the dog of the house", "one"]


def export(
    folder,
    model,
    tokenizer,
    task_type="classification",
    *,
    labels=(),
    is_pair=False,
    length=MAX_SEQ_LENGTH,
    **options,
):
    metric = METRICS[task_type][0]
    task = ClassificationTask(
        name="x", task_type=task_type, labels=tuple(labels), is_pair=is_pair, metric=metric
    )
    export_classifier(str(folder), model, GraphTokenizer(tokenizer), task, length, **options)


@pytest.fixture(scope="module")
def tokenizer():
    return tokenization.FullTokenizer(VOCAB_FILE)


def make_classifier(num_labels, dtype="float32"):
    """Returns a small classifier with dropout, of which each text has its own logits."""
    sizes = {"num_hidden_layers": 2, "num_attention_heads": 4, "type_vocab_size": 3}
    config = small_config(406, initializer_range=0.5, **sizes)
    inputs = modeling.encoder_inputs()
    pooled = modeling.BertModel(config, dtype=dtype)(inputs)["pooled_output"]
    initializer = keras.initializers.RandomNormal(stddev=4.0)
    dense = keras.layers.Dense(num_labels, kernel_initializer=initializer, dtype="float32")
    return keras.Model(inputs, {"logits": dense(pooled)})


def centre(model, features):
    """Moves the logits so that no label is ahead for all texts."""
    bias = model.weights[-1]
    bias.assign(bias - logits_in_python(model, features).mean(axis=0))


def features_in_python(tokenizer, first, second=None):
    packed = [
        tokenization.pack(
            tokenizer.tokenize(a.encode("utf-8", "surrogateescape")),
            tokenizer.tokenize(b),
            max_length=MAX_SEQ_LENGTH,
        )
        for a, b in zip(first, second or [""] * len(first), strict=True)
    ]
    # All of the allowed length: padding must not matter.
    features = {
        name: np.zeros((len(first), MAX_SEQ_LENGTH), np.int32) for name in saved_model.FEATURES
    }
    for row, (tokens, segment_ids) in enumerate(packed):
        features["input_ids"][row, : len(tokens)] = tokenizer.convert_tokens_to_ids(tokens)
        features["input_mask"][row, : len(tokens)] = 1
        features["segment_ids"][row, : len(tokens)] = segment_ids
    return features


def logits_in_python(model, features):
    return model({n: tf.constant(v) for n, v in features.items()}, training=False)["logits"].numpy()


def softmax(logits):
    exponents = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return exponents / exponents.sum(axis=-1, keepdims=True)


PAIR_LABELS = ["no", "yes, perhaps", "\u0434\u0430"]


@pytest.fixture(scope="module")
def pair_export(tmp_path_factory, tokenizer):
    """A folder, and the features and logits that belong to `FIRST` and `SECOND`."""
    keras.utils.set_random_seed(7)
    model = make_classifier(3)
    features = features_in_python(tokenizer, FIRST, SECOND)
    centre(model, features)
    folder = tmp_path_factory.mktemp("pairs") / "saved_model"
    export(folder, model, tokenizer, labels=PAIR_LABELS, is_pair=True)
    return folder, features, logits_in_python(model, features)


def test_an_exported_pair_classifier_needs_none_of_this_project(pair_export, tmp_path):
    folder, features, logits = pair_export
    labels = [PAIR_LABELS[index] for index in logits.argmax(axis=-1)]
    assert len(set(labels)) > 1
    texts = {"text_a": FIRST, "text_b": SECOND}
    answers = call_elsewhere(
        folder,
        [
            ("serving_default", texts),
            ("features", as_lists(features)),
            *[("serving_default", {n: [v[i]] for n, v in texts.items()}) for i in range(7)],
            ("serving_default", {"text_a": [], "text_b": []}),
            ("labels", {}),
        ],
        tmp_path,
    )
    from_texts, from_features, *each, nothing, names = answers
    for answer in (from_texts, from_features):
        np.testing.assert_allclose(answer["logits"], logits, atol=1e-5)
        np.testing.assert_allclose(answer["probabilities"], softmax(logits), atol=1e-5)
        assert answer["label"] == labels
    together = np.concatenate([answer["probabilities"] for answer in each])
    np.testing.assert_allclose(together, softmax(logits), atol=1e-5)
    assert nothing == {"logits": [], "probabilities": [], "label": []}
    assert names == {"labels": PAIR_LABELS}


def test_texts_without_a_partner_are_refused(pair_export):
    signature = tf.saved_model.load(str(pair_export[0])).signatures["serving_default"]
    with pytest.raises(tf.errors.InvalidArgumentError, match="must be equally many"):
        signature(text_a=tf.constant(["a", "b"]), text_b=tf.constant(["a", "b", "c"]))


def test_signatures_are_named_and_typed(pair_export):
    signatures = tf.saved_model.load(str(pair_export[0])).signatures
    features = tf.TensorSpec([None, None], tf.int32)
    inputs = {
        "serving_default": dict.fromkeys(["text_a", "text_b"], tf.TensorSpec([None], tf.string)),
        "features": dict.fromkeys(saved_model.FEATURES, features),
        "labels": {},
        "task_type": {},
    }
    answers = {
        "logits": tf.TensorSpec([None, 3], tf.float32),
        "probabilities": tf.TensorSpec([None, 3], tf.float32),
        "label": tf.TensorSpec([None], tf.string),
    }
    outputs = {
        "serving_default": answers,
        "features": answers,
        "labels": {"labels": tf.TensorSpec([3], tf.string)},
        "task_type": {"task_type": tf.TensorSpec([1], tf.string)},
    }

    def unnamed(specs):
        return {name: tf.TensorSpec(spec.shape, spec.dtype) for name, spec in specs.items()}

    assert sorted(signatures) == sorted(inputs)
    for name, signature in signatures.items():
        assert unnamed(signature.structured_input_signature[1]) == inputs[name]
        assert unnamed(signature.structured_outputs) == outputs[name]


def test_single_texts_may_have_several_labels(tmp_path, tokenizer, log, python):
    model = make_classifier(3)
    features = features_in_python(tokenizer, FIRST)
    centre(model, features)
    labels = ["red", "light, green", "blue"]
    folder = tmp_path / "saved_model"
    export(folder, model, tokenizer, "multi_label", labels=labels)
    assert any("1 labels hold a comma" in message for message in log.messages)
    logits = logits_in_python(model, features)
    answer, nothing = call_elsewhere(
        folder,
        [("serving_default", {"text_a": FIRST}), ("serving_default", {"text_a": []})],
        tmp_path,
        python,
    )
    np.testing.assert_allclose(answer["logits"], logits, atol=1e-5)
    np.testing.assert_allclose(answer["probabilities"], 1 / (1 + np.exp(-logits)), atol=1e-5)
    expected = [
        ",".join(label for label, value in zip(labels, row, strict=True) if value > 0)
        for row in logits
    ]
    assert {(row > 0).sum() for row in logits} >= {1, 2}
    assert answer["label"] == expected
    assert nothing == {"logits": [], "probabilities": [], "label": []}
    assert ",".join(bert.load(folder).predict(FIRST[0])[0]["labels"]) == expected[0]


@pytest.mark.parametrize("task_type", ["classification", *exhaustive("multi_label")])
def test_a_calibrated_export_is_opened_as_what_it_is(tmp_path, tokenizer, task_type):
    model = make_classifier(2)
    model.weights[-2].assign(np.zeros((8, 2)))
    model.weights[-1].assign([-2.0, 2.0])
    folder = tmp_path / "saved_model"
    export(folder, model, tokenizer, task_type, labels=["bad", "good"], temperature=2.0)
    (answer,) = bert.load(folder).predict(["a cat"])
    found = answer.pop("probabilities")
    chances = [
        1 / (1 + np.exp(-x)) for x in ((-2, 2) if task_type == "classification" else (-1, 1))
    ]
    assert found == pytest.approx(dict(zip(["bad", "good"], chances, strict=True)), abs=1e-5)
    assert answer == ({"label": "good"} if task_type == "classification" else {"labels": ["good"]})


@pytest.mark.parametrize("dtype", ["float32", *exhaustive("mixed_bfloat16")])
def test_regression_gives_a_score_and_leaves_the_optimizer_behind(tmp_path, tokenizer, dtype):
    model = make_classifier(1, dtype)
    model.compile(optimizer="adam", loss="mse")
    model.optimizer.build(model.trainable_variables)
    folder = tmp_path / "saved_model"
    export(folder, model, tokenizer, "regression")
    logits = logits_in_python(model, features_in_python(tokenizer, FIRST))
    loaded = tf.saved_model.load(str(folder))
    assert sorted(loaded.signatures) == ["features", "serving_default"]
    texts = tf.constant([text.encode("utf-8", "surrogateescape") for text in FIRST])
    answer = loaded.signatures["serving_default"](text_a=texts)
    assert sorted(answer) == ["logits", "score"]
    assert answer["score"].dtype == tf.float32
    tolerance = 1e-5 if dtype == "float32" else 0.05
    np.testing.assert_allclose(answer["score"], logits[:, 0], rtol=tolerance, atol=tolerance)
    stored = tf.train.list_variables(str(folder / "variables" / "variables"))
    names = [name for name, _ in stored if not name.startswith("_CHECKPOINTABLE_OBJECT_GRAPH")]
    assert len(names) == len(model.weights)


class Constant(tf.Module):
    """Answers with a number."""

    def __init__(self, number):
        super().__init__()
        self.number = tf.Variable(number)
        self.answer = tf.function(lambda: {"number": self.number.read_value()}, input_signature=[])

    def save(self, folder):
        saved_model.save(folder, self, {"serving_default": self.answer})


def read_number(folder):
    return int(tf.saved_model.load(str(folder)).signatures["serving_default"]()["number"])


def test_a_saved_model_is_replaced_by_a_whole_one_only(tmp_path):
    folder = tmp_path / "deep" / "saved_model"
    Constant(1).save(str(folder))
    # A signature must return tensors by name: fails when the other parts have been made.
    wrong = tf.function(lambda: {"number": {"of": tf.constant(2)}}, input_signature=[])
    with pytest.raises(ValueError, match="serving_default"):
        saved_model.save(str(folder), Constant(2), {"serving_default": wrong})
    assert read_number(folder) == 1
    Constant(3).save(f"{folder}/")
    assert read_number(folder) == 3
    assert os.listdir(folder.parent) == ["saved_model"]


def test_a_link_to_a_folder_stays_a_link(tmp_path):
    Constant(1).save(str(tmp_path / "there"))
    (tmp_path / "here").symlink_to(tmp_path / "there")
    Constant(2).save(str(tmp_path / "here"))
    assert (tmp_path / "here").is_symlink()
    assert read_number(tmp_path / "there") == 2


def test_no_other_folder_or_file_is_replaced(tmp_path):
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "thesis.txt").write_text("x")
    for path in (folder, folder / "thesis.txt"):
        with pytest.raises(ValueError, match=r"holds no 'saved_model\.pb'"):
            saved_model.save(str(path), tf.Module(), {})
    assert (folder / "thesis.txt").read_text() == "x"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"length": 17}, "`max_seq_length` must be at most 16, .* Received 17"),
        ({"length": 1}, "`max_seq_length` must be at least 2.* Received 1"),
        ({"length": 2, "is_pair": True}, "at least 3.* Received 2"),
    ],
)
def test_what_does_not_fit_is_named(tmp_path, tokenizer, changes, message):
    with pytest.raises(ValueError, match=message):
        export(tmp_path / "saved_model", make_classifier(1), tokenizer, "regression", **changes)
    assert os.listdir(tmp_path) == []


def test_a_vocabulary_larger_than_the_models_is_refused(tmp_path):
    tokens = ["[UNK]", "[CLS]", "[SEP]", *map(str, range(500))]
    tokenizer = tokenization.FullTokenizer.from_vocab({t: i for i, t in enumerate(tokens)})
    message = "size of the vocabulary must be at most 406, the rows of `bert/.* Received 503"
    with pytest.raises(ValueError, match=message):
        export(tmp_path / "saved_model", make_classifier(1), tokenizer, "regression")

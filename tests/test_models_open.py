import json
import shutil

import keras
import numpy as np
import pytest
import tensorflow as tf
from conftest import copy_golden, exhaustive, small_config
from helpers import classifier_runs
from onnx import TensorProto, helper

import bert
import convert_checkpoint
import extract_features
import modeling
import optimization
import predict
import run_classifier
import tokenization
from bert.models.fine_tuned import LoadedModel
from bert.models.pretrained import PretrainedModel
from bert.models.vectors import group_words
from bert.options import OptionError
from bert.tasks.classification.classifier import Classification
from bert.tasks.classification.examples import ClassificationTask
from bert.weights import saving
from bert.weights.checkpoint import Stored
from bert.weights.folder import ModelFolder


@pytest.fixture(scope="module")
def released(tmp_path_factory):
    """A released checkpoint: three files, nothing that says the casing."""
    return copy_golden(tmp_path_factory.mktemp("released"))


@pytest.fixture(scope="module")
def pretrained(released):
    return bert.load(str(released))


def test_a_released_checkpoint_is_loaded_and_its_casing_logged(released, log):
    model = bert.load(str(released))
    assert isinstance(model, PretrainedModel)
    assert "whether the model is uncased: it is taken for uncased" in log.text
    log.clear()
    assert not bert.load(str(released), do_lower_case=False).tokenizer.basic_tokenizer.do_lower_case
    assert "taken for that" not in log.text


def test_masks_are_filled_and_texts_rated(pretrained):
    (guesses,) = pretrained.fill_mask(["the [MASK] of the [MASK]"], top_k=3)
    assert [len(each) for each in guesses] == [3, 3]
    for each in guesses:
        probabilities = [guess.probability for guess in each]
        assert probabilities == sorted(probabilities, reverse=True)
        assert 0 < sum(probabilities) <= 1
    one, pair = pretrained.score(["the end", ("the end", "of it")])
    assert one.pseudo_log_likelihood < 0
    assert pair.num_tokens > one.num_tokens
    with pytest.raises(ValueError, match=r"Text 0, counted from 0, must have \[MASK\]"):
        pretrained.fill_mask(["the end"])


@pytest.mark.parametrize(
    ("layer", "pooling"), [("last", "mean"), (0, "cls"), *exhaustive((-2, "max"))]
)
def test_vectors_are_those_of_extract_features(pretrained, released, tmp_path, layer, pooling):
    texts = ["the end of it", ("one", "and the other of the two"), "a"]
    (tmp_path / "texts").write_text("the end of it\none ||| and the other of the two\na\n")
    extract_features.run(
        extract_features.Settings(
            input_file=str(tmp_path / "texts"),
            output_file=str(tmp_path / "vectors.npz"),
            init_checkpoint=str(released),
            layers=str(layer),
            pooling=pooling,
            format="npz",
            max_seq_length=32,
        )
    )
    with np.load(tmp_path / "vectors.npz") as vectors:
        expected = vectors["values"][:, 0]
    np.testing.assert_allclose(
        pretrained.encode(texts, layer, pooling), expected, rtol=0, atol=1e-5
    )
    assert pretrained.encode([]).shape == (0, expected.shape[1])


def test_half_precision_gives_about_the_same_vectors(pretrained, released):
    half = bert.load(str(released), precision="mixed_bfloat16")
    for pooling in ("mean", "max", "cls"):
        vectors = half.encode(["the end of it"], pooling=pooling)
        assert vectors.dtype == np.float32
        expected = pretrained.encode(["the end of it"], pooling=pooling)
        np.testing.assert_allclose(vectors, expected, rtol=0, atol=0.1)
        assert np.abs(vectors - expected).max() > 0


def test_a_mark_within_a_text_makes_no_pair(pretrained):
    one, pair = pretrained.score(["the end ||| of it", ("the end", "of ||| it")])
    # Three bars are three tokens.
    words = [len(pretrained.tokenizer.tokenize(text)) for text in ("the end of it", "|||")]
    assert one.num_tokens == pair.num_tokens == sum(words)
    same = pretrained.encode(["the end ||| of it", ("the end", "of it")])
    assert np.abs(same[0] - same[1]).max() > 1e-3


def test_tokens_stand_for_the_texts_that_they_were_read_of(pretrained):
    texts = ["the end", ("of", "it"), "the end " * 99]
    lines = pretrained.read(texts)
    assert [len(line.input_ids) for line in lines] == [4, 5, 64]
    np.testing.assert_array_equal(pretrained.encode(lines), pretrained.encode(texts))
    for name, values in pretrained.inputs(texts).items():
        np.testing.assert_array_equal(pretrained.inputs(lines)[name], values)


def test_keras_model_and_tokenizer_are_handed_out(pretrained):
    ids = np.array([pretrained.tokenizer.convert_tokens_to_ids(["[CLS]", "the", "[SEP]"])])
    inputs = {"input_ids": ids, "input_mask": ids * 0 + 1, "segment_ids": ids * 0}
    outputs = pretrained.model(inputs)
    assert outputs["pooled_output"].shape == (1, pretrained.config.hidden_size)
    np.testing.assert_allclose(
        np.mean(outputs["sequence_output"], axis=1), pretrained.encode(["the"]), rtol=0, atol=1e-5
    )


def test_paths_are_taken_as_texts_are(pretrained, released):
    for path in (released, released / "bert_model.ckpt"):
        model = bert.load(path, vocab_file=released / "vocab.txt")
        assert model.tokenizer.vocab == pretrained.tokenizer.vocab


class Table:
    """As those of pandas: what it gives one after another are the names of its columns."""

    ndim = 2

    def __iter__(self):
        return iter(["text"])


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda model: model.encode(["a", None]), "Text 1, counted from 0, must be a string"),
        (lambda model: model.encode(["a", float("nan")]), "Text 1, .* Received nan"),
        (lambda model: model.encode([("a", "b", "c")]), "Text 0, "),
        (lambda model: model.encode({"text": ["a"]}), "`texts` must be a list"),
        (lambda model: model.encode(Table()), "`texts` must be a list"),
        (lambda model: model.encode(3), "`texts` must be a list of texts, or one text. Received 3"),
        (lambda model: model.fill_mask(Table()), "`texts` must be a list"),
        *(
            (lambda model, k=k: model.fill_mask(["[MASK]"], top_k=k), "`top_k` must be")
            for k in (0, 2.0, None)
        ),
        (lambda model: model.encode(["a"], "third"), "`layer` must list numbers"),
        (lambda model: model.encode(["a"], "last,0"), "`layer` must name a single layer"),
        (lambda model: model.encode(["a"], pooling="none"), "`pooling` must be mean, max or cls"),
        (lambda model: bert.load("nowhere/to be found"), "model` must name a checkpoint"),
    ],
)
def test_what_cannot_be_is_refused(pretrained, ask, message):
    with pytest.raises(ValueError, match=message):
        ask(pretrained)


def test_no_text_is_no_input(pretrained, released):
    assert pretrained.inputs([])["input_ids"].shape[0] == 0
    for size in (0, 8.0, "8"):
        with pytest.raises(ValueError, match=f"`batch_size` must be .* Received {size!r}"):
            bert.load(released, batch_size=size)
    for length in (2, "16", 16.0):
        with pytest.raises(OptionError, match=f"`max_seq_length` must be .* Received {length!r}"):
            bert.load(released, max_seq_length=length)
    for path in (None, b"a"):
        with pytest.raises(OptionError, match=r"`model` must be a text\. Received"):
            bert.load(path)
    one = bert.load(released, batch_size=np.int64(2)).inputs(["a"])
    np.testing.assert_array_equal(one["input_ids"], pretrained.inputs(["a"])["input_ids"])


def test_a_vector_does_not_depend_on_the_texts_beside_it(pretrained):
    texts = ["the end " * number for number in (1, 9, 3, 2)] + ["of it"]
    together = pretrained.encode(texts)
    alone = np.concatenate([pretrained.encode([text]) for text in texts])
    np.testing.assert_allclose(together, alone, rtol=0, atol=1e-6)
    unit = pretrained.encode(texts, normalize=True)
    np.testing.assert_allclose(unit, together / np.linalg.norm(together, axis=1)[:, None], 1e-5)


def test_words_are_the_means_of_their_pieces(pretrained):
    encoder = pretrained
    assert group_words(["[CLS]", "un", "##able", "to", "[SEP]", "##s", "[SEP]"]) == [
        ("unable", [1, 2]),
        ("to", [3]),
        ("##s", [5]),
    ]
    (text,) = encoder.read(["the ending of it"])
    outputs = encoder.extractor("last", "none")([text], batch_size=1, max_seq_length=32)[0][0]
    ((words, vectors),) = encoder.encode_words(["the ending of it"])
    assert len(words) == len(vectors) == 4 < len(text.tokens) - 2
    np.testing.assert_allclose(vectors[1], outputs[2:-3].mean(axis=0), rtol=0, atol=1e-6)


@pytest.mark.exhaustive
def test_keras_trains_and_saves_a_model_on_top(released, tmp_path):
    """As in a notebook: load, encode, train with `fit`, save and load."""
    model = bert.load(str(released))
    texts, labels = ["the end", "it was", "the other end", "was it"] * 4, np.array([1, 0, 1, 0] * 4)
    before = model.encode(texts[:1])
    logits = keras.layers.Dense(1)(model.model.output["pooled_output"])
    classifier = keras.Model(model.model.input, logits)
    classifier.compile(
        optimization.AdamWeightDecayOptimizer(3e-3, 0.01, exclude_from_weight_decay=["bias"]),
        keras.losses.BinaryCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    inputs = model.inputs(texts)
    history = classifier.fit(inputs, labels, epochs=12, batch_size=8, verbose=0).history
    assert history["accuracy"][-1] == 1 > history["loss"][-1] / history["loss"][0] * 2
    # The encoder is trained, too.
    assert np.abs(model.encode(texts[:1]) - before).max() > 1e-3
    classifier.save(tmp_path / "classifier.keras")
    again = keras.models.load_model(tmp_path / "classifier.keras")
    expected = classifier.predict(inputs, verbose=0)
    np.testing.assert_array_equal(again.predict(inputs, verbose=0), expected)
    again.fit(inputs, labels, verbose=0)


def test_an_encoder_stands_in_a_functional_model_that_is_trained_and_loaded_again(
    pretrained, tmp_path
):
    inputs = pretrained.tokenizer(["the end", "it was it"])
    ids, mask = (keras.Input((None,), dtype="int32", name=n) for n in ("input_ids", "input_mask"))
    encoded = pretrained.encoder({"input_ids": ids, "input_mask": mask})
    model = keras.Model([ids, mask], keras.layers.Dense(1)(encoded["pooled_output"]))
    given = [inputs["input_ids"], inputs["input_mask"]]
    pooled = pretrained.encoder(inputs)["pooled_output"]
    kernel = model.layers[-1].kernel
    np.testing.assert_allclose(model(given), pooled @ kernel, rtol=0, atol=1e-5)
    model.compile("sgd", "mse")
    before = pretrained.encoder.get_weights()
    model.fit(given, np.array([5.0, -5.0]), verbose=0)
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(again(given), model(given))
    trained = pretrained.encoder.get_weights()
    assert any((one != other).any() for one, other in zip(before, trained, strict=True))
    pretrained.encoder.set_weights(before)


def test_a_model_to_train_has_the_weights_of_a_folder_and_a_head_of_its_own(released):
    model = bert.make_model("BertForTokenClassification", str(released), 4)
    values = {variable.path: variable.numpy() for variable in model.weights}
    stored = Stored.open(str(released)).read(name for name in values if name.startswith("bert/"))
    assert values.keys() - stored.keys() == {"output_weights", "output_bias"}
    for name, value in stored.items():
        np.testing.assert_array_equal(values[name], value)
    assert values["output_weights"].shape[0] == 4
    with pytest.raises(OptionError, match=r"must be one of .* Did you mean 'BertModel'\?"):
        bert.make_model("TFBertModel", str(released))


def test_an_encoder_without_heads_encodes_and_predicts_no_tokens(pretrained, released, tmp_path):
    for name in ("bert_config.json", "vocab.txt"):
        (tmp_path / name).write_bytes((released / name).read_bytes())
    tensors = Stored.open(str(released)).read()
    encoder = {name: value for name, value in tensors.items() if name.startswith("bert/")}
    saving.save_tensors(str(tmp_path / "bert_model.ckpt"), encoder)
    model = bert.load(str(tmp_path))
    np.testing.assert_array_equal(model.encode(["the end"]), pretrained.encode(["the end"]))
    for ask in (model.fill_mask, model.score):
        with pytest.raises(ValueError, match="must have the masked-LM head"):
            ask(["the end"])


def make_onnx(operation, dtype):
    """Returns an ONNX model of one operation."""
    node = helper.make_node(operation, ["input_ids"], ["logits"])
    ends = (helper.make_tensor_value_info(name, dtype, [None]) for name in ("input_ids", "logits"))
    graph = helper.make_graph([node], "graph", [next(ends)], [next(ends)])
    opsets = [helper.make_opsetid("", 18)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()


@pytest.mark.usefixtures("eager")
def test_a_fine_tuned_folder_answers(tmp_path):
    classifier_runs.write_task(tmp_path, lambda color: color, count=8)
    make = classifier_runs.settings_in(tmp_path)
    run_classifier.run(make(do_train=True, num_train_epochs=1.0))
    model = bert.load(str(tmp_path / "out"))
    assert isinstance(model, LoadedModel)
    (answer,) = model.predict(["red"])
    assert answer["label"] in answer["probabilities"]
    assert model.model.output["logits"].shape[-1] == len(answer["probabilities"])
    assert model.tokenizer.tokenize("Red") == ["red"]
    assert bert.load(str(tmp_path / "out/bert_model.ckpt")).predict(["red"]) == [answer]
    # Its encoder is that of the folder, whatever is on top.
    encoder = PretrainedModel(ModelFolder.open(str(tmp_path / "out")), with_heads=False)
    vectors = model.encode(["red", "blue red", ("red", "red")])
    np.testing.assert_array_equal(vectors, encoder.encode(["red", "blue red", ("red", "red")]))
    assert np.abs(vectors[0] - vectors[1]).max() > 1e-3
    converted = {"input": str(tmp_path / "out"), "output": str(tmp_path / "converted")}
    convert_checkpoint.run(convert_checkpoint.Settings(**converted, format="huggingface"))
    assert bert.load(converted["output"]).predict(["red"]) == [answer]
    # An export lies beside weights, which are taken; alone, it must be whole.
    (tmp_path / "converted/model.onnx").touch()
    assert bert.load(converted["output"]).predict(["red"]) == [answer]
    contents = [b"", make_onnx("Nope", TensorProto.FLOAT), make_onnx("Erf", TensorProto.BFLOAT16)]
    files = [*(("model.onnx", content) for content in contents), ("model.tflite", b"")]
    for number, (name, content) in enumerate(files):
        folder = tmp_path / f"export_{number}"
        folder.mkdir()
        for each in ("task.json", "vocab.txt", "bert_config.json"):
            shutil.copy(tmp_path / "out" / each, folder)
        (folder / name).write_bytes(content)
        with pytest.raises(ValueError, match=rf"{name}' must be a model for"):
            bert.load(str(folder))
        with pytest.raises(ValueError, match=r"must be the folder of a training run.*an export"):
            predict.load(str(folder))
    # Without what says what it decides, it is refused rather than taken for an encoder.
    (tmp_path / "out/task.json").unlink()
    with pytest.raises(ValueError, match=r"has no task\.json, but by its head .*`labels`"):
        bert.load(str(tmp_path / "out"))


@pytest.mark.exhaustive
def test_the_options_of_a_tokenizer_are_passed_on(tmp_path):
    """From pre-training to fine-tuning, prediction, export and conversion, there and back."""
    classifier_runs.write_task(tmp_path, lambda color: color, count=8)
    make = classifier_runs.settings_in(tmp_path)
    model = modeling.BertModel(modeling.BertConfig.from_json_file(str(tmp_path / "config.json")))
    model.build(None)
    pretrained = tmp_path / "pretrained"
    pretrained.mkdir()
    tensors = {variable.path: variable.numpy() for variable in model.weights}
    saving.save_tensors(str(pretrained / "bert_model.ckpt"), tensors)
    # An accent is seen, for the word with it is not in the vocabulary; `a` is taken whole in words.
    listed = {"3": {"content": "[SEP]", "normalized": False}, "8": {"content": "a"}}
    config = {"do_lower_case": True, "strip_accents": False, "added_tokens_decoder": listed}
    (pretrained / "tokenizer_config.json").write_text(json.dumps(config))
    run_classifier.run(
        make(do_train=True, do_export=True, num_train_epochs=1.0, init_checkpoint=str(pretrained))
    )
    texts = ["r\xe9d blue", "redablue", "red[SEP] b", "RED"]
    pieces = [["[UNK]", "blue"], ["red", "a", "blue"], ["red", "[SEP]", "b"], ["red"]]
    convert = convert_checkpoint.Settings
    for source, output, kind in (("out", "theirs", "huggingface"), ("theirs", "back", "tf")):
        there = {"input": str(tmp_path / source), "output": str(tmp_path / output)}
        convert_checkpoint.run(convert(**there, format=kind))
    # What transformers knows is enough.
    (tmp_path / "theirs/task.json").unlink()
    answers = bert.load(str(tmp_path / "out")).predict(texts)
    for name in ("out", "back", "theirs"):
        folder = ModelFolder.open(str(tmp_path / name))
        assert list(map(folder.load_tokenizer().tokenize, texts)) == pieces
    assert bert.load(str(tmp_path / "back")).predict(texts) == answers
    exported = tf.saved_model.load(str(tmp_path / "out/saved_model"))
    outputs = exported.signatures["serving_default"](tf.constant(texts))
    expected = [list(answer["probabilities"].values()) for answer in answers]
    np.testing.assert_allclose(outputs["probabilities"], expected, rtol=0, atol=1e-5)
    # Training does not go on with another tokenizer.
    (pretrained / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": True}))
    with pytest.raises(ValueError, match=r"`tokenizer\.strip_accents` is False only there"):
        run_classifier.run(make(do_train=True, init_checkpoint=str(pretrained)))


def test_a_length_truncates_the_texts_that_a_pre_trained_model_encodes(pretrained, released):
    told = bert.load(str(released), max_seq_length=8)
    texts = ["the end of it was the other end of it", "the end"]
    cut = pretrained.encode(texts, max_seq_length=8)
    np.testing.assert_array_equal(told.encode(texts), cut)
    assert told.inputs(texts)["input_ids"].shape == (2, 8)
    # Where it is called, more may be said.
    whole = pretrained.encode(texts)
    limit = told.config.max_position_embeddings
    np.testing.assert_array_equal(told.encode(texts, max_seq_length=limit), whole)
    assert np.abs(cut[0] - whole[0]).max() > 1e-3
    with pytest.raises(ValueError, match=f"`max_seq_length` must be at most {limit}.*{limit + 1}"):
        bert.load(str(released), max_seq_length=limit + 1)


@pytest.mark.parametrize("told", [{"task_name": "mrpc"}, {"labels": "a,b"}, {"is_pair": False}])
def test_options_without_effect_on_a_pre_trained_model_are_refused(released, told):
    [name] = told
    with pytest.raises(ValueError, match=f"^`{name}` must not be given for .* only pre-trained"):
        bert.load(str(released), do_lower_case=True, **told)


@pytest.mark.parametrize("batch_size", [1, 3, 64])
def test_an_answer_does_not_depend_on_the_batch(batch_size):
    """However long the others are with which it goes through the model."""
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *"abcdefgh"]
    config = small_config(len(words), max_position_embeddings=64)
    tokenizer = tokenization.FullTokenizer.from_vocab({word: i for i, word in enumerate(words)})
    task = ClassificationTask(
        name="custom",
        task_type="classification",
        labels=("yes", "no"),
        is_pair=False,
        metric="accuracy",
    )
    classification = Classification(config, tokenizer, 64, task)
    loaded = LoadedModel(classification, classification.make_model("float32"), batch_size)
    rng = np.random.RandomState(0)
    texts = [" ".join(rng.choice(words[4:], length)) for length in (60, 1, 9, 17, 33, 2, 49, 62)]
    together = loaded.predict(texts)
    alone = [loaded.predict([text])[0] for text in texts]
    for one, other in zip(together, alone, strict=True):
        assert one["probabilities"] == pytest.approx(other["probabilities"], abs=1e-5)
    # Their ends count.
    cut = loaded.predict([" ".join(text.split()[:40]) for text in texts])
    assert cut[0]["probabilities"] != pytest.approx(alone[0]["probabilities"], abs=1e-4)

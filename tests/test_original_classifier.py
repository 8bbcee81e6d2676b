import gzip
import inspect
import itertools
import json
import re

import keras
import numpy as np
import pytest
import tensorflow as tf
from conftest import GOLDEN, change, make_examples
from hypothesis import given
from hypothesis import strategies as st

import modeling
import optimization
import run_classifier
import tokenization
from bert.network.heads import classifier_model
from bert.original import classifier as original_classifier
from bert.original import processors as original_processors
from bert.tasks.classification.examples import ClassificationTask
from bert.tasks.classification.inputs import make_features
from bert.training.loop import NonFiniteLossError

# As in the original's run_classifier.py.
SIGNATURES = {
    "InputExample": "guid, text_a, text_b=None, label=None",
    "InputFeatures": "input_ids, input_mask, segment_ids, label_id, is_real_example=True",
    "PaddingInputExample": "",
    "convert_examples_to_features": "examples, label_list, max_seq_length, tokenizer",
    "convert_single_example": "ex_index, example, label_list, max_seq_length, tokenizer",
    "create_model": "bert_config, is_training, input_ids, input_mask, segment_ids, labels, "
    "num_labels, use_one_hot_embeddings",
    "file_based_convert_examples_to_features": "examples, label_list, max_seq_length, tokenizer, "
    "output_file",
    "file_based_input_fn_builder": "input_file, seq_length, is_training, drop_remainder",
    "input_fn_builder": "features, seq_length, is_training, drop_remainder",
    "model_fn_builder": "bert_config, num_labels, init_checkpoint, learning_rate, "
    "num_train_steps, num_warmup_steps, use_tpu, use_one_hot_embeddings",
}
PROCESSORS = {"ColaProcessor", "DataProcessor", "MnliProcessor", "MrpcProcessor", "XnliProcessor"}

NLI = ["contradiction", "entailment", "neutral"]

InputExample = run_classifier.InputExample

# Length of the golden classifier's sequences.
LENGTH = 32


@pytest.fixture(scope="module")
def tokenizer():
    return tokenization.FullTokenizer(str(GOLDEN / "vocab.txt"))


@pytest.fixture(scope="module")
def golden_config():
    return modeling.BertConfig.from_json_file(str(GOLDEN / "bert_config.json"))


def golden_probabilities():
    return np.loadtxt(GOLDEN / "classifier_cola_test_results.tsv", delimiter="\t")


def load_golden(model):
    reader = tf.train.load_checkpoint(str(GOLDEN / "classifier_cola" / "model.ckpt"))
    for variable in model.weights:
        variable.assign(reader.get_tensor(variable.path))
    return model


def cola_batch(tokenizer, split):
    """Returns all examples of a golden split as one batch."""
    processor = run_classifier.ColaProcessor()
    examples = getattr(processor, f"get_{split}_examples")(str(GOLDEN / "cola"))
    features = run_classifier.convert_examples_to_features(
        examples, processor.get_labels(), LENGTH, tokenizer
    )
    input_fn = run_classifier.input_fn_builder(features, LENGTH, False, False)
    return input_fn({"batch_size": len(features)}).get_single_element()


@pytest.mark.parametrize("name", SIGNATURES)
def test_signature_is_the_original_one(name):
    signature = inspect.signature(getattr(run_classifier, name))
    shown = [
        each.name if each.default is each.empty else f"{each.name}={each.default!r}"
        for each in signature.parameters.values()
    ]
    assert ", ".join(shown) == SIGNATURES[name]


def test_run_classifier_has_the_names():
    owned = {**vars(original_processors), **vars(original_classifier)}
    for name in {*SIGNATURES, *PROCESSORS}:
        assert getattr(run_classifier, name) is owned[name]


def write_rows(path, rows):
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join("\t".join(row) + "\n" for row in rows), encoding="utf-8")


def read_all(processor, folder):
    return [
        getattr(processor, f"get_{split}_examples")(str(folder))
        for split in ("train", "dev", "test")
    ]


def test_cola_has_a_header_in_the_test_set_only(tmp_path):
    write_rows(tmp_path / "train.tsv", [["s", "1", "", 'A "quote.'], ["s", "0", "*", "b"]])
    write_rows(tmp_path / "dev.tsv", [["s", "0", "*", "c"]])
    write_rows(tmp_path / "test.tsv", [["index", "sentence"], ["7", "d"], ["8", "e"]])
    assert run_classifier.ColaProcessor().get_labels() == ["0", "1"]
    assert read_all(run_classifier.ColaProcessor(), tmp_path) == [
        [InputExample("train-0", 'A "quote.', None, "1"), InputExample("train-1", "b", None, "0")],
        [InputExample("dev-0", "c", None, "0")],
        [InputExample("test-1", "d", None, "0"), InputExample("test-2", "e", None, "0")],
    ]


def test_mrpc_has_its_label_first(tmp_path):
    header = ["Quality", "#1 ID", "#2 ID", "#1 String", "#2 String"]
    for split, label in (("train", "1"), ("dev", "0"), ("test", "5")):
        write_rows(tmp_path / f"{split}.tsv", [header, [label, "1", "2", f"{split} a", "b"]])
    assert run_classifier.MrpcProcessor().get_labels() == ["0", "1"]
    assert read_all(run_classifier.MrpcProcessor(), tmp_path) == [
        [InputExample("train-1", "train a", "b", "1")],
        [InputExample("dev-1", "dev a", "b", "0")],
        [InputExample("test-1", "test a", "b", "0")],
    ]


def test_mnli_is_matched_and_has_its_label_last(tmp_path):
    header, row = [f"column {n}" for n in range(12)], ["31193", *"1234567", "a", "b", "x"]
    write_rows(tmp_path / "train.tsv", [header, [*row, "neutral"]])
    write_rows(tmp_path / "test_matched.tsv", [header[:10], row[:10]])
    for name, label in (("matched", "entailment"), ("mismatched", "neutral")):
        write_rows(tmp_path / f"dev_{name}.tsv", [header, [*row, "x", label]])
    assert run_classifier.MnliProcessor().get_labels() == NLI
    assert read_all(run_classifier.MnliProcessor(), tmp_path) == [
        [InputExample("train-31193", "a", "b", "neutral")],
        [InputExample("dev_matched-31193", "a", "b", "entailment")],
        [InputExample("test-31193", "a", "b", "contradiction")],
    ]


def test_xnli_is_chinese_until_another_language_is_set(tmp_path):
    for code in ("zh", "de"):
        write_rows(
            tmp_path / "multinli" / f"multinli.train.{code}.tsv",
            [["premise", "hypo", "label"], [code, "b", "contradictory"]],
        )
    rows = [[code, "neutral", *"2345", code, "b"] for code in ("de", "zh")]
    for split in ("dev", "test"):
        write_rows(tmp_path / f"xnli.{split}.tsv", [["language", "gold_label", *"234567"], *rows])
    processor = run_classifier.XnliProcessor()
    assert processor.get_labels() == NLI
    for code, number in (("zh", 2), ("de", 1)):
        assert read_all(processor, tmp_path) == [
            [InputExample("train-1", code, "b", "contradiction")],
            [InputExample(f"dev-{number}", code, "b", "neutral")],
            [InputExample(f"test-{number}", code, "b", "neutral")],
        ]
        processor.language = "de"


def test_rows_are_read_with_quotes_as_text_unless_they_are_named(tmp_path):
    path = tmp_path / "rows.tsv"
    path.write_bytes('\ufeffa\t"b\r\n\r\nc\td"\n'.encode())
    read = run_classifier.DataProcessor._read_tsv
    assert read(str(path)) == [["a", '"b'], ["c", 'd"']]
    path.write_bytes(b'a\t"b\tc"\n\n"two\nlines"\t"a ""word"""\n')
    assert read(str(path), quotechar='"') == [["a", "b\tc"], ["two\nlines", 'a "word"']]
    path.write_bytes(b'a\tb\n"never closed\tc\n')
    with pytest.raises(ValueError, match=r"rows\.tsv:2: a cell that begins with '\"' must end"):
        read(str(path), quotechar='"')
    with gzip.open(tmp_path / "rows.tsv.gz", "wb") as file:
        file.write(b"a\tb\n")
    assert read(str(tmp_path / "rows.tsv.gz")) == [["a", "b"]]


@pytest.mark.parametrize("method", ["get_train_examples", "get_dev_examples", "get_test_examples"])
def test_processor_says_what_it_does_not_define(method):
    class Reviews(run_classifier.DataProcessor):
        def get_labels(self):
            return ["bad", "good"]

    assert Reviews().get_labels() == ["bad", "good"]
    with pytest.raises(NotImplementedError, match=f"Reviews must define `{method}`"):
        getattr(Reviews(), method)("")


words = st.lists(st.sampled_from(["book", "lateer", "zymurgy", "café", "北", ","]), max_size=9)


@given(words, st.none() | words, st.sampled_from(["0", "1"]), st.integers(5, 24))
def test_features_are_those_of_classification(tokenizer, a, b, label, max_seq_length):
    example = InputExample("1", " ".join(a), None if b is None else " ".join(b), label)
    task = ClassificationTask(
        name="t", task_type="classification", labels=("0", "1"), is_pair=True, metric="f1"
    )
    features = run_classifier.convert_single_example(
        9, example, ["0", "1"], max_seq_length, tokenizer
    )
    expected = make_features([example], task, tokenizer, max_seq_length)
    for name in ("input_ids", "input_mask", "segment_ids"):
        assert getattr(features, name) == expected[name][0].tolist()
    assert [features.label_id] == expected["label_ids"][0].tolist()
    assert features.is_real_example is True


def test_any_tokenizer_with_the_methods_works(tokenizer):
    class Letters:
        def tokenize(self, text):
            return list(text)

        def convert_tokens_to_ids(self, tokens):
            return [len(token) for token in tokens]

    example = InputExample(None, "ab", "cde", 1)
    features = run_classifier.convert_single_example(0, example, [0, 1], 9, Letters())
    assert features == run_classifier.InputFeatures(
        [5, 1, 1, 5, 1, 1, 1, 5, 0], [1] * 8 + [0], [0] * 4 + [1] * 4 + [0], 1
    )


@pytest.mark.parametrize(
    ("label", "label_list", "label_id"),
    [
        ("b", ["a", "b"], 1),
        (1, [1, 0], 0),
        (1, ["0", "1"], 1),
        ("0", (1, 0), 1),
        (np.int64(2), [0, 1, 2], 2),
        (1.0, [0, 1], 1),
        (None, ["a", "b"], 0),
    ],
)
def test_labels_are_found_by_value_or_by_spelling(tokenizer, label, label_list, label_id):
    example = InputExample("x", "book", None, label)
    features = run_classifier.convert_single_example(9, example, label_list, 8, tokenizer)
    assert features.label_id == label_id


def test_padding_is_of_zeros_and_not_real(tokenizer):
    features = run_classifier.convert_single_example(
        0, run_classifier.PaddingInputExample(), ["a"], 4, tokenizer
    )
    assert features == run_classifier.InputFeatures([0] * 4, [0] * 4, [0] * 4, 0, False)
    features.input_ids[0] = 1
    assert features.input_mask[0] == 0


BAD_EXAMPLES = {
    "label": ([InputExample("g", "book", None, "2")], r"example 0, .* 'g', must be one of \['0', "),
    "nan": ([InputExample("g", "book", None, "0"), InputExample(None, float("nan"), None, "0")],
            r"`text_a` of example 1, .* None, must be text\. Received nan"),
    "text_b": ([InputExample("g", "book", 3, "0")], r"`text_b` of example 0, .* Received 3"),
    "no text": ([InputExample("g", None, None, "0")], r"`text_a` of .* Received None"),
    "some labels": (
        [InputExample("a", "book", None, "0"), InputExample("b", "book")],
        r"a label, or none\. Received 1 of 2 without, the first is example 1, .* 'b'\.",
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", BAD_EXAMPLES)
def test_bad_examples_are_refused_by_number_and_guid(tmp_path, tokenizer, kind):
    examples, message = BAD_EXAMPLES[kind]
    arguments = (examples, ["0", "1"], 8, tokenizer)
    with pytest.raises(ValueError, match=message):
        run_classifier.convert_examples_to_features(*arguments)
    path = tmp_path / "train.tf_record"
    with pytest.raises(ValueError, match=message):
        run_classifier.file_based_convert_examples_to_features(*arguments, str(path))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("text_b", "label_list", "length", "message"),
    [
        (None, ["0", "1"], 2, "`max_seq_length` must be at least 3"),
        ("book", ["0", "1"], 4, "`max_seq_length` must be at least 5"),
        (None, ["0", 0], 8, "`label_list` must name each label once"),
    ],
)
def test_impossible_arguments_are_refused(tokenizer, text_b, label_list, length, message):
    example = InputExample("g", "book", text_b, "0")
    with pytest.raises(ValueError, match=message):
        run_classifier.convert_single_example(0, example, label_list, length, tokenizer)


def test_first_examples_are_logged(tokenizer, log):
    examples = [InputExample(f"g{n}", "wrote neared", None, "1") for n in range(7)]
    run_classifier.convert_examples_to_features(examples, ["0", "1"], 8, tokenizer)
    ids = tokenizer.convert_tokens_to_ids(["[CLS]", "wrote", "near", "##ed", "[SEP]"])
    assert log.messages[0] == "Writing example 0 of 7"
    assert log.messages[1:8] == [
        "*** Example ***",
        "guid: g0",
        "tokens: [CLS] wrote near ##ed [SEP]",
        f"input_ids: {' '.join(map(str, ids))} 0 0 0",
        "input_mask: 1 1 1 1 1 0 0 0",
        "segment_ids: 0 0 0 0 0 0 0 0",
        "label: 1 (id = 1)",
    ]
    assert log.messages.count("*** Example ***") == 5


def test_records_are_those_of_run_classifier(tmp_path, tokenizer):
    settings = run_classifier.Settings(
        data_dir=str(GOLDEN / "cola"),
        task_name="cola",
        bert_config_file=str(GOLDEN / "bert_config.json"),
        vocab_file=str(GOLDEN / "vocab.txt"),
        init_checkpoint=str(GOLDEN / "classifier_cola" / "model.ckpt"),
        output_dir=str(tmp_path / "output"),
        max_seq_length=LENGTH,
        do_eval=True,
        do_predict=True,
    )
    run_classifier.run(settings)
    processor = run_classifier.ColaProcessor()
    for examples, name in (
        (processor.get_dev_examples(settings.data_dir), "eval"),
        (processor.get_test_examples(settings.data_dir), "predict"),
    ):
        path = tmp_path / f"{name}.tf_record"
        run_classifier.file_based_convert_examples_to_features(
            examples, processor.get_labels(), LENGTH, tokenizer, str(path)
        )
        assert path.read_bytes() == (tmp_path / "output" / path.name).read_bytes()


def some_features(tokenizer, count, length=8):
    return run_classifier.convert_examples_to_features(
        [InputExample(str(n), "book " * (n % 5), None, n % 3) for n in range(count)],
        [0, 1, 2],
        length,
        tokenizer,
    )


def some_input_fns(tmp_path, tokenizer, count, is_training, drop_remainder):
    """Returns the same examples in memory and in a file; the last is no real one."""
    examples = [InputExample(str(n), "book " * n, None, n % 3) for n in range(count - 1)]
    examples.append(run_classifier.PaddingInputExample())
    arguments = (examples, [0, 1, 2], 8, tokenizer)
    path = str(tmp_path / "examples.tf_record")
    run_classifier.file_based_convert_examples_to_features(*arguments, path)
    features = run_classifier.convert_examples_to_features(*arguments)
    rest = (8, is_training, drop_remainder)
    return [
        run_classifier.input_fn_builder(features, *rest),
        run_classifier.file_based_input_fn_builder(path, *rest),
    ]


@pytest.mark.parametrize("drop_remainder", [False, True])
def test_batches_have_all_examples_in_order(tmp_path, tokenizer, log, drop_remainder):
    for input_fn in some_input_fns(tmp_path, tokenizer, 7, False, drop_remainder):
        log.clear()
        batches = list(input_fn({"batch_size": 3}).as_numpy_iterator())
        assert [len(batch["label_ids"]) for batch in batches] == [3, 3] + [1] * (not drop_remainder)
        whole = {name: np.concatenate([each[name] for each in batches]) for name in batches[0]}
        assert {name: values.dtype.name for name, values in whole.items()} == dict.fromkeys(
            ("input_ids", "input_mask", "segment_ids", "label_ids", "is_real_example"), "int32"
        )
        count = len(whole["label_ids"])
        assert whole["label_ids"].tolist() == [0, 1, 2, 0, 1, 2, 0][:count]
        assert whole["is_real_example"].tolist() == [1, 1, 1, 1, 1, 1, 0][:count]
        assert whole["input_mask"].sum(1).tolist() == [2, 3, 4, 5, 6, 7, 0][:count]
        assert whole["input_ids"].shape == whole["segment_ids"].shape == (count, 8)
        left_out = [message for message in log.messages if "leaves out 1 of 7" in message]
        assert len(left_out) == drop_remainder


def test_training_shuffles_each_epoch_and_never_ends(tmp_path, tokenizer, log):
    lengths = [*range(2, 8), 0]
    for input_fn in some_input_fns(tmp_path, tokenizer, 7, True, True):
        batches = input_fn({"batch_size": 2}).take(42).as_numpy_iterator()
        seen = np.concatenate([batch["input_mask"].sum(1) for batch in batches]).reshape(12, 7)
        np.testing.assert_array_equal(np.sort(seen), [sorted(lengths)] * 12)
        assert len({tuple(epoch) for epoch in seen}) > 6
    assert not any("leaves out" in message for message in log.messages)


def test_the_same_seed_gives_the_same_order(tokenizer):
    input_fn = run_classifier.input_fn_builder(some_features(tokenizer, 20), 8, True, False)
    orders = []
    for _ in range(2):
        keras.utils.set_random_seed(3)
        batches = input_fn({"batch_size": 20}).take(2).as_numpy_iterator()
        orders.append([batch["input_ids"] for batch in batches])
    np.testing.assert_array_equal(*orders)


@pytest.mark.parametrize("params", [{}, {"batch_size": 0}, {"batch_size": "8"}])
def test_batch_size_must_be_a_number(tmp_path, tokenizer, params):
    for input_fn in some_input_fns(tmp_path, tokenizer, 2, False, False):
        with pytest.raises(ValueError, match=r'`params\["batch_size"\]` must be at least 1'):
            input_fn(params)


def test_features_must_have_the_length(tokenizer):
    features = some_features(tokenizer, 2)
    features[1].segment_ids.pop()
    with pytest.raises(ValueError, match=r"`seq_length` = 8 values each.*'segment_ids': 7.* 1, "):
        run_classifier.input_fn_builder(features, 8, True, False)
    with pytest.raises(ValueError, match=r"at least one example\. Received none"):
        run_classifier.input_fn_builder([], 8, True, False)


def test_file_must_hold_such_records(tmp_path, tokenizer):
    some_input_fns(tmp_path, tokenizer, 2, False, False)
    path = tmp_path / "examples.tf_record"
    for name, length, message in (
        (path, 16, "`input_ids` must have 16 values of int64_list, as `seq_length` says. It has"),
        (tmp_path / "absent", 8, "`input_file` must exist. Received '"),
        (GOLDEN / "vocab.txt", 8, "must be a whole, uncompressed TFRecord file"),
        (GOLDEN / "pretrain_batch.tfrecord", 48, "must have the feature `label_ids`"),
    ):
        input_fn = run_classifier.file_based_input_fn_builder(str(name), length, True, False)
        with pytest.raises(ValueError, match=re.escape(message)):
            input_fn({"batch_size": 1})


class MovieReviews(run_classifier.DataProcessor):
    """A user's own, of labels that are integers, as in the original's notebook."""

    def get_train_examples(self, data_dir):
        return self._create_examples(f"{data_dir}/train.tsv")

    def get_labels(self):
        return [0, 1]

    def _create_examples(self, path):
        header, *lines = self._read_tsv(path)
        assert header == ["sentence", "polarity"]
        # What a series of pandas is: it has a length, but 0 is no index of it.
        return {
            n + 7: InputExample(guid=None, text_a=text, text_b=None, label=int(polarity))
            for n, (text, polarity) in enumerate(lines)
        }.values()


def test_a_user_defined_processor_trains_a_model(tmp_path, tokenizer, golden_config):
    rows = [[f"{word} book", str(n)] for n, word in enumerate(["never", "always"])] * 4
    write_rows(tmp_path / "train.tsv", [["sentence", "polarity"], *rows])
    processor = MovieReviews()
    features = run_classifier.convert_examples_to_features(
        processor.get_train_examples(tmp_path), processor.get_labels(), 6, tokenizer
    )
    assert [each.label_id for each in features] == [0, 1] * 4
    input_fn = run_classifier.input_fn_builder(features, 6, is_training=True, drop_remainder=False)
    model_fn = run_classifier.model_fn_builder(
        bert_config=golden_config,
        num_labels=len(processor.get_labels()),
        init_checkpoint=str(GOLDEN / "bert_model.ckpt"),
        learning_rate=1e-2,
        num_train_steps=40,
        num_warmup_steps=4,
        use_tpu=False,
        use_one_hot_embeddings=False,
    )
    losses = [
        model_fn(batch, None, "train", {}).train_op()
        for batch in input_fn({"batch_size": 8}).take(40)
    ]
    assert losses[0] > 0.5
    assert losses[-1] < 0.1
    question = [InputExample(guid="", text_a="always book", text_b=None, label=0)]
    features = run_classifier.convert_examples_to_features(question, [0, 1], 6, tokenizer)
    input_fn = run_classifier.input_fn_builder(features, 6, is_training=False, drop_remainder=False)
    [batch] = input_fn({"batch_size": 8})
    [probabilities] = model_fn(batch, None, "infer", {}).predictions["probabilities"].numpy()
    assert probabilities[1] > 0.9
    assert probabilities.sum() == pytest.approx(1, abs=1e-6)


def test_create_model_gives_the_original_numbers_and_names(tokenizer, golden_config):
    batch = cola_batch(tokenizer, "test")
    names = ("input_ids", "input_mask", "segment_ids")
    inputs = {name: keras.Input((None,), dtype="int32", name=name) for name in names}
    labels = keras.Input((), dtype="int32", name="label_ids")
    outputs = run_classifier.create_model(
        golden_config, False, *inputs.values(), labels, 2, use_one_hot_embeddings=False
    )
    model = keras.Model({**inputs, "label_ids": labels}, outputs)
    plain = load_golden(classifier_model(golden_config, 2))
    assert {v.path for v in model.weights} == {v.path for v in plain.weights}
    load_golden(model)
    features = {name: batch[name] for name in names}
    logits = plain(features)["logits"].numpy()
    label_ids = tf.range(20) % 2
    loss, per_example_loss, given_logits, probabilities = model(
        {**features, "label_ids": label_ids}
    )
    np.testing.assert_allclose(given_logits, logits, rtol=0, atol=1e-6)
    # The original's results are written in single precision.
    np.testing.assert_allclose(probabilities, golden_probabilities(), rtol=0, atol=1e-5)
    expected = -np.log(golden_probabilities()[np.arange(20), label_ids])
    np.testing.assert_allclose(per_example_loss, expected, rtol=0, atol=1e-5)
    assert float(loss) == pytest.approx(expected.mean(), abs=1e-5)


def test_create_model_in_a_graph_gives_the_original_numbers_and_names(tokenizer, golden_config):
    batch = cola_batch(tokenizer, "test")
    names = ("input_ids", "input_mask", "segment_ids")
    checkpoint = str(GOLDEN / "classifier_cola" / "model.ckpt")
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        tensors = [tf.compat.v1.placeholder(tf.int32, (None, None)) for _ in names]
        labels = tf.compat.v1.placeholder(tf.int32, (None,))
        outputs = run_classifier.create_model(golden_config, False, *tensors, labels, 2, False)
        variables = tf.compat.v1.global_variables()
        assert [each.name for each in variables[-2:]] == ["output_weights:0", "output_bias:0"]
        assignment_map, _ = modeling.get_assignment_map_from_checkpoint(variables, checkpoint)
        assert len(assignment_map) == len(variables)
        tf.compat.v1.train.init_from_checkpoint(checkpoint, assignment_map)
        session.run(tf.compat.v1.global_variables_initializer())
        feed = {tensor: batch[name].numpy() for tensor, name in zip(tensors, names, strict=True)}
        label_ids = np.arange(20) % 2
        loss, losses, _, probabilities = session.run(outputs, {**feed, labels: label_ids})
    # The original's results are written in single precision.
    np.testing.assert_allclose(probabilities, golden_probabilities(), rtol=0, atol=1e-5)
    expected = -np.log(golden_probabilities()[np.arange(20), label_ids])
    np.testing.assert_allclose(losses, expected, rtol=0, atol=1e-5)
    assert float(loss) == pytest.approx(expected.mean(), abs=1e-5)


def test_create_model_works_on_tensors_at_once(tiny_config):
    examples = make_examples(tiny_config, 3)
    arrays = [tf.constant(examples[n]) for n in ("input_ids", "input_mask", "segment_ids")]
    for labels in ([0, 4, 2], [[0], [4], [2]]):
        loss, per_example_loss, logits, probabilities = run_classifier.create_model(
            tiny_config, False, *arrays, tf.constant(labels), 5, True
        )
        exponents = np.exp(logits.numpy())
        expected = exponents / exponents.sum(1, keepdims=True)
        np.testing.assert_allclose(probabilities, expected, rtol=1e-5)
        np.testing.assert_allclose(
            per_example_loss, -np.log(expected[[0, 1, 2], [0, 4, 2]]), rtol=1e-5
        )
        assert float(loss) == pytest.approx(per_example_loss.numpy().mean(), rel=1e-6)
    loss, per_example_loss, logits, _ = run_classifier.create_model(
        tiny_config, False, *arrays, None, 5, False
    )
    assert loss is None and per_example_loss is None and logits.shape == (3, 5)


def test_is_training_decides_about_dropout(still_config):
    # Without dropout in the encoder, only the head's is left.
    still_config = change(still_config, num_hidden_layers=1)
    examples = make_examples(still_config, 3)
    arrays = [examples[name] for name in ("input_ids", "input_mask", "segment_ids")]
    for is_training in (False, True):
        tensors = [keras.Input((None,), dtype="int32") for _ in arrays]
        outputs = run_classifier.create_model(still_config, is_training, *tensors, None, 2, False)
        model = keras.Model(tensors, outputs[2])
        np.testing.assert_array_equal(model(arrays), model(arrays, training=False))
        drops = [np.array_equal(model(arrays), model(arrays, training=True)) for _ in range(4)]
        assert (not all(drops)) is is_training


def golden_model_fn(config, **changes):
    arguments = {
        "num_labels": 2,
        "init_checkpoint": str(GOLDEN / "classifier_cola" / "model.ckpt"),
        "learning_rate": 1e-3,
        "num_train_steps": 6,
        "num_warmup_steps": 2,
        "use_tpu": False,
        "use_one_hot_embeddings": False,
    }
    return run_classifier.model_fn_builder(config, **{**arguments, **changes})


def test_evaluation_is_the_original_one(tokenizer, golden_config):
    expected = json.loads((GOLDEN / "classifier_cola_eval.json").read_text())
    model_fn = golden_model_fn(golden_config, num_train_steps=None, num_warmup_steps=None)
    batch = cola_batch(tokenizer, "dev")
    spec = model_fn(batch, None, "eval", {})
    assert float(spec.loss) == pytest.approx(expected["eval_loss"], abs=1e-5)
    assert spec.mode == "eval" and spec.predictions is None and spec.train_op is None
    # The same in batches of two sizes, of which the second holds padding.
    metrics = {name: keras.metrics.Mean() for name in ("eval_accuracy", "eval_loss")}
    for rows in (slice(0, 13), [*range(13, 20), 0, 0]):
        part = {name: values.numpy()[rows] for name, values in batch.items()}
        part["is_real_example"][7:] = isinstance(rows, slice)
        spec = model_fn(part, None, "eval")
        for name, metric in metrics.items():
            metric.update_state(*spec.eval_metrics[name])
    assert spec.eval_metrics.keys() == metrics.keys()
    losses, weights = (np.asarray(each) for each in spec.eval_metrics["eval_loss"])
    assert weights.tolist() == [1] * 7 + [0] * 2
    assert float(spec.loss) == pytest.approx(losses[:7].mean(), abs=1e-6)
    for name, metric in metrics.items():
        assert float(metric.result()) == pytest.approx(expected[name], abs=1e-5)


def test_prediction_is_the_original_one_and_needs_no_labels(tokenizer, golden_config):
    model_fn = golden_model_fn(golden_config)
    batch = cola_batch(tokenizer, "test")
    for name in ("label_ids", "is_real_example"):
        spec = model_fn(batch, None, "infer", {})
        assert spec.predictions.keys() == {"probabilities"}
        np.testing.assert_allclose(
            spec.predictions["probabilities"], golden_probabilities(), rtol=0, atol=1e-5
        )
        del batch[name]
    assert spec.loss is None and spec.train_op is None and spec.eval_metrics is None


def test_training_takes_the_steps_of_create_optimizer(tokenizer, golden_config):
    batch = cola_batch(tokenizer, "train")
    model_fn = golden_model_fn(golden_config)
    plain = load_golden(classifier_model(golden_config, 2))
    inputs = {name: batch[name] for name in ("input_ids", "input_mask", "segment_ids")}
    steps = itertools.count()

    def loss():
        with modeling.dropout_seed(tf.constant([0, next(steps)])):
            logits = plain(inputs, training=True)["logits"]
        losses = keras.losses.sparse_categorical_crossentropy(
            batch["label_ids"], logits, from_logits=True
        )
        return tf.reduce_mean(losses)

    expected_op = optimization.create_optimizer(loss, 1e-3, 6, 2)
    for _ in range(4):
        spec = model_fn(batch, None, "train", {})
        assert spec.loss is None and spec.predictions is None
        assert spec.train_op() == pytest.approx(float(expected_op()), abs=1e-5)
    assert model_fn.trainer.step == 4
    for one, other in zip(model_fn.model.weights, plain.weights, strict=True):
        assert one.path == other.path
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-5)


def test_labels_may_come_apart_from_features(tokenizer, golden_config):
    batch = cola_batch(tokenizer, "dev")
    model_fn = golden_model_fn(golden_config)
    together = float(model_fn(batch, None, "eval").loss)
    labels = batch.pop("label_ids")
    assert float(model_fn(batch, labels, "eval").loss) == together
    with pytest.raises(ValueError, match=r"must have `label_ids`, or `labels` be given"):
        model_fn(batch, None, "train")


@pytest.mark.parametrize(
    ("mode", "changes", "message"),
    [
        ("predict", {}, r"`mode` must be one of \['train', 'eval', 'infer'\]. Received 'predict'"),
        ("infer", {"input_mask": None}, r"`features` must have \['input_mask'\]"),
        ("eval", {"label_ids": [0, 2]}, r"less than `num_labels`, 2. Received \[0, 2\]"),
        ("train", {"label_ids": [-1, 0]}, r"integers from 0, .* Received \[-1, 0\]"),
        ("train", {"label_ids": [0.5, 0]}, r"integers from 0, .* Received \[0\.5, 0\.0\]"),
        ("train", {"is_real_example": [0, 0]}, "must have a real example. Received padding"),
        ("train", {}, "`num_train_steps` must be given to train. Received None"),
    ],
)
def test_bad_batches_are_refused(golden_config, mode, changes, message):
    model_fn = golden_model_fn(golden_config, num_train_steps=None)
    ids = np.ones((2, 5), int)
    batch = {"input_ids": ids, "input_mask": ids, "segment_ids": ids * 0, "label_ids": [0, 1]}
    batch = {name: each for name, each in {**batch, **changes}.items() if each is not None}
    with pytest.raises(ValueError, match=message):
        model_fn(batch, None, mode)


@pytest.mark.usefixtures("eager")
def test_training_that_diverges_says_so(golden_config):
    model_fn = golden_model_fn(golden_config)
    model_fn.model.get_layer("classifier").output_bias.assign([np.inf, 0])
    ids = np.ones((2, 5), int)
    batch = {"input_ids": ids, "input_mask": ids, "segment_ids": ids * 0, "label_ids": [0, 1]}
    with pytest.raises(NonFiniteLossError, match="At step 1"):
        model_fn(batch, None, "train").train_op()


def test_checkpoint_of_another_model_is_refused_at_once(golden_config):
    config = change(golden_config, num_hidden_layers=3)
    with pytest.raises(ValueError, match="init_checkpoint` must hold the whole encoder"):
        golden_model_fn(config)


class Grades(run_classifier.MrpcProcessor):
    def get_labels(self):
        return ["worse", "same", "better"]


def test_a_subclass_of_a_processor_may_define_its_labels(tmp_path):
    header = "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n"
    for name, label in (("train", "same"), ("dev", "better"), ("test", "0")):
        (tmp_path / f"{name}.tsv").write_text(f"{header}{label}\t1\t2\tthe old\tthe man\n")
    processor = Grades()
    examples = [*processor.get_train_examples(tmp_path), *processor.get_dev_examples(tmp_path)]
    examples += processor.get_test_examples(tmp_path)
    assert [example.label for example in examples] == ["same", "better", "worse"]
    tokenizer = tokenization.FullTokenizer(str(GOLDEN / "vocab.txt"))
    features = run_classifier.convert_examples_to_features(
        examples, processor.get_labels(), 16, tokenizer
    )
    assert [each.label_id for each in features] == [1, 2, 0]
    # Those of the task stay as they are.
    with pytest.raises(ValueError, match="Received 'same'"):
        run_classifier.MrpcProcessor().get_train_examples(tmp_path)


class Upper(run_classifier.MrpcProcessor):
    """As users of the original change one of its steps."""

    def _create_examples(self, lines, set_type):
        return [
            InputExample(f"{set_type}-{i}", line[0].upper(), None, line[1])
            for i, line in enumerate(lines)
        ]


class Quoted(run_classifier.MnliProcessor):
    @classmethod
    def _read_tsv(cls, input_file, quotechar=None):
        return super()._read_tsv(input_file, quotechar='"')


def test_a_subclass_of_a_processor_may_override_its_steps(tmp_path):
    for split in ("train", "dev", "test"):
        write_rows(tmp_path / f"{split}.tsv", [[f"{split} a", "0"], ["b", "1"]])
    assert read_all(Upper(), tmp_path) == [
        [
            InputExample(f"{name}-0", f"{name} A".upper(), None, "0"),
            InputExample(f"{name}-1", "B", None, "1"),
        ]
        for name in ("train", "dev", "test")
    ]
    header, row = [f"column {n}" for n in range(12)], ["31", *"1234567", '"a\tb"', "b", "x"]
    write_rows(tmp_path / "dev_matched.tsv", [header, [*row, "neutral"]])
    assert Quoted().get_dev_examples(str(tmp_path)) == [
        InputExample("dev_matched-31", "a\tb", "b", "neutral")
    ]


def test_rows_of_other_files_are_made_examples_as_in_the_original():
    processor = run_classifier.MrpcProcessor()
    lines = [["Quality", "", "", "", ""], ["1", "2", "3", "a", "b"]]
    for set_type, label in (("train", "1"), ("extra", "1"), ("test", "0")):
        made = processor._create_examples(lines, set_type)
        assert made == [InputExample(f"{set_type}-1", "a", "b", label)]
    with pytest.raises(ValueError, match=r"lines:2: the label, in column 0.*Received '2'"):
        processor._create_examples([lines[0], ["2", *lines[1][1:]]], "train")


def test_features_of_older_code_are_all_real():
    class Features:
        input_ids, input_mask, segment_ids, label_id = [1, 2], [1, 1], [0, 0], 1

    input_fn = run_classifier.input_fn_builder([Features()], 2, False, False)
    (batch,) = input_fn({"batch_size": 1})
    assert batch["is_real_example"].numpy().tolist() == [1]


def test_processors_may_know_their_labels_when_they_have_read(tmp_path):
    class Found(run_classifier.ColaProcessor):
        labels = ()

        def get_labels(self):
            return list(self.labels)

        def _create_examples(self, lines, set_type):
            self.labels = sorted({line[1] for line in lines})
            return [
                run_classifier.InputExample(f"{set_type}-{i}", line[3], None, line[1])
                for i, line in enumerate(lines)
            ]

    (tmp_path / "train.tsv").write_text("a\tx\t\tone\na\ty\t\ttwo\n")
    processor = Found()
    examples = processor.get_train_examples(str(tmp_path))
    assert [(each.text_a, each.label) for each in examples] == [("one", "x"), ("two", "y")]
    assert processor.get_labels() == ["x", "y"]

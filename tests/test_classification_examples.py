import json

import numpy as np
import pytest
from conftest import GOLDEN
from hypothesis import given
from hypothesis import strategies as st

import tokenization
from bert.files import display
from bert.tasks.classification import examples as glue
from bert.tasks.classification import inputs as classification_inputs
from bert.tasks.classification.decisions import decode
from bert.tasks.classification.examples import (
    METRICS,
    ClassificationTask,
    InputExample,
)
from bert.tasks.classification.inputs import make_features
from bert.tasks.classification.results import (
    balanced_weights,
    baseline,
    describe_baseline,
    score,
    write_predictions,
    write_submission,
    write_test_results,
)

VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "b", "c", "##c", "d"]
CLS, SEP = 2, 3


@pytest.fixture
def tokenizer():
    return tokenization.FullTokenizer.from_vocab(
        {token: number for number, token in enumerate(VOCABULARY)}
    )


def make_task(task_type="classification", labels=("0", "1"), **values):
    if task_type == "regression":
        labels = ()
    metrics = {"classification": "accuracy", "multi_label": "micro_f1", "regression": "pearson"}
    values = {"name": "x", "is_pair": False, "metric": metrics[task_type], **values}
    return ClassificationTask(task_type=task_type, labels=tuple(labels), **values)


@pytest.mark.parametrize("task_type", METRICS)
def test_a_task_survives_json(task_type):
    task = make_task(task_type, ("b", "a"), is_pair=True)
    assert ClassificationTask.from_dict(json.loads(json.dumps(task.to_dict()))) == task
    assert task.num_outputs == (1 if task_type == "regression" else 2)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"task_type": "ranking"}, "`task_type` must be one of .* Received 'ranking'"),
        ({"metric": "loss"}, "`metric` must be one of .*'f1'.* Received 'loss'"),
        ({"labels": ["a"]}, r"`labels` must be at least 2 .* Received \['a'\]"),
        ({"labels": ["a", "a"]}, r"each once. Received .* with \['a'\] more than once"),
        ({"labels": ["a", 1]}, r"must be strings. Received \['a', 1\]"),
        ({"labels": "ab"}, "`labels` of a task must be list. Received 'ab'"),
        ({"is_pair": 1}, "`is_pair` of a task must be bool. Received 1"),
        ({"more": 1}, "must have the keys .* Received .*'more'"),
        ({"task_type": "regression", "metric": "pearson"}, "must be empty for regression"),
    ],
)
def test_an_inconsistent_task_is_refused(changes, message):
    values = {**make_task().to_dict(), **changes}
    with pytest.raises(ValueError, match=message):
        ClassificationTask.from_dict(values)


def test_features_are_those_of_figure_2(tokenizer):
    examples = [
        InputExample("1", "A b, cc", None, "1"),
        InputExample("2", "a", "b d", "0"),
        InputExample("3", "a a a a a", "b b b", None),
        InputExample("4", "a", "", "1"),
        InputExample("5", "a b c d a b c d", None, "0"),
    ]
    features = make_features(examples, make_task(), tokenizer, 8)
    a, b, c, d = (VOCABULARY.index(token) for token in "abcd")
    expected = [
        [CLS, a, b, 1, c, VOCABULARY.index("##c"), SEP, 0],
        [CLS, a, SEP, b, d, SEP, 0, 0],
        # The longer text gives way, then the second: 3 and 2 of 5 and 3.
        [CLS, a, a, a, SEP, b, b, SEP],
        # Faithful: an empty second text has no separator.
        [CLS, a, SEP, 0, 0, 0, 0, 0],
        [CLS, a, b, c, d, a, b, SEP],
    ]
    assert features["input_ids"].tolist() == expected
    lengths = [7, 6, 8, 3, 8]
    assert features["input_mask"].tolist() == [[1] * n + [0] * (8 - n) for n in lengths]
    seconds = {1: range(3, 6), 2: range(5, 8)}
    assert features["segment_ids"].tolist() == [
        [int(place in seconds.get(row, ())) for place in range(8)] for row in range(5)
    ]
    assert features["label_ids"].tolist() == [[1], [0], [0], [1], [0]]
    assert features["is_real_example"].tolist() == [[1]] * 5
    assert {array.dtype for array in features.values()} == {np.dtype(np.int32)}


@given(
    st.lists(
        st.tuples(st.text("abcd ", max_size=20), st.none() | st.text("abd ", max_size=20)),
        max_size=9,
    ),
    st.integers(5, 12),
)
def test_features_equal_what_pack_makes_of_tokens(texts, max_seq_length):
    tokenizer = tokenization.FullTokenizer.from_vocab(
        {token: number for number, token in enumerate(VOCABULARY)}
    )
    examples = [InputExample(str(i), a, b, "0") for i, (a, b) in enumerate(texts)]
    task = make_task(is_pair=True)
    features = make_features(examples, task, tokenizer, max_seq_length)
    assert features["input_ids"].shape == (len(texts), max_seq_length)
    for row, (a, b) in enumerate(texts):
        tokens, segment_ids = tokenization.pack(
            tokenizer.tokenize(a), tokenizer.tokenize(b or ""), max_length=max_seq_length
        )
        ids = tokenizer.convert_tokens_to_ids(tokens)
        padding = [0] * (max_seq_length - len(ids))
        assert features["input_ids"][row].tolist() == ids + padding
        assert features["segment_ids"][row].tolist() == segment_ids + padding
        assert features["input_mask"][row].tolist() == [1] * len(ids) + padding


def test_many_examples_are_made_in_lots(tokenizer, monkeypatch, log):
    examples = [InputExample(str(i), "a b c d"[: i % 8], None, "01"[i % 2]) for i in range(25)]
    expected = make_features(examples, make_task(), tokenizer, 6)
    log.clear()
    monkeypatch.setattr(classification_inputs, "_FEATURES_AT_ONCE", 10)
    monkeypatch.setattr(display, "_SECONDS_BETWEEN_LINES", 0)
    features = make_features(examples, make_task(), tokenizer, 6)
    for name, values in expected.items():
        np.testing.assert_array_equal(features[name], values)
    lines = [message for message in log.messages if message.startswith("Tokenizing")]
    assert [line.split("  ")[0] for line in lines] == ["Tokenizing: 40 %", "Tokenizing: 80 %"]


def test_unusual_texts_are_logged_once_with_their_count(tokenizer, log):
    # The last one just fits.
    texts = ["a b c", "", "a b c d a", "x y a", "x a", " \t", "a b c d a b", "a b c d"]
    examples = [InputExample(f"dev-{i}", text, None, "0") for i, text in enumerate(texts)]
    make_features(examples, make_task(), tokenizer, 6)
    assert log.messages == [
        "2 of 8 examples were longer than 6 tokens and were cut at their ends. A larger "
        "`max_seq_length` keeps more of them, up to what the model takes, often 512; "
        "docs/classification.md has more under Long texts.",
        "2 texts of 8 examples, such as 'dev-1', have no token",
        "1 texts of 8 examples, such as 'dev-3', are mostly [UNK]: is this the right vocabulary?",
    ]


@pytest.mark.parametrize(("num_long", "level"), [(1, "INFO"), (2, "WARNING")])
def test_many_texts_that_are_cut_are_warned_of(tokenizer, log, num_long, level):
    texts = ["a b c d"] * num_long + ["a"] * (20 - num_long)
    examples = [InputExample("1", text, None, "0") for text in texts]
    make_features(examples, make_task(), tokenizer, 4)
    [record] = log.records
    assert record.levelname == level
    assert ("`max_seq_length`" in record.getMessage()) == (level == "WARNING")


@pytest.mark.parametrize("is_added", [False, True])
def test_vocabulary_entries_in_texts_are_warned_of_if_they_are_split(log, is_added):
    vocab = {token: number for number, token in enumerate([*VOCABULARY, "[", "]", "sep"])}
    added = [tokenization.AddedToken("[SEP]")] if is_added else []
    tokenizer = tokenization.FullTokenizer.from_vocab(vocab, added_tokens=added)
    # No entry, and what the separator of a second text is.
    texts = ["a [SEP] b", "[a]", "a [ SEP ] b"]
    examples = [InputExample(f"dev-{i}", text, "a", "0") for i, text in enumerate(texts)]
    features = make_features(examples, make_task(is_pair=True), tokenizer, 20)
    counts = (features["input_ids"] == SEP).sum(axis=1).tolist()
    assert counts == [3 if is_added else 2, 2, 2]
    told = [each for each in log.messages if "split into pieces" in each]
    begins = "1 texts of 3 examples, such as 'dev-0', contain [SEP], which the vocabulary has"
    assert [each[: len(begins)] for each in told] == [begins] * (not is_added)


def test_label_ids_have_the_form_of_the_task(tokenizer):
    def label_ids(task, *labels):
        examples = [InputExample("1", "a", None, label) for label in labels]
        return make_features(examples, task, tokenizer, 4)["label_ids"]

    ids = label_ids(make_task("multi_label", "abc"), ("c", "a"), (), None, ["b"])
    assert ids.dtype == np.int32 and ids.tolist() == [[1, 0, 1], [0, 0, 0], [0, 0, 0], [0, 1, 0]]
    ids = label_ids(make_task("regression"), 2.5, None, 3)
    assert ids.dtype == np.float32 and ids.tolist() == [[2.5], [0], [3]]
    assert label_ids(make_task(labels="bca"), "a", None, "b").tolist() == [[2], [0], [0]]
    assert label_ids(make_task("regression")).shape == (0, 1)
    assert label_ids(make_task("multi_label", "abc")).shape == (0, 3)


def test_a_length_without_room_for_tokens_is_refused(tokenizer):
    for is_pair, least in ((False, 3), (True, 5)):
        task = make_task(is_pair=is_pair)
        make_features([InputExample("1", "a", "b", "0")], task, tokenizer, 5)
        with pytest.raises(ValueError, match=rf"`max_seq_length` must be at least {least}, .*"):
            make_features([], task, tokenizer, least - 1)


def test_scores_are_those_of_the_task():
    logits = np.array([[2.0, 0.0], [0.0, 1.0], [3.0, 0.0]], np.float32)
    label_ids = np.array([[0], [1], [1]], np.int32)
    result = score(make_task(), logits, label_ids)
    losses = [np.log1p(np.exp(-2.0)), np.log1p(np.exp(-1.0)), np.log1p(np.exp(3.0))]
    assert result["loss"] == pytest.approx(np.mean(losses))
    assert result["confusion_matrix"] == [[1, 0], [1, 1]]
    # Of `label_ids` as of `[B]`.
    assert score(make_task(), logits, label_ids[:, 0]) == result
    result = score(make_task("multi_label", "ab"), logits, np.eye(3)[:, :2])
    assert result["confusion_matrices"]["b"] == [[2, 0], [0, 1]]
    result = score(make_task("regression"), logits[:, :1], label_ids)
    assert result["mse"] == pytest.approx((4 + 1 + 4) / 3)


@pytest.mark.parametrize("task_type", METRICS)
def test_scores_are_fit_for_json_and_hold_the_metrics(task_type):
    rng = np.random.default_rng(0)
    task = make_task(task_type, "abc")
    width = 3 if task_type == "multi_label" else 1
    label_ids = rng.integers(0, 2, (5, width))
    logits = rng.normal(size=(5, task.num_outputs)).astype(np.float32)
    result = score(task, logits, label_ids)
    assert json.loads(json.dumps(result)) == result
    assert result.keys() >= {"loss", *METRICS[task_type]}


def test_examples_are_counted_in_whole_numbers_where_no_answer_is_right():
    scores = score(make_task(), np.eye(2)[[1] * 3], np.array([0] * 3))
    assert [str(row["support"]) for row in scores["per_class"].values()] == ["3", "0"]
    wrong = np.array([[-1.0, -1.0]])
    scores = score(make_task("multi_label"), wrong, np.array([[1, 0]]))
    assert [str(row["support"]) for row in scores["per_class"].values()] == ["1", "0"]


def test_the_baseline_is_described_with_its_metric():
    label_ids = np.array([0] * 6 + [1] * 4)
    for metric, told in [
        ("f1", "Always answering '1' would reach f1 0.5714, accuracy 0.4000."),
        (
            "accuracy",
            # sqrt(8/14 * 6/14 / 14), twice.
            "Always giving the same answer would reach accuracy 0.6000. On 10 examples, an "
            "accuracy is uncertain by 0.26 (two standard errors).",
        ),
    ]:
        task = make_task(metric=metric)
        scores = score(task, np.eye(2)[[0] * 10], label_ids)
        scores["baseline"] = baseline(task, label_ids)
        assert describe_baseline(task, scores) == told
    task = make_task("regression")
    scores = score(task, np.random.rand(4, 1), np.array([[2.0], [1.0], [3.0], [4.0]]))
    told = (
        "Always answering the mean would reach pearson 0.0000, mse 1.2500, mae 1.0000, r2 0.0000."
    )
    assert describe_baseline(task, {**scores, "baseline": 0.0}) == told


def test_the_baseline_is_the_best_constant_answer():
    labels = np.array([[0]] * 6 + [[1]] * 4)
    assert baseline(make_task(), labels) == pytest.approx(0.6)
    assert baseline(make_task(metric="matthews"), labels) == 0
    # Always the rarer label: precision 0.4, recall 1.
    assert baseline(make_task(metric="f1"), labels) == pytest.approx(4 / 7)
    assert baseline(make_task("regression"), labels) == 0
    many = np.repeat(np.arange(10), np.arange(10))[:, None]
    assert baseline(make_task(labels="abcdefghij"), many) == pytest.approx(9 / 45)
    several = np.array([[1, 0, 0], [1, 1, 0], [1, 1, 0], [0, 0, 1]])
    task = make_task("multi_label", "abc")
    # The first two labels always: 5 right, 3 too many, 1 missed.
    assert baseline(task, several) == pytest.approx(10 / 14)
    # Wherever these labels are among all.
    assert baseline(task, several[:, [1, 2, 0]]) == pytest.approx(10 / 14)


def test_balanced_weights_let_all_labels_count_alike():
    weights = balanced_weights(make_task(labels="abc"), np.array([[0]] * 6 + [[2]] * 2))
    assert weights == pytest.approx([8 / (2 * 6), 0, 8 / (2 * 2)])


def test_decoding_names_labels_and_probabilities():
    logits = np.log(np.array([[1, 3], [4, 1]], np.float32))
    assert decode(make_task(labels="ab"), logits) == [
        {"label": "b", "probabilities": {"a": pytest.approx(0.25), "b": pytest.approx(0.75)}},
        {"label": "a", "probabilities": {"a": pytest.approx(0.8), "b": pytest.approx(0.2)}},
    ]
    # Each by itself: odds of 1 and 3, of 4 and 1; a half is not more than a half.
    assert decode(make_task("multi_label", "ab"), logits) == [
        {"labels": ["b"], "probabilities": {"a": 0.5, "b": pytest.approx(0.75)}},
        {"labels": ["a"], "probabilities": {"a": pytest.approx(0.8), "b": 0.5}},
    ]
    # Just above and just below a half.
    close = np.array([[1e-6, -1e-6], [-1e-6, 0.4]])
    assert [each["labels"] for each in decode(make_task("multi_label", "ab"), close)] == [
        *(["a"], ["b"])
    ]
    assert decode(make_task("regression"), np.array([[2.5], [-1]])) == [
        {"score": 2.5},
        {"score": -1},
    ]


def test_test_results_have_the_form_of_the_original(golden, tmp_path):
    name = "cola" if golden == GOLDEN else "mrpc"
    lines = (golden / f"classifier_{name}_test_results.tsv").read_text().splitlines()
    expected = np.array([line.split("\t") for line in lines], np.float32)
    path = str(tmp_path / "test_results.tsv")
    write_test_results(path, make_task(), np.log(expected))
    with open(path, encoding="utf-8") as file:
        written = file.read()
    cells = [line.split("\t") for line in written.splitlines()]
    # The original's probabilities do not sum to 1 exactly, and logits are rounded, too.
    np.testing.assert_allclose(np.array(cells, np.float32), expected, rtol=1e-6)
    # Digits are as many as float32 needs, in both files.
    for table in (cells, [line.split("\t") for line in lines]):
        assert table == [[str(np.float32(cell)) for cell in row] for row in table]
    assert written.endswith("\n") and written.count("\n") == len(lines)


def test_predictions_can_be_read_by_people(tmp_path):
    path = tmp_path / "predictions.tsv"
    logits = np.log(np.array([[1, 3], [4, 1]], np.float32))
    examples = [
        InputExample("dev-1", "a\tb\r\nc", "d\u2028e", "x"),
        InputExample("dev-2", "\N{SNOWMAN} \ud800", None, "y"),
    ]
    task = make_task(labels=("x", "y z"), is_pair=True)
    write_predictions(str(path), task, examples, logits)
    assert path.read_text(encoding="utf-8") == (
        "id\ttext_a\ttext_b\tpredicted_label\tprobability_x\tprobability_y z\tgold\n"
        "dev-1\ta b c\td e\ty z\t0.25\t0.75\tx\n"
        "dev-2\t\N{SNOWMAN} ?\t\tx\t0.8\t0.2\ty\n"
    )
    write_predictions(str(path), task, examples[1:], logits[1:])
    assert path.read_text(encoding="utf-8").startswith("id\ttext_a\ttext_b\tpredicted_label\t")


def test_predictions_of_several_labels_and_of_numbers(tmp_path):
    path = tmp_path / "predictions.tsv"
    # 1.2 is just above even odds.
    logits = np.log(np.array([[1, 1.2], [4, 4]], np.float32))
    examples = [InputExample("1", "a", None, ("x", "y")), InputExample("2", "b", None, ())]
    # Answers are in the order of the labels.
    task = make_task("multi_label", "yx")
    write_predictions(str(path), task, examples, logits)
    assert path.read_text() == (
        "id\ttext_a\tpredicted_labels\tprobability_y\tprobability_x\tgold\n"
        "1\ta\tx\t0.5\t0.54545456\tx,y\n"
        "2\tb\ty,x\t0.8\t0.8\t\n"
    )
    # Where some have a label, those that have none have an empty cell.
    write_predictions(str(path), task, [examples[0], InputExample("2", "b")], logits)
    assert [line.split("\t")[-1] for line in path.read_text().splitlines()] == ["gold", "x,y", ""]
    examples = [InputExample("1", "a"), InputExample("2", "b")]
    scores = np.array([[0.1], [-3]], np.float32)
    write_predictions(str(path), make_task("regression"), examples, scores)
    assert path.read_text() == "id\ttext_a\tpredicted_score\n1\ta\t0.1\n2\tb\t-3.0\n"


def test_submissions_have_the_form_of_glue(tmp_path):
    path = tmp_path / "RTE.tsv"
    task = glue.open_data_set("rte", "nowhere").task
    write_submission(str(path), task, np.array([[1.0, 2], [2, 1]]))
    assert path.read_text() == "index\tprediction\n0\tnot_entailment\n1\tentailment\n"
    task = glue.open_data_set("sts-b", "nowhere").task
    scores = np.array([[5.5], [-0.25], [1.23456]])
    write_submission(str(path), task, scores)
    assert path.read_text() == "index\tprediction\n0\t5.000\n1\t0.000\n2\t1.235\n"

import csv
import json

import numpy as np
import pytest
from conftest import ROOT

import tokenization
from bert.tasks.swag import examples as swag_examples

SAMPLE = ROOT.parent / "shared" / "data" / "swag" / "sample.jsonl"

# The columns of the official files, the first of which has no name.
HEADER = ["", "video-id", "fold-ind", "startphrase", "sent1", "sent2", "gold-source"]
HEADER += ["ending0", "ending1", "ending2", "ending3", "label"]

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "c", "d", "e"]
TOKENIZER = tokenization.FullTokenizer.from_vocab({word: i for i, word in enumerate(WORDS)})


def write_csv(path, rows, header=HEADER):
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        writer.writerows(rows)
    return str(path)


def write_json(path, *rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def official(number, label=2, **changes):
    row = dict(zip(HEADER, [number, "v", "1", "A He", "A", "He", "gold"], strict=False))
    row |= {f"ending{choice}": f"goes {choice}" for choice in range(4)} | {"label": label}
    return list((row | changes).values())


def test_the_official_columns_are_read(tmp_path):
    rows = [official(7), official(9, label=0, sent1='He said, "no".', ending1="x,\ny")]
    first, second = swag_examples.read(write_csv(tmp_path / "train.csv", rows))
    endings = ["He goes 0", "He goes 1", "He goes 2", "He goes 3"]
    assert first == swag_examples.Example("7", "A", endings, 2)
    assert second.context == 'He said, "no".'
    assert second.endings[1] == "He x,\ny"
    assert (second.id, second.label) == ("9", 0)


def test_json_lines_may_have_the_same_keys_or_their_own(tmp_path):
    rows = [
        {
            **{"sent1": "A", "sent2": "He", "ending0": "x", "ending1": "y", "ending2": "z"},
            **{"label": "2", "ending-source": "gold", "ending01": "w"},
        },
        {"context": "B", "endings": ["x", " y"], "label": 1, "id": "q"},
        {"context": "C", "endings": ["x", "y"], "label": 0, "id": None},
        {"context": "D", "endings": ["x", "y"], "label": 0, "id": ""},
        {"context": "E", "endings": ["x", "y"], "label": 0, "id": 0},
    ]
    assert swag_examples.read(write_json(tmp_path / "x.jsonl", *rows)) == [
        swag_examples.Example("0", "A", ["He x", "He y", "He z"], 2),
        swag_examples.Example("q", "B", ["x", "y"], 1),
        swag_examples.Example("2", "C", ["x", "y"], 0),
        swag_examples.Example("3", "D", ["x", "y"], 0),
        swag_examples.Example("0", "E", ["x", "y"], 0),
    ]


def test_both_formats_hold_the_same(tmp_path):
    names = ["sent1", "sent2", "ending0", "ending1", "label"]
    rows = [["A", "He", "x", "y", 1], ["B", "", "z", "x", 0]]
    from_csv = swag_examples.read(write_csv(tmp_path / "x.csv", rows, names))
    objects = [dict(zip(names, row, strict=True)) for row in rows]
    assert from_csv == swag_examples.read(write_json(tmp_path / "x.jsonl", *objects))


def test_labels_may_be_absent_where_they_are_not_needed(tmp_path):
    rows = [official(1)[:-1]]
    path = write_csv(tmp_path / "test.csv", rows, HEADER[:-1])
    assert swag_examples.read(path, with_labels=False)[0].label is None
    path = write_csv(tmp_path / "test.csv", [official(1, ""), official(2, 3)])
    assert [each.label for each in swag_examples.read(path, with_labels=False)] == [None, 3]
    # Hidden labels are -1 or NaN, and pandas writes whole numbers beside blanks as 1.0.
    found = [*(-1, "-1.0", "NaN", " "), *(1.0, "3.0")]
    path = write_csv(tmp_path / "test.csv", [official(1, label) for label in found])
    expected = [None, None, None, None, 1, 3]
    assert [each.label for each in swag_examples.read(path, with_labels=False)] == expected
    example = {"context": "A", "endings": ["x", "y"]}
    rows = [{**example, "label": label} for label in (-1, float("nan"), -1.0, None, 1.0, "0")]
    path = write_json(tmp_path / "test.jsonl", *rows)
    expected = [None, None, None, None, 1, 0]
    assert [each.label for each in swag_examples.read(path, with_labels=False)] == expected


@pytest.mark.parametrize("label", [4, -2, 1.5, "right", True, float("inf"), [1]])
def test_labels_that_are_not_needed_must_be_those_of_endings(tmp_path, label):
    path = write_json(
        tmp_path / "test.jsonl", {"context": "A", "endings": ["x"] * 4, "label": label}
    )
    with pytest.raises(ValueError, match=r"test.jsonl:1: the label must be .* from 0 to 3\. Rec"):
        swag_examples.read(path, with_labels=False)


def test_inputs_may_have_labels_of_any_form():
    fields = {"sent1": "A", "sent2": "He", "ending0": "x", "ending1": "y"}
    for label in ("B", 2, None):
        assert swag_examples.derive("x.jsonl:1", {**fields, "label": label}) == {
            "context": "A",
            "endings": ["He x", "He y"],
        }


@pytest.mark.parametrize("name", ["sent1", "sent2", "ending0", "ending3", "label", "id"])
def test_a_column_in_use_is_in_the_header_once(tmp_path, name):
    path = write_csv(tmp_path / "test.csv", [[*official(1), "x", "y"]], [*HEADER, name, "id"])
    with pytest.raises(ValueError, match=rf"csv:1: the header must have '{name}' once"):
        swag_examples.read(path, with_labels=False)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"label": 4}, r"x.csv:3: the label must be .* from 0 to 3. Received '4'"),
        ({"label": -1}, r"x.csv:3: the label .*Received '-1'"),
        ({"label": "right"}, r"x.csv:3: the label .*Received 'right'"),
        ({"label": ""}, r"x.csv:3: must have a `label`. Received ''"),
        ({"ending2": " "}, r"x.csv:3: every ending must have text. Received ' ' as ending 2 of 4"),
    ],
)
def test_errors_in_a_table_name_the_line(tmp_path, changes, message):
    path = write_csv(tmp_path / "x.csv", [official(1), official(2, **changes)])
    with pytest.raises(ValueError, match=message):
        swag_examples.read(path)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"context": "A", "endings": ["x"], "label": 0}, r"must have at least two endings"),
        ({"context": "A", "endings": [], "label": 0}, r"must have at least two endings"),
        ({"context": "A", "label": 0}, r"must have at least two endings"),
        ({"context": "A", "endings": "xy", "label": 0}, r"`endings` must be a list.*'xy'"),
        ({"context": "A", "endings": ["x", ""], "label": 0}, r"Received '' as ending 1 of 2"),
        ({"context": "A", "endings": ["x", None], "label": 0}, r"Received None as ending 1 of 2"),
        ({"endings": ["x", "y"], "label": 0}, r"must have text as `context` or `sent1`"),
        ({"context": "A", "endings": ["x", "y"]}, r"must have a `label`. Received None"),
        ({"context": "A", "endings": ["x", "y"], "label": 2}, r"from 0 to 1. Received 2"),
        ({"context": "A", "endings": ["x", "y"], "label": 1.0}, r"from 0 to 1. Received 1.0"),
        ({"context": "A", "endings": ["x", "y"], "label": True}, r"Received True"),
        (
            {"sent1": "A", "ending0": "x", "ending1": "y", "ending3": "z", "label": 0},
            r"Received None as ending 2 of 3",
        ),
        ({"sent1": "A", "sent2": 1, "endings": ["x", "y"], "label": 0}, r"`sent2` must be text"),
    ],
)
def test_errors_in_json_lines_name_the_line(tmp_path, row, message):
    good = {"context": "A", "endings": ["x", "y"], "label": 0}
    path = write_json(tmp_path / "x.jsonl", good, row)
    with pytest.raises(ValueError, match=rf"x.jsonl:2: .*{message}"):
        swag_examples.read(path)


def test_columns_that_are_missing_are_an_error(tmp_path):
    for missing in ("sent1", "ending1", "label"):
        header = [name for name in HEADER if name != missing]
        with pytest.raises(ValueError, match=r"x.csv:1: the header must name sent1.*Received"):
            swag_examples.read(write_csv(tmp_path / "x.csv", [official(1)[:-1]], header))
    with pytest.raises(ValueError, match=r"x.csv:2: has 11 columns, but the first line has 12"):
        swag_examples.read(write_csv(tmp_path / "x.csv", [official(1)[:-1]]))
    # A comma in an unquoted text would move all texts behind it.
    with pytest.raises(ValueError, match=r"x.csv:2: has 13 columns.* within quotes"):
        swag_examples.read(write_csv(tmp_path / "x.csv", [[*official(1), "x"]]))
    with pytest.raises(ValueError, match=r"x.csv' must hold examples"):
        swag_examples.read(write_csv(tmp_path / "x.csv", []))


EXAMPLES = [
    swag_examples.Example("0", "a b", ["c", "d e"], 1),
    swag_examples.Example("1", "a b c d e a", ["c", "d e c", "e"], 2),
]


def test_each_choice_is_a_pair_of_context_and_ending():
    features = swag_examples.make_features(EXAMPLES, TOKENIZER, 9)
    texts = [
        [" ".join(WORDS[index] for index in ids[mask > 0]) for ids, mask in zip(*each, strict=True)]
        for each in zip(features["input_ids"], features["input_mask"], strict=True)
    ]
    assert texts == [
        ["[CLS] a b [SEP] c [SEP]", "[CLS] a b [SEP] d e [SEP]", ""],
        # The longer of the two is cut.
        [
            "[CLS] a b c d e [SEP] c [SEP]",
            "[CLS] a b c [SEP] d e c [SEP]",
            "[CLS] a b c d e [SEP] e [SEP]",
        ],
    ]
    assert features["segment_ids"][0, 1].tolist() == [0, 0, 0, 0, 1, 1, 1, 0, 0]
    assert features["choice_mask"].tolist() == [[1, 1, 0], [1, 1, 1]]
    assert features["label_ids"].tolist() == [[1], [2]]


def test_truncated_and_equal_choices_are_counted(log):
    swag_examples.make_features(EXAMPLES, TOKENIZER, 9)
    assert "1 of 2 examples were longer than 9 tokens" in log.messages[0]
    assert "0 of them in an ending" in log.messages[0]
    alike = swag_examples.Example("0", "a", ["b c d", "b c e", "e"], 0)
    log.clear()
    swag_examples.make_features([alike], TOKENIZER, 6)
    assert "1 of them in an ending" in log.messages[0]
    assert "1 of 1 examples have choices that are the same to the model" in log.messages[1]


# The choice that the first example does not have would be the likeliest.
LOGITS = np.array([[1.0, 2.0, 9.0], [1.0, 3.0, 2.0]])


def test_a_choice_that_is_not_there_has_no_probability():
    features = swag_examples.make_features(EXAMPLES, TOKENIZER, 9)
    chances = swag_examples.probabilities(features, LOGITS)
    np.testing.assert_allclose(chances.sum(axis=1), 1)
    assert chances[0, 2] == 0
    assert chances[0, 1] == pytest.approx(1 / (1 + np.exp(-1)))
    decoded = swag_examples.decode(EXAMPLES, features, LOGITS)
    assert [each["label"] for each in decoded] == [1, 1]
    assert [each["ending"] for each in decoded] == ["d e", "d e c"]
    assert decoded[0]["probabilities"] == chances[0, :2].tolist()


def test_scores_are_those_of_the_choices_that_are_there():
    features = swag_examples.make_features([*EXAMPLES, EXAMPLES[1]], TOKENIZER, 9)
    scores = swag_examples.score(features, np.concatenate([LOGITS, [[0.0, 0.0, 9.0]]]))
    losses = [
        np.log(1 + np.exp(-1)),
        np.log(1 + np.exp(-1) + np.exp(1)),
        np.log(1 + 2 * np.exp(-9)),
    ]
    assert scores == {
        "accuracy": pytest.approx(2 / 3),
        "loss": pytest.approx(np.mean(losses)),
        "baseline": pytest.approx(2 / 3),
    }


def test_predictions_are_a_table(tmp_path):
    features = swag_examples.make_features(EXAMPLES, TOKENIZER, 9)
    path = tmp_path / "predictions.tsv"
    swag_examples.write_predictions(str(path), EXAMPLES, features, LOGITS)
    header, *rows = (line.split("\t") for line in path.read_text().splitlines())
    assert header == [
        *("id", "predicted_label", "predicted_ending"),
        *("probability_0", "probability_1", "probability_2", "gold"),
    ]
    assert [(row[:3], row[-1]) for row in rows] == [
        (["0", "1", "d e"], "1"),
        (["1", "1", "d e c"], "2"),
    ]
    assert rows[0][5] == ""
    chances = swag_examples.probabilities(features, LOGITS)
    np.testing.assert_allclose([float(cell) for cell in rows[1][3:6]], chances[1])
    unlabelled = [swag_examples.Example("x\ty", "a", ["b\u2028c\x85d\x0be\n \ud800", "d"])]
    features = swag_examples.make_features(unlabelled, TOKENIZER, 9)
    swag_examples.write_predictions(str(path), unlabelled, features, np.array([[1.0, 0.0]]))
    header, row = (line.split("\t") for line in path.read_text().splitlines())
    assert "gold" not in header
    assert row[:3] == ["x y", "0", "b c d e  ?"]


def test_real_rows_are_read():
    if not SAMPLE.exists():
        pytest.skip(f"{SAMPLE} is not there.")
    examples = swag_examples.read(str(SAMPLE))
    assert len(examples) == 10
    assert {len(example.endings) for example in examples} == {4}
    assert examples[0].endings[1] == "A drum line has heard approaching them."
    assert [example.label for example in examples] == [0, 3, 1, 3, 0, 3, 0, 1, 3, 3]


def test_a_column_of_a_large_number_takes_no_time(tmp_path):
    """It used to stand for as many endings as its number says."""
    rows = [official(1)]
    path = write_csv(tmp_path / "train.csv", rows, [*HEADER[:-2], "ending999999999", "label"])
    with pytest.raises(ValueError, match=r":2: every ending must have text\. Received None"):
        swag_examples.read(path)
    row = {"context": "A", "ending0": "x", "ending1": "y", f"ending{'9' * 5000}": "z", "label": 0}
    with pytest.raises(ValueError, match=r":1: every ending must have text\. Received None"):
        swag_examples.read(write_json(tmp_path / "train.jsonl", row))


def test_a_label_of_many_digits_is_no_number_of_an_ending(tmp_path):
    row = {"context": "A", "endings": ["x", "y"], "label": "9" * 5000}
    with pytest.raises(ValueError, match=":1: the label must be the number of an ending"):
        swag_examples.read(write_json(tmp_path / "train.jsonl", row))
    row["label"] = "0" * 100 + "1"
    assert swag_examples.read(write_json(tmp_path / "train.jsonl", row))[0].label == 1

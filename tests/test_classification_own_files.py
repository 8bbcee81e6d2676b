import csv
import gzip
import json

import numpy as np
import pytest

from bert.tasks.classification.examples import InputExample
from bert.tasks.classification.options import ClassificationData
from bert.tasks.classification.own_files import CustomDataSet
from bert.tasks.split import DevSplit

ROWS = [("a b", "x"), ("c", "y"), ('"d", e', "x")]


def open_folder(folder, files, **options):
    """Writes the files; a list of rows becomes what the ending says, with a header."""
    for name, content in files.items():
        path = folder / name
        if isinstance(content, str):
            path.write_text(content, encoding="utf-8", newline="")
        elif name.endswith(".csv"):
            with path.open("w", newline="", encoding="utf-8") as file:
                csv.writer(file).writerows([("text", "label"), *content])
        elif name.endswith(".tsv"):
            path.write_text("".join("\t".join(row) + "\n" for row in [("text", "label"), *content]))
        else:
            path.write_text("".join(json.dumps(row) + "\n" for row in content))
    return CustomDataSet(ClassificationData(data_dir=str(folder), **options))


def open_files(*dev_split, train=None, dev=None, **options):
    """Returns the task in files that are given one by one."""
    return CustomDataSet(ClassificationData(train_file=train, dev_file=dev, **options), *dev_split)


@pytest.mark.parametrize("ending", ["tsv", "csv", "jsonl"])
def test_the_same_rows_give_the_same_examples_in_every_format(tmp_path, ending):
    rows = ROWS
    if ending == "jsonl":
        rows = [{"label": label, "text": text, "more": None} for text, label in ROWS]
    data_set = open_folder(tmp_path, {f"{split}.{ending}": rows for split in ("train", "dev")})
    data_set.check(["train", "dev"])
    assert data_set.task.to_dict() == {
        "name": "custom",
        "task_type": "classification",
        "labels": ["x", "y"],
        "is_pair": False,
        "metric": "accuracy",
    }
    expected = [("1", "a b", "x"), ("2", "c", "y"), ("3", '"d", e', "x")]
    assert data_set.read("train")[""] == [
        InputExample(f"train-{number}", text, None, label) for number, text, label in expected
    ]
    assert [example.text_a for example in data_set.read("dev")[""]] == [text for text, _ in ROWS]
    assert data_set.submission_names == {}


def test_gzip_byte_order_marks_line_ends_and_blank_lines_are_ignored(tmp_path):
    plain = open_folder(tmp_path, {"train.tsv": "text\tlabel\na\tx\nb\ty\n"}).read("train")[""]
    (tmp_path / "train.tsv").unlink()
    content = "\ufeffText \tlabel\r\n\r\na\tx \r\n\t\r\nb\ty".replace("Text ", " text ")
    (tmp_path / "train.tsv.gz").write_bytes(gzip.compress(content.encode()))
    assert open_folder(tmp_path, {}).read("train")[""] == plain


def test_examples_do_not_depend_on_the_separator(tmp_path):
    expected = open_folder(tmp_path, {"train.csv": [("a; b", "x"), ("c\n d", "y")]}).read("train")[
        ""
    ]
    (tmp_path / "train.csv").unlink()
    # As Excel writes it where numbers have a comma.
    excel = '\ufefftext;label\r\n"a; b";x\r\n"c\n d";y\r\n'
    for name in ("train.csv", "train.tsv"):
        assert open_folder(tmp_path, {name: excel}, separator=";").read("train")[""] == expected
        (tmp_path / name).unlink()
    tabs = 'text\tlabel\na; b\tx\n"c\n d"\ty\n'
    assert open_folder(tmp_path, {"train.csv": tabs}, separator="tab").read("train")[""] == expected
    # Quotes are text in a .tsv, whether tabs are spoken of or not.
    plain = open_folder(tmp_path, {"dev.tsv": 'text\tlabel\n"a"\tx\n'}, separator="tab")
    assert plain.read("dev")[""][0].text_a == '"a"'


def test_single_files_may_have_any_name(tmp_path):
    table = "text|label\na|x\nb|y\n"
    for name in ("one.txt", "other.csv"):
        (tmp_path / name).write_text(table)
    files = {"train": str(tmp_path / "one.txt"), "dev": str(tmp_path / "other.csv")}
    data_set = open_files(**files, separator="|")
    data_set.check(["train", "dev"])
    assert [each.text_a for each in data_set.read("train")[""]] == ["a", "b"]
    assert data_set.read("dev")[""][1].label == "y"
    assert data_set.columns == {
        "text_a_column": "text",
        "label_column": "label",
        "separator": "|",
    }
    (tmp_path / "A.CSV").write_text("text,label\na,x\nb,y\n")
    (tmp_path / "a.json").write_text('{"text": "a", "label": "y"}\n')
    others = {"train": str(tmp_path / "A.CSV"), "dev": str(tmp_path / "a.json")}
    data_set = open_files(**others)
    assert [each.label for each in [*data_set.read("train")[""], *data_set.read("dev")[""]]] == [
        "x",
        "y",
        "y",
    ]
    with pytest.raises(ValueError, match="unless `separator` says what separates its columns"):
        open_files(**files).check(["train"])
    with pytest.raises(ValueError, match="`data_dir` or `test_file` must be given"):
        data_set.check(["test"])
    missing = open_files(train=str(tmp_path / "no.csv"))
    with pytest.raises(
        ValueError,
        match=r"`train_file` must name a file\. Received .*no\.csv', which does not exist",
    ):
        missing.check(["train"])


def test_a_dev_set_is_split_off_the_training_file(tmp_path):
    rows = [{"text": f"t{i}", "label": "xy"[i % 4 == 0]} for i in range(40)]
    (tmp_path / "my.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    files = {"train": str(tmp_path / "my.jsonl")}
    data_set = open_files(DevSplit(0.2, 3), **files)
    data_set.check(["train", "dev"])
    dev, train = data_set.read("dev")[""], data_set.read("train")[""]
    assert sorted(example.text_a for example in [*dev, *train]) == sorted(r["text"] for r in rows)
    assert sorted(example.label for example in dev) == [*"xxxxxx", *"yy"]
    # Numbers are as high in the one part as in the other.
    scored = [{"text": f"t{i}", "label": i} for i in range(100)]
    (tmp_path / "my.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in scored))
    dev = open_files(DevSplit(0.1, 3), **files, task_type="regression").read("dev")[""]
    assert sorted(int(example.label) // 10 for example in dev) == list(range(10))
    # Tenths of few are smaller.
    (tmp_path / "my.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in scored[:40]))
    dev = open_files(DevSplit(0.5, 3), **files, task_type="regression").read("dev")[""]
    assert sorted(int(example.label) // 4 for example in dev) == sorted([*range(10)] * 2)


def test_a_rare_one_of_several_labels_has_its_share(tmp_path):
    rows = [{"text": f"t{i}", "label": ["a", "z"][: 1 + (i % 10 == 0)]} for i in range(100)]
    (tmp_path / "my.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    for seed in range(5):
        data_set = open_files(
            DevSplit(0.2, seed), train=str(tmp_path / "my.jsonl"), task_type="multi_label"
        )
        dev = data_set.read("dev")[""]
        assert sum("z" in example.label for example in dev) == 2


def test_a_file_may_have_many_labels_if_each_has_several_examples(tmp_path):
    rows = [(f"t{i}", f"label {i % 20:02}") for i in range(40)]
    assert len(open_folder(tmp_path, {"train.csv": rows}).task.labels) == 20


def test_parquet_gives_the_same_examples(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    rows = [{"label": label, "text": text, "day": None} for text, label in ROWS]
    expected = open_folder(tmp_path, {"train.jsonl": rows}).read("train")[""]
    (tmp_path / "train.jsonl").unlink()
    parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "train.parquet")
    assert open_folder(tmp_path, {}).read("train")[""] == expected
    (tmp_path / "train.parquet").write_bytes(b"PAR1")
    with pytest.raises(ValueError, match=r"train\.parquet' must be a complete Parquet file"):
        open_folder(tmp_path, {}).read("train")[""]


def test_columns_are_found_by_number_with_and_without_a_header(tmp_path):
    columns = {
        "text_a_column": "2",
        "text_b_column": "0",
        "label_column": "1",
        "id_column": "3",
    }
    expected = [InputExample("7", "a", "b", "x"), InputExample("8", "c", "d", "y")]
    rows = "b\tx\ta\t7\nd\ty\tc\t8\n"
    data_set = open_folder(tmp_path, {"train.tsv": rows}, **columns)
    assert data_set.read("train")[""] == expected
    assert data_set.task.is_pair
    with_header = {"train.tsv": "w\tz\tu\tv\n" + rows}
    assert (
        open_folder(tmp_path, with_header, has_header=True, **columns).read("train")[""] == expected
    )
    # Without a header, a label that is a number names no column.
    first = {"train.tsv": "1\tgood\n0\tbad\n"}
    numbers = {"text_a_column": "1", "label_column": "0"}
    read = open_folder(tmp_path, first, **numbers).read("train")[""]
    assert [(example.text_a, example.label) for example in read] == [("good", "1"), ("bad", "0")]
    # A name that is a number is a name first; and one name is enough for a header.
    with_numbers = {"train.tsv": "w\tz\t0\tv\n" + rows}
    found = open_folder(tmp_path, with_numbers, text_a_column="0", label_column="z").read("train")[
        ""
    ]
    assert found == [
        InputExample("train-1", "a", None, "x"),
        InputExample("train-2", "c", None, "y"),
    ]


def test_a_header_may_be_blank_or_named_as_a_label(tmp_path):
    rows = "a\tx\nb\ty\n"
    named = open_folder(tmp_path, {"train.tsv": f"text\tx\n{rows}"}, label_column="x")
    assert [each.label for each in named.read("train")[""]] == ["x", "y"]
    # In a task of several labels, a blank cell is one of no labels.
    numbers = {"text_a_column": "0", "label_column": "1", "has_header": True}
    blank = open_folder(
        tmp_path, {"train.tsv": f"text\t\n{rows}"}, task_type="multi_label", **numbers
    )
    assert [each.label for each in blank.read("train")[""]] == [("x",), ("y",)]


def test_columns_may_be_numbers_of_python(tmp_path):
    files = {"train.csv": "a,x\nb,y\n"}
    found = open_folder(tmp_path, files, text_a_column=0, label_column=1)
    texts = {"text_a_column": "0", "label_column": "1"}
    assert found.columns == texts
    examples = [InputExample("train-1", "a", None, "x"), InputExample("train-2", "b", None, "y")]
    assert found.read("train")[""] == examples
    data = ClassificationData(text_a_column=0, label_column=1)
    assert data.with_files() == ClassificationData(**texts)


@pytest.mark.parametrize(
    ("found", "labels"),
    [
        ("b a b", ("a", "b")),
        ("10 9 -1 10", ("-1", "9", "10")),
        ("10 9 x", ("10", "9", "x")),
        ("01 1", ("01", "1")),
        ("1 01", ("01", "1")),
        ("1.5 10.5 2.5", ("1.5", "10.5", "2.5")),
    ],
)
def test_labels_are_found_and_ordered(tmp_path, found, labels):
    rows = [("text", label) for label in found.split()]
    assert open_folder(tmp_path, {"train.csv": rows}).task.labels == labels


def test_given_labels_keep_their_order(tmp_path, log):
    data_set = open_folder(tmp_path, {"train.tsv": ROWS}, labels=" y, z,x")
    assert data_set.task.labels == ("y", "z", "x")
    assert data_set.read("train")[""][1].label == "y"
    assert log.messages == ["No training example has the labels ['z']."]
    # Those of a trained model may hold commas.
    data = ClassificationData(data_dir=str(tmp_path))
    assert CustomDataSet(data, labels=["x", "y,z", "y"]).task.labels == ("x", "y,z", "y")


def test_given_labels_may_be_numbers_of_python(tmp_path):
    rows = [("a", "1"), ("b", "0")]
    data_set = open_folder(tmp_path, {"train.csv": rows}, labels=[1, 0])
    assert data_set.task.labels == ("1", "0")
    assert [example.label for example in data_set.read("train")[""]] == ["1", "0"]
    rows = [{"text": "a", "label": True}, {"text": "b", "label": False}]
    data_set = open_folder(tmp_path, {"dev.jsonl": rows}, labels=[False, True])
    assert [example.label for example in data_set.read("dev")[""]] == ["true", "false"]


def test_numbers_and_truths_are_labels_in_json(tmp_path):
    rows = [{"text": "a", "label": label} for label in (1, True, "1", False, " b ")]
    data_set = open_folder(tmp_path, {"train.jsonl": rows})
    labels = ["1", "true", "1", "false", "b"]
    assert [example.label for example in data_set.read("train")[""]] == labels
    assert data_set.task.labels == ("1", "b", "false", "true")


@pytest.mark.parametrize(
    ("labels", "cells", "read"),
    [
        ("0,1", ["1.0", "0.0", "1"], ["1", "0", "1"]),
        ("0.0,1.0", ["1", "0.0"], ["1.0", "0.0"]),
        ("1,1.0,2", ["1.0", "1", "2.0"], ["1.0", "1", "2"]),
        ("v1,v1.0,01", ["v1.0", "01"], ["v1.0", "01"]),
    ],
)
def test_whole_numbers_may_be_written_as_pandas_does(tmp_path, labels, cells, read):
    """A column of whole numbers of which some are missing is a column of 1.0 to pandas."""
    rows = [{"text": "a", "label": cell} for cell in cells]
    table = "".join(["text,label\n", *(f"a,{cell}\n" for cell in cells)])
    data_set = open_folder(tmp_path, {"dev.csv": table, "test.jsonl": rows}, labels=labels)
    for split in ("dev", "test"):
        assert [example.label for example in data_set.read(split)[""]] == read


@pytest.mark.parametrize("cell", ["01", "1.5", "v2", "1.00"])
def test_other_labels_are_not_taken_for_one_that_is_known(tmp_path, cell):
    table = f"text,label\na,{cell}\n"
    with pytest.raises(ValueError, match=f"Received {cell!r}"):
        open_folder(tmp_path, {"dev.csv": table}, labels="1,v2.0").read("dev")


def test_test_files_need_no_labels(tmp_path, log):
    train = {"train.tsv": "text\tlabel\na\tx\nb\ty\n"}
    open_folder(tmp_path, {**train, "test.csv": "text\na\n"})
    data_set = open_folder(tmp_path, {})
    assert data_set.read("test") == {"": [InputExample("test-1", "a")]}
    (tmp_path / "test.csv").unlink()
    rows = [{"text": "a"}, {"text": "b", "label": "x"}, {"text": "c", "label": float("nan")}]
    data_set = open_folder(tmp_path, {"test.jsonl": rows})
    assert [example.label for example in data_set.read("test")[""]] == [None, "x", None]
    (tmp_path / "test.jsonl").unlink()
    assert "not among those of the task" not in log.text
    data_set = open_folder(tmp_path, {"test.tsv": "text\tlabel\na\t \nb\t?\nc\ty\n"})
    assert [example.label for example in data_set.read("test")[""]] == [None, None, "y"]
    assert log.messages[-1] == (
        f"{tmp_path}/test.tsv: 1 labels are not among those of the task and are left out; the "
        "first is '?' on line 3."
    )
    numbers = {"text_a_column": "0", "label_column": "1", "labels": "x,y"}
    data_set = open_folder(tmp_path, {"test.tsv": "a b\n"}, **numbers)
    data_set.check(["test"])
    assert data_set.read("test") == {"": [InputExample("test-1", "a b")]}
    # A blank line of texts alone is a blank text, whose answer has its place.
    data_set = open_folder(tmp_path, {"test.tsv": "text\na\n\nb\n"}, labels="x,y")
    assert [example.text_a for example in data_set.read("test")[""]] == ["a", "", "b"]


def test_several_labels_come_from_lists_and_from_cells(tmp_path):
    options = {"task_type": "multi_label"}
    labels = [("x", "y"), (), ("y",), ("z", "x")]
    files = {
        "train.csv": [(f"t{i}", ", ".join(each)) for i, each in enumerate(labels)],
        "dev.jsonl": [{"text": f"t{i}", "label": list(each)} for i, each in enumerate(labels)],
        "test.tsv": [(f"t{i}", " ,".join(each) + ",") for i, each in enumerate(labels)],
    }
    data_set = open_folder(tmp_path, files, **options)
    for examples in (
        data_set.read("train")[""],
        data_set.read("dev")[""],
        data_set.read("test")[""],
    ):
        assert [example.label for example in examples] == labels
    assert data_set.task.labels == ("x", "y", "z")
    assert data_set.task.metric == "micro_f1"
    files = {"train.csv": "text,label\na,b|c\n", "dev.jsonl": '{"text": "a", "label": "c|c"}\n'}
    data_set = open_folder(tmp_path, files, label_separator="|", **options)
    assert [data_set.read("train")[""][0].label, data_set.read("dev")[""][0].label] == [
        ("b", "c"),
        ("c",),
    ]


def test_a_column_of_blank_cells_is_no_gold_of_several_labels(tmp_path):
    options = {"task_type": "multi_label"}
    files = {"train.csv": [("a", "x"), ("b", "y")], "test.csv": [("a", ""), ("b", " ")]}
    data_set = open_folder(tmp_path, files, **options)
    assert [example.label for example in data_set.read("test")[""]] == [None, None]
    data_set = open_folder(tmp_path, {"test.csv": [("a", ""), ("b", "x")]}, **options)
    assert [example.label for example in data_set.read("test")[""]] == [(), ("x",)]


def test_regression_takes_numbers_and_no_labels(tmp_path):
    files = {
        "train.tsv": [("a", "1"), ("b", "-2.5e1")],
        "dev.jsonl": [{"text": "a", "label": 3}, {"text": "b", "label": "0.5"}],
        "test.csv": [("a", ""), ("b", "4")],
    }
    data_set = open_folder(tmp_path, files, task_type="regression", metric="spearman")
    assert data_set.task.labels == () and data_set.task.metric == "spearman"
    examples = [*data_set.read("train")[""], *data_set.read("dev")[""], *data_set.read("test")[""]]
    assert [example.label for example in examples] == [1.0, -25.0, 3.0, 0.5, None, 4.0]
    # What is none in single precision, or only to Python.
    for number in ("1e39", "-1e300", "inf", "nan", "1_000", "1,5"):
        data_set = open_folder(tmp_path, {"train.tsv": [("a", number)]}, task_type="regression")
        with pytest.raises(ValueError, match="must be a finite number"):
            data_set.read("train")[""]
    largest = open_folder(tmp_path, {"train.tsv": [("a", "3.4e38")]}, task_type="regression")
    assert np.isfinite(np.float32(largest.read("train")[""][0].label))


def test_quotes_around_texts_in_tsv_are_noticed(tmp_path, log):
    data_set = open_folder(tmp_path, {"train.tsv": [('"a ""b"""', "x"), ("c", "y")]}, labels="x,y")
    assert data_set.read("train")[""][0].text_a == '"a ""b"""'
    assert log.messages == [
        f"{tmp_path}/train.tsv: 1 texts are within quotes, which are text in a .tsv; the first "
        "is on line 2. If they are not meant so, make it a .csv."
    ]


def test_an_unlikely_header_can_be_insisted_upon(tmp_path):
    rows = {"train.tsv": "text\tlabel\na\tx\n"}
    numbers = {"text_a_column": "0", "label_column": "1", "has_header": False}
    data_set = open_folder(tmp_path, rows, **numbers)
    assert data_set.read("train")[""][0] == InputExample("train-1", "text", None, "label")


NUMBERS = {"text_a_column": "0", "label_column": "1"}
GOOD = "text\tlabel\na b\tx\nc\ty\n"

# Files, options with the split to read, and the message.
WRONG = [
    (
        {"train.txt": GOOD},
        {},
        "`data_dir` must hold 'train' with one of the endings ['.tsv', '.csv', '.jsonl', "
        "'.parquet', '.tsv.gz', '.csv.gz', '.jsonl.gz'], or `train_file` name the file. Received "
        "'{folder}', which holds ['train.txt'].",
    ),
    (
        {"train.tsv": GOOD},
        {"split": "dev"},
        "`data_dir` must hold 'dev' with one of the endings ['.tsv', '.csv', '.jsonl', "
        "'.parquet', '.tsv.gz', '.csv.gz', '.jsonl.gz'], or `dev_file` name the file. Received "
        "'{folder}', which holds ['train.tsv']. To hold out a part of the training file for it, "
        "name that file with `train_file` and leave `data_dir` out.",
    ),
    (
        {"train.tsv": GOOD, "train.csv": GOOD},
        {},
        "`data_dir` must hold one file for the train set. Received ['train.csv', 'train.tsv'] in "
        "'{folder}'. Name one with `train_file`.",
    ),
    (
        {"test.tsv": GOOD},
        {"split": "test"},
        "`labels` must be given where there is no training file to find them in. Received "
        "'{folder}', which holds ['test.tsv'].",
    ),
    (
        {},
        {"task_type": "multilabel"},
        "`task_type` must be one of classification, multi_label, regression. Received "
        "'multilabel'.",
    ),
    (
        {},
        {"metric": "macro_f1"},
        "`metric` must be one of ['accuracy', 'f1', 'matthews'] for classification. Received "
        "'macro_f1'.",
    ),
    (
        {},
        {"labels": "x,y,x"},
        "`labels` must be names, each once. Received ['x', 'y', 'x'], with ['x'] more than once.",
    ),
    (
        {},
        {"labels": "x,"},
        "`labels` must be names, each once. Received ['x', ''], with an empty one.",
    ),
    (
        {},
        {"labels": "x"},
        "`labels` must be at least 2 for classification. Received ['x'].",
    ),
    (
        {},
        {"labels": "x,y", "task_type": "regression"},
        "`labels` must be empty for regression. Received ['x', 'y'].",
    ),
    (
        {},
        {"text_a_column": "1", "label_column": "1"},
        "Columns must be names or numbers, each with one use. Received {'text_a_column': '1', "
        "'label_column': '1'}.",
    ),
    (
        {},
        {"text_a_column": "1", "has_header": False},
        "Columns must be numbers, counted from 0, where `has_header` is false. Received "
        "{'text_a_column': '1', 'label_column': 'label'}.",
    ),
    ({}, {"label_separator": ""}, "`label_separator` must not be empty. Received ''."),
    (
        {"train.tsv": "a\tx\nb\ty\n"},
        {},
        "{folder}/train.tsv:1: the header must have the columns 'text' and 'label', the "
        "`text_a_column` and `label_column`. Received ['a', 'x']. Columns are separated by tabs "
        "here. Give `text_a_column` and `label_column` the names of yours or, if the file has no "
        "header, their numbers from 0.",
    ),
    (
        {"train.tsv": "a\tlabel\nb\ty\n"},
        {},
        "{folder}/train.tsv:1: the header must have the column 'text', the `text_a_column`. "
        "Received ['a', 'label']. Columns are separated by tabs here. Give `text_a_column` the "
        "name of yours or, if the file has no header, its number from 0.",
    ),
    (
        {"train.csv": "Text,label\na,x\nb,y\n"},
        {},
        "{folder}/train.csv:1: the header must have the column 'text', the `text_a_column`. "
        "Received ['Text', 'label']. Columns are separated by commas here. Did you mean "
        "`text_a_column='Text'`?",
    ),
    (
        {"train.csv": "0,1\na,x\nb,y\n"},
        {"text_a_column": "0", "label_column": "1"},
        "{folder}/train.csv:1: the first row must be an example, as all columns are given as "
        "numbers. Received ['0', '1'], which looks like a header. Set `has_header` to true if it "
        "is one, or to false.",
    ),
    (
        {"train.csv": "text,label\na,\"['x', 'y']\"\nb,[]\n"},
        {"task_type": "multi_label"},
        "{folder}/train.csv:2: the label, in column 'label', must be labels in a list or with ',' "
        "between them, each a text or a number, and not empty. Received \"['x', 'y']\". Lists "
        "are for JSON lines; in a table, write a,b without brackets and quotes.",
    ),
    (
        {"train.csv": '"text"\t"label"\na\tx\n'},
        {},
        "{folder}/train.csv:1: a cell that begins with a quote must end with one, and quotes "
        "within it must be doubled. Received '\"text\"\\t\"label\"' (',' expected after '\"', on "
        "line 1). It looks as if '\\t' separates the columns: give `separator='tab'`.",
    ),
    (
        {"train.tsv": "a,x\n"},
        {"text_a_column": "0", "label_column": "1"},
        "{folder}/train.tsv:1: there must be a column 1, counted from 0, the `label_column`. "
        "Received ['a,x']. Columns are separated by tabs here. It looks as if ',' separates the "
        "columns: give `separator=','`.",
    ),
    (
        {"train.tsv": "text\tlabel\na\tx\nb\n"},
        {},
        "{folder}/train.tsv:3: has 1 column, but the first line has 2. Received ['b']. A text "
        "with a line break must be within quotes, in a .csv. If empty columns at the end are left "
        "off, as Excel does, remove them from all rows.",
    ),
    (
        {"train.tsv": GOOD},
        NUMBERS,
        "{folder}/train.tsv:1: the first row must be an example, as all columns are given as "
        "numbers. Received ['text', 'label'], which looks like a header. Set `has_header` to true "
        "if it is one, or to false.",
    ),
    (
        {"train.tsv": "words\tlabel\na\tx\nb\ty\n"},
        NUMBERS,
        "{folder}/train.tsv:1: the first row must be an example, as all columns are given as "
        "numbers. Received ['words', 'label'], which looks like a header. Set `has_header` to true "
        "if it is one, or to false.",
    ),
    (
        {"train.tsv": "words\twhat\na\tx\nb\ty\n"},
        {**NUMBERS, "labels": "x,y"},
        "{folder}/train.tsv:1: the label, in column '1', must be among ['x', 'y'], given by "
        "`labels`. Received 'what'. If this line is a header, set `has_header` to true.",
    ),
    (
        {"train.tsv": "a\tx\nb\ty\nc\tx\n"},
        {**NUMBERS, "has_header": True},
        "{folder}/train.tsv:1: the header must name columns. Received 'x', which is a label. If "
        "the file has no header, set `has_header` to false.",
    ),
    (
        {"train.tsv": "a\t0\nb\t2.5\n"},
        {**NUMBERS, "has_header": True, "task_type": "regression"},
        "{folder}/train.tsv:1: the header must name columns. Received '0', which is a label. If "
        "the file has no header, set `has_header` to false.",
    ),
    (
        {"train.tsv": GOOD, "dev.tsv": "text\tlabel\na\tz\n"},
        {"split": "dev"},
        "{folder}/dev.tsv:2: the label, in column 'label', must be among ['x', 'y'], found in the "
        "training file. Received 'z'.",
    ),
    (
        {"train.tsv": "text\tlabel\na\tx\nb\t \n"},
        {},
        "{folder}/train.tsv:3: examples must have a label, in column 'label'. Without one: 1 of 2 "
        "examples, line 3. Fill in the labels, or leave out a part of the examples with "
        "`on_missing_label='skip'`.",
    ),
    (
        {"train.tsv": "text\tlabel\na\tx\n"},
        {},
        "'{folder}/train.tsv' must hold at least two labels in column 'label', unless `labels` "
        "gives them. Received ['x'].",
    ),
    (
        {"train.tsv": "text\tlabel\na\t\nb\t\n"},
        {"task_type": "multi_label"},
        "'{folder}/train.tsv' must hold at least one label in column 'label', unless `labels` "
        "gives them. Received [].",
    ),
    (
        {"train.tsv": "text\tlabel\na\t\nb\t\n"},
        {"on_missing_label": "skip"},
        "{folder}/train.tsv:2: examples must have a label, in column 'label'. Without one: 2 of 2 "
        "examples, lines 2, 3. Fill in the labels.",
    ),
    (
        {"train.tsv": "text\tlabel\n" + "".join(f"a\t{i + 0.5}\n" for i in range(21))},
        {},
        "'{folder}/train.tsv' must hold labels in column 'label'. Received 21 different ones for "
        "21 examples: ['0.5', '1.5', '10.5', '11.5', '12.5', '13.5', '14.5', '15.5', '16.5', "
        "'17.5', '18.5', '19.5', '2.5', '20.5', '3.5', '4.5', '5.5', '6.5', '7.5', '8.5'] and 1 "
        "more. If they are numbers to predict, `task_type` is regression; if they are labels, give "
        "them with `labels`.",
    ),
    (
        {"train.tsv": "text\tlabel\n"},
        {},
        "'{folder}/train.tsv' must hold examples. Received a file without any.",
    ),
    (
        {"train.tsv": "text\tlabel\na\t3,5\n"},
        {"task_type": "regression"},
        "{folder}/train.tsv:2: the label, in column 'label', must be a finite number. Received "
        "'3,5'.",
    ),
    (
        {"train.jsonl": '{"text": "a", "label": 1e999}\n'},
        {"task_type": "regression"},
        "{folder}/train.jsonl:1: the label, in column 'label', must be a finite number. Received "
        "inf.",
    ),
    (
        {"train.jsonl": '{"text": "a", "label": ["x", "y"]}\n'},
        {},
        "{folder}/train.jsonl:1: the label, in column 'label', must be a text or a number, and not "
        "empty. Received ['x', 'y']. With several labels for an example, `task_type` is "
        "multi_label.",
    ),
    (
        {"train.csv": 'text,label\na,"x,w"\n'},
        {"task_type": "multi_label", "labels": "x,y"},
        "{folder}/train.csv:2: the label, in column 'label', must be labels in a list or with ',' "
        "between them, each among ['x', 'y'], given by `labels`. Received 'x,w'.",
    ),
    (
        {"train.jsonl": '{"text": "a", "label": "x"}\n{"txt": "a", "label": "x"}\n'},
        {},
        "{folder}/train.jsonl:2: must have the key 'text', the `text_a_column`. Received the keys "
        "['txt', 'label'].",
    ),
    (
        {"train.jsonl": '{"text": "a", "lable": "x"}\n{"text": "b", "lable": "y"}\n'},
        {},
        "{folder}/train.jsonl:1: must have the key 'label', the `label_column`. Received the keys "
        "['text', 'lable'].",
    ),
    (
        {"train.jsonl": '{"text": "a", "other": 0.5, "label": "x"}\n'},
        {"text_b_column": "other"},
        "{folder}/train.jsonl:1: 'other' must be a string. Received 0.5.",
    ),
    (
        {"train.jsonl": '{"text": "a", "label": "x", "n": true}\n'},
        {"id_column": "n"},
        "{folder}/train.jsonl:1: 'n' must be a string or a number. Received True.",
    ),
    (
        {"train.jsonl": '{"text": NaN, "label": "x"}\n'},
        {},
        "{folder}/train.jsonl:1: 'text' must be a string. Received nan.",
    ),
    (
        {"train.jsonl": '{"text": "a", "label": "x"}\n{"text": "b", "label": NaN}\n'},
        {},
        "{folder}/train.jsonl:2: examples must have a label, in column 'label'. Without one: 1 of "
        "2 examples, line 2. Fill in the labels, or leave out a part of the examples with "
        "`on_missing_label='skip'`.",
    ),
]


@pytest.mark.parametrize(("files", "options", "message"), WRONG)
def test_errors_name_the_file_and_the_line(tmp_path, files, options, message):
    options = {"split": "train", **options}
    split = options.pop("split")
    with pytest.raises(ValueError) as caught:  # noqa: PT011, PT012
        data_set = open_folder(tmp_path, files, **options)
        data_set.check([split])
        data_set.read(split)
    assert str(caught.value) == message.replace("{folder}", str(tmp_path))


def test_missing_files_are_noticed_before_any_is_read(tmp_path):
    data_set = open_folder(tmp_path, {"train.tsv": "wrong\n"})
    data_set.check(["train"])
    with pytest.raises(ValueError, match="must hold 'test' with"):
        data_set.check(["train", "test"])
    # Spark writes a folder of parts.
    (tmp_path / "test.csv").mkdir()
    with pytest.raises(ValueError, match=r"one file for the test set\. .*test\.csv', which is a"):
        data_set.check(["test"])


def test_similar_and_missing_labels_are_warned_of(tmp_path, log):
    rows = [{"text": "a", "label": label} for label in (1, 1.0, "yes", "Yes", "nan", "2")]
    assert len(open_folder(tmp_path, {"train.jsonl": rows}).task.labels) == 6
    told = [message for message in log.messages if "of the labels" in message]
    assert [message.split("of the labels, ")[1].split(". Each")[0] for message in told] == [
        "['1', '1.0'], ['Yes', 'yes'] differ only in how they are written",
        "nan may be none",
    ]
    log.clear()
    open_folder(tmp_path, {"train.jsonl": rows[:1] + rows[-1:]})
    assert "of the labels" not in log.text


@pytest.mark.parametrize("other", ["x\0", "x\u200b", "\ufeffx", "\uff58"])
def test_labels_that_look_the_same_are_warned_of(tmp_path, log, other):
    rows = [{"text": "a", "label": label} for label in ("x", other, "y")]
    labels = open_folder(tmp_path, {"train.jsonl": rows}).task.labels
    assert len(labels) == 3
    assert f"{sorted(['x', other])} differ only in how they are written" in log.text


def test_labels_with_another_separator_are_warned_of(tmp_path, log):
    rows = [("a", "x;y"), ("b", "x"), ("c", "y"), ("d", "p/q")]
    open_folder(tmp_path, {"train.tsv": rows}, task_type="multi_label").task  # noqa: B018
    [told] = [message for message in log.messages if "consists of others" in message]
    assert "'x;y'" in told and "`label_separator=';'`" in told
    log.clear()
    options = {"task_type": "multi_label", "label_separator": ";"}
    assert open_folder(tmp_path, {"train.tsv": rows}, **options).task.labels == ("p/q", "x", "y")
    assert "consists of others" not in log.text


def test_examples_without_a_label_are_counted_and_skipped_on_request(tmp_path, log):
    rows = [("t1", "x"), ("t2", ""), ("t3", "y"), *[(f"t{i}", " ") for i in range(4, 27)]]
    with pytest.raises(
        ValueError, match=r"24 of 26 examples, lines 3, 5, .*, 23 and 4 more\. Fill"
    ):
        open_folder(tmp_path, {"train.csv": rows}).read("train")
    json_rows = [{"text": "a", "label": None}, {"text": "b", "label": 0}, {"text": "c", "label": 1}]
    # A label that is not there is one that is missing.
    json_rows.append({"text": "d"})
    with pytest.raises(ValueError, match="Without one: 2 of 4 examples, lines 1, 4"):
        open_folder(tmp_path, {"dev.jsonl": json_rows}, labels="0,1").read("dev")
    files = {"train.csv": rows, "dev.jsonl": json_rows}
    data_set = open_folder(tmp_path, files, labels="x,y,0,1", on_missing_label="skip")
    # The names of the others are those of the complete file.
    assert [(each.guid, each.label) for each in data_set.read("train")[""]] == [
        ("train-1", "x"),
        ("train-3", "y"),
    ]
    assert [each.guid for each in data_set.read("dev")[""]] == ["dev-2", "dev-3"]
    skipped = [message for message in log.messages if "skipped examples" in message]
    assert [message.split(": ", 2)[2].split(", line")[0] for message in skipped] == [
        "24 of 26 examples",
        "2 of 4 examples",
    ]
    # Labels of the training file are found among the others.
    (tmp_path / "dev.jsonl").unlink()
    assert open_folder(tmp_path, {}, on_missing_label="skip").task.labels == ("x", "y")
    with pytest.raises(ValueError, match="Without one: 2 of 2 examples, lines 2, 3"):
        open_folder(
            tmp_path, {"train.csv": rows[1:2] * 2}, labels="x,y", on_missing_label="skip"
        ).read("train")


def test_a_number_may_be_missing_and_a_blank_cell_is_no_label_of_several(tmp_path):
    rows = [("a", "1"), ("b", "")]
    options = {"on_missing_label": "skip"}
    numbers = open_folder(tmp_path, {"train.csv": rows}, task_type="regression", **options)
    assert [each.label for each in numbers.read("train")[""]] == [1.0]
    several = open_folder(tmp_path, {}, task_type="multi_label", **options)
    assert [each.label for each in several.read("train")[""]] == [("1",), ()]

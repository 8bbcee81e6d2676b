import json
import logging

import numpy as np
import pytest
from conftest import GOLDEN, ROOT, exhaustive

import tokenization
from bert.tasks.classification import examples as glue
from bert.tasks.classification.examples import InputExample
from bert.tasks.classification.inputs import make_features

DATA = ROOT.parent / "shared" / "data"

NLI = ("contradiction", "entailment", "neutral")


def write(folder, **files):
    """Writes rows of cells; two underscores in a name stand for a dot, and three for a slash."""
    for name, rows in files.items():
        path = folder / name.replace("___", "/").replace("__", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join("\t".join(row) + "\n" for row in rows), encoding="utf-8")
    return str(folder)


def row(width, **cells):
    """Returns cells; `c3="x"` puts x into the fourth, and the others have their number."""
    return [cells.get(f"c{i}", str(100 + i)) for i in range(width)]


HEADER = ["header"] * 16

# Of each task: width of a labelled row, texts and label there, and the same of a test row.
OFFICIAL = {
    "cola": (4, {"c3": "a", "c1": "1"}, 2, {"c1": "a"}),
    "sst-2": (2, {"c0": "a", "c1": "1"}, 2, {"c1": "a"}),
    "mrpc": (5, {"c3": "a", "c4": "b", "c0": "1"}, 5, {"c3": "a", "c4": "b"}),
    "sts-b": (10, {"c7": "a", "c8": "b", "c9": "2.5"}, 9, {"c7": "a", "c8": "b"}),
    "qqp": (6, {"c3": "a", "c4": "b", "c5": "1"}, 3, {"c1": "a", "c2": "b"}),
    "qnli": (4, {"c1": "a", "c2": "b", "c3": "entailment"}, 3, {"c1": "a", "c2": "b"}),
    "rte": (4, {"c1": "a", "c2": "b", "c3": "entailment"}, 3, {"c1": "a", "c2": "b"}),
    "wnli": (4, {"c1": "a", "c2": "b", "c3": "1"}, 3, {"c1": "a", "c2": "b"}),
}


@pytest.mark.parametrize("name", OFFICIAL)
def test_official_files_are_read(tmp_path, name):
    width, labelled, test_width, unlabelled = OFFICIAL[name]
    header = [] if name == "cola" else [HEADER[:width]]
    first = 0 if name == "cola" else 1
    folder = write(
        tmp_path,
        train__tsv=[*header, row(width, **labelled), row(width, **labelled)],
        dev__tsv=[*header, row(width, **labelled)],
        test__tsv=[HEADER[:test_width], row(test_width, **unlabelled)],
    )
    data_set = glue.open_data_set(name, folder)
    data_set.check(["train", "dev", "test"])
    text_b = "b" if "b" in labelled.values() else None
    label = 2.5 if name == "sts-b" else list(labelled.values())[-1]
    assert data_set.read("train")[""] == [
        InputExample(f"train-{first}", "a", text_b, label),
        InputExample(f"train-{first + 1}", "a", text_b, label),
    ]
    assert data_set.read("dev") == {"": [InputExample(f"dev-{first}", "a", text_b, label)]}
    assert data_set.read("test") == {"": [InputExample("test-1", "a", text_b)]}
    assert data_set.task.is_pair == (text_b is not None)


def test_mnli_has_two_dev_and_test_sets(tmp_path, log):
    texts = {"c8": "a", "c9": "b"}
    labelled = [HEADER[:12], row(12, c0="7", c11="neutral", **texts)]
    folder = write(
        tmp_path / "MNLI",
        train__tsv=labelled,
        dev_matched__tsv=[HEADER, row(16, c0="8", c15="entailment", **texts)],
        dev_mismatched__tsv=[HEADER, row(16, c0="9", c15="contradiction", **texts)],
        test_matched__tsv=[HEADER[:10], row(10, c0="5", **texts)],
    )
    data_set = glue.open_data_set("MNLI", str(tmp_path))
    assert data_set.read("train")[""] == [InputExample("train-7", "a", "b", "neutral")]
    assert data_set.read("dev") == {
        "": [InputExample("dev_matched-8", "a", "b", "entailment")],
        "_mismatched": [InputExample("dev_mismatched-9", "a", "b", "contradiction")],
    }
    data_set.check(["test"])
    assert not log.messages
    assert data_set.read("test") == {"": [InputExample("test-5", "a", "b")]}
    assert log.messages == [
        f"There is no 'test_mismatched.tsv' in {str(tmp_path)!r}: it is left out."
    ]
    assert data_set.submission_names == {"": "MNLI-m.tsv", "_mismatched": "MNLI-mm.tsv"}
    assert glue.open_data_set("mnli", folder).read("train")[""] == data_set.read("train")[""]


@pytest.mark.parametrize("name", ["AX__tsv", "diagnostic__tsv", "diagnostic___diagnostic__tsv"])
def test_ax_is_a_test_set_alone(tmp_path, name):
    folder = write(tmp_path, **{name: [HEADER[:3], row(3, c1="a", c2="b")]})
    data_set = glue.open_data_set("ax", folder)
    assert data_set.read("test") == {"": [InputExample("test-1", "a", "b")]}
    assert data_set.task.labels == NLI


@pytest.mark.parametrize("places", [("", ""), ("XNLI-MT-1.0___", "XNLI-1.0___")])
def test_xnli_has_one_language_and_its_own_word_for_contradiction(tmp_path, places):
    test = [
        HEADER[:9],
        row(9, c0="ar", c1="neutral", c6="x", c7="y"),
        row(9, c0="de", c1="contradiction", c6="a", c7="b"),
    ]
    files = {
        f"{places[0]}multinli___multinli__train__de__tsv": [
            HEADER[:3],
            ["a", "b", "contradictory"],
            ["c", "d", "entailment"],
        ],
        f"{places[1]}xnli__dev__tsv": test,
        f"{places[1]}xnli__test__tsv": test,
    }
    data_set = glue.open_data_set("xnli", write(tmp_path, **files), xnli_language="de")
    data_set.check(["train", "dev", "test"])
    assert data_set.read("train")[""] == [
        InputExample("train-1", "a", "b", "contradiction"),
        InputExample("train-2", "c", "d", "entailment"),
    ]
    # The original counts the rows of all languages.
    assert data_set.read("dev") == {"": [InputExample("dev-2", "a", "b", "contradiction")]}
    assert data_set.read("test") == {"": [InputExample("test-2", "a", "b", "contradiction")]}
    assert data_set.submission_names == {}


def test_tasks_have_the_labels_and_metrics_of_glue():
    tasks = {name: glue.open_data_set(name, "nowhere").task for name in glue.TASK_NAMES}
    binary, entailment = ("0", "1"), ("entailment", "not_entailment")
    assert {name: task.labels for name, task in tasks.items()} == {
        **dict.fromkeys(["cola", "sst-2", "mrpc", "qqp", "wnli"], binary),
        **dict.fromkeys(["mnli", "ax", "xnli"], NLI),
        **dict.fromkeys(["qnli", "rte"], entailment),
        "sts-b": (),
    }
    metrics = {name: task.metric for name, task in tasks.items() if task.metric != "accuracy"}
    assert metrics == {"cola": "matthews", "mrpc": "f1", "qqp": "f1", "sts-b": "pearson"}
    assert tasks["sts-b"].task_type == "regression"
    for name, other in (("SST2", "sst-2"), ("sts_b", "sts-b"), ("STSB", "sts-b"), ("QQP", "qqp")):
        assert glue.open_data_set(name, "nowhere").task == tasks[other]


def test_submissions_have_the_names_of_glue():
    names = {name: glue.open_data_set(name, "x").submission_names for name in glue.TASK_NAMES}
    assert {name: files[""] for name, files in names.items() if name != "xnli"} == {
        "cola": "CoLA.tsv",
        "sst-2": "SST-2.tsv",
        "mrpc": "MRPC.tsv",
        "sts-b": "STS-B.tsv",
        "qqp": "QQP.tsv",
        "mnli": "MNLI-m.tsv",
        "qnli": "QNLI.tsv",
        "rte": "RTE.tsv",
        "wnli": "WNLI.tsv",
        "ax": "AX.tsv",
    }


def test_byte_order_marks_blank_lines_and_quotes_are_ignored(tmp_path):
    (tmp_path / "train.tsv").write_bytes(
        '\ufeffQuality\tid\tid\tx\ty\r\n1\t2\t3\t" a\tb "\r\n\r\n'.encode()
    )
    data_set = glue.open_data_set("mrpc", str(tmp_path))
    assert data_set.read("train")[""] == [InputExample("train-1", '" a', 'b "', "1")]


def test_a_few_broken_rows_of_qqp_are_skipped(tmp_path, log):
    good = row(6, c3="a", c4="b", c5="1")
    folder = write(tmp_path, train__tsv=[HEADER[:6], good, ["1", "2"], good])
    examples = glue.open_data_set("qqp", folder).read("train")[""]
    assert [example.guid for example in examples] == ["train-1", "train-2"]
    assert log.messages == [
        f"{folder}/train.tsv: skipped 1 row with too few columns, the first on line 3."
    ]


def test_no_row_is_left_out_of_a_submission(tmp_path):
    good = row(3, c1="a", c2="b")
    folder = write(tmp_path, test__tsv=[HEADER[:3], good, ["1", "broken"], good, good])
    with pytest.raises(ValueError, match=r"test\.tsv:3: has 2 columns, needs 3 for task 'qqp'"):
        glue.open_data_set("qqp", folder).read("test")


def test_an_example_in_the_place_of_a_header_is_noticed(tmp_path, log):
    good = row(4, c3="entailment")
    glue.open_data_set("rte", write(tmp_path, train__tsv=[good, good])).read("train")[""]
    assert log.messages == [
        f"{tmp_path}/train.tsv:1: is taken for the header, but looks like an example with label "
        "'entailment'."
    ]


# Task, files, what is asked for, and the message.
WRONG = [
    (
        "mrcp",
        {},
        "train",
        "`task_name` must be one of ['cola', 'sst-2', 'mrpc', 'sts-b', 'qqp', 'mnli', 'qnli', "
        "'rte', 'wnli', 'ax', 'xnli'], or 'custom' for other files. Received 'mrcp'.",
    ),
    (
        "mrpc",
        {},
        "train",
        "`data_dir` must hold 'train.tsv', the train set of 'mrpc', itself or in 'MRPC'. "
        "Received '{folder}', which is empty.",
    ),
    (
        "mnli",
        {"train__tsv": [], "dev__tsv": []},
        "dev",
        "`data_dir` must hold 'dev_matched.tsv', the dev set of 'mnli', itself or in 'MNLI'. "
        "Received '{folder}', which holds ['dev.tsv', 'train.tsv'].",
    ),
    (
        "xnli",
        {"multinli___multinli__train__de__tsv": []},
        "train",
        "`data_dir` must hold 'multinli/multinli.train.zh.tsv', the train set of 'xnli', itself "
        "or in 'XNLI'. Received '{folder}/multinli', which holds ['multinli.train.de.tsv'].",
    ),
    (
        "ax",
        {},
        "train",
        "`task_name` must be a task with a train set. Received 'ax'. It has a test set only: "
        "predict it with a model trained on 'mnli'.",
    ),
    (
        "cola",
        {"train__tsv": [["source", "label", "", "sentence"]]},
        "train",
        "{folder}/train.tsv:1: the label, in column 1 counted from 0, must be one of ['0', '1']. "
        "Received 'label'. The 'cola' task has no header in this file.",
    ),
    (
        "mnli",
        {"train__tsv": [HEADER[:12], row(12, c11="-")]},
        "train",
        "{folder}/train.tsv:2: the label, in the last column, must be one of ['contradiction', "
        "'entailment', 'neutral']. Received '-'.",
    ),
    (
        "mnli",
        {"train__tsv": [HEADER[:2]]},
        "train",
        "{folder}/train.tsv:1: has 2 columns, needs 11 for task 'mnli'. Received ['header', "
        "'header'].",
    ),
    (
        "rte",
        {"train__tsv": [HEADER[:4]]},
        "train",
        "'{folder}/train.tsv' must hold examples. Received its header only.",
    ),
    (
        "rte",
        {"test__tsv": [[""]]},
        "test",
        "'{folder}/test.tsv' must hold examples. Received blank lines only.",
    ),
    (
        "sts-b",
        {"train__tsv": [HEADER[:10], row(10, c9="nan")]},
        "train",
        "{folder}/train.tsv:2: the score, in column 9 counted from 0, must be a finite number. "
        "Received 'nan'.",
    ),
    (
        "qqp",
        {"train__tsv": [HEADER[:6], ["1"], ["2"], row(6, c5="1")]},
        "train",
        "{folder}/train.tsv:2: has 1 column, needs 6 for task 'qqp'. Received ['1'].",
    ),
    (
        "xnli",
        {"xnli__dev__tsv": [HEADER[:9], row(9, c0="de"), row(9, c0="ar")]},
        "dev",
        "'{folder}/xnli.dev.tsv' must hold examples. `xnli_language` must be one of ['ar', 'de']. "
        "Received 'zh'.",
    ),
]


@pytest.mark.parametrize(("name", "files", "split", "message"), WRONG)
def test_errors_name_the_file_and_the_line(tmp_path, name, files, split, message):
    folder = write(tmp_path, **files)
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        glue.open_data_set(name, folder).read(split)
    assert str(caught.value) == message.replace("{folder}", folder)


def test_missing_files_are_noticed_before_any_is_read(tmp_path):
    folder = write(tmp_path, train__tsv=[["not", "MRPC"]])
    data_set = glue.open_data_set("mrpc", folder)
    data_set.check(["train"])
    with pytest.raises(ValueError, match=r"must hold 'dev\.tsv'"):
        data_set.check(["train", "dev"])


def test_the_original_read_as_many_examples(golden):
    task, folder = ("cola", golden / "cola") if golden == GOLDEN else ("mrpc", DATA / "glue")
    if not folder.exists():
        pytest.skip(f"{folder} is not there.")
    data_set = glue.open_data_set(task, str(folder))
    results = (golden / f"classifier_{task}_test_results.tsv").read_text()
    assert len(data_set.read("test")[""]) == len(results.splitlines())
    evaluation = json.loads((golden / f"classifier_{task}_eval.json").read_text())
    dev = data_set.read("dev")[""]
    assert len(dev) == evaluation["examples"]
    # Each model answers always the same.
    most = "0" if task == "cola" else "1"
    accuracy = np.mean([example.label == most for example in dev])
    assert accuracy == pytest.approx(evaluation["eval_accuracy"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "counts", "means"),
    [
        ("cola", (8551, 1043, 1063), 0.704),
        *exhaustive(("sst-2", (67349, 872, 1821), 0.558)),
        ("mrpc", (3668, 408, 1725), 0.674),
        ("sts-b", (5749, 1500, 1379), 2.701),
        ("rte", (2490, 277, 3000), 0.498),
    ],
)
def test_all_official_examples_are_read(name, counts, means, caplog):
    if not (DATA / "glue").exists():
        pytest.skip("The official files are not there.")
    caplog.set_level(logging.WARNING)
    data_set = glue.open_data_set(name, str(DATA / "glue"))
    train, dev, test = (
        data_set.read("train")[""],
        data_set.read("dev")[""],
        data_set.read("test")[""],
    )
    assert (len(train), len(dev), len(test)) == counts
    tokenizer = tokenization.FullTokenizer(
        str(DATA / "vocab" / "bert-base-uncased-vocab.txt"), do_lower_case=True
    )
    features = make_features(train, data_set.task, tokenizer, 32)
    assert features["label_ids"].mean() == pytest.approx(means, abs=5e-4)
    assert features["input_mask"].sum(axis=1).min() > 2
    assert [m for m in caplog.messages if "were cut at their ends" not in m] == []

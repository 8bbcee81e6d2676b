import codecs
import csv
import dataclasses
import datetime
import io
import itertools
import json
import os
import sys
import types
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from conftest import ROOT, exhaustive
from helpers.forks import fork_python
from helpers.prediction_runs import WORDS, model_dir, untrained
from helpers.remembered import remembered

import predict
from benchmarks import house
from bert.files import display
from bert.files.row_writer import ResumableFile
from bert.scale.predictions import AnswerFile
from bert.weights import checkpoint, saving

__all__ = ["model_dir", "untrained"]


# Of the options, those that a model does not depend on.
OF_ANSWERS = (
    *("model_dir", "input_file", "output_file", "overwrite", "on_error", "min_probability"),
    *("columns", "separator", "input_format", "shard"),
)


@pytest.fixture(autouse=True, scope="module")
def _opened_once():
    def key_of(given, folder):
        del folder
        files = sorted(path for path in Path(given.model_dir).iterdir() if path.is_file())
        options = {name: value for name, value in vars(given).items() if name not in OF_ANSWERS}
        return str(options), *((path.name, path.read_bytes()) for path in files)

    with remembered(predict, "load_model", key_of):
        yield


@pytest.fixture
def settings(tmp_path, model_dir):
    def make(lines, name="texts.jsonl", **changes):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines))
        return predict.Settings(
            **{
                "model_dir": str(model_dir),
                "input_file": str(tmp_path / name),
                "output_file": str(tmp_path / "answers.jsonl"),
                "batch_size": 2,
                **changes,
            }
        )

    return make


def as_json(texts):
    return [json.dumps({"text_a": text}) for text in texts]


def read(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


TEXTS = [f"{color} {shape}" for color in WORDS[4:7] for shape in WORDS[4:]] * 3
# No such key; no JSON; no object; not Unicode; no text; nested too deeply.
BAD = [
    ('{"text": "red"}', "must be an object with the keys"),
    ('{"text_a": "red"', "must be one JSON"),
    ("[1]", "must be an object with the keys"),
    ('{"text_a": "\\ud800"}', "text must be Unicode"),
    ('{"text_a": 7}', "must have text as 'text_a'. Received 7"),
    ('{"text_a": ' + "[" * 100_000, "must be one JSON"),
]


def test_a_classifier_answers_with_few_modules_of_the_project(untrained):
    start = "runpy.run_path('predict.py', run_name='__main__')"
    assert house.count_loaded(ROOT, start, f"--model_dir={untrained}", "red") <= 80


@pytest.mark.parametrize(("bad", "problem"), [*BAD[:2], *exhaustive(*BAD[2:])])
def test_one_bad_line_is_named_and_loses_no_answer(settings, tmp_path, bad, problem):
    """More lines than go through the model together, on either side of it."""
    lines = as_json(TEXTS)
    predict.run(settings(lines))
    whole = read(tmp_path / "answers.jsonl")
    os.remove(tmp_path / "answers.jsonl")
    place = 41
    spoilt = [*lines[:place], bad, *lines[place:]]
    with pytest.raises(ValueError, match=rf"texts\.jsonl:{place + 1}: ") as caught:
        predict.run(settings(spoilt))
    assert problem in str(caught.value)
    [kept] = [name for name in os.listdir(tmp_path) if name.endswith(".unfinished")]
    assert_alike(read(tmp_path / kept), whole[:place])
    count = predict.run(settings(spoilt, on_error="skip"))
    assert count == len(spoilt)
    answers = read(tmp_path / "answers.jsonl")
    error = answers.pop(place)
    assert error["line"] == place + 1
    assert problem in error["error"]
    assert_alike(answers, whole)
    assert not [name for name in os.listdir(tmp_path) if name.endswith(".unfinished")]


@pytest.mark.parametrize("ending", ["csv", "tsv"])
def test_a_text_that_a_line_break_cuts_is_not_answered(settings, tmp_path, ending):
    rows = ["id,text_a,gold", "1,red", "blue,no", "2,green,yes"]
    lines = [row.replace(",", {"csv": ",", "tsv": "\t"}[ending]) for row in rows]
    name = f"table.{ending}"
    with pytest.raises(ValueError, match=rf"{name}:2: has 2 columns, but the first line has 3"):
        predict.run(settings(lines, name))
    assert predict.run(settings(lines, name, on_error="skip")) == 3
    answers = read(tmp_path / "answers.jsonl")
    assert [answer.get("text_a") for answer in answers] == [None, None, "green"]
    assert [answer.get("line") for answer in answers] == [2, 3, None]


def test_a_pattern_names_one_file_before_the_model_is_loaded(settings, tmp_path, model_dir):
    pattern = str(tmp_path / "t*.csv")
    made = settings(["text_a", "red"], "t1.csv")
    assert predict.run(dataclasses.replace(made, input_file=pattern)) == 1
    assert [each["text_a"] for each in read(tmp_path / "answers.jsonl")] == ["red"]
    (tmp_path / "t2.csv").write_text("text_a\nred\n")
    (model_dir / "task.json").write_text("{}")
    for several in (pattern, f"{made.input_file},{made.input_file}"):
        with pytest.raises(ValueError, match="`input_file` must name a single file"):
            predict.run(dataclasses.replace(made, input_file=several))


def assert_alike(answers, others):
    """Sums of other sets of rows, computed together, may differ in their last bits."""
    assert [answer["text_a"] for answer in answers] == [other["text_a"] for other in others]
    assert [answer["label"] for answer in answers] == [other["label"] for other in others]
    np.testing.assert_allclose(
        [list(answer["probabilities"].values()) for answer in answers],
        [list(other["probabilities"].values()) for other in others],
        atol=1e-6,
    )


def test_a_mended_line_is_answered_behind_the_kept_ones(settings, tmp_path, log):
    lines = as_json(TEXTS[:12])
    spoilt = [*lines[:5], '{"text_a": 7}', *lines[6:]]
    with pytest.raises(ValueError, match=":6: "):
        predict.run(settings(spoilt))
    assert "5 lines so far in" in log.text
    [kept] = tmp_path.glob("*.unfinished")
    # Taken over as they are, rather than asked for again.
    answers = read(kept)
    answers[0]["label"] = "as it is kept"
    kept.write_text("".join(json.dumps(answer) + "\n" for answer in answers))
    assert predict.run(settings(lines)) == 12
    assert [each["label"] for each in read(tmp_path / "answers.jsonl")[:2]] == [
        "as it is kept",
        answers[1]["label"],
    ]
    assert [each["text_a"] for each in read(tmp_path / "answers.jsonl")] == TEXTS[:12]


@pytest.mark.parametrize(
    "what", ["input", "weights", *exhaustive("vocabulary", "precision", "max_seq_length")]
)
def test_answers_of_anything_else_are_not_gone_on_with(settings, tmp_path, model_dir, what):
    lines = as_json(TEXTS[:8])
    with pytest.raises(ValueError, match=":6: "):
        predict.run(settings([*lines[:5], "?", *lines[6:]]))
    [kept] = tmp_path.glob("*.unfinished")
    answers = [{**answer, "label": "of another run"} for answer in read(kept)]
    kept.write_text("".join(json.dumps(answer) + "\n" for answer in answers))
    changes = {}
    if what == "input":
        lines = as_json(["square", *TEXTS[1:8]])
    elif what == "weights":
        prefix = str(model_dir / "bert_model.ckpt")
        stored = checkpoint.Stored(prefix).read()
        saving.save_tensors(prefix, {name: value * 2 for name, value in stored.items()})
    elif what == "vocabulary":
        text = (model_dir / "vocab.txt").read_text()
        (model_dir / "vocab.txt").write_text(text.replace("green", "black"))
        path = model_dir / "task.json"
        stored = json.loads(path.read_text())
        # As if the model had been trained with it.
        path.write_text(json.dumps({key: stored[key] for key in stored if key != "files"}))
    elif what == "precision":
        changes = {"precision": "mixed_bfloat16"}
    else:
        path = model_dir / "task.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), "max_seq_length": 11}))
    predict.run(settings(lines, **changes))
    assert {each["label"] for each in read(tmp_path / "answers.jsonl")} <= {"yes", "no"}


def test_the_answers_of_a_killed_run_are_gone_on_with(settings, tmp_path):
    made = settings(as_json(TEXTS))
    code = (
        "import os, signal, sys, predict\n"
        "from bert.commands import flags\n"
        "ask = predict.LoadedModel.predict\n"
        "def die_at_the_second(self, rows):\n"
        "    if rows[0] != ('red red',):\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "    return ask(self, rows)\n"
        "predict.LoadedModel.predict = die_at_the_second\n"
        "predict.run(predict.Settings(model_dir=sys.argv[1], input_file=sys.argv[2],\n"
        "    output_file=sys.argv[3], batch_size=2))\n"
    )
    fork_python("-c", code, made.model_dir, made.input_file, made.output_file, check=False)
    [kept] = tmp_path.glob("*.unfinished")
    assert [each["text_a"] for each in read(kept)] == TEXTS[:32]
    assert predict.run(made) == len(TEXTS)
    assert [each["text_a"] for each in read(tmp_path / "answers.jsonl")] == TEXTS
    assert not list(tmp_path.glob("*.unfinished"))


def test_improbable_answers_are_empty_and_others_as_without_the_option(settings, tmp_path, log):
    lines = as_json(TEXTS)
    predict.run(settings(lines))
    plain = read(tmp_path / "answers.jsonl")
    chances = [max(answer["probabilities"].values()) for answer in plain]
    middle = float(np.median(chances))
    made = settings(lines, min_probability=middle, overwrite=True)
    predict.run(made)
    expected = [
        {**answer, "label": answer["label"] if chance >= middle else None}
        for answer, chance in zip(plain, chances, strict=True)
    ]
    assert read(tmp_path / "answers.jsonl") == expected
    count = sum(chance >= middle for chance in chances)
    assert 0 < count < len(TEXTS)
    assert f"{count} of the {len(TEXTS)} answers computed now" in log.text
    predict.run(dataclasses.replace(made, output_file=str(tmp_path / "answers.csv")))
    with open(tmp_path / "answers.csv", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["label"] for row in rows] == [answer["label"] or "" for answer in expected]
    # The column of the probability is there all the same.
    np.testing.assert_allclose([float(row["probability"]) for row in rows], chances, rtol=1e-6)


def test_answers_without_a_probability_of_their_own_are_not_left_empty(settings, model_dir):
    stored = json.loads((model_dir / "task.json").read_text())
    task = {**stored["task"], "task_type": "multi_label"}
    (model_dir / "task.json").write_text(json.dumps({**stored, "task": task}))
    with pytest.raises(ValueError, match=r"`min_probability` must be 0 .* labels, probabilities"):
        predict.run(settings(as_json(TEXTS), min_probability=0.5))


def test_where_nothing_can_be_answered_it_is_an_error(settings):
    with pytest.raises(ValueError, match=r"must hold inputs of the task\. .*:1: must be one JSON"):
        predict.run(settings(["?", "??"], on_error="skip"))


def test_answers_that_another_run_has_written_meanwhile_stay(settings, tmp_path, monkeypatch):
    made = settings(as_json(TEXTS))
    write, output = AnswerFile._write_rows, tmp_path / "answers.jsonl"

    def write_slowly(*given):
        found = write(*given)
        output.write_text("of the other run")
        return found

    with monkeypatch.context() as patch:
        patch.setattr(AnswerFile, "_write_rows", write_slowly)
        with pytest.raises(ValueError, match=r"`output_file` must name a new file"):
            predict.run(made)
    assert output.read_text() == "of the other run"
    [kept] = tmp_path.glob("answers.jsonl.*.unfinished")
    assert len(read(kept)) == len(TEXTS)
    assert predict.run(dataclasses.replace(made, overwrite=True)) == len(TEXTS)
    assert len(read(output)) == len(TEXTS) and not kept.exists()


def test_nothing_is_told_of_each_chunk_of_inputs(settings, log):
    # More than the model reads, unknown words, and none.
    texts = ["red " * 20, "what is it", "", "[CLS] red"] * 40
    assert predict.run(settings(as_json(texts))) == len(texts)
    assert not [each for each in log.messages if "examples" in each or "texts of" in each]


def test_bytes_that_are_no_text_are_a_bad_line_as_any_other(settings, tmp_path):
    made = settings([], name="texts.txt", on_error="skip")
    (tmp_path / "texts.txt").write_bytes(b"red\n\xff\xfe\nblue\n")
    assert predict.run(made) == 3
    answers = read(tmp_path / "answers.jsonl")
    assert [answer.get("text_a") for answer in answers] == ["red", None, "blue"]
    assert answers[1]["line"] == 2
    assert "texts.txt:2: text must be UTF-8" in answers[1]["error"]


def test_texts_of_the_command_line_are_answered(settings, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "stdin", None)
    made = settings([], input_file="-")
    assert predict.run(made, ["red", "blue\nround"]) == 2
    # A Python program still has its own standard input.
    assert sys.stdin is None
    assert [answer["text_a"] for answer in read(tmp_path / "answers.jsonl")] == [
        "red",
        "blue round",
    ]
    with pytest.raises(ValueError, match="`input_file` must not be given beside texts"):
        predict.run(settings([]), ["red"])
    with pytest.raises(ValueError, match=r"^arguments:2: text must be UTF-8"):
        predict.run(dataclasses.replace(made, overwrite=True), ["red", "caf\udce9"])


@pytest.mark.parametrize("form", ["lines", "csv"])
def test_bytes_that_are_no_text_are_refused_on_standard_input(
    settings, tmp_path, monkeypatch, form
):
    lines = b"text_a\n" * (form == "csv") + b"red\nblue\xe9\ngreen\n"
    made = settings([], input_file="-", input_format=form, on_error="skip")
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(lines)))
    assert predict.run(made) == 3
    answers = read(tmp_path / "answers.jsonl")
    assert [answer.get("text_a") for answer in answers] == ["red", None, "green"]
    place = 3 if form == "csv" else 2
    assert answers[1]["line"] == place
    assert f"standard input:{place}: text must be UTF-8" in answers[1]["error"]


DEEP = "[" * 100_000 + "]" * 100_000


def deep(path):
    path.write_text(DEEP)


def other(**changes):
    """Returns what changes some keys of a JSON file; None removes one."""

    def spoil(path):
        values = {**json.loads(path.read_text()), **changes}
        path.write_text(json.dumps({k: v for k, v in values.items() if v is not None}))

    return spoil


def added(**values):
    return {"content": "<e>", **values}


TASK = {"name": "x", "task_type": "classification", "labels": ["yes", "no"], "is_pair": False}


@pytest.mark.parametrize(
    ("name", "spoil", "message"),
    [
        ("task.json", deep, "task.json' must be JSON"),
        ("task.json", lambda path: path.write_text("[1]"), "must hold a JSON object"),
        ("task.json", lambda path: path.write_text("{"), "must be JSON"),
        ("task.json", other(kind=None), "`kind` in .* must be one of"),
        ("task.json", other(kind=["classification"]), r"`kind` in .* must be text\. It is \["),
        ("task.json", other(task=None), "task.json' must be as .* `task` must be an object. It is"),
        ("task.json", other(task=[1]), "`task` in .* must be an object"),
        ("task.json", other(task=TASK), "A task must have the keys"),
        ("task.json", other(task={**TASK, "metric": 1}), "`metric` of a task must be str"),
        ("task.json", other(max_seq_length=None), "`max_seq_length` must be a whole number from 1"),
        ("task.json", other(max_seq_length="12"), "from 1 to 2147483647. Received 12"),
        ("task.json", other(max_seq_length=True), "from 1 to 2147483647. Received True"),
        ("task.json", other(max_seq_length=2**30), "`max_seq_length` must be at most 16"),
        ("task.json", other(do_lower_case="false"), "`do_lower_case` must be true or false"),
        (
            "task.json",
            other(kind="question_answering"),
            "`version_2_with_negative` must be",
        ),
        ("task.json", other(kind="tagging"), "A task must have the keys"),
        (
            "task.json",
            other(files={"vocab.txt": {"bytes": "9", "sha256": "x"}}),
            "must have `bytes`",
        ),
        (
            "task.json",
            other(tokenizer=[1]),
            r"`tokenizer` in .*json' must be an object.*\[1\]",
        ),
        ("task.json", other(tokenizer={"strip_accents": "no"}), "`strip_accents` must be true or"),
        ("task.json", other(tokenizer={"added_tokens": 3}), "`added_tokens` must be a list of obj"),
        ("task.json", other(tokenizer={"added_tokens": ["<e>"]}), "`added_tokens` must be a list"),
        (
            "task.json",
            other(tokenizer={"added_tokens": [{"id": 5}]}),
            "must have text as `content`",
        ),
        ("task.json", other(tokenizer={"added_tokens": [added(id=-1)]}), "from 0. Received -1"),
        ("task.json", other(tokenizer={"added_tokens": [added(id="5")]}), "from 0. Received '5'"),
        ("task.json", other(tokenizer={"added_tokens": [added(id=2**31)]}), "must have rows in"),
        ("bert_config.json", deep, "bert_config.json' must be the file that the model was"),
        ("bert_config.json", lambda path: path.write_text("[1]"), "must be the file that the mod"),
    ],
)
def test_a_damaged_folder_is_told_in_a_line(settings, model_dir, name, spoil, message):
    spoil(model_dir / name)
    with pytest.raises(ValueError, match=message):
        predict.run(settings(as_json(TEXTS)))


def test_an_option_that_is_given_is_not_blamed_on_the_folder(settings):
    with pytest.raises(ValueError, match=r"^`max_seq_length` must be at most 16,.* Received 17"):
        predict.run(settings(as_json(TEXTS), max_seq_length=17))
    with pytest.raises(ValueError, match=r"^`bert_config_file` must exist\. Received 'nowhere'"):
        predict.run(settings(as_json(TEXTS), bert_config_file="nowhere"))


ROWS = [
    {"id": "7", "text_a": "red round", "label": "yes"},
    {"id": "8", "text_a": 'a "red";\nblue, square', "label": "no"},
    {"id": "9", "text_a": "", "label": ""},
    {"id": "10", "text_a": "green\tround", "label": "yes"},
]


def write_table(path, rows, delimiter=","):
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), delimiter=delimiter)
        writer.writeheader()
        writer.writerows(rows)


def read_table(path, **options):
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, **options))


@pytest.fixture
def tables(tmp_path, model_dir):
    """Settings for a CSV of Excel's, and another output."""
    write_table(tmp_path / "in.csv", ROWS, ";")

    def make(output, **changes):
        given = {"input_file": str(tmp_path / "in.csv"), "separator": ";", "batch_size": 2}
        given["output_file"] = str(tmp_path / output)
        return predict.Settings(model_dir=str(model_dir), **{**given, **changes})

    return make


@pytest.mark.parametrize("output", ["out.csv", "out.jsonl", *exhaustive("out.tsv", "out.parquet")])
def test_answers_are_written_behind_all_columns_in_the_form_of_the_ending(
    tables, tmp_path, model_dir, output, log
):
    if output.endswith(".parquet"):
        parquet = pytest.importorskip("pyarrow.parquet")
    assert predict.run(tables(output)) == 4
    path = tmp_path / output
    if output.endswith(".csv"):
        # It has the separator of the input.
        found = read_table(path, delimiter=";")
    elif output.endswith(".tsv"):
        found = read_table(path, delimiter="\t", quoting=csv.QUOTE_NONE)
    elif output.endswith(".parquet"):
        found = parquet.read_table(path).to_pylist()
    else:
        found = read(path)
    is_table = not output.endswith(".jsonl")
    names = ["id", "text_a", "label", "label_predicted", *["probability"] * is_table]
    assert [*found[0]] == [*names, "probabilities"]
    breaks = str.maketrans("\t\n", "  ")
    spoiled = output.endswith(".tsv")
    for row, asked in zip(found, ROWS, strict=True):
        text = asked["text_a"].translate(breaks) if spoiled else asked["text_a"]
        assert [row[name] for name in asked] == [asked["id"], text, asked["label"]]
    expected = predict.load(str(model_dir)).predict([row["text_a"] for row in ROWS])
    for row, answer in zip(found, expected, strict=True):
        chances = json.loads(row["probabilities"]) if is_table else row["probabilities"]
        assert row["label_predicted"] == answer["label"]
        assert chances == pytest.approx(answer["probabilities"], abs=1e-6)
        if is_table:
            assert float(row["probability"]) == chances[answer["label"]]
    told = [message for message in log.messages if "Inputs have a value 'label'" in message]
    assert len(told) == 1


@pytest.mark.parametrize("output", ["out.parquet", *exhaustive("out.csv", "out.tsv")])
def test_rows_that_are_kept_are_gone_on_with_in_every_form(tables, tmp_path, output):
    if output.endswith(".parquet"):
        pytest.importorskip("pyarrow")
    # Alone in its batch, a row has the same bits whichever others there are.
    predict.run(tables(output, batch_size=1))
    whole = (tmp_path / output).read_bytes()
    (tmp_path / output).unlink()
    # A row that cannot be read, behind those that can.
    good = (tmp_path / "in.csv").read_text()
    (tmp_path / "in.csv").write_text(good.replace("10;", "10;1;"))
    with pytest.raises(ValueError, match=r"in\.csv:6: has 4 columns"):
        predict.run(tables(output, batch_size=1))
    (kept,) = tmp_path.glob("*.unfinished")
    (tmp_path / "in.csv").write_text(good)
    before = kept.read_bytes()
    assert b"red round" in before and b"green" not in before
    # What is half written is written anew.
    kept.write_bytes(before[:-9])
    predict.run(tables(output, batch_size=1))
    assert (tmp_path / output).read_bytes() == whole
    assert not [*tmp_path.glob("*.unfinished")]


def test_a_byte_order_mark_of_a_table_is_in_the_table_of_answers(tables, tmp_path, monkeypatch):
    predict.run(tables("plain.csv", batch_size=1))
    plain, mark = (tmp_path / "plain.csv").read_bytes(), codecs.BOM_UTF8
    (tmp_path / "in.csv").write_bytes(mark + (tmp_path / "in.csv").read_bytes())
    stop_at_once_behind(tables("out.csv", batch_size=1), 2, monkeypatch)
    predict.run(tables("out.csv", batch_size=1))
    assert (tmp_path / "out.csv").read_bytes() == mark + plain
    # The complete file has other columns in its header than the unfinished one.
    predict.run(tables("skip.csv", batch_size=1, on_error="skip"))
    assert (tmp_path / "skip.csv").read_bytes().startswith(mark + b"id;text_a;")
    predict.run(tables("out.jsonl"))
    assert (tmp_path / "out.jsonl").read_bytes().startswith(b'{"id": ')


def test_an_ending_means_the_same_in_capitals(tables, tmp_path):
    (tmp_path / "in.csv").rename(tmp_path / "IN.CSV")
    predict.run(tables("OUT.CSV", input_file=str(tmp_path / "IN.CSV")))
    rows = read_table(tmp_path / "OUT.CSV", delimiter=";")
    assert [row["id"] for row in rows] == [row["id"] for row in ROWS]


@pytest.mark.parametrize("output", ["out.xlsx", "out.csv.gz", "out.parquet.gz", "out.jsonl.gz"])
def test_a_form_that_is_not_written_is_refused_before_all_else(tables, model_dir, output):
    (model_dir / "bert_model.ckpt.data-00000-of-00001").unlink()
    with pytest.raises(ValueError, match=r"`output_file` must end in \.csv.*out\."):
        predict.run(tables(output))


def test_an_empty_table_is_told_as_such(tables, tmp_path):
    (tmp_path / "in.csv").write_bytes(b"")
    with pytest.raises(ValueError, match=r"in\.csv' must hold a header .* It is empty\.$"):
        predict.run(tables("out.csv"))


def test_in_a_table_what_has_no_answer_has_an_error(tables, tmp_path):
    text = (tmp_path / "in.csv").read_text()
    (tmp_path / "in.csv").write_text(text.replace("9;", "9;1;2;3"))
    assert predict.run(tables("out.csv", on_error="skip")) == 4
    rows = read_table(tmp_path / "out.csv", delimiter=";")
    assert [bool(row["error"]) for row in rows] == [False, False, True, False]
    assert rows[2]["label_predicted"] == "" and "has 5 columns" in rows[2]["error"]


def test_objects_become_a_table_of_all_their_keys(tables, tmp_path):
    rows = [{"text_a": "red"}, {"text_a": "blue", "more": [1, {"a": None}], "sure": True}]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    predict.run(tables("out.csv", input_file=str(tmp_path / "in.jsonl"), separator=None))
    first, second = read_table(tmp_path / "out.csv")
    assert [*first][:4] == ["text_a", "more", "sure", "label"]
    assert (first["more"], first["sure"]) == ("", "")
    assert (second["more"], second["sure"]) == ('[1, {"a": null}]', "true")


def test_columns_are_those_of_the_training(tables, tmp_path, model_dir):
    task = json.loads((model_dir / "task.json").read_text())
    columns = {"text_a_column": "remark", "label_column": "label", "separator": ";"}
    (model_dir / "task.json").write_text(json.dumps({**task, "columns": columns}))
    write_table(tmp_path / "in.csv", [{"n": "1", "remark": "red"}], ";")
    predict.run(tables("out.jsonl", separator=None))
    assert read(tmp_path / "out.jsonl")[0]["remark"] == "red"
    # Where there are none of these, the task's own names will do.
    write_table(tmp_path / "in.csv", [{"text_a": "blue"}], ";")
    predict.run(tables("other.jsonl", separator=None))
    assert read(tmp_path / "other.jsonl")[0]["text_a"] == "blue"
    numbers = {"text_a_column": "1", "label_column": "0"}
    (model_dir / "task.json").write_text(json.dumps({**task, "columns": numbers}))
    (tmp_path / "in.tsv").write_text("yes\tred round\nno\tblue\n")
    predict.run(tables("third.jsonl", input_file=str(tmp_path / "in.tsv"), separator=None))
    assert [row["column_1"] for row in read(tmp_path / "third.jsonl")] == ["red round", "blue"]


def test_parquet_keeps_its_columns_as_they_are(tables, tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    day = datetime.datetime(2024, 2, 29)
    table = pyarrow.table({"day": [day, None], "text_a": ["red", "blue"], "n": [[1], [2, 3]]})
    parquet.write_table(table, tmp_path / "in.parquet")
    predict.run(tables("out.parquet", input_file=str(tmp_path / "in.parquet"), separator=None))
    found = parquet.read_table(tmp_path / "out.parquet")
    assert found.select(["day", "text_a", "n"]).equals(table)
    assert found.column_names[3:] == ["label", "probability", "probabilities"]
    # What a file is does not depend on its name, where flags say it.
    named = tmp_path / "in.jsonl"
    (tmp_path / "in.parquet").rename(named)
    predict.run(tables("2.parquet", input_file=str(named), separator=None, input_format="parquet"))
    assert parquet.read_table(tmp_path / "2.parquet").equals(found)
    named = tmp_path / "in.parquet"
    named.write_text('{"text_a": "red"}\n{"text_a": "blue"}\n')
    predict.run(tables("3.parquet", input_file=str(named), separator=None, input_format="jsonl"))
    assert parquet.read_table(tmp_path / "3.parquet").equals(found.drop(["day", "n"]))
    # It is not read from its beginning to its end.
    with pytest.raises(ValueError, match=r"`input_file` must be a file for .*parquet"):
        predict.run(tables("4.jsonl", input_file="-", separator=None, input_format="parquet"))


def stop_at_once_behind(settings, count, monkeypatch):
    """Runs until so many lines are kept."""
    write = ResumableFile.write

    def stop(self, line):
        if self.count == count:
            raise KeyboardInterrupt
        write(self, line)

    with monkeypatch.context() as patched:
        patched.setattr(ResumableFile, "write", stop)
        with pytest.raises(KeyboardInterrupt):
            predict.run(settings)


@pytest.mark.parametrize(
    ("count", "shard", "left"),
    [(64, "1/1", ["0:02:00", "0:01:00"]), (70, None, ["0:02:04", "0:01:01"])],
)
def test_the_time_to_go_is_of_what_is_left(settings, monkeypatch, log, count, shard, left):
    made = settings(as_json(["red red"] * 160), shard=shard)
    stop_at_once_behind(made, count, monkeypatch)
    # Each chunk of 32 inputs takes a minute, as it reads the clock three times.
    seconds = itertools.count(0, 20)
    clock = types.SimpleNamespace(monotonic=lambda: float(next(seconds)))
    monkeypatch.setattr(display, "time", clock)
    predict.run(made)
    shown = [each for each in log.messages if each.startswith("Answering")]
    assert shown == [f"Answering: {60 + 20 * n} %  ETA {each}" for n, each in enumerate(left)]


def test_answers_of_another_column_are_not_gone_on_with(tables, tmp_path, monkeypatch):
    rows = [{"title": text, "body": other} for text, other in zip(TEXTS, TEXTS[::-1], strict=True)]
    write_table(tmp_path / "in.csv", rows, ";")
    stop_at_once_behind(tables("out.jsonl", columns="body"), 9, monkeypatch)
    predict.run(tables("out.jsonl", columns="title"))
    predict.run(tables("whole.jsonl", columns="title"))
    assert (tmp_path / "out.jsonl").read_bytes() == (tmp_path / "whole.jsonl").read_bytes()


@pytest.mark.parametrize(
    ("output", "bad"),
    [
        ("out.jsonl", '{"text_a": null}'),
        ("out.csv", '{"text": "red"}'),
        *exhaustive(
            ("out.csv", '{"text_a": null}'),
            ("out.parquet", '{"text_a": null}'),
            ("out.jsonl", '{"text": "red"}'),
            ("out.parquet", '{"text": "red"}'),
        ),
    ],
)
def test_what_had_no_answer_is_asked_again(settings, tmp_path, monkeypatch, log, output, bad):
    """One that the reader refuses, and one that the model does."""
    if output.endswith(".parquet"):
        pytest.importorskip("pyarrow")
    lines = as_json(TEXTS)
    spoilt = [*lines[:5], bad, *lines[6:]]
    given = {"on_error": "skip", "batch_size": 1, "overwrite": True}
    given["output_file"] = str(tmp_path / output)
    predict.run(settings(spoilt, **given))
    whole = (tmp_path / output).read_bytes()
    stop_at_once_behind(settings(spoilt, **given), 20, monkeypatch)
    # It is still none, and told.
    log.clear()
    asked = []
    ask = predict.LoadedModel.predict

    def note(self, rows):
        asked.extend(rows)
        return ask(self, rows)

    monkeypatch.setattr(predict.LoadedModel, "predict", note)
    assert predict.run(settings(spoilt, **given)) == len(TEXTS)
    assert (tmp_path / output).read_bytes() == whole
    # Only this one, and the chunk within which the run ended with those behind it.
    assert len(asked) == len(TEXTS) - 16 + ("null" in bad)
    assert f"1 of {len(TEXTS)} inputs have no answer." in log.messages
    assert f"Answered {len(TEXTS) - 1} inputs." in log.messages
    # It is mended.
    stop_at_once_behind(settings(spoilt, **given), 20, monkeypatch)
    log.clear()
    assert predict.run(settings(lines, **given)) == len(TEXTS)
    assert f"Answered {len(TEXTS)} inputs." in log.messages
    mended = (tmp_path / output).read_bytes()
    predict.run(settings(lines, **given))
    assert (tmp_path / output).read_bytes() == mended


def read_any(path):
    if path.suffix == ".parquet":
        return pytest.importorskip("pyarrow.parquet").read_table(path).to_pylist()
    return read_table(path) if path.suffix == ".csv" else read(path)


@pytest.mark.parametrize("output", ["out.csv", *exhaustive("out.jsonl", "out.parquet")])
def test_whoever_goes_on_with_skip_keeps_all_answers(settings, tmp_path, monkeypatch, output):
    spoilt = [*as_json(TEXTS[:5]), '{"text_a": null}', *as_json(TEXTS[6:])]
    given = {"output_file": str(tmp_path / output)}
    with pytest.raises(ValueError, match=r"texts\.jsonl:6: .*on_error='skip'. continues"):
        predict.run(settings(spoilt, **given))
    [kept] = tmp_path.glob("*.unfinished")
    marked = kept.read_bytes().replace(b"yes", b"kept").replace(b"no", b"kept")
    kept.write_bytes(marked)
    stop_at_once_behind(settings(spoilt, on_error="skip", **given), 20, monkeypatch)
    longer = kept.read_bytes()
    assert longer.startswith(marked) and longer.count(b"\n") == marked.count(b"\n") + 15
    # Without it, the run ends at the same line as before, and takes nothing away.
    with pytest.raises(ValueError, match=r"texts\.jsonl:6: .*on_error='skip'. continues"):
        predict.run(settings(spoilt, **given))
    assert kept.read_bytes() == longer
    assert predict.run(settings(spoilt, on_error="skip", **given)) == len(TEXTS)
    labels = [row.get("label") or "" for row in read_any(tmp_path / output)]
    assert labels[:6] == ["kept"] * 5 + [""] and {*labels[6:]} <= {"yes", "no"}


def test_rows_under_another_header_stay_as_they_are(tables, tmp_path, monkeypatch):
    write_table(tmp_path / "in.csv", [{"n": n, "text_a": text} for n, text in enumerate(TEXTS)])
    stop_at_once_behind(tables("out.csv", separator=None), 9, monkeypatch)
    [kept] = tmp_path.glob("*.unfinished")
    before = kept.read_bytes()
    write_table(tmp_path / "in.csv", [{"m": n, "text_a": text} for n, text in enumerate(TEXTS)])
    predict.run(tables("out.csv", separator=None))
    assert kept.read_bytes() == before
    assert [*read_table(tmp_path / "out.csv")[0]][:3] == ["m", "text_a", "label"]


def test_a_table_elsewhere_is_that_of_a_local_file(tables, tmp_path):
    predict.run(tables("out.csv"))
    tf.io.gfile.makedirs("ram://test_predict")
    predict.run(tables("out.csv", output_file="ram://test_predict/out.csv"))
    with tf.io.gfile.GFile("ram://test_predict/out.csv", "rb") as file:
        assert file.read() == (tmp_path / "out.csv").read_bytes()


@pytest.mark.parametrize("output", ["out.jsonl", "out.csv", "out.parquet"])
def test_answers_and_errors_are_called_the_same_in_every_row(settings, tmp_path, output, log):
    if output.endswith(".parquet"):
        pytest.importorskip("pyarrow")
    rows = [
        {"text_a": "red"},
        {"text_a": None, "error": "mine"},
        {"text_a": "blue", "label": "gold"},
    ]
    given = {"output_file": str(tmp_path / output), "on_error": "skip"}
    predict.run(settings([json.dumps(row) for row in rows], **given))
    first, second, third = read_any(tmp_path / output)
    assert not first.get("label") and first["label_predicted"] in ("yes", "no")
    assert third["label"] == "gold" and third["label_predicted"] in ("yes", "no")
    assert "must have text as 'text_a'. Received None" in second["error_predicted"]
    assert second.get("error") == (None if output.endswith(".jsonl") else "mine")
    assert len([each for each in log.messages if "Inputs have a value 'label'" in each]) == 1


@pytest.mark.parametrize("odd", ["x", 2**63])
def test_columns_that_parquet_lacks_are_told_before_the_model_is_asked(settings, tmp_path, odd):
    pytest.importorskip("pyarrow")
    rows = [{"text_a": "red", "odd": 1}, {"text_a": "blue", "odd": odd}]
    made = settings(map(json.dumps, rows), output_file=str(tmp_path / "out.parquet"))
    with pytest.raises(ValueError, match=r"of one kind\. The column 'odd' of '.*texts\.jsonl'"):
        predict.run(made)
    # No answer is kept, for there was none.
    assert not [*tmp_path.glob("out.*")]


def test_a_column_of_errors_in_parquet_stays_as_it_is(tables, tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    table = pyarrow.table({"text_a": ["red", None], "error": ["mine", "too"]})
    parquet.write_table(table, tmp_path / "in.parquet")
    given = {"input_file": str(tmp_path / "in.parquet"), "separator": None, "on_error": "skip"}
    predict.run(tables("out.parquet", **given))
    found = parquet.read_table(tmp_path / "out.parquet")
    assert found.select(["text_a", "error"]).equals(table)
    good, bad = found["error_predicted"].to_pylist()
    assert good is None and "in.parquet:2: " in bad


@pytest.mark.parametrize("output", ["out.jsonl", "out.csv", "out.parquet"])
def test_on_standard_input_keys_that_come_too_late_are_an_error_of_their_row(
    settings, tmp_path, monkeypatch, output
):
    if output.endswith(".parquet"):
        pytest.importorskip("pyarrow")
    rows = [
        "?",
        '{"text_a": "red"}',
        '{"text_a": "blue", "label": "x"}',
        '{"text_a": null, "label": "x"}',
        '{"text_a": "green"}',
    ]
    content = "".join(f"{row}\n" for row in rows).encode()
    given = {"input_file": "-", "input_format": "jsonl", "on_error": "skip"}
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
    assert predict.run(settings([], output_file=str(tmp_path / output), **given)) == 5
    found = read_any(tmp_path / output)
    assert [bool(row.get("error")) for row in found] == [True, False, True, True, False]
    assert "standard input:3: must" in found[2]["error"] and "['label']" in found[2]["error"]
    assert not found[2].get("label") and found[4]["label"] in ("yes", "no")


@pytest.mark.parametrize(
    ("bad", "count"),
    [(b"b\xfflue;1", 1), (b'"blue;1', 40), *exhaustive((b'"blue" x;1', 40), (b'"blue;1', 1))],
)
def test_in_csv_a_row_that_is_none_is_a_bad_line_as_any_other(tables, tmp_path, bad, count):
    good = [b"%s;%d" % (text.encode(), number) for number, text in enumerate(TEXTS)]
    place = 7
    lines = [b"text_a;n", *good[:place], *[bad] * count, *good[place:], b'"green\nred";9']
    (tmp_path / "in.csv").write_bytes(b"".join(line + b"\n" for line in lines))
    with pytest.raises(ValueError, match=rf"in\.csv:{place + 2}: .*on_error='skip'. continues"):
        predict.run(tables("out.jsonl"))
    assert predict.run(tables("out.jsonl", on_error="skip")) == len(good) + count + 1
    found = read(tmp_path / "out.jsonl")
    errors = found[place : place + count]
    assert [each["line"] for each in errors] == [*range(place + 2, place + 2 + count)]
    answered = [*found[:place], *found[place + count :]]
    assert [each["text_a"] for each in answered] == [*TEXTS, "green\nred"]


def test_shards_count_rows_that_are_none(tables, tmp_path):
    lines = [b"text_a;n", *[b"red;1"] * 40, b'"blue;1', b"\xff;1", *[b"green;1"] * 40]
    (tmp_path / "in.csv").write_bytes(b"".join(line + b"\n" for line in lines))
    predict.run(tables("whole.jsonl", on_error="skip"))
    for number in (1, 2):
        predict.run(tables(f"{number}.jsonl", on_error="skip", shard=f"{number}/2"))
    parts = [(tmp_path / f"{number}.jsonl").read_bytes() for number in (1, 2)]
    assert b"".join(parts) == (tmp_path / "whole.jsonl").read_bytes()
    assert sum(part.count(b"\n") for part in parts) == 82

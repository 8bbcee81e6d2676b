import codecs
import csv
import io
import json

import pytest

from bert.files.row_writer import (
    JsonLines,
    Names,
    ParquetLines,
    Table,
    flat_names,
    probability_of,
)
from bert.files.texts import Input

ANSWER = {"label": "yes"}
# Numbers that JSON lacks, as Parquet has them.
ODD = {"text": "a", "n": float("nan"), "more": [float("inf"), {"x": float("nan")}]}


def make_input(cells, line=1):
    return Input(line, 0.0, cells, cells)


@pytest.mark.parametrize("kind", ["json", "parquet"])
def test_a_saved_line_is_the_answer_to_its_input_only(kind):
    if kind == "parquet":
        pytest.importorskip("pyarrow")
    names = Names.of([*ODD], [*ANSWER])
    form = JsonLines(names) if kind == "json" else ParquetLines(names, "in.jsonl")
    line = form.answer(make_input(ODD), ANSWER)
    assert form.belongs(line, make_input(ODD))
    for other in ({"n": 1.0}, {"more": []}, {"text": "b"}, {"new": None}):
        assert not form.belongs(line, make_input({**ODD, **other}))
    assert not form.belongs(line, make_input({"text": "a"}))
    assert not form.belongs(form.refusal(make_input(ODD), "why"), make_input(ODD))


def test_parquet_has_a_column_of_errors_if_there_may_be_errors(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    names = Names.of(["text"], [*ANSWER])
    for problem in ("", "why"):
        form = ParquetLines(names, "in.jsonl", has_errors=True)
        given = make_input({"text": "a"})
        line = form.refusal(given, problem) if problem else form.answer(given, ANSWER)
        with open(tmp_path / "x", "wb") as file:
            form.make(io.BytesIO(line), file)
        found = parquet.read_table(tmp_path / "x")
        assert found.column_names == ["text", "label", "error"]
        assert found["error"].to_pylist() == [problem or None]


def test_names_of_answers_and_errors_are_those_of_nothing_else():
    names = Names.of(["label", "error"], ["label", "error", "score"])
    assert names.answers == {
        "label": "label_predicted",
        "error": "error_predicted",
        "score": "score",
    }
    assert names.added == [*names.answers.values(), "error_predicted_predicted"]
    assert Names.of(["text"], ["error"]).error == "error_predicted"


def test_an_input_may_have_no_key_that_answers_or_errors_have():
    form = JsonLines(Names.of(["text"], [*ANSWER]))
    for name in ("label", "error"):
        assert repr(name) in form.find_problem(make_input({"text": "a", name: 1}))
    for cells in ({"text": "a", "other": 1}, {}, None):
        assert form.find_problem(make_input(cells)) == ""


CHANCES = {"no": 0.2, "yes": 0.5, "perhaps": 0.3}


def test_a_table_has_the_probability_of_the_likeliest_label():
    names = Names.of(["text"], flat_names(["label", "probabilities"]))
    assert names.added == ["label", "probability", "probabilities", "error"]
    given, answer = make_input({"text": "a"}), {"label": "yes", "probabilities": CHANCES}
    expected = ["yes", "0.5", json.dumps(CHANCES)]
    line = Table(names, ",", has_errors=False).answer(given, answer)
    assert next(csv.reader([line.decode()])) == ["a", *expected, ""]
    found = json.loads(ParquetLines(names, "in.jsonl").answer(given, answer))
    # What has columns of its own is a text.
    assert [*map(str, found.values())] == ["a", *expected]
    assert found["probability"] == 0.5
    assert probability_of({"probabilities": [*CHANCES.values()]}) == 0.5
    assert probability_of({"probability": 0.1}) == 0.1


def test_a_line_of_parquet_without_an_answer_has_no_cell_of_an_answers_name():
    form = ParquetLines(Names.of(["text"], [*ANSWER]), "in.jsonl", has_errors=True)
    line = form.refusal(make_input({"text": "a", "label": 7, "error": 8}), "why")
    assert json.loads(line) == {"text": "a", "error": "why"}


@pytest.mark.parametrize("separator", [",", "\t"])
def test_a_saved_row_is_the_answer_to_its_input_only(separator):
    form = Table(Names.of(["text", "n"], [*ANSWER]), separator, has_errors=True)
    given = {"text": "a, b", "n": "1"}
    line = form.answer(make_input(given), ANSWER)
    assert form.belongs(line, make_input(given))
    # That of a longer text begins as it does.
    for other in ({"n": "12"}, {"n": ""}, {"text": "a"}, {"text": "a, bc"}):
        assert not form.belongs(line, make_input({**given, **other}))
        assert not form.belongs(
            form.answer(make_input({**given, **other}), ANSWER), make_input(given)
        )
    assert not form.belongs(form.refusal(make_input(given), "why"), make_input(given))
    blank = form.answer(make_input({"text": "", "n": ""}), ANSWER)
    assert form.belongs(blank, make_input({"text": "", "n": ""}))
    assert not form.belongs(blank, make_input(None))


@pytest.mark.parametrize("has_errors", [False, True])
def test_a_table_keeps_its_byte_order_mark(has_errors):
    form = Table(Names.of(["text"], [*ANSWER]), ",", has_errors=has_errors, has_mark=True)
    content = form.header + form.answer(make_input({"text": "a"}), ANSWER)
    whole = io.BytesIO(b"" if form.make else content)
    if form.make:
        form.make(io.BytesIO(content), whole)
    rows = list(csv.reader(io.StringIO(whole.getvalue().decode("utf-8-sig"))))
    assert whole.getvalue().startswith(codecs.BOM_UTF8)
    assert [row[:2] for row in rows] == [["text", "label"], ["a", "yes"]]
    assert {len(row) for row in rows} == {2 + has_errors}


ROWS = [{"text": 'a "b";', "n": "1"}, {"text": "two\nlines;", "n": ""}, {"text": "", "n": ""}]


@pytest.mark.parametrize("separator", [";", "\t"])
def test_unfinished_rows_are_the_same_with_and_without_a_column_of_errors(separator):
    names = Names.of([*ROWS[0]], [*ANSWER])
    with_errors, without = (Table(names, separator, has_errors=each) for each in (True, False))
    kept = [with_errors.header, *(with_errors.answer(make_input(row), ANSWER) for row in ROWS)]
    assert kept == [without.header, *(without.answer(make_input(row), ANSWER) for row in ROWS)]
    for line, row in zip(kept[1:], ROWS, strict=True):
        assert with_errors.belongs(line, make_input(row)) and without.belongs(line, make_input(row))
    assert with_errors.make is None
    whole = io.BytesIO()
    without.make(io.BytesIO(b"".join(kept)), whole)
    columns = Table(Names(names.inputs, {}, "label"), separator, has_errors=True)
    beginnings = [columns.header, *(columns.refusal(make_input(row), "yes") for row in ROWS)]
    assert whole.getvalue() == b"".join(beginnings)
    # A part behind the first has no header.
    part = io.BytesIO()
    without.make(io.BytesIO(b"".join(kept[1:])), part)
    assert part.getvalue() == b"".join(beginnings[1:])


def test_python_reads_every_row_of_csv_with_any_line_break():
    names = Names.of(["text"], [*ANSWER])
    texts = ["one\rtwo", "\r", "one\r\ntwo", "one\ntwo", "one\u2028two", "", 'a "b",', "plain"]
    form = Table(names, ",", has_errors=True)
    lines = [form.answer(make_input({"text": text}), ANSWER) for text in texts]
    assert lines[-1] == b"plain,yes,\n"
    file = io.StringIO(b"".join(lines).decode(), newline="")
    assert list(csv.reader(file)) == [[text, "yes", ""] for text in texts]
    assert [*form.records(io.BytesIO(b"".join(lines)))] == lines

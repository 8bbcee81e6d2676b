import codecs
import csv
import io
import json
import re

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


def made(form, *lines):
    """Returns the complete file of lines."""
    file = io.BytesIO()
    form.make(io.BytesIO(b"".join(lines)), file)
    return file.getvalue()


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


def test_an_input_has_no_key_without_a_column():
    names = Names.of(["text"], [*ANSWER])
    for form in (Table(names, ",", has_errors=True), ParquetLines(names, "-")):
        for name in ("other", "label"):
            problem = form.find_problem(make_input({"text": "a", name: 1}))
            assert problem.startswith("must have the keys of the first input, ['text']")
            assert repr(name) in problem
        for cells in ({"text": "a"}, {}, None):
            assert form.find_problem(make_input(cells)) == ""


CHANCES = {"no": 0.2, "yes": 0.5, "perhaps": 0.3}


def test_a_table_has_the_probability_of_the_likeliest_label():
    names = Names.of(["text"], flat_names(["label", "probabilities"]))
    assert names.added == ["label", "probability", "probabilities", "error"]
    given, answer = make_input({"text": "a"}), {"label": "yes", "probabilities": CHANCES}
    expected = ["yes", "0.5", json.dumps(CHANCES)]
    line = ParquetLines(names, "in.jsonl").answer(given, answer)
    found = json.loads(line)
    # What has columns of its own is a text.
    assert [*map(str, found.values())] == ["a", *expected]
    assert found["probability"] == 0.5
    table = Table(names, ",", has_errors=False)
    assert table.answer(given, answer) == line
    assert [*csv.reader(io.StringIO(made(table, line).decode()))][1] == ["a", *expected]
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
    whole = made(form, form.answer(make_input({"text": "a"}), ANSWER))
    rows = list(csv.reader(io.StringIO(whole.decode("utf-8-sig"))))
    assert whole.startswith(codecs.BOM_UTF8)
    assert [row[:2] for row in rows] == [["text", "label"], ["a", "yes"]]
    assert {len(row) for row in rows} == {2 + has_errors}


ROWS = [{"text": 'a "b";', "n": "1"}, {"text": "two\nlines;", "n": ""}, {"text": "", "n": ""}]
# With the cells of errors, each after the bar.
TABLES = {
    ";": b"""text;n;label|;error
"a ""b"";";1;yes|;
"two\nlines;";;yes|;
;;yes|;
"a ""b"";";1;|;why
""",
    "\t": b"""text\tn\tlabel|\terror
a "b";\t1\tyes|\t
two lines;\t\tyes|\t
\t\tyes|\t
a "b";\t1\t|\twhy
""",
}


@pytest.mark.parametrize("separator", [";", "\t"])
def test_unfinished_rows_are_the_same_with_and_without_a_column_of_errors(separator):
    names = Names.of([*ROWS[0]], [*ANSWER])
    with_errors, without = (Table(names, separator, has_errors=each) for each in (True, False))
    kept = [with_errors.answer(make_input(row), ANSWER) for row in ROWS]
    assert kept == [without.answer(make_input(row), ANSWER) for row in ROWS]
    for line, row in zip(kept, ROWS, strict=True):
        assert with_errors.belongs(line, make_input(row)) and without.belongs(line, make_input(row))
    kept.append(with_errors.refusal(make_input(ROWS[0]), "why"))
    whole = re.sub(rb"\|.*", b"", TABLES[separator])
    assert made(with_errors, *kept) == TABLES[separator].replace(b"|", b"")
    assert made(without, *kept) == whole
    # A part behind the first has no header.
    part = Table(names, separator, has_errors=False, has_header=False)
    assert made(part, *kept) == whole.partition(b"\n")[2]
    assert made(part) == b""


def test_python_reads_every_row_of_csv_with_any_line_break():
    names = Names.of(["text"], [*ANSWER])
    texts = ["one\rtwo", "\r", "one\r\ntwo", "one\ntwo", "one\u2028two", "", 'a "b",', "plain"]
    form = Table(names, ",", has_errors=True, has_header=False)
    whole = made(form, *(form.answer(make_input({"text": text}), ANSWER) for text in texts))
    assert whole.endswith(b"\nplain,yes,\n")
    file = io.StringIO(whole.decode(), newline="")
    assert list(csv.reader(file)) == [[text, "yes", ""] for text in texts]

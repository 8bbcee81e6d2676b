import csv
import io

import pytest

from bert.files.inputs import Input
from bert.files.row_writer import JsonLines, Names, ParquetLines, Table

ANSWER = {"label": "yes"}
# Numbers that JSON lacks, as Parquet has them.
ODD = {"text": "a", "n": float("nan"), "more": [float("inf"), {"x": float("nan")}]}


def asked(cells, line=1):
    return Input(line, 0.0, cells, cells)


@pytest.mark.parametrize("kind", ["json", "parquet"])
def test_a_kept_line_belongs_to_its_input_and_to_no_other(kind):
    if kind == "parquet":
        pytest.importorskip("pyarrow")
    names = Names.of([*ODD], [*ANSWER])
    form = JsonLines(names) if kind == "json" else ParquetLines(names, "in.jsonl", "out.parquet")
    line = form.answer(asked(ODD), ANSWER)
    assert form.belongs(line, asked(ODD))
    for other in ({"n": 1.0}, {"more": []}, {"text": "b"}, {"new": None}):
        assert not form.belongs(line, asked({**ODD, **other}))
    assert not form.belongs(line, asked({"text": "a"}))
    assert not form.belongs(form.refusal(asked(ODD), "why"), asked(ODD))


def test_parquet_has_the_column_of_errors_wherever_they_may_be(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    names = Names.of(["text"], [*ANSWER])
    for problem in ("", "why"):
        form = ParquetLines(names, "in.jsonl", "out.parquet", has_errors=True)
        given = asked({"text": "a"})
        line = form.refusal(given, problem) if problem else form.answer(given, ANSWER)
        with open(tmp_path / "x", "wb") as file:
            form.make(io.BytesIO(line), file)
        found = parquet.read_table(tmp_path / "x")
        assert found.column_names == ["text", "label", "error"]
        assert found["error"].to_pylist() == [problem or None]


ROWS = [{"text": 'a "b";', "n": "1"}, {"text": "two\nlines;", "n": ""}, {"text": "", "n": ""}]


@pytest.mark.parametrize("separator", [";", "\t"])
def test_rows_are_kept_the_same_whether_errors_have_a_column_or_not(separator):
    names = Names.of([*ROWS[0]], [*ANSWER])
    with_errors, without = (Table(names, separator, has_errors=each) for each in (True, False))
    kept = [with_errors.header, *(with_errors.answer(asked(row), ANSWER) for row in ROWS)]
    assert kept == [without.header, *(without.answer(asked(row), ANSWER) for row in ROWS)]
    for line, row in zip(kept[1:], ROWS, strict=True):
        assert with_errors.belongs(line, asked(row)) and without.belongs(line, asked(row))
    assert with_errors.make is None
    whole = io.BytesIO()
    without.make(io.BytesIO(b"".join(kept)), whole)
    columns = Table(Names(names.inputs, {}, "label"), separator, has_errors=True)
    beginnings = [columns.header, *(columns.refusal(asked(row), "yes") for row in ROWS)]
    assert whole.getvalue() == b"".join(beginnings)
    # A part behind the first has no header.
    part = io.BytesIO()
    without.make(io.BytesIO(b"".join(kept[1:])), part)
    assert part.getvalue() == b"".join(beginnings[1:])


def test_others_read_every_row_of_csv_whatever_breaks_its_lines():
    names = Names.of(["text"], [*ANSWER])
    texts = ["one\rtwo", "\r", "one\r\ntwo", "one\ntwo", "one\u2028two", "", 'a "b",', "plain"]
    form = Table(names, ",", has_errors=True)
    lines = [form.answer(asked({"text": text}), ANSWER) for text in texts]
    assert lines[-1] == b"plain,yes,\n"
    file = io.StringIO(b"".join(lines).decode(), newline="")
    assert list(csv.reader(file)) == [[text, "yes", ""] for text in texts]
    assert [*form.records(io.BytesIO(b"".join(lines)))] == lines

import gzip

import pytest

from bert.files.rows import format_of
from bert.files.texts import TextColumns, Texts


def read(path, form=None, text_column=None, id_column=None, separator=None):
    columns = TextColumns(
        input_format=form, text_column=text_column, id_column=id_column, separator=separator
    )
    return list(Texts([str(path)], columns))


def texts_of(path, *arguments):
    return [given.texts for given in read(path, *arguments)]


def test_lines_are_texts_and_pairs_blank_ones_too(tmp_path):
    (tmp_path / "x.txt").write_text("a,b\n\none ||| two\n")
    assert texts_of(tmp_path / "x.txt") == [("a,b", ""), ("", ""), ("one", "two")]
    assert [given.text for given in read(tmp_path / "x.txt")] == ["a,b", "", "one ||| two"]


def test_a_table_is_recognized_by_its_extension(tmp_path):
    (tmp_path / "x.csv").write_text('id,text\n1,"a, b\nand ""c"""\n\n2,d\n')
    found = read(tmp_path / "x.csv", None, None, "id")
    assert [(given.texts[0], given.id) for given in found] == [('a, b\nand "c"', "1"), ("d", "2")]
    assert [given.place.rpartition(":")[2] for given in found] == ["2", "5"]
    lines = texts_of(tmp_path / "x.csv", "lines")
    assert lines[0] == ("id,text", "")
    assert format_of("x.jsonl.gz") == "jsonl"
    assert format_of("x.csv.txt") == "lines"
    assert [format_of(name) for name in ("X.CSV", "x.Tsv.GZ", "x.json")] == ["csv", "tsv", "jsonl"]


def test_packed_tables_are_read(tmp_path):
    (tmp_path / "x.tsv.gz").write_bytes(gzip.compress(b"sentence\tlabel\none, two\t3\n"))
    assert texts_of(tmp_path / "x.tsv.gz") == [("one, two", "")]


def test_columns_are_the_default_ones_or_the_named_ones(tmp_path):
    (tmp_path / "x.tsv").write_text("text_a\ttext_b\tc\n1\t2\t3\n")
    assert texts_of(tmp_path / "x.tsv") == [("1", "2")]
    assert texts_of(tmp_path / "x.tsv", None, "c,text_a") == [("3", "1")]
    assert texts_of(tmp_path / "x.tsv", None, "c") == [("3", "")]
    (tmp_path / "x.csv").write_text('id;text\n1;"a;b"\n')
    assert texts_of(tmp_path / "x.csv", None, None, "id", ";") == [("a;b", "")]
    (tmp_path / "x.tsv").write_text('text\tid\n"a" b\t1\n"c"\t2\n')
    for separator in (None, "tab"):
        assert texts_of(tmp_path / "x.tsv", None, None, "id", separator) == [
            ('"a" b', ""),
            ('"c"', ""),
        ]
    (tmp_path / "y.tsv").write_text("review\nfine\n")
    assert texts_of(tmp_path / "y.tsv") == [("fine", "")]


def test_names_in_a_header_have_no_spaces_around_them(tmp_path):
    (tmp_path / "x.csv").write_text("id, text \n1, one\n")
    [found] = read(tmp_path / "x.csv", None, None, "id")
    assert (found.texts, found.id) == ((" one", ""), "1")


@pytest.mark.parametrize(
    ("name", "text", "arguments", "message"),
    [
        ("x.tsv", "\n \n", (None, "a"), r"x\.tsv' must hold a header and the rows"),
        ("x.csv", "a,b\n1,2\n", (), r"`text_column` must name.*columns are \['a', 'b'\]"),
        ("x.csv", "a,b\n1,2\n", (None, "c"), r"columns \['c'\], .*Received \['a', 'b'\]"),
        ("x.csv", "a,b\n1,2\n", (None, "a", "n"), r"must have the columns \['a', 'n'\]"),
        ("x.csv", "a,a\n1,2\n", (None, "a"), r"must have 'a' once"),
        ("x.csv", "a,b\n1,2\n", (None, "a,b,a"), "must name the column of the texts"),
        ("x.csv", "a;text\n1;2\n", (), "';' separates the columns: give `separator=';'`"),
        ("x.csv", "a;b\n1;2\n", (None, "b"), "';' separates the columns: give `separator=';'`"),
        ("x.csv", 'a,b\n"1,2\n', (None, "a"), r"x\.csv:2: a cell that begins with a quote"),
        ("x.tsv", "a\tb\n1\n", (None, "b"), r"x\.tsv:2: has 1 column, but the first line has 2"),
        ("x.csv", "a,b\n1,2\n3\n4,5\n", (None, "a"), r"x\.csv:3: has 1 column, .* within quotes"),
        ("x.csv", "text\nno, never\n", (), r"x\.csv:2: has 2 columns, .* within quotes"),
        ("x.jsonl", '{"text": 1}\n', (), r"x\.jsonl:1: must have text as 'text'. Received 1"),
        ("x.jsonl", '{"text": "a"}\n{}\n', (), r"x\.jsonl:2: must have a value of 'text'"),
        ("x.jsonl", "[1]\n", (), "must be a JSON object"),
        ("x.txt", "a\n", (None, None, "n"), "`id_column='n'` must be that of a table"),
    ],
)
def test_a_missing_column_or_text_is_named_with_its_place(tmp_path, name, text, arguments, message):
    (tmp_path / name).write_text(text)
    with pytest.raises(ValueError, match=message):
        read(tmp_path / name, *arguments)

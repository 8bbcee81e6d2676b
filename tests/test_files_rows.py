import bz2
import csv
import gzip
import io
import json
import lzma
import re
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert.files.row_writer import write_tsv
from bert.files.rows import find_separator, load_rows, open_table, text_lines
from bert.files.texts import clean_line, find_texts, split_pair

# Written without quotes where lines end with LF, a carriage return before it is part of the end.
cells = st.text(st.characters(exclude_characters="\r\0", codec="utf-8"), max_size=8)


def read(path, content):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return load_rows(str(path))


def is_blank(row):
    return not "".join(row).strip()


@given(st.lists(st.lists(cells, min_size=1, max_size=4), min_size=1, max_size=6), st.booleans())
def test_csv_gives_back_what_python_wrote(tmp_path_factory, table, quote_all):
    buffer = io.StringIO(newline="")
    quoting = csv.QUOTE_ALL if quote_all else csv.QUOTE_MINIMAL
    csv.writer(buffer, lineterminator="\n", quoting=quoting).writerows(table)
    rows = read(tmp_path_factory.mktemp("csv") / "t.csv", buffer.getvalue())
    # A single cell without text is quoted, and no blank line.
    assert [row.cells for row in rows] == [row for row in table if row == [""] or not is_blank(row)]


@given(st.lists(st.lists(cells.filter(lambda cell: not set(cell) & set("\t\n")), min_size=1)))
def test_tsv_cells_are_between_tabs(tmp_path_factory, table):
    content = "".join("\t".join(row) + "\n" for row in [["head"], *table])
    rows = read(tmp_path_factory.mktemp("tsv") / "t.tsv", content)
    assert rows[1:] == [
        (number, row) for number, row in enumerate(table, start=2) if not is_blank(row)
    ]


@pytest.mark.parametrize(
    ("content", "rows"),
    [
        ("a,b\n", [(1, ["a", "b"])]),
        ('"a,b",c', [(1, ["a,b", "c"])]),
        ('"a ""b"" c",d\n', [(1, ['a "b" c', "d"])]),
        ('"a\r\nb\n",c\r\nd,e\r\n', [(1, ["a\r\nb\n", "c"]), (4, ["d", "e"])]),
        ('"a\n\nb",c\n', [(1, ["a\n\nb", "c"])]),
        ('a 5" disk,"x"\n', [(1, ['a 5" disk', "x"])]),
        ('"",""\na,\n', [(2, ["a", ""])]),
        ('"a"\n,b\n', [(1, ["a"]), (2, ["", "b"])]),
        ('""""\n', [(1, ['"'])]),
        ('"""a"",\n""",b\n', [(1, ['"a",\n"', "b"])]),
        ('a\rb,"c\rd"\r\ne\n', [(1, ["a\rb", "c\rd"]), (2, ["e"])]),
    ],
)
def test_csv_has_quotes_and_line_breaks(tmp_path, content, rows):
    assert read(tmp_path / "t.csv", content) == rows


def test_cells_may_be_of_any_length(tmp_path):
    limit = csv.field_size_limit()
    text = "long " * limit
    assert read(tmp_path / "t.csv", f'{text},"{text}"\n') == [(1, [text, text])]
    assert csv.field_size_limit() == limit


def test_a_long_first_line_without_a_closing_quote_is_an_error_of_the_row(tmp_path):
    with pytest.raises(ValueError, match=r"t\.csv:1: a cell that begins with a quote must end"):
        read(tmp_path / "t.csv", '"' + "b" * 200_000 + ",a\nc,d\n")


def test_a_nul_in_the_first_line_is_read_or_an_error_of_the_row(tmp_path):
    path = tmp_path / "t.csv"
    path.write_bytes(b"text,label\0x\na,b\n")
    # Python 3.10 reads no NUL, later ones do.
    if sys.version_info >= (3, 11):
        assert load_rows(str(path))[0].cells == ["text", "label\0x"]
    else:
        with pytest.raises(ValueError, match=r"t\.csv:1: .*line contains NUL"):
            load_rows(str(path))


def test_quotes_are_text_in_tsv(tmp_path):
    assert read(tmp_path / "t.tsv", 'a "b\t"c\n')[0].cells == ['a "b', '"c']


@pytest.mark.parametrize("ending", ["tsv", "csv", "jsonl"])
def test_byte_order_marks_line_ends_and_blank_lines_are_no_text(tmp_path, log, ending):
    row = '{"a": "x"}' if ending == "jsonl" else "a"
    plain = read(tmp_path / f"plain.{ending}", f"{row}\n{row}\n")
    assert not log.messages
    content = f"\ufeff{row}\r\n\r\n \n{row}\r\n\n".encode()
    path = tmp_path / f"t.{ending}"
    assert [row.cells for row in read(path, content)] == [row.cells for row in plain]
    assert log.messages == [f"{path}: skipped 3 blank lines, the first is line 2."]
    assert load_rows(str(path))[1].line == 4
    # A file that is read again has no more of them.
    assert len(log.messages) == 1
    assert read(path, gzip.compress(content))[1].line == 4


@pytest.mark.parametrize(
    ("path", "given", "separator"),
    [
        *(("x.TSV", None, "\t"), ("x.tsv.gz", None, "\t"), ("x.csv", None, ","), ("x", None, ",")),
        *(("x.csv", "tab", "\t"), ("x.csv", "\\t", "\t"), ("x.tsv", "semicolon", ";")),
        *(("x.tsv", "comma", ","), ("x.csv", "space", " "), ("x.csv", "|", "|")),
    ],
)
def test_a_separator_is_that_of_the_extension_or_the_given_one(path, given, separator):
    assert find_separator(path, given) == separator


@pytest.mark.parametrize("given", ["", '"', "\n", "\r", ";;", "pipe"])
def test_what_separates_no_columns_is_refused(given):
    message = "must be one character, such as ';' or '|', or its name: tab, comma, semicolon, space"
    with pytest.raises(ValueError, match=re.escape(message)):
        find_separator("x.csv", given)


def test_standard_input_may_be_empty(monkeypatch):
    for content, lines in ((b"", []), (b"a\n\nb", [(1, "a"), (2, ""), (3, "b")])):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
        assert [*text_lines("-")] == lines


def test_a_written_cell_has_no_line_break(tmp_path):
    path = tmp_path / "t.tsv"
    breaks = [chr(code) for code in range(0x3000) if len(f"a{chr(code)}b".splitlines()) > 1]
    write_tsv(str(path), [["head", ""], ["".join(["a\t\tb\r\n", *breaks]), "\ud800 \xa0"]])
    assert path.read_bytes() == "head\t\na b \t? \xa0\n".encode()
    assert load_rows(str(path))[1].cells == ["a b ", "? \xa0"]


def test_line_separators_of_unicode_do_not_end_lines(tmp_path):
    text = "a\u2028b\u0085c\x0bd\x0ce\x1cf"
    assert read(tmp_path / "t.tsv", f"{text}\tx\n") == [(1, [text, "x"])]
    assert read(tmp_path / "t.csv", f'"{text}",x\n') == [(1, [text, "x"])]
    line = json.dumps({"a": text}, ensure_ascii=False)
    assert read(tmp_path / "t.jsonl", f"{line}\n") == [(1, {"a": text})]


# Ending, content, and the message less the path; "{path}" stands where it is in the middle.
WRONG = [
    ("tsv", b"", "'{path}' must hold rows. Received an empty file."),
    (
        "tsv",
        b"a\nb\xe9te\tx\n",
        "{path}:2: text must be UTF-8. Received b'b\\xe9te\\tx\\n'. Convert the file, if it is "
        "Latin-1 with `iconv -f LATIN1 -t UTF-8`, if it is Chinese perhaps with `-f GB18030`.",
    ),
    (
        "csv",
        "a,b\n".encode("utf-16"),
        "'{path}' must be UTF-8 text. It is UTF-16: convert it, as with `iconv -f UTF-16 -t "
        "UTF-8`.",
    ),
    (
        "csv",
        b'a,b\n"c,d\ne,f\n',
        "{path}:2: a cell that begins with a quote must end with one, and quotes within it must be "
        "doubled. Received '\"c,d' (unexpected end of data, on line 3).",
    ),
    (
        "csv",
        b'a,b\n"c\nd","e\nf\n',
        "{path}:2: a cell that begins with a quote must end with one, and quotes within it must be "
        "doubled. Received '\"c' (unexpected end of data, on line 4).",
    ),
    (
        "csv",
        b'a,b\n"c,d\ne,"f"\n',
        "{path}:2: a cell that begins with a quote must end with one, and quotes within it must be "
        "doubled. Received '\"c,d' (',' expected after '\"', on line 3).",
    ),
    (
        "csv",
        b'"a "quote" b",1\n',
        "{path}:1: a cell that begins with a quote must end with one, and quotes within it must be "
        "doubled. Received '\"a \"quote\" b\",1' (',' expected after '\"', on line 1).",
    ),
    (
        "jsonl",
        b'{"a": "b"}\n{"a": \n',
        "{path}:2: must be one JSON object on a line. Received '{\"a\": ' (Expecting value at "
        "column 7).",
    ),
    (
        "jsonl",
        b'["a", 1]\n',
        '{path}:1: must be a JSON object, such as {"text": "..."}. Received \'["a", 1]\'.',
    ),
    (
        "jsonl",
        b'{"a": 1} {"a": 2}\n',
        '{path}:1: must be one JSON object on a line. Received \'{"a": 1} {"a": 2}\' (Extra data '
        "at column 10).",
    ),
    (
        "jsonl",
        b'[\n {"a": 1}\n]\n',
        "{path}:1: must be one JSON object on a line. Received '[' (Expecting value at column 2).",
    ),
    (
        "tsv",
        gzip.compress(b"a\tb\n" * 9, mtime=0)[:-9],
        "'{path}' must be a complete gzip file. Received: Compressed file ended before the "
        "end-of-stream marker was reached.",
    ),
]


@pytest.mark.parametrize(("ending", "content", "message"), WRONG)
def test_an_unreadable_row_is_named_with_its_line(tmp_path, ending, content, message):
    path = tmp_path / f"t.{ending}"
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        read(path, content)
    assert str(caught.value) == message.replace("{path}", str(path))


def test_json_that_python_refuses_is_named_with_its_line(tmp_path):
    for content in ('{"a": ' + "1" * 5000 + "}", '{"a": ' + "[" * 100_000 + "}"):
        with pytest.raises(ValueError, match=r"t.jsonl:2: must be one JSON object on a line\. "):
            read(tmp_path / "t.jsonl", "{}\n" + content)


def test_half_of_a_pair_of_surrogates_is_no_text(tmp_path):
    assert read(tmp_path / "t.jsonl", r'{"a": "\ud83d\ude00"}') == [(1, {"a": "\U0001f600"})]
    for content in (r'{"a": "\ud83d"}', r'{"a": ["x", {"\udc00": 1}]}'):
        with pytest.raises(ValueError, match=r"t\.jsonl:2: text must be Unicode"):
            read(tmp_path / "t.jsonl", "{}\n" + content)


@pytest.mark.parametrize("name", ["tsv", "csv", "jsonl"])
def test_lines_that_end_as_on_old_macs_are_named(tmp_path, name):
    message = r"must have lines that end with LF, .* with CR alone, .* as with `tr '\\r' '\\n'`\."
    with pytest.raises(ValueError, match=message):
        read(tmp_path / f"t.{name}", "a\rb\rc")


@pytest.mark.parametrize(
    ("line", "pair"),
    [
        ("a b", ("a b", "")),
        ("a ||| b", ("a", "b")),
        ("a ||| b ||| c", ("a ||| b", "c")),
        ("a|||b", ("a|||b", "")),
        ("a |||", ("a |||", "")),
        ("", ("", "")),
    ],
)
def test_the_last_mark_between_spaces_separates_a_pair(line, pair):
    assert split_pair(line) == pair


def test_lines_lose_their_ends_and_carriage_returns():
    assert clean_line(b" a\rb \r\n") == "ab"
    assert clean_line("\xa0ä\u2003\n") == "ä"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("One.\n".encode("utf-16"), r"a\.txt' must be UTF-8 text\. It is UTF-16.*iconv"),
        (bz2.compress(b"One."), r"begins as a \.bz2 file: unpack it"),
        (lzma.compress(b"One."), r"begins as a \.xz file"),
        (b"PK\x03\x04...", r"begins as a \.zip file"),
    ],
)
def test_files_of_other_formats_are_refused_before_they_are_read(tmp_path, content, message):
    (tmp_path / "a.txt").write_bytes(content)
    with pytest.raises(ValueError, match=message):
        find_texts(str(tmp_path / "*.txt"))
    with pytest.raises(ValueError, match=message):
        load_rows(str(tmp_path / "a.txt"), "csv")


def test_a_workbook_is_named_with_the_way_to_a_table(tmp_path):
    path = tmp_path / "data.xlsx"
    path.write_bytes(b"PK\x03\x04\n\x00")
    with pytest.raises(
        ValueError, match=r"xlsx' must be text .*It is a workbook.*as CSV UTF-8.*read_excel"
    ):
        load_rows(str(path), "csv")


WIDTH = r"x:2: has %d column.?, but the first line has 2\. Received .*within quotes, in a \.csv\."


def test_rows_are_as_wide_as_the_first_but_for_blank_cells(tmp_path):
    (tmp_path / "t.csv").write_text("a , b\n1,2\n")
    table = open_table(str(tmp_path / "t.csv"))
    assert [row.cells for row in table.rows] == [["1", "2"]]
    assert table.name_cells("x:2", ["1", "2"]) == {"a": "1", "b": "2"}
    assert table.name_cells("x:2", ["1", "2", "", ""]) == {"a": "1", "b": "2"}
    for cells in (["1"], ["1", "", "3"]):
        with pytest.raises(ValueError, match=WIDTH % len(cells)):
            table.name_cells("x:2", cells)


def test_a_column_is_found_once(tmp_path):
    (tmp_path / "t.tsv").write_text("\na\tb\tb\n")
    table = open_table(str(tmp_path / "t.tsv"))
    assert table.find("a") == 0
    assert table.find("c") is None
    with pytest.raises(ValueError, match=r"t\.tsv:2: the header must have 'b' once\. Received"):
        table.find("b")


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ("a,b\n", "must c. Received ['a', 'b']. Columns are separated by commas here. Do d."),
        ("a;c\n", "It looks as if ';' separates the columns: give `separator=';'`."),
        ("sep=;\na;b\n", "Remove this line, which is Excel's, and give the separator with"),
        ('"a\nb",c d\n', r"must c. Received ['a\nb', 'c d']. Columns are separated by commas"),
        (f"a,{'b' * 200_000}\n", "Columns are separated by commas here. Do d."),
        (f"a;c;{'b' * 200_000}\n", "It looks as if ';' separates the columns: give"),
    ],
)
def test_the_error_of_a_missing_column_has_a_remedy(tmp_path, header, message):
    path = tmp_path / "t.csv"
    path.write_text(header)
    error = str(open_table(str(path)).error("must c", lambda cells: "c" in cells, "Do d."))
    assert error.startswith(f"{path}:1: must c. Received ")
    assert message in error


@pytest.mark.parametrize(
    ("content", "message"),
    [("", "must hold rows. Received an empty file"), ("\n,\n", "header .*It holds blank lines")],
)
def test_a_table_has_a_first_row(tmp_path, content, message):
    (tmp_path / "t.csv").write_text(content)
    with pytest.raises(ValueError, match=message):
        open_table(str(tmp_path / "t.csv"))

import gzip

import numpy as np
import pytest

from bert.files.row_writer import save_rows
from bert.files.rows import format_of
from bert.files.texts import Columns, TextColumns, Texts, read_inputs
from bert.options import OptionError


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


def test_a_byte_order_mark_is_no_text_where_the_file_begins(tmp_path, log):
    content = "\ufeffa\n\ufeff\u00e9 b\n".encode()
    for damaged, count in ((b"", 0), (b"\xff c\n", 1)):
        (tmp_path / "x.txt").write_bytes(content + damaged)
        texts = Texts([str(tmp_path / "x.txt")])
        # However often they are read, it is said once.
        for _ in range(2):
            found = [given.texts[0] for given in texts]
            assert found == ["a", "\ufeff\u00e9 b", *["c"] * count]
        assert [message[:46] for message in log.messages] == [
            "What is not UTF-8 was left out of 1 line, the "
        ] * count


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


def test_null_is_no_id(tmp_path):
    (tmp_path / "x.jsonl").write_text('{"text": "a", "id": null}\n{"text": "b", "id": 0}\n')
    assert [given.id for given in read(tmp_path / "x.jsonl", None, None, "id")] == [None, "0"]


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
        ("x.csv", "a,b\n1,2\n3\n4,5\n", (None, "a"), r"x\.csv:3: has 1 column, .* within quotes"),
        ("x.jsonl", '{"text": 1}\n', (), r"x\.jsonl:1: must have text as 'text'. Received 1"),
        ("x.jsonl", '{"text": "a"}\n{}\n', (), r"x\.jsonl:2: must have a value of 'text'"),
        ("x.txt", "a\n", (None, None, "n"), "`id_column='n'` must be that of a table"),
    ],
)
def test_a_missing_column_or_text_is_named_with_its_place(tmp_path, name, text, arguments, message):
    (tmp_path / name).write_text(text)
    with pytest.raises(ValueError, match=message):
        read(tmp_path / name, *arguments)


PAIR = Columns(fields=("a", "b"))
ONE = Columns(fields=("a",))


@pytest.mark.parametrize(
    ("name", "lines", "columns", "found"),
    [
        ("x.jsonl", ['{"a": "x"}', "", "\u00a0 \r", '{"a": "y"}'], ONE, [1, 4]),
        ("x.csv", ["a,b", "1,2", "", " , ", "3,4"], PAIR, [2, 5]),
        ("x.tsv", ["a\tb", "1\t2", "", " \t ", "3\t4"], PAIR, [2, 5]),
    ],
)
def test_blank_lines_are_skipped_with_a_warning(tmp_path, log, name, lines, columns, found):
    path = tmp_path / name
    path.write_text("".join(f"{line}\n" for line in lines), newline="")
    inputs = [*read_inputs(str(path), None, columns)]
    assert [each.line for each in inputs if each.row] == [each.line for each in inputs] == found
    # Parts of a file are counted without them.
    assert read_inputs(str(path), None, columns).count() == 2
    assert log.messages == [
        f"{path}: skipped 2 blank lines, the first is line {2 if name.endswith('l') else 3}."
    ]


@pytest.mark.parametrize(("name", "header"), [("x.tsv", ["a"]), ("x.txt", [])])
def test_where_there_is_one_column_a_blank_line_is_a_blank_text(tmp_path, log, name, header):
    (tmp_path / name).write_text("".join(f"{line}\n" for line in [*header, "x", "", "y"]))
    inputs = read_inputs(str(tmp_path / name), None, ONE)
    assert [each.row for each in inputs] == [{"a": "x"}, {"a": ""}, {"a": "y"}]
    # Of a matrix of features, row i is that of answer i.
    assert [text for text, _ in texts_of(tmp_path / name)] == ["x", "", "y"]
    assert not log.messages


def test_columns_of_the_same_name_are_all_there(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("text_a,x,x,x_2,x\nred,1,2,3,4\n")
    inputs = read_inputs(str(path), None, Columns(fields=("text_a",)))
    [row] = inputs
    assert inputs.names == ["text_a", "x", "x_3", "x_2", "x_4"]
    assert list(row.cells.values()) == ["red", "1", "2", "3", "4"]
    # Which of two is the text, nobody knows.
    path.write_text("text_a,text_a\nred,blue\n")
    with pytest.raises(ValueError, match=r"x\.csv:1: the header must have 'text_a' once"):
        read_inputs(str(path), None, Columns(fields=("text_a",)))


NUMBERS = {"text_a_column": "0", "label_column": "1"}
MIXED = {"text_a_column": "0", "label_column": "label"}
PAIR_OF_BOTH = {**MIXED, "text_b_column": "other"}


@pytest.mark.parametrize(
    ("content", "known", "given", "texts"),
    [
        # The label, or another column, has a name, so that the training files have a header.
        ("title,label\na,x\nb,y\n", MIXED, None, ["a", "b"]),
        ("label,0\nx,a\n", MIXED, None, ["a"]),
        ("title,topic\na,x\n", {**NUMBERS, "id_column": "n"}, None, ["a"]),
        ("title,other,label\na,b,x\n", PAIR_OF_BOTH, None, ["a b"]),
        ("other,title,label\na,b,x\n", {**PAIR_OF_BOTH, "text_a_column": "1"}, None, ["b a"]),
        ("title,topic\na,x\n", {**NUMBERS, "has_header": True}, None, ["a"]),
        # Numbers alone are of files without a header, whose cells may be numbers, too.
        ("a,x\nb,y\n", NUMBERS, None, ["a", "b"]),
        ("a,0\nb,1\n", NUMBERS, None, ["a", "b"]),
        ("a,0\nb,1\n", {**NUMBERS, "has_header": False}, None, ["a", "b"]),
        ("1,a\n0,b\n", {"text_a_column": "1", "label_column": "0"}, None, ["a", "b"]),
        # pandas names columns by their numbers; and the names of fields are always known.
        ("0,1\na,x\n", NUMBERS, None, ["a"]),
        ("n,text_a\n1,a\n", NUMBERS, None, ["a"]),
        # Given columns say by themselves whether there is a header.
        ("a,x\nb,y\n", {**NUMBERS, "has_header": True}, "0", ["a", "b"]),
        ("a,0\nb,1\n", MIXED, "0", ["a", "b"]),
        ("title,label\na,x\n", {**NUMBERS, "has_header": True}, "title", ["a"]),
    ],
)
def test_a_header_is_where_the_training_files_have_one(tmp_path, content, known, given, texts):
    (tmp_path / "x.csv").write_text(content)
    fields = tuple(field for field in ("text_a", "text_b") if f"{field}_column" in known)
    columns = Columns(fields=fields, known=known, given=given)
    inputs = [*read_inputs(str(tmp_path / "x.csv"), None, columns)]
    assert [" ".join(each.row.values()) for each in inputs] == texts


NAMES = {"text_a_column": "text", "label_column": "label"}


@pytest.mark.parametrize(
    ("name", "content", "known", "texts"),
    [
        ("x.txt", "text|label\na|x\nb|y\n", NAMES, ["a", "b"]),
        ("x.data", '"text"|label\n"a|b"|x\n', NAMES, ["a|b"]),
        ("x.txt", "text_a|n\na|1\n", NAMES, ["a"]),
        ("x.txt", "text\na\n", NAMES, ["a"]),
        ("x.txt", "title|label\na|x\n", MIXED, ["a"]),
        ("x.txt", "a|x\nb|y\n", NUMBERS, ["a", "b"]),
        # Lines without the columns of the training are texts.
        ("x.txt", "a|x\nb\n", NAMES, ["a|x", "b"]),
        ("x.txt", "a\nb|y\n", NUMBERS, ["a", "b|y"]),
        ("x.txt", '"a|b\nb\n', NAMES, ['"a|b', "b"]),
        ("x.txt", "a,x\n", NUMBERS, ["a,x"]),
        ("x.txt", "", NAMES, []),
        # That of an extension is known.
        ("x.tsv", "text\tlabel\na|b\tx\n", NAMES, ["a|b"]),
    ],
)
def test_a_table_of_any_extension_has_the_separator_of_the_training(
    tmp_path, name, content, known, texts
):
    (tmp_path / name).write_text(content)
    columns = Columns(fields=("text_a",), known={**known, "separator": "|"})
    inputs = [*read_inputs(str(tmp_path / name), None, columns)]
    assert [each.row["text_a"] for each in inputs] == texts
    # The format of lines has no columns.
    lines = [*read_inputs(str(tmp_path / name), "lines", columns)]
    assert [each.row["text_a"] for each in lines] == content.splitlines()


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ("title,label", r"must name \['text_a', 'text_b'\] \(or \['0', 'other'\], as in training"),
        ("title,other,other", "header must have 'other' once"),
    ],
)
def test_a_header_must_have_the_named_columns_of_the_training(tmp_path, header, message):
    (tmp_path / "x.csv").write_text(f"{header}\n")
    columns = Columns(fields=("text_a", "text_b"), known=PAIR_OF_BOTH)
    with pytest.raises(ValueError, match=message):
        read_inputs(str(tmp_path / "x.csv"), None, columns)


@pytest.mark.parametrize("name", ["x.csv", "x.tsv", "x.jsonl", "x.txt"])
def test_lines_that_end_as_on_old_macs_are_no_single_text(tmp_path, name):
    path = tmp_path / name
    path.write_bytes(b"a\rred\rblue\r")
    with pytest.raises(ValueError, match="must have lines that end with LF"):
        list(read_inputs(str(path), None, Columns(fields=("a",))))
    # Within lines, and before their ends, carriage returns are as they were.
    for content in (b"red\r", b"red\r\n", b"re\rd\n", b"re\rd", b"red"):
        (tmp_path / "y.txt").write_bytes(content)
        inputs = read_inputs(str(tmp_path / "y.txt"), None, Columns(fields=("a",)))
        assert [each.row["a"].replace("\r", "") for each in inputs] == ["red"]


def test_scalars_of_numpy_in_rows_are_numbers():
    scalars = [np.int64(1), np.float32(0.5), np.bool_(True), np.array(2), np.longdouble(0.25)]
    rows = [{"text": np.str_("a"), "label": value} for value in scalars]
    expected = [{"text": "a", "label": value} for value in (1, 0.5, True, 2, 0.25)]
    assert save_rows(rows, "train_file") == save_rows(expected, "train_file")


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (np.array([1, 0]), "ndarray is not JSON"),
        (np.datetime64("2020-01-01", "ns"), "datetime64 is not JSON"),
        (object(), "object is not JSON"),
        ("\ud83d", r"'\\ud83d' .* surrogates not allowed"),
    ],
)
def test_other_objects_in_rows_are_refused(value, said):
    with pytest.raises(OptionError, match=f"`train_file` must be .* Received a list: .*{said}"):
        save_rows([{"text": "a", "label": value}], "train_file")


def test_a_generator_that_has_been_used_is_refused():
    rows = iter([{"text": "a"}])
    assert save_rows(rows, "train_file") == save_rows([{"text": "a"}], "train_file")
    message = "`train_file` must have rows. Received a used or empty generator. .* a list"
    with pytest.raises(OptionError, match=message):
        save_rows(rows, "train_file")

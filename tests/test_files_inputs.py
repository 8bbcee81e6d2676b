import pytest

from bert.files.texts import Columns, read_inputs

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
        f"{path}: skipped 2 blank lines, the first is {2 if name.endswith('l') else 3}."
    ]


@pytest.mark.parametrize(("name", "header"), [("x.tsv", ["a"]), ("x.txt", [])])
def test_where_there_is_one_column_a_blank_line_is_a_blank_text(tmp_path, log, name, header):
    (tmp_path / name).write_text("".join(f"{line}\n" for line in [*header, "x", "", "y"]))
    inputs = read_inputs(str(tmp_path / name), None, ONE)
    assert [each.row for each in inputs] == [{"a": "x"}, {"a": ""}, {"a": "y"}]
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

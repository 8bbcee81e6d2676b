import pytest

from bert.files.rows import open_table

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

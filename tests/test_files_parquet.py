import datetime
import io

import pytest
import tensorflow as tf

from bert.files.durable import replace_files
from bert.files.parquet import check_columns, describe_parquet, read_parquet, write_parquet
from bert.scale.joining import join

pyarrow = pytest.importorskip("pyarrow")

NAMES = ["n", "text"]
ROWS = [{"n": 1, "text": "a"}, {"n": 2.5}]
READ = [{"n": 1.0, "text": "a"}, {"n": 2.5, "text": None}]


def test_rows_are_written_and_read_elsewhere_too():
    folder = "ram://test_files_parquet"
    tf.io.gfile.makedirs(folder)
    paths = [f"{folder}/{name}.parquet" for name in ("a", "joined")]
    with replace_files(paths[:1]) as [file]:
        write_parquet(file, ROWS, NAMES, "in.jsonl")
    assert list(read_parquet(paths[0])) == READ
    with replace_files(paths[1:]) as [file]:
        join(paths[:1] * 2, "parquet", file)
    assert list(read_parquet(paths[1])) == READ * 2
    with pytest.raises(FileNotFoundError):
        next(read_parquet(f"{folder}/none.parquet"))


@pytest.mark.parametrize("values", [[1, "a"], [2**63], [-(2**80), 0.5], [{}], [[1], {"a": 1}]])
def test_a_column_that_parquet_lacks_is_named(values):
    rows = [{"text": "a", "odd": value} for value in values]
    message = r"column of Parquet must have values of one kind\. The column 'odd' of 'in\.jsonl' "
    with pytest.raises(ValueError, match=message):
        check_columns(iter(rows), "in.jsonl")
    with pytest.raises(ValueError, match=message):
        write_parquet(io.BytesIO(), rows, ["text", "odd"], "in.jsonl")
    check_columns(({**row, "odd": None} for row in rows), "in.jsonl")


def test_a_file_that_is_damaged_is_named(tmp_path):
    path = tmp_path / "x.parquet"
    with open(path, "wb") as file:
        write_parquet(file, ROWS, NAMES, "in.jsonl")
    whole = path.read_bytes()
    damaged = bytearray(whole)
    # Where the footer begins.
    damaged[-8 - int.from_bytes(whole[-8:-4], "little")] ^= 0xFF
    for content in (b"", b"text", whole[:-1], damaged):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"x\.parquet' must be a complete Parquet file"):
            list(read_parquet(str(path)))


def write_table(path, names, *arrays):
    import pyarrow.parquet  # noqa: PLC0415

    pyarrow.parquet.write_table(pyarrow.Table.from_arrays(arrays, names=names), path)


def test_rows_are_read_a_few_at_a_time_and_counted_before(tmp_path):
    path = str(tmp_path / "x.parquet")
    numbers = list(range(3000))
    write_table(path, ["n", "text"], pyarrow.array(numbers), pyarrow.array(map(str, numbers)))
    assert describe_parquet(path) == (["n", "text"], 3000)
    assert list(read_parquet(path)) == [{"n": n, "text": str(n)} for n in numbers]


def test_columns_of_the_inputs_are_copied_from_the_row_on_that_is_given(tmp_path):
    path, out = str(tmp_path / "in.parquet"), tmp_path / "out.parquet"
    write_table(path, ["n", "text"], pyarrow.array([1, 2, 3], "int8"), pyarrow.array([*"abc"]))
    with open(out, "wb") as file:
        answers = [{"n": "not read", "label": label} for label in ("yes", "no")]
        write_parquet(file, answers, ["n", "text", "label"], path, 1)
    table = pyarrow.parquet.read_table(out)
    assert table.to_pylist() == [
        {"n": 2, "text": "b", "label": "yes"},
        {"n": 3, "text": "c", "label": "no"},
    ]
    assert table.schema.field("n").type == pyarrow.int8()


def test_bytes_that_are_no_text_are_shown(tmp_path):
    path = str(tmp_path / "x.parquet")
    write_table(path, ["x"], pyarrow.array([b"a\xff", "é".encode()], pyarrow.binary()))
    assert [row["x"] for row in read_parquet(path)] == ["a\\xff", "é"]


def test_times_finer_than_those_of_python_are_texts(tmp_path):
    path = str(tmp_path / "x.parquet")
    fine = pyarrow.array([10**18 + 1, None], pyarrow.timestamp("ns"))
    whole = pyarrow.array([10**15, None], pyarrow.timestamp("us"))
    write_table(path, ["fine", "whole"], fine, whole)
    first, second = read_parquet(path)
    assert first["fine"].endswith("01:46:40.000000001")
    assert first["whole"] == datetime.datetime(2001, 9, 9, 1, 46, 40).isoformat()
    assert second == {"fine": None, "whole": None}


def test_a_column_that_cannot_be_read_is_named(tmp_path):
    path = str(tmp_path / "x.parquet")
    # In the time zone of no place, which pyarrow cannot tell as a text either.
    stamps = pyarrow.array([1], pyarrow.timestamp("us", tz="Nowhere/City"))
    write_table(path, ["text", "when"], pyarrow.array(["a"]), stamps)
    with pytest.raises(ValueError, match=r"x\.parquet': the column 'when', of timestamp\[us, tz="):
        next(read_parquet(path))


def test_columns_of_one_name_are_named(tmp_path):
    path = str(tmp_path / "x.parquet")
    write_table(path, ["a", "b", "a"], *[pyarrow.array([1])] * 3)
    with pytest.raises(ValueError, match=r"columns of different names\. Received \['a'\] more"):
        next(read_parquet(path))


def test_columns_are_the_same_whatever_rows_have(tmp_path):
    path = str(tmp_path / "x.parquet")
    tables = []
    for rows in ([{"a": 1}], [{"a": 1, "error": "why"}], [{"error": "why", "a": 1}]):
        with open(path, "wb") as file:
            write_parquet(file, iter(rows), ["a", "error"], "in.jsonl", texts={"error"})
        tables.append(pyarrow.parquet.read_schema(path))
    assert tables[0] == tables[1] == tables[2]
    assert [*map(str, tables[0].types)] == ["int64", "string"]

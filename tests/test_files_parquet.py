import io

import pytest
import tensorflow as tf

from bert.files.durable import replace_files
from bert.files.joining import join
from bert.files.parquet import check_columns, read_parquet, write_parquet

pytest.importorskip("pyarrow")

ROWS = [{"n": 1, "text": "a"}, {"n": 2.5}]
READ = [{"n": 1.0, "text": "a"}, {"n": 2.5, "text": None}]


def test_rows_are_written_and_read_elsewhere_too():
    folder = "ram://test_files_parquet"
    tf.io.gfile.makedirs(folder)
    paths = [f"{folder}/{name}.parquet" for name in ("a", "joined")]
    with replace_files(paths[:1]) as [file]:
        write_parquet(file, ROWS, "in.jsonl")
    assert list(read_parquet(paths[0])) == READ
    with replace_files(paths[1:]) as [file]:
        join(paths[:1] * 2, "parquet", file)
    assert list(read_parquet(paths[1])) == READ * 2
    with pytest.raises(FileNotFoundError):
        next(read_parquet(f"{folder}/none.parquet"))


@pytest.mark.parametrize("values", [[1, "a"], [2**63], [-(2**80), 0.5], [{}], [[1], {"a": 1}]])
def test_a_column_that_parquet_lacks_is_named(values):
    rows = [{"text": "a", "odd": value} for value in values]
    message = r"column of Parquet must have values of one kind\. That of 'odd' of 'in\.jsonl' "
    with pytest.raises(ValueError, match=message):
        check_columns(iter(rows), "in.jsonl")
    with pytest.raises(ValueError, match=message):
        write_parquet(io.BytesIO(), rows, "in.jsonl")
    check_columns(({**row, "odd": None} for row in rows), "in.jsonl")


def test_a_file_that_is_damaged_is_named(tmp_path):
    path = tmp_path / "x.parquet"
    with open(path, "wb") as file:
        write_parquet(file, ROWS, "in.jsonl")
    whole = path.read_bytes()
    damaged = bytearray(whole)
    # Where the footer begins.
    damaged[-8 - int.from_bytes(whole[-8:-4], "little")] ^= 0xFF
    for content in (b"", b"text", whole[:-1], damaged):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"x\.parquet' must be a whole Parquet file"):
            list(read_parquet(str(path)))

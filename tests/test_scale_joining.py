import bz2
import gzip
import io
import os
import zipfile

import numpy as np
import pytest

import join_shards
from bert.files import parquet
from bert.files.vectors import text_array, write_npz
from bert.scale.joining import join

PACKED = gzip.compress(b"a", mtime=0)
PACKED_END = gzip.compress(b"\n", mtime=0)
PACKED_LINES = gzip.compress(b"a\nb\n", mtime=0)
# The length of 266 bytes begins with a line feed.
PACKED_LONG_RECORD = gzip.compress(b"\n\1\0\0\0\0\0\0a", mtime=0)
PACKED_RECORD = gzip.compress(b"\1\0a", mtime=0)
LONG = "é".encode() * (1 << 23)


def write_archive(path, values, texts=(), layers=("-1",)):
    with open(path, "wb") as file:
        arrays = {
            "values": (values.shape, "<f4", [values]),
            "layers": ((len(layers),), "<U2", [np.array(layers)]),
            "texts": text_array(texts, len(texts), max(map(len, texts), default=0)),
        }
        write_npz(file, arrays)
    return str(path)


def test_arrays_are_joined_in_order_and_texts_are_as_wide_as_the_longest(tmp_path):
    rows = np.arange(10, dtype=np.float32).reshape(5, 2)
    paths = [
        write_archive(tmp_path / "a.npz", rows[:3], ["a", "bb", "c"]),
        write_archive(tmp_path / "b.npz", rows[3:3]),
        write_archive(tmp_path / "c.npz", rows[3:], ["dddd", "e"]),
    ]
    joined = io.BytesIO()
    join(paths, "npz", joined)
    whole = write_archive(tmp_path / "whole.npz", rows, ["a", "bb", "c", "dddd", "e"])
    with open(whole, "rb") as file:
        assert joined.getvalue() == file.read()


def test_archives_that_do_not_go_together_are_refused(tmp_path):
    rows = np.zeros((2, 2), np.float32)
    first = write_archive(tmp_path / "a.npz", rows)
    for other, message in (
        (write_archive(tmp_path / "b.npz", rows[:, :1]), r"b.npz' must have rows of \(2,\), as "),
        (write_archive(tmp_path / "c.npz", rows, layers=["-2"]), "c.npz' must have the layers"),
    ):
        with pytest.raises(ValueError, match=message):
            join([first, other], "npz", io.BytesIO())
    (tmp_path / "d.npz").write_bytes(b"PK")
    with pytest.raises(ValueError, match=r"d\.npz' must be a complete NumPy file"):
        join([first, str(tmp_path / "d.npz")], "npz", io.BytesIO())
    with zipfile.ZipFile(tmp_path / "e.npz", "w") as archive:
        archive.writestr("texts.txt", "a\n")
    with pytest.raises(ValueError, match=r"e\.npz' must be a complete NumPy file.*'texts\.txt"):
        join([str(tmp_path / "e.npz")], "npz", io.BytesIO())
    (tmp_path / "d.npy").write_bytes(b"PK")
    with pytest.raises(ValueError, match=r"d\.npy' must be a complete NumPy file"):
        join([str(tmp_path / "d.npy")], "npy", io.BytesIO())


@pytest.mark.parametrize("cut", [1, 8, 12])
def test_a_part_that_is_cut_is_named(tmp_path, cut):
    paths = [str(tmp_path / name) for name in ("a.npy", "b.npy")]
    for path in paths:
        np.save(path, np.zeros((3, 2), np.float32))
    with open(paths[1], "rb+") as file:
        file.truncate(os.path.getsize(paths[1]) - cut)
    with pytest.raises(ValueError, match=r"b\.npy' must be .* has 3 rows; it ends after [12]"):
        join(paths, "npy", io.BytesIO())


def test_an_array_that_has_no_rows_one_behind_the_other_is_refused(tmp_path):
    path = str(tmp_path / "a.npy")
    rows = np.arange(6, dtype=np.float32).reshape(3, 2)
    for values, message in (
        (np.asfortranarray(rows), "columns, in the order of Fortran"),
        (np.float32(1.0), "a single number"),
    ):
        np.save(path, values)
        with pytest.raises(ValueError, match=rf"a\.npy' must hold rows, .* It holds {message}"):
            join([path], "npy", io.BytesIO())


def test_rows_of_no_width_are_joined(tmp_path):
    path, joined = str(tmp_path / "a.npy"), io.BytesIO()
    np.save(path, np.zeros((3, 0), np.float32))
    join([path, path], "npy", joined)
    joined.seek(0)
    assert np.load(joined).shape == (6, 0)


def join_named(folder, names, pattern="part-*", **given):
    for name in names:
        (folder / name).write_text(f"{name}\n")
    patterns = ",".join(str(folder / each) for each in pattern.split(","))
    asked = {"input_file": patterns, "output_file": str(folder / "out"), "overwrite": True}
    asked["unverified"] = True
    join_shards.run(join_shards.Settings(**asked, **given))
    return (folder / "out").read_text().split()


@pytest.mark.parametrize(
    ("names", "given", "message"),
    [
        (["part-1", "part-3", "part-5"], {}, "2 is missing, 4 is missing"),
        (["part-2", "part-3"], {}, "1 is missing"),
        # As many as there are between two times are not counted.
        (
            ["part-1732345200000", "part-1732345200001"],
            {},
            "1 is missing, 2 is .* 12 is missing\\. Parts with",
        ),
        (["part-1", "part-2"], {"num_parts": 10**12}, "3 is missing, 4 is"),
        (["part-1", "part-01", "part-2"], {}, "1 is there twice"),
        (["part-1", "part-01"], {}, "is there twice"),
        (["part-1", "part-2"], {"num_parts": 3}, "3 in all.*3 is missing"),
        (["part-0", "part-1"], {"num_parts": 3}, "2 is missing"),
        (["part-1", "part-2"], {"num_parts": 1}, "2 is one too many"),
        (["part-2"], {"num_parts": 2}, "must name 2 parts.* Received 1"),
        (["part-1-of-3", "part-2-of-3"], {}, "3 is missing"),
        (["part-2-of-3"], {}, "There must be 3 parts"),
        (["part-1-of-2", "part-2-of-3"], {}, r"must belong to the same output.*\[2, 3\]"),
        (["part-1", "part-2", "part-2-old"], {}, "must differ in one number"),
        (["part-1-1", "part-1-2", "part-2-1"], {}, "must differ in one number"),
        (["part-1", "part-2"], {"pattern": "part-*,part-1"}, "must name each part once"),
    ],
)
def test_what_is_not_all_of_the_parts_is_not_joined(tmp_path, names, given, message):
    with pytest.raises(ValueError, match=message):
        join_named(tmp_path, names, **given)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("parts", "joined"),
    [
        ([b'{"a": 1}\n{"a": 2}', b"", b'{"a": 3}'], b'{"a": 1}\n{"a": 2}\n{"a": 3}'),
        (["né".encode(), b"b\n", b""], "né\nb\n".encode()),
        ([b"a", b""], b"a"),
        ([b"", b"\n", b"a\n"], b"\na\n"),
        # The first block of 16 MiB ends within a character.
        ([b"a" + LONG, b"b"], b"a" + LONG + b"\nb"),
        # Records, and what is packed.
        ([b"\x01\0\0\0\0\0\0\0a", b"\x01\0"], b"\x01\0\0\0\0\0\0\0a\x01\0"),
        ([bz2.compress(b"a"), bz2.compress(b"b")], bz2.compress(b"a") + bz2.compress(b"b")),
        ([PACKED_LINES, PACKED_LINES], PACKED_LINES * 2),
        ([PACKED_RECORD, PACKED_RECORD], PACKED_RECORD * 2),
        ([PACKED_LONG_RECORD, PACKED_LONG_RECORD], PACKED_LONG_RECORD * 2),
        # A packed text gets a packed line end.
        ([PACKED, b"", PACKED], PACKED + PACKED_END + PACKED),
    ],
)
def test_texts_are_joined_line_by_line_and_other_bytes_as_they_are(tmp_path, parts, joined):
    for number, part in enumerate(parts):
        (tmp_path / f"part-{number}").write_bytes(part)
    settings = join_shards.Settings(
        input_file=str(tmp_path / "part-*"), output_file=str(tmp_path / "out"), unverified=True
    )
    join_shards.run(settings)
    assert (tmp_path / "out").read_bytes() == joined


def test_a_packed_part_is_not_joined_with_a_plain_one(tmp_path):
    (tmp_path / "part-1").write_bytes(PACKED)
    (tmp_path / "part-2").write_bytes(b"a\n")
    settings = join_shards.Settings(
        input_file=str(tmp_path / "part-*"), output_file=str(tmp_path / "out"), unverified=True
    )
    with pytest.raises(ValueError, match=r"all gzip or all plain.*-1', which is gzip, and .*-2'"):
        join_shards.check(settings)
    with pytest.raises(ValueError, match="`input_file` must name files"):
        join_shards.run(settings)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("names", "given"),
    [
        (["part-00-of-02", "part-01-of-02"], {}),
        (["part-1-of-1"], {"num_parts": 1}),
        ([f"part-{number}" for number in range(1, 12)], {}),
        (["part-a", "part-b"], {"num_parts": 2}),
        (["part-7", "part-3"], {"pattern": "part-7,part-3"}),
        (["1-of-2", "2-of-2"], {"pattern": "1-of-2,2-of-2", "num_parts": 2}),
    ],
)
def test_parts_that_are_all_there_are_joined(tmp_path, names, given):
    assert join_named(tmp_path, names, **given) == names


def test_numbers_of_parquet_become_those_of_the_wider_kind(tmp_path):
    pytest.importorskip("pyarrow")
    rows = [{"score": 1}, {"score": 2.5}, {"score": None}]
    for name, part in (("a", rows[:1]), ("b", rows[1:2]), ("c", rows[2:]), ("whole", rows)):
        with open(tmp_path / name, "wb") as file:
            parquet.write_parquet(file, part, ["score"], "in.jsonl")
    joined = io.BytesIO()
    join([str(tmp_path / name) for name in "abc"], "parquet", joined)
    assert joined.getvalue() == (tmp_path / "whole").read_bytes()


def test_forms_are_not_mixed(tmp_path):
    (tmp_path / "a.txt").write_text("")
    made = join_shards.Settings(
        input_file=str(tmp_path / "a.txt"), output_file=str(tmp_path / "out.npy")
    )
    with pytest.raises(ValueError, match="must have an ending of the same form as the parts"):
        join_shards.run(made)


def test_records_with_an_index_are_left_as_they_are(tmp_path):
    names = [f"r.tfrecord-0000{number}-of-00002" for number in range(2)]
    for name in names:
        (tmp_path / name).write_bytes(b"")
        (tmp_path / f".{name}.index").write_bytes(b"")
    settings = join_shards.Settings(
        input_file=str(tmp_path / "r.tfrecord-*"), output_file=str(tmp_path / "joined")
    )
    with pytest.raises(ValueError, match=r"records of create_pretraining_data\.py.*by a pattern"):
        join_shards.run(settings)
    assert not (tmp_path / "joined").exists()

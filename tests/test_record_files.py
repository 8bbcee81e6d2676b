import gzip
import os
import struct

import numpy as np
import pytest
import tensorflow as tf
from conftest import run_python
from hypothesis import example, given
from hypothesis import strategies as st

import record_files

RAM = "ram://test_record_files"

feature_lists = st.one_of(
    st.lists(st.integers(-(2**63), 2**63 - 1), max_size=5),
    st.lists(st.integers(0, 2**35), max_size=300),
    st.lists(st.floats(width=32), min_size=1, max_size=5),
)


def to_protobuf(features):
    message = tf.train.Example()
    for name, values in features.items():
        if values and isinstance(values[0], float):
            message.features.feature[name].float_list.value.extend(values)
        else:
            message.features.feature[name].int64_list.value.extend(values)
    return message.SerializeToString(deterministic=True)


@given(st.dictionaries(st.text(max_size=200), feature_lists, max_size=5))
@example({"zero": [0], "edge": [127, 128, 16383, 16384], "far": [2**32 - 1, 2**32, -1], "f": []})
def test_examples_are_the_bytes_of_protobuf(features):
    arrays = {
        name: np.array(values, np.float32 if values and isinstance(values[0], float) else np.int64)
        for name, values in features.items()
    }
    expected = to_protobuf(features)
    assert record_files.encode_examples({k: v[None] for k, v in arrays.items()}) == (
        [expected] if features else []
    )
    if all(features.values()):
        assert not features or record_files.encode_example(features) == expected


@given(st.integers(1, 40), st.integers(1, 30), st.sampled_from([2, 200, 30000, 2**40]))
def test_examples_of_a_batch_are_those_of_its_rows(count, length, limit):
    rng = np.random.default_rng(count)
    batch = {
        "ids": rng.integers(0, limit, (count, length)),
        "mask": rng.integers(0, 2, (count, length)).astype(bool),
        "weights": rng.random((count, 3)).astype(np.float32),
    }
    rows = [
        {name: (values[i] + 0).tolist() for name, values in batch.items()} for i in range(count)
    ]
    assert record_files.encode_examples(batch) == [to_protobuf(row) for row in rows]


@given(st.lists(st.binary(max_size=70), max_size=40))
@example([b""])
def test_records_are_written_as_tensorflow_does(tmp_path_factory, records):
    folder = tmp_path_factory.mktemp("records")
    with record_files.write_records([str(folder / "ours")]) as [writer]:
        for record in records:
            writer.write(record)
    with tf.io.TFRecordWriter(str(folder / "theirs")) as other:
        for record in records:
            other.write(record)
    assert (folder / "ours").read_bytes() == (folder / "theirs").read_bytes()


def test_many_and_long_records_are_written_in_parts(tmp_path, monkeypatch):
    monkeypatch.setattr(record_files, "_BATCH_BYTES", 1 << 12)
    monkeypatch.setattr(record_files, "_BATCH_RECORDS", 7)
    records = [struct.pack("<I", i) * (i % 50 * (i % 3)) for i in range(300)] + [b"x" * 9001]
    path = str(tmp_path / "r.tfrecord")
    with record_files.write_records([path]) as [writer]:
        for record in records:
            writer.write(record)
            assert len(writer._waiting) < 7
    assert list(tf.data.TFRecordDataset(path).as_numpy_iterator()) == records


def write_half(paths, error):
    with record_files.replace_files(paths) as files:
        files[0].write(b"half")
        raise error


@pytest.fixture
def folder(tmp_path):
    for name in ("b.txt", "a10.txt", "a2.txt", "[x].txt"):
        (tmp_path / name).write_text(name)
    (tmp_path / "sub.txt").mkdir()
    return tmp_path


@pytest.mark.parametrize(
    ("patterns", "names"),
    [
        ("b.txt,a2.txt", ["b.txt", "a2.txt"]),
        ("a*.txt", ["a10.txt", "a2.txt"]),
        ("b.txt,*.txt", ["b.txt", "[x].txt", "a10.txt", "a2.txt", "b.txt"]),
        ("[x].txt", ["[x].txt"]),
        ("a?.txt", ["a2.txt"]),
    ],
)
def test_patterns_name_files_in_their_order(folder, patterns, names):
    patterns = ",".join(str(folder / pattern) for pattern in patterns.split(","))
    expected = [str(folder / name) for name in names]
    assert record_files.match_files(patterns, "input_file") == expected


@pytest.mark.parametrize("missing", ["none.txt", "none*.txt", "sub.txt", ""])
def test_a_pattern_without_a_file_is_named_with_its_flag(folder, missing):
    pattern = str(folder / missing) if missing else ""
    with pytest.raises(ValueError, match=r"`--corpus` must name existing files\. ") as error:
        record_files.match_files(f"{folder}/b.txt,{pattern}", "corpus")
    assert repr(pattern) in str(error.value)


def test_gzip_is_known_by_its_content(tmp_path):
    content = b"one\r\n\ntwo \xff\nlast"
    plain, packed = tmp_path / "plain.gz", tmp_path / "packed.txt"
    plain.write_bytes(content)
    packed.write_bytes(gzip.compress(content[:7]) + gzip.compress(content[7:]))
    for path in (plain, packed):
        lines = list(record_files.read_lines(str(path)))
        assert [line for line, _ in lines] == [b"one\r\n", b"\n", b"two \xff\n", b"last"]
        assert lines[-1][1] == record_files.file_size(str(path))


@pytest.mark.parametrize("damage", [lambda b: b[:-9], lambda b: b[:20] + b"\0\0\0" + b[23:]])
def test_damaged_gzip_is_named(tmp_path, damage):
    path = tmp_path / "text.gz"
    path.write_bytes(damage(gzip.compress(os.urandom(5000))))
    with pytest.raises(ValueError, match=r"text\.gz' must be a whole gzip file"):
        list(record_files.read_lines(str(path)))


def test_an_empty_file_has_no_lines(tmp_path):
    (tmp_path / "empty").touch()
    assert list(record_files.read_lines(str(tmp_path / "empty"))) == []


def test_files_appear_together_when_all_are_whole(tmp_path):
    paths = [str(tmp_path / "a"), str(tmp_path / "b")]
    (tmp_path / "a").write_bytes(b"before")
    with record_files.replace_files(paths) as [a, b]:
        a.write(b"1")
        b.write(b"2")
        assert (tmp_path / "a").read_bytes() == b"before"
        assert not (tmp_path / "b").exists()
    assert [(tmp_path / name).read_bytes() for name in "ab"] == [b"1", b"2"]
    assert sorted(os.listdir(tmp_path)) == ["a", "b"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_an_exception_leaves_files_as_they_were(tmp_path, error):
    (tmp_path / "a").write_bytes(b"before")
    with pytest.raises(error):
        write_half([str(tmp_path / "a"), str(tmp_path / "b")], error)
    assert os.listdir(tmp_path) == ["a"]
    assert (tmp_path / "a").read_bytes() == b"before"


def test_an_output_that_cannot_be_opened_takes_the_others_with_it(tmp_path):
    with (
        pytest.raises(FileNotFoundError),
        record_files.replace_files([str(tmp_path / "a"), str(tmp_path / "nowhere" / "b")]),
    ):
        pass
    assert os.listdir(tmp_path) == []


def test_a_link_stays_a_link(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "file").write_bytes(b"before")
    (tmp_path / "link").symlink_to(tmp_path / "real" / "file")
    with record_files.replace_files([str(tmp_path / "link")]) as [file]:
        file.write(b"after")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real" / "file").read_bytes() == b"after"


@pytest.mark.parametrize(
    ("outputs", "message"),
    [
        (["out", "out"], r"must name each file once\. Received '.*out' again"),
        (["out", "./out"], r"must name each file once\. Received '.*out' again"),
        (["out", None], r"must name files\. Received an empty name among"),
        (["in"], r"must not name an input file\. Received '.*in'"),
        (["nowhere/out"], r"must name files that can be written\. .*No such file or directory"),
        (["in/out"], r"must name files that can be written\. .*Not a directory"),
        (["folder"], r"must name files that can be written\. .*folder' is not a regular file"),
        (["out", "/dev/null"], r"must name files that can be written\. .* is not a regular file"),
    ],
)
def test_outputs_that_cannot_be_are_refused_and_nothing_remains(tmp_path, outputs, message):
    (tmp_path / "in").touch()
    (tmp_path / "folder").mkdir()
    paths = [os.path.join(tmp_path, name) if name else "" for name in outputs]
    with pytest.raises(ValueError, match="^`--out` " + message):
        record_files.check_outputs(paths, [str(tmp_path / "in")], "out")
    assert sorted(os.listdir(tmp_path)) == ["folder", "in"]


def test_checking_outputs_changes_nothing(tmp_path):
    (tmp_path / "a").write_bytes(b"before")
    record_files.check_outputs([str(tmp_path / "a"), str(tmp_path / "b")], [], "out")
    assert os.listdir(tmp_path) == ["a"]
    assert (tmp_path / "a").read_bytes() == b"before"


def test_paths_may_be_what_tensorflow_reads():
    paths = [f"{RAM}/a.tfrecord", f"{RAM}/b.tfrecord"]
    tf.io.gfile.makedirs(RAM)
    record_files.check_outputs(paths, [], "out")
    assert tf.io.gfile.listdir(RAM) == []
    with record_files.write_records(paths) as writers:
        for index, writer in enumerate(writers):
            writer.write(b"record\n" * index)
    with pytest.raises(KeyError):
        write_half(paths, KeyError)
    assert record_files.match_files(f"{RAM}/*", "in") == paths
    assert list(tf.data.TFRecordDataset(paths).as_numpy_iterator()) == [b"", b"record\n"]
    size = record_files.file_size(paths[1])
    assert list(record_files.read_lines(paths[1]))[-1][1] == size
    with pytest.raises(ValueError, match="`--in` must name existing files"):
        record_files.match_files(f"{RAM}/none", "in")
    with pytest.raises(ValueError, match="`--out` must name files that can be written"):
        record_files.check_outputs(["gs-nowhere://x/y"], [], "out")


def test_local_files_do_not_need_tensorflow(tmp_path):
    code = (
        "import sys, record_files\n"
        "with record_files.write_records([sys.argv[1]]) as [writer]:\n"
        "    writer.write(record_files.encode_example({'a': [1]}))\n"
        "list(record_files.read_lines(record_files.match_files(sys.argv[1], 'f')[0]))\n"
        "assert 'tensorflow' not in sys.modules"
    )
    run_python("-c", code, str(tmp_path / "r.tfrecord"))

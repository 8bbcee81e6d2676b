import struct
import zlib

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import example, given
from hypothesis import strategies as st

from bert.files.paths import index_path
from bert.files.records import (
    Index,
    decode_index,
    decode_record,
    encode_example,
    encode_examples,
    encode_index,
    encode_record,
    fits,
    read_index,
    write_records,
)

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
    assert encode_examples({k: v[None] for k, v in arrays.items()}) == (
        [expected] if features else []
    )
    if all(features.values()):
        assert not features or encode_example(features) == expected


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
    assert encode_examples(batch) == [to_protobuf(row) for row in rows]


@given(st.lists(st.binary(max_size=70), max_size=40))
@example([b""])
def test_records_are_written_as_tensorflow_does(tmp_path_factory, records):
    folder = tmp_path_factory.mktemp("records")
    with write_records([str(folder / "ours")]) as [writer]:
        for record in records:
            writer.write(record)
    with tf.io.TFRecordWriter(str(folder / "theirs")) as other:
        for record in records:
            other.write(record)
    assert (folder / "ours").read_bytes() == (folder / "theirs").read_bytes()


@given(st.binary(max_size=70), st.data())
def test_a_record_with_a_flipped_bit_or_another_length_is_none(record, data):
    stored = encode_record(record)
    assert decode_record(stored) == record
    place = data.draw(st.integers(0, 8 * len(stored) - 1))
    changed = bytearray(stored)
    changed[place // 8] ^= 1 << place % 8
    assert decode_record(bytes(changed)) is None
    assert decode_record(stored[:-1]) is None
    assert decode_record(stored + b"0") is None


@given(st.lists(st.binary(max_size=70), max_size=40), st.integers(1, 3))
def test_an_index_has_the_ends_and_the_description_of_records(tmp_path_factory, records, count):
    folder = tmp_path_factory.mktemp("records")
    paths = [str(folder / str(number)) for number in range(count)]
    made_with = {"seed": 5, "prob": 0.1, "name": "ä"}
    with write_records(paths, made_with) as writers:
        for number, record in enumerate(records):
            writers[number % count].write(record)
    plain = str(folder / "plain")
    for number, path in enumerate(paths):
        mine = records[number::count]
        with write_records([plain]) as [writer]:
            for record in mine:
                writer.write(record)
        assert _content(path) == _content(plain)
        index = decode_index(_content(index_path(path)))
        assert index.ends.tolist() == np.cumsum([len(each) + 16 for each in mine]).tolist()
        assert index.made_with == made_with
    assert {each.name for each in folder.iterdir()} == {
        "plain",
        *(f"{number}" for number in range(count)),
        *(f".{number}.index" for number in range(count)),
    }


@given(st.integers(0, 10**6), st.integers(1, 255))
def test_every_change_of_an_index_is_found(place, change):
    content = bytearray(encode_index(Index(np.arange(9), {"seed": 1})))
    content[place % len(content)] ^= change
    with pytest.raises(ValueError, match="its checksum must be that of its content"):
        decode_index(bytes(content))


def sealed(content):
    return content + struct.pack("<I", zlib.crc32(content))


@pytest.mark.parametrize(
    "head",
    [
        *(b"", b"{", b"[]", b"7", b"null", b'"form"', b"{}", b"\xff", b"[" * 100_000),
        *(b'{"form": 1}', b'{"form": 1, "made_with": null}', b'{"form": 1, "made_with": [1]}'),
        *(b'{"form": [], "made_with": {}}', b'{"form": 2, "made_with": {}}', b"9" * 5000),
        # Half a number after the head.
        b'{"form": 1, "made_with": {}}\n123',
    ],
)
def test_an_index_of_another_program_or_version_is_ignored_with_a_warning(tmp_path, log, head):
    """Its checksum is right."""
    (tmp_path / ".r.index").write_bytes(sealed(head + b"\n"))
    assert read_index(str(tmp_path / "r")) is None
    [message] = log.messages
    assert "is not used, for it cannot be read" in message and "\n" not in message


@pytest.mark.parametrize(
    "ends",
    [
        *([-1], [0], [15], [32, 31], [32, 40], [-(2**63), 2**63 - 1], [2**63 - 1, -(2**63)]),
        *([2**62, -(2**62)], [2**63 - 1, 40 - 2**63]),
    ],
)
def test_impossible_ends_in_an_index_are_refused(ends):
    with pytest.raises(ValueError, match="must follow each other"):
        decode_index(encode_index(Index(np.array(ends, np.int64), {})))


def test_an_index_fits_a_file_of_its_records_alone(tmp_path):
    for count in (0, 3):
        with write_records([str(tmp_path / str(count))]) as [writer]:
            for number in range(count):
                writer.write(b"x" * number)
    ends = np.cumsum([16, 17, 18])
    for count, found in ((0, ends[:0]), (3, ends)):
        for other in (0, 3):
            assert fits(Index(found, {}), str(tmp_path / str(other))) == (count == other)
    assert not fits(Index(np.cumsum([17, 16, 18]), {}), str(tmp_path / "3"))


def test_an_index_takes_eight_bytes_a_record():
    sizes = [len(encode_index(Index(np.arange(count), {}))) for count in (1000, 2000)]
    assert sizes[1] - sizes[0] == 8 * 1000


def _content(path):
    with open(path, "rb") as file:
        return file.read()

import struct

import numpy as np
import tensorflow as tf
from hypothesis import example, given
from hypothesis import strategies as st

from bert.files import records as files_records
from bert.files.records import encode_example, encode_examples, write_records

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


def test_many_and_long_records_are_written_in_parts(tmp_path, monkeypatch):
    monkeypatch.setattr(files_records, "_BATCH_BYTES", 1 << 12)
    monkeypatch.setattr(files_records, "_BATCH_RECORDS", 7)
    records = [struct.pack("<I", i) * (i % 50 * (i % 3)) for i in range(300)] + [b"x" * 9001]
    path = str(tmp_path / "r.tfrecord")
    with write_records([path]) as [writer]:
        for record in records:
            writer.write(record)
            assert len(writer._waiting) < 7
    assert list(tf.data.TFRecordDataset(path).as_numpy_iterator()) == records

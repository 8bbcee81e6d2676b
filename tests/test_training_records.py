import contextlib
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from conftest import write_records
from hypothesis import given
from hypothesis import strategies as st

from bert.files import records as files_records
from bert.files.paths import index_path
from bert.files.records import read_description
from bert.training.records import RecordFile

RECORDS = [bytes([number]) * (number * 7 % 50) for number in range(20)]
SIZES = [len(record) + 16 for record in RECORDS]


def write_indexed(path, records=RECORDS):
    with files_records.write_records([str(path)], {"seed": 5}) as [writer]:
        for record in records:
            writer.write(record)
    return str(path)


def _content(path):
    with open(path, "rb") as file:
        return file.read()


def read_all(path):
    file = RecordFile(path)
    return [file[number] for number in range(len(file))]


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """A file that each example writes anew."""
    return tmp_path_factory.mktemp("records") / "x"


@given(st.lists(st.binary(max_size=70), max_size=40), st.randoms())
def test_each_record_is_reached_by_its_number(path, records, rng):
    file = RecordFile(write_records(path, records))
    numbers = list(range(len(records)))
    rng.shuffle(numbers)
    assert [file[number] for number in numbers] == [records[number] for number in numbers]


def test_records_behind_4_gigabytes_are_reached(tmp_path):
    start = 1 << 32
    path = Path(write_records(tmp_path / "x", RECORDS))
    content = path.read_bytes()
    with path.open("wb") as file:
        # A record as long, of zeros, which take no room.
        file.write(files_records.record_header(start - 16))
        file.seek(start)
        file.write(content)
    ends = np.array([start, *(start + np.cumsum(SIZES))])
    index = files_records.encode_index(files_records.Index(ends, {}))
    Path(index_path(str(path))).write_bytes(index)
    assert RecordFile(str(path)).read(1, 21) == RECORDS


def test_threads_that_read_one_file_each_get_their_records(path):
    file = RecordFile(write_records(path, RECORDS))
    numbers = np.random.RandomState(0).randint(20, size=4000).tolist()
    with ThreadPoolExecutor(8) as pool:
        assert [*pool.map(file.__getitem__, numbers)] == [RECORDS[number] for number in numbers]


@given(st.binary(max_size=200), st.integers(0, 20))
def test_bytes_that_are_no_records_are_refused_wherever_they_begin(path, content, count):
    write_records(path, RECORDS[:count])
    path.write_bytes(path.read_bytes() + content)
    if content:
        with pytest.raises(
            ValueError, match=f"after {count} records, at byte {sum(SIZES[:count])}"
        ):
            RecordFile(str(path))
    else:
        assert read_all(str(path)) == RECORDS[:count]


@given(st.integers(0, sum(SIZES) - 1), st.integers(0, 7))
def test_every_flipped_bit_is_found(path, place, bit):
    content = bytearray(_content(write_records(path, RECORDS)))
    content[place] ^= 1 << bit
    path.write_bytes(content)
    message = f"^'{path}' must be a whole, uncompressed TFRecord file"
    with pytest.raises(ValueError, match=message) as caught:
        RecordFile(str(path))
    assert "\n" not in str(caught.value)


@given(st.integers(0, sum(SIZES) - 1), st.integers(0, 7))
def test_with_an_index_every_flipped_bit_is_found_where_its_record_is_read(path, place, bit):
    content = bytearray(_content(write_indexed(path)))
    content[place] ^= 1 << bit
    path.write_bytes(content)
    damaged = int(np.searchsorted(np.cumsum(SIZES), place, side="right"))
    start = (np.cumsum(SIZES) - SIZES)[damaged]
    is_at_a_spot = damaged in (0, 10, 19) and place < start + 12
    with contextlib.ExitStack() as stack:
        stack.callback(os.remove, index_path(str(path)))
        if is_at_a_spot:
            message = "must be a whole, uncompressed TFRecord file"
            stack.enter_context(pytest.raises(ValueError, match=message))
        file = RecordFile(str(path))
    if is_at_a_spot:
        return
    for number, record in enumerate(RECORDS):
        if number != damaged:
            assert file[number] == record
            continue
        with pytest.raises(ValueError, match=f"^Record {number} of '.*x' must be as its") as caught:
            file[number]
        assert "\n" not in str(caught.value)


def test_an_index_of_another_file_is_named_with_the_record(tmp_path):
    path = write_indexed(tmp_path / "x")
    others = [*RECORDS]
    others[3:5] = others[4:2:-1]
    write_records(path, others)
    file = RecordFile(path)
    assert file[2] == others[2]
    for number in (3, 4):
        with pytest.raises(ValueError, match=f"^Record {number} of .*is to be deleted") as caught:
            file[number]
        assert index_path(path) in str(caught.value)
    os.remove(index_path(path))
    assert read_all(path) == others


def open_and_leave_index(path):
    file = RecordFile(path)
    file.leave_index()
    return file


@pytest.mark.parametrize("place", ["{}/x", "ram://test_training_record_file{}/x"])
def test_an_index_is_written_for_the_next_start_on_request(tmp_path, place):
    path = place.format(tmp_path)
    tf.io.gfile.makedirs(os.path.dirname(path))
    write_records(path, RECORDS)
    assert read_all(path) == RECORDS
    assert not tf.io.gfile.exists(index_path(path))
    with ThreadPoolExecutor(8) as pool:
        files = list(pool.map(lambda _: open_and_leave_index(path), range(8)))
    assert all(file.read(0, 20) == RECORDS for file in files)
    left = sorted(tf.io.gfile.listdir(os.path.dirname(path)))
    assert left == [".x.index", "x"]
    index = files_records.read_index(path)
    assert (index.ends.tolist(), index.made_with) == (np.cumsum(SIZES).tolist(), {})
    # Were all of it read again, this would be found.
    with tf.io.gfile.GFile(path, "rb") as reader:
        content = bytearray(reader.read())
    content[sum(SIZES[:4]) - 5] ^= 1
    tf.io.gfile.remove(path)
    with tf.io.gfile.GFile(path, "wb") as writer:
        writer.write(bytes(content))
    file = RecordFile(path)
    assert file.read(4, 20) == RECORDS[4:]
    with pytest.raises(ValueError, match=r"^Record 3 of"):
        file.read(0, 20)


def test_an_index_that_does_not_fit_is_replaced_and_one_that_cannot_be_written_is_not_missed(
    tmp_path, log
):
    path = write_records(tmp_path / "x", RECORDS)
    open_and_leave_index(path)
    write_records(path, RECORDS[5:])
    assert open_and_leave_index(path).read(0, 15) == RECORDS[5:]
    assert files_records.read_index(path).ends.tolist() == np.cumsum(SIZES[5:]).tolist()
    os.remove(index_path(path))
    os.mkdir(index_path(path))
    assert open_and_leave_index(path).read(0, 15) == RECORDS[5:]
    assert any(f"{index_path(path)} is not written" in message for message in log.messages)


def test_an_index_with_a_description_stays_for_the_file_that_it_was_written_for(tmp_path, log):
    path = write_indexed(tmp_path / "x")
    kept, content = _content(index_path(path)), _content(path)
    write_records(path, RECORDS[5:])
    assert open_and_leave_index(path).read(0, 15) == RECORDS[5:]
    assert _content(index_path(path)) == kept
    assert any(f"{index_path(path)} stays, for it describes" in message for message in log.messages)
    with open(path, "wb") as file:
        file.write(content)
    assert read_description(path) == {"seed": 5}


@pytest.mark.parametrize("num_more", [3, 11, 12, 13, SIZES[19] - 1])
def test_records_are_found_and_damage_is_counted_to_the_record(tmp_path, num_more):
    path = tmp_path / "x"
    content = _content(write_records(path, RECORDS))
    assert read_all(str(path)) == RECORDS
    path.write_bytes(content[: sum(SIZES[:19]) + num_more])
    with pytest.raises(ValueError, match="after 19 records"):
        RecordFile(str(path))


@pytest.mark.parametrize("num_left", range(len(RECORDS)))
def test_a_file_truncated_after_a_record_is_found_by_its_index(tmp_path, num_left):
    path = write_indexed(tmp_path / "x")
    os.truncate(path, sum(SIZES[:num_left]))
    message = f"must hold all 20 records that were written. It has the first {num_left} and is "
    with pytest.raises(ValueError, match=message) as caught:
        RecordFile(path)
    assert path in str(caught.value) and index_path(path) in str(caught.value)
    os.remove(index_path(path))
    assert read_all(path) == RECORDS[:num_left]


def test_a_whole_file_says_how_it_was_made(tmp_path):
    path = write_indexed(tmp_path / "x")
    assert read_description(path) == {"seed": 5}
    assert read_description(write_records(tmp_path / "other", RECORDS)) == {}
    moved = tmp_path / "moved"
    os.rename(path, moved)
    assert read_description(str(moved)) == {}


def test_an_index_on_another_file_system_is_read():
    path = write_indexed("ram://test_training_record_file/x")
    assert read_description(path) == {"seed": 5}
    assert read_all(path) == RECORDS
    tf.io.gfile.remove(path)
    write_records(path, RECORDS[:7])
    with pytest.raises(ValueError, match="It has the first 7 and is truncated"):
        RecordFile(path)


@pytest.mark.parametrize("others", [[*RECORDS, b"more"], RECORDS[::-1], RECORDS[1:]])
def test_the_index_of_another_file_does_no_harm(tmp_path, log, others):
    path = write_indexed(tmp_path / "x")
    write_records(path, others)
    assert read_all(path) == others
    assert read_description(path) == {}
    assert f"{path} is not the file that {index_path(path)} was written for." in log.messages


@pytest.mark.parametrize(
    "damage", [lambda _: b"", lambda c: c[:-1], lambda c: c[:9] + b"x" + c[10:]]
)
def test_a_damaged_index_is_logged_and_not_used(tmp_path, log, damage):
    path = write_indexed(tmp_path / "x")
    content = _content(index_path(path))
    with open(index_path(path), "wb") as file:
        file.write(damage(content))
    assert read_all(path) == RECORDS
    assert any(f"{index_path(path)} is not used" in message for message in log.messages)


def test_unreadable_files_are_named(tmp_path):
    for path, reason in (
        (tmp_path, "Is a directory"),
        (tmp_path / "missing", "No such file or directory"),
    ):
        with pytest.raises(ValueError, match="must be a file that can be read") as caught:
            RecordFile(str(path))
        assert repr(str(path)) in str(caught.value) and reason in str(caught.value)
    with pytest.raises(ValueError, match="'ram://nowhere/x' must be a file that can be read"):
        RecordFile("ram://nowhere/x")


@pytest.mark.skipif(os.geteuid() == 0, reason="Nothing is forbidden to root.")
def test_a_file_that_may_not_be_read_is_named(tmp_path):
    path = write_records(tmp_path / "x", RECORDS)
    os.chmod(path, 0)
    with pytest.raises(ValueError, match=r"must be a file that can be read.*Permission denied"):
        RecordFile(path)


@pytest.mark.skipif(
    sys.platform != "linux", reason="Linux has files that open and fail to be read."
)
def test_a_device_that_fails_is_named():
    with pytest.raises(
        ValueError,
        match=r"'/proc/self/mem' must be .* can be read\. Received: Input/output error\.$",
    ):
        RecordFile("/proc/self/mem")


@pytest.mark.parametrize("size", [0, 5, sum(SIZES[:4]), sum(SIZES) - 1])
def test_a_file_cut_while_it_is_read_is_an_error(tmp_path, size):
    path = write_records(tmp_path / "x", RECORDS)
    file = RecordFile(path)
    assert file[19] == RECORDS[19]
    os.truncate(path, size)
    with pytest.raises(
        ValueError, match=r"It was written to while it was read|must stay as it is"
    ) as caught:
        file[19]
    assert path in str(caught.value)


def test_a_file_rewritten_while_it_is_read_is_an_error(tmp_path):
    path = write_records(tmp_path / "x", RECORDS)
    file = RecordFile(path)
    with open(path, "r+b") as other:
        other.write(os.urandom(50))
    with pytest.raises(ValueError, match=r"It was written to while it was read.*after 0 records"):
        file[19]
    write_records(tmp_path / "y", RECORDS[::-1])
    with open(path, "r+b") as other:
        other.write((tmp_path / "y").read_bytes())
    with pytest.raises(ValueError, match="must stay as it is while it is read"):
        file[3]


def test_a_file_that_is_touched_or_replaced_is_read_on(tmp_path, log):
    path = write_records(tmp_path / "x", RECORDS)
    file = RecordFile(path)
    os.utime(path, (0, 0))
    assert [file[number] for number in range(20)] == RECORDS
    assert [m for m in log.messages if "was written to" in m] == [
        f"{path} was written to while it was read. It is complete, and its records have the same "
        "lengths as before, so reading continues."
    ]
    os.replace(write_records(tmp_path / "y", RECORDS[::-1]), path)
    assert [file[number] for number in range(20)] == RECORDS


def test_the_original_finds_no_index_by_the_name_of_a_file(tmp_path):
    path = write_indexed(tmp_path / "train.tfrecord")
    assert tf.io.gfile.exists(index_path(path))
    assert tf.io.gfile.glob(f"{path}*") == [path]
    np.testing.assert_array_equal(
        files_records.decode_index(_content(index_path(path))).ends, np.cumsum(SIZES)
    )

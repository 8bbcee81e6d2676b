"""Fingerprints differ where contents do, and only there."""

import hashlib
import os

import numpy as np
import pytest

from bert.files import fingerprints


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(fingerprints, "_WHOLE_BYTES", 1 << 10)
    monkeypatch.setattr(fingerprints, "_BLOCK_BYTES", 16)


def test_digests_differ_by_content_and_order(tmp_path):
    one, renamed, other, empty = paths = [str(tmp_path / name) for name in "abcd"]
    for path, text in zip(paths, ("1", "1", "2", ""), strict=True):
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
    assert fingerprints.of_files([one]) == fingerprints.of_files([renamed])
    different = [[one], [other], [one, other], [other, one], [one, empty], [empty], []]
    assert len({fingerprints.of_files(each) for each in different}) == len(different)


@pytest.mark.usefixtures("small_blocks")
def test_every_byte_of_complete_files_counts(tmp_path):
    path = tmp_path / "inputs"
    found = set()
    for place in (None, 0, 5_000, 5_001, 99_999):
        content = bytearray(100_000)
        if place is not None:
            content[place] = 1
        path.write_bytes(content)
        found.add(fingerprints.of_whole_files([str(path)]))
    assert len(found) == 5


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("place", [0, 15, 99_984, 99_999, None])
def test_large_files_are_read_at_both_ends_and_between(tmp_path, place):
    content = bytearray(100_000)
    path = tmp_path / "records"
    path.write_bytes(content)
    before = fingerprints.of_files([str(path)])
    if place is None:
        content.append(0)
    else:
        content[place] = 1
    path.write_bytes(content)
    assert fingerprints.of_files([str(path)]) != before


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("count", [1, 15, 16, 40])
def test_digest_of_a_file_is_the_same_among_many(tmp_path, count):
    # As those of trainings that have begun.
    contents = [bytes([number]) * (500 + 100 * (number % 8)) for number in range(count)]
    digest = hashlib.sha256()
    for number, content in enumerate(contents):
        (tmp_path / str(number)).write_bytes(content)
        digest.update(f"{len(content)} ".encode())
        places = ((len(content) - 16) * block // 63 for block in range(64))
        parts = [content] if len(content) <= 1 << 10 else [content[p : p + 16] for p in places]
        digest.update(b"".join(parts))
    paths = [str(tmp_path / str(number)) for number in range(count)]
    assert fingerprints.of_files(paths) == digest.hexdigest()


@pytest.mark.usefixtures("small_blocks")
def test_digests_of_many_files_differ(tmp_path):
    content = bytes(1_000)
    paths = [tmp_path / str(number) for number in range(40)]
    for path in paths:
        path.write_bytes(content)
    before = fingerprints.of_files([*map(str, paths)])
    assert fingerprints.of_files([*map(str, paths)]) == before
    for number, changed in (
        (0, b"1" + content[1:]),
        (17, content[1:] + b"1"),
        (39, content + b"\0"),
        (39, content[1:]),
    ):
        paths[number].write_bytes(changed)
        assert fingerprints.of_files([*map(str, paths)]) != before
        paths[number].write_bytes(content)
    assert fingerprints.of_files([*map(str, paths)]) == before
    assert fingerprints.of_files([*map(str, paths[1:])]) != before


def test_arrays_differ_by_name_shape_dtype_and_value():
    values = np.arange(6, dtype=np.int32)
    different = [
        {"a": values},
        {"b": values},
        {"a": values.reshape(2, 3)},
        {"a": values.astype(np.int64)},
        {"a": values[::-1]},
        {"a": values, "b": values},
    ]
    assert len({fingerprints.of_arrays(each) for each in different}) == len(different)
    assert fingerprints.of_arrays({"b": values, "a": values}) == fingerprints.of_arrays(
        different[-1]
    )


@pytest.fixture
def watched(tmp_path):
    """Two files of some bytes, watched."""
    for name in "ab":
        (tmp_path / name).write_bytes(name.encode() * 3)
    return fingerprints.WatchedFiles([str(tmp_path / name) for name in "ab"])


def touch(path, content=None):
    """Gives a file another time, and perhaps another content."""
    if content is not None:
        path.write_bytes(content)
    os.utime(path, (7, 7))


@pytest.mark.parametrize("is_read", [False, True])
@pytest.mark.parametrize(("content", "said"), [(b"bbbb", "has 4 now"), (b"b", "has 1 now")])
def test_a_file_that_grows_or_shrinks_while_it_is_read_is_named(
    tmp_path, watched, is_read, content, said
):
    if is_read:
        assert watched.digest == fingerprints.of_whole_files(watched)
    watched.check()
    touch(tmp_path / "b", content)
    with pytest.raises(ValueError, match=rf"/b' must stay .* It had 3 bytes, and {said}"):
        watched.check()


def test_of_a_file_that_was_touched_the_content_decides_once_it_is_known(tmp_path, watched, log):
    assert watched.digest == fingerprints.of_whole_files(watched)
    touch(tmp_path / "b")
    watched.check()
    assert [message.split()[0] for message in log.messages] == [str(tmp_path / "b")]
    touch(tmp_path / "b", b"aaa")
    with pytest.raises(ValueError, match=r"/b' must stay .* has other content now"):
        watched.check()


@pytest.mark.parametrize("name", ["a", "b"])
def test_a_file_that_was_written_before_its_digest_is_named(tmp_path, watched, name):
    touch(tmp_path / name)
    with pytest.raises(ValueError, match=rf"/{name}' must stay .* was written to since"):
        watched.check()
    touch(tmp_path / name, b"more")
    with pytest.raises(ValueError, match=rf"/{name}' must stay .* has 4 now"):
        assert watched.digest

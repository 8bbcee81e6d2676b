"""Fingerprints differ where contents do, and only there."""

import numpy as np
import pytest

from bert.files import fingerprints


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(fingerprints, "_WHOLE_BYTES", 1 << 10)
    monkeypatch.setattr(fingerprints, "_BLOCK_BYTES", 16)


def test_contents_names_and_order_tell_files_apart(tmp_path):
    paths = []
    for folder, name, text in [("x", "a", "1"), ("y", "a", "1"), ("x", "b", "1"), ("x", "c", "2")]:
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / name).write_text(text)
        paths.append(str(tmp_path / folder / name))
    one, moved, renamed, other = (fingerprints.of_files([path]) for path in paths)
    assert one == moved
    assert len({one, renamed, other}) == 3
    assert fingerprints.of_files(paths[2:]) != fingerprints.of_files(paths[:1:-1])


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

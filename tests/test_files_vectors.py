import io
import json
import zipfile

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from bert.files import vectors
from bert.files.durable import replace_files
from bert.files.vectors import json_rows, read_npz, text_array, write_jsonl, write_npy, write_npz
from bert.scale.joining import join

floats = st.floats(width=32, allow_nan=False, allow_infinity=False, allow_subnormal=False)
# Many of which have few digits, or lie half-way between two roundings.
ties = st.integers(-(1 << 24), 1 << 24).map(lambda number: number / (1 << 14))
small = st.floats(-(2**-12), 2**-12, width=32, allow_subnormal=False)


def python_text(row):
    return json.dumps([round(float(value), 6) for value in row])[1:-1].encode()


@given(
    st.integers(1, 5).flatmap(
        lambda n: st.lists(st.lists(floats | ties | small, min_size=n, max_size=n), min_size=1)
    )
)
def test_numbers_are_written_as_python_rounds_them(rows):
    values = np.array(rows, np.float32)
    assert json_rows(values) == [python_text(row) for row in values]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, b"0.0"),
        (-0.0, b"-0.0"),
        (-1e-7, b"-0.0"),
        (1e-6, b"1e-06"),
        (-1.2e-5, b"-1.2e-05"),
        (1e-4, b"0.0001"),
        (0.5, b"0.5"),
        (1.100001, b"1.100001"),
        (999.25, b"999.25"),
        (-1000.0, b"-1000.0"),
        (3e38, b"3e+38"),
    ],
)
def test_a_number_is_written_as_python_writes_it(value, text):
    row = np.array([value, 2.0], np.float32)
    [written] = json_rows(row[None])
    assert written == python_text(row)
    if value != 3e38:
        assert written == text + b", 2.0"


def test_many_rows_keep_their_order():
    values = np.random.RandomState(0).randn(300, 257).astype(np.float32)
    assert json_rows(values) == [python_text(row) for row in values]


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_number_that_json_lacks_is_an_error(value):
    values = np.array([[0.0, 1.0], [value, 2.0]], np.float32)
    with pytest.raises(ArithmeticError, match="finite"):
        json_rows(values)


def test_lines_have_the_keys_of_the_original_in_its_order():
    file = io.BytesIO()
    values = [np.array([[1, 2], [3, 4]], np.float32), np.array([[5], [6]], np.float32)]
    features = [(["[CLS]", 'é"'], values)]
    write_jsonl(file, features, [-1, "last"], "none")
    assert file.getvalue().decode() == (
        '{"linex_index": 0, "features": ['
        '{"token": "[CLS]", "layers": [{"index": -1, "values": [1.0, 2.0]}, '
        '{"index": "last", "values": [5.0]}]}, '
        '{"token": "\\u00e9\\"", "layers": [{"index": -1, "values": [3.0, 4.0]}, '
        '{"index": "last", "values": [6.0]}]}]}\n'
    )


def test_a_pooled_line_has_its_layers_in_place_of_tokens():
    file = io.BytesIO()
    features = [(["[CLS]", "a"], [np.full((1, 2), number, np.float32)]) for number in range(3)]
    write_jsonl(file, features, [0], "mean")
    lines = [json.loads(line) for line in file.getvalue().splitlines()]
    assert lines == [
        {
            "linex_index": number,
            "pooling": "mean",
            "layers": [{"index": 0, "values": [number, number]}],
        }
        for number in range(3)
    ]


def test_lines_do_not_depend_on_how_they_are_grouped(monkeypatch):
    rng = np.random.RandomState(1)
    features = [
        (["x"] * length, [rng.randn(length, 3).astype(np.float32) for _ in range(2)])
        for length in (1, 4, 2, 7)
    ]
    written = []
    for group in (1, 10, 1 << 20):
        monkeypatch.setattr(vectors, "_GROUP", group)
        file = io.BytesIO()
        write_jsonl(file, iter(features), [1, 2], "none")
        written.append(file.getvalue())
    assert written[0] == written[1] == written[2]
    assert [len(json.loads(line)["features"]) for line in written[0].splitlines()] == [1, 4, 2, 7]


def test_arrays_written_in_parts_are_read_whole(tmp_path):
    parts = [np.full((n, 2, 3), n, np.float32) for n in (2, 1, 4)]
    names = np.array(["-1", "last"])
    with open(tmp_path / "x.npz", "wb") as file:
        write_npz(
            file,
            {
                "values": ((7, 2, 3), "<f4", iter(parts)),
                "lengths": ((3,), "<i4", [np.array([2, 1, 4])]),
                "layers": (names.shape, names.dtype.str, [names]),
            },
        )
    with np.load(tmp_path / "x.npz") as arrays:
        np.testing.assert_array_equal(arrays["values"], np.concatenate(parts))
        assert arrays["values"].dtype == np.float32
        assert arrays["lengths"].tolist() == [2, 1, 4]
        assert arrays["layers"].tolist() == ["-1", "last"]


def test_arrays_are_written_and_read_elsewhere_too():
    folder = "ram://test_files_vectors"
    tf.io.gfile.makedirs(folder)
    values, texts = np.arange(6, dtype=np.float32).reshape(3, 2), np.array(["a", "bb"])
    arrays = {"values": (values.shape, "<f4", [values]), "texts": ((2,), texts.dtype.str, [texts])}
    with replace_files([f"{folder}/x.npz", f"{folder}/x.npy"]) as [archive, single]:
        write_npz(archive, arrays)
        write_npy(single, "values", arrays["values"])
    found = read_npz(f"{folder}/x.npz")
    np.testing.assert_array_equal(found["values"], values)
    assert found["texts"].tolist() == ["a", "bb"]
    joined = io.BytesIO()
    join([f"{folder}/x.npy"] * 2, "npy", joined)
    joined.seek(0)
    np.testing.assert_array_equal(np.load(joined), [*values, *values])
    with pytest.raises(FileNotFoundError):
        read_npz(f"{folder}/none.npz")


def test_short_texts_take_no_room_of_the_longest():
    texts = ["x" * 1000, *map(str, range(1000))]
    file = io.BytesIO()
    write_npz(file, {"texts": text_array(texts, len(texts), 1000)})
    assert len(file.getvalue()) < 4 * 1000 * len(texts) / 100
    file.seek(0)
    assert np.load(file)["texts"].tolist() == texts


def test_an_array_with_too_few_rows_is_an_error():
    with pytest.raises(ValueError, match=r"`values` must have 3 rows. There are 2"):
        write_npz(io.BytesIO(), {"values": ((3, 1), "<f4", [np.zeros((2, 1))])})


def test_a_damaged_archive_is_named(tmp_path):
    arrays = {
        "values": np.arange(6, dtype=np.float32).reshape(3, 2),
        "texts": np.array(["a", "bb"]),
    }
    path = tmp_path / "v.npz"
    np.savez_compressed(path, **arrays)
    found = read_npz(str(path))
    assert [*found] == [*arrays]
    for name, values in arrays.items():
        np.testing.assert_array_equal(found[name], values)
    content = path.read_bytes()
    damaged = bytearray(content)
    damaged[content.index(b"values.npy") + 50] ^= 0xFF
    with io.BytesIO() as buffer:
        with zipfile.ZipFile(buffer, "w") as archive:
            archive.writestr("values.npy", b"\x93NUMPY\x01\x00\x14\x00{'descr': '<f4', (3,\n")
        unclosed = buffer.getvalue()
    with io.BytesIO(content) as buffer:
        with zipfile.ZipFile(buffer, "a") as archive:
            archive.writestr("texts.txt", "a\nbb\n")
        mixed = buffer.getvalue()
    for wrong in (b"", b"PK", content[:-30], bytes(damaged), unclosed, mixed, b"no archive"):
        path.write_bytes(wrong)
        with pytest.raises(ValueError, match=r"v\.npz' must be a complete NumPy file\. \S"):
            read_npz(str(path))

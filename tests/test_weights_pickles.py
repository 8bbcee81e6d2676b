"""Files of `torch.save`, as their two forms lay out the numbers of which tensors are views."""

import collections
import io
import pickle
import sys
import types
import zipfile

import numpy as np
import pytest

from bert.weights import formats, pickles

NUMBERS = np.arange(12, dtype=np.float32)
# By name, where views of `NUMBERS` begin, their shapes and their strides.
VIEWS = {
    "whole": (0, (3, 4), (4, 1)),
    "behind": (5, (2, 3), (3, 1)),
    "transposed": (0, (4, 3), (1, 4)),
    "last": (11, (1,), (1,)),
    "every third": (2, (4,), (3,)),
    "none": (0, (0, 3), (3, 1)),
    "number": (7, (), ()),
}


class Storage:
    pass


class View:
    def __init__(self, rebuild, *arguments):
        self.rebuild, self.arguments = rebuild, arguments

    def __reduce__(self):
        return self.rebuild, (*self.arguments, False, collections.OrderedDict())


@pytest.fixture
def dump(monkeypatch):
    """A function that pickles views of one storage as PyTorch does, which is not there."""
    torch, utils = types.ModuleType("torch"), types.ModuleType("torch._utils")
    torch.FloatStorage = type("FloatStorage", (), {"__module__": "torch"})

    def rebuild():
        raise NotImplementedError

    rebuild.__module__, rebuild.__qualname__ = "torch._utils", "_rebuild_tensor_v2"
    utils._rebuild_tensor_v2 = rebuild
    for module in (torch, utils):
        monkeypatch.setitem(sys.modules, module.__name__, module)

    def dump(views, numel=NUMBERS.size):
        class Pickler(pickle.Pickler):
            def persistent_id(self, value):
                if isinstance(value, Storage):
                    return ("storage", torch.FloatStorage, "0", "cpu", numel, None)
                return None

        storage, file = Storage(), io.BytesIO()
        Pickler(file, 2).dump({name: View(rebuild, storage, *view) for name, view in views.items()})
        return file.getvalue()

    return dump


def write_archive(path, program, numbers, order):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", program)
        archive.writestr("archive/data/0", numbers.astype(f"{order}f4").tobytes())
        archive.writestr("archive/byteorder", {"<": "little", ">": "big"}[order])


def write_legacy(path, program, numbers, order):
    facts = {"protocol_version": 1001, "little_endian": order == "<", "type_sizes": {"int": 4}}
    heads = [pickle.dumps(each, 2) for each in (0x1950A86A20F9469CFC6C, 1001, facts)]
    size = len(numbers).to_bytes(8, "little" if order == "<" else "big")
    keys, content = pickle.dumps(["0"], 2), numbers.astype(f"{order}f4").tobytes()
    path.write_bytes(b"".join([*heads, program, keys, size, content]))


@pytest.mark.parametrize("write", [write_archive, write_legacy])
@pytest.mark.parametrize("order", ["<", ">"])
def test_tensors_are_views_of_numbers_that_they_share(tmp_path, dump, write, order):
    write(tmp_path / "x.bin", dump(VIEWS), NUMBERS, order)
    found = pickles.read_pickle(str(tmp_path / "x.bin"))
    assert found.keys() == VIEWS.keys()
    for name, (start, shape, strides) in VIEWS.items():
        steps = [4 * step for step in strides]
        expected = np.lib.stride_tricks.as_strided(NUMBERS[start:], shape, steps)
        assert found[name].shape == shape
        np.testing.assert_array_equal(found[name].read(), expected)
        assert found[name].read().dtype == np.float32


@pytest.mark.parametrize(
    ("view", "message"),
    [
        ((0, (13,), (1,)), "larger than its 12 numbers"),
        ((9, (2, 2), (2, 1)), "larger than its 12 numbers"),
        # What PyTorch expands has the same numbers again and again.
        ((0, (10**6, 10**6), (0, 0)), "larger than its 12 numbers"),
        ((-1, (2,), (1,)), "no proper shape"),
        ((0, (2, 2), (1,)), "no proper shape"),
    ],
)
def test_a_view_of_more_than_there_is_is_refused(tmp_path, dump, view, message):
    write_archive(tmp_path / "x.bin", dump({"a": view}), NUMBERS, "<")
    with pytest.raises(formats.FormatError, match=message):
        pickles.read_pickle(str(tmp_path / "x.bin"))


@pytest.mark.parametrize(
    ("write", "count", "message"),
    [
        (write_archive, 13, "numbers '0' are not all there"),
        (write_legacy, 13, "12 numbers of 13"),
        (write_legacy, 11, "12 numbers of 11"),
    ],
)
def test_numbers_that_are_not_all_there_or_too_many_are_refused(
    tmp_path, dump, write, count, message
):
    write(tmp_path / "x.bin", dump({"a": VIEWS["behind"]}, count), NUMBERS, "<")
    with pytest.raises(formats.FormatError, match=message):
        pickles.read_pickle(str(tmp_path / "x.bin"))

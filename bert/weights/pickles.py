"""Reads the tensors of a pickle of PyTorch without running it.

A pickle is a program for a machine with a stack. This machine has the instructions that
`torch.save` writes for tensors in dictionaries, and calls nothing: a name that is no part of a
tensor is an error. Files are archives (PyTorch 1.6 and later) or, before, pickles one behind the
other and the numbers after them (torch/serialization.py, `_legacy_save`).
"""

import functools
import math
import pickletools
import zipfile
from collections.abc import Callable
from typing import IO, Any, NamedTuple

import numpy as np

from bert.files.paths import file_size, open_file
from bert.weights.formats import FormatError, Tensor, Tensors, read_range

_MAGIC, _PROTOCOL = 0x1950A86A20F9469CFC6C, 1001
# Bytes of a pickle without the numbers, and its instructions: a Large has 20,000.
_MAX_PICKLE, _MAX_INSTRUCTIONS = 50_000_000, 5_000_000
_TYPES = {
    **{"FloatStorage": "f4", "DoubleStorage": "f8", "HalfStorage": "f2", "CharStorage": "i1"},
    **{"LongStorage": "i8", "IntStorage": "i4", "ShortStorage": "i2", "ByteStorage": "u1"},
    **{"BoolStorage": "?", "BFloat16Storage": "bfloat16"},
}
# Keys under which programs save the weights beside other things.
_WITHIN = ("state_dict", "model_state_dict", "model")


class _Storage(NamedTuple):
    """Numbers in a file, of which tensors are views."""

    dtype: np.dtype
    key: str
    numel: int

    @property
    def num_bytes(self) -> int:
        return self.numel * self.dtype.itemsize


class _View(NamedTuple):
    """A tensor as a view of a storage, whose numbers are not read yet."""

    storage: _Storage
    offset: int
    size: tuple[int, ...]
    strides: tuple[int, ...]


def _are_counts(values: Any) -> bool:
    return all(type(value) is int and 0 <= value < 1 << 48 for value in values)


def _rebuild(storage: _Storage, offset: int, size: Any, strides: Any, *_: Any) -> _View:
    if not _are_counts([offset, *size, *strides]) or len(size) != len(strides):
        raise FormatError("a tensor has no proper shape")
    last = offset + sum((n - 1) * step for n, step in zip(size, strides, strict=True))
    if math.prod(size) > storage.numel or (0 not in size and last >= storage.numel):
        raise FormatError(f"a tensor of shape {[*size]} is larger than its {storage.numel} numbers")
    return _View(storage, offset, tuple(size), tuple(strides))


def _to_dictionary(pairs: Any = ()) -> dict[Any, Any]:
    # The hash of a tuple of tuples could take for ever.
    if not all(isinstance(key, str | int) for key, _ in pairs):
        raise FormatError("it has a dictionary whose keys are neither texts nor numbers")
    return dict(pairs)


# What a pickle of tensors calls, and what stands for it.
_CALLS: dict[str, Callable[..., Any]] = {
    "OrderedDict": _to_dictionary,
    "_rebuild_tensor": _rebuild,
    "_rebuild_tensor_v2": _rebuild,
    "_rebuild_parameter": lambda view, *_: view,
}
_MODULES = {
    "OrderedDict": ("collections",),
    **dict.fromkeys(_TYPES, ("torch", "torch.cuda")),
    **dict.fromkeys([*_CALLS][1:], ("torch._utils",)),
}


class _Machine:
    """Follows the instructions of a pickle; `run` returns what it describes.

    Attributes:
      storages: The storages that tensors there are views of, by their keys.
      stack: Values, the latest last.
      marks: Lengths that the stack had.
      memo: Values by their numbers.
    """

    def __init__(self) -> None:
        self.storages: dict[str, _Storage] = {}
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}

    def run(self, file: IO[bytes]) -> Any:
        for number, (opcode, argument, _) in enumerate(pickletools.genops(file)):
            if opcode.name == "STOP":
                return self.stack.pop()
            if number > _MAX_INSTRUCTIONS:
                raise FormatError(f"it has more than {_MAX_INSTRUCTIONS:,} instructions")
            if opcode.name in _VALUES:
                self.stack.append(_CONSTANTS.get(opcode.name, argument))
            elif opcode.name in _STEPS:
                _STEPS[opcode.name](self, argument)
            else:
                raise FormatError(f"it has the instruction {opcode.name}, and tensors need none")
        raise FormatError("it has no end")

    def pop(self, count: int) -> list[Any]:
        start = len(self.stack) - count
        if start < 0:
            raise FormatError("an instruction lacks its operands")
        taken, self.stack[start:] = self.stack[start:], []
        return taken

    def pop_to_mark(self) -> list[Any]:
        return self.pop(len(self.stack) - self.marks.pop())

    def store(self, number: int | None) -> None:
        self.memo[len(self.memo) if number is None else number] = self.stack[-1]

    def find(self, module: Any, name: Any) -> None:
        """Pushes the name of a function or a class that has a part in tensors."""
        if not isinstance(name, str) or module not in _MODULES.get(name, ()):
            raise FormatError(
                f"it names {module}.{name}, which is no part of a tensor and could run code; "
                "nothing of it was run. Where you trust who made it, load it with that program, "
                "and save the weights alone, as safetensors"
            )
        self.stack.append(name)

    def extend(self, items: list[Any]) -> None:
        self.stack[-1].extend(items)

    def set_items(self, items: list[Any]) -> None:
        self.stack[-1].update(_to_dictionary([*zip(items[::2], items[1::2], strict=True)]))

    def call(self) -> None:
        function, arguments = self.pop(2)
        if not isinstance(function, str):
            raise FormatError("it calls what is no function")
        self.stack.append(_CALLS[function](*arguments))

    def find_storage(self) -> None:
        (found,) = self.pop(1)
        kind, dtype, key, _, count, *view = found
        are_texts = isinstance(dtype, str) and isinstance(key, str)
        if kind != "storage" or not are_texts or any(view) or not _are_counts([count]):
            raise FormatError("it refers to something else than a storage")
        self.storages[key] = _Storage(np.dtype(_TYPES[dtype]), key, count)
        self.stack.append(self.storages[key])


# Instructions that push a value or their argument, and what others do: of protocols 2 to 4.
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False, "EMPTY_TUPLE": ()}
_VALUES = (
    *_CONSTANTS,
    *("BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT", "BINUNICODE", "BINUNICODE8"),
    *("SHORT_BINUNICODE", "BINSTRING", "SHORT_BINSTRING"),
)
_STEPS: dict[str, Callable[[_Machine, Any], Any]] = {
    **dict.fromkeys(("PROTO", "FRAME"), lambda m, _: None),
    "EMPTY_DICT": lambda m, _: m.stack.append({}),
    "EMPTY_LIST": lambda m, _: m.stack.append([]),
    "MARK": lambda m, _: m.marks.append(len(m.stack)),
    "TUPLE": lambda m, _: m.stack.append(tuple(m.pop_to_mark())),
    "TUPLE1": lambda m, _: m.stack.append(tuple(m.pop(1))),
    "TUPLE2": lambda m, _: m.stack.append(tuple(m.pop(2))),
    "TUPLE3": lambda m, _: m.stack.append(tuple(m.pop(3))),
    "APPEND": lambda m, _: m.extend(m.pop(1)),
    "APPENDS": lambda m, _: m.extend(m.pop_to_mark()),
    "SETITEM": lambda m, _: m.set_items(m.pop(2)),
    "SETITEMS": lambda m, _: m.set_items(m.pop_to_mark()),
    **dict.fromkeys(("BINPUT", "LONG_BINPUT", "MEMOIZE"), lambda m, number: m.store(number)),
    **dict.fromkeys(("BINGET", "LONG_BINGET"), lambda m, number: m.stack.append(m.memo[number])),
    "GLOBAL": lambda m, names: m.find(*names.split(" ", 1)),
    "STACK_GLOBAL": lambda m, _: m.find(*m.pop(2)),
    "BINPERSID": lambda m, _: m.find_storage(),
    "REDUCE": lambda m, _: m.call(),
    # The attributes of a dictionary: versions of modules.
    "BUILD": lambda m, _: m.pop(1),
}


# The tensors of a file, a function that reads a storage, and the order of bytes.
_Opened = tuple[dict[str, _View], Callable[[_Storage], bytes], Any]


def read_pickle(path: str) -> Tensors:
    """Returns the tensors that `torch.save` has written in a dictionary.

    Raises:
      FormatError: where the file holds anything but tensors, numbers and texts.
    """
    open_tensors = _open_archive if zipfile.is_zipfile(path) else _open_legacy
    views, read, order = open_tensors(path)
    if not views:
        raise FormatError("it has no dictionary of tensors by name")
    return {
        name: Tensor(view.size, functools.partial(_read, view, read, order))
        for name, view in views.items()
    }


def _open_archive(path: str) -> _Opened:
    archive = zipfile.ZipFile(path)
    files = {info.filename.partition("/")[2]: info for info in archive.infolist()}
    if any(info.compress_type != zipfile.ZIP_STORED for info in files.values()):
        raise FormatError("torch.save compresses nothing, and it has a file that is compressed")
    if files["data.pkl"].file_size > _MAX_PICKLE:
        raise FormatError(f"it describes its tensors in more than {_MAX_PICKLE:,} bytes")
    machine = _Machine()
    with archive.open(files["data.pkl"]) as file:
        views = _find_views(machine.run(file))
    for key, storage in machine.storages.items():
        if files[f"data/{key}"].file_size < storage.num_bytes:
            raise FormatError(f"its numbers {key!r} are not all there")
    is_big = "byteorder" in files and archive.read(files["byteorder"]) == b"big"
    return views, lambda storage: archive.read(files[f"data/{storage.key}"]), "<>"[is_big]


def _open_legacy(path: str) -> _Opened:
    starts: dict[str, int] = {}
    machine = _Machine()
    with open_file(path) as file:
        if (_Machine().run(file), _Machine().run(file)) != (_MAGIC, _PROTOCOL):
            raise FormatError("it is a pickle, but none of torch.save")
        is_little = _Machine().run(file)["little_endian"]
        views = _find_views(machine.run(file))
        keys, place = _Machine().run(file), file.tell()
        for key in keys:
            file.seek(place)
            numel = int.from_bytes(file.read(8), "little" if is_little else "big")
            if numel != machine.storages[key].numel:
                raise FormatError(f"it has {numel} numbers of {machine.storages[key].numel}")
            starts[key] = place + 8
            place += 8 + machine.storages[key].num_bytes
    if place > file_size(path) or not machine.storages.keys() <= starts.keys():
        raise FormatError(f"it has {file_size(path)} bytes of {place}")

    def read(storage: _Storage) -> bytes:
        return read_range(path, starts[storage.key], storage.num_bytes)

    return views, read, "<" if is_little else ">"


def _find_views(value: Any) -> dict[str, _View]:
    """Returns the tensors of a dictionary, or of the one in it that has the weights."""
    # Beside the weights of a checkpoint may be other tensors, such as the loss.
    inner = [*(value.get(key) for key in _WITHIN), value] if isinstance(value, dict) else []
    for found in inner:
        if isinstance(found, dict) and any(isinstance(item, _View) for item in found.values()):
            return {str(name): item for name, item in found.items() if isinstance(item, _View)}
    return {}


def _read(view: _View, read: Callable[[_Storage], bytes], order: Any) -> np.ndarray:
    """Returns the numbers of a tensor."""
    dtype = view.storage.dtype.newbyteorder(order)
    values = np.frombuffer(read(view.storage), dtype, view.storage.numel)
    steps = [step * values.itemsize for step in view.strides]
    # Within the storage, as `_rebuild` has checked.
    taken = np.lib.stride_tricks.as_strided(values[view.offset :], view.size, steps)
    return np.ascontiguousarray(taken, taken.dtype.newbyteorder("="))

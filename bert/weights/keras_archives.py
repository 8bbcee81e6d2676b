"""Reads the weights and the shape of a model in a `.keras` archive, or in a preset of keras-hub.

An archive is a ZIP with `model.weights.h5` and `config.json`, which describes layers and may name
functions to run. The description is only searched for the shape of a BERT.
"""

import collections
import io
import os
import struct
import zipfile
from collections.abc import Iterator
from typing import Any, BinaryIO

from bert.files.paths import file_size, is_file, open_file, parse_json
from bert.files.stored_models import KERAS_WEIGHTS_FILE, from_keras, is_keras_config
from bert.weights.formats import DAMAGES, FormatError, OtherModelError, Tensors, read_hdf5

CONFIG_FILE = "config.json"
# Of a preset, the head of its model.
_TASK_FILE = "task.weights.h5"
_MAX_CONFIG = 50_000_000


def read_archive(path: str) -> Tensors:
    """Returns the tensors of a `.keras` archive by the paths of its layers.

    Raises:
      FormatError: where it is compressed, which Keras does not do.
    """
    # Numbers are read from within the archive, which stays as it is.
    tensors = read_hdf5(io.BufferedReader(_open(path, KERAS_WEIGHTS_FILE)))
    _check_architecture(_read_config(path))
    return tensors


def read_shape(path: str) -> dict[str, Any] | None:
    """Returns the `config` of the BERT in an archive, as `from_keras` takes it; None for none."""
    try:
        described = _read_config(path)
    except DAMAGES:
        return None
    found = (values for values in _walk(described) if is_keras_config(values))
    return next(found, None)


def read_preset(path: str) -> Tensors:
    """Returns the tensors of the encoder in a folder of keras-hub, and of the head beside it."""
    tensors = dict(read_hdf5(path))
    for head in find_head(path):
        tensors |= {f"task/{name}": tensor for name, tensor in read_hdf5(head).items()}
    return tensors


def find_head(path: str) -> list[str]:
    """Returns the file of the head beside the weights of a preset, [] for none."""
    head = os.path.join(os.path.dirname(path), _TASK_FILE)
    return [head] if is_file(head) else []


class _Part(io.RawIOBase):
    """A part of a file, which can be read from any place without the rest."""

    def __init__(self, file: BinaryIO, start: int, size: int) -> None:
        super().__init__()
        self._file, self._start, self._size = file, start, size
        self._place = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        bases = {io.SEEK_SET: 0, io.SEEK_CUR: self._place, io.SEEK_END: self._size}
        self._place = max(bases[whence] + offset, 0)
        return self._place

    def readinto(self, buffer: Any) -> int:
        self._file.seek(self._start + self._place)
        count = max(min(len(buffer), self._size - self._place), 0)
        count = self._file.readinto(memoryview(buffer)[:count])  # type: ignore[attr-defined]
        self._place += count
        return count

    def close(self) -> None:
        self._file.close()
        super().close()


def _open(path: str, name: str) -> _Part:
    """Returns a file of an archive, within it."""
    with zipfile.ZipFile(path) as archive:
        info = archive.getinfo(name)
    if info.compress_type != zipfile.ZIP_STORED or info.file_size != info.compress_size:
        raise FormatError(f"Keras compresses nothing, and its {name!r} is compressed")
    file = open_file(path)
    file.seek(info.header_offset)
    # The lengths of the name and of what follows it are at the end of a header of 30 bytes.
    header = file.read(30)
    start = info.header_offset + 30 + sum(struct.unpack("<2H", header[26:]))
    if start + info.file_size > file_size(path):
        raise FormatError(f"the bytes of its {name!r} are not all there")
    return _Part(file, start, info.file_size)


def _read_config(path: str) -> Any:
    with _open(path, CONFIG_FILE) as file:
        text = file.read(_MAX_CONFIG + 1)
    if len(text) > _MAX_CONFIG:
        raise FormatError(f"it describes its layers in more than {_MAX_CONFIG:,} bytes")
    return parse_json(text)


def _walk(described: Any) -> Iterator[dict[str, Any]]:
    """Yields the objects of a description, the outer ones first."""
    waiting = collections.deque([described])
    while waiting:
        value = waiting.popleft()
        if isinstance(value, dict):
            yield value
        if isinstance(value, dict | list):
            waiting += value.values() if isinstance(value, dict) else value


def _check_architecture(described: Any) -> None:
    for values in filter(is_keras_config, _walk(described)):
        try:
            from_keras(values)
        except ValueError as error:
            raise OtherModelError(str(error).rstrip(".")) from error

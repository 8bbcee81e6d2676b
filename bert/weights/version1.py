"""Checkpoints in the first format of TensorFlow 1: a single file, without an index beside it.

Its Saver wrote them before version 0.12, and later with `write_version=SaverDef.V1`. TensorFlow's
reader of checkpoints reads both formats.
"""

import os
import re

from bert.files.paths import file_size, is_file, open_file, paths_from

# How the table ends that such a file is (tensorflow/core/lib/io/format.h, kTableMagicNumber).
_END = bytes.fromhex("57fb808b247547db")
# How pickles of PyTorch begin, which may have the same names: an archive, or a bare pickle.
_PICKLES = (b"PK", b"\x80")
_NAME = re.compile(r".+\.ckpt(?:-\d+)?")


def is_checkpoint(path: str) -> bool:
    """Returns whether a file is such a checkpoint, or, by its name, what is left of one."""
    if not is_file(path) or is_file(f"{path}.index"):
        return False
    with open_file(path) as file:
        start = file.read(2)
        file.seek(max(file_size(path) - len(_END), 0))
        if file.read() == _END:
            return True
    return bool(_NAME.fullmatch(path)) and not start.startswith(_PICKLES)


def find(folder: str) -> list[str]:
    """Returns the paths of such checkpoints in a folder, those of the usual names."""
    paths = paths_from(os.path.join(folder, ""))
    return [path for path in paths if _NAME.fullmatch(path) and is_checkpoint(path)]

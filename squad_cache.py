"""Windows kept beside the output, so that a run on the same file and flags starts at once.

Two files: the records, such as `train.tf_record`, and next to them `train.windows.npz`, the table
that they were made of. The table names the key it was made under, and the records' size and
checksum: neither counts without the other, whatever happened while they were written.
"""

import hashlib
import io
import json
import os
import unicodedata
import zipfile
import zlib
from typing import Any

import numpy as np
from absl import logging

import tokenization
from bert.files.paths import file_size, open_file, replace_files
from bert.tasks.squad import windows as squad_windows
from bert.tasks.squad.window_table import Ragged, WindowTable

# To be raised whenever the same key would give other windows or another form of file.
_VERSION = 1
_CHUNK = 1 << 20


def cache_key(input_file: str, tokenizer: tokenization.FullTokenizer, flags: dict[str, Any]) -> str:
    """Returns what tells apart all that windows are made of.

    Args:
      input_file: The file of questions; its bytes count, not its name.
      tokenizer: The vocabulary and the casing.
      flags: Whatever else decides, by name, as JSON has it.
    """
    digest = hashlib.sha256()
    with open_file(input_file) as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    digest.update(json.dumps(tokenizer.vocab).encode())
    rest = {
        **flags,
        "version": _VERSION,
        "do_lower_case": tokenizer.basic_tokenizer.do_lower_case,
        "unicode": unicodedata.unidata_version,
    }
    digest.update(json.dumps(rest, sort_keys=True).encode())
    return digest.hexdigest()


def table_file(record_file: str) -> str:
    """Returns the name of the file of the table that belongs to a file of records."""
    return os.path.splitext(record_file)[0] + ".windows.npz"


def write(record_file: str, table: WindowTable, key: str, num_processes: int = 1) -> None:
    """Writes the records and then the table; each file appears when it is whole."""
    squad_windows.write_features(record_file, table, num_processes)
    contents = io.BytesIO()
    fingerprint = np.array(_fingerprint(record_file))
    arrays = {"key": np.array(key), "fingerprint": fingerprint, **_arrays(table)}
    np.savez(contents, **arrays)  # type: ignore[arg-type]
    with replace_files([table_file(record_file)]) as (file,):
        file.write(contents.getbuffer())


def read(record_file: str, key: str) -> WindowTable | None:
    """Returns the table of the records, if both are there, whole, and made under this key."""
    path = table_file(record_file)
    try:
        # Says that there is none in the same way wherever the file would be.
        file_size(path)
        with open_file(path) as file:
            arrays = dict(np.load(io.BytesIO(file.read()), allow_pickle=False))
        if str(arrays.pop("key")) != key:
            logging.info("%s was made of other data or with other flags.", path)
            return None
        if tuple(arrays.pop("fingerprint").tolist()) != _fingerprint(record_file):
            logging.info("%s does not belong to %s.", path, record_file)
            return None
        table = _table(arrays)
    except (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile, zlib.error) as error:
        logging.info("No windows are kept in %s (%s).", path, type(error).__name__)
        return None
    logging.info("The windows are those of an earlier run: %s.", record_file)
    return table


def _fingerprint(path: str) -> tuple[int, int]:
    """Returns the size and the checksum of a file."""
    size = file_size(path)
    checksum = 0
    with open_file(path) as file:
        while chunk := file.read(_CHUNK):
            checksum = zlib.crc32(chunk, checksum)
    return size, checksum


_RAGGED = ("question_ids", "paragraph_ids", "paragraph_words", "doc_starts")


def _arrays(table: WindowTable) -> dict[str, np.ndarray]:
    arrays = {
        "max_seq_length": np.array(table.max_seq_length),
        "special_ids": np.array(table.special_ids),
        "paragraphs": table.paragraphs,
    }
    for name in _RAGGED:
        ragged = getattr(table, name)
        arrays[f"{name}_values"], arrays[f"{name}_starts"] = ragged.values, ragged.starts
    if table.answers is not None and table.impossible is not None:
        arrays["answers"], arrays["impossible"] = table.answers, table.impossible
    return arrays


def _table(arrays: dict[str, np.ndarray]) -> WindowTable:
    cls_id, sep_id = arrays["special_ids"].tolist()
    ragged = {name: Ragged(arrays[f"{name}_values"], arrays[f"{name}_starts"]) for name in _RAGGED}
    return WindowTable(
        max_seq_length=int(arrays["max_seq_length"]),
        special_ids=(cls_id, sep_id),
        paragraphs=arrays["paragraphs"],
        answers=arrays.get("answers"),
        impossible=arrays.get("impossible"),
        **ragged,
    )

"""Weights as transformers has them: the tensors that it has names for, written as safetensors."""

import json
from collections.abc import Collection, Mapping
from typing import BinaryIO

import numpy as np
import safetensors.numpy

from bert.files.paths import parse_json
from bert.weights.variables import GLOBAL_STEP, Table, find_variables


def find_known(tensor_names: Collection[str]) -> Table:
    """Returns by name the variables of those tensors that transformers has."""
    table = find_variables(tensor_names)
    return {name: table[name] for name in tensor_names if name in table}


def write(file: BinaryIO, tensors: Mapping[str, np.ndarray], architecture: str) -> None:
    """Writes `model.safetensors`.

    Args:
      file: Open for bytes.
      tensors: By their names in a TF1 checkpoint; tensors without a name in transformers are left
        out, and `global_step` becomes metadata.
      architecture: One of `bert.weights.options.ARCHITECTURES`.
    """
    # The encoder alone is saved without the prefix that it has within other models.
    prefix = "bert." if architecture == "BertModel" else ""
    stored = {}
    for name, variable in find_known(tensors).items():
        value = tensors[name].T if variable.is_transposed else tensors[name]
        stored[variable.theirs.removeprefix(prefix)] = np.ascontiguousarray(value)
    metadata = {"format": "pt"}
    if GLOBAL_STEP in tensors:
        metadata[GLOBAL_STEP] = str(int(tensors[GLOBAL_STEP]))
    content = memoryview(safetensors.numpy.save(dict(sorted(stored.items())), metadata))
    # The library writes the entries of the metadata in a random order, in a header that is padded.
    end = 8 + int.from_bytes(content[:8], "little")
    header = {**parse_json(bytes(content[8:end]).decode()), "__metadata__": metadata}
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False)
    file.write(content[:8])
    file.write(text.encode().ljust(end - 8))
    file.write(content[end:])

"""Reads BERTs in GGUF, as llama.cpp converts them: F32, F16, BF16 and Q8_0.

Metadata have the shape of the model, and tensors their names there, with kernels as PyTorch has
them (ggml, docs/gguf.md). A tensor in Q8_0 is read as the numbers that it stands for.
"""

import functools
import math
import struct
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from bert.files.paths import file_size, open_file
from bert.weights.formats import (
    DAMAGES,
    MAX_DIMENSIONS,
    MAX_NAME,
    MAX_TENSORS,
    FormatError,
    OtherModelError,
    Tensor,
    Tensors,
    read_range,
)

_MAX_VALUES = 5_000_000
# By their numbers: values of metadata, but for texts and lists; and kinds of tensors, with the
# numbers and the bytes of a block.
_VALUES = dict(enumerate(("B", "b", "H", "h", "I", "i", "f", "?", "", "", "Q", "q", "d")))
_TEXT, _LIST = 8, 9
_Q8_0 = np.dtype([("scale", "<f2"), ("values", "i1", 32)])
_KINDS: dict[int, tuple[Any, int]] = {
    **{0: ("<f4", 1), 1: ("<f2", 1), 30: ("bfloat16", 1)},
    8: (_Q8_0, 32),
}
# Names of modules in PyTorch.
_NAMES = {
    "token_embd": "bert.embeddings.word_embeddings",
    "position_embd": "bert.embeddings.position_embeddings",
    "token_types": "bert.embeddings.token_type_embeddings",
    "token_embd_norm": "bert.embeddings.LayerNorm",
}
_BLOCK = {
    **{f"attn_{kind[0]}": f"attention.self.{kind}" for kind in ("query", "key", "value")},
    "attn_output": "attention.output.dense",
    "attn_output_norm": "attention.output.LayerNorm",
    "ffn_up": "intermediate.dense",
    "ffn_down": "output.dense",
    "layer_output_norm": "output.LayerNorm",
}
_SIZES = {
    "hidden_size": "embedding_length",
    "num_hidden_layers": "block_count",
    "num_attention_heads": "attention.head_count",
    "intermediate_size": "feed_forward_length",
    "max_position_embeddings": "context_length",
}


class _Place(NamedTuple):
    """Where the numbers of a tensor are, and of which kind they are."""

    shape: tuple[int, ...]
    kind: int
    start: int
    size: int


def read_gguf(path: str) -> Tensors:
    """Returns the tensors of a file by their names in PyTorch.

    Raises:
      FormatError: where it is damaged, or has numbers of a kind that is not read.
      OtherModelError: where the model is no BERT.
    """
    _, places = _parse(path)
    return {
        _rename(name): Tensor(place.shape, functools.partial(_read, path, place))
        for name, place in places.items()
    }


def read_shape(path: str) -> dict[str, Any] | None:
    """Returns the keys of a `bert_config.json` that the metadata have; None for a damaged file.

    A BERT has the exact GELU where it was trained, with PyTorch; metadata do not say it.
    """
    try:
        metadata, places = _parse(path)
    except DAMAGES:
        return None
    shape = {ours: metadata.get(f"bert.{theirs}") for ours, theirs in _SIZES.items()}
    for key, name in (("vocab_size", "token_embd"), ("type_vocab_size", "token_types")):
        if f"{name}.weight" in places:
            shape[key] = places[f"{name}.weight"].shape[0]
    return {**shape, "hidden_act": "gelu_erf"}


def _parse(path: str) -> tuple[dict[str, Any], dict[str, _Place]]:
    """Returns metadata and tensors."""
    with open_file(path) as file:
        parser = _Parser(file)
        metadata = parser.parse_metadata()
        _check_architecture(metadata)
        places = parser.parse_tensors(metadata.get("general.alignment", 32), file_size(path))
    return metadata, places


class _Parser:
    """Parses the metadata of a file, and then what tensors it has."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        magic, version, self._num_tensors, self._num_keys = self._take("4sIQQ")
        if magic != b"GGUF" or version not in (2, 3):
            raise FormatError(f"it begins as version {version} of GGUF, not as 2 or 3")
        if self._num_tensors > MAX_TENSORS or self._num_keys > MAX_TENSORS:
            raise FormatError(f"it lists {self._num_tensors:,} tensors, {self._num_keys:,} keys")
        self._num_values = 0

    def parse_metadata(self) -> dict[str, Any]:
        found = {}
        for _ in range(self._num_keys):
            key = self._take_text(MAX_NAME)
            found[key] = self._take_value(self._take("I")[0])
        return found

    def parse_tensors(self, alignment: Any, end: int) -> dict[str, _Place]:
        if type(alignment) is not int or not 0 < alignment <= 1 << 20:
            raise FormatError(f"its alignment is {alignment!r:.80}")
        found: dict[str, _Place] = {}
        for _ in range(self._num_tensors):
            name = self._take_text(MAX_NAME)
            (num_axes,) = self._take("I")
            if num_axes > MAX_DIMENSIONS or name in found:
                raise FormatError(f"it has {name!r:.80} twice, or with {num_axes} dimensions")
            shape = self._take(f"{num_axes}Q")[::-1]
            kind, offset = self._take("IQ")
            found[name] = _place(name, shape, kind, offset)
        start = -(-self._file.tell() // alignment) * alignment
        for name, place in found.items():
            if start + place.start + place.size > end:
                raise FormatError(f"the numbers of {name!r} are not all there")
            found[name] = place._replace(start=start + place.start)
        return found

    def _take(self, form: str) -> tuple[Any, ...]:
        form = f"<{form}"
        return struct.unpack(form, self._file.read(struct.calcsize(form)))

    def _take_text(self, limit: int) -> str:
        (size,) = self._take("Q")
        if size > limit:
            raise FormatError(f"it has a text of {size:,} bytes of {limit:,}")
        return self._file.read(size).decode()

    def _take_value(self, kind: int, *, in_list: bool = False) -> Any:
        """Returns a value; a list is passed over."""
        self._num_values += 1
        if self._num_values > _MAX_VALUES:
            raise FormatError(f"it has more than {_MAX_VALUES:,} values")
        if kind == _TEXT:
            return self._take_text(1 << 20)
        if kind == _LIST and not in_list:
            kind, count = self._take("IQ")
            for _ in range(count):
                self._take_value(kind, in_list=True)
            return None
        if not _VALUES.get(kind):
            raise FormatError(f"it has a value of the unknown type {kind}")
        return self._take(_VALUES[kind])[0]


def _place(name: str, shape: tuple[int, ...], kind: int, offset: int) -> _Place:
    if kind not in _KINDS:
        raise FormatError(
            f"{name!r:.80} has numbers of the type {kind}, and F32, F16, BF16 and Q8_0 are read"
        )
    dtype, block = _KINDS[kind]
    if shape and shape[-1] % block:
        raise FormatError(f"rows of {name!r:.80} have {shape[-1]} numbers, no multiple of {block}")
    return _Place(shape, kind, offset, math.prod(shape) // block * np.dtype(dtype).itemsize)


def _check_architecture(metadata: dict[str, Any]) -> None:
    architecture = metadata.get("general.architecture")
    tokenizer = metadata.get("tokenizer.ggml.model", "bert")
    if architecture != "bert" or tokenizer != "bert":
        kind = "RoBERTa" if architecture == "bert" else architecture
        raise OtherModelError(
            f"it is a {kind!r:.80}, with the tokenizer {tokenizer!r:.80}, and no BERT, whose "
            "weights are what is read here"
        )
    for key, usual in (("layer_norm_epsilon", 1e-12), ("causal", False)):
        value = metadata.get(f"bert.attention.{key}", usual)
        # Numbers may be of 32 bits.
        if not isinstance(value, int | float) or not math.isclose(value, usual, rel_tol=1e-6):
            raise OtherModelError(
                f"its `bert.attention.{key}` is {value!r:.80}, and that of a BERT that is read "
                f"here is {usual}"
            )


def _rename(name: str) -> str:
    module, _, leaf = name.rpartition(".")
    if module.startswith("blk.") and module.count(".") == 2:
        _, number, module = module.split(".")
        return f"bert.encoder.layer.{number}.{_BLOCK.get(module, module)}.{leaf}"
    return f"{_NAMES.get(module, module)}.{leaf}"


def _read(path: str, place: _Place) -> np.ndarray:
    """Returns the numbers of a tensor."""
    content = read_range(path, place.start, place.size)
    values: Any = np.frombuffer(content, _KINDS[place.kind][0])
    if values.dtype == _Q8_0:
        values = values["values"] * values["scale"].astype(np.float32)[:, None]
    return np.asarray(values).reshape(place.shape)

"""Files of GGUF whose layout differs from those that llama.cpp writes by default."""

import io
import struct

import numpy as np
import pytest

from bert.weights import formats, gguf

TENSORS = {
    "token_embd.weight": np.arange(10, dtype=np.float32).reshape(5, 2),
    "blk.1.attn_q.bias": np.arange(3, dtype=np.float32) - 7,
    "output_norm.bias": np.float32([2.5]),
}
# Where they are in PyTorch; one that BERT has not keeps its name.
NAMES = {
    "token_embd.weight": "bert.embeddings.word_embeddings.weight",
    "blk.1.attn_q.bias": "bert.encoder.layer.1.attention.self.query.bias",
    "output_norm.bias": "output_norm.bias",
}
# Types of metadata, by number.
_KINDS = {int: (4, "<I"), float: (6, "<f"), bool: (7, "<?")}
_TEXT = 8


def text(value):
    return struct.pack("<Q", len(value)) + value.encode()


def write(path, tensors, alignment=32, version=3, **more):
    """Writes pairs of names and float32 arrays, in this order."""
    metadata = {"general.architecture": "bert", **more}
    if alignment != 32:
        metadata["general.alignment"] = alignment
    file, numbers = io.BytesIO(), b""
    file.write(b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(metadata)))
    for key, value in metadata.items():
        kind, form = _KINDS.get(type(value), (_TEXT, ""))
        file.write(text(key) + struct.pack("<I", kind))
        file.write(struct.pack(form, value) if form else text(value))
    for name, values in tensors:
        file.write(text(name) + struct.pack("<I", values.ndim))
        file.write(struct.pack(f"<{values.ndim}Q", *values.shape[::-1]))
        file.write(struct.pack("<IQ", 0, len(numbers)))
        content = values.tobytes()
        numbers += content + bytes(-len(content) % alignment)
    head = file.getvalue()
    path.write_bytes(head + bytes(-len(head) % alignment) + numbers)
    return str(path)


@pytest.mark.parametrize(("alignment", "version"), [(32, 3), (32, 2), (8, 3), (128, 2)])
def test_tensors_are_read_at_any_alignment_and_of_both_versions(tmp_path, alignment, version):
    path = write(tmp_path / "x.gguf", [*TENSORS.items()], alignment, version)
    found = gguf.read_gguf(path)
    assert found.keys() == {*NAMES.values()}
    for name, values in TENSORS.items():
        np.testing.assert_array_equal(found[NAMES[name]].read(), values)


def test_what_is_no_bert_or_not_sound_is_refused(tmp_path):
    tensors = [*TENSORS.items()]
    path = write(tmp_path / "x.gguf", tensors, **{"tokenizer.ggml.model": "gpt2"})
    with pytest.raises(formats.OtherModelError, match="RoBERTa"):
        gguf.read_gguf(path)
    for key, usual, other in (
        ("tokenizer.ggml.model", "bert", "llama"),
        ("bert.attention.layer_norm_epsilon", 1e-12, 0.5),
        ("bert.attention.causal", False, True),
    ):
        assert gguf.read_gguf(write(tmp_path / "x.gguf", tensors, **{key: usual}))
        with pytest.raises(formats.OtherModelError, match=f"{other}.* BERT"):
            gguf.read_gguf(write(tmp_path / "x.gguf", tensors, **{key: other}))
    for given, message in (
        ({"tensors": tensors * 2}, "'token_embd.weight' twice"),
        ({"tensors": tensors, "version": 1}, "version 1 of GGUF"),
        ({"tensors": tensors, "general.alignment": 0}, "alignment is 0"),
    ):
        with pytest.raises(formats.FormatError, match=message):
            gguf.read_gguf(write(tmp_path / "x.gguf", **given))

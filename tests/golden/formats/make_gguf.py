"""Saves a small BERT of random weights in GGUF, with the names and the numbers of llama.cpp.

    python3.11 -m pip install gguf
    python3.11 make_gguf.py

`gguf.zip` has a file for each kind of numbers, and in `weights.npz` beside it the weights by their
names in PyTorch, as `gguf` reads them.
"""

import gguf
import numpy as np
from common import write_archive

KINDS = ("F32", "F16", "BF16", "Q8_0")
# Numbers in Q8_0 are in blocks of 32.
WIDTH, INNER, NUM_LAYERS, NUM_ROWS = 32, 32, 1, {"word": 30, "position": 16, "token_type": 2}


def make_weights():
    """Returns weights by the names of BertModel in transformers."""
    shapes = {f"embeddings.{kind}_embeddings.weight": (n, WIDTH) for kind, n in NUM_ROWS.items()}
    norms = ["embeddings.LayerNorm"]
    for number in range(NUM_LAYERS):
        layer = f"encoder.layer.{number}."
        parts = ["attention.self.query", "attention.self.key", "attention.self.value"]
        dense = {part: (WIDTH, WIDTH) for part in [*parts, "attention.output.dense"]}
        dense.update({"intermediate.dense": (INNER, WIDTH), "output.dense": (WIDTH, INNER)})
        for part, shape in dense.items():
            shapes.update({f"{layer}{part}.weight": shape, f"{layer}{part}.bias": shape[:1]})
        norms += [f"{layer}attention.output.LayerNorm", f"{layer}output.LayerNorm"]
    for norm in norms:
        shapes.update({f"{norm}.weight": (WIDTH,), f"{norm}.bias": (WIDTH,)})
    rng = np.random.RandomState(7)
    return {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}


def save(root, name):
    """Saves the weights in numbers of a kind."""
    folder = root / f"gguf_{name}"
    folder.mkdir()
    writer = gguf.GGUFWriter(folder / "model.gguf", "bert")
    writer.add_context_length(NUM_ROWS["position"])
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(INNER)
    writer.add_block_count(NUM_LAYERS)
    writer.add_head_count(2)
    writer.add_layer_norm_eps(1e-12)
    writer.add_tokenizer_model("bert")
    writer.add_token_list([f"▁{number}" for number in range(NUM_ROWS["word"])])
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.BERT, NUM_LAYERS)
    kind = gguf.GGMLQuantizationType[name]
    kept = {}
    for theirs, values in make_weights().items():
        # Vectors stay as they are.
        is_matrix = values.ndim > 1
        own = kind if is_matrix else gguf.GGMLQuantizationType.F32
        stored = gguf.quants.quantize(values, own)
        writer.add_tensor(names.get_name(theirs, (".weight", ".bias")), stored, raw_dtype=own)
        kept[theirs] = gguf.quants.dequantize(stored, own)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    np.savez_compressed(folder / "weights.npz", **kept)


def save_all(root):
    """Saves all files."""
    for name in KINDS:
        save(root, name)


write_archive("gguf.zip", save_all)

"""What the scripts here share: shapes, inputs, random weights, and the archive of a writer.

The scripts run with the versions of Python and NumPy that the other programs need.
"""

import json
import sys
import tempfile
import zipfile
from pathlib import Path

import numpy as np

CONFIG = {
    "vocab_size": 30,
    "hidden_size": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 12,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.1,
    "max_position_embeddings": 16,
    "type_vocab_size": 2,
    "initializer_range": 0.02,
}
LENGTH = 7


def make_inputs():
    """Returns three rows by name, the last one with padding."""
    rng = np.random.RandomState(3)
    mask = np.ones((3, LENGTH), np.int32)
    mask[-1, 4:] = 0
    return {
        "input_ids": (rng.randint(5, CONFIG["vocab_size"], mask.shape) * mask).astype(np.int32),
        "input_mask": mask,
        "segment_ids": (rng.randint(0, 2, mask.shape) * mask).astype(np.int32),
    }


def draw_weights(names_and_shapes):
    """Returns random values for variables, those of `gamma` and `scale` around 1."""
    rng = np.random.RandomState(7)
    return [
        rng.normal(float("gamma" in name or "scale" in name), 0.3, shape).astype(np.float32)
        for name, shape in names_and_shapes
    ]


def save_outputs(folder, outputs, config=CONFIG):
    """Writes inputs and outputs of a model beside it, with the original's configuration."""
    arrays = {name: np.asarray(values) for name, values in outputs.items()}
    np.savez_compressed(str(folder / "outputs.npz"), **dict(make_inputs(), **arrays))
    if config:
        (folder / "bert_config.json").write_text(json.dumps(config))


def write_archive(name, save):
    """Writes an archive beside this file, or into the folder that the command line names.

    Args:
      name: Its name.
      save: Saves models into folders of the folder that it gets.
    """
    target = Path(*sys.argv[1:] or [Path(__file__).parent]) / name
    with tempfile.TemporaryDirectory() as folder:
        save(Path(folder))
        with zipfile.ZipFile(str(target), "w", zipfile.ZIP_DEFLATED) as archive:
            for path in sorted(Path(folder).rglob("*")):
                if path.is_file():
                    archive.write(str(path), str(path.relative_to(folder)))
    print(target, target.stat().st_size)

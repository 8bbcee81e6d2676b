"""Saves small models of random weights as PyTorch does, and what transformers computes with them.

    .venv-interop/bin/python tests/golden/formats/make_torch.py

`torch.zip` has a folder for each way of saving: the model's files, and its outputs in
`outputs.npz`. `hostile.bin` in it would run a command in `torch.load` without `weights_only`.
"""

import json
import os
import pickle
import re
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from common import write_archive

SHAPE = {
    "vocab_size": 30,
    "hidden_size": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 12,
    "max_position_embeddings": 16,
}
LENGTH = 7


def make_model(architecture: str, folder: Path) -> torch.nn.Module:
    """Returns a model of random weights, and writes its configuration, inputs and outputs."""
    torch.manual_seed(7)
    config = transformers.BertConfig(**SHAPE, architectures=[architecture])
    model = getattr(transformers, architecture)(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.normal_(1.0 if name.endswith("LayerNorm.weight") else 0.0, 0.3)
        if folder.name == "half":
            model.half().float()
        elif folder.name == "bfloat16":
            model.bfloat16().float()
        mask = torch.ones(3, LENGTH, dtype=torch.long)
        mask[-1, 4:] = 0
        inputs = {
            "input_ids": torch.randint(5, SHAPE["vocab_size"], (3, LENGTH)) * mask,
            "attention_mask": mask,
            "token_type_ids": torch.randint(0, 2, (3, LENGTH)) * mask,
        }
        outputs = model(**inputs, output_hidden_states=True)
    arrays = {name: value.numpy() for name, value in inputs.items()}
    for name, value in outputs.items():
        is_one = isinstance(value, torch.Tensor)
        arrays[name] = (value if is_one else torch.stack(value)).numpy()
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config.to_dict()))
    np.savez_compressed(folder / "outputs.npz", **arrays)
    return model


def old_names(stored: dict[str, Any]) -> dict[str, Any]:
    """Returns tensors by the names of pytorch-pretrained-bert before version 0.4."""
    names = (("weight", "gamma"), ("bias", "beta"))
    renamed = dict(stored)
    for new, old in names:
        renamed = {
            re.sub(rf"LayerNorm\.{new}$", f"LayerNorm.{old}", name): value
            for name, value in renamed.items()
        }
    return renamed


class Hostile:
    """An object that runs a command when it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("touch hostile_was_here",)


def save_all(root: Path) -> None:
    """Saves all models."""
    model = make_model("BertForSequenceClassification", root / "archive")
    torch.save(model.state_dict(), root / "archive" / "pytorch_model.bin")
    model = make_model("BertForPreTraining", root / "legacy")
    torch.save(
        old_names(model.state_dict()),
        root / "legacy" / "pytorch_model.bin",
        _use_new_zipfile_serialization=False,
    )
    model = make_model("BertForQuestionAnswering", root / "shards")
    stored = model.state_dict()
    files = {name: f"pytorch_model-0000{n % 2 + 1}-of-00002.bin" for n, name in enumerate(stored)}
    for file in set(files.values()):
        part = {name: value for name, value in stored.items() if files[name] == file}
        torch.save(part, root / "shards" / file)
    index = json.dumps({"metadata": {}, "weight_map": files})
    (root / "shards" / "pytorch_model.bin.index.json").write_text(index)
    for kind, dtype in (("half", torch.float16), ("bfloat16", torch.bfloat16)):
        model = make_model("BertForTokenClassification", root / kind)
        optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
        state = {f"module.{name}": value.to(dtype) for name, value in model.state_dict().items()}
        saved = {"epoch": 3, "optimizer": optimizer.state_dict(), "state_dict": state}
        is_new = kind == "half"
        ending = "pt" if is_new else "ckpt"
        path = root / kind / f"epoch3.{ending}"
        torch.save(saved, path, _use_new_zipfile_serialization=is_new)
    torch.save({"weights": torch.ones(2), "x": Hostile()}, root / "hostile.bin")
    with open(root / "hostile_plain.bin", "wb") as file:
        pickle.dump(Hostile(), file)


write_archive("torch.zip", save_all)

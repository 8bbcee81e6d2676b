"""What transformers makes of models: run by the Python of .venv-interop on a list of jobs.

    .venv-interop/bin/python interop/worker.py jobs.json

A job is a dictionary of `kind` and the arguments of the function of that name.
"""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers


def make(
    folder: str, architecture: str, config: dict[str, Any], seed: int, max_shard_size: str
) -> None:
    """Saves a model of random weights, as transformers does."""
    torch.manual_seed(seed)
    model = getattr(transformers, architecture)(transformers.BertConfig(**config))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            center = 1.0 if name.endswith("LayerNorm.weight") else 0.0
            parameter.normal_(center, 0.2)
    model.save_pretrained(folder, max_shard_size=max_shard_size)


def run(folder: str, architecture: str, inputs: str, outputs: str) -> None:
    """Writes the outputs of a saved model, and which of its weights were lacking or not used."""
    model, loading = getattr(transformers, architecture).from_pretrained(
        folder, dtype=torch.float32, output_loading_info=True
    )
    given = {name: torch.tensor(values) for name, values in np.load(inputs).items()}
    with torch.no_grad():
        computed = model.eval()(**given)
    arrays = {
        name: value.numpy() for name, value in computed.items() if isinstance(value, torch.Tensor)
    }
    keys = {name: sorted(loading[name]) for name in ("missing_keys", "unexpected_keys")}
    keys["mismatched_keys"] = [str(each) for each in loading["mismatched_keys"]]
    Path(outputs).with_suffix(".json").write_text(json.dumps(keys), encoding="utf-8")
    np.savez(outputs, **arrays)


def tokenize(
    folder: str, texts: list[str], outputs: str, added: list[dict[str, Any]] | None = None
) -> None:
    """Writes the ids of texts, and the tokenizer as this version of transformers saves it."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    for token in added or []:
        tokenizer.add_tokens(
            [transformers.AddedToken(**token)], special_tokens=token.get("special", False)
        )
    ids = [tokenizer(text)["input_ids"] for text in texts]
    Path(outputs).write_text(json.dumps(ids), encoding="utf-8")
    tokenizer.save_pretrained(str(Path(outputs).with_suffix("")))


def call(folder: str, calls: list[dict[str, Any]], outputs: str) -> None:
    """Writes what a tokenizer returns for each call, and the texts of its ids; null for errors."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    answers: list[Any] = []
    for arguments in calls:
        try:
            found = tokenizer(**arguments, return_tensors="np")
        except ValueError:
            answers.append(None)
        except Exception as error:
            # What `tokenizers` raises has no class of its own.
            if type(error) is not Exception:
                raise
            answers.append(None)
        else:
            answers.append({name: values.tolist() for name, values in found.items()})
            answers[-1]["decoded"] = [
                tokenizer.decode(row, skip_special_tokens=skip)
                for row in found["input_ids"]
                for skip in (False, True)
            ]
    Path(outputs).write_text(json.dumps(answers), encoding="utf-8")


if __name__ == "__main__":
    kinds = {"make": make, "run": run, "tokenize": tokenize, "call": call}
    for job in json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")):
        kinds[job.pop("kind")](**job)

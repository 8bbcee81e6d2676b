"""BERT on TensorFlow 2 and Keras 3: the rooms below the scripts, floor by floor.

The modules of the root are found here, too, as code has it that was written for a copy of the
original in a folder `bert` or for the package bert-tensorflow:

    from bert import run_classifier, tokenization

`bert.load` is `load` of `bert.loaded`. Each is loaded when it is first asked for, so that
`import bert` takes no time.
"""

import importlib
from typing import Any

LIBRARY = ("modeling", "optimization", "tokenization")

# In the order of README.
SCRIPTS = (
    "split_sentences",
    "create_pretraining_data",
    "run_pretraining",
    "fill_mask",
    "create_vocab",
    "extend_vocab",
    "run_classifier",
    "run_classifier_with_tfhub",
    "run_squad",
    "run_swag",
    "run_ner",
    "predict",
    "extract_features",
    "convert_checkpoint",
)


def __getattr__(name: str) -> Any:
    if name in LIBRARY or name in SCRIPTS:
        return importlib.import_module(name)
    if name == "load":
        return importlib.import_module("bert.loaded").load
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *LIBRARY, *SCRIPTS, "load"})

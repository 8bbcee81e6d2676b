"""BERT on TensorFlow 2 and Keras 3: the rooms below the scripts, floor by floor.

The modules of the root are found here, too, as code has it that was written for a copy of the
original in a folder `bert` or for the package bert-tensorflow:

    from bert import run_classifier, tokenization
    from bert.modeling import BertModel

`bert.load` is `load` of `bert.models.loaded`. Each is loaded when it is first asked for, so that
`import bert` takes no time.
"""

import importlib
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

from bert.files.process import import_tensorflow

LIBRARY = ("modeling", "optimization", "tokenization")

# In the order of README.
SCRIPTS = (
    "split_sentences",
    "create_pretraining_data",
    "run_pretraining",
    "fill_mask",
    "inspect_text",
    "create_vocab",
    "extend_vocab",
    "create_word_vectors",
    "run_classifier",
    "run_classifier_with_tfhub",
    "run_squad",
    "run_swag",
    "run_ner",
    "predict",
    "serve",
    "extract_features",
    "join_shards",
    "neighbours",
    "convert_checkpoint",
    "reproduce_paper",
)


def _load(name: str) -> ModuleType:
    """Returns a module of the root.

    Raises:
      ImportError: where a module of that name comes before it on the path.
    """
    module = importlib.import_module(name)
    expected = Path(__file__).resolve().parents[1] / f"{name}.py"
    found = getattr(module, "__file__", None)
    if found is None or Path(found).resolve() != expected:
        raise ImportError(
            f"`{name}` must be the module in {str(expected)!r}, which `bert.{name}` is. Another of "
            f"that name comes first on the path: {found!r}. Rename that one."
        )
    return module


class _Root(MetaPathFinder, Loader):
    """Finds `bert.modeling` and its like: the root's modules themselves, not copies of them."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        package, _, name = fullname.rpartition(".")
        # The package may have another name, too, where a clone lies within a package.
        if sys.modules.get(package) is sys.modules[__name__] and name in (*LIBRARY, *SCRIPTS):
            return ModuleSpec(fullname, self)
        return None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = _load(spec.name.rpartition(".")[2])
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Gives back its own specification to a module that has run already."""
        assert module.__spec__ is not None
        module.__spec__ = module.__spec__.loader_state


sys.meta_path.append(_Root())


def __getattr__(name: str) -> Any:
    if name in LIBRARY or name in SCRIPTS:
        return _load(name)
    if name == "load":
        import_tensorflow()
        return importlib.import_module("bert.models.loaded").load
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *LIBRARY, *SCRIPTS, "load"})

"""Names of 2018: attributes of modules that are defined in another module.

The original's scripts and `modeling` had names that are in `bert/` now; a module serves them:

    if not TYPE_CHECKING:  # Type checkers must still see misspelt names.
        __getattr__, __dir__, __all__ = serve(
            globals(), {"bert.original.squad": ("RawResult", "compute_softmax as _compute_softmax")}
        )

A copy of the original in a folder `bert`, and the package bert-tensorflow, had `bert.modeling`;
`RootFinder` finds it. No other module of the project loads a module through a string, and none is
loaded before one of its names is used: scripts show their help without TensorFlow.
"""

import importlib
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

from bert.files.process import import_tensorflow


def load(module: str, name: str = "") -> Any:
    """Returns a module, or an attribute of it, after TensorFlow was imported without its log."""
    import_tensorflow()
    loaded = importlib.import_module(module)
    return getattr(loaded, name) if name else loaded


def serve(
    namespace: Mapping[str, Any], modules: Mapping[str, Collection[str]]
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Returns `__getattr__`, `__dir__` and `__all__` of a module; to be called at its end.

    Args:
      namespace: The globals of the module.
      modules: By module, the names that are served from it, as `name` or `name as alias`; a module
        without names is served itself.
    """
    owners: dict[str, tuple[str, str]] = {}
    for module, names in modules.items():
        for entry in names or [module]:
            name, _, alias = entry.partition(" as ")
            owners[alias or name] = (module, name if names else "")

    def get(name: str) -> Any:
        if name not in owners:
            raise AttributeError(f"module {namespace['__name__']!r} has no attribute {name!r}")
        return load(*owners[name])

    def all_names() -> list[str]:
        return sorted({*namespace, *owners})

    return get, all_names, [name for name in all_names() if not name.startswith("_")]


def serve_root(
    namespace: Mapping[str, Any], root: Collection[str], modules: Mapping[str, Collection[str]]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Returns `__getattr__` and `__dir__` of the package, in which modules of the root are found.

    Args:
      namespace: The globals of the package.
      root: Names of modules of the root.
      modules: As for `serve`.
    """
    sys.meta_path.append(RootFinder(root, namespace))
    get, names, _ = serve(namespace, modules)
    return (
        lambda name: _load_root(name) if name in root else get(name),
        lambda: sorted({*names(), *root}),
    )


def module_of(name: str) -> str:
    """Returns the full name of a module of the root, which may be installed in `bert.scripts`."""
    is_inside = (Path(__file__).parent / "scripts" / f"{name}.py").is_file()
    return f"bert.scripts.{name}" if is_inside else name


def path_of(name: str) -> Path:
    """Returns the file of a module of the root."""
    folder = Path(__file__).resolve().parents[1]
    return folder.joinpath(*module_of(name).split(".")).with_suffix(".py")


def _load_root(name: str) -> ModuleType:
    """Returns a module of the root.

    Raises:
      ImportError: where a module of that name comes before it on the path.
    """
    module = importlib.import_module(module_of(name))
    expected = path_of(name)
    found = getattr(module, "__file__", None)
    if found is None or Path(found).resolve() != expected:
        raise ImportError(
            f"`{name}` must be the module in {str(expected)!r}, which `bert.{name}` is. Another of "
            f"that name comes first on the path: {found!r}. Rename that one."
        )
    return module


class RootFinder(MetaPathFinder, Loader):
    """Finds modules of the root in the package, as the same objects: `bert.modeling`.

    Args:
      names: The modules.
      namespace: The globals of the package.
    """

    def __init__(self, names: Collection[str], namespace: Mapping[str, Any]) -> None:
        self._names = names
        self._namespace = namespace

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        package, _, name = fullname.rpartition(".")
        # In a clone within a package, the package has another name, too.
        is_inside = getattr(sys.modules.get(package), "__dict__", None) is self._namespace
        return ModuleSpec(fullname, self) if is_inside and name in self._names else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = _load_root(spec.name.rpartition(".")[2])
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Restores the specification of a module that has been executed already."""
        assert module.__spec__ is not None
        module.__spec__ = module.__spec__.loader_state

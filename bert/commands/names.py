"""Names that a script serves to code that imports them, as the original's had them.

    if not TYPE_CHECKING:  # Type checkers must still see misspelt names.
        __getattr__, __dir__, __all__ = serve(
            globals(), {"bert.original.squad": ("RawResult", "compute_softmax as _compute_softmax")}
        )

Rooms are loaded, and TensorFlow without its chatter, when one of their names is first asked for, so
that a script shows its help, and what is wrong with its flags, without them.
"""

import importlib
from collections.abc import Callable, Collection, Mapping
from typing import Any

from bert.files.process import import_tensorflow


def serve(
    module: Mapping[str, Any], rooms: Mapping[str, Collection[str]]
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Returns `__getattr__`, `__dir__` and `__all__` of a module; to be called at its foot.

    Args:
      module: Its own names.
      rooms: For each room the names that are served from it, perhaps as others; a room without any
        is served itself.
    """
    owners: dict[str, tuple[str, str]] = {}
    for room, names in rooms.items():
        for each in names or [room]:
            name, _, other = each.partition(" as ")
            owners[other or name] = (room, name if names else "")

    def get(name: str) -> Any:
        if name not in owners:
            raise AttributeError(f"module {module['__name__']!r} has no attribute {name!r}")
        import_tensorflow()

        room, attribute = owners[name]
        loaded = importlib.import_module(room)
        return getattr(loaded, attribute) if attribute else loaded

    def all_names() -> list[str]:
        return sorted({*module, *owners})

    return get, all_names, [name for name in all_names() if not name.startswith("_")]

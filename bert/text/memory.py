"""The caches of a tokenizer, and their invalidation."""

import functools
from collections.abc import Callable
from typing import Any

# Bounds of the cache: about 40 MB for English, 120 MB for the worst text.
MEMO_ENTRIES = 1 << 17
MEMO_WORD_LENGTH = 48


class Memo(dict[Any, Any]):
    """A dictionary that computes missing values, and is cleared when it is full."""

    def __init__(self, compute: Callable[[Any], Any]):
        super().__init__()
        self.compute = compute

    def __missing__(self, key: str | int) -> Any:
        value = self.compute(key)
        # Long words seldom recur.
        if isinstance(key, int) or len(key) <= MEMO_WORD_LENGTH:
            if len(self) >= MEMO_ENTRIES:
                self.clear()
            self[key] = value
        return value


# Attributes of tokenizers that are derived from the others.
REMEMBERED = {
    *("_seen", "_known", "_pieces", "_ids", "_finders", "_in_steps", "_strips", "_tables"),
    *("_size", "_longest", "_lookup"),
}


class Watched:
    """Base class that counts changes of tokenizers and vocabularies, which invalidate caches."""

    changes = 0

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        Watched.changes += 1

    def __getstate__(self) -> dict[str, Any]:
        # The cache is not pickled.
        return {name: value for name, value in vars(self).items() if name not in REMEMBERED}


class Vocabulary(dict[str, int]):
    """A vocabulary whose changes are counted."""

    changes = 0


def _counting(name: str) -> Callable[..., Any]:
    change = getattr(dict, name)

    @functools.wraps(change)
    def method(self: Vocabulary, *args: Any, **kwargs: Any) -> Any:
        result = change(self, *args, **kwargs)
        self.changes += 1
        Watched.changes += 1
        return result

    return method


_CHANGING = ("__setitem__", "__delitem__", "__ior__", "clear", "pop", "popitem", "setdefault")
for _name in (*_CHANGING, "update"):
    setattr(Vocabulary, _name, _counting(_name))

"""What was computed from texts of late, so that it need not be computed again."""

import collections
import functools
import sys
import threading
from collections.abc import Callable, Hashable
from typing import Any, ParamSpec, TypeVar

# All texts, and what was computed from them, take at most so many bytes together.
MAX_BYTES = 64 << 20
# What an entry takes besides.
_ENTRY_BYTES = 400

_Parameters = ParamSpec("_Parameters")
_Value = TypeVar("_Value")

_lock = threading.Lock()
_entries: collections.OrderedDict[Hashable, tuple[Any, int]] = collections.OrderedDict()
_num_bytes = 0


def remembered(function: Callable[_Parameters, _Value]) -> Callable[_Parameters, _Value]:
    """Makes a function of texts and options remember its values: those used last, in `MAX_BYTES`.

    The bytes are those of all such functions, so that no text stays longer than others need.
    """

    @functools.wraps(function)
    def remember(*args: _Parameters.args, **kwargs: _Parameters.kwargs) -> _Value:
        key = (function, args, tuple(kwargs.items()))
        with _lock:
            if key in _entries:
                _entries.move_to_end(key)
                return _entries[key][0]
        value = function(*args, **kwargs)
        _put(key, value, _ENTRY_BYTES + sum(map(sys.getsizeof, (*args, value))))
        return value

    return remember


def _put(key: Hashable, value: Any, size: int) -> None:
    global _num_bytes  # noqa: PLW0603
    with _lock:
        # Another thread may have been faster.
        if size > MAX_BYTES or key in _entries:
            return
        _entries[key] = (value, size)
        _num_bytes += size
        while _num_bytes > MAX_BYTES:
            _num_bytes -= _entries.popitem(last=False)[1][1]

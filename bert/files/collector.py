"""The garbage collector."""

import functools
import gc
from collections.abc import Callable
from typing import ParamSpec, TypeVar

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def at_rest(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Keeps the collector from work while a function runs.

    It is for what makes very many objects, none of which refer to each other in a circle: the
    collector would look through them again and again, and find nothing.
    """

    @functools.wraps(function)
    def run(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        collects = gc.isenabled()
        gc.disable()
        try:
            return function(*args, **kwargs)
        finally:
            if collects:
                gc.enable()

    return run

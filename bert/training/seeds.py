"""The random numbers of a training run, which depend on its seed and on nothing else."""

import contextlib
import functools
import random
from collections.abc import Callable, Iterator
from typing import Any, Concatenate, ParamSpec, TypeVar

from bert.training.options import Seed

Parameters = ParamSpec("Parameters")
SeedType = TypeVar("SeedType", bound=Seed)
Result = TypeVar("Result")


@contextlib.contextmanager
def seeded_with(seed: int) -> Iterator[None]:
    """Draws from a seed within a block, and restores the state of Python's generator."""
    state = random.getstate()
    random.seed(seed)
    try:
        yield
    finally:
        random.setstate(state)


def seeded(
    run: Callable[Concatenate[SeedType, Parameters], Result],
) -> Callable[Concatenate[SeedType, Parameters], Result]:
    """Returns a function that draws from the seed of its options, and restores the state.

    Initial weights are drawn from Python's generator, which gives Keras' initializers their seeds;
    no other global generator is used. Data order and dropout masks have generators of their own.

    Args:
      run: Takes the options first.
    """

    @functools.wraps(run)
    def seeded_run(options: SeedType, *args: Any, **kwargs: Any) -> Result:
        with seeded_with(options.seed):
            return run(options, *args, **kwargs)

    return seeded_run

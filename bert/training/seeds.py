"""The random numbers of a training run, which depend on its seed and on nothing else."""

import contextlib
import random
from collections.abc import Iterator


@contextlib.contextmanager
def seeded_with(seed: int) -> Iterator[None]:
    """Draws from a seed within a block, and restores the state of Python's generator.

    Initial weights are drawn from Python's generator, which gives Keras' initializers their seeds;
    no other global generator is used. Data order and dropout masks have generators of their own.
    """
    state = random.getstate()
    random.seed(seed)
    try:
        yield
    finally:
        random.setstate(state)

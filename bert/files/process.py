"""The process: whether it is a script's own, its garbage collector, and TensorFlow's import."""

import contextlib
import gc
import os
import random
import sys
from collections.abc import Iterator

from bert.files.signals import deferred_stop

_is_script = False


def own_process() -> None:
    """Declares that the process runs a script of this project and no other program."""
    global _is_script  # noqa: PLW0603
    _is_script = True


def is_script() -> bool:
    """Returns whether the process runs a script of this project and no other program."""
    return _is_script


def import_tensorflow() -> None:
    """Imports TensorFlow and Keras quickly, and without the lines that they print meanwhile.

    TF_CPP_MIN_LOG_LEVEL=0 in the environment brings all messages back.
    """
    if "keras" in sys.modules and "tensorflow" in sys.modules:
        return
    # An exception in the middle of the import might be swallowed.
    with deferred_stop(), same_random_state(), collector_off(), _without_sklearn(), _hidden():
        import keras  # noqa: PLC0415
        import tensorflow  # noqa: F401, PLC0415

        del keras
    if is_script():
        # Modules stay until the end, so that the collector need not search them later. In another
        # program, this would also freeze objects that are garbage soon.
        gc.freeze()


@contextlib.contextmanager
def same_random_state(seed: int | None = None) -> Iterator[None]:
    """Restores the state of Python's generator after a block, which may draw from a seed.

    Initial weights are drawn from this generator, which gives Keras' initializers their seeds, and
    TensorFlow draws from it while it is imported; no other global generator is used.
    """
    state = random.getstate()
    if seed is not None:
        random.seed(seed)
    try:
        yield
    finally:
        random.setstate(state)


@contextlib.contextmanager
def collector_off() -> Iterator[None]:
    """Switches off the garbage collector in a block, or in a function that this decorates.

    Where very many objects without circles are made, the collector searches them again and again
    in vain.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


@contextlib.contextmanager
def _without_sklearn() -> Iterator[None]:
    """Hides scikit-learn from Keras, which would wrap its classes; scores import it later."""
    skips = is_script() and "sklearn" not in sys.modules
    if skips:
        sys.modules["sklearn"] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        if skips:
            del sys.modules["sklearn"]


@contextlib.contextmanager
def _hidden() -> Iterator[None]:
    """Redirects standard error, to which TensorFlow 2.21 writes whatever its log level is."""
    if os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3") == "0":
        yield
        return
    try:
        stderr = os.dup(2)
    except OSError:
        # A program may have closed it, as daemons do.
        yield
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    os.close(nowhere)
    try:
        yield
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)

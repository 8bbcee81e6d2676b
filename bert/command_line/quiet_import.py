"""Imports TensorFlow and Keras quickly, and without the chatter that would bury a run's own lines.

Rooms that need TensorFlow import this module before it. TF_CPP_MIN_LOG_LEVEL=0 in the environment
brings all messages back.
"""

import gc
import os
import random
import sys

from bert.command_line.console import deferred_stop, is_script

# While it is imported, TensorFlow 2.21 writes to the file descriptor whatever its log level is.
_hides = os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3") != "0"
if _hides:
    try:
        _stderr = os.dup(2)
    except OSError:
        # A program may have closed it, as daemons do.
        _hides = False
# The garbage collector would look through what the import makes again and again, and find nothing.
_collects = gc.isenabled()
gc.disable()
# Keras wraps scikit-learn's classes where it finds them, which takes time and is of no use
# to a script. What counts scores imports it later.
_skips = is_script() and "sklearn" not in sys.modules
if _skips:
    sys.modules["sklearn"] = None  # type: ignore[assignment]
if _hides:
    _nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(_nowhere, 2)
    os.close(_nowhere)
# TensorFlow draws from the caller's generator while it is imported.
_random_state = random.getstate()
try:
    # An exception in the middle of the import might be swallowed.
    with deferred_stop():
        import keras
        import tensorflow  # noqa: F401
finally:
    random.setstate(_random_state)
    if _hides:
        os.dup2(_stderr, 2)
        os.close(_stderr)
    if _skips:
        del sys.modules["sklearn"]
    if is_script():
        # All of it stays until the end, so that it need not be looked through later, either.
        # Of another program, that might keep what it wants to let go.
        gc.freeze()
    if _collects:
        gc.enable()

__all__ = ["keras"]

"""Imports TensorFlow quickly, and without the chatter that would bury a script's own first lines.

Scripts import this module before any other that needs TensorFlow. TF_CPP_MIN_LOG_LEVEL=0 in the
environment brings all messages back.
"""

import gc
import os
import signal
import sys
from pathlib import Path

# Where a script is what was started, Ctrl-C ends it without a trace until it takes signals itself.
_main = getattr(sys.modules.get("__main__"), "__file__", None)
_is_script = _main is not None and Path(_main).resolve().parent == Path(__file__).parents[2]
if _is_script and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)

# While it is imported, TensorFlow 2.21 writes to the file descriptor whatever its log level is.
_hides = os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3") != "0"
_stderr, _nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
# The garbage collector would look through what the import makes again and again, a quarter of its
# time, and find nothing.
_collects = gc.isenabled()
gc.disable()
if _hides:
    os.dup2(_nowhere, 2)
try:
    import tensorflow  # noqa: F401
finally:
    os.dup2(_stderr, 2)
    os.close(_stderr)
    os.close(_nowhere)
    if _collects:
        gc.enable()

"""What a user types and sees."""

import signal
import sys
from pathlib import Path

# Where a script is what was started, Ctrl-C ends it without a trace until it takes signals itself.
_main = getattr(sys.modules.get("__main__"), "__file__", None)
_is_script = _main is not None and Path(_main).resolve().parent == Path(__file__).parents[2]
if _is_script and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)

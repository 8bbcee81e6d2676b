"""What a user types and sees."""

import signal
import sys
from pathlib import Path

# Where one of the scripts is what was started, Ctrl-C ends it without a trace until it takes
# signals itself. A program of somebody else's beside them keeps its `KeyboardInterrupt`.
_main = Path(getattr(sys.modules.get("__main__"), "__file__", None) or "").resolve()
_scripts = sys.modules[__name__.rpartition(".")[0]].SCRIPTS
_is_script = _main.parent == Path(__file__).parents[2] and _main.stem in _scripts
if _is_script and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)

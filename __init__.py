"""Makes a clone of this project in a folder `bert` the package `bert` for code in the folder above.

Code written for such a clone of the original has `from bert import modeling`. What it finds is the
package in the folder within, and this folder at the end of its path.
"""

import importlib.util
import sys
from pathlib import Path

_ROOT = Path(__file__).resolve().parent
if str(_ROOT) not in sys.path:
    sys.path.append(str(_ROOT))
if (_found := sys.modules.get("bert")) is None or __name__ == "bert":
    _path = _ROOT / "bert" / "__init__.py"
    _spec = importlib.util.spec_from_file_location("bert", _path)
    assert _spec is not None and _spec.loader is not None
    _found = sys.modules["bert"] = importlib.util.module_from_spec(_spec)
    _spec.loader.exec_module(_found)
sys.modules[__name__] = _found

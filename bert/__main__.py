"""The command `bert`, which starts a script by its name and lists them all.

bert run_squad --help
"""

import ast
import difflib
import importlib.util
import runpy
import sys
from pathlib import Path

from bert import LIBRARY, SCRIPTS, __version__
from bert.names import module_of, path_of

# What is no script of its own, for nobody types it without `bert`; and a script that must not be
# called what it does, which is the name of a module of Python.
_COMMANDS = {
    "launch": "bert.commands.launch",
    "inspect": "inspect_text",
    "compare": "bert.commands.compare",
}

# Scripts that are not installed, and what they need of a clone.
_OF_A_CLONE = {"reproduce_paper": "the folder paper/"}

_ROOT = Path(__file__).resolve().parents[1]

_USAGE = """\
usage: bert <script> [--flag=value ...]
       bert <script> --help
       bert --version

"""


def main() -> None:
    """Runs the script that the command line names first, as `python <script>.py` does."""
    _prefer_own()
    arguments = sys.argv[1:]
    if not arguments or arguments[0] in ("help", "--help", "-h"):
        print(_USAGE + "\n".join(_lines()))
    elif arguments[0] == "--version":
        print(f"bert {__version__}")
    elif arguments[0] in _OF_A_CLONE and not path_of(arguments[0]).is_file():
        sys.exit(
            f"`bert {arguments[0]}` is a command of a clone, which has {_OF_A_CLONE[arguments[0]]}."
        )
    elif arguments[0] in (*SCRIPTS, *_COMMANDS):
        module = module_of(_COMMANDS.get(arguments[0], arguments[0]))
        sys.argv = arguments
        # absl finds the flags of a script by the main module, and names it by the first argument.
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    else:
        sys.exit(_unknown(arguments[0]))


def _prefer_own() -> None:
    """Puts the root first on the path where its modules are not found, or others before them.

    Those are in the folder that a user is in, or in one that PYTHONPATH names.
    """
    for name in (*LIBRARY, *SCRIPTS):
        if module_of(name) == name and path_of(name).is_file():
            spec = importlib.util.find_spec(name)
            if not spec or Path(spec.origin or "").resolve() != path_of(name):
                sys.path.insert(0, str(_ROOT))
                return


def _lines() -> list[str]:
    """Returns a line for each script: its name, and the first of what it says of itself."""
    modules = {each: each for each in SCRIPTS if each not in _COMMANDS.values()} | _COMMANDS
    modules = {name: module_of(each) for name, each in modules.items()}
    modules = {name: each for name, each in modules.items() if importlib.util.find_spec(each)}
    width = max(map(len, modules))
    return [f"{name:{width}}  {_first_sentence(module)}" for name, module in modules.items()]


def _first_sentence(script: str) -> str:
    # Read and not imported, for that would take the seconds that TensorFlow does.
    spec = importlib.util.find_spec(script)
    assert spec is not None and spec.origin is not None, f"{script} is installed with `bert`."
    tree = ast.parse(Path(spec.origin).read_text(encoding="utf-8"))
    return (ast.get_docstring(tree) or "").partition("\n")[0]


def _unknown(name: str) -> str:
    similar = difflib.get_close_matches(name, (*SCRIPTS, *_COMMANDS), n=1)
    remedy = f"Did you mean `bert {similar[0]}`?" if similar else "`bert --help` lists them."
    return f"`bert` must be given one of the scripts. Received {name!r}. {remedy}"


if __name__ == "__main__":
    main()

"""Puts the scripts that the original does not have into `bert/scripts` of the wheel.

At the top of site-packages, `predict` or `serve` would hide a module of somebody else's program.
The rest is in pyproject.toml.
"""

from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

# For clones in a folder `bert` alone, of a clone alone, and this file.
_NOT_INSTALLED = {"__init__", "reproduce_paper", "setup"}


class BuildScripts(build_py):
    """Builds the modules that pyproject.toml lists, and the other scripts of the root."""

    def find_modules(self) -> list[tuple[str, str, str]]:
        listed: list[tuple[str, str, str]] = super().find_modules()
        others = {path.stem for path in Path().glob("*.py")} - _NOT_INSTALLED
        others -= {module for _, module, _ in listed}
        return [*listed, *(("bert.scripts", name, f"{name}.py") for name in sorted(others))]


setup(cmdclass={"build_py": BuildScripts})

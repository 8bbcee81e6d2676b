"""Puts the scripts that the original does not have into `bert/scripts` of the wheel.

At the top of site-packages, `predict` or `serve` would hide a module of somebody else's program.
The rest is in pyproject.toml.
"""

from setuptools import setup
from setuptools.command.build_py import build_py

_SCRIPTS = (
    *("convert_checkpoint", "create_vocab", "create_word_vectors", "extend_vocab", "fill_mask"),
    *("inspect_text", "join_shards", "neighbours", "predict", "serve", "split_sentences"),
)


class BuildScripts(build_py):
    """Builds the modules that pyproject.toml lists, and these scripts."""

    def find_modules(self) -> list[tuple[str, str, str]]:
        listed: list[tuple[str, str, str]] = super().find_modules()
        return [*listed, *(("bert.scripts", name, f"{name}.py") for name in _SCRIPTS)]


setup(cmdclass={"build_py": BuildScripts})

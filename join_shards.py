r"""Joins what the parts of --shard have written: the same file, byte for byte, as of a single run.

    python join_shards.py --input_file='vectors-*.npy' --output_file=vectors.npy

Lines (JSON, CSV, TSV), NumPy's .npy and .npz, and Parquet. Memory does not grow with the files.
"""

import dataclasses
import os
import re

from absl import logging

from bert.command_line import flags as common_flags
from bert.command_line.checks import Checks, start
from bert.command_line.console import run_script
from bert.command_line.flags import REQUIRED, flag
from bert.command_line.settings import OutputSettings
from bert.files import parquet
from bert.files.durable import replace_files
from bert.files.joining import ARRAYS, join
from bert.files.outputs import check_outputs
from bert.files.paths import match_files
from bert.files.tables import describe_files


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(OutputSettings):
    """The flags of this script, by name."""

    input_file: str = flag(
        REQUIRED,
        "Files of the parts, in their order: a comma-separated list of paths or patterns. What a "
        "pattern matches is ordered by the numbers in the names: part-10 comes behind part-9.",
    )
    output_file: str = flag(
        REQUIRED,
        "File to write; its ending tells its form, as those of the parts do.",
        group="output",
    )


def define_flags() -> None:
    """Defines the flags."""
    common_flags.define(Settings)


def run(settings: Settings) -> None:
    """Writes the whole.

    Raises:
      ValueError: where the files do not go together.
    """
    paths = _find_parts(settings)
    _check_output(settings, paths)
    with replace_files([settings.output_file]) as [file]:
        join(paths, _form(settings.output_file), file)
    logging.info("Joined %s in %s.", ", ".join(paths), settings.output_file)


def check(settings: Settings, checks: Checks) -> None:
    """Checks what `run` needs."""
    paths = checks("parts", _find_parts, settings, tells=describe_files)
    checks("output file", _check_output, settings, paths, tells=lambda _: settings.output_file)


def _form(path: str) -> str:
    ending = os.path.splitext(path)[1].lower().removeprefix(".")
    return ending if ending in ARRAYS else "lines"


def _find_parts(settings: Settings) -> list[str]:
    paths = [
        path
        for pattern in settings.input_file.split(",")
        for path in sorted(match_files(pattern, "input_file"), key=_by_number)
    ]
    form = _form(settings.output_file)
    for path in paths:
        if _form(path) != form:
            raise ValueError(
                f"`--output_file` must have an ending of the same form as the parts. Received "
                f"{settings.output_file!r} for {path!r}."
            )
    if form == "parquet":
        parquet.check_installed(settings.output_file)
    return paths


def _by_number(path: str) -> list[str | int]:
    # Texts and numbers take turns, so that none is compared with the other.
    return [int(each) if each.isdecimal() else each for each in re.split("([0-9]+)", path)]


def _check_output(settings: Settings, paths: list[str]) -> None:
    check_outputs([settings.output_file], paths, "output_file", settings.may_replace)


def main(_: list[str]) -> None:
    """Runs the script on its flags."""
    start(common_flags.read_settings(Settings), run, check)


if __name__ == "__main__":
    define_flags()
    run_script(main)

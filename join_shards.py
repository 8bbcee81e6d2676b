r"""Joins the outputs of --shard into the file that a single run would write, byte for byte.

    python join_shards.py --input_file='vectors-*.npy' --output_file=vectors.npy

Reads lines (JSON, CSV, TSV), NumPy's .npy and .npz, and Parquet. Memory use does not grow with the
files, except for Parquet. The hidden file beside each part, .<name>.part, says of which output it
is a part: parts of different outputs, missing, changed or in another order are an error.

    python join_shards.py --input_file=a.jsonl,b.jsonl --output_file=c.jsonl --unverified

joins files without it as they are.
"""

import dataclasses
import os

from absl import logging

from bert.commands import flags as common_flags
from bert.commands.checks import Checks, start
from bert.commands.console import run_script
from bert.commands.settings import PATTERNS, OutputSettings
from bert.files import parquet
from bert.files.durable import replace_files
from bert.files.outputs import check_outputs
from bert.files.paths import index_path, is_file, match_files
from bert.files.rows import describe_files
from bert.options import REQUIRED, option
from bert.scale.joining import ARRAYS, join, order_parts
from bert.scale.parts import check_parts


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(OutputSettings):
    """The flags of this script, by name."""

    input_file: str = option(
        REQUIRED,
        f"Files of the parts, in order: {PATTERNS}. Files that match a pattern are sorted by the "
        "numbers in their names: part-10 comes after part-9.",
    )
    num_parts: int | None = option(
        None, "Number of parts that must exist. Default: as many as are found.", low=1
    )
    unverified: bool = option(
        False,
        "Join files as they are, without the descriptions beside them that say what they are parts "
        "of. A number missing among their names is still an error.",
    )
    output_file: str = option(
        REQUIRED,
        "File to write; its extension sets the format, as those of the parts do.",
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
    logging.info("Joined %d parts in %s: %s.", len(paths), settings.output_file, ", ".join(paths))


def check(settings: Settings, checks: Checks) -> None:
    """Checks what `run` needs."""
    paths = checks("parts", _find_parts, settings, tells=describe_files)
    checks("output file", _check_output, settings, paths, tells=lambda _: settings.output_file)


def _form(path: str) -> str:
    ending = os.path.splitext(path)[1].lower().removeprefix(".")
    return ending if ending in ARRAYS else "lines"


def _find_parts(settings: Settings) -> list[str]:
    patterns = settings.input_file.split(",")
    count = settings.num_parts if len(patterns) == 1 else None
    paths: list[str] = []
    for pattern in patterns:
        matched = match_files(pattern, "input_file")
        # One that is named by itself is where its user wants it.
        paths += matched if matched == [pattern.strip()] else order_parts(matched, count)
    _check_count(settings, paths)
    form = _form(settings.output_file)
    if records := [path for path in paths if is_file(index_path(path))]:
        raise ValueError(
            "`--input_file` must name shards of one file that have no index of their own. Received "
            f"{records[0]!r}, records of create_pretraining_data.py: a file of their bytes would "
            "lack what their index tells. run_pretraining.py reads all of them by a pattern."
        )
    for path in paths:
        if _form(path) != form:
            raise ValueError(
                f"`--output_file` must have an ending of the same form as the parts. Received "
                f"{settings.output_file!r} for {path!r}."
            )
    if form == "parquet":
        parquet.check_installed(settings.output_file)
    if not settings.unverified:
        check_parts(paths, settings.output_file)
    return paths


def _check_count(settings: Settings, paths: list[str]) -> None:
    if doubled := [path for path in dict.fromkeys(paths) if paths.count(path) > 1]:
        raise ValueError(f"`--input_file` must name each part once. Received {doubled} again.")
    if settings.num_parts not in (None, len(paths)):
        raise ValueError(
            f"`--input_file` must name {settings.num_parts} parts, as `--num_parts` says. Received "
            f"{len(paths)}: {', '.join(paths)}."
        )


def _check_output(settings: Settings, paths: list[str]) -> None:
    check_outputs([settings.output_file], paths, "output_file", settings.may_replace)


def main(_: list[str]) -> None:
    """Runs the script on its flags."""
    start(common_flags.read_settings(Settings), run, check)


if __name__ == "__main__":
    define_flags()
    run_script(main)

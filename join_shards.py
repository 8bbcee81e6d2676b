r"""Joins the outputs of --shard into the file that a single run would write, byte for byte.

    python join_shards.py --input_file='vectors-*.npy' --output_file=vectors.npy

Reads lines (JSON, CSV, TSV), NumPy's .npy and .npz, and Parquet. Memory use does not grow with the
files, except for Parquet. The hidden file beside each part, .<name>.part, says of which output it
is a part: parts of different outputs, missing, changed or in another order are an error.

    python join_shards.py --input_file=a.jsonl,b.jsonl --output_file=c.jsonl --unverified

joins files without it as they are, with a line end where a text lacks its last one.
"""

import dataclasses

from bert.commands.checks import OutputSettings, Step, call, check_output, make_script
from bert.commands.console import run_script
from bert.commands.lines import begin_run
from bert.files.durable import replace_files
from bert.files.machine import describe_files
from bert.files.paths import PATTERNS
from bert.log import logger
from bert.options import REQUIRED, option
from bert.scale.joining import find_parts, form_of, join


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(OutputSettings):
    """The flags of the script, by name."""

    input_file: str = option(
        REQUIRED,
        f"Files of the parts, in order: {PATTERNS}. Files that match a pattern are sorted by the "
        "numbers in their names: part-10 comes after part-9.",
        group="data",
    )
    num_parts: int | None = option(
        None,
        "Number of parts that must exist. Default: as many as are found.",
        low=1,
        group="data",
    )
    unverified: bool = option(
        False,
        "Join files as they are, without the descriptions beside them that say what they are parts "
        "of. A number missing among their names is still an error.",
        group="data",
    )
    output_file: str = option(
        REQUIRED,
        "File to write; its extension sets the format, as with the parts.",
        group="output",
    )


def run(settings: Settings) -> None:
    """Writes the joined file.

    Raises:
      ValueError: where the files do not go together.
    """
    begin_run(settings.check)
    paths = check(settings)
    with replace_files([settings.output_file]) as [file]:
        join(paths, form_of(settings.output_file), file)
    logger.info("Joined %d parts in %s: %s.", len(paths), settings.output_file, ", ".join(paths))


def check(settings: Settings, step: Step = call) -> list[str]:
    """Finds the parts, and checks that they go together; returns their paths in order."""
    paths = step(
        "parts",
        find_parts,
        settings.input_file,
        settings.output_file,
        settings.num_parts,
        not settings.unverified,
        shows=describe_files,
    )
    check_output(settings, step, paths)
    return paths


define_flags, main = make_script(Settings, run, check)

if __name__ == "__main__":
    define_flags()
    run_script(main)

r"""Joins the outputs of --shard into the file that a single run would write, byte for byte.

    python join_shards.py --input_file='vectors-*.npy' --output_file=vectors.npy

Reads lines (JSON, CSV, TSV), NumPy's .npy and .npz, and Parquet. Memory use does not grow with the
files, except for Parquet. The hidden file beside each part, .<name>.part, says of which output it
is a part: parts of different outputs, missing, changed or in another order are an error.

    python join_shards.py --input_file=a.jsonl,b.jsonl --output_file=c.jsonl --unverified

joins files without it as they are.
"""

from bert.commands import flags as common_flags
from bert.commands.checks import start
from bert.commands.console import run_script
from bert.commands.join_shards import Settings, prepare
from bert.files.durable import replace_files
from bert.log import logger
from bert.scale.joining import form_of, join


def define_flags() -> None:
    """Defines the flags."""
    common_flags.define(Settings)


def run(settings: Settings) -> None:
    """Writes the joined file.

    Raises:
      ValueError: where the files do not go together.
    """
    paths = prepare(settings)
    with replace_files([settings.output_file]) as [file]:
        join(paths, form_of(settings.output_file), file)
    logger.info("Joined %d parts in %s: %s.", len(paths), settings.output_file, ", ".join(paths))


def main(_: list[str]) -> None:
    """Runs the script on its flags."""
    start(common_flags.read_settings(Settings), run, prepare)


if __name__ == "__main__":
    define_flags()
    run_script(main)

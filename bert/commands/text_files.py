"""The flags and first steps of scripts that make one file of text files."""

import dataclasses
from typing import Any

from bert.commands.checks import call
from bert.commands.settings import PATTERNS, OutputSettings
from bert.files.outputs import check_outputs
from bert.files.rows import describe_files
from bert.files.texts import find_texts
from bert.options import REQUIRED, option


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextFileSettings(OutputSettings):
    """The flags of every script that makes one file of text files."""

    GROUP = "data"

    input_file: str = option(REQUIRED, f"Text files, plain or gzip: {PATTERNS}.")
    output_file: str = option(REQUIRED, "File to write.", group="output")


def check_files(settings: TextFileSettings, step: Any = call) -> list[str]:
    """Checks the text files and the output file; returns the paths of the text files.

    Args:
      settings: The flags.
      step: `call` to run the script, `Checks` to show each step.

    Raises:
      ValueError: where there is no text, or the output file must not be written.
    """
    files = step("text", find_texts, settings.input_file, shows=describe_files)
    output = settings.output_file
    arguments = ([output], files, "output_file", settings.may_replace)
    step("output file", check_outputs, *arguments, shows=lambda _: repr(output))
    return files

"""The options of join_shards.py, and its first steps."""

import dataclasses
from typing import Any

from bert.commands.checks import call
from bert.commands.settings import OutputSettings
from bert.files.outputs import check_outputs
from bert.files.paths import PATTERNS
from bert.files.rows import describe_files
from bert.options import REQUIRED, option
from bert.scale.joining import find_parts


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
        "File to write; its extension sets the format, as those of the parts do.",
        group="output",
    )


def prepare(settings: Settings, step: Any = call) -> list[str]:
    """Finds the parts, and checks that they go together; returns their paths in order.

    Args:
      settings: The flags.
      step: `call` to run the script, `Checks` to show each step.
    """
    output = settings.output_file
    arguments = (settings.input_file, output, settings.num_parts)
    is_verified = not settings.unverified
    paths = step("parts", find_parts, *arguments, is_verified, shows=describe_files)
    outputs = ([output], paths, "output_file", settings.may_replace)
    step("output file", check_outputs, *outputs, shows=lambda _: output)
    return paths

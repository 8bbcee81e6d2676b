"""The flags of convert_checkpoint.py and its checks."""

import dataclasses
import functools

from bert.commands.checks import Checks
from bert.commands.settings import CheckSettings
from bert.files.process import import_tensorflow
from bert.models.options import ConversionOutput, ConversionSource
from bert.parts import FAILED


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(ConversionOutput, CheckSettings, ConversionSource):
    """The flags of this script, by name."""


def check(settings: Settings, checks: Checks) -> None:
    """Shows the output, the model and the files to write, and whether they fit."""
    import_tensorflow()
    from bert.models import conversion
    from bert.models.fine_tuned import find_architecture

    place = checks("output", conversion.split_output, settings, shows=lambda place: place[0])
    open_source = functools.partial(conversion.open_source, fetches=False)
    arguments = (settings, settings.format)
    folder = checks("input", open_source, *arguments, shows=lambda found: found.stored.prefix)
    given = settings.architecture
    architecture = checks("architecture", find_architecture, folder, given, shows=str)
    if place is not FAILED:
        checks(
            "files to write",
            conversion.plan_conversion,
            *(settings, settings, folder, architecture),
            shows=lambda plan: ", ".join([plan.name, *plan.files]),
        )

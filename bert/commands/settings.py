"""The flags that several scripts share."""

import dataclasses

from bert.files import paths
from bert.options import option

PATTERNS = paths.PATTERNS
WHOLE_FILE = "File to write, which appears only when it is complete"


@dataclasses.dataclass(frozen=True, kw_only=True)
class CheckSettings:
    """The flag of every script."""

    GROUP = "steps"

    check: bool = option(
        False,
        "Dry run: report what the run needs and whether it is available, one line each; of a "
        "training, also the expected memory, disk and time. Write nothing; exit with status 1 if "
        "the run would fail.",
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class OutputSettings(CheckSettings):
    """The flag of every script that writes one file."""

    GROUP = "output"

    overwrite: bool = option(False, "Replace the output file if it exists.")

    def may_replace(self, path: str) -> bool:
        """Returns whether the file that is there may go, for `check_outputs`."""
        del path
        return self.overwrite

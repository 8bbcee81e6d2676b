"""What may change in an output folder between planning and running."""

import dataclasses
import os

from bert.files import fingerprints
from bert.files.paths import is_file
from bert.files.weight_names import step_of
from bert.options import Message, Option, OptionError
from bert.weights import provenance
from bert.weights.checkpoint import weight_files


@dataclasses.dataclass(frozen=True)
class FolderState:
    """The state of an output folder.

    Attributes:
      digest: The fingerprint of `run.json`; "" where there is none.
      latest: The name of the latest checkpoint; "" where there is none.
    """

    digest: str
    latest: str

    @classmethod
    def of(cls, folder: str) -> "FolderState":
        """Returns the state of a folder as it is now."""
        path = os.path.join(folder, provenance.RUN_FILE)
        digest = fingerprints.of_files([path]) if is_file(path) else ""
        names = [name for name in weight_files(folder) if step_of(name) is not None]
        return cls(digest, max(names, key=lambda name: step_of(name) or 0, default=""))

    def check(self, folder: str) -> None:
        """Checks that the folder is as it was.

        Raises:
          OptionError: where another run has changed it.
        """
        now = FolderState.of(folder)
        if now != self:
            what = "`run.json`" if now.digest != self.digest else "the latest checkpoint"
            raise OptionError(
                "output_dir",
                "be as it was when the run was planned",
                remedy=Message(
                    "In %r, %s has changed. Plan again, or give another %s.",
                    *(folder, what, Option("output_dir")),
                ),
            )

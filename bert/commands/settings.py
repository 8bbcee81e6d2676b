"""The flags that several scripts share: groups of options put together, flat."""

import dataclasses

from bert.export.formats import ExportOptions
from bert.files import paths
from bert.options import Message, Option, option, several
from bert.runs.recipes import EvaluatedSteps, Steps
from bert.tasks.options import (
    LEARNING_RATE,
    DataFiles,
    Encoder,
    Evaluation,
    Lengths,
    Prediction,
    Schedule,
    Teacher,
)
from bert.training.options import Compute, Output, Seed
from bert.weights.options import (
    ModelSource,
    VocabularySource,
)

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


@dataclasses.dataclass(frozen=True, kw_only=True)
class FineTuningSettings(
    Lengths,
    Schedule,
    Prediction,
    Encoder,
    ExportOptions,
    VocabularySource,
    Steps,
    CheckSettings,
    ModelSource,
    Output,
    Seed,
    Compute,
):
    """The flags of every script that fine-tunes; what it predicts is the dev set."""

    GROUP = "training"

    learning_rate: float = several(
        option(LEARNING_RATE, "Peak learning rate.", low=0.0, shapes_training=True)
    )
    num_runs: int = option(
        1,
        Message(
            "Number of runs, with seeds %s, %s + 1 and so on, each in its own folder. Reports mean "
            "and standard deviation.",
            *(Option("seed"), Option("seed")),
        ),
        low=1,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvaluatedSettings(Evaluation, EvaluatedSteps, FineTuningSettings):
    """The flags of every script that evaluates on a dev set and predicts a test set."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class FileSettings(DataFiles, EvaluatedSettings):
    """The flags of every script whose data are a folder, or files of any name."""

    def __post_init__(self) -> None:
        DataFiles.__post_init__(self)
        EvaluatedSettings.__post_init__(self)


@dataclasses.dataclass(frozen=True, kw_only=True)
class DistilledSettings(Teacher, FileSettings):
    """The flags of every script whose models may learn from another one, mostly a larger one."""

    def __post_init__(self) -> None:
        Teacher.__post_init__(self)
        FileSettings.__post_init__(self)

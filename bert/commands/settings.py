"""The flags that several scripts share: groups of options put together, flat."""

import dataclasses
from collections.abc import Mapping

from bert.export.formats import ExportOptions
from bert.files import paths, sentence_transformers
from bert.files.texts import TextColumns
from bert.options import option
from bert.tasks.options import (
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
    ConfigSource,
    ModelSource,
    VocabularySource,
)

PATTERNS = paths.PATTERNS
DEFAULT_LENGTH = sentence_transformers.DEFAULT_LENGTH
AS_IN_FOLDER = sentence_transformers.AS_IN_FOLDER
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
class ModelSettings(CheckSettings, ConfigSource):
    """The flag of every script that has a model."""


VocabularySettings = VocabularySource


TextSettings = TextColumns


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
class TrainingSettings(CheckSettings, ModelSource, Output, Seed, Compute):
    """The flags of every script that trains."""

    GROUP = "training"

    do_train: bool = option(False, "Train the model.", group="steps")
    learning_rate: float = option(5e-5, "Peak learning rate.", low=0.0, shapes_training=True)


@dataclasses.dataclass(frozen=True, kw_only=True)
class FineTuningSettings(
    Lengths, Schedule, Prediction, Encoder, ExportOptions, VocabularySource, TrainingSettings
):
    """The flags of every script that fine-tunes; what it predicts is the dev set."""

    GROUP = "training"

    do_predict: bool = option(False, "Predict; with --do_train, after training.", group="steps")
    do_export: bool = option(
        False,
        "Export the model to <output_dir>/<format>, for use without this project. A SavedModel, "
        "the default format, takes raw text.",
        group="steps",
    )
    num_runs: int = option(
        1,
        "Number of runs, with seeds --seed, --seed + 1 and so on, each in its own folder. Reports "
        "mean and standard deviation.",
        low=1,
    )

    def splits(self) -> dict[str, bool]:
        """Returns for each part of the data, by name, whether it is asked for."""
        return {"train": self.do_train, "dev": self.do_predict}

    def other_models(self) -> Mapping[str, str | None]:
        """Returns, by flag, models beside `--init_checkpoint` whose weights shape the training.

        None for one that is not given.
        """
        return {}

    def batch_size(self, split: str) -> int:
        """Returns the number of examples that a step takes of a part of the data."""
        return self.train_batch_size if split == "train" else self.predict_batch_size

    def evaluates_in_training(self) -> bool:
        """Returns whether the dev set is scored on the way."""
        return self.early_stopping_patience > 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvaluatedSettings(Evaluation, FineTuningSettings):
    """The flags of every script that evaluates on a dev set and predicts a test set."""

    GROUP = "training"

    do_eval: bool = option(
        False, "Evaluate on the dev set; with --do_train, during and after training.", group="steps"
    )
    do_predict: bool = option(
        False, "Predict the test set; with --do_train, after training.", group="steps"
    )

    def splits(self) -> dict[str, bool]:
        """Returns for each part of the data, by name, whether it is asked for."""
        return {"train": self.do_train, "dev": self.do_eval, "test": self.do_predict}

    def batch_size(self, split: str) -> int:
        """Returns the number of examples that a step takes of a part of the data."""
        return self.eval_batch_size if split == "dev" else super().batch_size(split)

    def evaluates_in_training(self) -> bool:
        """Returns whether the dev set is scored on the way."""
        return self.do_eval


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

    def other_models(self) -> Mapping[str, str | None]:
        """Returns the teacher, if there is one."""
        return {"teacher": self.teacher}

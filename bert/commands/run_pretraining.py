"""The options of run_pretraining.py, its runs and its checks."""

import dataclasses

from bert.commands.settings import CheckSettings
from bert.files.process import import_tensorflow
from bert.options import option, take
from bert.pretraining.options import PretrainingEvaluation, PretrainingSchedule, RecordFiles
from bert.runs.recipes import Command, PreTraining, PreTrainingSteps
from bert.training.options import OVERWRITE, Compute, Output, Seed
from bert.weights.options import ModelSource


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(
    PretrainingEvaluation,
    PretrainingSchedule,
    RecordFiles,
    PreTrainingSteps,
    CheckSettings,
    ModelSource,
    Output,
    Seed,
    Compute,
):
    """The flags of the script, by name."""

    overwrite_output_dir: bool = option(False, OVERWRITE, group="output")


def make_recipe(settings: Settings) -> PreTraining:
    """Returns the recipe that the flags describe."""
    return PreTraining(
        steps=take(PreTrainingSteps, settings),
        model=take(ModelSource, settings),
        data=take(RecordFiles, settings),
        schedule=take(PretrainingSchedule, settings),
        evaluation=take(PretrainingEvaluation, settings),
        compute=take(Compute, settings),
        output=take(Output, settings),
        seed=settings.seed,
        command=Command(Settings, {"check": settings.check}),
    )


def run(settings: Settings) -> dict[str, float]:
    """Trains and evaluates as the settings say; returns what `eval_results.txt` holds, if anything.

    Raises:
      PlanError: before the expensive part, where the settings, the data and the model do not fit.
    """
    import_tensorflow()
    from bert.commands.plans import run_recipe

    return run_recipe(make_recipe(settings))


def check(settings: Settings) -> None:
    """Shows what `run` would do, and exits with 1 if it would fail."""
    import_tensorflow()
    from bert.commands.plans import check_recipe

    check_recipe(make_recipe(settings))

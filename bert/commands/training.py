"""The flags of scripts that fine-tune, and runs and checks of recipes, pre-training included."""

import dataclasses
from typing import Any

from bert.commands.checks import Checks, CheckSettings
from bert.commands.lines import begin_run
from bert.export.formats import ExportOptions
from bert.options import Message, Option, option, several, take
from bert.parts import PlanError
from bert.runs.plan import plan
from bert.runs.recipes import (
    Command,
    EvaluatedSteps,
    FineTuning,
    PreTraining,
    Search,
    Steps,
    TextModel,
)
from bert.runs.run import run as run_plan
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
from bert.weights.options import ModelSource, VocabularySource

# Examples of a data set that `--check` looks at.
_MOST_EXAMPLES = 20_000


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
            Option("seed"),
            Option("seed"),
        ),
        low=1,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvaluatedSettings(Evaluation, EvaluatedSteps, FineTuningSettings):
    """The flags of every script that evaluates on a dev set and predicts a test set."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class FileSettings(DataFiles, EvaluatedSettings):
    """The flags of every script whose data are a folder, or files of any name."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class DistilledSettings(Teacher, FileSettings):
    """The flags of every script whose models may learn from another one, mostly a larger one."""


def make_recipe(settings: FineTuningSettings, data: type, **others: type) -> FineTuning | Search:
    """Returns the recipe, or the search, that the flags of a script describe.

    Args:
      settings: The flags.
      data: The class of the options of the data set.
      **others: By field of the recipe, the class of other options of the task.
    """
    is_evaluated = isinstance(settings, EvaluatedSettings)
    recipe = FineTuning(
        steps=take(EvaluatedSteps if is_evaluated else Steps, settings),
        model=take(TextModel, settings),
        data=take(data, settings),
        lengths=take(Lengths, settings),
        schedule=take(Schedule, settings),
        evaluation=take(Evaluation if is_evaluated else Prediction, settings),
        encoder=take(Encoder, settings),
        compute=take(Compute, settings),
        output=take(Output, settings),
        export=take(ExportOptions, settings),
        seed=settings.seed,
        command=Command(type(settings), {"check": settings.check, "num_runs": settings.num_runs}),
        **{name: take(kind, settings) for name, kind in others.items()},
    )
    return recipe.expand(settings.num_runs)


def run(recipe: PreTraining | FineTuning | Search) -> dict[str, Any]:
    """Runs a recipe, and shows in a Python program what is logged; returns the scores."""
    shared = recipe.shared if isinstance(recipe, Search) else recipe
    begin_run(shared.command.values.get("check", False))
    return dict(run_plan(plan(recipe)).scores)


def check(recipe: PreTraining | FineTuning | Search, checks: Checks) -> None:
    """Shows a line for each part of what `run` would do."""
    try:
        planned = plan(recipe, limit=_MOST_EXAMPLES)
        lines = [*planned.lines, *planned.estimate()]
    except PlanError as error:
        lines = [*error.lines]
    for line in lines:
        checks.record(line)

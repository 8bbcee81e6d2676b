"""Recipes of fine-tuning from the flat options of scripts, their runs and their checks."""

from typing import Any

from bert.commands.settings import EvaluatedSettings, FineTuningSettings
from bert.export.formats import ExportOptions
from bert.files.process import import_tensorflow
from bert.options import take
from bert.runs.recipes import Command, EvaluatedSteps, FineTuning, Search, Steps, TextModel
from bert.tasks.options import Encoder, Evaluation, Lengths, Prediction, Schedule
from bert.training.options import Compute, Output


def make_recipe(
    settings: FineTuningSettings, data: type, model: type[TextModel] = TextModel, **others: type
) -> FineTuning | Search:
    """Returns the recipe, or the search, that the flags of a script describe.

    Args:
      settings: The flags.
      data: The class of the options of the data set.
      model: The class of the options of the model.
      **others: By field of the recipe, the class of other options of the task.
    """
    is_evaluated = isinstance(settings, EvaluatedSettings)
    recipe = FineTuning(
        steps=take(EvaluatedSteps if is_evaluated else Steps, settings),
        model=take(model, settings),
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


def run(recipe: FineTuning | Search) -> dict[str, Any]:
    """Runs a recipe or a search; returns the scores, or what `runs.json` holds."""
    import_tensorflow()
    from bert.commands.plans import run_recipe  # noqa: PLC0415

    return run_recipe(recipe)


def check(recipe: FineTuning | Search) -> None:
    """Shows what `run` would do, and exits with 1 if it would fail."""
    import_tensorflow()
    from bert.commands.plans import check_recipe  # noqa: PLC0415

    check_recipe(recipe)

"""The plan of a run: everything is opened and verified, and nothing is written."""

from typing import TYPE_CHECKING

from bert.files.process import import_tensorflow
from bert.options import typed_value
from bert.runs.recipes import FineTuning, PreTraining, Recipe, Search
from bert.training.options import read_trackers

if TYPE_CHECKING:
    import tensorflow as tf

    from bert.runs.plans import Plan


def plan(
    recipe: PreTraining | FineTuning | Search,
    limit: int | None = None,
    strategy: "tf.distribute.Strategy | None" = None,
) -> "Plan":
    """Returns the verified plan of a run; writes nothing.

    Args:
      recipe: The description of the run; several values of an option make it a search.
      limit: The most examples of each data set to read; None for all. A plan with a limit shows
        what a run would do, and cannot be run.
      strategy: The devices, where they are opened already.

    Raises:
      PlanError: naming all faults, as far as they can be found: without a limit, no data are read
        where something else is wrong. Before all, `OptionError` for an unknown tracker, or a seed
        that leaves none for the last run.
    """
    if not isinstance(recipe, Recipe | Search):
        remedy = "`make_recipe` of a script makes one of its Settings."
        raise TypeError(f"`recipe` must be a recipe. Received {recipe!r:.200}. {remedy}")
    if limit is not None:
        limit = typed_value("limit", limit, int, lower_bound=1)
    shared = recipe.shared if isinstance(recipe, Search) else recipe
    read_trackers(shared.output.report_to)
    if isinstance(recipe, FineTuning):
        # Options of several values make a search, whose recipes are completed.
        recipe = recipe.expand()
    import_tensorflow()
    # A run loads what its own kind needs.
    if isinstance(recipe, PreTraining):
        from bert.runs import pretraining  # noqa: PLC0415

        return pretraining.plan(recipe, limit, strategy)
    if isinstance(recipe, Search):
        from bert.runs import search  # noqa: PLC0415

        return search.plan(recipe, limit, strategy)
    from bert.runs import finetuning  # noqa: PLC0415

    return finetuning.plan(recipe, limit, strategy)[0]

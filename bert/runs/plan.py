"""The plan of a run: opened and verified, and nothing is written."""

import tensorflow as tf

from bert.options import check_bounds
from bert.parts import Line, Parts
from bert.runs.plans import Plan
from bert.runs.recipes import FineTuning, PreTraining, Search


def plan(
    recipe: PreTraining | FineTuning | Search,
    limit: int | None = None,
    strategy: tf.distribute.Strategy | None = None,
) -> Plan:
    """Returns the plan of a run, of which all parts are as they must be; writes nothing.

    Args:
      recipe: What is to be done.
      limit: How many examples of each data set are looked at; None for all. A plan with a limit
        shows what a run would do, and cannot be run.
      strategy: The devices, where they are opened already.

    Raises:
      PlanError: naming all that is wrong, as far as it can be found: without a limit, no data are
        read where something else is wrong.
    """
    for group in (recipe.shared if isinstance(recipe, Search) else recipe).groups():
        check_bounds(group)
    # A run loads what its own kind needs.
    if isinstance(recipe, PreTraining):
        from bert.runs import pretraining  # noqa: PLC0415

        return pretraining.plan(recipe, limit, strategy)
    if isinstance(recipe, Search):
        from bert.runs import search  # noqa: PLC0415

        return search.plan(recipe, limit, strategy)
    from bert.runs import finetuning  # noqa: PLC0415

    return finetuning.plan(recipe, limit, strategy)


def estimate(plan: Plan) -> list[Line]:
    """Tries a plan with a limit: returns how long training takes, or which weights there are."""
    parts = Parts(is_muted=True)
    if isinstance(plan.recipe, PreTraining):
        from bert.runs import pretraining  # noqa: PLC0415

        assert isinstance(plan, pretraining.PreTrainingPlan)
        pretraining.estimate(plan, parts)
        return parts.lines
    from bert.runs import finetuning  # noqa: PLC0415

    if isinstance(plan.recipe, Search):
        from bert.runs import search  # noqa: PLC0415

        assert isinstance(plan, search.SearchPlan)
        finetuning.estimate(plan.plans[0], parts, plan.plans)
    else:
        assert isinstance(plan, finetuning.FineTuningPlan)
        finetuning.estimate(plan, parts)
    return parts.lines

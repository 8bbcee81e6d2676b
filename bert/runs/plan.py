"""The plan of a run: opened and verified, and nothing is written."""

import tensorflow as tf

from bert.options import check_bounds
from bert.parts import Line, Parts
from bert.runs import finetuning, pretraining, search
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
    if isinstance(recipe, PreTraining):
        return pretraining.plan(recipe, limit, strategy)
    if isinstance(recipe, Search):
        return search.plan(recipe, limit, strategy)
    return finetuning.plan(recipe, limit, strategy)


def estimate(plan: Plan) -> list[Line]:
    """Tries a plan with a limit: returns how long training takes, or which weights there are."""
    parts = Parts(is_muted=True)
    if isinstance(plan, pretraining.PreTrainingPlan):
        pretraining.estimate(plan, parts)
    elif isinstance(plan, search.SearchPlan):
        finetuning.estimate(plan.plans[0], parts, plan.plans)
    else:
        assert isinstance(plan, finetuning.FineTuningPlan)
        finetuning.estimate(plan, parts)
    return parts.lines

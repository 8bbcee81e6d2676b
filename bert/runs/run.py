"""A run: what is planned is done, and written."""

from collections.abc import Sequence

from bert.runs import pretraining
from bert.runs.plans import Plan, Result
from bert.training.loop import Observer
from bert.training.seeds import seeded_with


def run(plan: Plan, observers: Sequence[Observer] = ()) -> Result:
    """Does what is planned; the state of Python's random numbers stays as it was.

    Args:
      plan: A plan without a limit.
      observers: Called after every step of training, as `bert.training.loop` calls them.

    Raises:
      ValueError: where the plan has a limit, or the output folder is not as it was.
    """
    if plan.limit is not None:
        raise ValueError(
            f"`plan` must be one without a limit to be run. It is of {plan.limit} examples at most."
        )
    assert isinstance(plan, pretraining.PreTrainingPlan)
    with seeded_with(plan.recipe.seed):
        return pretraining.run(plan, observers)

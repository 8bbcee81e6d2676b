"""The run of a plan, which writes into the output folder."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from bert.files.process import same_random_state
from bert.runs.recipes import PreTraining, Recipe, Search
from bert.training.loop import Observer

if TYPE_CHECKING:
    from bert.runs.plans import Plan, Result


def run(plan: "Plan", observers: Sequence[Observer] = ()) -> "Result":
    """Runs a plan; the state of Python's random numbers stays as it was.

    Args:
      plan: A plan without a limit.
      observers: The observers of each step of training.

    Raises:
      TypeError: where an argument is of another class.
      ValueError: where the plan has a limit, or the output folder is not as it was.
    """
    if not isinstance(getattr(plan, "recipe", None), Recipe | Search):
        raise TypeError(f"`plan` must be what `plan(recipe)` returns. Received {plan!r:.200}.")
    # A generator has its observers once, for all runs.
    observers = [*observers] if isinstance(observers, Iterable) else [observers]
    for observer in observers:
        if not isinstance(observer, Observer):
            raise TypeError(f"`observers` must be objects of Observer. Received {observer!r}.")
    if plan.limit is not None:
        raise ValueError(
            f"`plan` must be one without a limit to be run. It is of {plan.limit} examples at most."
        )
    # A run loads what its own kind needs.
    if isinstance(plan.recipe, Search):
        from bert.runs import search

        assert isinstance(plan, search.SearchPlan)
        return search.run(plan, observers)
    with same_random_state(plan.recipe.seed):
        if isinstance(plan.recipe, PreTraining):
            from bert.runs import pretraining

            assert isinstance(plan, pretraining.PreTrainingPlan)
            return pretraining.run(plan, observers)
        from bert.runs import finetuning, finetuning_run

        assert isinstance(plan, finetuning.FineTuningPlan)
        result, refusal = finetuning_run.run(plan, observers)
    if refusal:
        raise refusal
    return result

"""Plans as the commands run them, or show them with `--check`."""

from typing import Any

from bert.commands.checks import Checks
from bert.commands.lines import show_lines
from bert.parts import PlanError
from bert.runs.plan import plan
from bert.runs.recipes import FineTuning, PreTraining, Search
from bert.runs.run import run

# Examples of a data set that `--check` looks at.
_MOST_EXAMPLES = 20_000


def run_recipe(recipe: PreTraining | FineTuning | Search) -> dict[str, Any]:
    """Runs a recipe, and shows in a Python program what is logged; returns the scores."""
    show_lines()
    return dict(run(plan(recipe)).scores)


def check_recipe(recipe: PreTraining | FineTuning | Search) -> None:
    """Shows a line for each part of a run, and exits with 1 if the run would fail."""
    show_parts(recipe).end()


def show_parts(recipe: PreTraining | FineTuning | Search) -> Checks:
    """Shows a line for each part of a run; returns them."""
    checks = Checks()
    try:
        planned = plan(recipe, limit=_MOST_EXAMPLES)
        lines = [*planned.lines, *planned.estimate()]
    except PlanError as error:
        lines = [*error.lines]
    for line in lines:
        checks.record(line)
    return checks

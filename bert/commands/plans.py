"""Plans as the commands run them, or show them with `--check`."""

import sys
from typing import Any

from bert.commands.checks import checking, print_line
from bert.commands.console import explain
from bert.commands.lines import show_lines
from bert.options import Option
from bert.runs.parts import WRONG, Line, PlanError
from bert.runs.plan import estimate, plan
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
    lines = find_lines(recipe)
    for line in lines:
        print_line(line.mark, line.name, line_text(line))
    if num_wrong := sum(line.mark == WRONG for line in lines):
        sys.exit(f"{num_wrong} of {len(lines)} would end the run.")


def find_lines(recipe: PreTraining | FineTuning | Search) -> list[Line]:
    """Returns a line for each part of a run."""
    with checking():
        try:
            planned = plan(recipe, limit=_MOST_EXAMPLES)
        except PlanError as error:
            return list(error.lines)
        return [*planned.lines, *estimate(planned)]


def line_text(line: Line) -> str:
    """Returns the text of a line, with options as flags."""
    if line.mark == WRONG:
        return str(explain(line.text))
    return line.spell(Option.as_flag)

"""The report as Markdown, with figures in files beside it."""

from collections.abc import Iterator, Sequence

from paper import texts
from paper.estimates import format_minutes
from paper.tables import Outcome
from paper.texts import Ran, Results


def format_report(results: Results, figures: Sequence[str]) -> str:
    """Returns the report.

    Args:
      results: What it tells.
      figures: Keys of the tables that have one, as `figures/<key>.svg`.
    """
    lines = [
        f"# {texts.TITLE}",
        "",
        texts.INTRODUCTION,
        "",
        f"**{texts.overall(results.outcomes)}**",
        "",
        *_grid(
            ["", "about", "the paper's order", "pairs: same, contrary, noise, not known"],
            [_summary(outcome) for outcome in results.outcomes],
        ),
        "",
        *_grid(["", ""], [[name, text] for name, text in texts.facts(results).items()]),
        "",
    ]
    for outcome in results.outcomes:
        lines += _section(results, outcome, outcome.table.key in figures)
    if results.failures:
        lines += ["## What failed", ""]
        lines += [f"* `{each.name}`: {each.line}" for each in results.failures] + [""]
    lines += ["## Pre-trainings", "", *_runs(texts.pretrainings_of(results))]
    return "\n".join(lines).rstrip("\n") + "\n"


def _summary(outcome: Outcome) -> list[str]:
    table, total = outcome.table, outcome.total
    link = f"[{texts.number_of(table)}](#{_anchor(texts.heading(table))})"
    numbers = (total.same, total.contrary, total.noise, total.unknown)
    return [link, table.title, total.verdict, ", ".join(map(str, numbers))]


def _anchor(heading: str) -> str:
    kept = "".join(each for each in heading.lower() if each.isalnum() or each in " -")
    return kept.replace(" ", "-")


def _section(results: Results, outcome: Outcome, has_figure: bool) -> Iterator[str]:
    table = outcome.table
    yield from (f"## {texts.heading(table)}", "", table.text, "")
    if has_figure:
        yield from (f"![{texts.heading(table)}](figures/{table.key}.svg)", "")
    yield from _steps(outcome) if table.steps else _scores(outcome)
    yield from ("", f"**{texts.verdict_line(outcome)}**", "")
    for name, agreement in texts.agreement_lines(outcome):
        yield f"* {name}: {agreement.verdict}. {agreement.tell()}"
    yield from ("", table.remark, "")
    yield from ("<details><summary>Commands, seeds, minutes</summary>", "")
    yield from _runs(texts.runs_of(results, outcome))
    yield from ("", "</details>", "")


def _scores(outcome: Outcome) -> list[str]:
    table = outcome.table
    theirs = [f"*{texts.PAPER} {column.paper}*" for column in table.columns]
    head = ["", *(column.title for column in table.columns), f"*{texts.PAPER} row*", *theirs]
    rows = [
        [
            row.title,
            *(
                texts.cell_text(score) if cell else texts.NOTHING
                for cell, score in zip(row.cells, scores, strict=True)
            ),
            f"*{row.paper or texts.NOTHING}*",
            *(f"*{texts.their_text(value)}*" for value in row.theirs),
        ]
        for row, scores in zip(table.rows, outcome.scores, strict=True)
    ]
    return _grid(head, rows)


def _steps(outcome: Outcome) -> list[str]:
    table = outcome.table
    head = ["", "steps", *(row.title for row in table.rows)]
    rows = [
        [column.title, f"{step:,}", *(texts.cell_text(row[place]) for row in outcome.scores)]
        for place, (column, step) in enumerate(zip(table.columns, table.steps, strict=True))
    ]
    return _grid(head, rows)


def _runs(runs: Sequence[Ran]) -> list[str]:
    if not runs:
        return ["Nothing has run yet."]
    rows = [
        [
            f"{run.row}, {run.column}",
            f"`{run.command}`",
            ", ".join(map(str, run.seeds)),
            format_minutes(run.seconds),
        ]
        for run in runs
    ]
    return _grid(["", "command (of the first seed)", "seeds", "time"], rows)


def _grid(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"

    return [line(head), "|" + "---|" * len(head), *map(line, rows)]

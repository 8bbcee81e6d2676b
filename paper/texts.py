"""What the page and docs/paper.md both say of what has come of a plan."""

import dataclasses
from collections.abc import Collection, Iterable, Mapping, Sequence

from paper.estimates import format_minutes
from paper.finetunings import FROZEN_EPOCHS
from paper.ledger import Entry
from paper.plan import Plan
from paper.recipe import LONG, SHORT
from paper.running import Failure
from paper.tables import (
    AGREES,
    DIFFERS,
    NOISE,
    NOT_RUN,
    UNKNOWN,
    Agreement,
    Column,
    Outcome,
    Score,
    Table,
    add,
    look_up,
)

TITLE = "BERT's tables, re-run small"
INTRODUCTION = (
    "The tables by which BERT's paper (Devlin et al., 2018) argues, run again from raw text by "
    "`reproduce_paper.py` with models a hundredth of the paper's size, on a ten-thousandth of its "
    "computing time or less. What can be compared is not the numbers but their order: whether "
    "what is better there is better here, of rows that are half a point apart there at least. A "
    "difference counts where a t test over the seeds rejects, at a level of 5 %, that there is "
    "none (of a hundred pairs without one, about five would count). In tables 5, 6 and 8 these "
    "are seeds of pre-training and fine-tuning together; elsewhere of fine-tuning alone, so that "
    "another pre-training may undo what counts. Where each score is of one seed, it is not known "
    "whether it counts. A command that ran again with another result, as on another processor, "
    "counts with both. What other examples to evaluate on would change is not measured: all "
    "models are evaluated on the same ones."
)
PAPER = "the paper's"
NOTHING = "–"  # noqa: RUF001


@dataclasses.dataclass(frozen=True)
class Results:
    """A plan and what is known of it.

    Attributes:
      plan: All of it.
      outcomes: One for each table that is asked for.
      entries: By name, of the jobs that have run.
      failures: Of what was run now.
      budget: As it was given.
    """

    plan: Plan
    outcomes: Sequence[Outcome]
    entries: Mapping[str, Entry]
    failures: Sequence[Failure]
    budget: str

    @classmethod
    def of(
        cls,
        plan: Plan,
        keys: Collection[str],
        entries: Mapping[str, Entry],
        failures: Sequence[Failure],
        budget: str,
    ) -> "Results":
        """Returns the results of the tables that keys name, with what the entries have of them.

        The noise is known from all tables, so that a verdict is the same beside whichever others.
        """
        scores = {name: entry.results for name, entry in entries.items()}
        outcomes = [each for each in look_up(plan.tables, scores) if each.table.key in keys]
        return cls(plan, outcomes, entries, failures, budget)


def heading(table: Table) -> str:
    """Returns the heading of a table, such as `Table 5: …`."""
    return f"{number_of(table)}: {table.title}"


def number_of(table: Table) -> str:
    """Returns what the paper calls a table."""
    return table.key.replace("table", "Table ").replace("figure", "Figure ")


def cell_text(score: Score | None) -> str:
    """Returns a score, or that there is none."""
    return str(score) if score else NOT_RUN


def their_text(value: float | None) -> str:
    """Returns a number of the paper's, or a dash."""
    return NOTHING if value is None else f"{value:.2f}".removesuffix("0")


def agreement_lines(outcome: Outcome) -> list[tuple[str, Agreement]]:
    """Returns what is said of each column; those of a figure that share a title are one."""
    if not outcome.table.steps:
        pairs = zip(outcome.table.columns, outcome.agreements, strict=True)
        return [(_name(column), agreement) for column, agreement in pairs]
    from_title: dict[str, list[Agreement]] = {}
    for column, agreement in zip(outcome.table.columns, outcome.agreements, strict=True):
        from_title.setdefault(column.title, []).append(agreement)
    return [(title, add(each)) for title, each in from_title.items()]


def _name(column: Column) -> str:
    is_same = column.paper in column.title
    return column.title if is_same else f"{column.title} (the paper: {column.paper})"


def verdict_line(outcome: Outcome) -> str:
    """Returns a sentence on the whole table."""
    total, (done, count) = outcome.total, outcome.done
    if not total.pairs:
        return f"{total.verdict.capitalize()}: {done} of {count} scores are there."
    text = {
        AGREES: "The order of rows agrees with the paper's",
        DIFFERS: "The order of rows does not agree with the paper's everywhere",
        NOISE: "The rows differ by no more than noise",
        UNKNOWN: "Whether the rows differ by more than noise is not known",
    }[total.verdict]
    told = total.tell()
    if done < count:
        told += f" {count - done} of {count} scores are not run yet."
    return f"{text}: {told}"


@dataclasses.dataclass(frozen=True)
class Ran:
    """How a score was made: of one row and column, over its seeds.

    Attributes:
      command: Of the first seed.
      seeds: All that have run, one for each result.
      seconds: Of all together.
    """

    row: str
    column: str
    command: str
    seeds: Sequence[int]
    seconds: float


def runs_of(results: Results, outcome: Outcome) -> list[Ran]:
    """Returns how each score of a table was made, those of the same jobs together."""
    found: dict[tuple[str, ...], Ran] = {}
    table = outcome.table
    for row in table.rows:
        for column, cell in zip(table.columns, row.cells, strict=True):
            if cell is None or cell.jobs in found:
                continue
            entries = [results.entries[job] for job in cell.jobs if job in results.entries]
            if entries:
                seeds = [
                    each.seed for each in entries for _ in each.results if each.seed is not None
                ]
                seconds = sum(entry.seconds for entry in entries)
                command = results.plan.jobs[cell.jobs[0]].shown()
                found[cell.jobs] = Ran(row.title, column.title, command, seeds, seconds)
    return list(found.values())


def pretrainings_of(results: Results) -> list[Ran]:
    """Returns the pre-trainings that have run, each phase by itself."""
    return [
        Ran(
            name,
            "pre-training",
            job.shown(),
            [job.seed or 0] * max(len(results.entries[name].results), 1),
            results.entries[name].seconds,
        )
        for name, job in results.plan.jobs.items()
        if job.kind in ("pretraining", "word_vectors") and name in results.entries
    ]


def facts(results: Results) -> dict[str, str]:
    """Returns by name what the runs have in common."""
    recipe, plan = results.plan.recipe, results.plan
    entries = list(results.entries.values())
    machines = sorted({entry.machine for entry in entries})
    versions = sorted({f"{n} {v}" for entry in entries for n, v in entry.versions.items()})
    dates = sorted({entry.date for entry in entries})
    short, long = recipe.steps
    parts = [part for part in plan.parts.values() if "train" in part.examples]
    return {
        "Budget": f"{results.budget} for all tables",
        "Base model": f"{recipe.base.title}, no dropout, a cased vocabulary of at most "
        f"{recipe.vocab_size:,} entries learned from the text",
        "Each pre-training": f"{short:,} steps of {recipe.batch_size(SHORT)} sequences of {SHORT} "
        f"tokens, then {long:,} of {recipe.batch_size(LONG)} of {LONG}",
        "Text": f"about {plan.parts['data:text'].tokens['train']:,.0f} tokens",
        "Each fine-tuning": f"{_epochs(recipe.epochs)} of at most {recipe.examples:,} examples, "
        f"{recipe.glue_examples:,} of GLUE, {recipe.questions:,} of SQuAD, at even distances, "
        f"{_epochs(recipe.epochs * FROZEN_EPOCHS)} on frozen models; evaluated on at most "
        f"{recipe.held_out:,}",
        "Examples": "; ".join(
            f"{part.name.removeprefix('data:')} {part.examples['train']:,} of "
            f"{part.found['train']:,}, dev {part.examples['dev']:,} of {part.found['dev']:,}"
            for part in parts
        ),
        "Ran": f"{len(entries)} commands in {format_minutes(sum(e.seconds for e in entries))}"
        + (f", {dates[0]}" + (f" to {dates[-1]}" if len(dates) > 1 else "") if dates else ""),
        "On": "; ".join(machines) or "nothing yet",
        "With": ", ".join(versions) or "nothing yet",
    }


def _epochs(number: float) -> str:
    return f"{number:g} epoch" if number == 1 else f"{number:g} epochs"


def overall(outcomes: Iterable[Outcome]) -> str:
    """Returns a sentence on all tables."""
    outcomes = list(outcomes)
    total = add(outcome.total for outcome in outcomes)
    if not total.pairs:
        return "Nothing to compare has run yet."
    done = sum(outcome.done[0] for outcome in outcomes)
    count = sum(outcome.done[1] for outcome in outcomes)
    text = (
        f"Of {total.pairs} pairs of rows that can be compared, {total.same} stand in the paper's "
        f"order, {total.contrary} the other way round, {total.noise} differ by no more than noise, "
        f"and of {total.unknown} the noise is not known."
    )
    return text if done == count else f"{text} {done} of {count} scores are there."

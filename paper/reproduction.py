"""The story of a reproduction: find the data, choose a recipe, tell what it costs, run, report."""

import dataclasses
import os
from collections.abc import Sequence

from bert.files import owned
from bert.files.display import duration_text
from bert.files.durable import write_text
from bert.files.outputs import check_folder as check_writable
from bert.files.outputs import make_folder
from bert.log import logger
from bert.options import REQUIRED, OptionGroup, option
from bert.weights.options import PRECISION, PRECISIONS
from paper import figures, markdown, page, texts
from paper.estimates import (
    Clock,
    Machine,
    choose,
    format_minutes,
    measure_machine,
    parse_budget,
    total,
)
from paper.jobs import Job
from paper.ledger import LEDGER_FILE, Ledger
from paper.plan import KEYS, Plan, Sources, make_plan, read_sources
from paper.recipe import LADDER, Recipe
from paper.running import Failure, Runner, Start, start_process

PAGE, MARKDOWN = "paper.html", "paper.md"


class RunsFailedError(ValueError):
    """Some runs failed, and the others ended."""

    def __init__(self, failures: Sequence[Failure]) -> None:
        names = ", ".join(failure.name for failure in failures[:3])
        more = f" and {len(failures) - 3} others" if len(failures) > 3 else ""
        super().__init__(
            f"{len(failures)} runs failed: {names}{more}. The report has what is there; the same "
            "command tries them again."
        )


# With those behind it, of which numpy takes no more.
_MOST_SEED = 2**32 - max(max(recipe.seeds, recipe.top_seeds) for recipe in LADDER)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Order(OptionGroup):
    """What is asked for."""

    output_dir: str = option(
        REQUIRED, "Folder for the runs, the ledger and the report.", group="output"
    )
    budget: str = option(
        "2h",
        "Total time for all tables, such as 20m, 2h or 8h; it sets sizes, steps, examples and "
        "seeds. In --output_dir, these stay as first chosen for the same data.",
        group="steps",
    )
    only: str | None = option(
        None,
        f"Parts to run and report, comma-separated: {', '.join(KEYS)}. Default: all.",
        group="steps",
    )
    plan: bool = option(
        False, "Only show what would be run and how long it would take.", group="steps"
    )
    text_dir: str | None = option(
        None,
        "Folder of .txt files to pre-train on, at least two, one of which is held out. Default: "
        "the sample text.",
    )
    glue_dir: str | None = option(
        None,
        "Folder with the GLUE tasks CoLA, MRPC, RTE, SST-2 and STS-B, or some of them. Default: "
        "the sample remarks.",
    )
    conll_dir: str | None = option(
        None, "Folder with train.txt, dev.txt and test.txt of CoNLL-2003. Default: the sample's."
    )
    squad_dir: str | None = option(
        None, "Folder with train*.json and dev*.json of SQuAD 1.1. Default: the sample's."
    )
    weights: str | None = option(
        None,
        "Folder of a trained BERT, such as one of transformers. Table 7 then fine-tunes it and "
        "takes its features, and table 1 has a row of it, marked. Default: all models are "
        "pre-trained here.",
    )
    ledger: str | None = option(
        None,
        "Ledgers of other folders or machines, comma-separated. Runs in them are not repeated.",
    )
    seed: int = option(
        12345,
        "Seed of the first pre-training and fine-tuning runs; repeated ones have the next.",
        low=0,
        high=_MOST_SEED,
        group="training",
    )
    precision: str | None = option(
        None,
        f"{PRECISION} Default: that of the runs in the ledger; in a new one, mixed_bfloat16 if the "
        "processor is faster in it, else float32. Runs of another precision count as other runs.",
        choices=PRECISIONS,
        group="devices",
    )
    num_workers: int = option(
        1,
        "Number of concurrent runs, each with its share of the cores, which small models use "
        "better this way. Each takes up to 3 GB of memory.",
        low=1,
        group="devices",
    )
    delete_weights: bool = option(
        False,
        "Delete what runs here have written, including weights, once no remaining run starts from "
        "it. The scores stay in the ledger.",
        group="output",
    )

    def find_keys(self) -> list[str]:
        """Returns the parts that `only` names, in the paper's order.

        Raises:
          ValueError: where one is none.
        """
        names = [name.strip() for name in self.only.split(",")] if self.only else list(KEYS)
        if wrong := [name for name in names if name not in KEYS]:
            raise ValueError(
                f"`--only` must name parts among {', '.join(KEYS)}. Received {wrong[0]!r}."
            )
        return [key for key in KEYS if key in names]

    @property
    def ledgers(self) -> list[str]:
        """The paths of other ledgers."""
        return [path for path in (self.ledger or "").split(",") if path]

    def checked(self) -> "Order":
        """Returns the order, after a check that its parts are known."""
        self.find_keys()
        return self


@dataclasses.dataclass(frozen=True)
class Prepared:
    """What is to be done, before anything is written.

    Attributes:
      plan: All of it.
      runner: Runs it.
      clock: Estimates it.
      ledger: What has run.
      wanted: Names of the jobs whose scores are asked for.
      missing: Those to run.
    """

    plan: Plan
    runner: Runner
    clock: Clock
    ledger: Ledger
    wanted: Sequence[str]
    missing: Sequence[Job]


@dataclasses.dataclass(frozen=True)
class Ended:
    """What has come of it.

    Attributes:
      results: What the report tells.
      missing: The jobs that were to run, with their seconds as they were estimated.
      failures: What failed.
    """

    results: texts.Results
    missing: Sequence[tuple[str, float]]
    failures: Sequence[Failure]


def reproduce(order: Order, start: Start = start_process) -> Ended:
    """Does what is asked for.

    Args:
      order: What is asked for.
      start: Starts a command of the project.

    Raises:
      ValueError: before the first run, where something is not as it must be.
    """
    prepared = prepare(order, start)
    told = tuple((job.name, prepared.clock.seconds(job)) for job in prepared.missing)
    tell_plan(order, prepared)
    if order.plan:
        return Ended(_results(order, prepared, ()), told, ())
    make_folder(order.output_dir)
    with owned.lock(order.output_dir):
        prepared.runner.check_locks(prepared.missing)
        prepared.ledger.save()
        _write_report(order, prepared, ())
        prepared.runner.run(
            prepared.wanted,
            lambda failures: _write_report(order, prepared, failures),
            deletes=order.delete_weights,
        )
    failures = tuple(prepared.runner.failures)
    results = _results(order, prepared, failures)
    logger.info("%s", texts.overall(results.outcomes))
    logger.info("The report is %s.", os.path.join(order.output_dir, PAGE))
    return Ended(results, told, failures)


def prepare(order: Order, start: Start = start_process) -> Prepared:
    """Returns what is to be done.

    Raises:
      ValueError: where a flag, a folder of data or a ledger is not as it must be.
    """
    keys = order.find_keys()
    ledger = Ledger(os.path.join(order.output_dir, LEDGER_FILE), order.ledgers)
    plan, machine = _make_plan(order, ledger)
    clock = Clock(machine, ledger.times(machine.name))
    folder = os.path.abspath(order.output_dir)
    runner = Runner(
        plan, ledger, clock, folder, machine.name, num_workers=order.num_workers, start=start
    )
    wanted = plan.wanted(keys)
    prepared = Prepared(plan, runner, clock, ledger, wanted, runner.missing(wanted))
    _warn_of_more(prepared, order.budget, is_smallest=plan.recipe == LADDER[0])
    return prepared


def _make_plan(order: Order, ledger: Ledger) -> tuple[Plan, Machine]:
    """Returns the plan, and the machine, which is measured, with the plan's precision.

    Of the same budget and data, recipe and precision are what was chosen before, so that runs fit
    together, on whatever machine each of them runs.
    """
    budget = parse_budget(order.budget)

    def sources_of(recipe: Recipe) -> Sources:
        names = ("text_dir", "glue_dir", "conll_dir", "squad_dir", "weights")
        return read_sources(recipe, **{name: getattr(order, name) for name in names})

    def plan_of(recipe: Recipe) -> Plan:
        return make_plan(recipe, sources_of(recipe), machine.precision, order.seed)

    # Before the machine is measured, which takes seconds.
    key = f"{duration_text(budget)}, data {sources_of(LADDER[0]).digest[:8]}"
    machine = measure_machine(order.precision)
    if key not in ledger.recipes:
        clock = Clock(machine, ledger.times(machine.name))
        recipe, _ = choose(budget, lambda each: plan_of(each).jobs.values(), clock)
        ledger.recipes[key] = recipe.to_dict()
        return plan_of(recipe), machine
    if (source := ledger.sources.get(key)) in order.ledgers:
        logger.info("The sizes and steps are those that %s has for --budget.", source)
    recipe = Recipe.from_dict(ledger.recipes[key])
    sources = sources_of(recipe)
    precisions = [order.precision] if order.precision else [machine.precision, *PRECISIONS]
    plans = {each: make_plan(recipe, sources, each, order.seed) for each in precisions}
    used = max(plans, key=lambda each: len(ledger.scored(plans[each].digests)))
    if used != machine.precision:
        logger.info("--precision is %s, as in the ledger, for all runs to be comparable.", used)
    return plans[used], dataclasses.replace(machine, precision=used)


def _warn_of_more(prepared: Prepared, budget: str, *, is_smallest: bool) -> None:
    seconds = total(prepared.missing, prepared.clock)
    if seconds > parse_budget(budget):
        logger.warning(
            "%s takes about %s, more than --budget=%s. --only runs a part of it%s.",
            "The smallest plan" if is_smallest else "What is left of the plan",
            format_minutes(seconds),
            budget,
            "" if is_smallest else "; another --output_dir has a plan chosen anew",
        )


def check_folder(order: Order, prepared: Prepared) -> None:
    """Checks that the output folder can be written, and that nobody else writes there."""
    check_writable(order.output_dir)
    owned.check_lock(order.output_dir)
    prepared.runner.check_locks(prepared.missing)


def tell_total(prepared: Prepared) -> str:
    """Returns how many runs there will be, and how long they take."""
    missing, clock = prepared.missing, prepared.clock
    return f"{len(missing)} runs, about {format_minutes(total(missing, clock))}"


def tell_plan(order: Order, prepared: Prepared) -> None:
    """Logs every run with its time, and the sum."""
    recipe = prepared.plan.recipe
    scored = prepared.ledger.scored(prepared.plan.digests)
    for job in prepared.missing:
        again = " (again, for its files)" if job.name in scored else ""
        seconds = format_minutes(prepared.clock.seconds(job))
        logger.info("  %9s  %s%s", seconds, job.name, again)
    logger.info(
        "%s, for the %s scores of %s. %s, %d and %d steps of %d tokens, %d examples at most, %d "
        "seeds.",
        tell_total(prepared),
        len(prepared.wanted),
        ", ".join(order.find_keys()),
        recipe.base.title,
        *recipe.steps,
        recipe.tokens,
        recipe.examples,
        recipe.seeds,
    )
    if order.num_workers > 1:
        logger.info("%d of them at once.", order.num_workers)
    if prepared.missing and not order.delete_weights:
        logger.info("Their weights stay, in runs/; --delete_weights deletes what nothing needs.")


def _results(order: Order, prepared: Prepared, failures: Sequence[Failure]) -> texts.Results:
    plan, entries = prepared.plan, prepared.ledger.entries
    found = {name: entries[key] for name, key in plan.digests.items() if key in entries}
    return texts.Results.of(plan, order.find_keys(), found, failures, order.budget)


def _write_report(order: Order, prepared: Prepared, failures: Sequence[Failure]) -> None:
    """Writes the page, the Markdown and the figures, with what is there so far."""
    results = _results(order, prepared, failures)
    drawn = {outcome.table.key: figures.draw(outcome) for outcome in results.outcomes}
    drawn = {key: figure for key, figure in drawn.items() if figure}
    files = {f"figures/{key}.svg": figure for key, figure in drawn.items()}
    files[MARKDOWN] = markdown.format_report(results, list(drawn))
    files[PAGE] = page.format_page(results, drawn)
    if drawn:
        os.makedirs(os.path.join(order.output_dir, "figures"), exist_ok=True)
    for name, text in files.items():
        write_text(owned.claim(order.output_dir, name), text)

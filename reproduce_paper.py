r"""Reruns the paper's tables at a small scale and reports the results next to the paper's.

    python reproduce_paper.py --output_dir=paper --budget=2h --text_dir=books --glue_dir=glue \
      --conll_dir=conll2003 --squad_dir=squad

Covers objectives, sizes, features and masks (tables 1 and 5 to 8, and figure 5), from raw text, and
writes paper.html and paper.md. It first shows what this will cost. Run again, it resumes where it
stopped; nothing whose scores are in ledger.json is run twice, not even on another machine. Without
data folders, it uses the sample texts, which show only that it runs.
"""

import dataclasses

from bert.commands import flags as common_flags
from bert.commands.checks import Checks, CheckSettings, start
from bert.commands.console import run_script
from bert.commands.lines import show_lines
from bert.options import REQUIRED, option
from bert.training.options import PRECISION, PRECISIONS
from paper import reproduction
from paper.plan import KEYS
from paper.recipe import LADDER

# With those behind it, of which numpy takes no more.
_MOST_SEED = 2**32 - max(max(recipe.seeds, recipe.top_seeds) for recipe in LADDER)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(CheckSettings):
    """The flags of this script, by name."""

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
        "Seed of all pre-training runs, and of the first fine-tuning run.",
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


def define_flags() -> None:
    """Defines the flags."""
    common_flags.define(Settings)


def run(settings: Settings) -> reproduction.Ended:
    """Runs what is missing, and writes the report.

    Raises:
      ValueError: before the first run, where a flag or a folder is not as it must be.
    """
    show_lines()
    return reproduction.reproduce(_order(settings))


def _order(settings: Settings) -> reproduction.Order:
    values = {field.name: getattr(settings, field.name) for field in dataclasses.fields(settings)}
    del values["check"]
    others = [path for path in (settings.ledger or "").split(",") if path]
    return reproduction.Order(**{**values, "ledger": others, "only": _keys(settings.only)})


def _keys(only: str | None) -> list[str]:
    """Returns the parts that `--only` names, in the paper's order."""
    names = [name.strip() for name in only.split(",")] if only else list(KEYS)
    if wrong := [name for name in names if name not in KEYS]:
        raise ValueError(
            f"`--only` must name parts among {', '.join(KEYS)}. Received {wrong[0]!r}."
        )
    return [key for key in KEYS if key in names]


def check(settings: Settings, checks: Checks) -> None:
    """Checks what `run` needs."""
    order = checks("flags", _order, settings, shows=lambda _: f"a budget of {settings.budget}")
    prepared = checks("plan", reproduction.prepare, order, shows=reproduction.tell_total)
    checks("output folder", reproduction.check_folder, order, prepared)


def main(_: list[str]) -> None:
    """Runs the script on its flags."""

    def reproduce(settings: Settings) -> None:
        if failures := run(settings).failures:
            raise reproduction.RunsFailedError(failures)

    start(common_flags.read_settings(Settings), reproduce, check)


if __name__ == "__main__":
    define_flags()
    run_script(main)

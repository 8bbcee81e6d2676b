r"""Reruns the paper's tables at a small scale and reports the results next to the paper's.

    python reproduce_paper.py --output_dir=my_paper --budget=2h --text_dir=books --glue_dir=glue \
      --conll_dir=conll2003 --squad_dir=squad

Covers objectives, sizes, features and masks (tables 1 and 5 to 8, and figure 5), from raw text, and
writes paper.html and paper.md. It first shows what this will cost. Run again, it resumes where it
stopped; nothing whose scores are in ledger.json is run twice, not even on another machine. Without
data folders, it uses the sample texts, which show only that it runs.
"""

import dataclasses

from bert.commands.checks import Checks, CheckSettings, make_script
from bert.commands.console import run_script
from bert.commands.lines import begin_run
from paper import reproduction


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(reproduction.Order, CheckSettings):
    """The flags of this script, by name."""


def run(settings: Settings) -> reproduction.Ended:
    """Runs what is missing, and writes the report.

    Raises:
      ValueError: before the first run, where a flag or a folder is not as it must be.
    """
    begin_run(settings.check)
    return reproduction.reproduce(settings)


def check(settings: Settings, checks: Checks) -> None:
    """Checks what `run` needs."""
    shows = f"a budget of {settings.budget}"
    order = checks("flags", reproduction.Order.checked, settings, shows=lambda _: shows)
    prepared = checks("plan", reproduction.prepare, order, shows=reproduction.tell_total)
    checks("output folder", reproduction.check_folder, order, prepared)


def _run_all(settings: Settings) -> None:
    if failures := run(settings).failures:
        raise reproduction.RunsFailedError(failures)


define_flags, main = make_script(Settings, _run_all, check)

if __name__ == "__main__":
    define_flags()
    run_script(main)

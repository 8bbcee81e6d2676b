r"""Compares runs of one task: flags, scores, and the examples that changed sides.

    bert compare my_first my_second --output_file=compare.html

Give the --output_dir of each run; the others are compared with the first. Scores of several seeds
have standard errors. The page also shows the examples of classifiers that became right or wrong.
"""

import dataclasses
from collections.abc import Iterator, Sequence

from rich.cells import cell_len, set_cell_size

from bert.commands.checks import OutputSettings, Step, call, make_script
from bert.commands.console import run_script
from bert.commands.lines import print_text
from bert.files.display import visible
from bert.files.outputs import check_outputs
from bert.files.owned import is_own
from bert.log import logger
from bert.options import OptionError, option
from bert.reports.comparison import make_page
from bert.reports.page import Page, Section, Table, write_page


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(OutputSettings):
    """The flags of the command, by name."""

    output_file: str = option("", "HTML page to write. Default: none.")


def run(settings: Settings, folders: Sequence[str]) -> None:
    """Prints the comparison and writes the page."""
    page = check(settings, call, folders)
    print_text("\n".join(line for section in page.sections for line in format_section(section)))
    if settings.output_file:
        write_page(settings.output_file, page)
        logger.info("Wrote %s, to look at in a browser.", settings.output_file)


def check(settings: Settings, step: Step, folders: Sequence[str]) -> Page:
    """Returns the page, and checks that it can be written."""
    page: Page = step("runs", make_page, folders, shows=lambda _: f"{len(folders)} of one task")
    output = settings.output_file
    step("output file", _check_output, settings, folders, shows=lambda _: output or "none")
    return page


def _check_output(settings: Settings, folders: Sequence[str]) -> None:
    output = settings.output_file
    if output and any(is_own(folder, output) for folder in folders):
        raise OptionError("output_file", "not name a file of a run", output, "Give another name.")
    check_outputs([output] * bool(output), [], "output_file", settings.may_replace)


def format_section(section: Section) -> Iterator[str]:
    """Yields the lines of a table; examples are for the page alone."""
    if isinstance(section, Table):
        rows = [[visible(str(cell)) for cell in row] for row in (section.columns, *section.rows)]
        widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
        yield section.title
        for row in rows if section.rows else []:
            pairs = zip(row, widths, strict=True)
            yield "  ".join(["", *(set_cell_size(*pair) for pair in pairs)]).rstrip()
        yield f"  {section.note}\n" if section.note else ""


define_flags, main = make_script(Settings, run, check, takes_arguments=True)

if __name__ == "__main__":
    define_flags()
    run_script(main, takes_arguments=True)

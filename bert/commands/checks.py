"""How a script is made of its flags, its run and its `--check`, and the flags that many share.

A check shows what the run needs: each part is a line, and nothing is written. A part is checked by
the function that the run calls, so that nothing is checked twice, and a fault has the same words.
"""

import dataclasses
import sys
from collections.abc import Callable, Collection
from itertools import chain
from typing import Any

from absl import flags

from bert.commands.console import explain
from bert.commands.flags import define, read_settings
from bert.commands.lines import print_text
from bert.files.display import visible
from bert.files.machine import describe_files
from bert.files.outputs import check_outputs
from bert.files.paths import PATTERNS
from bert.files.texts import find_texts
from bert.options import REQUIRED, Option, OptionGroup, option, take
from bert.parts import GOOD, UNCHECKED, WARNED, WRONG, Line, Parts
from bert.weights.options import ModelSource

# The flags of a script are of the module that calls its `define_flags`.
flags.disclaim_key_flags()

WHOLE_FILE = "File to write, which appears only when it is complete"

# Takes a step that prepares a run: `call` takes it alone, `Checks` shows it, too.
Step = Callable[..., Any]

# For terminals that cannot show the marks.
_PLAIN = {GOOD: "OK", WARNED: "!!", WRONG: "NO", UNCHECKED: "--"}
_WIDTH = 16


@dataclasses.dataclass(frozen=True, kw_only=True)
class CheckSettings(OptionGroup):
    """The flag of every script."""

    GROUP = "steps"

    check: bool = option(
        False,
        "Dry run: report what the run needs and whether it is available, one line each; of a "
        "training, also the expected memory, disk and time. Write nothing; exit with status 1 if "
        "the run would fail.",
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class OutputSettings(CheckSettings):
    """The flag of every script that writes one file."""

    GROUP = "output"

    overwrite: bool = option(False, "Replace the output file if it exists.")

    def may_replace(self, path: str) -> bool:
        """Returns whether the file that is there may go, for `check_outputs`."""
        del path
        return self.overwrite


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextFileSettings(OutputSettings):
    """The flags of every script that makes one file of text files."""

    GROUP = "data"

    input_file: str = option(REQUIRED, f"Text files, plain or gzip: {PATTERNS}.")
    output_file: str = option(REQUIRED, "File to write.", group="output")


class Checks(Parts):
    """Opens parts by name, and prints the line of each as soon as it is recorded.

    Attributes:
      lines: As they are printed, with options as flags.
    """

    def __init__(self) -> None:
        super().__init__(is_muted=True)

    def record(self, line: Line) -> None:
        """Prints a line, and records it as it is printed."""
        text = str(explain(line.text)) if line.mark == WRONG else line.spell(Option.as_flag)
        line = Line(line.mark, line.name, visible(" ".join(text.split())))
        self.lines.append(line)
        mark = line.mark
        try:
            mark.encode(sys.stdout.encoding or "utf-8")
        except UnicodeEncodeError:
            mark = _PLAIN[mark]
        print_text(f"{mark} {line.name:{_WIDTH}} {line.text}".rstrip())

    def end(self) -> None:
        """Exits with 1 if anything is wrong."""
        if num_wrong := sum(line.mark == WRONG for line in self.lines):
            sys.exit(f"{num_wrong} of {len(self.lines)} would end the run.")


def call(
    name: str,
    function: Callable[..., Any],
    *arguments: Any,
    shows: Callable[[Any], str] | None = None,
) -> Any:
    """Calls a function as `Checks` does, but shows nothing and raises where something is wrong."""
    del name, shows
    return function(*arguments)


def check_model(step: Step, settings: Any) -> tuple[Any, Any]:
    """Checks weights and configuration; returns the folder of the model and the configuration.

    Both are `FAILED` where they are wrong. A check fetches no model of the hub.
    """
    from bert.weights.opening import open_model  # noqa: PLC0415

    model, output_dir = take(ModelSource, settings), getattr(settings, "output_dir", "")
    return open_model(step, model, settings, output_dir, fetches=not settings.check)


def open_folder(settings: Any, step: Step) -> tuple[Any, Any]:
    """Returns the folder of a model with its vocabulary, and its configuration."""
    from bert.weights.folder import ModelFolder  # noqa: PLC0415
    from bert.weights.opening import open_vocabulary  # noqa: PLC0415

    model = take(ModelSource, settings)
    if step is call:
        folder = ModelFolder.of(model, settings)
        return folder, folder.config
    folder, config = check_model(step, settings)
    open_vocabulary(step, model, settings, folder, config)
    return folder, config


def start(
    settings: Any,
    run: Callable[..., Any],
    check: Callable[..., Any],
    *others: Any,
) -> None:
    """Runs a script; with `--check`, only checks its needs, and exits with 1 if it would fail.

    Args:
      settings: The settings of the script.
      run: Runs the script on its settings.
      check: Shows with `Checks`, its second argument, what the run needs.
      *others: The last arguments of both.
    """
    if not settings.check:
        run(settings, *others)
        return
    checks = Checks()
    check(settings, checks, *others)
    checks.end()


def make_script(
    kind: type[Any],
    run: Callable[..., Any],
    check: Callable[..., Any],
    *,
    without_effect: Collection[str] = (),
    takes_arguments: bool = False,
) -> tuple[Callable[[], None], Callable[[list[str]], None]]:
    """Returns `define_flags`, which defines the flags of a script, and `main`, which reads them.

    Args:
      kind: The class of the script's settings.
      run: Runs the script on its settings.
      check: Shows with `Checks`, its second argument, what the run needs.
      without_effect: Names of flags that are accepted besides, for old commands.
      takes_arguments: Whether the command line may have more than flags: `run` and `check` take it
        as their last argument.
    """

    def define_flags() -> None:
        if takes_arguments:
            flags.FLAGS.set_gnu_getopt()
        define(kind, without_effect=without_effect)

    def main(arguments: list[str]) -> None:
        start(read_settings(kind), run, check, *[arguments[1:]] * takes_arguments)

    return define_flags, main


def check_files(settings: TextFileSettings, step: Step = call) -> list[str]:
    """Checks the text files and the output file; returns the paths of the text files.

    Raises:
      ValueError: where there is no text, or the output file must not be written.
    """
    files = step("text", find_texts, settings.input_file, shows=describe_files)
    check_output(settings, step, files)
    return files


def check_output(settings: Any, step: Step, *inputs: Any) -> None:
    """Checks that the output file, or standard output, may be written, and is none of the inputs.

    Args:
      settings: An `OutputSettings` with an `output_file`; "-" is standard output where it is the
        default, and a file of this name elsewhere.
      step: Takes the step.
      *inputs: Files: a path, several, or what has them as `files`, such as the folder of a model.
    """

    def check(*inputs: Any) -> None:
        if path != "-" or getattr(type(settings), "output_file", None) != "-":
            groups = [getattr(each, "files", each) for each in inputs]
            files = [[each] if isinstance(each, str) else each for each in groups]
            check_outputs([path], [*chain(*files)], "output_file", settings.may_replace)

    path = settings.output_file
    step("output file", check, *inputs, shows=lambda _: path)

"""What `--check` shows: a line for each thing that a script needs, and nothing is written.

Each thing is checked by the very function that the run calls, so that nothing is checked twice over
and what is wrong is told in the same words.
"""

import contextlib
import dataclasses
import functools
import logging as standard_logging
import sys
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from absl import logging

from bert.commands.console import explain
from bert.files.visible import visible
from bert.options import Option, spell, take
from bert.weights.options import ModelSource, VocabularySource

SettingsType = TypeVar("SettingsType")

GOOD, WARNED, WRONG, UNCHECKED = "✓", "!", "✗", "–"  # noqa: RUF001
# For terminals that cannot show these.
_PLAIN = {GOOD: "OK", WARNED: "!!", WRONG: "NO", UNCHECKED: "--"}
_WIDTH = 16


class _Failed:
    """In place of the value of a check that failed, or was not made."""


FAILED: Any = _Failed()

_is_checking = False


def is_checking() -> bool:
    """Returns whether a script only checks, and so neither writes nor removes anything."""
    return _is_checking


@contextlib.contextmanager
def checking() -> Iterator[None]:
    """Makes what looks whether files can be written look at their folders, and try nothing."""
    global _is_checking  # noqa: PLW0603
    before, _is_checking = _is_checking, True
    try:
        yield
    finally:
        _is_checking = before


class Messages(standard_logging.Filter):
    """Keeps what is logged, which is shown in the table instead."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[str] = []
        self.warned: list[str] = []

    @contextlib.contextmanager
    def kept(self) -> Iterator[None]:
        """Keeps what is logged in a block."""
        logger = logging.get_absl_logger()
        level = logger.level
        logger.addFilter(self)
        logger.setLevel(standard_logging.INFO)
        try:
            yield
        finally:
            logger.setLevel(level)
            logger.removeFilter(self)

    def filter(self, record: standard_logging.LogRecord) -> bool:
        if isinstance(record.args, tuple):
            record.args = tuple(spell(value, Option.as_flag) for value in record.args)
        if record.levelno >= standard_logging.WARNING:
            self.warned.append(record.getMessage())
        elif record.levelno >= standard_logging.INFO:
            self.told.append(record.getMessage())
        return False


@dataclasses.dataclass(frozen=True)
class Line:
    """A line of the table."""

    mark: str
    name: str
    text: str


def print_line(mark: str, name: str, text: str) -> None:
    """Prints a line of the table as the terminal can show it."""
    encoding = sys.stdout.encoding or "utf-8"
    try:
        mark.encode(encoding)
    except UnicodeEncodeError:
        mark = _PLAIN[mark]
    shown = f"{mark} {name:{_WIDTH}} {visible(' '.join(text.split()))}".rstrip()
    print(shown.encode(encoding, "backslashreplace").decode(encoding), flush=True)


class Checks:
    """Makes checks, and shows a line for each as soon as it is made.

    Attributes:
      lines: Those shown so far.
    """

    def __init__(self) -> None:
        self.lines: list[Line] = []

    def __call__(
        self,
        name: str,
        function: Callable[..., Any],
        *arguments: Any,
        tells: Callable[[Any], str] | None = None,
    ) -> Any:
        """Calls a function, shows what came of it, and returns its value.

        Args:
          name: What is checked, to begin the line.
          function: Raises where something is wrong; what it warns of is shown, too.
          *arguments: For the function. Where one is `FAILED`, nothing is checked.
          tells: From the value, what to show; absent, what the function logs.

        Returns:
          `FAILED` where there is no value.
        """
        if any(argument is FAILED for argument in arguments):
            self.add(UNCHECKED, name, "not checked, for it needs what is wrong above")
            return FAILED
        messages = Messages()
        try:
            with messages.kept():
                value = function(*arguments)
            text = (
                tells(value)
                if tells
                else " ".join(messages.told).removeprefix(f"{name.capitalize()}: ")
            )
        except Exception as error:
            line = explain(error)
            if line is None:
                raise
            self.add(WRONG, name, line)
            return FAILED
        parts = [text, *messages.warned]
        mark = WARNED if messages.warned else GOOD
        self.add(mark, name, ". ".join(part.rstrip(".") for part in parts if part))
        return value

    def add(self, mark: str, name: str, text: str) -> None:
        """Shows a line."""
        line = Line(mark, name, visible(" ".join(text.split())))
        self.lines.append(line)
        print_line(mark, name, text)

    @property
    def num_wrong(self) -> int:
        """How many things would end the run."""
        return sum(line.mark == WRONG for line in self.lines)


def prepare(name: str, text: str, function: Callable[..., Any], *arguments: Any) -> Any:
    """Returns what a function prepares for a run, shown as a line; exits with 1 if it fails."""
    checks = Checks()
    value = checks(name, function, *arguments, tells=lambda _: text)
    if value is FAILED:
        sys.exit("1 of 1 would end the run.")
    return value


def call(
    name: str,
    function: Callable[..., Any],
    *arguments: Any,
    tells: Callable[[Any], str] | None = None,
) -> Any:
    """Calls a function as `Checks` does, but shows nothing and raises where something is wrong.

    So a script prepares a run, and `--check` shows the same steps.
    """
    del name, tells
    return function(*arguments)


def check_model(checks: Callable[..., Any], settings: Any) -> tuple[Any, Any]:
    """Shows weights and configuration; returns the folder of the model and the configuration.

    Each is `FAILED` where it is wrong. A check fetches no model of the hub.

    Args:
      checks: `Checks`, or `call`.
      settings: The settings of a script that loads a model.
    """
    from bert.weights import variables  # noqa: PLC0415
    from bert.weights.folder import ModelFolder  # noqa: PLC0415

    def describe_checkpoint(folder: Any) -> str:
        return folder.stored.prefix if folder.option == "init_checkpoint" else "none is given"

    def describe_config(config: Any) -> str:
        return (
            f"{config.num_hidden_layers} layers of {config.hidden_size}, "
            f"{variables.count_parameters(config):,} parameters"
        )

    named_by = functools.partial(ModelFolder.named_by, fetches=not settings.check)
    vocabulary = settings if isinstance(settings, VocabularySource) else None
    arguments = (take(ModelSource, settings), vocabulary, getattr(settings, "output_dir", ""))
    source = checks("checkpoint", named_by, *arguments, tells=describe_checkpoint)
    folder = _folder_of("bert_config_file", settings, source)
    config = checks("configuration", lambda found: found.config, folder, tells=describe_config)
    return source, config


def check_vocabulary(checks: Callable[..., Any], settings: Any, source: Any, config: Any) -> Any:
    """Shows casing and vocabulary; returns the tokenizer.

    Args:
      checks: `Checks`, or `call`.
      settings: As for `check_model`.
      source: The folder of the model.
      config: The configuration of the model.
    """

    def describe_casing(_: Any) -> str:
        return "cased" if source.do_lower_case is False else "texts are lower-cased"

    def describe(tokenizer: Any) -> str:
        return f"{len(tokenizer.vocab):,} entries: {folder.vocab_file}"

    checks("casing", lambda found: found.check_casing(), source, tells=describe_casing)
    folder = _folder_of("vocab_file", settings, source)
    return checks(
        "vocabulary", lambda found, _: found.load_tokenizer(), folder, config, tells=describe
    )


def _folder_of(name: str, settings: Any, source: Any) -> Any:
    """Returns the folder that has a file; without weights, the file must have been given."""
    if source is not FAILED or not getattr(settings, name):
        return source
    from bert.weights.folder import ModelFolder  # noqa: PLC0415

    return ModelFolder(
        ".",
        bert_config_file=settings.bert_config_file,
        vocab_file=getattr(settings, "vocab_file", None),
        do_lower_case=getattr(settings, "do_lower_case", None),
    )


def start(
    settings: SettingsType,
    run: Callable[[SettingsType], Any],
    check: Callable[[SettingsType, Checks], Any],
) -> None:
    """Runs a script; with `--check`, only checks what it needs, and exits with 1 if it would fail.

    Args:
      settings: Those of the script, with `check`.
      run: Does its work.
      check: Checks what that needs.
    """
    if not settings.check:  # type: ignore[attr-defined]
        run(settings)
        return
    checks = Checks()
    with checking():
        check(settings, checks)
    if checks.num_wrong:
        sys.exit(f"{checks.num_wrong} of {len(checks.lines)} would end the run.")

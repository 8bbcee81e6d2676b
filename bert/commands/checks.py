"""What `--check` shows: a line for each thing that a script needs, and nothing is written.

Each thing is checked by the very function that the run calls, so that nothing is checked twice over
and what is wrong is told in the same words.
"""

import functools
import sys
from collections.abc import Callable
from typing import Any, TypeVar

from bert.commands.console import explain
from bert.files.visible import visible
from bert.options import Option, take
from bert.parts import FAILED, GOOD, UNCHECKED, WARNED, WRONG, Line, Parts
from bert.weights.options import ModelSource, VocabularySource

SettingsType = TypeVar("SettingsType")

# For terminals that cannot show the marks.
_PLAIN = {GOOD: "OK", WARNED: "!!", WRONG: "NO", UNCHECKED: "--"}
_WIDTH = 16


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
        encoding = sys.stdout.encoding or "utf-8"
        mark = line.mark
        try:
            mark.encode(encoding)
        except UnicodeEncodeError:
            mark = _PLAIN[mark]
        shown = f"{mark} {line.name:{_WIDTH}} {line.text}".rstrip()
        print(shown.encode(encoding, "backslashreplace").decode(encoding), flush=True)

    def end(self) -> None:
        """Exits with 1 if anything is wrong."""
        if num_wrong := sum(line.mark == WRONG for line in self.lines):
            sys.exit(f"{num_wrong} of {len(self.lines)} would end the run.")


def prepare(name: str, text: str, function: Callable[..., Any], *arguments: Any) -> Any:
    """Returns what a function prepares for a run, shown as a line; exits with 1 if it fails."""
    checks = Checks()
    value = checks(name, function, *arguments, shows=lambda _: text)
    checks.end()
    return value


def call(
    name: str,
    function: Callable[..., Any],
    *arguments: Any,
    shows: Callable[[Any], str] | None = None,
) -> Any:
    """Calls a function as `Checks` does, but shows nothing and raises where something is wrong.

    So a script prepares a run, and `--check` shows the same steps.
    """
    del name, shows
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
    source = checks("checkpoint", named_by, *arguments, shows=describe_checkpoint)
    folder = _folder_of("bert_config_file", settings, source)
    config = checks("configuration", lambda found: found.config, folder, shows=describe_config)
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

    checks("casing", lambda found: found.check_casing(), source, shows=describe_casing)
    folder = _folder_of("vocab_file", settings, source)
    return checks(
        "vocabulary", lambda found, _: found.load_tokenizer(), folder, config, shows=describe
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
    check(settings, checks)
    checks.end()

r"""Predicts with a fine-tuned model: loads it once, reads inputs, writes an answer to each.

    python predict.py --model_dir=mrpc --input_file=pairs.csv --output_file=answers.csv
    python predict.py --model_dir=mrpc --input_file=pairs.tsv > answers.jsonl
    python predict.py --model_dir=sst 'A film to see twice.' 'A film to forget.'
    echo 'A film to see twice.' | python predict.py --model_dir=sst

If a run that writes a file ends early, its answers are kept, and the same command resumes after
them.

In Python: `model = bert.load("mrpc")`, then `model.predict([("one text", "another")])` as often
as you like; only the first call builds the graph.
"""

import contextlib
import dataclasses
import functools
import io
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from bert.commands.checks import Checks, OutputSettings, Step, call, make_script
from bert.commands.console import run_script
from bert.commands.lines import begin_run
from bert.files.outputs import try_outputs
from bert.files.process import import_tensorflow
from bert.names import serve
from bert.options import Message, OptionError, take
from bert.parts import FAILED
from bert.scale.batches import changing_options
from bert.scale.options import Answering, AnswerOutput, BeamOptions, PartOptions

if TYPE_CHECKING:
    from bert.models.open import Export
    from bert.scale.answers import Model
    from bert.weights.folder import ModelFolder


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(AnswerOutput, Answering, OutputSettings, PartOptions, BeamOptions):
    """The flags of the script, by name."""


def run(settings: Settings, texts: Sequence[str] = ()) -> int:
    """Writes an answer to each input, and returns their number.

    Args:
      settings: The flags.
      texts: The texts of the command line; where there are none, a file or the standard input has
        them.

    Raises:
      ValueError: where the folder, a flag or an input is not what it must be.
    """
    begin_run(settings.check)
    with arguments_as_input(settings, texts):
        settings, folder = prepare(settings)
        from bert.network.gpus import log_gpus
        from bert.scale.predictions import AnswerFile

        try_outputs([settings.output_file], "output_file")
        log_gpus()
        answers = AnswerFile(
            load_model(settings, folder),
            folder.files,
            take(Answering, settings),
            take(AnswerOutput, settings),
            settings.part,
            changing_options(settings),
            settings.may_replace,
        )
        return answers.write(take(BeamOptions, settings))


@contextlib.contextmanager
def arguments_as_input(settings: Settings, texts: Sequence[str]) -> Iterator[None]:
    """Makes the texts of the command line, if any, the lines of standard input for a block.

    Raises:
      OptionError: where another input is given.
    """
    if not texts:
        yield
        return
    if settings.input_file != "-":
        raise OptionError("input_file", "not be given beside texts", Message("%s", [*texts]))
    lines = "".join(f"{' '.join(text.splitlines())}\n" for text in texts)
    given = sys.stdin
    sys.stdin = io.TextIOWrapper(io.BytesIO(lines.encode(errors="surrogateescape")))
    sys.stdin.called = "arguments"  # type: ignore[attr-defined]  # In messages.
    try:
        yield
    finally:
        sys.stdin = given


def prepare(settings: Settings, step: Step = call) -> tuple[Settings, Any]:
    """Finds the input, and checks the folder of the model and the output file.

    Returns:
      The settings with the path of the input, and the folder of the model.
    """
    import_tensorflow()
    from bert.models.open import find_answering
    from bert.scale.predictions import check_output

    found = step("input file", _find_input, settings, shows=lambda found: found.input_file)
    settings = settings if found is FAILED else found
    find = functools.partial(find_answering, fetches=not settings.check)
    folder = step("folder", find, settings, shows=lambda found: found.path)
    output = settings.output_file
    step(
        "output file",
        lambda folder: check_output(
            output, settings.input_file, folder.files, settings.may_replace
        ),
        folder,
        shows=lambda _: output,
    )
    return settings, folder


def load_model(settings: Settings, folder: "ModelFolder | Export", *, runs: bool = True) -> "Model":
    """Returns the model of a folder; without `runs`, the graph of an export is not run."""
    from bert.models.model import assume_frozen_weights
    from bert.models.open import open_answering

    assume_frozen_weights(settings.precision)
    return open_answering(settings, folder, settings.batch_size, runs=runs)


def check(settings: Settings, checks: Checks, texts: Sequence[str] = ()) -> None:
    """Shows the steps of a run, and whether the first input can be answered."""
    with arguments_as_input(settings, texts):
        settings, folder = prepare(settings, checks)
    load = functools.partial(load_model, runs=False)
    model = checks(
        "model", load, settings, folder, shows=lambda found: found.task.kind.replace("_", " ")
    )
    if settings.input_file != "-":
        from bert.scale.predictions import check_first

        given = take(Answering, settings)
        on_error = settings.on_error
        checks("first input", check_first, given, model, on_error, shows=lambda _: "can be asked")


def _find_input(settings: Settings) -> Settings:
    from bert.scale.predictions import find_input

    path = find_input(
        take(Answering, settings), settings.output_file, settings.part, take(BeamOptions, settings)
    )
    return dataclasses.replace(settings, input_file=path)


define_flags, main = make_script(Settings, run, check, takes_arguments=True)

if not TYPE_CHECKING:
    __getattr__, __dir__, __all__ = serve(
        globals(),
        {
            "bert.models.fine_tuned": ("LoadedModel",),
            "bert.models.open": ("load_fine_tuned as load",),
        },
    )

if __name__ == "__main__":
    define_flags()
    run_script(main, takes_arguments=True)

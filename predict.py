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

from typing import TYPE_CHECKING

from absl import flags

from bert.commands import flags as common_flags
from bert.commands.checks import start
from bert.commands.console import run_script
from bert.commands.lines import show_lines
from bert.commands.predict import Settings, check, load_model, prepare, read_arguments
from bert.files.outputs import try_outputs
from bert.names import serve
from bert.options import take
from bert.scale.batches import changing_options
from bert.scale.options import Answering, AnswerOutput, BeamOptions


def define_flags() -> None:
    """Defines the flags, which may also follow the texts."""
    flags.FLAGS.set_gnu_getopt()
    common_flags.define(Settings)


def run(settings: Settings) -> int:
    """Writes an answer to each input, and returns their number.

    Raises:
      ValueError: where the folder, a flag or an input is not what it must be.
    """
    show_lines()
    settings, folder = prepare(settings)
    from bert.scale.predictions import AnswerFile
    from bert.training.devices import log_gpus

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


def main(arguments: list[str]) -> None:
    """Runs the script on its flags and texts."""
    settings = common_flags.read_settings(Settings)
    read_arguments(settings, arguments[1:])
    start(settings, run, check)


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

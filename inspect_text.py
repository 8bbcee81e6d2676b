r"""Shows how a model reads a text: word pieces, attention, and predictions layer by layer.

    bert inspect "He opened the [MASK]." --model_dir=my_bert
    python inspect_text.py "He opened the [MASK]." --model_dir=my_bert --text_b="He went in."

Prints a summary and writes a page for a browser, inspect.html: how the text is cleaned and split
into word pieces; which tokens each token attends to, in every layer and head; what each layer would
predict at a [MASK]; how likely the second text follows the first; and the answer of a fine-tuned
model.
"""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from absl import flags

from bert.commands import flags as common_flags
from bert.commands.checks import start
from bert.commands.console import run_script
from bert.commands.inspect_text import Settings, check, load_model, prepare, read
from bert.commands.lines import show_lines
from bert.files.outputs import try_outputs
from bert.log import logger

if TYPE_CHECKING:
    from bert.inspection.look import Inspection


def define_flags() -> None:
    """Defines the flags, which may also follow the text."""
    flags.FLAGS.set_gnu_getopt()
    common_flags.define(Settings)


def run(settings: Settings, texts: Sequence[str]) -> "Inspection":
    """Prints how the model reads a text, writes the page, and returns its content.

    Args:
      settings: The flags.
      texts: The text of the command line; where there is none, standard input has it.

    Raises:
      ValueError: where the settings, the text and the model do not fit.
    """
    show_lines()
    text = prepare(settings, texts)
    from bert.inspection.look import look
    from bert.inspection.page import format_inspection, write_inspection
    from bert.training.devices import log_gpus

    if settings.output_file:
        try_outputs([settings.output_file], "output_file")
    log_gpus()
    model = load_model(settings)
    inspection = look(model, read(settings, text, model), settings.top_k)
    encoding = sys.stdout.encoding or "utf-8"
    print(format_inspection(inspection).encode(encoding, "backslashreplace").decode(encoding))
    if settings.output_file:
        write_inspection(settings.output_file, inspection)
        logger.info("Wrote %s, to look at in a browser.", settings.output_file)
    return inspection


def main(arguments: list[str]) -> None:
    """Runs the script on its flags and text."""
    texts = arguments[1:]
    start(
        common_flags.read_settings(Settings),
        lambda settings: run(settings, texts),
        lambda settings, checks: check(settings, checks, texts),
    )


if __name__ == "__main__":
    define_flags()
    run_script(main, takes_arguments=True)

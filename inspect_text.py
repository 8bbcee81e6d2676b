r"""Shows how a model reads a text: word pieces, attention, and predictions layer by layer.

    bert inspect "He opened the [MASK]." --model_dir=my_bert
    python inspect_text.py "He opened the [MASK]." --model_dir=my_bert --text_b="He went in."

Prints a summary and writes a page for a browser, inspect.html: how the text is cleaned and split
into word pieces; which tokens each token attends to, in every layer and head; what each layer would
predict at a [MASK]; how likely the second text follows the first; and the answer of a fine-tuned
model.
"""

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

from bert.commands.checks import UNCHECKED, Checks, OutputSettings, Step, call, make_script
from bert.commands.console import run_script
from bert.commands.lines import begin_run, print_text
from bert.files.outputs import check_outputs, try_outputs
from bert.files.process import import_tensorflow
from bert.files.rows import text_lines
from bert.log import logger
from bert.models.options import QueriedModel
from bert.options import REQUIRED, MessageError, Option, option, take
from bert.weights.options import CHECKPOINT_FORMS

if TYPE_CHECKING:
    from bert.inspection.look import Inspection, Reading
    from bert.models.fine_tuned import LoadedModel
    from bert.models.pretrained import PretrainedModel


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(QueriedModel, OutputSettings):
    """The flags of the script, by name."""

    model_dir: str = option(
        REQUIRED,
        f"Model: the --output_dir of a script; or a checkpoint: {CHECKPOINT_FORMS}.",
        group="model",
    )
    text_b: str | None = option(
        None,
        "Second text, such as the next sentence, or the passage that is searched for the answer "
        "to a question.",
        group="data",
    )
    top_k: int = option(
        5, "Number of tokens to show for each [MASK], the best ones.", low=1, group="output"
    )
    output_file: str = option(
        "inspect.html",
        "HTML page to write; it replaces an older page of this kind. Empty writes none.",
        group="output",
    )

    def may_replace(self, path: str) -> bool:
        """Returns whether an existing file may be replaced: a page of this kind always may."""
        from bert.inspection.page import is_inspection

        return self.overwrite or is_inspection(path)


def run(settings: Settings, texts: Sequence[str]) -> "Inspection":
    """Prints how the model reads a text, writes the page, and returns its content.

    Args:
      settings: The flags.
      texts: The text of the command line; where there is none, standard input has it.

    Raises:
      ValueError: where the settings, the text and the model do not fit.
    """
    begin_run(settings.check)
    text = prepare(settings, texts)
    if text is None:
        text = "\n".join(line for _, line in text_lines("-")).strip()
        if not text:
            raise ValueError(
                "There must be a text, in quotes or on standard input, which is empty."
            )
    from bert.inspection.look import look
    from bert.inspection.page import format_inspection, write_inspection
    from bert.network.gpus import log_gpus

    if settings.output_file:
        try_outputs([settings.output_file], "output_file")
    log_gpus()
    model = load_model(settings)
    inspection = look(model, read(settings, text, model), settings.top_k)
    print_text(format_inspection(inspection))
    if settings.output_file:
        write_inspection(settings.output_file, inspection)
        logger.info("Wrote %s, to look at in a browser.", settings.output_file)
    return inspection


def prepare(settings: Settings, texts: Sequence[str], step: Step = call) -> str | None:
    """Checks the output file and returns the text, None for that of standard input."""
    import_tensorflow()
    text = step("text", _find_text, texts, shows=lambda found: found or "standard input")
    output = settings.output_file
    step("output file", _check_output, settings, shows=lambda _: output or "none")
    return text


def check(settings: Settings, checks: Checks, texts: Sequence[str] = ()) -> None:
    """Shows the text, the output and the model, and whether they fit."""
    text = prepare(settings, texts, checks)
    from bert.inspection.look import check_second

    model = checks("model", load_model, settings, shows=lambda _: settings.model_dir)
    if text is None:
        second = settings.text_b or ""
        checks("second text", check_second, model, second, shows=lambda _: second or "none")
        checks.add(UNCHECKED, "tokens", "not counted, for standard input is left to the run")
    else:
        checks("tokens", read, settings, text, model, shows=lambda found: str(len(found.tokens)))


def load_model(settings: Settings) -> "LoadedModel | PretrainedModel":
    """Returns the model."""
    from bert.inspection.look import open_inspected

    return open_inspected(take(QueriedModel, settings), dry=settings.check)


def read(settings: Settings, text: str, model: "LoadedModel | PretrainedModel") -> "Reading":
    """Returns the texts as the model reads them."""
    from bert.inspection.look import read as read_texts

    return read_texts(model, (text, settings.text_b or ""), settings.max_seq_length)


def _find_text(texts: Sequence[str]) -> str | None:
    if len(texts) > 1:
        raise MessageError(
            "There must be one text, in quotes. Received %s. A second one is given as %s.",
            [*texts],
            Option("text_b"),
        )
    return texts[0] if texts else None


def _check_output(settings: Settings) -> None:
    if settings.output_file:
        check_outputs([settings.output_file], [], "output_file", settings.may_replace)


define_flags, main = make_script(Settings, run, check, takes_arguments=True)

if __name__ == "__main__":
    define_flags()
    run_script(main, takes_arguments=True)

r"""Shows how a model reads a text: word pieces, attention, and predictions layer by layer.

    bert inspect "He opened the [MASK]." --model_dir=my_bert
    python inspect_text.py "He opened the [MASK]." --model_dir=my_bert --text_b="He went in."

Prints a summary and writes a page for a browser, inspect.html: how the text is cleaned and split
into word pieces; which tokens each token attends to, in every layer and head; what each layer would
predict at a [MASK]; how likely the second text follows the first; and the answer of a fine-tuned
model.
"""

import dataclasses
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from absl import flags, logging

from bert.commands import flags as common_flags
from bert.commands.checks import UNCHECKED, Checks, start
from bert.commands.console import run_script
from bert.commands.settings import OutputSettings
from bert.files.outputs import check_outputs, try_outputs
from bert.files.process import import_tensorflow
from bert.files.rows import stdin_lines
from bert.models.options import QueriedModel
from bert.options import REQUIRED, option
from bert.weights.options import CHECKPOINT_FORMS

if TYPE_CHECKING:
    from bert.inspection.look import Inspection, Reading
    from bert.models.fine_tuned import LoadedModel
    from bert.models.pretrained import PretrainedModel


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(QueriedModel, OutputSettings):
    """The flags of this script, by name."""

    model_dir: str = option(
        REQUIRED,
        f"Model: the --output_dir of a script; or a checkpoint: {CHECKPOINT_FORMS}.",
        group="model",
    )
    text_b: str | None = option(
        None,
        "Second text, such as the next sentence, or the passage that is searched for the answer "
        "to a question.",
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
        """Returns whether the file that is there may go: where it is such a page, it may."""
        from bert.inspection.page import is_inspection

        return self.overwrite or is_inspection(path)


def define_flags() -> None:
    """Defines the flags, which may also follow the text."""
    flags.FLAGS.set_gnu_getopt()
    common_flags.define(Settings)


def run(settings: Settings, texts: Sequence[str]) -> "Inspection":
    """Prints what goes on within the model, writes the page, and returns what is on it.

    Args:
      settings: The flags.
      texts: That of the command line, at most one; where there is none, standard input has it.

    Raises:
      ValueError: where the settings, the text and the model do not fit.
    """
    import_tensorflow()
    from bert.inspection.look import look
    from bert.inspection.page import write_inspection
    from bert.inspection.printed import format_inspection
    from bert.training.devices import tell_gpus

    text = _find_text(texts)
    _check_output(settings)
    try_outputs([settings.output_file or "-"], "output_file")
    text = _read_input() if text is None else text
    tell_gpus()
    model = _open(settings)
    inspection = look(model, _read(settings, text, model), settings.top_k)
    encoding = sys.stdout.encoding or "utf-8"
    print(format_inspection(inspection).encode(encoding, "backslashreplace").decode(encoding))
    if settings.output_file:
        write_inspection(settings.output_file, inspection)
        logging.info("Wrote %s, to look at in a browser.", settings.output_file)
    return inspection


def check(settings: Settings, checks: Checks, texts: Sequence[str] = ()) -> None:
    """Checks what `run` needs."""
    text = checks("text", _find_text, texts, tells=lambda each: each or "standard input")
    output = settings.output_file
    checks("output file", _check_output, settings, tells=lambda _: output or "none")
    model = checks("model", _open, settings, tells=lambda _: settings.model_dir)
    if text is None:
        second = settings.text_b or "none"
        checks("second text", _check_second, settings, model, tells=lambda _: second)
        checks.add(UNCHECKED, "tokens", "not counted, for standard input is left to the run")
    else:
        checks("tokens", _read, settings, text, model, tells=lambda each: str(len(each.tokens)))


def _find_text(texts: Sequence[str]) -> str | None:
    if len(texts) > 1:
        raise ValueError(
            f"There must be one text, in quotes. Received {list(texts)}. A second one goes into "
            "`--text_b`."
        )
    return texts[0] if texts else None


def _read_input() -> str:
    """Returns the text that is on standard input."""
    text = "\n".join(line for _, line in stdin_lines()).strip()
    if not text:
        raise ValueError("There must be a text, in quotes or on standard input, which is empty.")
    return text


def _check_output(settings: Settings) -> None:
    if settings.output_file:
        check_outputs([settings.output_file], [], "output_file", settings.may_replace)


def _open(settings: Settings) -> "LoadedModel | PretrainedModel":
    import_tensorflow()
    from bert.inspection.look import open_inspected

    return open_inspected(settings.model_dir, settings, settings.precision)


def _check_second(settings: Settings, model: "LoadedModel | PretrainedModel") -> None:
    from bert.inspection.look import check_second

    check_second(model, settings.text_b or "")


def _read(settings: Settings, text: str, model: "LoadedModel | PretrainedModel") -> "Reading":
    from bert.inspection.look import read

    return read(model, (text, settings.text_b or ""), settings.max_seq_length)


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

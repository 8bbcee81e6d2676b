"""The options of inspect_text.py, and its first steps."""

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

from bert.commands.checks import UNCHECKED, Checks, OutputSettings
from bert.files.outputs import check_outputs
from bert.files.process import import_tensorflow
from bert.files.rows import text_lines
from bert.models.options import QueriedModel
from bert.options import REQUIRED, MessageError, Option, option, take
from bert.weights.options import CHECKPOINT_FORMS

if TYPE_CHECKING:
    from bert.inspection.look import Reading
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


def prepare(settings: Settings, texts: Sequence[str]) -> str:
    """Checks the output file and returns the text, of the command line or standard input."""
    import_tensorflow()
    text = _find_text(texts)
    _check_output(settings)
    if text is not None:
        return text
    text = "\n".join(line for _, line in text_lines("-")).strip()
    if not text:
        raise ValueError("There must be a text, in quotes or on standard input, which is empty.")
    return text


def check(settings: Settings, checks: Checks, texts: Sequence[str] = ()) -> None:
    """Shows the text, the output and the model, and whether they fit."""
    text = checks("text", _find_text, texts, shows=lambda found: found or "standard input")
    output = settings.output_file
    checks("output file", _check_output, settings, shows=lambda _: output or "none")
    model = checks("model", load_model, settings, shows=lambda _: settings.model_dir)
    if text is None:
        second = settings.text_b or "none"
        checks("second text", _check_second, settings, model, shows=lambda _: second)
        checks.add(UNCHECKED, "tokens", "not counted, for standard input is left to the run")
    else:
        checks("tokens", read, settings, text, model, shows=lambda found: str(len(found.tokens)))


def load_model(settings: Settings) -> "LoadedModel | PretrainedModel":
    """Returns the model."""
    import_tensorflow()
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


def _check_second(settings: Settings, model: "LoadedModel | PretrainedModel") -> None:
    from bert.inspection.look import check_second

    check_second(model, settings.text_b or "")

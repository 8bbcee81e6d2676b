r"""Predicts the tokens at [MASK] with a pre-trained model, or scores texts (paper, section 3.1).

    python fill_mask.py --checkpoint=my_bert "Paris is the [MASK] of France."
    python fill_mask.py --checkpoint=my_bert --score --input_file=text.txt
    python fill_mask.py --checkpoint=my_bert --next_sentence "He opened the door. ||| He went in."

A text is `A` or a pair `A ||| B`.
"""

import dataclasses
import functools
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from bert.commands.checks import (
    WHOLE_FILE,
    Checks,
    OutputSettings,
    Step,
    call,
    check_output,
    make_script,
)
from bert.commands.console import run_script
from bert.commands.lines import begin_run
from bert.files.display import counted, visible
from bert.files.outputs import open_output, try_outputs
from bert.files.paths import match_file, split_by_size
from bert.files.process import import_tensorflow
from bert.files.rows import text_lines
from bert.files.texts import clean_line
from bert.log import logger
from bert.options import REQUIRED, Message, MessageError, Option, OptionError, option
from bert.weights.options import CHECKPOINT_FORMS, ConfigSource, VocabularySource

if TYPE_CHECKING:
    from bert.models.pretrained import Guess, PretrainedModel, Score, Text
    from bert.weights.folder import ModelFolder


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(VocabularySource, ConfigSource, OutputSettings):
    """The flags of the script, by name."""

    checkpoint: str = option(
        REQUIRED,
        "Pre-trained model: the --output_dir of run_pretraining.py; or a checkpoint: "
        f"{CHECKPOINT_FORMS}.",
        group="model",
    )
    input_file: str | None = option(
        None,
        "File with one text per line; - for standard input, which is also read if no text is "
        "given at all.",
        group="data",
    )
    output_file: str = option("-", f"{WHOLE_FILE}; - for standard output.", group="output")
    format: str = option(
        "text",
        "text: for reading. jsonl: one JSON object per text.",
        choices=("text", "jsonl"),
        group="output",
    )
    top_k: int = option(
        5, "Number of tokens to show for each [MASK], the best ones.", low=1, group="output"
    )
    score: bool = option(
        False,
        "Show each text's pseudo-log-likelihood and its perplexity per word piece. Scores of "
        "models with different vocabularies are not comparable.",
        group="steps",
    )
    next_sentence: bool = option(
        False,
        "Show, for each pair `A ||| B`, the probability that B follows A, from the next-sentence "
        "head of pre-training.",
        group="steps",
    )
    batch_size: int = option(32, "Sequences per batch.", low=1, group="devices")


class Query(NamedTuple):
    """What is requested of each text.

    Attributes:
      check: Raises `ValueError` where a text cannot be answered.
      answer: Returns the answers to some texts.
      values: Returns an answer for JSON.
      show: Returns the lines of a text and its answer.
    """

    check: Callable[["Text"], None]
    answer: Callable[[Sequence["Text"]], Sequence[Any]]
    values: Callable[[Any], dict[str, Any]]
    show: Callable[["Text", Any], str]

    def as_json(self, text: "Text", answer: Any) -> str:
        """Returns a text and its answer as JSON."""
        return json.dumps({"text": text.text, **self.values(answer)}, ensure_ascii=False)


def run(settings: Settings, texts: Sequence[str] = ()) -> int:
    """Writes an answer for each text, and returns their number.

    Args:
      settings: The flags.
      texts: The texts of the command line; where there are none, a file or the standard input has
        them.

    Raises:
      ValueError: where the settings, the texts and the model do not fit.
    """
    begin_run(settings.check)
    path, folder = prepare(settings, texts)
    from bert.models.pretrained import total_score
    from bert.network.gpus import log_gpus

    try_outputs([settings.output_file], "output_file")
    log_gpus()
    model = load_model(settings, texts, path, folder)
    query = find_query(settings, model)
    count, total = 0, None
    with open_output(settings.output_file) as output:
        read = (model.read_text(text, place) for place, text in read_texts(path, texts))
        # Who types the texts waits for the answer to each.
        is_typed = not texts and path == "-" and sys.stdin.isatty()
        limit = 1 if is_typed else 64 * settings.batch_size
        for chunk in split_by_size(read, lambda text: len(text.tokens), limit):
            answers = query.answer(chunk)
            show = query.show if settings.format == "text" else query.as_json
            lines = "".join(f"{line}\n" for line in map(show, chunk, answers))
            output.write(lines.encode("utf-8", "backslashreplace"))
            output.flush()
            count += len(chunk)
            if settings.score:
                total = total_score([*([total] if total else []), *answers])
    if total:
        logger.info("In all, %s: %s", counted(count, "text"), describe_score(total))
    return count


def prepare(
    settings: Settings, texts: Sequence[str], step: Step = call
) -> tuple[str, "ModelFolder"]:
    """Finds the texts and the model, and checks the output file.

    Returns:
      The path of the texts, - for standard input, and the folder of the model.
    """
    import_tensorflow()
    path = step("text", _find_input, settings, texts, shows=str)
    folder = step("checkpoint", _open_folder, settings, shows=lambda found: found.stored.prefix)
    check_output(settings, step, path, folder)
    return path, folder


def load_model(
    settings: Settings, texts: Sequence[str], path: str, folder: "ModelFolder", step: Step = call
) -> "PretrainedModel":
    """Returns the model; checks all texts but standard input's before the first is answered.

    Path and folder are those of `prepare`.
    """
    from bert.models.pretrained import PretrainedModel

    load, size = functools.partial(PretrainedModel, with_heads=True), settings.batch_size
    model: PretrainedModel = step("model", load, folder, size, shows=lambda _: "fills masks")
    if texts or path != "-":
        step("texts", _check_texts, settings, path, texts, model, shows=lambda _: "can be answered")
    return model


def check(settings: Settings, checks: Checks, texts: Sequence[str] = ()) -> None:
    """Shows the texts, the model and the output, and whether they fit."""
    path, folder = prepare(settings, texts, checks)
    load_model(settings, texts, path, folder, checks)


def read_texts(path: str, texts: Sequence[str], *, warns: bool = True) -> Iterator[tuple[str, str]]:
    """Yields the place and the text of each text of the command line, or else of a file.

    Raises:
      ValueError: where a file has no text; of its blank lines, it may warn.
    """
    if not texts:
        yield from _read_lines(path, warns=warns)
    for number, text in enumerate(texts, start=1):
        yield f"Argument {number}", text


def find_query(settings: Settings, model: "PretrainedModel") -> Query:
    """Returns what the flags request of each text."""
    if settings.score:
        return Query(
            model.check_whole,
            model.score,
            lambda score: {**dataclasses.asdict(score), "perplexity": score.perplexity},
            _show_score,
        )
    if settings.next_sentence:
        return Query(
            model.check_pair,
            model.next_sentence,
            lambda chance: {"is_next": chance},
            lambda text, chance: f"{chance:8.4f}  {visible(text.text)}",
        )
    return Query(
        model.check_masked,
        lambda texts: model.fill_mask(texts, settings.top_k),
        lambda masks: {"masks": [[*map(dataclasses.asdict, guesses)] for guesses in masks]},
        _show_guesses,
    )


def _find_input(settings: Settings, texts: Sequence[str]) -> str:
    if settings.score and settings.next_sentence:
        raise MessageError(
            "Only one of %s and %s may be given.", Option("score"), Option("next_sentence")
        )
    if texts and settings.input_file:
        raise OptionError("input_file", "not be given beside texts", Message("%s", [*texts]))
    path = settings.input_file or "-"
    return path if path == "-" else match_file(path, "input_file")


def _open_folder(settings: Settings) -> "ModelFolder":
    from bert.weights.folder import ModelFolder

    return ModelFolder.open(
        settings.checkpoint,
        "checkpoint",
        fetches=not settings.check,
        bert_config_file=settings.bert_config_file,
        vocab_file=settings.vocab_file,
        do_lower_case=settings.do_lower_case,
        default_casing=settings.LOWERS_BY_DEFAULT,
    )


def _check_texts(
    settings: Settings, path: str, texts: Sequence[str], model: "PretrainedModel"
) -> None:
    query = find_query(settings, model)
    for place, text in read_texts(path, texts, warns=False):
        query.check(model.read_text(text, place))


def _read_lines(path: str, *, warns: bool) -> Iterator[tuple[str, str]]:
    """Yields the place and the text of each line that is not blank."""
    name = "standard input" if path == "-" else path
    number = blank = 0
    for number, line in text_lines(path):
        text = clean_line(line)
        if text:
            yield f"{name}:{number}: the text", text
        else:
            blank += 1
    if blank and warns:
        logger.warning("%s: skipped %s.", name, counted(blank, "blank line"))
    if blank == number:
        raise ValueError(f"There must be a text. {name!r} has none.")


def describe_score(score: "Score") -> str:
    """Returns a score for reading."""
    return (
        f"perplexity {score.perplexity:.6g}  "
        f"pseudo-log-likelihood {score.pseudo_log_likelihood:.4f}  tokens {score.num_tokens}"
    )


def _show_guesses(text: "Text", masks: Sequence[Sequence["Guess"]]) -> str:
    lines = [visible(text.text)]
    for number, guesses in enumerate(masks, start=1):
        if len(masks) > 1:
            lines.append(f"[MASK] {number}")
        lines += [f"{guess.probability:8.4f}  {visible(guess.token)}" for guess in guesses]
    return "\n".join([*lines, ""])


def _show_score(text: "Text", score: "Score") -> str:
    return f"{describe_score(score)}  {visible(text.text)}"


define_flags, main = make_script(Settings, run, check, takes_arguments=True)

if __name__ == "__main__":
    define_flags()
    run_script(main, takes_arguments=True)

r"""Predicts the tokens at [MASK] with a pre-trained model, or scores texts (paper, section 3.1).

    python fill_mask.py --checkpoint=my_bert "Paris is the [MASK] of France."
    python fill_mask.py --checkpoint=my_bert --score --input_file=text.txt
    python fill_mask.py --checkpoint=my_bert --next_sentence "He opened the door. ||| He went in."

A text is `A` or a pair `A ||| B`.
"""

import dataclasses
import json
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from absl import flags, logging

from bert.commands import flags as common_flags
from bert.commands.checks import Checks, start
from bert.commands.console import run_script
from bert.commands.settings import WHOLE_FILE, ModelSettings, OutputSettings, VocabularySettings
from bert.files.outputs import check_outputs, open_output, try_outputs
from bert.files.paths import match_file
from bert.files.process import import_tensorflow
from bert.files.rows import stdin_lines, text_lines
from bert.files.texts import clean_line
from bert.files.visible import visible
from bert.options import REQUIRED, option
from bert.weights.options import CHECKPOINT_FORMS

if TYPE_CHECKING:
    from bert.models.pretrained import Guess, MaskedModel, Score, Text
    from bert.weights.folder import ModelFolder


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(ModelSettings, VocabularySettings, OutputSettings):
    """The flags of this script, by name."""

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


def define_flags() -> None:
    """Defines the flags, which may also follow the texts."""
    flags.FLAGS.set_gnu_getopt()
    common_flags.define(Settings)


def run(settings: Settings, texts: Sequence[str] = ()) -> int:
    """Writes an answer for each text, and returns their number.

    Args:
      settings: The flags.
      texts: Those of the command line; where there are none, a file or the standard input has them.

    Raises:
      ValueError: where the settings, the texts and the model do not fit.
    """
    import_tensorflow()
    from bert.models import pretrained
    from bert.training.devices import tell_gpus
    from bert.training.lengths import cut_by_size

    path = _find_input(settings, texts)
    given = _number(texts) if texts else _read_lines(path)
    # Who types waits for each answer.
    waits = not texts and path == "-" and sys.stdin.isatty()
    folder = _open_folder(settings)
    _check_output(settings, path, folder)
    try_outputs([settings.output_file], "output_file")
    tell_gpus()
    with open_output(settings.output_file) as output:
        model = pretrained.load(folder, settings.batch_size)
        if path != "-" and not texts:
            _check_lines(settings, path, model)
        read = (model.read(text, place) for place, text in given)
        limit = 1 if waits else 64 * settings.batch_size
        count = 0
        scores: list[Score] = []
        for chunk in cut_by_size(read, lambda text: len(text.tokens), limit):
            if settings.score:
                rated = model.score(chunk)
                scores = [_total([*scores, *rated])]
                lines = map(_SCORE_FORMATS[settings.format], chunk, rated)
            elif settings.next_sentence:
                chances = model.next_sentence(chunk)
                lines = map(_CHANCE_FORMATS[settings.format], chunk, chances)
            else:
                guesses = model.fill(chunk, settings.top_k)
                lines = map(_GUESS_FORMATS[settings.format], chunk, guesses)
            output.write("".join(f"{line}\n" for line in lines).encode())
            output.flush()
            count += len(chunk)
        if not count:
            raise ValueError(f"There must be a text. {path!r} has none.")
    if scores:
        logging.info("All %d texts: %s", count, _describe(scores[0]))
    return count


def _check_lines(settings: Settings, path: str, model: "MaskedModel") -> None:
    """Checks all texts of a file, before the model answers the first of them."""
    suits = model.check_masked
    if settings.score:
        suits = model.check_whole
    elif settings.next_sentence:
        suits = model.check_pair
    for place, text in _read_lines(path, tells_blank=False):
        suits(model.read(text, place))


def check(settings: Settings, checks: Checks, texts: Sequence[str] = ()) -> None:
    """Checks what `run` needs."""
    import_tensorflow()
    from bert.models import pretrained

    path = checks("text", _find_input, settings, texts, tells=str)
    folder = checks("checkpoint", _open_folder, settings, tells=lambda each: each.stored.prefix)
    model = checks("model", pretrained.load, folder, tells=lambda _: "fills masks")
    if path != "-" and not texts:
        checks("texts", _check_lines, settings, path, model, tells=lambda _: "can all be answered")
    output = settings.output_file
    checks("output file", _check_output, settings, path, folder, tells=lambda _: output)


def _find_input(settings: Settings, texts: Sequence[str]) -> str:
    if settings.score and settings.next_sentence:
        raise ValueError("Only one of `--score` and `--next_sentence` may be given.")
    if texts and settings.input_file:
        raise ValueError(f"`--input_file` must not be given beside texts. Received {list(texts)}.")
    path = settings.input_file or "-"
    if path != "-":
        path = match_file(path, "input_file")
    return path


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


def _check_output(settings: Settings, path: str, folder: "ModelFolder") -> None:
    if settings.output_file != "-":
        inputs = [path, *folder.files]
        check_outputs([settings.output_file], inputs, "output_file", settings.may_replace)


def _number(texts: Sequence[str]) -> Iterator[tuple[str, str]]:
    for number, text in enumerate(texts, start=1):
        yield f"Argument {number}", text


def _read_lines(path: str, *, tells_blank: bool = True) -> Iterator[tuple[str, str]]:
    """Yields the place and the text of each line that is not blank."""
    numbered = stdin_lines() if path == "-" else text_lines(path)
    blank = 0
    for number, line in numbered:
        text = clean_line(line)
        if text:
            yield f"{path}:{number}: the text", text
        else:
            blank += 1
    if blank and tells_blank:
        logging.warning("%s: skipped %d blank lines.", path, blank)


def _total(scores: Sequence["Score"]) -> "Score":
    from bert.models.pretrained import Score

    return Score(
        sum(score.pseudo_log_likelihood for score in scores),
        sum(score.num_tokens for score in scores),
    )


def _describe(score: "Score") -> str:
    return (
        f"perplexity {score.perplexity:.6g}  "
        f"pseudo-log-likelihood {score.pseudo_log_likelihood:.4f}  tokens {score.num_tokens}"
    )


def _guesses_as_text(text: "Text", masks: Sequence[Sequence["Guess"]]) -> str:
    lines = [visible(text.text)]
    for number, guesses in enumerate(masks, start=1):
        if len(masks) > 1:
            lines.append(f"[MASK] {number}")
        lines += [f"{guess.probability:8.4f}  {visible(guess.token)}" for guess in guesses]
    return "\n".join([*lines, ""])


def _guesses_as_json(text: "Text", masks: Sequence[Sequence["Guess"]]) -> str:
    values = [[dataclasses.asdict(guess) for guess in guesses] for guesses in masks]
    return json.dumps({"text": text.text, "masks": values}, ensure_ascii=False)


def _score_as_text(text: "Text", score: "Score") -> str:
    return f"{_describe(score)}  {visible(text.text)}"


def _score_as_json(text: "Text", score: "Score") -> str:
    values = {**dataclasses.asdict(score), "perplexity": score.perplexity}
    return json.dumps({"text": text.text, **values}, ensure_ascii=False)


def _chance_as_text(text: "Text", chance: float) -> str:
    return f"{chance:8.4f}  {visible(text.text)}"


def _chance_as_json(text: "Text", chance: float) -> str:
    return json.dumps({"text": text.text, "is_next": chance}, ensure_ascii=False)


_CHANCE_FORMATS = {"text": _chance_as_text, "jsonl": _chance_as_json}
_GUESS_FORMATS = {"text": _guesses_as_text, "jsonl": _guesses_as_json}
_SCORE_FORMATS = {"text": _score_as_text, "jsonl": _score_as_json}


def main(arguments: list[str]) -> None:
    """Runs the script on its flags and texts."""
    texts = arguments[1:]
    start(
        common_flags.read_settings(Settings),
        lambda settings: run(settings, texts),
        lambda settings, checks: check(settings, checks, texts),
    )


if __name__ == "__main__":
    define_flags()
    run_script(main, takes_arguments=True)

r"""Predicts the tokens at [MASK] with a pre-trained model, or scores texts (paper, section 3.1).

    python fill_mask.py --checkpoint=my_bert "Paris is the [MASK] of France."
    python fill_mask.py --checkpoint=my_bert --score --input_file=text.txt
    python fill_mask.py --checkpoint=my_bert --next_sentence "He opened the door. ||| He went in."

A text is `A` or a pair `A ||| B`.
"""

from collections.abc import Sequence

from absl import flags

from bert.commands import flags as common_flags
from bert.commands.checks import start
from bert.commands.console import run_script
from bert.commands.fill_mask import (
    Settings,
    check,
    describe_score,
    find_query,
    load_model,
    prepare,
    read_texts,
    waits,
)
from bert.commands.lines import show_lines
from bert.files.outputs import open_output, try_outputs
from bert.files.paths import split_by_size
from bert.log import logger


def define_flags() -> None:
    """Defines the flags, which may also follow the texts."""
    flags.FLAGS.set_gnu_getopt()
    common_flags.define(Settings)


def run(settings: Settings, texts: Sequence[str] = ()) -> int:
    """Writes an answer for each text, and returns their number.

    Args:
      settings: The flags.
      texts: The texts of the command line; where there are none, a file or the standard input has
        them.

    Raises:
      ValueError: where the settings, the texts and the model do not fit.
    """
    show_lines()
    path, folder = prepare(settings, texts)
    from bert.models.pretrained import total_score
    from bert.training.devices import log_gpus

    try_outputs([settings.output_file], "output_file")
    log_gpus()
    model = load_model(settings, texts, path, folder)
    query = find_query(settings, model)
    count, total = 0, None
    with open_output(settings.output_file) as output:
        read = (model.read_text(text, place) for place, text in read_texts(path, texts))
        limit = 1 if waits(path, texts) else 64 * settings.batch_size
        for chunk in split_by_size(read, lambda text: len(text.tokens), limit):
            answers = query.answer(chunk)
            lines = "".join(f"{line}\n" for line in map(query.show, chunk, answers))
            output.write(lines.encode("utf-8", "backslashreplace"))
            output.flush()
            count += len(chunk)
            if settings.score:
                total = total_score([*([total] if total else []), *answers])
    if total:
        logger.info("All %d texts: %s", count, describe_score(total))
    return count


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

r"""Adds the words of a domain to a vocabulary and to the model that was pre-trained with it.

    python extend_vocab.py --init_checkpoint=$BERT_BASE_DIR/bert_model.ckpt --new_words=words.txt \
      --output_dir=my_bert

Each word replaces an [unusedN] entry or is appended. Its embedding starts as the mean of those of
the pieces that it was split into before, and so does its bias in the masked-LM head: a guess of the
right size, which training on text of the domain then improves. A longer word that begins with a new
one may now be split differently; otherwise, a text without new words keeps its IDs, and these keep
their weights.

A word in brackets, such as [E1] or <e1>, marks a place in a text: it stays whole wherever a text
has it, as the special tokens of a Hugging Face tokenizer do.
"""

from bert.commands import flags as common_flags
from bert.commands.checks import start
from bert.commands.console import run_script
from bert.commands.extend_vocab import Settings, check
from bert.commands.lines import show_lines
from bert.files.outputs import make_folder


def define_flags() -> None:
    """Defines the flags."""
    common_flags.define(Settings)


def run(settings: Settings) -> dict[str, int]:
    """Writes the extended model, and returns the ids of the new words.

    Raises:
      ValueError: where words cannot be added, or files do not fit each other; nothing is written.
    """
    show_lines()
    extension = check(settings)
    extension.folder.log_found()
    make_folder(settings.output_dir)
    return extension.write(settings.output_dir, use_unused=settings.use_unused)


def main(_: list[str]) -> None:
    """Runs the script on its flags."""
    start(common_flags.read_settings(Settings), run, check)


if __name__ == "__main__":
    define_flags()
    run_script(main)

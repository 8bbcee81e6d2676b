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

import dataclasses
from typing import TYPE_CHECKING, Any

from bert.commands.checks import CheckSettings, Step, call, make_script
from bert.commands.console import run_script
from bert.commands.lines import begin_run
from bert.files.outputs import make_folder
from bert.files.process import import_tensorflow
from bert.options import REQUIRED, option
from bert.weights.options import CHECKPOINT_FORMS, ConfigSource, VocabularySource

if TYPE_CHECKING:
    from bert.pretraining.extension import Extension


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(CheckSettings, ConfigSource, VocabularySource):
    """The flags of this script, by name."""

    init_checkpoint: str = option(
        REQUIRED,
        f"Checkpoint of the model to extend: {CHECKPOINT_FORMS}.",
        group="model",
    )
    new_words: str = option(REQUIRED, "File with one word per line, or words separated by commas.")
    output_dir: str = option(
        REQUIRED,
        "Folder for the extended bert_model.ckpt, bert_config.json and vocab.txt.",
        group="output",
    )
    use_unused: bool = option(
        True,
        "Fill [unusedN] entries first, which keeps the model's shape, and add rows only for words "
        "that do not fit; false adds a row for every word.",
    )


def run(settings: Settings) -> dict[str, int]:
    """Writes the extended model, and returns the ids of the new words.

    Raises:
      ValueError: where words cannot be added, or files do not fit each other; nothing is written.
    """
    begin_run(settings.check)
    extension = check(settings)
    extension.folder.log_found()
    make_folder(settings.output_dir)
    return extension.write(settings.output_dir, use_unused=settings.use_unused)


def check(settings: Settings, step: Step = call) -> "Extension":
    """Checks the model, the words and the output folder; returns what to add to which model.

    Raises:
      ValueError: where words cannot be added, or files do not fit each other.
    """
    import_tensorflow()
    from bert.commands.checks import check_model
    from bert.pretraining import extension
    from bert.weights.folder import ModelFolder

    folder, config = check_model(step, settings)
    step("casing", ModelFolder.check_casing, folder, shows=lambda _: _describe_casing(folder))
    vocab = step(
        "vocabulary",
        lambda folder, config: extension.load_vocab(folder, config.vocab_size),
        folder,
        config,
        shows=lambda vocab: f"{len(vocab):,} entries",
    )
    shape = "of the shape that the configuration asks for"
    step("weights", extension.check_embeddings, folder, config, shows=lambda _: shape)
    words = step(
        "words",
        lambda folder, vocab: extension.check_words(
            settings.new_words, vocab, extension.basic_tokenizer(folder)
        ),
        folder,
        vocab,
        shows=", ".join,
    )
    arguments = (settings.output_dir, folder)
    step("output folder", extension.check_output, *arguments, shows=lambda _: "is free")
    return extension.Extension(folder=folder, vocab=vocab, words=words)


def _describe_casing(folder: Any) -> str:
    return "cased" if folder.do_lower_case is False else "texts are lower-cased"


define_flags, main = make_script(Settings, run, check)

if __name__ == "__main__":
    define_flags()
    run_script(main)

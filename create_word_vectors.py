r"""Makes word vectors, a baseline for BERT: learned from text by skip-gram, or read off a BERT.

    python create_word_vectors.py --input_file='text/*.txt' --output_file=vectors.txt
    python run_ner.py --feature_based --word_vectors=vectors.txt --data_dir=conll2003 \
      --output_dir=tagger --do_train --do_eval
    python neighbours.py --word_vectors=vectors.txt --word=bank,river
    python create_word_vectors.py --init_checkpoint=my_bert --vector_size=256 \
      --output_file=table.txt

With --init_checkpoint, each entry of the vocabulary is encoded once, and the vectors are reduced to
their principal components and weighted by rank: the mean of the vectors of a text's word pieces is
a vector of the text that takes no network.

Source: Mikolov et al., 2013, Distributed Representations of Words and Phrases and their
Compositionality. The output is in word2vec's text format, which other programs read, too. The input
is that of create_pretraining_data.py: a blank line ends a document, and other line breaks have no
meaning. Text is split into words as predict.py does it for run_ner.py's models, or at spaces alone
with --words=spaces, for Chinese text that is segmented into words. Needs gensim, an
extra of the package: pip install gensim. A copy of the text, cut into words, is kept in the folder
for temporary files ($TMPDIR) while the vectors are learned.
"""

import dataclasses
from typing import TYPE_CHECKING

import tokenization
from bert.commands.checks import (
    CheckSettings,
    Step,
    TextFileSettings,
    call,
    check_files,
    check_output,
    make_script,
    open_folder,
)
from bert.commands.console import run_script
from bert.commands.lines import begin_run
from bert.files.durable import replace_files
from bert.files.outputs import try_outputs
from bert.files.paths import PATTERNS
from bert.files.process import import_tensorflow
from bert.files.word_vectors import WordVectors, write_word_vectors
from bert.log import logger
from bert.options import REQUIRED, Message, MessageError, Option, OptionError, option, take
from bert.pretraining import skip_gram
from bert.tasks.layers import check_encoder
from bert.weights.options import ModelSource, VocabularySource

if TYPE_CHECKING:
    import modeling
    from bert.weights.folder import ModelFolder

# What `--words` may be; create_pretraining_data.py has spaces, too.
TOKENS, SPACES = "tokens", "spaces"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(TextFileSettings, skip_gram.Options):
    """The flags of this script, by name."""

    input_file: str | None = option(  # type: ignore[assignment]
        None,
        Message(
            "Text files, plain or gzip: %s. This or %s is needed.",
            PATTERNS,
            Option("init_checkpoint"),
        ),
    )
    init_checkpoint: str | None = option(
        None,
        "A BERT to read the vectors off instead of learning them: each entry of its vocabulary is "
        "encoded once. Its folder, or its name on the hub.",
        group="model",
    )
    output_file: str = option(REQUIRED, "File to write the vectors to.", group="output")
    words: str = option(
        TOKENS,
        "What counts as a word. tokens: what predict.py takes for words, each Chinese character "
        "alone; spaces: everything between two spaces, as for Chinese text that is segmented into "
        "words.",
        choices=(TOKENS, SPACES),
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Model(CheckSettings, ModelSource, VocabularySource):
    """What `open_folder` takes: the casing of a model is none of the settings."""


def run(settings: Settings) -> WordVectors:
    """Writes the vectors, the most frequent word first, and returns them.

    Raises:
      ValueError: where gensim is missing, the output may not be written, or no word is as frequent
        as `min_count` requires.
    """
    from bert.tasks.tagging.tags import word_spans

    def split_words(text: str) -> list[str]:
        return [text[start:end] for start, end in word_spans(text)]

    begin_run(settings.check)
    source = check(settings)
    try_outputs([settings.output_file], "output_file")
    if isinstance(source, list):
        split = tokenization.split_at_spaces if settings.words == SPACES else split_words
        vectors = skip_gram.learn(source, take(skip_gram.Options, settings), split)
    else:
        from bert.models.neighbours import make_table

        vectors = make_table(*source, settings.vector_size)
    with replace_files([settings.output_file]) as (file,):
        write_word_vectors(file, vectors)
    shape = vectors.values.shape
    logger.info("Wrote %d vectors of %d values to %s.", *shape, settings.output_file)
    return vectors


def check(settings: Settings, step: Step = call) -> "list[str] | tuple[ModelFolder, str]":
    """Checks the text and that gensim is installed, or the model.

    Returns:
      The files of the text; or the folder of the model, and the pooling of its vectors.

    Raises:
      ValueError: where neither or both are given, or what is given does not fit.
    """
    if (settings.input_file is None) == (settings.init_checkpoint is None):
        given = "neither" if settings.input_file is None else "both"
        names = Option("input_file"), Option("init_checkpoint")
        raise MessageError("Either %s or %s must be given. Received %s.", *names, given)
    if settings.init_checkpoint is None:
        step("gensim", skip_gram.check_installed, shows=lambda _: "is installed")
        return check_files(settings, step)
    import_tensorflow()
    options = {field.name for field in dataclasses.fields(skip_gram.Options)}
    learning = options - {"vector_size"} | {"words"}
    for field in dataclasses.fields(Settings):
        if field.name in learning and getattr(settings, field.name) != field.default:
            names = Option(field.name), Option("init_checkpoint")
            raise MessageError("%s must not be given with %s: it is about learning.", *names)
    model = _Model(init_checkpoint=settings.init_checkpoint, check=settings.check)
    folder, config = open_folder(model, step)
    size = settings.vector_size
    pooling = step(
        "vectors", _check_model, folder, config, size, shows=lambda found: f"{size} values, {found}"
    )
    check_output(settings, step, folder)
    return folder, pooling


def _check_model(folder: "ModelFolder", config: "modeling.BertConfig", vector_size: int) -> str:
    """Checks that a model has the vectors, and returns their pooling: its folder's, or the mean."""
    most = config.hidden_size
    if vector_size > most:
        raise OptionError("vector_size", f"be at most {most} for this model", vector_size)
    check_encoder(config)
    folder.stored.check_fit(config)
    of_texts = folder.text_vectors
    return of_texts.find_pooling(folder.option) if of_texts else "mean"


define_flags, main = make_script(Settings, run, check)

if __name__ == "__main__":
    define_flags()
    run_script(main)

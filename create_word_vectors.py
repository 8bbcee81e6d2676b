r"""Learns word vectors from text, a baseline for BERT: skip-gram with negative sampling.

    python create_word_vectors.py --input_file='text/*.txt' --output_file=vectors.txt
    python run_ner.py --feature_based --word_vectors=vectors.txt --data_dir=conll2003 \
      --output_dir=tagger --do_train --do_eval
    python neighbours.py --word_vectors=vectors.txt --word=bank,river

Source: Mikolov et al., 2013, Distributed Representations of Words and Phrases and their
Compositionality. The output is in word2vec's text format, which other programs read, too. The input
is that of create_pretraining_data.py: a blank line ends a document, and other line breaks have no
meaning. Text is split into words as predict.py does it for run_ner.py's models, or at spaces alone
with --words=spaces, for Chinese text that is segmented into words. Needs gensim, an
extra of the package: pip install gensim. A copy of the text, cut into words, is kept in the folder
for temporary files ($TMPDIR) while the vectors are learned.
"""

import dataclasses

import tokenization
from bert.commands import flags as common_flags
from bert.commands.checks import Checks, start
from bert.commands.console import run_script
from bert.commands.lines import show_lines
from bert.commands.settings import PATTERNS, OutputSettings
from bert.files.durable import replace_files
from bert.files.outputs import check_outputs, try_outputs
from bert.files.rows import describe_files, find_texts
from bert.files.word_vectors import WordVectors, write_word_vectors
from bert.options import REQUIRED, option

# What `--words` may be; create_pretraining_data.py has spaces, too.
TOKENS, SPACES = "tokens", "spaces"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(OutputSettings):
    """The flags of this script, by name."""

    input_file: str = option(REQUIRED, f"Text files, plain or gzip: {PATTERNS}.")
    output_file: str = option(REQUIRED, "File to write the vectors to.", group="output")
    words: str = option(
        TOKENS,
        "What counts as a word. tokens: what predict.py takes for words, each Chinese character "
        "alone; spaces: everything between two spaces, as for Chinese text that is segmented into "
        "words.",
        choices=(TOKENS, SPACES),
    )
    vector_size: int = option(100, "Number of values in each vector.", low=1)
    window: int = option(
        5,
        "Maximum number of words to predict on either side of a word; the actual number is drawn "
        "at random.",
        low=1,
    )
    negative: int = option(5, "Number of negative samples per predicted word.", low=1)
    min_count: int = option(5, "How often a word must occur to get a vector.", low=1)
    epochs: int = option(5, "Number of passes over the text.", low=1)
    do_lower_case: bool = option(
        False,
        "Lowercase the text. Capitals help to recognize names, and words are looked up as written "
        "first, then in lower case.",
        alias="do_lower",
    )
    seed: int = option(
        12345, "Seed for the initial vectors and all random draws.", low=0, high=2**32 - 1
    )
    num_workers: int = option(
        1,
        "Number of training threads. With one, the same text, flags and seed give the same file; "
        "several are faster, but overwrite each other's updates, so that no two runs are the same.",
        low=1,
    )


def define_flags() -> None:
    """Defines the flags."""
    common_flags.define(Settings)


def run(settings: Settings) -> WordVectors:
    """Writes the vectors, the most frequent word first, and returns them.

    Raises:
      ValueError: where gensim is missing, the output may not be written, or no word is as frequent
        as is asked for.
    """
    from bert.pretraining import skip_gram
    from bert.tasks.tagging.words import word_spans

    def cut_words(text: str) -> list[str]:
        return [text[start:end] for start, end in word_spans(text)]

    show_lines()
    skip_gram.check_installed()
    input_files = find_texts(settings.input_file)
    check_outputs([settings.output_file], input_files, "output_file", settings.may_replace)
    try_outputs([settings.output_file], "output_file")
    learned = skip_gram.learn(
        input_files,
        skip_gram.Options(
            **{f.name: getattr(settings, f.name) for f in dataclasses.fields(skip_gram.Options)}
        ),
        tokenization.split_at_spaces if settings.words == SPACES else cut_words,
    )
    with replace_files([settings.output_file]) as (file,):
        write_word_vectors(file, learned)
    return learned


def check(settings: Settings, checks: Checks) -> None:
    """Checks what `run` needs."""
    from bert.pretraining import skip_gram

    checks("gensim", skip_gram.check_installed, tells=lambda _: "is installed")
    files = checks("text", find_texts, settings.input_file, tells=describe_files)
    output = settings.output_file
    arguments = ([output], files, "output_file", settings.may_replace)
    checks("output file", check_outputs, *arguments, tells=lambda _: repr(output))


def main(_: list[str]) -> None:
    """Runs the script on its flags."""
    start(common_flags.read_settings(Settings), run, check)


if __name__ == "__main__":
    define_flags()
    run_script(main)

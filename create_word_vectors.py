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

import tokenization
from bert.commands import flags as common_flags
from bert.commands.checks import start
from bert.commands.console import run_script
from bert.commands.create_word_vectors import SPACES, Settings, check
from bert.commands.lines import show_lines
from bert.files.durable import replace_files
from bert.files.outputs import try_outputs
from bert.files.word_vectors import WordVectors, write_word_vectors
from bert.options import take
from bert.pretraining import skip_gram


def define_flags() -> None:
    """Defines the flags."""
    common_flags.define(Settings)


def run(settings: Settings) -> WordVectors:
    """Writes the vectors, the most frequent word first, and returns them.

    Raises:
      ValueError: where gensim is missing, the output may not be written, or no word is as frequent
        as `min_count` requires.
    """
    from bert.tasks.tagging.words import word_spans

    def split_words(text: str) -> list[str]:
        return [text[start:end] for start, end in word_spans(text)]

    show_lines()
    input_files = check(settings)
    try_outputs([settings.output_file], "output_file")
    split = tokenization.split_at_spaces if settings.words == SPACES else split_words
    learned = skip_gram.learn(input_files, take(skip_gram.Options, settings), split)
    with replace_files([settings.output_file]) as (file,):
        write_word_vectors(file, learned)
    return learned


def main(_: list[str]) -> None:
    """Runs the script on its flags."""
    start(common_flags.read_settings(Settings), run, check)


if __name__ == "__main__":
    define_flags()
    run_script(main)

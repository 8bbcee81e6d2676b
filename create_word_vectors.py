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

import tokenization
from bert.commands import flags as common_flags
from bert.commands.checks import start
from bert.commands.console import run_script
from bert.commands.create_word_vectors import SPACES, Settings, check
from bert.commands.lines import show_lines
from bert.files.durable import replace_files
from bert.files.outputs import try_outputs
from bert.files.word_vectors import WordVectors, write_word_vectors
from bert.log import logger
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
    from bert.tasks.tagging.tags import word_spans

    def split_words(text: str) -> list[str]:
        return [text[start:end] for start, end in word_spans(text)]

    show_lines()
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


def main(_: list[str]) -> None:
    """Runs the script on its flags."""
    start(common_flags.read_settings(Settings), run, check)


if __name__ == "__main__":
    define_flags()
    run_script(main)

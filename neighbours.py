r"""Finds nearest neighbors: the sentences nearest to a sentence, the words nearest to a word.

    python neighbours.py --init_checkpoint=my_bert --input_file=sentences.txt \
      --query="Who wrote the book?"
    python neighbours.py --init_checkpoint=my_bert --word=bank,river
    python neighbours.py --init_checkpoint=my_bert --input_file=sentences.txt \
      --word=bank --context="He sat on the bank of the river."
    python neighbours.py --word_vectors=vectors.txt --word=bank,river

Similarity is the cosine between vectors. Those of sentences come from the encoder, as
extract_features.py writes them; its output can be given instead of the sentences. A word without
--context has its vector in the embedding table, the same wherever it occurs. With --context, it has
the encoder's vector in that sentence, and its neighbors are words of the file, where they stand.
With --word_vectors, words have the vectors of create_word_vectors.py, word2vec or GloVe instead of
BERT's.
"""

from bert.commands import flags as common_flags
from bert.commands.checks import start
from bert.commands.console import run_script
from bert.commands.lines import show_lines
from bert.commands.neighbours import Settings, check, prepare, show
from bert.files.outputs import open_output, try_outputs
from bert.log import logger
from bert.options import MessageError, Option


def define_flags() -> None:
    """Defines the flags."""
    common_flags.define(Settings)


def run(settings: Settings) -> int:
    """Writes the neighbours of each query, and returns how many queries there were.

    Raises:
      ValueError: where the settings, the texts and the model do not fit.
    """
    show_lines()
    settings, files, folder = prepare(settings)
    from bert.models.neighbours import find_neighbours, open_space
    from bert.training.devices import log_gpus

    try_outputs([settings.output_file], "output_file")
    if folder:
        log_gpus()
    count = 0
    with open_output(settings.output_file) as output:
        space = open_space(settings, files, folder)
        logger.info("Looking among %d vectors.", len(space.texts))
        for query, found in find_neighbours(settings, space, settings.top_k):
            output.write(f"{show(settings, query, found)}\n".encode("utf-8", "backslashreplace"))
            output.flush()
            count += 1
        if not count:
            raise MessageError(
                "There must be a query. Standard input has none; give %s.", Option("query")
            )
    return count


def main(_: list[str]) -> None:
    """Runs the script on its flags."""
    start(common_flags.read_settings(Settings), run, check)


if __name__ == "__main__":
    define_flags()
    run_script(main)

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

import dataclasses
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from bert.commands.checks import (
    WHOLE_FILE,
    Checks,
    OutputSettings,
    Step,
    call,
    check_output,
    make_script,
    open_folder,
)
from bert.commands.console import run_script
from bert.commands.lines import begin_run
from bert.files.display import visible
from bert.files.machine import describe_files
from bert.files.outputs import open_output, try_outputs
from bert.files.process import import_tensorflow
from bert.log import logger
from bert.models.options import Search
from bert.options import MessageError, Option, option
from bert.parts import FAILED
from bert.weights.options import ConfigSource, VocabularySource

if TYPE_CHECKING:
    from bert.models.neighbours import Neighbour
    from bert.weights.folder import ModelFolder


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(Search, ConfigSource, VocabularySource, OutputSettings):
    """The flags of the script, by name."""

    top_k: int = option(10, "Number of neighbors to show, the nearest ones.", low=1, group="output")
    output_file: str = option("-", f"{WHOLE_FILE}; - for standard output.", group="output")
    format: str | None = option(
        None,
        "text: for reading. jsonl: one JSON object per query. Default: text on standard output, "
        "jsonl in a file.",
        choices=("text", "jsonl"),
        group="output",
    )


def run(settings: Settings) -> int:
    """Writes the neighbours of each query, and returns how many queries there were.

    Raises:
      ValueError: where the settings, the texts and the model do not fit.
    """
    begin_run(settings.check)
    settings, files, folder = prepare(settings)
    from bert.models.neighbours import find_neighbours, open_space
    from bert.network.gpus import log_gpus

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


def prepare(
    settings: Settings, step: Step = call
) -> tuple[Settings, list[str], "ModelFolder | None"]:
    """Finds the texts and the model, and checks that they and the output fit.

    Returns:
      The settings, completed with what the folder of the model says; the files to search; and the
      folder of the model, None for word vectors.
    """
    import_tensorflow()
    words = "the words of the vocabulary"
    files = step(
        "text", settings.find_files, shows=lambda found: describe_files(found) if found else words
    )
    folder = None
    if not settings.word_vectors:
        folder, _ = open_folder(settings, step)
        fits = "fit the configuration"
        found = step("weights", _check_all, settings, folder, files, shows=lambda _: fits)
        settings = settings if found is FAILED else found
    check_output(settings, step, files, folder or settings.word_vectors)
    return settings, files, folder


def check(settings: Settings, checks: Checks) -> None:
    """Shows the texts, the model and the output, and whether they fit."""
    _, files, _ = prepare(settings, checks)
    if settings.word_vectors:
        from bert.models.neighbours import read_vectors

        # Without a word, which the text step refuses, standard input would be read.
        checks(
            "word vectors",
            lambda _: read_vectors(settings),
            files,
            shows=lambda found: f"{len(found.words):,} words, {found.values.shape[1]} values each",
        )


def _check_all(settings: Settings, folder: "ModelFolder", files: Sequence[str]) -> Settings:
    settings = settings.follow(folder, files)
    settings.check_model(folder)
    return settings


def show(settings: Settings, query: str, found: Sequence["Neighbour"]) -> str:
    """Returns the lines of a query and its neighbours."""
    query = f"{settings.word}: {query}" if settings.context else query
    by_default = "text" if settings.output_file == "-" else "jsonl"
    if (settings.format or by_default) == "jsonl":
        neighbours: list[dict[str, Any]] = [
            {name: value for name, value in dataclasses.asdict(each).items() if value is not None}
            for each in found
        ]
        return json.dumps({"query": query, "neighbours": neighbours}, ensure_ascii=False)
    lines = [
        f"{each.cosine:8.4f}  {visible(each.text)}"
        + (f"  ({visible(each.id)})" if each.id is not None else "")
        for each in found
    ]
    return "\n".join([visible(query), *lines, ""])


define_flags, main = make_script(Settings, run, check)

if __name__ == "__main__":
    define_flags()
    run_script(main)

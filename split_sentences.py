r"""Splits plain text into sentences for create_pretraining_data.py (paper, section 3.1).

    python split_sentences.py --input_file='books/*.txt' --output_file=sentences.txt

Writes one sentence per line, with a blank line between documents. A document is a chapter if
several blank lines separate the chapters, else a file. Rules, not a model, find the sentences: this
is good enough to decide what follows what, and gives the same result on every machine. They know
the stops and quotation marks of many languages, but abbreviations of English alone; for other
languages, any splitter that writes this form serves as well.
"""

import dataclasses
from typing import Any

from bert.commands.checks import TextFileSettings, make_script
from bert.commands.checks import check_files as check
from bert.commands.console import run_script
from bert.commands.lines import begin_run
from bert.files.display import counted
from bert.files.durable import replace_files
from bert.files.outputs import try_outputs
from bert.log import logger
from bert.options import REQUIRED, option
from bert.text.sentences import (  # noqa: F401
    FORMATS,
    WRAPPED,
    articles,
    join_short,
    split_sentences,
    wrapped_paragraphs,
    write_sentences,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(TextFileSettings):
    """The flags of this script, by name."""

    output_file: str = option(REQUIRED, "File to write the sentences to.", group="output")
    input_format: str = option(
        WRAPPED,
        "wrapped: lines may break anywhere; a blank line ends a paragraph, and --document_gap of "
        "them end a document. paragraphs: one paragraph per line, with a blank line between "
        "documents. wikiextractor: articles of Wikipedia as WikiExtractor writes them, each "
        "between <doc …> and </doc> with its title first, which is left out, and one paragraph "
        "per line; each is a document.",
        choices=FORMATS,
    )
    document_gap: int = option(
        3, "Number of blank lines that end a document in wrapped text.", low=1
    )
    min_sentences: int = option(
        8,
        "Join documents with fewer sentences, such as a title page, to the next one in the file. "
        "Only of wrapped text, where the documents are a guess.",
        low=1,
    )


def run(settings: Settings | None = None, **options: Any) -> tuple[int, int]:
    """Writes the sentences of all files; returns the numbers of documents and of sentences.

    Args:
      settings: The flags.
      **options: The flags, where `settings` is left out.

    Raises:
      ValueError: where there is no text, or the output file must not be written.
    """
    settings = settings or Settings(**options)
    begin_run(settings.check)
    input_files = check(settings)
    try_outputs([settings.output_file], "output_file")
    with replace_files([settings.output_file]) as [output]:
        num_documents, num_sentences = write_sentences(
            output,
            input_files,
            settings.input_format,
            document_gap=settings.document_gap,
            min_sentences=settings.min_sentences,
        )
    written = counted(num_sentences, "sentence"), counted(num_documents, "document")
    logger.info("Wrote %s in %s to %s.", *written, settings.output_file)
    return num_documents, num_sentences


define_flags, main = make_script(Settings, run, check)

if __name__ == "__main__":
    define_flags()
    run_script(main)

r"""Splits plain text into sentences for create_pretraining_data.py (paper, section 3.1).

    python split_sentences.py --input_file='books/*.txt' --output_file=sentences.txt

Writes one sentence per line, with a blank line between documents. A document is a chapter if
several blank lines separate the chapters, else a file. Rules, not a model, find the sentences: this
is good enough to decide what follows what, and gives the same result on every machine. They know
the stops and quotation marks of many languages, but abbreviations of English alone; for other
languages, any splitter that writes this form serves as well.
"""

import dataclasses

from bert.commands import flags as common_flags
from bert.commands.checks import TextFileSettings, start
from bert.commands.checks import check_files as check
from bert.commands.console import run_script
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


def define_flags() -> None:
    """Defines the flags."""
    common_flags.define(Settings)


def run(
    *,
    input_file: str,
    output_file: str,
    input_format: str = Settings.input_format,
    document_gap: int = Settings.document_gap,
    min_sentences: int = Settings.min_sentences,
    overwrite: bool = Settings.overwrite,
) -> tuple[int, int]:
    """Writes the sentences of all files; returns the numbers of documents and of sentences."""
    names = Settings(input_file=input_file, output_file=output_file, overwrite=overwrite)
    input_files = check(names)
    try_outputs([output_file], "output_file")
    with replace_files([output_file]) as [output]:
        num_documents, num_sentences = write_sentences(
            output,
            input_files,
            input_format,
            document_gap=document_gap,
            min_sentences=min_sentences,
        )
    logger.info(
        "Wrote %d sentences in %d documents to %s.", num_sentences, num_documents, output_file
    )
    return num_documents, num_sentences


def main(_: list[str]) -> None:
    """Runs the script on its flags."""

    def split(settings: Settings) -> None:
        values = dataclasses.asdict(settings)
        del values["check"]
        run(**values)

    start(common_flags.read_settings(Settings), split, check)


if __name__ == "__main__":
    define_flags()
    run_script(main)

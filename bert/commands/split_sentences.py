"""The flags of split_sentences.py."""

import dataclasses

from bert.commands.text_files import TextFileSettings
from bert.options import REQUIRED, option
from bert.text.sentences import FORMATS, WRAPPED


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

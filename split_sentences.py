r"""Splits plain text into sentences for create_pretraining_data.py (paper, section 3.1).

    python split_sentences.py --input_file='books/*.txt' --output_file=sentences.txt

Writes one sentence per line, with a blank line between documents. A document is a chapter if
several blank lines separate the chapters, else a file. Rules, not a model, find the sentences: this
is good enough to decide what follows what, and gives the same result on every machine. They know
the stops and quotation marks of many languages, but abbreviations of English alone; for other
languages, any splitter that writes this form serves as well.
"""

import collections
import dataclasses
import html
import re
from collections.abc import Iterable, Iterator

from absl import logging

from bert.commands import flags as common_flags
from bert.commands.checks import Checks, start
from bert.commands.console import run_script
from bert.commands.settings import PATTERNS, OutputSettings
from bert.files.durable import replace_files
from bert.files.outputs import check_outputs
from bert.files.rows import describe_files, find_texts
from bert.files.texts import decoded_lines, warn_of_damaged
from bert.options import REQUIRED, option

# Words whose period ends no sentence.
_TITLE = re.compile(
    "mrs?|ms|messrs|mme|mlle|dr|prof|rev|hon|ste?|gen|col|maj|capt|lt|lieut|sgt|corp|cmdr|adm|gov"
    "|sen|rep|pres|supt|esq|fr|mt|ft|vs|cf|viz|etc|jan|feb|mar|apr|aug|sept?|oct|nov|dec|approx"
    "|dept|est",
    re.IGNORECASE,
)
# Words of which the same is true before a number, and what looks like one.
_COUNTED = re.compile(
    "nos?|pp?|vols?|chap|ch|figs?|eqs?|refs?|tabs?|sect?|art|bk|pt|op|ll?|vv?|n|ff?|al|ca",
    re.IGNORECASE,
)
_NUMBER = re.compile(r"\d|[IVXLCDM]+\b")

# Some quotation marks open in one language and close in another.
_OPENING = "\"'“‘«»„‚‹›¿¡([{_*—–-"  # noqa: RUF001
_CLOSING = "\"'“”‘’«»‹›)\\]}_*』」）"  # noqa: RUF001
# Of English and most other languages; Hindi; Arabic and Urdu.
_STOPS = ".!?…।॥؟۔"  # noqa: RUF001
# What comes behind a stop: what closes, in French after a space; footnote marks, whitespace, and
# what is next; or an East Asian full stop, after which there need be no whitespace. That a stop's
# end is looked for, rather than its beginning, keeps the time even for a million stops in a row.
_BOUNDARY = re.compile(
    rf"(?<=[{_STOPS}])[{_CLOSING}]*(?: »(?= ))?(?:\[\d+\])*\s+"
    rf"(?=(?:[{re.escape(_OPENING)}]|« )*(?P<next>\w))"
    rf"|[。！？]+[{_CLOSING}]*\s*"  # noqa: RUF001
)
# Of several stops, such as "?!", "..." or ". . .", the last two.
_SEVERAL = re.compile(r"[.!?…]{2}|\. \.")
# All up to what may be a word, or an abbreviation with its periods; and a letter.
_BEFORE_WORD = re.compile(r"(?s:.*)[^\w.]")
_LETTER = re.compile(r"[^\W\d_]")

# A format, and how its documents begin.
WIKIEXTRACTOR, _ARTICLE = "wikiextractor", "<doc "


def split_sentences(text: str) -> list[str]:
    """Returns the sentences of a paragraph, whitespace within them made single spaces."""
    text = " ".join(text.split())
    sentences = []
    start = 0
    for match in _BOUNDARY.finditer(text):
        if match["next"] is None or _ends_sentence(start, match):
            sentences.append(text[start : match.end()].strip())
            start = match.end()
    return [sentence for sentence in [*sentences, text[start:]] if sentence]


def _ends_sentence(start: int, match: re.Match[str]) -> bool:
    """Returns whether a stop with whitespace after it ends the sentence that begins at `start`."""
    if match["next"].islower():
        return False
    text, stop = match.string, match.start() - 1
    is_one = not _SEVERAL.fullmatch(text, stop - 1, stop + 1)
    is_one = is_one and not _SEVERAL.fullmatch(text, max(stop - 2, 0), stop + 1)
    if text[stop] != "." or not is_one:
        return True
    word = _last_word(text, start, stop)
    if not word:
        return True
    # Initials and the like: J. K., U.S. But "I." is rather the end of a sentence.
    if "." in word or (len(word) == 1 and word.isupper() and word != "I"):
        return word.lower() in ("a.m", "p.m")
    if _TITLE.fullmatch(word):
        return False
    return not (_COUNTED.fullmatch(word) and _NUMBER.match(text, match.start("next")))


def _last_word(text: str, start: int, end: int) -> str:
    """Returns the word at the end of a part of a text, from its first letter on, or nothing."""
    # No word is looked through twice: whitespace is between any two stops that are asked about.
    start = max(start, text.rfind(" ", start, end) + 1)
    before = _BEFORE_WORD.match(text, start, end)
    letter = _LETTER.search(text, before.end() if before else start, end)
    return text[letter.start() : end] if letter else ""


def wrapped_paragraphs(lines: Iterable[str], document_gap: int) -> Iterator[list[str]]:
    """Yields the paragraphs of each document of hard-wrapped text.

    Args:
      lines: Blank ones end a paragraph.
      document_gap: So many blank lines in a row end a document.
    """
    paragraphs: list[str] = []
    wrapped: list[str] = []
    num_blank = 0
    for line in lines:
        if line.strip():
            if num_blank >= document_gap:
                yield paragraphs
                paragraphs = []
            num_blank = 0
            wrapped.append(line)
            continue
        num_blank += 1
        if wrapped:
            paragraphs.append(" ".join(wrapped))
            wrapped = []
    yield [*paragraphs, " ".join(wrapped)]


def articles(lines: Iterable[str], path: str = "") -> Iterator[list[str]]:
    """Yields the paragraphs of each article, without its title, as WikiExtractor writes them.

    Args:
      lines: An article begins with `<doc …>` and its title, and ends with `</doc>`.
      path: Of the file, for messages.

    Raises:
      ValueError: where there is text outside of an article.
    """
    article: list[str] | None = None
    for number, line in enumerate(lines, start=1):
        text = line.strip()
        if text.startswith(_ARTICLE) or text == "</doc>":
            yield (article or [])[1:]
            article = None if text == "</doc>" else []
        elif text and article is None:
            raise ValueError(
                f"{path}:{number}: must be within `<doc …>` and `</doc>`, as WikiExtractor writes "
                f"its articles. Received {text!r:.80}. Give another `--input_format`."
            )
        elif text and article is not None:
            # By default, it writes what stands safely in HTML.
            article.append(html.unescape(text))
    yield (article or [])[1:]


def join_short(documents: Iterable[list[str]], min_sentences: int) -> Iterator[list[str]]:
    """Yields documents with at least so many sentences, joining shorter ones to the next.

    So a title stays with its text. The last may be shorter.
    """
    joined: list[str] = []
    for document in documents:
        joined += document
        if len(joined) >= min_sentences:
            yield joined
            joined = []
    if joined:
        yield joined


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(OutputSettings):
    """The flags of this script, by name."""

    input_file: str = option(REQUIRED, f"Text files, plain or gzip: {PATTERNS}.")
    output_file: str = option(REQUIRED, "File to write the sentences to.", group="output")
    input_format: str = option(
        "wrapped",
        "wrapped: lines may break anywhere; a blank line ends a paragraph, and --document_gap of "
        "them end a document. paragraphs: one paragraph per line, with a blank line between "
        "documents. wikiextractor: articles of Wikipedia as WikiExtractor writes them, each "
        "between <doc …> and </doc> with its title first, which is left out, and one paragraph "
        "per line; each is a document.",
        choices=("wrapped", "paragraphs", WIKIEXTRACTOR),
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
    input_files = find_texts(input_file)
    check_outputs([output_file], input_files, "output_file", lambda _: overwrite)
    num_documents = num_sentences = 0
    least = min_sentences if input_format == "wrapped" else 1
    warned_of: list[str] = []
    damaged: collections.Counter[str] = collections.Counter()
    with replace_files([output_file]) as [output]:
        for path in input_files:
            lines: Iterable[str] = (line for line, _ in decoded_lines(path, damaged))
            if input_format != WIKIEXTRACTOR:
                lines = _watch_for_articles(lines, path, warned_of)
            documents = (
                [sentence for paragraph in paragraphs for sentence in split_sentences(paragraph)]
                for paragraphs in _paragraphs(lines, path, input_format, document_gap)
            )
            for sentences in join_short(documents, least):
                output.write("".join(f"{sentence}\n" for sentence in [*sentences, ""]).encode())
                num_documents += 1
                num_sentences += len(sentences)
        if not num_sentences:
            raise ValueError(f"`--input_file` must hold text. Received {input_files}.")
    logging.info(
        "Wrote %d sentences in %d documents to %s.", num_sentences, num_documents, output_file
    )
    # What is written is UTF-8, so that nothing that reads it can tell.
    warn_of_damaged(damaged)
    return num_documents, num_sentences


def check(settings: Settings, checks: Checks) -> None:
    """Checks what `run` needs."""
    files = checks("text", find_texts, settings.input_file, tells=describe_files)
    output = settings.output_file
    arguments = ([output], files, "output_file", settings.may_replace)
    checks("output file", check_outputs, *arguments, tells=lambda _: repr(output))


def _watch_for_articles(lines: Iterable[str], path: str, warned_of: list[str]) -> Iterator[str]:
    """Yields the lines, and warns once where an article begins, whose marks would become text."""
    for number, line in enumerate(lines, start=1):
        if not warned_of and line.startswith(_ARTICLE):
            warned_of.append(path)
            logging.warning(
                "%s:%d begins with %r, as articles do that WikiExtractor writes. This line, the "
                "title and </doc> become sentences. Give --input_format=%s.",
                path,
                number,
                _ARTICLE,
                WIKIEXTRACTOR,
            )
        yield line


def _paragraphs(
    lines: Iterable[str], path: str, input_format: str, document_gap: int
) -> Iterator[list[str]]:
    if input_format == WIKIEXTRACTOR:
        yield from articles(lines, path)
        return
    if input_format == "wrapped":
        yield from wrapped_paragraphs(lines, document_gap)
        return
    paragraphs: list[str] = []
    for line in lines:
        if line.strip():
            paragraphs.append(line)
        else:
            yield paragraphs
            paragraphs = []
    yield paragraphs


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

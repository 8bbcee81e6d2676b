"""Documents and sentences of plain text, found by rules (paper, section 3.1)."""

import collections
import html
import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import BinaryIO

from bert.files.texts import decoded_lines, warn_of_damaged
from bert.log import logger
from bert.options import MessageError, Option, OptionError

# Words whose period ends no sentence.
_TITLE = re.compile(
    "mrs?|ms|messrs|mme|mlle|dr|prof|rev|hon|ste?|gen|col|maj|capt|lt|lieut|sgt|corp|cmdr|adm|gov"
    "|sen|rep|pres|supt|esq|fr|mt|ft|vs|cf|viz|etc|jan|feb|mar|apr|aug|sept?|oct|nov|dec|approx"
    "|dept|est",
    re.IGNORECASE,
)
# Words whose period ends no sentence before a number, and the beginning of a number.
_COUNTED = re.compile(
    "nos?|pp?|vols?|chap|ch|figs?|eqs?|refs?|tabs?|sect?|art|bk|pt|op|ll?|vv?|n|ff?|al|ca",
    re.IGNORECASE,
)
_NUMBER = re.compile(r"\d|[IVXLCDM]+\b")

# Some quotation marks open in one language and close in another.
_OPENING = "\"'“‘«»„‚‹›¿¡([{_*—–-"  # noqa: RUF001
_CLOSING = "\"'“”‘’«»‹›)\\]}_*』」）"  # noqa: RUF001
# These left quotation marks only open in East Asian text, where no space need follow a stop.
_EAST_ASIAN_CLOSING = "\"'”’»›)\\]}_*』」）》"  # noqa: RUF001
# Stops of English and most other languages, of Hindi, and of Arabic and Urdu.
_STOPS = ".!?…।॥؟۔"  # noqa: RUF001
# After a stop: closing marks, in French after a space, footnote marks, whitespace and the next
# character; or an East Asian full stop, which needs no whitespace after it. The search for the end
# of a stop, rather than its beginning, takes linear time even for a million stops in a row.
_BOUNDARY = re.compile(
    rf"(?<=[{_STOPS}])[{_CLOSING}]*(?: »(?= ))?(?:\[\d+\])*\s+"
    rf"(?=(?:[{re.escape(_OPENING)}]|« )*(?P<next>\w))"
    rf"|[。！？]+[{_EAST_ASIAN_CLOSING}]*\s*"  # noqa: RUF001
)
# Before a period, what makes it the last of several stops, such as "?!.", "..." or ". . .".
_SEVERAL = (".", "!", "?", "…", ". ")
# Everything before a word or an abbreviation with its periods; and a letter.
_BEFORE_WORD = re.compile(r"(?s:.*)[^\w.]")
_LETTER = re.compile(r"[^\W\d_]")

# The formats of text, and the beginning of an article of WikiExtractor.
WRAPPED, PARAGRAPHS, WIKIEXTRACTOR = FORMATS = ("wrapped", "paragraphs", "wikiextractor")
_ARTICLE = "<doc "


def split_sentences(text: str) -> list[str]:
    """Returns the sentences of a paragraph, with single spaces between words."""
    text = " ".join(text.split())
    sentences = []
    start = 0
    for match in _BOUNDARY.finditer(text):
        if match["next"] is None or _ends_sentence(start, match):
            sentences.append(text[start : match.end()].strip())
            start = match.end()
    return [sentence for sentence in [*sentences, text[start:]] if sentence]


def _ends_sentence(start: int, match: re.Match[str]) -> bool:
    """Returns whether a stop before whitespace ends the sentence that begins at `start`."""
    if match["next"].islower():
        return False
    text, stop = match.string, match.start() - 1
    if text[stop] != "." or text.endswith(_SEVERAL, 0, stop):
        return True
    word = _last_word(text, start, stop)
    if not word:
        return True
    # Initials such as J. K. and U.S. end no sentence, but "I." usually does.
    if "." in word or (len(word) == 1 and word.isupper() and word != "I"):
        return word.lower() in ("a.m", "p.m")
    if _TITLE.fullmatch(word):
        return False
    return not (_COUNTED.fullmatch(word) and _NUMBER.match(text, match.start("next")))


def _last_word(text: str, start: int, end: int) -> str:
    """Returns the word at the end of a part of a text, from its first letter on, or ""."""
    # No word is searched twice, since there is whitespace between any two stops.
    start = max(start, text.rfind(" ", start, end) + 1)
    before = _BEFORE_WORD.match(text, start, end)
    letter = _LETTER.search(text, before.end() if before else start, end)
    return text[letter.start() : end] if letter else ""


def wrapped_paragraphs(lines: Iterable[str], document_gap: int) -> Iterator[list[str]]:
    """Yields the paragraphs of each document of hard-wrapped text.

    Args:
      lines: The lines; a blank line ends a paragraph.
      document_gap: The number of blank lines in a row that end a document.
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
    """Yields the paragraphs of each article of WikiExtractor, without the title.

    Args:
      lines: An article begins with `<doc …>` and its title, and ends with `</doc>`.
      path: The path of the file, for messages.

    Raises:
      ValueError: where text is outside of an article.
    """
    article: list[str] | None = None
    for number, line in enumerate(lines, start=1):
        text = line.strip()
        if text.startswith(_ARTICLE) or text == "</doc>":
            yield (article or [])[1:]
            article = None if text == "</doc>" else []
        elif text and article is None:
            raise MessageError(
                "%s:%d: must be within `<doc …>` and `</doc>`, as WikiExtractor writes its "
                "articles. Received %.80r. Give another %s.",
                path,
                number,
                text,
                Option("input_format"),
            )
        elif text and article is not None:
            # By default, WikiExtractor escapes characters for HTML.
            article.append(html.unescape(text))
    yield (article or [])[1:]


def join_short(documents: Iterable[list[str]], min_sentences: int) -> Iterator[list[str]]:
    """Yields documents of at least `min_sentences`; shorter ones are joined to the next.

    So a title is joined to its text. The last document may be shorter.
    """
    joined: list[str] = []
    for document in documents:
        joined += document
        if len(joined) >= min_sentences:
            yield joined
            joined = []
    if joined:
        yield joined


def write_sentences(
    output: BinaryIO,
    input_files: Sequence[str],
    input_format: str,
    *,
    document_gap: int,
    min_sentences: int,
) -> tuple[int, int]:
    """Writes the sentences of all files, and returns the numbers of documents and sentences.

    Raises:
      ValueError: where there is no text, or text is outside of an article.
    """
    num_documents = num_sentences = 0
    least = min_sentences if input_format == WRAPPED else 1
    warned: list[str] = []
    damaged: collections.Counter[str] = collections.Counter()
    for path in input_files:
        lines: Iterable[str] = (line for line, _ in decoded_lines(path, damaged))
        if input_format != WIKIEXTRACTOR:
            lines = _watch_for_articles(lines, path, warned)
        documents = (
            [sentence for paragraph in paragraphs for sentence in split_sentences(paragraph)]
            for paragraphs in _paragraphs(lines, path, input_format, document_gap)
        )
        for sentences in join_short(documents, least):
            output.write("".join(f"{sentence}\n" for sentence in [*sentences, ""]).encode())
            num_documents += 1
            num_sentences += len(sentences)
    if not num_sentences:
        raise OptionError("input_file", "hold text", [*input_files])
    # The output is UTF-8, so that a later reader cannot warn.
    warn_of_damaged(damaged)
    return num_documents, num_sentences


def _watch_for_articles(lines: Iterable[str], path: str, warned: list[str]) -> Iterator[str]:
    """Yields the lines, and warns at the first article, whose tags would become text."""
    for number, line in enumerate(lines, start=1):
        if not warned and line.startswith(_ARTICLE):
            warned.append(path)
            logger.warning(
                "%s:%d begins with %r, as articles do that WikiExtractor writes. This line, the "
                "title and </doc> become sentences. Give %s.",
                path,
                number,
                _ARTICLE,
                Option("input_format", WIKIEXTRACTOR),
            )
        yield line


def _paragraphs(
    lines: Iterable[str], path: str, input_format: str, document_gap: int
) -> Iterator[list[str]]:
    if input_format == WIKIEXTRACTOR:
        yield from articles(lines, path)
        return
    if input_format == WRAPPED:
        yield from wrapped_paragraphs(lines, document_gap)
        return
    for has_text, group in itertools.groupby(lines, key=lambda line: bool(line.strip())):
        if has_text:
            yield [*group]

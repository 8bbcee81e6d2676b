"""Spans of words and characters in raw text.

Rules, not a model, split text much as that of CoNLL-2003 is split. Details matter little, since
word pieces are split at every punctuation mark anyway.
"""

import functools
import re
import unicodedata

UNITS = ("word", "character")

Span = tuple[int, int]

# Matches ASCII only, since `simplify` replaces other letters, digits and marks with a letter.
_WORD = re.compile(
    r"(?:[a-z]\.){2,}"  # U.S., e.g.
    r"|'s\b"
    # Punctuation within a word, except for the apostrophe of a possessive.
    r"|\w+(?:(?:[-&./@]|'(?!s\b)|(?<=\d)[,:](?=\d))\w+)*"
    r"|\S",
    re.ASCII | re.IGNORECASE,
)
# Names of characters whose scripts do not separate words.
_UNSPACED = re.compile(
    "CJK|(?:HALFWIDTH )?KATAKANA|HIRAGANA|BOPOMOFO|THAI|LAO|KHMER|MYANMAR|TIBETAN|YI "
)
_APOSTROPHES = "'’ʼ"  # noqa: RUF001


def find_spans(text: str, unit: str) -> list[Span]:
    """Returns the start and end (exclusive) of each word or character of a text.

    Args:
      text: Any text; spans contain no whitespace.
      unit: "word", in which CJK characters are words; or "character", for languages that do not
        separate words.
    """
    return word_spans(text) if unit == "word" else character_spans(text)


def word_spans(text: str) -> list[Span]:
    """Returns the spans of words and of single punctuation marks."""
    return [match.span() for match in _WORD.finditer("".join(map(simplify, text)))]


@functools.lru_cache(maxsize=4096)
def simplify(char: str) -> str:
    """Returns an ASCII character that has the same role in the rules of words."""
    if char.isspace():
        return " "
    if char in _APOSTROPHES:
        return "'"
    if char.isascii():
        return char
    # Combining marks, and invisible signs that some scripts have within words, count as letters.
    category = unicodedata.category(char)
    is_letter = category[0] in "LNM" or category == "Cf"
    return "x" if is_letter and not unicodedata.name(char, "").startswith("CJK") else "|"


def character_spans(text: str) -> list[Span]:
    """Returns the spans of characters with their combining marks.

    Numbers, and words of scripts that separate words, are single spans.
    """
    spans: list[Span] = []
    before = " "
    for index, char in enumerate(text):
        is_joined = is_mark(char) or (is_spaced(char) and is_spaced(before))
        if is_joined and not before.isspace():
            spans[-1] = (spans[-1][0], index + 1)
        elif not char.isspace():
            spans.append((index, index + 1))
        before = char
    return spans


def is_mark(char: str) -> bool:
    """Returns whether a character is a combining mark or an invisible sign."""
    return unicodedata.category(char) in ("Mn", "Mc", "Me", "Cf")


def is_spaced(char: str) -> bool:
    """Returns whether a character is a letter or digit of a script that separates words."""
    return char.isalnum() and not _UNSPACED.match(unicodedata.name(char, ""))

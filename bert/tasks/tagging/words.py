"""Words and characters of raw text, with the places where they stand.

Rules rather than a model find them, so that text is cut much as CoNLL-2003 is. How exactly matters
little: the word pieces of BERT are cut at every mark, whatever is taken for a word.
"""

import functools
import re
import unicodedata

UNITS = ("word", "character")

Span = tuple[int, int]

# Over ASCII alone: `_simplify` has made a letter of every other letter, digit and mark.
_WORD = re.compile(
    r"(?:[a-z]\.){2,}"  # U.S., e.g.
    r"|'s\b"
    # Marks that may be inside a word, but for what begins a possessive.
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
    """Returns where each word or character of a text begins and ends.

    Args:
      text: Any text; whitespace is between the spans.
      unit: "word", or "character" for languages that do not separate words. CJK characters are
        words, too.
    """
    return word_spans(text) if unit == "word" else character_spans(text)


def word_spans(text: str) -> list[Span]:
    """Returns the spans of words and of single marks."""
    return [match.span() for match in _WORD.finditer("".join(map(_simplify, text)))]


@functools.lru_cache(maxsize=4096)
def _simplify(char: str) -> str:
    if char.isspace():
        return " "
    if char in _APOSTROPHES:
        return "'"
    if char.isascii():
        return char
    # Marks belong to letters, and so do the invisible signs that some scripts have within words.
    category = unicodedata.category(char)
    is_letter = category[0] in "LNM" or category == "Cf"
    return "x" if is_letter and not unicodedata.name(char, "").startswith("CJK") else "|"


def character_spans(text: str) -> list[Span]:
    """Returns the spans of characters, each with its marks.

    Numbers, and words of scripts that separate words, stay whole.
    """
    spans: list[Span] = []
    before = " "
    for index, char in enumerate(text):
        goes_on = unicodedata.category(char) in ("Mn", "Mc", "Me", "Cf") or (
            _is_spaced(char) and _is_spaced(before)
        )
        if goes_on and not before.isspace():
            spans[-1] = (spans[-1][0], index + 1)
        elif not char.isspace():
            spans.append((index, index + 1))
        before = char
    return spans


def _is_spaced(char: str) -> bool:
    return char.isalnum() and not _UNSPACED.match(unicodedata.name(char, ""))

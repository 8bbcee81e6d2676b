"""The character classes of the original release, and the cleaning and splitting of characters."""

import functools
import unicodedata

from bert.text.memory import Memo

# Original: tokenization.py, `_is_chinese_char`. Kana and Hangul are not included: they form words.
CJK_RANGES = (
    (0x4E00, 0x9FFF),
    (0x3400, 0x4DBF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F),
    (0x2B820, 0x2CEAF),
    (0xF900, 0xFAFF),
    (0x2F800, 0x2FA1F),
)


def is_whitespace(char: str) -> bool:
    """Returns whether cleaning turns a character into a space."""
    return char in "\t\n\r" or unicodedata.category(char) == "Zs"


def is_control(char: str) -> bool:
    """Returns whether cleaning deletes a character."""
    return char not in "\t\n\r" and unicodedata.category(char) in ("Cc", "Cf")


def is_punctuation(char: str) -> bool:
    """Returns whether a character is a separate word."""
    # In ASCII, symbols of Unicode such as `$` and `+` count, too.
    if char.isascii():
        return char.isprintable() and not char.isalnum() and char != " "
    return unicodedata.category(char).startswith("P")


def clean(char: str, *, chinese: bool) -> str:
    """Returns a character after cleaning; with `chinese`, CJK characters get spaces around them."""
    code = ord(char)
    if code in (0, 0xFFFD) or is_control(char):
        return ""
    if is_whitespace(char):
        return " "
    is_apart = chinese and any(low <= code <= high for low, high in CJK_RANGES)
    return f" {char} " if is_apart else char


def split(char: str, *, strips: bool, chinese: bool) -> str:
    """Returns a character after cleaning and splitting; `strips` removes accents."""
    if strips and unicodedata.category(char) == "Mn":
        return ""
    return f" {char} " if is_punctuation(char) else clean(char, chinese=chinese)


@functools.cache
def tables(strips: bool, chinese: bool) -> tuple[Memo, Memo]:
    """Returns lazy tables for `str.translate`: one that cleans, and one that also splits."""
    return (
        Memo(lambda code: clean(chr(code), chinese=chinese)),
        Memo(lambda code: split(chr(code), strips=strips, chinese=chinese)),
    )

"""The character classes of the original release, and the caches of a tokenizer."""

import functools
import unicodedata
from collections.abc import Callable
from typing import Any

# Bounds of the cache: about 40 MB for English, 120 MB for the worst text.
MEMO_ENTRIES = 1 << 17
MEMO_WORD_LENGTH = 48


class Memo(dict[Any, Any]):
    """A dictionary that computes missing values, and is cleared when it is full."""

    def __init__(self, compute: Callable[[Any], Any]):
        super().__init__()
        self.compute = compute

    def __missing__(self, key: str | int) -> Any:
        value = self.compute(key)
        # Long words seldom recur.
        if isinstance(key, int) or len(key) <= MEMO_WORD_LENGTH:
            if len(self) >= MEMO_ENTRIES:
                self.clear()
            self[key] = value
        return value


# Attributes of tokenizers that are derived from the others.
REMEMBERED = {
    *("_seen", "_known", "_pieces", "_ids", "_finders", "_in_steps", "_strips", "_tables"),
    *("_longest", "_lookup"),
}


class Watched:
    """Base class that counts changes of tokenizers and vocabularies, which invalidate caches."""

    changes = 0

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        Watched.changes += 1

    def __getstate__(self) -> dict[str, Any]:
        # The cache is not pickled.
        return {name: value for name, value in vars(self).items() if name not in REMEMBERED}


class Vocabulary(dict[str, int]):
    """A vocabulary whose changes are counted."""

    changes = 0


def _counting(name: str) -> Callable[..., Any]:
    change = getattr(dict, name)

    @functools.wraps(change)
    def method(self: Vocabulary, *args: Any, **kwargs: Any) -> Any:
        result = change(self, *args, **kwargs)
        self.changes += 1
        Watched.changes += 1
        return result

    return method


_CHANGING = ("__setitem__", "__delitem__", "__ior__", "clear", "pop", "popitem", "setdefault")
for _name in (*_CHANGING, "update"):
    setattr(Vocabulary, _name, _counting(_name))


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

"""Escapes control characters and line breaks in users' text before it is printed."""

import os
import re
from typing import Any

# Control characters, such as the escape and line breaks; line separators; characters that change
# the direction of text; and surrogates. Characters within words, such as joiners, are not escaped.
_CONTROLS = re.compile("[\x00-\x1f\x7f\x80-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_IN_LINES = re.compile(_CONTROLS.pattern.replace("\x00-\x1f", "\x00-\x08\x0b-\x1f"))


def visible(text: str) -> str:
    r"""Returns a text in one line: `\x1b` in place of an escape, `\n` in place of a line break."""
    return _CONTROLS.sub(_spell, text)


def visible_lines(text: str) -> str:
    """Returns a text with escapes for control characters, except line breaks and tabs."""
    return _IN_LINES.sub(_spell, text)


def _spell(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode()


class _Argument(str):
    """The `visible` text of an object, with the `repr` of the object, which has escapes."""

    _value: Any

    def __new__(cls, value: Any) -> "_Argument":
        made = super().__new__(cls, visible(str(value)))
        made._value = value
        return made

    def __repr__(self) -> str:
        return repr(self._value)


def as_argument(value: Any) -> Any:
    """Returns an argument of a message without line breaks and control characters."""
    return _Argument(value) if isinstance(value, str | BaseException | os.PathLike) else value

"""Escapes control characters and line breaks in users' text before it is printed."""

import os
import re
from typing import Any

# Control characters, among them the escape and line breaks; separators of lines; what turns the
# direction of the text around it; and halves of characters, which have no encoding. Signs within
# words, such as joiners, stay.
_CONTROLS = re.compile("[\x00-\x1f\x7f\x80-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_IN_LINES = re.compile(_CONTROLS.pattern.replace("\x00-\x1f", "\x00-\x08\x0b-\x1f"))


def visible(text: str) -> str:
    r"""Returns a text in one line: `\x1b` in place of an escape, `\n` in place of a line break."""
    return _CONTROLS.sub(_spell, text)


def visible_lines(text: str) -> str:
    """Returns `visible` of a text that has line breaks and tabs of its own, which stay."""
    return _IN_LINES.sub(_spell, text)


def _spell(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode()


class _Argument(str):
    """The `visible` of an object, with the object's own `repr`, which spells already."""

    _value: Any

    def __new__(cls, value: Any) -> "_Argument":
        made = super().__new__(cls, visible(str(value)))
        made._value = value
        return made

    def __repr__(self) -> str:
        return repr(self._value)


def as_argument(value: Any) -> Any:
    """Returns an argument of a message so that it cannot begin another line there."""
    return _Argument(value) if isinstance(value, str | BaseException | os.PathLike) else value

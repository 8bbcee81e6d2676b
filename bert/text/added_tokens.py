"""Added tokens of a Hugging Face tokenizer, such as `<e1>`, and their search in texts.

Added tokens are found before a text is split into words, and are never split. Tokens that are
`normalized` are found in the cleaned text, all other tokens in the text as it is.
"""

import dataclasses
import functools
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

# What Unicode, and so the Rust of `tokenizers`, calls white space; Python's has four more.
SPACES = (
    "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000"
)
_SPACES_AFTER = re.compile(f"[{SPACES}]*")

# Word characters outside of the categories of letters: symbols of letters, and joiners.
_OTHER_WORD_CHARACTERS = (
    (0x200C, 0x200D),
    (0x24B6, 0x24E9),
    (0x1F130, 0x1F149),
    (0x1F150, 0x1F169),
    (0x1F170, 0x1F189),
)


@dataclasses.dataclass(frozen=True)
class AddedToken:
    """A token that is never split.

    Attributes:
      content: The text of the token.
      single_word: Whether the token is not found within a longer word.
      lstrip: Whether the token includes the spaces before it.
      rstrip: Whether the token includes the spaces after it.
      normalized: Whether the token is found in the cleaned text, rather than in the text as it is.
      special: Whether the token is special, such as `[MASK]`.
    """

    content: str
    single_word: bool = False
    lstrip: bool = False
    rstrip: bool = False
    normalized: bool = True
    special: bool = False

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "AddedToken":
        """Returns the token of a description in a file, whose missing values are defaults.

        Raises:
          ValueError: where the description is wrong.
        """
        fields = {field.name: field.type for field in dataclasses.fields(cls)}
        known = {name: value for name, value in values.items() if name in fields}
        content = known.get("content")
        wrong = [n for n, value in known.items() if type(value) is not fields[n]]
        if wrong or not isinstance(content, str) or not content:
            raise ValueError(
                "An added token must have text as `content`, and true or false for the rest. "
                f"Received {dict(values)!r:.200}."
            )
        return cls(**known)

    def to_dict(self) -> dict[str, Any]:
        """Returns the description for `from_dict`."""
        return dataclasses.asdict(self)


class Finder:
    """Finds added tokens in texts, and the longest of several at the same position.

    Args:
      tokens: The tokens; the first of several with the same text is found.
      normalize: Normalizes the texts of the tokens.

    Attributes:
      normalize: As given; for the texts that are searched, too.
    """

    def __init__(
        self, tokens: Iterable[AddedToken], normalize: Callable[[str], str] = lambda text: text
    ) -> None:
        self.normalize = normalize
        self.tokens: dict[str, AddedToken] = {}
        # Special tokens come first, as in `tokenizers`.
        for token in sorted(tokens, key=lambda token: not token.special):
            if pattern := normalize(token.content):
                self.tokens.setdefault(pattern, token)
        longest_first = sorted(self.tokens, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, longest_first)))

    def cut(self, text: str) -> Iterator[tuple[str, AddedToken | None]]:
        """Yields the parts of a text in order, each with the token that it is, or None."""
        if not self.tokens:
            yield text, None
            return
        done = 0
        for match in self._pattern.finditer(text):
            token = self.tokens[match[0]]
            start, end = match.span()
            if token.single_word and _touches_word(text, start, end):
                continue
            if token.lstrip:
                start = done + len(text[done:start].rstrip(SPACES))
            if token.rstrip:
                spaces = _SPACES_AFTER.match(text, end)
                end = spaces.end() if spaces else end
            if done < start:
                yield text[done:start], None
            yield text[start:end], token
            done = end
        if done < len(text):
            yield text[done:], None


def _touches_word(text: str, start: int, end: int) -> bool:
    before, after = text[start - 1 : start] if start else "", text[end : end + 1]
    return any(char and is_word_character(char) for char in (before, after))


@functools.lru_cache(maxsize=4096)
def is_word_character(char: str) -> bool:
    r"""Returns whether `\w` of Unicode's regular expressions matches a character."""
    category = unicodedata.category(char)
    if category[0] in "LM" or category in ("Nd", "Nl", "Pc"):
        return True
    return any(low <= ord(char) <= high for low, high in _OTHER_WORD_CHARACTERS)

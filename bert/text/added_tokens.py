"""Added tokens of a Hugging Face tokenizer, such as `<e1>`, and where texts have them.

They are looked for before a text is split into words, and none of them is taken apart. Those that
are `normalized` are looked for in the text as it is cleaned, all others in the text as it stands.
"""

import dataclasses
import functools
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

# What Unicode, and so the Rust of `tokenizers`, calls white space; Python's has four more.
_SPACE = "[\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]"
_SPACES_BEHIND = re.compile(f"{_SPACE}*")

# Letters among the symbols, and what joins letters: word characters by no category of their own.
_OTHER_WORD_CHARACTERS = (
    (0x200C, 0x200D),
    (0x24B6, 0x24E9),
    (0x1F130, 0x1F149),
    (0x1F150, 0x1F169),
    (0x1F170, 0x1F189),
)


@dataclasses.dataclass(frozen=True)
class AddedToken:
    """A token that stays whole wherever a text has it.

    Attributes:
      content: The token.
      single_word: Whether it must not stand within a longer word.
      lstrip: Whether the spaces before it belong to it.
      rstrip: Whether those behind it do.
      normalized: Whether it is found in the text as that is cleaned, rather than as it stands.
      special: Whether it is more than text, such as `[MASK]`.
    """

    content: str
    single_word: bool = False
    lstrip: bool = False
    rstrip: bool = False
    normalized: bool = True
    special: bool = False

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "AddedToken":
        """Returns the token that a file describes; what the file leaves out is as by default.

        Raises:
          ValueError: where it describes none.
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
        """Returns what `from_dict` takes."""
        return dataclasses.asdict(self)


class Finder:
    """Finds added tokens in texts: the first one first, and of those that begin there the longest.

    Args:
      tokens: Which to find; of several of the same text, the first counts.
      normalize: What becomes of their texts before.
    """

    def __init__(
        self, tokens: Iterable[AddedToken], normalize: Callable[[str], str] = lambda text: text
    ) -> None:
        self.tokens: dict[str, AddedToken] = {}
        # Special tokens come first, as in `tokenizers`.
        for token in sorted(tokens, key=lambda token: not token.special):
            if pattern := normalize(token.content):
                self.tokens.setdefault(pattern, token)
        longest_first = sorted(self.tokens, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, longest_first)))

    def cut(self, text: str) -> Iterator[tuple[str, AddedToken | None]]:
        """Yields the parts of a text in their order, with the token that each is, if it is one."""
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
                start = max(_start_of_spaces(text, start), done)
            if token.rstrip:
                spaces = _SPACES_BEHIND.match(text, end)
                end = spaces.end() if spaces else end
            if done < start:
                yield text[done:start], None
            yield text[start:end], token
            done = end
        if done < len(text):
            yield text[done:], None


def _touches_word(text: str, start: int, end: int) -> bool:
    before, behind = text[start - 1 : start] if start else "", text[end : end + 1]
    return any(char and is_word_character(char) for char in (before, behind))


def _start_of_spaces(text: str, end: int) -> int:
    while end and is_space(text[end - 1]):
        end -= 1
    return end


def is_space(char: str) -> bool:
    """Returns whether Unicode calls it white space."""
    return re.fullmatch(_SPACE, char) is not None


@functools.lru_cache(maxsize=4096)
def is_word_character(char: str) -> bool:
    r"""Returns whether `\w` of Unicode's regular expressions matches it."""
    category = unicodedata.category(char)
    if category[0] in "LM" or category in ("Nd", "Nl", "Pc"):
        return True
    return any(low <= ord(char) <= high for low, high in _OTHER_WORD_CHARACTERS)

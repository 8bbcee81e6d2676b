"""The steps of tokenization: a text as it was typed, cleaned, split into words and word pieces."""

import dataclasses
import re
from collections.abc import Iterator, Sequence

import tokenization

# White space, except characters that the tokenizer removes before it splits a text.
_SPACES = re.compile(r"[^\S\x0b\x0c\x1c-\x1f\x85]+")


@dataclasses.dataclass(frozen=True)
class Word:
    """A part of a text between white space, and its tokens.

    Attributes:
      typed: The part as it was typed; "" for [CLS] and [SEP].
      cleaned: The part without control characters, and for uncased models without capitals and
        accents.
      words: The words, split at punctuation and between Chinese characters.
      pieces: The word pieces, in their order.
    """

    typed: str
    cleaned: str
    words: Sequence[str]
    pieces: Sequence[str]


def read_words(text: str, tokenizer: tokenization.FullTokenizer, special: str = "") -> list[Word]:
    """Returns the words of a text; their pieces are those of the tokenizer.

    Args:
      text: The text as it was typed.
      tokenizer: The tokenizer of the model.
      special: A token that is not split where the text has it, such as [MASK].
    """
    parts = text.split(special) if special else [text]
    words = list(_read_part(parts[0], tokenizer))
    for part in parts[1:]:
        words += [_unsplit(special, special), *_read_part(part, tokenizer)]
    return words


def _unsplit(typed: str, token: str) -> Word:
    return Word(typed, token, [token], [token])


def _read_part(text: str, tokenizer: tokenization.FullTokenizer) -> list[Word]:
    pieces = tokenizer.tokenize(text)
    words = list(_trace(text, tokenizer))
    if [piece for word in words for piece in word.pieces] == pieces:
        return words
    # A tokenizer of another class, whose steps are unknown.
    return [Word(text, text, [], pieces)]


def _trace(text: str, tokenizer: tokenization.FullTokenizer) -> Iterator[Word]:
    basic, wordpiece = tokenizer.basic_tokenizer, tokenizer.wordpiece_tokenizer
    for part, token in tokenizer.cut(text):
        if token is not None:
            yield _unsplit(part, token.content)
            continue
        for typed in filter(None, _SPACES.split(part)):
            words = basic.tokenize(typed)
            pieces = [piece for word in words for piece in wordpiece.tokenize(word)]
            yield Word(typed, basic.normalize(typed), words, pieces)

"""A text on its way into a model: as it was typed, cleaned, split into words, cut into pieces."""

import dataclasses
import re
from collections.abc import Iterator, Sequence

import tokenization

# White space, but what the tokenizer takes out before it splits a text.
_SPACES = re.compile(r"[^\S\x0b\x0c\x1c-\x1f\x85]+")


@dataclasses.dataclass(frozen=True)
class Word:
    """What stands between white space, and what becomes of it.

    Attributes:
      typed: As it stands in the text; of a [CLS] or [SEP], nothing.
      cleaned: Without control characters, and for uncased models without capitals and accents.
      words: What is split at punctuation and between Chinese characters.
      pieces: Word pieces, in their order.
    """

    typed: str
    cleaned: str
    words: Sequence[str]
    pieces: Sequence[str]


def read_words(text: str, tokenizer: tokenization.FullTokenizer, kept: str = "") -> list[Word]:
    """Returns the words of a text; their pieces are those that the tokenizer makes of it.

    Args:
      text: As it was typed.
      tokenizer: That of the model.
      kept: A token that stays whole where the text has it, such as [MASK].
    """
    parts = text.split(kept) if kept else [text]
    words = list(_read_part(parts[0], tokenizer))
    for part in parts[1:]:
        words += [_whole(kept, kept), *_read_part(part, tokenizer)]
    return words


def _whole(typed: str, token: str) -> Word:
    return Word(typed, token, [token], [token])


def _read_part(text: str, tokenizer: tokenization.FullTokenizer) -> list[Word]:
    pieces = tokenizer.tokenize(text)
    words = list(_trace(text, tokenizer))
    if [piece for word in words for piece in word.pieces] == pieces:
        return words
    # A tokenizer with ways of its own, into which nobody sees.
    return [Word(text, text, [], pieces)]


def _trace(text: str, tokenizer: tokenization.FullTokenizer) -> Iterator[Word]:
    basic, wordpiece = tokenizer.basic_tokenizer, tokenizer.wordpiece_tokenizer
    for part, token in tokenizer.cut(text):
        if token is not None:
            yield _whole(part, token.content)
            continue
        for typed in filter(None, _SPACES.split(part)):
            words = basic.tokenize(typed)
            pieces = [piece for word in words for piece in wordpiece.tokenize(word)]
            yield Word(typed, basic.normalize(typed), words, pieces)

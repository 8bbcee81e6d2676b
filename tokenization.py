"""Text to word pieces and their ids, exactly as in the original release (paper, section 3).

Two steps: `BasicTokenizer` cleans text and splits it at whitespace, punctuation and CJK characters;
`WordpieceTokenizer` splits each of the resulting words into the longest pieces of the vocabulary.
`FullTokenizer` does both, and remembers the pieces of the words it has met.
"""

import io
import logging
import os
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, TypeVar

from bert.files import huggingface as huggingface_files
from bert.files.paths import read_file

K = TypeVar("K")
V = TypeVar("V")

# Bounds of what is remembered: about 40 MB for English, 120 MB for the worst text.
MEMO_ENTRIES = 1 << 17
MEMO_WORD_LENGTH = 48

# Control characters that `str.split` takes for whitespace. The original deletes them instead, which
# joins the words on both sides.
_SPLITTING_CONTROLS = re.compile("[\x0b\x0c\x1c-\x1f\x85]")

# Original: tokenization.py, `_is_chinese_char`. Kana and Hangul are not in it: they form words.
_CJK_RANGES = (
    (0x4E00, 0x9FFF),
    (0x3400, 0x4DBF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F),
    (0x2B820, 0x2CEAF),
    (0xF900, 0xFAFF),
    (0x2F800, 0x2FA1F),
)

_FREQUENT_MARKS = [(mark, f" {mark} ") for mark in ",.\"';-_“”’"]  # noqa: RUF001

_RELEASED_NAME = re.compile(
    r"(?:^|/)(?P<name>(?:wwm_|multi_)?(?:un)?cased_L-\d+_H-\d+_A-\d+"
    r"|(?:multilingual|chinese)_L-12_H-768_A-12)(?:/bert_model\.ckpt[^/]*|/)?$"
)


def validate_case_matches_checkpoint(do_lower_case: bool, init_checkpoint: str | None) -> None:
    """Raises if `init_checkpoint` is named like a released model of the other casing."""
    match = _RELEASED_NAME.search(init_checkpoint or "")
    if match is None:
        return
    name = match["name"]
    cased = name.startswith(("cased", "wwm_cased", "multi_cased"))
    if cased == do_lower_case:
        raise ValueError(
            f"`do_lower_case` must be {not cased} for the {'cased' if cased else 'lower-cased'} "
            f"model {name!r}. Received {do_lower_case} with {init_checkpoint!r}. If that model is "
            "not the released one, give its folder another name."
        )


def convert_to_unicode(text: str | bytes) -> str:
    """Returns `text` as `str`; bytes are read as UTF-8, and those that are not are dropped."""
    if isinstance(text, str):
        return text
    if isinstance(text, bytes):
        return text.decode("utf-8", "ignore")
    raise ValueError(f"Text must be `str` or `bytes`. Received {type(text).__name__}.")


def printable_text(text: str | bytes) -> str:
    """Returns `text` in the form that logs and prints take."""
    return convert_to_unicode(text)


def load_vocab(vocab_file: str | os.PathLike[str] | Iterable[bytes]) -> dict[str, int]:
    """Returns the id of every token, in the order of the file's lines.

    Args:
      vocab_file: a path that `tf.io.gfile` reads, or a file open for reading bytes, with one token
        a line. The id is the number of the line, from 0; blank lines have one too. A path that ends
        in .json is that of a `tokenizer.json`.
    """
    if isinstance(vocab_file, str | os.PathLike):
        path = os.fspath(vocab_file)
        try:
            content = read_file(path)
        except OSError as error:
            raise ValueError(
                f"`vocab_file` must be a readable file. Received {path!r} "
                f"({error.strerror or error})."
            ) from error
        if huggingface_files.is_tokenizer(path):
            return huggingface_files.read_vocab(content, path)
        return _number_tokens(io.BytesIO(content), path)
    return _number_tokens(vocab_file, str(getattr(vocab_file, "name", "vocabulary")))


def _number_tokens(lines: Iterable[bytes], name: str) -> dict[str, int]:
    vocab: dict[str, int] = {}
    repeated: list[str] = []
    for index, line in enumerate(lines):
        try:
            text = line.decode("utf-8-sig" if index == 0 else "utf-8")
        except UnicodeDecodeError as error:
            raise ValueError(
                f"`vocab_file` must be UTF-8 text. Received {name!r} with line {index + 1} = "
                f"{line!r}."
            ) from error
        # Faithful: carriage returns vanish wherever they stand, as tf.gfile had it, and then
        # nothing may be left of a last line.
        text = text.replace("\r", "")
        if not text:
            break
        token = text.strip()
        if token in vocab:
            repeated.append(f"{token!r} on lines {vocab[token] + 1} and {index + 1}")
        # Faithful: of a token listed twice, the last line counts.
        vocab[token] = index
    if not vocab:
        raise ValueError(
            f"`vocab_file` must hold a token a line. Received {name!r}, which is empty."
        )
    if repeated:
        logging.getLogger(__name__).warning(
            "Vocabulary %r lists %d tokens again, and the last line counts: %s.",
            name,
            len(repeated),
            "; ".join(repeated[:5]),
        )
    return vocab


def convert_by_vocab(vocab: Mapping[K, V], items: Iterable[K]) -> list[V]:
    """Returns what `vocab` holds for each item."""
    try:
        return [vocab[item] for item in items]
    except KeyError as error:
        raise ValueError(
            f"The vocabulary must hold every token or id. Received {error.args[0]!r}, which is not "
            f"among its {len(vocab)}."
        ) from None


def convert_tokens_to_ids(vocab: Mapping[str, int], tokens: Iterable[str]) -> list[int]:
    """Returns the id of each token."""
    return convert_by_vocab(vocab, tokens)


def convert_ids_to_tokens(inv_vocab: Mapping[int, str], ids: Iterable[int]) -> list[str]:
    """Returns the token of each id."""
    return convert_by_vocab(inv_vocab, ids)


def whitespace_tokenize(text: str) -> list[str]:
    """Splits `text` at Unicode whitespace."""
    return text.split()


def truncate_pair(
    a: Sequence[str], b: Sequence[str], *, budget: int
) -> tuple[Sequence[str], Sequence[str]]:
    """Returns both sequences cut at their ends to `budget` tokens, the longer one first.

    Where they are equally long, `b` gives way (original: run_classifier.py, _truncate_seq_pair).
    """
    if budget < 0:
        raise ValueError(f"`budget` must not be negative. Received {budget}.")
    half = budget // 2
    return a[: max(budget - len(b), budget - half)], b[: max(budget - len(a), half)]


def pack(
    a: Sequence[str], b: Sequence[str] = (), *, max_length: int
) -> tuple[list[str], list[int]]:
    """Returns `[CLS] a [SEP] (b [SEP])` and its segment ids (paper, figure 2)."""
    a, b = truncate_pair(a, b, budget=max_length - (3 if b else 2))
    first = ["[CLS]", *a, "[SEP]"]
    second = [*b, "[SEP]"] if b else []
    return first + second, [0] * len(first) + [1] * len(second)


class _Memo(dict[Any, Any]):
    """Computes a missing value and keeps it; begins anew when full, so that memory is bounded."""

    def __init__(self, compute: Callable[[Any], Any]):
        super().__init__()
        self._compute = compute

    def __missing__(self, key: str | int) -> Any:
        value = self._compute(key)
        # Long words seldom come back.
        if isinstance(key, int) or len(key) <= MEMO_WORD_LENGTH:
            if len(self) >= MEMO_ENTRIES:
                self.clear()
            self[key] = value
        return value


class FullTokenizer:
    """Turns text into word pieces, and those into ids.

    The pieces of a word depend on nothing outside it, so they are remembered: `vocab` must not
    change after the first text.
    """

    def __init__(
        self,
        vocab_file: str | os.PathLike[str] | Iterable[bytes],
        do_lower_case: bool = True,
    ):
        self._set_up(load_vocab(vocab_file), do_lower_case)

    @classmethod
    def from_vocab(cls, vocab: Mapping[str, int], do_lower_case: bool = True) -> "FullTokenizer":
        """Returns a tokenizer for a vocabulary that is already in memory."""
        tokenizer = cls.__new__(cls)
        tokenizer._set_up(dict(vocab), do_lower_case)
        return tokenizer

    def _set_up(self, vocab: dict[str, int], do_lower_case: bool) -> None:
        if "[UNK]" not in vocab:
            raise ValueError(
                "The vocabulary must hold '[UNK]', the token of unknown words. Received "
                f"{len(vocab)} tokens from {next(iter(vocab), None)!r} on."
            )
        self.vocab = vocab
        self.inv_vocab = {index: token for token, index in vocab.items()}
        self.basic_tokenizer = BasicTokenizer(do_lower_case)
        self.wordpiece_tokenizer = WordpieceTokenizer(vocab)
        # Most words are pieces themselves. Of the others, the pieces are remembered; so are those
        # of all words as they stand in the text, in any case, one step from the line.
        fits = self.wordpiece_tokenizer.max_input_chars_per_word
        split_pieces = _Memo(self.wordpiece_tokenizer.split_word)
        split_ids = _Memo(lambda word: convert_by_vocab(vocab, split_pieces[word]))
        whole_pieces = {token: token for token in vocab if len(token) <= fits}
        whole_ids = {token: vocab[token] for token in whole_pieces}
        self._pieces = _Memo(lambda text: self._split(text, whole_pieces, split_pieces))
        self._ids = _Memo(lambda text: self._split(text, whole_ids, split_ids))

    def __reduce__(self) -> tuple[Any, ...]:
        # What is remembered stays behind.
        return type(self).from_vocab, (self.vocab, self.basic_tokenizer.do_lower_case)

    def _split(self, text: str, whole: Mapping[str, V], split: _Memo) -> tuple[V, ...]:
        pieces: list[V] = []
        for word in self.basic_tokenizer.tokenize(text):
            piece = whole.get(word)
            if piece is None:
                pieces += split[word]
            else:
                pieces.append(piece)
        return tuple(pieces)

    def tokenize(self, text: str | bytes) -> list[str]:
        """Returns the word pieces of `text`."""
        return list(chain.from_iterable(map(self._pieces.__getitem__, _words(text))))

    def tokenize_to_ids(self, text: str | bytes) -> list[int]:
        """Returns the ids of the word pieces of `text`, faster than in two steps."""
        return list(chain.from_iterable(map(self._ids.__getitem__, _words(text))))

    def convert_tokens_to_ids(self, tokens: Iterable[str]) -> list[int]:
        """Returns the id of each token."""
        return convert_by_vocab(self.vocab, tokens)

    def convert_ids_to_tokens(self, ids: Iterable[int]) -> list[str]:
        """Returns the token of each id."""
        return convert_by_vocab(self.inv_vocab, ids)


def _words(text: str | bytes) -> list[str]:
    """Splits `text` where the original finds whitespace after its cleaning, and at some marks."""
    if not isinstance(text, str):
        text = convert_to_unicode(text)
    if _SPLITTING_CONTROLS.search(text):
        text = _SPLITTING_CONTROLS.sub("", text)
    # Without marks, words come back more often. But what surrounds a sigma, marks included, decides
    # on its lower case, as for no other letter.
    if "\N{GREEK CAPITAL LETTER SIGMA}" not in text:
        for mark, apart in _FREQUENT_MARKS:
            text = text.replace(mark, apart)
    return text.split()


class BasicTokenizer:
    """Cleans text, and splits it at whitespace, punctuation and around CJK characters."""

    def __init__(self, do_lower_case: bool = True):
        self.do_lower_case = do_lower_case

    def tokenize(self, text: str | bytes) -> list[str]:
        """Returns the words of `text`, lower-cased and without accents for uncased models."""
        text = convert_to_unicode(text)
        if not self.do_lower_case:
            return text.translate(_SPLIT).split()
        # Cleaning comes first: it can set apart a sigma, which has another lower case at the end.
        if not text.isascii():
            text = unicodedata.normalize("NFD", text.translate(_CLEANED).lower())
        else:
            text = text.lower()
        return text.translate(_SPLIT_WITHOUT_ACCENTS).split()


class WordpieceTokenizer:
    """Splits words into pieces of the vocabulary, always taking the longest that fits."""

    def __init__(
        self,
        vocab: Mapping[str, int],
        unk_token: str = "[UNK]",
        max_input_chars_per_word: int = 200,
    ):
        self.vocab = vocab
        self.unk_token = unk_token
        self.max_input_chars_per_word = max_input_chars_per_word
        self._longest = max(map(len, vocab), default=0)

    def tokenize(self, text: str | bytes) -> list[str]:
        """Returns the pieces of words as `BasicTokenizer` leaves them, such as `un ##aff ##able`.

        A word that cannot be split, or has too many characters, becomes `unk_token`.
        """
        words = whitespace_tokenize(convert_to_unicode(text))
        return list(chain.from_iterable(map(self.split_word, words)))

    def split_word(self, word: str) -> list[str]:
        """Returns the pieces of a single word."""
        if len(word) > self.max_input_chars_per_word:
            return [self.unk_token]
        pieces = []
        start = 0
        while start < len(word):
            prefix = "##" if start else ""
            for end in range(min(len(word), start + self._longest), start, -1):
                piece = prefix + word[start:end]
                if piece in self.vocab:
                    break
            else:
                return [self.unk_token]
            pieces.append(piece)
            start = end
        return pieces


def _is_whitespace(char: str) -> bool:
    return char in "\t\n\r" or unicodedata.category(char) == "Zs"


def _is_control(char: str) -> bool:
    return char not in "\t\n\r" and unicodedata.category(char) in ("Cc", "Cf")


def _is_punctuation(char: str) -> bool:
    # All that is neither letter, digit nor space in ASCII counts, also `$`, `+` and the like, which
    # Unicode calls symbols.
    if char.isascii():
        return char.isprintable() and not char.isalnum() and char != " "
    return unicodedata.category(char).startswith("P")


def _clean(code: int) -> str:
    char = chr(code)
    if code in (0, 0xFFFD) or _is_control(char):
        return ""
    if _is_whitespace(char):
        return " "
    return f" {char} " if any(low <= code <= high for low, high in _CJK_RANGES) else char


def _split(code: int) -> str:
    char = chr(code)
    return f" {char} " if _is_punctuation(char) else _clean(code)


def _split_without_accents(code: int) -> str:
    return "" if unicodedata.category(chr(code)) == "Mn" else _split(code)


# Tables for `str.translate`, filled as characters are met.
_CLEANED = _Memo(_clean)
_SPLIT = _Memo(_split)
_SPLIT_WITHOUT_ACCENTS = _Memo(_split_without_accents)

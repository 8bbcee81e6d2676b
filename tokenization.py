"""Text to word pieces and their ids, exactly as in the original release (paper, section 3).

Two steps: `BasicTokenizer` cleans text and splits it at whitespace, punctuation and CJK characters;
`WordpieceTokenizer` splits each of the resulting words into the longest pieces of the vocabulary.
`FullTokenizer` does both, and caches the pieces of words.
"""

import os
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, count
from typing import Any, TypeVar

from bert.text.added_tokens import AddedToken, Finder
from bert.text.characters import CJK_RANGES, Memo, Vocabulary, Watched, tables
from bert.text.characters import is_control as _is_control
from bert.text.characters import is_punctuation as _is_punctuation
from bert.text.characters import is_whitespace as _is_whitespace
from bert.text.inputs import TextInputs
from bert.text.vocabulary import (  # noqa: F401
    UnknownTokenError,
    convert_by_vocab,
    load_vocab,
    pack,
    truncate_pair,
    validate_case_matches_checkpoint,  # as in the original
)

V = TypeVar("V")

# Control characters that are whitespace for `str.split`. The original deletes them, which joins the
# words on both sides.
_SPLITTING_CONTROLS = re.compile("[\x0b\x0c\x1c-\x1f\x85]")

_FREQUENT_MARKS = [(mark, f" {mark} ") for mark in ",.\"';-_“”’"]  # noqa: RUF001


def convert_to_unicode(text: str | bytes) -> str:
    """Returns `text` as `str`; bytes are decoded as UTF-8 without invalid bytes."""
    if isinstance(text, str):
        return text
    if isinstance(text, bytes):
        return text.decode("utf-8", "ignore")
    raise ValueError(f"Text must be `str` or `bytes`. Received {type(text).__name__}.")


def printable_text(text: str | bytes) -> str:
    """Returns `text` in the form that logs and prints take."""
    return convert_to_unicode(text)


def convert_tokens_to_ids(vocab: Mapping[str, int], tokens: Iterable[str]) -> list[int]:
    """Returns the id of each token."""
    return convert_by_vocab(vocab, tokens)


def convert_ids_to_tokens(inv_vocab: Mapping[int, str], ids: Iterable[int]) -> list[str]:
    """Returns the token of each id."""
    return convert_by_vocab(inv_vocab, ids)


def whitespace_tokenize(text: str) -> list[str]:
    """Splits `text` at Unicode whitespace."""
    return text.split()


class FullTokenizer(TextInputs, Watched):
    """Splits text into word pieces, and converts word pieces into ids.

    The pieces of a word depend on the word alone, so they are cached. The attributes may be changed
    or replaced at any time, `vocab` included; other classes of tokenizers disable the cache.

    Args:
      vocab_file: The argument of `load_vocab`.
      do_lower_case: Whether the model is uncased.
      strip_accents: Whether accents are removed; None to remove them for uncased models alone.
      tokenize_chinese_chars: Whether every CJK character is a word.
      added_tokens: Tokens that are not split where a text has them. Tokens that `vocab_file` lacks
        get the ids after its tokens.

    Attributes:
      vocab: The id of each token.
      inv_vocab: The token of each id.
      basic_tokenizer: Splits texts into words.
      wordpiece_tokenizer: Splits words into pieces.
      added_tokens: The argument.
    """

    added_tokens: tuple[AddedToken, ...] = ()

    # The cache; None where nothing may be cached.
    _pieces: Memo | None = None
    _ids: Memo | None = None
    _finders: tuple[Finder, Finder] | None = None
    _seen = -1
    _known: object = None

    def __init__(
        self,
        vocab_file: str | bytes | os.PathLike[str] | Iterable[bytes],
        do_lower_case: bool = True,
        **options: Any,
    ):
        self._set_up(load_vocab(vocab_file), do_lower_case, **options)

    @classmethod
    def from_vocab(
        cls, vocab: Mapping[str, int], do_lower_case: bool = True, **options: Any
    ) -> "FullTokenizer":
        """Returns a tokenizer for a vocabulary that is already in memory."""
        tokenizer = cls.__new__(cls)
        tokenizer._set_up(vocab, do_lower_case, **options)
        return tokenizer

    def _set_up(
        self,
        vocab: Mapping[str, int],
        do_lower_case: bool,
        *,
        strip_accents: bool | None = None,
        tokenize_chinese_chars: bool = True,
        added_tokens: Iterable[AddedToken] = (),
    ) -> None:
        if "[UNK]" not in vocab:
            raise ValueError(
                "The vocabulary must hold '[UNK]', the token of unknown words. Received "
                f"{len(vocab)} tokens from {next(iter(vocab), None)!r} on."
            )
        self.added_tokens = tuple(added_tokens)
        pieces = self.vocab = Vocabulary(vocab)
        # Words are not split into added tokens.
        contents = [token.content for token in self.added_tokens]
        if lacking := [content for content in contents if content not in vocab]:
            numbers = count(max(vocab.values()) + 1)
            added = dict(zip(dict.fromkeys(lacking), numbers, strict=False))
            self.vocab = Vocabulary(pieces | added)
        self.inv_vocab = {index: token for token, index in self.vocab.items()}
        self.basic_tokenizer = BasicTokenizer(
            do_lower_case,
            strip_accents=strip_accents,
            tokenize_chinese_chars=tokenize_chinese_chars,
        )
        self.wordpiece_tokenizer = WordpieceTokenizer(pieces)

    @property
    def is_standard(self) -> bool:
        """Whether the tokenizers are those of this module, with none of their methods replaced."""
        basic, wordpiece = self.basic_tokenizer, self.wordpiece_tokenizer
        return (
            _is_unchanged(basic, BasicTokenizer)
            and _is_unchanged(wordpiece, WordpieceTokenizer)
            and isinstance(wordpiece.vocab, Vocabulary)
            and isinstance(self.vocab, Vocabulary)
        )

    @property
    def added_finders(self) -> tuple[Finder, Finder]:
        """The finders of added tokens in texts as they are given, and in cleaned texts."""
        normalize = getattr(self.basic_tokenizer, "normalize", convert_to_unicode)
        return (
            Finder(token for token in self.added_tokens if not token.normalized),
            Finder((token for token in self.added_tokens if token.normalized), normalize),
        )

    def _look_again(self) -> None:
        """Clears the cache where an attribute that it depends on has changed."""
        # Other threads may tokenize meanwhile: `_seen` is set last.
        seen = Watched.changes
        known: object = None
        if self.is_standard:
            basic, wordpiece = self.basic_tokenizer, self.wordpiece_tokenizer
            both = (self.vocab, wordpiece.vocab)
            vocabs = [(id(vocab), vars(vocab).get("changes")) for vocab in both]
            casing = (basic.do_lower_case, basic.strip_accents, basic.tokenize_chinese_chars)
            known = (vocabs, casing, wordpiece.unk_token, self.added_tokens)
            known = (known, wordpiece.max_input_chars_per_word, _is_unchanged(self, FullTokenizer))
            if known == self._known:
                self.__dict__["_seen"] = seen
                return
        finders = self.added_finders if self.added_tokens else None
        pieces, ids = (None, None) if known is None else self._memos()
        self.__dict__.update(_known=known, _pieces=pieces, _ids=ids, _finders=finders, _seen=seen)

    def _memos(self) -> tuple[Memo, Memo | None]:
        """Returns caches of the pieces and of the ids of words."""
        # Most words are pieces. The pieces of others are cached, and those of all as written.
        vocab, wordpiece = self.vocab, self.wordpiece_tokenizer
        fits = wordpiece.max_input_chars_per_word
        split_pieces = Memo(wordpiece.split_word)
        split_ids = Memo(lambda word: convert_by_vocab(vocab, wordpiece.split_word(word)))
        whole_pieces = {token: token for token in wordpiece.vocab if len(token) <= fits}
        whole_ids = {token: vocab[token] for token in whole_pieces if token in vocab}
        pieces = Memo(lambda text: self._split(text, whole_pieces, split_pieces))
        if not _is_unchanged(self, FullTokenizer):
            return pieces, None
        return pieces, Memo(lambda text: self._split(text, whole_ids, split_ids))

    def _split(self, text: str, whole: Mapping[str, V], split: Memo) -> tuple[V, ...]:
        if text.isascii() and text.isalnum():
            # The text is a single clean word.
            word = text.lower() if self.basic_tokenizer.do_lower_case else text
            return (whole[word],) if word in whole else tuple(split.compute(word))
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
        if self._seen != Watched.changes:
            self._look_again()
        if self._pieces is None or self._finders is not None:
            return self._tokenize_parts(text)
        return list(chain.from_iterable(map(self._pieces.__getitem__, _words(text))))

    def tokenize_to_ids(self, text: str | bytes) -> list[int]:
        """Returns the ids of the word pieces of `text`, faster than two calls."""
        if self._seen != Watched.changes:
            self._look_again()
        if self._ids is None or self._finders is not None:
            return self.convert_tokens_to_ids(self.tokenize(text))
        return list(chain.from_iterable(map(self._ids.__getitem__, _words(text))))

    def tokenize_lines_to_ids(self, lines: Sequence[str]) -> tuple[Any, Any]:
        """Returns the ids of many lines in one array, and the number of ids of each line."""
        from bert.text import bulk  # noqa: PLC0415 (tokenizing line by line needs no numpy)

        lines = [*map(convert_to_unicode, [lines] if isinstance(lines, str | bytes) else lines)]
        if self._seen != Watched.changes:
            self._look_again()
        if self._ids is None or self._finders is not None:
            return bulk.join(map(self.tokenize_to_ids, lines))
        lower = self.basic_tokenizer.do_lower_case
        return bulk.tokenize(lines, lower, self._ids, self.tokenize_to_ids)

    def _tokenize_parts(self, text: str | bytes) -> list[str]:
        """Tokenizes a text that may have added tokens."""
        pieces: list[str] = []
        for part, token in self.cut(convert_to_unicode(text)):
            if token is not None:
                pieces.append(token.content)
            elif self._pieces is not None and not self._is_unstable(part):
                pieces += chain.from_iterable(map(self._pieces.__getitem__, _words(part)))
            elif self._pieces is not None:
                for word in self.basic_tokenizer.split(part):
                    pieces += self.wordpiece_tokenizer.split_word(word)
            else:
                for word in self.basic_tokenizer.tokenize(part):
                    pieces += self.wordpiece_tokenizer.tokenize(word)
        return pieces

    def _is_unstable(self, part: str) -> bool:
        """Returns whether cleaning would change a text that is clean already.

        Without the marks that cleaning drops, the marks around them may be reordered.
        """
        is_clean = self._finders is not None and self._finders[1].tokens
        strips = self.basic_tokenizer.strips_accents
        return bool(is_clean and strips and not unicodedata.is_normalized("NFD", part))

    def cut(self, text: str) -> Iterator[tuple[str, AddedToken | None]]:
        """Yields the parts of a text, and the added token or None for each part."""
        if self._finders is None:
            yield text, None
            return
        verbatim, normalized = self._finders
        for part, token in verbatim.cut(text):
            if token is None and normalized.tokens:
                yield from normalized.cut(normalized.normalize(part))
            else:
                yield part, token

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
    # Words without marks recur more often. But the lower case of a sigma, alone among the letters,
    # depends on its surroundings, marks included.
    if "\N{GREEK CAPITAL LETTER SIGMA}" not in text:
        for mark, apart in _FREQUENT_MARKS:
            text = text.replace(mark, apart)
    return split_at_spaces(text)


def split_at_spaces(text: str) -> list[str]:
    """Splits `text` where the original finds whitespace after its cleaning."""
    if _SPLITTING_CONTROLS.search(text):
        text = _SPLITTING_CONTROLS.sub("", text)
    return text.split()


class BasicTokenizer(Watched):
    """Cleans text, and splits it at whitespace, punctuation and around CJK characters.

    The steps have the original's names: a subclass may override a step. Where none is overridden,
    all steps are done at once.

    Args:
      do_lower_case: Whether the model is uncased.
      strip_accents: Whether accents are removed; None to remove them for uncased models alone.
      tokenize_chinese_chars: Whether every CJK character is a word.
    """

    strip_accents: bool | None = None
    tokenize_chinese_chars = True

    _seen = -1
    _in_steps = _strips = False
    _tables: tuple[Memo, Memo]

    def __init__(
        self,
        do_lower_case: bool = True,
        *,
        strip_accents: bool | None = None,
        tokenize_chinese_chars: bool = True,
    ):
        self.do_lower_case = do_lower_case
        self.strip_accents = strip_accents
        self.tokenize_chinese_chars = tokenize_chinese_chars

    @property
    def strips_accents(self) -> bool:
        """Whether accents are removed."""
        return bool(self.do_lower_case if self.strip_accents is None else self.strip_accents)

    def tokenize(self, text: str | bytes) -> list[str]:
        """Returns the words of `text`, lower-cased and without accents for uncased models."""
        if not isinstance(text, str):
            text = convert_to_unicode(text)
        if self._seen != Watched.changes:
            self._look_again()
        if self._in_steps:
            return self._tokenize_in_steps(text)
        return self._fold(text).translate(self._tables[1]).split()

    def _look_again(self) -> None:
        self.__dict__.update(
            _seen=Watched.changes,
            _in_steps=not _is_unchanged(self, BasicTokenizer),
            _strips=self.strips_accents,
            _tables=tables(self.strips_accents, self.tokenize_chinese_chars),
        )

    def _fold(self, text: str) -> str:
        lower, strips = self.do_lower_case, self._strips
        # Splitting cleans ASCII texts.
        if text.isascii() or not (lower or strips):
            return text.lower() if lower else text
        # Cleaning comes first: it may move a sigma to the end of a word, with another lower case.
        text = text.translate(self._tables[0])
        text = text.lower() if lower else text
        return unicodedata.normalize("NFD", text) if strips else text

    def normalize(self, text: str) -> str:
        """Returns the text before it is split: clean, and without case and accents."""
        strips = self.strips_accents
        # Splitting replaces these separators otherwise.
        text = text.replace("\u2028", " ").replace("\u2029", " ")
        text = text.translate(tables(strips, self.tokenize_chinese_chars)[0])
        text = text.lower() if self.do_lower_case else text
        if not strips:
            return text
        marked = unicodedata.normalize("NFD", text)
        return "".join(char for char in marked if unicodedata.category(char) != "Mn")

    def split(self, text: str) -> list[str]:
        """Returns the words of a text that `normalize` returned."""
        return text.translate(tables(self.strips_accents, self.tokenize_chinese_chars)[1]).split()

    def _tokenize_in_steps(self, text: str) -> list[str]:
        text = self._clean_text(text)
        if self.tokenize_chinese_chars:
            text = self._tokenize_chinese_chars(text)
        words: list[str] = []
        for word in whitespace_tokenize(text):
            folded = word.lower() if self.do_lower_case else word
            if self.strips_accents:
                folded = self._run_strip_accents(folded)
            words += self._run_split_on_punc(folded)
        return whitespace_tokenize(" ".join(words))

    def _clean_text(self, text: str) -> str:
        return "".join(
            " " if _is_whitespace(char) else char
            for char in text
            if char not in "\0\ufffd" and not _is_control(char)
        )

    def _tokenize_chinese_chars(self, text: str) -> str:
        return "".join(f" {c} " if self._is_chinese_char(ord(c)) else c for c in text)

    def _is_chinese_char(self, cp: int) -> bool:
        return any(low <= cp <= high for low, high in CJK_RANGES)

    def _run_strip_accents(self, text: str) -> str:
        marked = unicodedata.normalize("NFD", text)
        return "".join(char for char in marked if unicodedata.category(char) != "Mn")

    def _run_split_on_punc(self, text: str) -> list[str]:
        return "".join(f" {c} " if _is_punctuation(c) else c for c in text).split(" ")


class WordpieceTokenizer(Watched):
    """Splits words into pieces of the vocabulary, always the longest one that fits."""

    _seen = -1
    _longest: int | None = None
    _known: object = None
    _lookup: Mapping[str, int]

    def __init__(
        self,
        vocab: Mapping[str, int],
        unk_token: str = "[UNK]",
        max_input_chars_per_word: int = 200,
    ):
        self.vocab = vocab
        self.unk_token = unk_token
        self.max_input_chars_per_word = max_input_chars_per_word

    def tokenize(self, text: str | bytes) -> list[str]:
        """Returns the pieces of words that `BasicTokenizer` returned, such as `un ##aff ##able`.

        A word that cannot be split, or has too many characters, becomes `unk_token`.
        """
        words = whitespace_tokenize(convert_to_unicode(text))
        return list(chain.from_iterable(map(self.split_word, words)))

    def split_word(self, word: str) -> list[str]:
        """Returns the pieces of a single word."""
        if len(word) > self.max_input_chars_per_word:
            return [self.unk_token]
        if self._seen != Watched.changes:
            self._look_again()
        vocab, pieces, rest, mark = self._lookup, [], word, 0
        while rest:
            piece = rest[: self._longest]
            while len(piece) > mark and piece not in vocab:
                piece = piece[:-1]
            if len(piece) <= mark:
                return [self.unk_token]
            pieces.append(piece)
            rest = rest[len(piece) :]
            if rest:
                rest, mark = f"##{rest}", 2
        return pieces

    def _look_again(self) -> None:
        seen, vocab = Watched.changes, self.vocab
        known = (id(vocab), len(vocab), getattr(vocab, "changes", 0))
        if known == self._known:
            self.__dict__["_seen"] = seen
            return
        self.__dict__.update(
            _seen=seen,
            _known=known,
            # Changes of other vocabularies are not counted.
            _longest=max(map(len, vocab), default=0) if isinstance(vocab, Vocabulary) else None,
            # A plain dictionary is faster.
            _lookup=dict(vocab) if isinstance(vocab, Vocabulary) else vocab,
        )


# The methods that decide on tokens.
_METHODS = {
    kind: {name: vars(kind)[name] for name in names.split()}
    for kind, names in {
        BasicTokenizer: (
            "tokenize normalize _clean_text _tokenize_chinese_chars _is_chinese_char "
            "_run_strip_accents _run_split_on_punc"
        ),
        WordpieceTokenizer: "tokenize split_word",
        FullTokenizer: "tokenize tokenize_to_ids convert_tokens_to_ids",
    }.items()
}


def _is_unchanged(tokenizer: object, kind: type) -> bool:
    """Returns whether a tokenizer is of a class and overrides none of its methods."""
    if not isinstance(tokenizer, kind):
        return False
    own, its = vars(tokenizer), type(tokenizer)
    return not any(
        name in own or getattr(its, name) is not method for name, method in _METHODS[kind].items()
    )

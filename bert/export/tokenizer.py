"""The tokenizer as a TensorFlow graph, so that a saved model takes text (paper, section 3).

Every character is looked up in tables that are computed from `tokenization` and from Python's own
Unicode data when a `GraphTokenizer` is made. So the pieces are those of the `FullTokenizer` that it
was made from, wherever the graph runs later: neither ICU's tables nor a locale have a say.

Dimension key: `B` texts, `C` characters, `W` words, `P` pieces, `S` sequence.
"""

import functools
import unicodedata
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

import tokenization
from bert.export.formats import CORE
from bert.export.tokenizer_parts import CharacterTable, GraphFinder, GraphWordpiece, tabulate
from bert.text import characters

Tensor = Any

# In a table: what becomes of the character depends on those around it.
_DEPENDS = -2

_CAPITAL_SIGMA = "\N{GREEK CAPITAL LETTER SIGMA}"
_FINAL_SIGMA = "\N{GREEK SMALL LETTER FINAL SIGMA}"
_SMALL_SIGMA = "\N{GREEK SMALL LETTER SIGMA}"

# What a character is to a capital sigma near it.
_OTHER, _CASED, _SIGMA = range(3)

_WORD_SEPARATORS = " \t\r\n\N{NARROW NO-BREAK SPACE}"


@functools.cache
def _tables(
    lower: bool, strips: bool, chinese: bool, in_steps: bool
) -> dict[str, tuple[np.ndarray, ...]]:
    """Returns the steps of a tokenizer, and `all` of them for most characters.

    Those that nothing depends on are left out, unless `in_steps`.
    """
    clean = functools.partial(characters.clean, chinese=chinese)
    split = functools.cache(functools.partial(characters.split, strips=strips, chinese=chinese))

    def fold(char: str) -> str:
        folded = clean(char).lower() if lower else clean(char)
        return unicodedata.normalize("NFD", folded) if strips else folded

    def fold_and_split(char: str) -> Sequence[int]:
        folded = fold(char)
        if (lower and char == _CAPITAL_SIGMA) or (strips and any(map(_changes_place, folded))):
            return [_DEPENDS]
        return _codes("".join(map(split, folded)))

    made: dict[str, Callable[[str], Sequence[int]]] = {"all": fold_and_split}
    if lower:
        made["context"] = _sigma_context
    if strips:
        made["combining"] = lambda char: [unicodedata.combining(char)]
    if lower or strips or in_steps:
        made["fold"] = lambda char: _codes(fold(char))
        made["split"] = lambda char: _codes(split(char))
    if strips and in_steps:
        made["unmark"] = lambda char: [] if unicodedata.category(char) == "Mn" else [ord(char)]
    return {name: tabulate(replace) for name, replace in made.items()}


def _codes(text: str) -> list[int]:
    # Whatever `str.split` splits at becomes a space: `tf.strings.split` knows ASCII alone.
    return [32 if char.isspace() else ord(char) for char in text]


def _changes_place(char: str) -> bool:
    """Returns whether canonical ordering can be seen: most marks that it moves are dropped."""
    return unicodedata.combining(char) > 0 and unicodedata.category(char) != "Mn"


def _sigma_context(char: str) -> Sequence[int]:
    """Returns what `str.lower` takes the character for, once cleaned; nothing if it looks past."""
    if char == _CAPITAL_SIGMA:
        return [_SIGMA]
    if not characters.clean(char, chinese=False):
        return []
    if (char + _CAPITAL_SIGMA).lower().endswith(_FINAL_SIGMA):
        return [_CASED]
    looks_past = ("A" + char + _CAPITAL_SIGMA).lower().endswith(_FINAL_SIGMA)
    return [] if looks_past else [_OTHER]


class GraphTokenizer(tf.Module):
    """Does in a graph what a `FullTokenizer` does.

    Bytes that are not UTF-8 are dropped, as there. The vocabulary and the tables, of half a
    megabyte, become constants of the graph.

    Args:
      tokenizer: Whose vocabulary and casing to take.
      wordpiece: Whose operations cut words into pieces, one of `WORDPIECES`.

    Attributes:
      source: The tokenizer that was given.
    """

    def __init__(self, tokenizer: tokenization.FullTokenizer, wordpiece: str = CORE) -> None:
        super().__init__()
        if not tokenizer.is_standard:
            raise ValueError(
                "`tokenizer` must be made of this project's `BasicTokenizer` and "
                "`WordpieceTokenizer` to go into a graph, with no method replaced. Received "
                f"{tokenizer.basic_tokenizer!r} and {tokenizer.wordpiece_tokenizer!r}."
            )
        self.source = tokenizer
        basic = tokenizer.basic_tokenizer
        self._lower = bool(basic.do_lower_case)
        self._strips = basic.strips_accents
        added, normalized = tokenizer.added_finders
        chinese = bool(basic.tokenize_chinese_chars)
        tables = _tables(self._lower, self._strips, chinese, bool(normalized.tokens))
        with tf.device("/CPU:0"):
            self._tables = {name: CharacterTable(arrays) for name, arrays in tables.items()}
            ids = tokenizer.vocab
            pieces = tokenizer.wordpiece_tokenizer
            self._wordpiece = _wordpiece_class(wordpiece)(
                {token: ids[token] for token in pieces.vocab},
                pieces.unk_token,
                pieces.max_input_chars_per_word,
            )
            self._added = GraphFinder(added, ids) if added.tokens else None
            self._normalized = GraphFinder(normalized, ids) if normalized.tokens else None
        self._cls_id, self._sep_id = tokenizer.convert_tokens_to_ids(["[CLS]", "[SEP]"])

    def tokenize(self, texts: Tensor) -> tf.RaggedTensor:
        """Returns the ids of the word pieces of each text.

        Args:
          texts: string [B].

        Returns:
          int32 [B, (P)].
        """
        with tf.device("/CPU:0"):
            if self._added is None and self._normalized is None:
                return self._pieces(self.split(texts)).merge_dims(1, 2)
            codes = tf.strings.unicode_decode(texts, "UTF-8", errors="ignore")
            codes = codes.with_row_splits_dtype(tf.int32)
            tokenize = self._tokenize_codes
            if self._normalized is not None:
                tokenize = self._tokenize_normalized
            return self._added.tokenize(codes, tokenize) if self._added else tokenize(codes)

    def _tokenize_codes(self, codes: tf.RaggedTensor) -> tf.RaggedTensor:
        """Returns ids, int32 [B, (P)], of texts of code points, int32 [B, (C)]."""
        return self._pieces(self._split_codes(_with_spaces(codes))).merge_dims(1, 2)

    def _tokenize_normalized(self, codes: tf.RaggedTensor) -> tf.RaggedTensor:
        """Does so with the added tokens that are found in cleaned text."""

        def tokenize(parts: tf.RaggedTensor) -> tf.RaggedTensor:
            split = self._tables["split"].translate(_with_spaces(parts))
            return self._pieces(_words(split)).merge_dims(1, 2)

        assert self._normalized is not None
        folded = self._fold(_with_spaces(codes))[:, :-1]
        folded = self._tables["unmark"].translate(folded) if self._strips else folded
        return self._normalized.tokenize(folded, tokenize)

    def split(self, texts: Tensor) -> tf.RaggedTensor:
        """Returns the words of texts, string [B], as `BasicTokenizer` has them, string [B, (W)]."""
        # A space keeps the texts apart where neighbouring characters matter. What is no character
        # becomes U+FFFD, which the tables drop.
        codes = tf.strings.unicode_decode(tf.strings.join([texts, " "]), "UTF-8", errors="replace")
        return self._split_codes(codes.with_row_splits_dtype(tf.int32))

    def _split_codes(self, codes: tf.RaggedTensor) -> tf.RaggedTensor:
        """Returns words, string [B, (W)], of texts that end with a space, int32 [B, (C)]."""
        done = self._tables["all"].translate(codes)
        if self._lower or self._strips:
            done = tf.cond(
                tf.reduce_any(done.values == _DEPENDS),
                lambda: self._tables["split"].translate(self._fold(codes)),
                lambda: done,
            )
        return _words(done)

    def tokenize_words(
        self, texts: Tensor
    ) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
        """Splits texts at whitespace as question answering does, and the words into pieces.

        Whitespace is space, tab, line feed, carriage return and U+202F (original: run_squad.py,
        read_squad_examples).

        Args:
          texts: string [B].

        Returns:
          The words, string [B, (W)]; the number of the character at which each begins, int32
          [B, (W)]; and the ids of its pieces, int32 [B, (W), (P)].
        """
        with tf.device("/CPU:0"):
            codes = tf.strings.unicode_decode(
                tf.strings.join([texts, " "]), "UTF-8", errors="ignore"
            )
            words, starts = _split_at_separators(codes)
            words = words.with_values(tf.strings.unicode_encode(words.values, "UTF-8"))
            return words, starts, words.with_values(self.tokenize(words.values))

    def pack(
        self,
        a: tf.RaggedTensor,
        b: tf.RaggedTensor | None = None,
        *,
        max_seq_length: int,
        always_pair: bool = False,
    ) -> dict[str, Tensor]:
        """Returns the features of `[CLS] a [SEP] (b [SEP])`, as `tokenization.pack` makes them.

        They are padded to the longest of the batch, which may be shorter than `max_seq_length`.

        Args:
          a: ids, int32 [B, (P)].
          b: ids, int32 [B, (P)]; a text without any counts as absent.
          max_seq_length: where to cut, in tokens, with specials.
          always_pair: whether a `b` without any has its `[SEP]` all the same.

        Returns:
          `input_ids`, `input_mask` and `segment_ids`, int32 [B, S].
        """
        least = 2 if b is None else 3
        if max_seq_length < least:
            raise ValueError(
                f"`max_seq_length` must be at least {least}, for the special tokens. Received "
                f"{max_seq_length}."
            )
        b = a[:, :0] if b is None else b
        with tf.device("/CPU:0"):
            is_pair = (b.row_lengths() > 0) | always_pair
            a, b = _truncate_pair(a, b, max_seq_length - tf.where(is_pair, 3, 2))
            # Where there is little room, nothing may be left of `b`.
            ends = tf.where((b.row_lengths() > 0) | always_pair, 1, 0)
            ends = tf.RaggedTensor.from_tensor(_column(self._sep_id, b.nrows()), lengths=ends)
            cls, sep = (_column(value, a.nrows()) for value in (self._cls_id, self._sep_id))
            first = tf.concat([cls, a, sep], 1)
            return _pad(first, tf.concat([b, ends], 1))

    def _fold(self, codes: tf.RaggedTensor) -> tf.RaggedTensor:
        """Takes the steps before splitting one by one, with an eye on the neighbours."""
        codes = self._lower_sigmas(codes) if self._lower else codes
        folded = self._tables["fold"].translate(codes)
        return self._order_marks(folded) if self._strips else folded

    def _lower_sigmas(self, codes: tf.RaggedTensor) -> tf.RaggedTensor:
        """Lowers capital sigmas: to the final form behind a cased letter and before none."""
        context = self._tables["context"].translate(codes).values
        cased = tf.pad(context != _OTHER, [[1, 1]])
        final = tf.boolean_mask(cased[:-2] & ~cased[2:], context == _SIGMA)
        return codes.with_values(
            tf.tensor_scatter_nd_update(
                codes.values,
                tf.where(codes.values == ord(_CAPITAL_SIGMA)),
                tf.where(final, ord(_FINAL_SIGMA), ord(_SMALL_SIGMA)),
            )
        )

    def _order_marks(self, codes: tf.RaggedTensor) -> tf.RaggedTensor:
        """Sorts each run of combining characters by their class, as normal forms ask for."""
        classes = tf.cast(self._tables["combining"].translate(codes).values, tf.int64)
        runs = tf.cumsum(tf.cast(classes == 0, tf.int64))
        order = tf.argsort(runs * 256 + classes, stable=True)
        return codes.with_values(tf.gather(codes.values, order))

    def _pieces(self, words: tf.RaggedTensor) -> tf.RaggedTensor:
        """Returns the ids of the pieces of words, int32 [B, (W), (P)]."""
        pieces = self._wordpiece.tokenize(words.values)
        return words.with_values(pieces.with_row_splits_dtype(words.row_splits.dtype))


def _wordpiece_class(wordpiece: str) -> Any:
    if wordpiece == CORE:
        return GraphWordpiece
    # The package is loaded by whom it serves alone.
    from bert.export.text_wordpiece import TextWordpiece  # noqa: PLC0415

    return TextWordpiece


def _with_spaces(codes: tf.RaggedTensor) -> tf.RaggedTensor:
    """Returns texts with a space behind each, int32 [B, (C)]."""
    spaces = _column(ord(" "), codes.nrows())
    return tf.concat([codes, tf.RaggedTensor.from_tensor(spaces, row_splits_dtype=tf.int32)], 1)


def _words(codes: tf.RaggedTensor) -> tf.RaggedTensor:
    return tf.strings.split(tf.strings.unicode_encode(codes, "UTF-8"))


def _split_at_separators(codes: tf.RaggedTensor) -> tuple[tf.RaggedTensor, tf.RaggedTensor]:
    """Returns words, int32 [B, (W), (C)], and where they begin, of texts that end with a space."""
    is_space = tf.reduce_any([codes.values == ord(char) for char in _WORD_SEPARATORS], 0)
    padded = tf.pad(is_space, [[1, 1]], constant_values=True)
    begins = tf.where(~is_space & padded[:-2])[:, 0]
    ends = tf.where(~is_space & padded[2:])[:, 0] + 1
    letters = tf.RaggedTensor.from_row_lengths(
        tf.boolean_mask(codes.values, ~is_space), ends - begins, validate=False
    )
    words = tf.RaggedTensor.from_row_splits(
        letters, tf.searchsorted(begins, codes.row_splits, out_type=tf.int64), validate=False
    )
    starts = begins - tf.gather(codes.row_starts(), words.value_rowids())
    return words, words.with_values(tf.cast(starts, tf.int32))


def _column(value: int, rows: Tensor) -> Tensor:
    return tf.fill([rows, 1], value)


def _pad(first: tf.RaggedTensor, second: tf.RaggedTensor) -> dict[str, Tensor]:
    """Returns the features of two segments, int32 [B, (P)] each."""
    ids = tf.concat([first, second], 1)
    # An empty batch still has room for [CLS] and [SEP]: a model looks at the first token.
    length = tf.maximum(tf.reduce_max(ids.row_lengths()), 2)
    mask = tf.sequence_mask(ids.row_lengths(), length, tf.int32)
    return {
        # Faithful: the padding is 0, whatever the id of [PAD].
        "input_ids": ids.to_tensor(shape=tf.stack([ids.nrows(), length])),
        "input_mask": mask,
        "segment_ids": mask - tf.sequence_mask(first.row_lengths(), length, tf.int32),
    }


def _truncate_pair(
    a: tf.RaggedTensor, b: tf.RaggedTensor, budget: Tensor
) -> tuple[tf.RaggedTensor, tf.RaggedTensor]:
    """Cuts both as `tokenization.truncate_pair` does, to a budget for each row."""
    budget = tf.cast(budget, tf.int64)
    half = budget // 2
    return (
        _first(a, tf.maximum(budget - b.row_lengths(), budget - half)),
        _first(b, tf.maximum(budget - a.row_lengths(), half)),
    )


def _first(ids: tf.RaggedTensor, counts: Tensor) -> tf.RaggedTensor:
    """Returns the first `counts` of each row."""
    numbers = tf.ragged.range(ids.row_lengths()).values
    kept = numbers < tf.repeat(counts, ids.row_lengths())
    return tf.ragged.boolean_mask(ids, ids.with_values(kept))

"""Tokenizes many lines at once, which is faster than line by line where most lines are ASCII.

NumPy finds the words and the equal words among them, so that each word is looked up once.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain

import numpy as np

from bert.text.characters import is_punctuation

# Words are compared as numbers of 8 bytes, longer words as texts of 16 bytes. Even longer words are
# looked up one by one.
_SHORT, _LONG = 8, 16
_FIRST_BYTES = np.array([(1 << 8 * count) - 1 for count in range(_SHORT + 1)], "<u8")

# Replaces a line with characters outside of ASCII.
_OTHER = "\0"

# The kinds of bytes: space, part of a word, or a word by itself.
_SPACE, _PART, _WORD = range(3)
_KINDS = np.array(
    [
        _PART if char.isalnum() else _WORD if is_punctuation(char) or char == _OTHER else _SPACE
        for char in map(chr, range(128))
    ],
    np.uint8,
)


def tokenize(
    lines: Sequence[str],
    lower: bool,
    word_ids: Mapping[str, Sequence[int]],
    tokenize_to_ids: Callable[[str], Sequence[int]],
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the concatenated ids of all lines, and the number of ids of each line.

    Args:
      lines: The lines.
      lower: Whether words are lower-cased.
      word_ids: The ids of a word of ASCII letters and digits, or of a punctuation mark.
      tokenize_to_ids: Returns the ids of a line with other characters.
    """
    shown = [line if line.isascii() and line.isprintable() else _OTHER for line in lines]
    others = (line for line, seen in zip(lines, shown, strict=True) if seen == _OTHER)
    text = "\n".join([*shown, ""])
    if lower:
        text = text.lower()
    # A byte before every word, and as many bytes after it as are compared.
    content = b"\n%b%b" % (text.encode(), bytes(_LONG))
    codes = np.frombuffer(content, np.uint8)[:-_LONG]
    starts, stops = _find_words(codes)
    words, numbers = _number_words(content, starts, stops)
    ids, counts = join(
        [tokenize_to_ids(next(others)) if word == _OTHER else word_ids[word] for word in words]
    )
    ends = np.append(0, np.cumsum(counts[numbers]))
    # The position of each word's ids among the ids of distinct words.
    shifts = (np.cumsum(counts) - counts)[numbers] - ends[:-1]
    places = np.arange(ends[-1]) + np.repeat(shifts, counts[numbers])
    line_ends = np.searchsorted(starts, np.flatnonzero(codes == ord("\n")))
    return ids[places], np.diff(ends[line_ends])


def join(parts: Iterable[Sequence[int]]) -> tuple[np.ndarray, np.ndarray]:
    """Returns the concatenated numbers of all parts, and the length of each part."""
    parts = list(parts)
    counts = np.fromiter(map(len, parts), np.int64, len(parts))
    return np.fromiter(chain.from_iterable(parts), np.int64, counts.sum()), counts


def _find_words(codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the starts and the ends of words; the first and last byte must be spaces."""
    kinds = _KINDS[codes]
    is_part, is_first = kinds == _PART, kinds == _WORD
    is_last = is_first.copy()
    is_first[1:] |= is_part[1:] > is_part[:-1]
    is_last[:-1] |= is_part[:-1] > is_part[1:]
    return np.flatnonzero(is_first), np.flatnonzero(is_last) + 1


def _number_words(
    content: bytes, starts: np.ndarray, stops: np.ndarray
) -> tuple[list[str], np.ndarray]:
    """Returns words, and for each word of the content its number among them.

    Words beyond `_LONG` and `_OTHER` are repeated for each occurrence, in order.
    """
    lengths = stops - starts
    following = np.ndarray(len(content) - _SHORT + 1, "<u8", content, strides=(1,))
    values = np.empty((len(starts), 2), "<u8")
    for index, shift in enumerate((0, _SHORT)):
        sizes = np.clip(lengths - shift, 0, _SHORT)
        values[:, index] = following[starts + shift] & _FIRST_BYTES[sizes]
    is_other = values[:, 0] == ord(_OTHER)
    is_short = (lengths <= _SHORT) & ~is_other
    is_long = (lengths > _SHORT) & (lengths <= _LONG)
    numbers = np.empty(len(starts), np.int64)
    words: list[str] = []
    for chosen, keys in (
        (is_short, values[is_short, 0]),
        (is_long, values[is_long].view(f"S{_LONG}").ravel()),
    ):
        distinct, places = np.unique(keys, return_inverse=True)
        numbers[chosen] = places + len(words)
        width = distinct.dtype.itemsize
        words += [word.decode() for word in distinct.view(f"S{width}").tolist()]
    rest = np.flatnonzero(~(is_short | is_long))
    numbers[rest] = np.arange(len(words), len(words) + len(rest))
    bounds = zip(starts[rest].tolist(), stops[rest].tolist(), strict=True)
    words += [content[start:stop].decode() for start, stop in bounds]
    return words, numbers

"""Reads and writes word vectors in the text formats of word2vec and GloVe."""

import codecs
import dataclasses
import functools
import warnings
from collections.abc import Iterator, Sequence
from typing import BinaryIO

import numpy as np

from bert.files.display import Progress
from bert.files.paths import file_size, match_file, read_lines
from bert.log import logger
from bert.options import MessageError, Option, OptionError

# The entry for unknown words in files of GloVe and others.
UNKNOWN = "<unk>"

_OPTION = "word_vectors"


@dataclasses.dataclass(frozen=True)
class WordVectors:
    """Words with their vectors.

    Attributes:
      words: The words, which are distinct and have no whitespace.
      values: The vectors in the order of the words: float32 [N, D].
    """

    words: Sequence[str]
    values: np.ndarray

    @functools.cached_property
    def rows(self) -> dict[str, int]:
        """The row of each word."""
        return {word: row for row, word in enumerate(self.words)}

    @property
    def unknown(self) -> np.ndarray:
        """The vector of unknown words, float32 [D]: the vector of `<unk>`, or the mean."""
        row = self.rows.get(UNKNOWN)
        return self.values.mean(axis=0) if row is None else self.values[row]

    def find(self, word: str) -> int | None:
        """Returns the row of a word, or of its lower case, or None."""
        row = self.rows.get(word)
        return self.rows.get(word.lower()) if row is None else row


def write_word_vectors(file: BinaryIO, vectors: WordVectors) -> None:
    """Writes vectors in word2vec's text format: `N D`, then a line a word, with six digits."""
    count, width = vectors.values.shape
    file.write(f"{count} {width}\n".encode())
    form = " ".join(["%.6g"] * width)
    for word, values in zip(vectors.words, vectors.values, strict=True):
        file.write(f"{word} {form % tuple(values.tolist())}\n".encode())


def read_word_vectors(path: str) -> WordVectors:
    """Returns the vectors in a text file of word2vec, or of GloVe, which has no header.

    If a word is there twice, its first vector counts. Words with whitespace are skipped, since a
    text is split there.

    Args:
      path: A file, plain or gzip; the option `word_vectors` of scripts.

    Raises:
      ValueError: where there is no such file, or more than one; where a line is no word with as
        many finite numbers as the first line, or their number is not the header's.
    """
    path = match_file(path, _OPTION)
    header, width = _read_head(path)
    words: dict[str, int] = {}
    rows: list[np.ndarray] = []
    num_left_out, has_header = 0, header is not None
    for number, line in _lines(path, has_header=has_header):
        word, values = _split(line, width, has_header=has_header)
        if values is None or len(values) != width or not np.isfinite(values).all():
            raise MessageError(
                "%r, line %s: must have a word and its %s finite numbers, as the first. Received "
                "%r. %s takes the text form of word2vec or GloVe.",
                path,
                number,
                width,
                line[:60],
                Option(_OPTION),
            )
        if word in words or word.split() != [word]:
            num_left_out += 1
            continue
        words[word] = len(rows)
        rows.append(values)
    count = len(rows) + num_left_out
    if has_header and header != count:
        raise ValueError(
            f"{path!r} must have the {header:,} vectors that its first line names. It has "
            f"{count:,}; was it cut?"
        )
    if num_left_out:
        logger.warning(
            "%d lines of %s are skipped: words that are there twice, or with spaces in them.",
            num_left_out,
            path,
        )
    if not rows:
        raise OptionError(_OPTION, "hold words with vectors", remedy=f"{path!r} has none.")
    return WordVectors(list(words), np.stack(rows))


def _read_head(path: str) -> tuple[int | None, int]:
    """Returns the number of vectors, None without a header, and their width."""
    first = next(read_lines(path), (b"", 0))[0].removeprefix(codecs.BOM_UTF8).split()
    is_header = len(first) == 2 and all(field.isdigit() for field in first)
    if is_header and int(first[1]) > 0:
        return int(first[0]), int(first[1])
    if len(first) < 2:
        raise ValueError(
            f"{path!r}, line 1: `N D`, or a word and its numbers, must be there. Received "
            f"{b' '.join(first)[:60]!r}."
        )
    return None, len(first) - 1


def _lines(path: str, *, has_header: bool) -> Iterator[tuple[int, bytes]]:
    """Yields the lines that are not blank, but the header, with their numbers from 1."""
    progress = Progress("Reading word vectors", file_size(path))
    for number, (line, position) in enumerate(read_lines(path), 1):
        mark = codecs.BOM_UTF8 if number == 1 else b""
        text = line.removeprefix(mark).rstrip(b" \r\n")
        if text and number > has_header:
            yield number, text
        progress(position)


def _split(line: bytes, width: int, *, has_header: bool) -> tuple[str, np.ndarray | None]:
    word, _, numbers = line.partition(b" ")
    # Some words of GloVe, whose files have no header, have spaces.
    if not has_header and numbers.count(b" ") != width - 1:
        word, *others = line.rsplit(b" ", width)
        numbers = b" ".join(others)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            return word.decode(errors="replace"), np.fromstring(numbers, np.float32, sep=" ")
        except (DeprecationWarning, ValueError):
            return "", None

"""Word vectors by skip-gram with negative sampling, which gensim learns.

Source: Mikolov et al., Distributed Representations of Words and Phrases and their Compositionality.
"""

import collections
import dataclasses
import logging
import tempfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, BinaryIO

import numpy as np

from bert.files.display import Progress
from bert.files.paths import file_size
from bert.files.texts import decoded_lines, warn_of_damaged
from bert.files.word_vectors import WordVectors
from bert.log import logger
from bert.options import MessageError, Option, OptionError, OptionGroup, option

# Splits a text into words.
Split = Callable[[str], Sequence[str]]

# The most words that gensim takes at a time; it would drop more.
_MOST_WORDS = 10_000


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options(OptionGroup):
    """Options of learning word vectors."""

    vector_size: int = option(100, "Number of values in each vector.", low=1)
    window: int = option(
        5,
        "Maximum number of words to predict on either side of a word; the actual number is drawn "
        "at random.",
        low=1,
    )
    negative: int = option(5, "Number of negative samples per predicted word.", low=1)
    min_count: int = option(5, "How often a word must occur to get a vector.", low=1)
    epochs: int = option(5, "Number of passes over the text.", low=1)
    do_lower_case: bool = option(
        False,
        "Lowercase the text. Capitals help to recognize names, and words are looked up as written "
        "first, then in lower case.",
        alias="do_lower",
    )
    seed: int = option(
        12345, "Seed for the initial vectors and all random draws.", low=0, high=2**32 - 1
    )
    num_workers: int = option(
        1,
        "Number of training threads. With one, the same text, flags and seed give the same file; "
        "several are faster, but overwrite each other's updates, so that no two runs are the same.",
        low=1,
    )


def check_installed() -> None:
    """Raises `ValueError` where gensim is missing."""
    _gensim()


def _gensim() -> Any:
    try:
        import gensim.models.word2vec  # noqa: PLC0415
    except ImportError:
        raise ValueError(
            "The package gensim must be there to learn vectors of words. Install it with `pip "
            "install gensim`, or with this package as `pip install '.[word-vectors]'`."
        ) from None
    # gensim would log each step beside the lines of this module.
    logging.getLogger("gensim").setLevel(logging.WARNING)
    return gensim.models.word2vec


def learn(input_files: Sequence[str], options: Options, split: Split) -> WordVectors:
    """Returns the vectors of the words of some text, the most frequent word first.

    Args:
      input_files: The text. A blank line, or the end of a file, ends a document.
      options: How the vectors are learned.
      split: Splits a text into words.

    Raises:
      ValueError: where there is no text, or no word is as frequent as `min_count` requires.
    """
    word2vec = _gensim()
    with tempfile.TemporaryFile() as file:
        corpus = _Corpus(file, input_files, split, do_lower_case=options.do_lower_case)
        counts = _frequent(corpus, input_files, options.min_count)
        model = word2vec.Word2Vec(
            sg=1,
            vector_size=options.vector_size,
            window=options.window,
            negative=options.negative,
            min_count=options.min_count,
            workers=options.num_workers,
            seed=options.seed,
            # `counts` is sorted; gensim would order equally frequent words by chance.
            sorted_vocab=0,
            # Python's own hash differs from one process to the next.
            hashfxn=_hash,
        )
        model.build_vocab_from_freq(counts)
        if options.num_workers > 1:
            logger.info("%d threads learn, so that no two runs are the same.", options.num_workers)
        corpus.progress = Progress("Learning vectors", options.epochs * corpus.counts.total())
        model.train(corpus, total_examples=corpus.num_lines, epochs=options.epochs)
    return WordVectors(model.wv.index_to_key, np.asarray(model.wv.vectors, np.float32))


def _frequent(corpus: "_Corpus", input_files: Sequence[str], min_count: int) -> dict[str, int]:
    """Returns how often the words occur that do so often enough, the most frequent one first."""
    counts = {word: n for word, n in corpus.counts.most_common() if n >= min_count}
    logger.info(
        "Read %s words; %s different ones occur %d times or more.",
        f"{corpus.counts.total():,}",
        f"{len(counts):,}",
        min_count,
    )
    if not corpus.counts:
        raise OptionError("input_file", "hold text", [*input_files])
    if not counts:
        raise MessageError(
            "%s must leave words. None of the %s words of %s occurs %d times.",
            Option("min_count"),
            f"{corpus.counts.total():,}",
            [*input_files],
            min_count,
        )
    return counts


def _hash(word: str) -> int:
    return zlib.crc32(word.encode())


class _Corpus:
    """The words of some text, split once, which may be read many times.

    Args:
      file: A file open for writing and reading, which stores the words.
      input_files: The text.
      split: Splits a text into words.
      do_lower_case: Whether to lowercase the text.

    Attributes:
      counts: How often each word occurs.
      num_lines: The number of parts of documents, which are read one by one.
      progress: Shows how many words were read.
    """

    def __init__(
        self, file: BinaryIO, input_files: Sequence[str], split: Split, *, do_lower_case: bool
    ) -> None:
        self.counts: collections.Counter[str] = collections.Counter()
        self.num_lines = 0
        self.progress: Progress | None = None
        self._file = file
        self._num_read = 0
        for words in _documents(input_files, split, do_lower_case):
            self.counts.update(words)
            for start in range(0, len(words), _MOST_WORDS):
                file.write(f"{' '.join(words[start : start + _MOST_WORDS])}\n".encode())
                self.num_lines += 1

    def __iter__(self) -> Iterator[list[str]]:
        self._file.seek(0)
        for line in self._file:
            words = line.decode().removesuffix("\n").split(" ")
            yield words
            if self.progress:
                self._num_read += len(words)
                self.progress(self._num_read)


def _documents(
    input_files: Sequence[str], split: Split, do_lower_case: bool
) -> Iterator[list[str]]:
    """Yields the words of each document that has any."""
    progress = Progress("Splitting the text into words", sum(map(file_size, input_files)))
    done = 0
    damaged: collections.Counter[str] = collections.Counter()
    for path in input_files:
        words: list[str] = []
        for line, position in decoded_lines(path, damaged):
            text = line.lower() if do_lower_case else line
            words += split(text)
            if words and not text.strip():
                yield words
                words = []
            progress(done + position)
        if words:
            yield words
        done += file_size(path)
    warn_of_damaged(damaged)

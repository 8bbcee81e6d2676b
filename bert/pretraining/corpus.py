"""Reads and tokenizes the text of pre-training (paper, section 3.1)."""

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

import tokenization
from bert.files.display import Progress, counted
from bert.files.fingerprints import WatchedFiles
from bert.files.machine import Workers
from bert.files.paths import LineChunk, read_chunks, split_by_size
from bert.log import logger
from bert.options import Option
from bert.pretraining.draws import Draws
from bert.pretraining.masking import FOLLOWING, PIECES, SPACES, find_kinds
from bert.text import bulk

# The share of tokens that continue a word below which masking whole words has hardly an effect.
_FEW_FOLLOWING = 0.01


# The kinds of lines: a sentence, if it has a token; the end of a document; the beginning of a file.
_SENTENCE, _BLANK, _FILE = range(3)

# Bytes of text that are tokenized together: many, so that words repeat, but few enough for the
# cache of the processor.
_BATCH = 1 << 19


@dataclasses.dataclass(frozen=True)
class Corpus:
    """Documents as the concatenated ids of their tokens.

    Attributes:
      ids: The ids of all tokens, int [tokens].
      kinds: The kind of each token, for masking.
      documents: Where the sentences of each document begin in `ids`, and where the last ends.
    """

    ids: np.ndarray
    kinds: bytes
    documents: list[list[int]]


@dataclasses.dataclass
class CorpusCounts:
    """Counts of a corpus and of its irregularities.

    Attributes:
      num_documents: Documents that are not empty.
      num_sentences: Sentences of all documents.
      num_tokens: Tokens of all documents.
      num_unknown: Tokens that are [UNK].
      num_single: Documents of a single sentence.
      num_damaged: Lines that are not UTF-8.
      num_joined: Files that begin within a document.
      num_following: Tokens that continue a word.
    """

    num_documents: int = 0
    num_sentences: int = 0
    num_tokens: int = 0
    num_unknown: int = 0
    num_single: int = 0
    num_damaged: int = 0
    num_joined: int = 0
    num_following: int = 0


class TokenizedLines(NamedTuple):
    """Some lines of a file.

    Attributes:
      ids: The ids of their tokens, of the smallest type for the vocabulary.
      counts: The number of tokens of each line, int [lines].
      kinds: The kind of each line, uint8 [lines].
      num_damaged: Lines that are not UTF-8.
    """

    ids: np.ndarray
    counts: np.ndarray
    kinds: np.ndarray
    num_damaged: int


def read_corpus(
    input_files: Sequence[str], tokenizer: tokenization.FullTokenizer, num_workers: int = 1
) -> tuple[Corpus, CorpusCounts]:
    """Returns the documents of the files that are not empty, and their counts.

    Raises:
      ValueError: where there is no text.
    """
    # Faithful: a document continues in the next file where no blank line ends it.
    documents = Documents(tokenizer, end_with_files=False)
    ids, ends, firsts = [], [np.zeros(1, np.int64)], []
    with Workers(num_workers, tokenizer) as workers:
        for lines in tokenize_files(input_files, workers):
            found = documents.add(lines)
            ids.append(lines.ids)
            ends.append(found.ends)
            firsts.append(found.firsts)
    counts = documents.finish(input_files)
    bounds = np.concatenate(ends).tolist()
    places = pairwise([*np.concatenate(firsts).tolist(), counts.num_sentences])
    numbers = np.concatenate(ids)
    kinds = find_kinds(tokenizer)[numbers].tobytes()
    return Corpus(numbers, kinds, [bounds[first : last + 1] for first, last in places]), counts


def tokenize_files(input_files: Sequence[str], workers: Workers) -> Iterator[TokenizedLines]:
    """Yields the lines of all files in their order, for any number of processes.

    Args:
      input_files: The paths of the files.
      workers: Processes whose state is the tokenizer.

    Raises:
      ValueError: where a file changed while it was read.
    """
    files = input_files
    if not isinstance(files, WatchedFiles):
        files = WatchedFiles(input_files)
    progress = Progress("Reading", sum(size for size, _ in files.states))
    for lines, position in workers.map(_tokenize_chunk, read_chunks(input_files, _BATCH)):
        yield lines
        progress(position)
    files.check()


def tokenize_lines(
    lines: Iterable[bytes], tokenizer: tokenization.FullTokenizer
) -> Iterator[TokenizedLines]:
    """Yields the lines of a part of a file, many at once."""
    for batch in split_by_size(lines, len, _BATCH):
        yield _tokenize_chunk(tokenizer, LineChunk(batch, is_first=False, position=0))[0]


def _tokenize_chunk(tokenizer: Any, chunk: LineChunk) -> tuple[TokenizedLines, int]:
    texts, kinds, num_damaged = [], bytearray(), 0
    if chunk.is_first:
        texts.append("")
        kinds.append(_FILE)
    for line in chunk.lines:
        try:
            text = line.decode()
        except UnicodeDecodeError:
            num_damaged += 1
            text = tokenization.convert_to_unicode(line)
        # Faithful: carriage returns are removed everywhere, as tf.gfile did.
        text = text.replace("\r", "")
        stripped = text.strip()
        texts.append(stripped)
        kinds.append(_BLANK if text and not stripped else _SENTENCE)
    ids, counts = _tokenize(tokenizer, texts)
    ids = ids.astype(ids_dtype(tokenizer.inv_vocab))
    lines = TokenizedLines(ids, counts, np.frombuffer(kinds, np.uint8), num_damaged)
    return lines, chunk.position


def _tokenize(tokenizer: Any, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Returns the ids of all texts and the number of ids of each, by any tokenizer."""
    if hasattr(tokenizer, "tokenize_lines_to_ids"):
        return tokenizer.tokenize_lines_to_ids(texts)
    return bulk.join(tokenizer.convert_tokens_to_ids(tokenizer.tokenize(text)) for text in texts)


class Found(NamedTuple):
    """The sentences and documents of some lines.

    Attributes:
      ends: Where their sentences end, in tokens from the first line of all, int64 [sentences].
      firsts: The numbers of sentences that begin a document, int64.
    """

    ends: np.ndarray
    firsts: np.ndarray


class Documents:
    """Finds the documents in consecutive lines.

    The sentences of all documents are numbered. Sentence `i` ends where the next one begins, so
    that the bounds of a document are the end of the sentence before it and the ends of its own.

    Args:
      tokenizer: The tokenizer of the lines.
      end_with_files: Whether a document ends with its file.

    Attributes:
      counts: Counts of all lines so far; `finish` completes them.
    """

    def __init__(self, tokenizer: tokenization.FullTokenizer, *, end_with_files: bool) -> None:
        inv_vocab = tokenizer.inv_vocab
        self._unknown = [number for number, token in inv_vocab.items() if token == "[UNK]"]
        self._kinds = find_kinds(tokenizer)
        self._ending = [_BLANK, _FILE] if end_with_files else [_BLANK]
        self.counts = CorpusCounts()
        # Ends of documents so far, how many there were before the last sentence, and the last
        # sentence that began a document.
        self._num_ends, self._ends_before, self._first = 0, -1, 0

    def add(self, lines: TokenizedLines) -> Found:
        """Counts some lines; returns their sentences and documents."""
        counts = self.counts
        is_sentence = (lines.kinds == _SENTENCE) & (lines.counts > 0)
        num_ends = self._num_ends + np.cumsum(np.isin(lines.kinds, self._ending))
        # A document begins with a sentence if one has ended since the sentence before.
        before = num_ends[is_sentence]
        begins = np.diff(before, prepend=self._ends_before) > 0
        firsts = counts.num_sentences + np.flatnonzero(begins)
        # The number of ends at the last sentence before each line: a file begins within a document
        # if none has ended since.
        latest = np.maximum.accumulate(np.where(is_sentence, num_ends, self._ends_before))
        ends = counts.num_tokens + np.cumsum(lines.counts)[is_sentence]
        counts.num_joined += int(((latest == num_ends) & (lines.kinds == _FILE)).sum())
        counts.num_single += int((np.diff(firsts, prepend=self._first) == 1).sum())
        counts.num_damaged += lines.num_damaged
        counts.num_unknown += int(np.isin(lines.ids, self._unknown).sum())
        counts.num_following += int((self._kinds[lines.ids] == FOLLOWING).sum())
        counts.num_documents += len(firsts)
        counts.num_sentences += len(ends)
        counts.num_tokens += len(lines.ids)
        self._num_ends, self._ends_before = int(num_ends[-1]), int(latest[-1])
        self._first = int(firsts[-1]) if len(firsts) else self._first
        return Found(ends, firsts)

    def finish(self, input_files: Sequence[str]) -> CorpusCounts:
        """Returns the counts of all lines.

        Args:
          input_files: The paths of the text, for the message.

        Raises:
          ValueError: where there is no text.
        """
        if not self.counts.num_documents:
            raise ValueError(f"The input files must hold text. Received {list(input_files)}.")
        self.complete()
        return self.counts

    def complete(self) -> None:
        """Counts the last document."""
        counts = self.counts
        counts.num_single += counts.num_sentences - self._first == 1


def ids_dtype(numbers: Any) -> np.dtype:
    """Returns the smallest type that holds some ids."""
    return np.dtype(np.uint16 if max(numbers) < 1 << 16 else np.uint32)


def describe_corpus(counts: CorpusCounts, draws: Draws) -> None:
    """Logs statistics of the input, and warns of what is unusual."""
    logger.info(
        "Read %s, %s, %s; %.1f sentences a document, %.1f tokens a sentence, %.2f %% of the tokens "
        "[UNK].",
        counted(counts.num_documents, "document"),
        counted(counts.num_sentences, "sentence"),
        counted(counts.num_tokens, "token"),
        counts.num_sentences / counts.num_documents,
        counts.num_tokens / counts.num_sentences,
        100 * counts.num_unknown / counts.num_tokens,
    )
    if draws.next_sentence:
        _warn_of_documents(counts)
        _warn_of_lines(counts, draws.max_seq_length)
    if draws.do_whole_word_mask and draws.words == PIECES:
        _warn_of_words(counts)
    if counts.num_unknown > 0.02 * counts.num_tokens:
        logger.warning(
            "%.1f %% of the tokens are [UNK]. Are %s and %s the right ones for this text?",
            100 * counts.num_unknown / counts.num_tokens,
            *map(Option, ("vocab_file", "do_lower_case")),
        )
    if counts.num_damaged:
        logger.warning("What is not UTF-8 was left out of %s.", counted(counts.num_damaged, "line"))
    if counts.num_joined:
        logger.warning(
            "%d input files begin within a document, for the file before does not end with a blank "
            "line.",
            counts.num_joined,
        )


def _warn_of_lines(counts: CorpusCounts, max_seq_length: int) -> None:
    """Warns where lines are longer than sequences, before the records are drawn."""
    if counts.num_tokens > max_seq_length * counts.num_sentences:
        logger.warning(
            "A line has %.0f tokens on average, more than a sequence of %s holds: most of the "
            "text will be cut off. Each line should be a sentence; split_sentences.py makes them. "
            "Or give %s.",
            counts.num_tokens / counts.num_sentences,
            Option("max_seq_length", max_seq_length),
            Option("next_sentence", False),
        )


def _warn_of_words(counts: CorpusCounts) -> None:
    """Warns where hardly any word has several pieces to mask together."""
    if counts.num_following < _FEW_FOLLOWING * counts.num_tokens:
        logger.warning(
            "%s does almost nothing: %.2g %% of the tokens begin with ## and continue a word. "
            "Chinese is split into characters, each of them a word: have a segmenter put spaces "
            "between its words, and give %s.",
            Option("do_whole_word_mask"),
            100 * counts.num_following / counts.num_tokens,
            Option("words", SPACES),
        )


def _warn_of_documents(counts: CorpusCounts) -> None:
    """Warns of documents without other sentences, or other documents, to be paired with."""
    if counts.num_documents == 1:
        logger.warning(
            "There is one document only, so that a 'random' next segment is from the same one. Put "
            "a blank line between documents."
        )
    elif counts.num_single > counts.num_documents / 2:
        logger.warning(
            "%d of %d documents are a single sentence, whose next segment is always random. A "
            "blank line ends a document: is there one after every sentence? If each text is one "
            "sentence, give %s, and train with %s.",
            counts.num_single,
            counts.num_documents,
            Option("next_sentence", False),
            Option("objective", "masked_lm"),
        )

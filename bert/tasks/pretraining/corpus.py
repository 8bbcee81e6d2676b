"""The text of pre-training, read and tokenized (paper, section 3.1)."""

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

import tokenization
from bert.command_line.console import Progress
from bert.files.paths import file_size, read_lines
from bert.tasks.pretraining import masking
from bert.tasks.pretraining.pairs import Pair
from bert.text import bulk

_SPECIAL = bytes([masking.SPECIAL])

# What a line may be: a sentence, if it has a token; the end of a document; where a file begins.
_SENTENCE, _BLANK, _FILE = range(3)

# Characters that are tokenized together: many, so that words come again, but few enough for the
# processor's cache.
_BATCH = 1 << 19


@dataclasses.dataclass(frozen=True)
class Corpus:
    """The documents, as ids of all tokens one after the other.

    Attributes:
      ids: Of all tokens, int [tokens].
      kinds: What masking asks of each.
      documents: For each, where its sentences begin in `ids`, and where the last ends.
    """

    ids: np.ndarray
    kinds: bytes
    documents: list[list[int]]

    def kinds_of(self, pair: Pair) -> bytes:
        """Returns the kinds of `[CLS] a [SEP] b [SEP]`."""
        a, b = self.kinds[pair.a_start : pair.a_stop], self.kinds[pair.b_start : pair.b_stop]
        return b"".join((_SPECIAL, a, _SPECIAL, b, _SPECIAL))


@dataclasses.dataclass
class Faults:
    """What is not as it should be in the files.

    Attributes:
      num_damaged: Lines that are not UTF-8.
      num_joined: Files that begin within a document.
    """

    num_damaged: int = 0
    num_joined: int = 0


def read_corpus(
    input_files: Sequence[str], tokenizer: tokenization.FullTokenizer
) -> tuple[Corpus, Faults]:
    """Returns the documents of the files, none of them empty.

    Raises:
      ValueError: where there is no text.
    """
    faults, parts, num_tokens = Faults(), [], 0
    documents = [[0]]
    for batch in _batches(_read_lines(input_files, faults)):
        texts, kinds = zip(*batch, strict=True)
        ids, counts = _tokenize(tokenizer, texts)
        parts.append(ids.astype(np.uint32))
        ends = num_tokens + np.cumsum(counts)
        num_tokens += len(ids)
        for kind, end in zip(kinds, ends.tolist(), strict=True):
            if kind == _FILE:
                # Faithful: a document goes on in the next file where no blank line ends it.
                faults.num_joined += len(documents[-1]) > 1
            elif kind == _BLANK:
                documents.append([end])
            elif end > documents[-1][-1]:
                documents[-1].append(end)
    documents = [document for document in documents if len(document) > 1]
    if not documents:
        raise ValueError(f"The input files must hold text. Received {list(input_files)}.")
    numbers = np.concatenate(parts)
    return Corpus(numbers, _kinds(tokenizer)[numbers].tobytes(), documents), faults


def _read_lines(input_files: Sequence[str], faults: Faults) -> Iterator[tuple[str, int]]:
    """Yields each line of the files, and what it is; nothing and `_FILE` where one begins."""
    progress = Progress("Reading", sum(map(file_size, input_files)))
    size_before = 0
    for input_file in input_files:
        yield "", _FILE
        position = 0
        for number, (line, position) in enumerate(read_lines(input_file)):
            text = _decode(line, faults)
            stripped = text.strip()
            yield stripped, _BLANK if text and not stripped else _SENTENCE
            if number % 1000 == 0:
                progress(size_before + position)
        size_before += position


def _batches(lines: Iterable[tuple[str, int]]) -> Iterator[list[tuple[str, int]]]:
    """Yields lines of about `_BATCH` characters together."""
    batch, size = [], 0
    for line in lines:
        batch.append(line)
        size += len(line[0])
        if size >= _BATCH or len(batch) >= _BATCH:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _tokenize(tokenizer: Any, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Returns the ids of all texts and the number of each, also by a tokenizer of another make."""
    if hasattr(tokenizer, "tokenize_lines_to_ids"):
        return tokenizer.tokenize_lines_to_ids(texts)
    return bulk.join(tokenizer.convert_tokens_to_ids(tokenizer.tokenize(text)) for text in texts)


def _decode(line: bytes, faults: Faults) -> str:
    try:
        text = line.decode()
    except UnicodeDecodeError:
        faults.num_damaged += 1
        text = tokenization.convert_to_unicode(line)
    # Faithful: carriage returns vanish wherever they stand, as tf.gfile had it.
    return text.replace("\r", "")


def _kinds(tokenizer: tokenization.FullTokenizer) -> np.ndarray:
    """Returns the kind of every id."""
    kinds = np.zeros(max(tokenizer.vocab.values()) + 1, np.uint8)
    for token, number in tokenizer.vocab.items():
        kinds[number] = masking.kind(token)
    return kinds

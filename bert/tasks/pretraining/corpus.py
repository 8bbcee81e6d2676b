"""The text of pre-training, read and tokenized (paper, section 3.1)."""

import array
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import tokenization
from bert.command_line.console import Progress
from bert.files.paths import file_size, read_lines
from bert.tasks.pretraining import masking
from bert.tasks.pretraining.pairs import Pair

_SPECIAL = bytes([masking.SPECIAL])


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
    ids, faults = array.array("I"), Faults()
    tokenize = _tokenize(tokenizer)
    documents = [[0]]
    progress = Progress("Reading", sum(map(file_size, input_files)))
    size_before = 0
    for input_file in input_files:
        # Faithful: a document goes on in the next file where no blank line ends it.
        faults.num_joined += len(documents[-1]) > 1
        position = 0
        for number, (line, position) in enumerate(read_lines(input_file)):
            text = _decode(line, faults)
            if text and not text.strip():
                documents.append([len(ids)])
            elif tokens := tokenize(text.strip()):
                ids.extend(tokens)
                documents[-1].append(len(ids))
            if number % 1000 == 0:
                progress(size_before + position)
        size_before += position
    documents = [document for document in documents if len(document) > 1]
    if not documents:
        raise ValueError(f"The input files must hold text. Received {list(input_files)}.")
    numbers = np.frombuffer(ids, np.uintc)
    return Corpus(numbers, _kinds(tokenizer)[numbers].tobytes(), documents), faults


def _tokenize(tokenizer: Any) -> Callable[[str], list[int]]:
    """Returns what makes ids of a line, also where the tokenizer is no more than the original's."""
    if hasattr(tokenizer, "tokenize_to_ids"):
        return tokenizer.tokenize_to_ids
    return lambda text: tokenizer.convert_tokens_to_ids(tokenizer.tokenize(text))


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

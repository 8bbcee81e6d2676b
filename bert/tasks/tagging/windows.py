"""Windows over sentences, and their features for training and prediction (paper, section 5.3).

The tag of a word is predicted at its first word piece; its other pieces have no prediction. A
sentence that is longer than the model's sequences is split into overlapping windows, and each word
is predicted once, in the window in which it has the most context.
"""

import bisect
import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

import tokenization
from bert.log import logger
from bert.tasks.examples import warn_of_unknown
from bert.tasks.tagging.entities import convert, split_label
from bert.tasks.tagging.sentences import Sentence
from bert.tasks.tagging.tag_set import TagSet

# The value of `word_ids` at positions without a word.
NO_WORD = -1
# A word piece with [CLS] and [SEP].
MIN_SEQ_LENGTH = 3


def make_features(
    sentences: Sequence[Sentence],
    tag_set: TagSet,
    tokenizer: tokenization.FullTokenizer,
    max_seq_length: int,
    *,
    document_context: bool = False,
    whole_words: bool = False,
    logs: bool = True,
) -> dict[str, np.ndarray]:
    """Returns the features of the windows over sentences.

    Args:
      sentences: The sentences, ordered by document. A sentence without words has no window.
      tag_set: The tags of the model.
      tokenizer: The tokenizer of the model.
      max_seq_length: Maximum tokens per window, including [CLS] and [SEP].
      document_context: Whether to fill windows with the neighbouring sentences of the document,
        whose words are predicted in their own windows.
      whole_words: Whether tokens are words, many of which may be [UNK], not word pieces.
      logs: Whether to log properties of the sentences that may be mistakes.

    Returns:
      Arrays, int32 [N, S]: `input_ids`, `input_mask` and `segment_ids`; `label_mask`, 1 at the
      first piece of a predicted word; and at these positions `label_ids`, the index of the tag, 0
      elsewhere, and `word_ids`, the index among all words, `NO_WORD` elsewhere. Each word occurs
      once.

    Raises:
      ValueError: for a tag of a type that is not in `tag_set`, naming its place.
    """
    check_max_seq_length(max_seq_length)
    pieces = _WordPieces(tokenizer)
    windows: list[_Window] = []
    num_words = num_split = 0
    for _, group in itertools.groupby(sentences, lambda sentence: sentence.document):
        document = _Document(list(group), pieces, num_words)
        for sentence_windows in document.windows(max_seq_length - 2, document_context):
            windows += sentence_windows
            num_split += len(sentence_windows) > 1
        num_words += document.num_words
    if logs and not whole_words:
        pieces.log_summary(num_words)
    if logs and num_split:
        logger.info(
            "%d of %d sentences are longer than %d tokens and were split.",
            num_split,
            len(sentences),
            max_seq_length,
        )
    if logs and document_context and len({sentence.document for sentence in sentences}) == 1:
        logger.warning("All sentences are of one document. Lines -DOCSTART- begin documents.")
    labels = _label_ids(sentences, tag_set)
    return _to_arrays(windows, pieces, labels, max_seq_length)


def check_max_seq_length(max_seq_length: int) -> None:
    """Checks that a window has room for a word piece.

    Raises:
      ValueError: if it has none.
    """
    if max_seq_length < MIN_SEQ_LENGTH:
        raise ValueError(
            f"`max_seq_length` must be at least {MIN_SEQ_LENGTH}. Received {max_seq_length}."
        )


@dataclasses.dataclass(frozen=True, slots=True)
class _Window:
    """The ids of a window's word pieces, and the positions and indices of its predicted words."""

    input_ids: Sequence[int]
    positions: Sequence[int]
    words: Sequence[int]


class _WordPieces:
    """Converts words to ids of word pieces, and counts unknown words and words without a piece."""

    def __init__(self, tokenizer: tokenization.FullTokenizer) -> None:
        self._tokenizer = tokenizer
        self.cls_id, self.sep_id, self._unknown = tokenizer.convert_tokens_to_ids(
            ["[CLS]", "[SEP]", "[UNK]"]
        )
        self._empty: list[str] = []
        self._num_unknown = 0

    def __call__(self, word: str) -> list[int]:
        """Returns the ids of a word, [UNK] for a word without a piece."""
        ids = self._tokenizer.tokenize_to_ids(word)
        if not ids:
            self._empty.append(word)
            return [self._unknown]
        self._num_unknown += ids[0] == self._unknown
        return ids

    def log_summary(self, num_words: int) -> None:
        """Logs the counts; `num_words` is the number of all words."""
        if self._empty:
            logger.warning(
                "%d of %d words, such as %r, have no word piece, and are replaced with [UNK].",
                len(self._empty),
                num_words,
                self._empty[0],
            )
        warn_of_unknown(self._num_unknown, num_words, "words")


class _Document:
    """The word pieces of the sentences of a document.

    Args:
      sentences: The sentences.
      pieces: Converts a word to ids.
      first_word: The index of the document's first word among all words.
    """

    def __init__(self, sentences: Sequence[Sentence], pieces: _WordPieces, first_word: int) -> None:
        self._first_word = first_word
        self._ends = list(
            itertools.accumulate((len(sentence.words) for sentence in sentences), initial=0)
        )
        ids = [pieces(word) for sentence in sentences for word in sentence.words]
        self._ids = list(itertools.chain.from_iterable(ids))
        # Word w has the pieces from starts[w] up to starts[w + 1].
        self._starts = list(itertools.accumulate(map(len, ids), initial=0))

    @property
    def num_words(self) -> int:
        return self._ends[-1]

    def windows(self, budget: int, with_context: bool) -> Iterator[list[_Window]]:
        """Yields the windows of each sentence; none for a sentence without words."""
        for first, last in itertools.pairwise(self._ends):
            spans = list(split(self._starts, first, last, budget)) if first < last else []
            predicted = self._predicted_words(spans)
            if with_context:
                spans = [extend(self._starts, *span, budget) for span in spans]
            yield [
                self._window(span, words, budget)
                for span, words in zip(spans, predicted, strict=True)
                if words
            ]

    def _predicted_words(self, spans: Sequence[tuple[int, int]]) -> list[list[int]]:
        """Returns the words that have their maximum context in each of a sentence's windows."""
        best: dict[int, tuple[int, int]] = {}
        for window, span in enumerate(spans):
            for word in range(*span):
                num_pieces = context(self._starts, *span, word)
                # The first of several windows with equal context counts.
                if word not in best or num_pieces > best[word][0]:
                    best[word] = (num_pieces, window)
        words: list[list[int]] = [[] for _ in spans]
        for word, (_, window) in best.items():
            words[window].append(word)
        return words

    def _window(self, span: tuple[int, int], words: Sequence[int], budget: int) -> _Window:
        start, end = (self._starts[word] for word in span)
        return _Window(
            # Only a single word can be longer than the budget; its tag is at its first piece.
            self._ids[start : min(end, start + budget)],
            [self._starts[word] - start for word in words],
            [self._first_word + word for word in words],
        )


def split(starts: Sequence[int], first: int, last: int, budget: int) -> Iterator[tuple[int, int]]:
    """Yields the first and last (exclusive) word of windows over a sentence, overlapping by half.

    Args:
      starts: The index of each word's first piece, followed by the number of pieces.
      first: The first word of the sentence.
      last: The word after the last word of the sentence.
      budget: Maximum pieces per window. A longer word has a window of its own.
    """
    start = first
    while True:
        end = bisect.bisect_right(starts, starts[start] + budget, start, last + 1) - 1
        end = max(end, start + 1)
        if end == last:
            break
        yield start, end
        middle = bisect.bisect_left(starts, starts[start] + budget // 2)
        # The next window must include the word at `end`.
        earliest = bisect.bisect_left(starts, starts[end + 1] - budget)
        start = min(max(middle, earliest, start + 1), end)
    # The last window starts as early as possible.
    yield min(start, bisect.bisect_left(starts, starts[last] - budget, first)), last


def context(starts: Sequence[int], first: int, last: int, word: int) -> int:
    """Returns the minimum of the numbers of pieces before and after a word in a window."""
    return min(starts[word] - starts[first], starts[last] - starts[word + 1])


def extend(starts: Sequence[int], first: int, last: int, budget: int) -> tuple[int, int]:
    """Returns a window extended to the budget by words of the document, about half before it."""
    room = max(budget - (starts[last] - starts[first]), 0)
    after = starts[-1] - starts[last]
    before = min(starts[first], max(room // 2, room - after))
    start = bisect.bisect_left(starts, starts[first] - before)
    room -= starts[first] - starts[start]
    return start, bisect.bisect_right(starts, starts[last] + room) - 1


def _label_ids(sentences: Sequence[Sentence], tag_set: TagSet) -> np.ndarray:
    """Returns the index of the tag of every word, 0 in sentences without tags, int32 [words]."""
    numbers = {label: number for number, label in enumerate(tag_set.labels)}
    if tag_set.is_plain:
        return _plain_ids(sentences, numbers)
    ids: list[int] = []
    for sentence in sentences:
        if sentence.tags is None:
            ids += [0] * len(sentence.words)
            continue
        for word, label in enumerate(convert(sentence.tags, tag_set.scheme)):
            if label not in numbers:
                types = {split_label(known, tag_set.scheme)[1] for known in tag_set.labels} - {""}
                raise ValueError(
                    f"{sentence.place(word)}: a tag must be of a type that was trained, among "
                    f"{sorted(types)}. Received {sentence.tags[word]!r}. Train on such a type, "
                    "too, or remove it from this file."
                )
            ids.append(numbers[label])
    return np.array(ids, np.int32)


def _plain_ids(sentences: Sequence[Sentence], numbers: Mapping[str, int]) -> np.ndarray:
    # A word without a tag has "".
    tags = [tag for s in sentences for tag in s.tags or [""] * len(s.words)]
    unknown = sorted({*tags} - {"", *numbers})
    if unknown:
        logger.warning(
            "%d of %d words have tags that were not trained, and so count as wrong: %s.",
            sum(tag in unknown for tag in tags),
            len(tags),
            ", ".join(unknown[:10]),
        )
    return np.array([numbers.get(tag, 0) for tag in tags], np.int32)


def _to_arrays(
    windows: Sequence[_Window], pieces: _WordPieces, labels: np.ndarray, max_seq_length: int
) -> dict[str, np.ndarray]:
    shape = (len(windows), max_seq_length)
    names = ("input_ids", "input_mask", "segment_ids", "label_ids", "label_mask")
    arrays = {name: np.zeros(shape, np.int32) for name in names}
    arrays["word_ids"] = np.full(shape, NO_WORD, np.int32)
    for row, window in enumerate(windows):
        ids = [pieces.cls_id, *window.input_ids, pieces.sep_id]
        positions = np.array(window.positions, np.int32) + 1
        arrays["input_ids"][row, : len(ids)] = ids
        arrays["input_mask"][row, : len(ids)] = 1
        arrays["label_mask"][row, positions] = 1
        arrays["label_ids"][row, positions] = labels[list(window.words)]
        arrays["word_ids"][row, positions] = window.words
    return arrays

"""Windows over sentences: their features, and predictions from logits (paper, section 5.3).

The tag of a word is predicted at its first word piece; its other pieces have no prediction. A
sentence that is longer than the model's sequences is split into overlapping windows, and each word
is predicted once, in the window in which it has the most context.
"""

import bisect
import collections
import dataclasses
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from scipy.special import logsumexp, softmax

import tokenization
from bert.log import logger
from bert.tasks.examples import warn_of_unknown
from bert.tasks.tagging.sentences import Sentence
from bert.tasks.tagging.tags import (
    Span,
    TagSet,
    convert,
    find_entities,
    score_entities,
    score_tags,
    split_label,
)

# The value of `word_ids` at positions without a word.
NO_WORD = -1

# The first and last (exclusive) word of a window, and the words that are predicted in it.
_Window = tuple[tuple[int, int], list[int]]


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
    pieces = _WordPieces(sentences, tokenizer)
    windows: list[_Window] = []
    num_split = 0
    for sentence_windows in _find_windows(
        sentences, pieces.starts, max_seq_length - 2, document_context
    ):
        windows += sentence_windows
        num_split += len(sentence_windows) > 1
    if logs and not whole_words:
        pieces.log_summary()
    if logs and num_split:
        logger.info(
            "%d of %d sentences are longer than %d tokens and were split.",
            num_split,
            len(sentences),
            max_seq_length,
        )
    if logs and document_context and len({sentence.document for sentence in sentences}) == 1:
        logger.warning("All sentences are of one document. Lines -DOCSTART- begin documents.")
    special_ids = tokenizer.convert_tokens_to_ids(["[CLS]", "[SEP]"])
    labels = _label_ids(sentences, tag_set)
    return _to_arrays(windows, pieces, special_ids, labels, max_seq_length)


class _WordPieces:
    """The word pieces of the words of sentences, concatenated.

    Attributes:
      ids: The ids of the pieces; [UNK] for a word without a piece.
      starts: The index of each word's first piece, followed by the number of pieces.
    """

    def __init__(
        self, sentences: Sequence[Sentence], tokenizer: tokenization.FullTokenizer
    ) -> None:
        self.ids: list[int] = []
        self.starts = [0]
        self._empty: list[str] = []
        self._num_unknown = 0
        (unknown,) = tokenizer.convert_tokens_to_ids(["[UNK]"])
        for word in itertools.chain.from_iterable(sentence.words for sentence in sentences):
            ids = tokenizer.tokenize_to_ids(word)
            if ids:
                self._num_unknown += ids[0] == unknown
            else:
                self._empty.append(word)
            self.ids += ids or [unknown]
            self.starts.append(len(self.ids))

    def log_summary(self) -> None:
        """Logs the numbers of unknown words, and of words without a piece."""
        num_words = len(self.starts) - 1
        if self._empty:
            logger.warning(
                "%d of %d words, such as %r, have no word piece, and are replaced with [UNK].",
                len(self._empty),
                num_words,
                self._empty[0],
            )
        warn_of_unknown(self._num_unknown, num_words, "words")


def _find_windows(
    sentences: Sequence[Sentence], starts: Sequence[int], budget: int, document_context: bool
) -> Iterator[list[_Window]]:
    """Yields the windows of each sentence; none for a sentence without words."""
    num_words = 0
    for _, group in itertools.groupby(sentences, lambda sentence: sentence.document):
        lengths = (len(sentence.words) for sentence in group)
        ends = list(itertools.accumulate(lengths, initial=num_words))
        num_words = ends[-1]
        for first, last in itertools.pairwise(ends):
            spans = list(split(starts, first, last, budget)) if first < last else []
            predicted = _predicted_words(starts, spans)
            if document_context:
                spans = [extend(starts, *span, budget, (ends[0], num_words)) for span in spans]
            yield [(span, words) for span, words in zip(spans, predicted, strict=True) if words]


def _predicted_words(starts: Sequence[int], spans: Sequence[tuple[int, int]]) -> list[list[int]]:
    """Returns the words that have their maximum context in each of a sentence's windows."""
    best: dict[int, tuple[int, int]] = {}
    for window, span in enumerate(spans):
        for word in range(*span):
            num_pieces = context(starts, *span, word)
            # The first of several windows with equal context counts.
            if word not in best or num_pieces > best[word][0]:
                best[word] = (num_pieces, window)
    words: list[list[int]] = [[] for _ in spans]
    for word, (_, window) in best.items():
        words[window].append(word)
    return words


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


def extend(
    starts: Sequence[int], first: int, last: int, budget: int, document: tuple[int, int]
) -> tuple[int, int]:
    """Returns a window extended to the budget by words of the document, about half before it."""
    room = max(budget - (starts[last] - starts[first]), 0)
    after = starts[document[1]] - starts[last]
    before = min(starts[first] - starts[document[0]], max(room // 2, room - after))
    start = bisect.bisect_left(starts, starts[first] - before)
    room -= starts[first] - starts[start]
    return start, min(bisect.bisect_right(starts, starts[last] + room) - 1, document[1])


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
    windows: Sequence[_Window],
    pieces: _WordPieces,
    special_ids: Sequence[int],
    labels: np.ndarray,
    max_seq_length: int,
) -> dict[str, np.ndarray]:
    shape = (len(windows), max_seq_length)
    names = ("input_ids", "input_mask", "segment_ids", "label_ids", "label_mask")
    arrays = {name: np.zeros(shape, np.int32) for name in names}
    arrays["word_ids"] = np.full(shape, NO_WORD, np.int32)
    starts = np.array(pieces.starts)
    cls_id, sep_id = special_ids
    for row, ((first, last), words) in enumerate(windows):
        start, end = starts[first], starts[last]
        # Only a single word can be longer than the window; its tag is at its first piece.
        ids = [cls_id, *pieces.ids[start : min(end, start + max_seq_length - 2)], sep_id]
        positions = starts[words] - start + 1
        arrays["input_ids"][row, : len(ids)] = ids
        arrays["input_mask"][row, : len(ids)] = 1
        arrays["label_mask"][row, positions] = 1
        arrays["label_ids"][row, positions] = labels[words]
        arrays["word_ids"][row, positions] = words
    return arrays


@dataclasses.dataclass(frozen=True, slots=True)
class Prediction:
    """The predicted tag of each word of a sentence, and its probability."""

    tags: list[str]
    probabilities: list[float]


def decode(
    tag_set: TagSet,
    sentences: Sequence[Sentence],
    words: np.ndarray,
    labels: np.ndarray | None = None,
) -> list[Prediction]:
    """Returns the tag of each word.

    Args:
      tag_set: The tags of the model.
      sentences: The sentences of the words.
      words: The logits of all words, float [words, C].
      labels: The index of each word's tag, int [words]; None for the most probable ones.
    """
    ends = list(itertools.accumulate((len(s.words) for s in sentences), initial=0))
    labels = words.argmax(axis=-1) if labels is None else labels
    probabilities = softmax(words.astype(np.float64), axis=-1)[np.arange(len(words)), labels]
    tags = [tag_set.labels[label] for label in labels]
    return [
        Prediction(tags[start:end], probabilities[start:end].tolist())
        for start, end in itertools.pairwise(ends)
    ]


def by_word(arrays: Mapping[str, np.ndarray], values: np.ndarray) -> np.ndarray:
    """Returns the values of words in their order, [words, ...], of those of tokens, [N, S, ...]."""
    is_word = arrays["word_ids"] != NO_WORD
    order = np.argsort(arrays["word_ids"][is_word])
    return values[is_word][order]


def is_known(sentences: Sequence[Sentence], tag_set: TagSet) -> np.ndarray:
    """Returns whether the gold tag of each word is in the tag set, bool [words].

    Rare plain tags may be missing from the training set. Types of entities may not.
    """
    tags = [tag for s in sentences for tag in s.tags or [""] * len(s.words)]
    return np.array([not tag_set.is_plain or tag in tag_set.labels for tag in tags], bool)


def score(
    tag_set: TagSet, sentences: Sequence[Sentence], predictions: Sequence[Prediction]
) -> dict[str, Any]:
    """Returns the scores of `score_entities` in the scheme of the tag set, or of `score_tags`.

    Both include `baseline`, the score of predicting the same tag for every word.
    """
    predicted = [prediction.tags for prediction in predictions]
    gold = [convert(sentence.tags or (), tag_set.scheme) for sentence in sentences]
    if tag_set.is_plain:
        return score_tags(
            *(list(itertools.chain.from_iterable(tags)) for tags in (gold, predicted))
        )
    # Predicting O for every word finds no entity.
    baseline = 0.0
    if tag_set.is_segmentation:
        ((most, _),) = collections.Counter(itertools.chain.from_iterable(gold)).most_common(1)
        baseline = float(score_entities(gold, [[most] * len(tags) for tags in gold])["f1"])
    return {**score_entities(gold, predicted), "baseline": baseline}


def loss(
    arrays: Mapping[str, np.ndarray], logits: np.ndarray, known: np.ndarray | None = None
) -> float:
    """Returns the mean of -log p(tag) over all words, or those that are `known`, bool [words]."""
    is_word = arrays["label_mask"] > 0
    if known is not None:
        is_word &= known[arrays["word_ids"]]
    if not is_word.any():
        return math.nan
    words = np.asarray(logits, np.float64)[is_word]  # [words, C]
    labels = arrays["label_ids"][is_word]
    return float(np.mean(logsumexp(words, axis=-1) - words[np.arange(len(words)), labels]))


def text_entities(
    text: str, spans: Sequence[Span], prediction: Prediction, scheme: str
) -> list[dict[str, Any]]:
    """Returns the entities in a text, as values of JSON.

    Args:
      text: The text.
      spans: The span of each word of the text.
      prediction: The tags of the words.
      scheme: The scheme of the tags.

    Returns:
      Entities with `type`; `start` and `end` (exclusive), in characters; `text`; and `score`, the
      mean probability of the tags.
    """
    entities = []
    for entity in find_entities(prediction.tags, scheme):
        start, end = spans[entity.start][0], spans[entity.end - 1][1]
        probabilities = prediction.probabilities[entity.start : entity.end]
        entities.append(
            {
                "type": entity.type,
                "start": start,
                "end": end,
                "text": text[start:end],
                "score": sum(probabilities) / len(probabilities),
            }
        )
    return entities


def as_word(entity: Mapping[str, Any]) -> dict[str, Any]:
    """Returns an entity of `text_entities` as a word: its type, if any, is named `tag`."""
    tag = {"tag": entity["type"]} if entity["type"] else {}
    return {"text": entity["text"], **tag, **{n: entity[n] for n in ("start", "end", "score")}}

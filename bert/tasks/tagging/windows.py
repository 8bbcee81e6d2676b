"""Labels for words: the task, and features of windows (paper, sections 4 and 5.3).

A word's label is predicted at its first word piece, and nothing at its others. Where a sentence is
longer than the model takes, it is split into windows that overlap, and each word is predicted once,
in the window where it has most context.
"""

import bisect
import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from absl import logging

import tokenization
from bert.tasks.examples import warn_of_unknown
from bert.tasks.tagging import entities as tagging_entities
from bert.tasks.tagging import words as tagging_words
from bert.tasks.tagging.sentences import Sentence

# What is not the number of a word.
NO_WORD = -1


@dataclasses.dataclass(frozen=True, kw_only=True)
class Task:
    """What a model decides for each word.

    Attributes:
      labels: Tags, in the order of the model's outputs.
      scheme: That of the labels, one of `entities.SCHEMES` or `entities.PLAIN`.
      unit: What raw text is cut into, one of `words.UNITS`.
    """

    labels: tuple[str, ...]
    scheme: str
    unit: str = "word"

    def __post_init__(self) -> None:
        schemes = (*tagging_entities.SCHEMES, *tagging_entities.PLAIN)
        for name, values in (("scheme", schemes), ("unit", tagging_words.UNITS)):
            if getattr(self, name) not in values:
                raise ValueError(
                    f"`{name}` must be one of {list(values)}. Received {getattr(self, name)!r}."
                )
        if len(set(self.labels)) < max(len(self.labels), 2):
            raise ValueError(
                f"`labels` must be at least two, each once. Received {list(self.labels)}."
            )
        for label in self.labels:
            tagging_entities.split_label(label, self.scheme)

    @property
    def is_plain(self) -> bool:
        """Whether each label is a class of its own, and not a part of an entity."""
        return self.scheme in tagging_entities.PLAIN

    @property
    def cuts_words(self) -> bool:
        """Whether all that a text has is cut into words, so that nothing is outside of any."""
        return not self.is_plain and tagging_entities.OUTSIDE not in self.labels

    @property
    def tells_words(self) -> bool:
        """Whether an answer has all words of its text, each with its tag, for the entities."""
        return self.cuts_words or self.scheme == tagging_entities.NONE

    def to_dict(self) -> dict[str, Any]:
        """Returns what `from_dict` takes, fit for JSON."""
        return {**dataclasses.asdict(self), "labels": list(self.labels)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Task":
        """Returns the task with these fields; all of them must be there, and no other."""
        names = [field.name for field in dataclasses.fields(cls)]
        if sorted(values) != sorted(names):
            raise ValueError(f"A task must have the keys {names}. Received {list(values)}.")
        labels = values["labels"]
        if not isinstance(labels, list) or not all(isinstance(label, str) for label in labels):
            raise ValueError(f"`labels` of a task must be a list of tags. Received {labels!r:.80}.")
        return cls(**{**values, "labels": tuple(values["labels"])})


def make_task(sentences: Iterable[Sentence], scheme: str, unit: str = "word") -> Task:
    """Returns the task of labelling words with the entities, or the tags, that sentences have.

    Args:
      sentences: Those to train on, with tags of any scheme.
      scheme: That of the model's labels.
      unit: As in `Task`.

    Raises:
      ValueError: where there is no entity, or no two tags.
    """
    sentences = list(sentences)
    found = {tag for sentence in sentences for tag in sentence.tags or ()}
    if scheme in tagging_entities.PLAIN:
        return Task(labels=tuple(sorted(found)), scheme=scheme, unit=unit)
    types = {
        entity.type
        for sentence in sentences
        for entity in tagging_entities.find_entities(sentence.tags or ())
    }
    if not types:
        raise ValueError("The sentences to train on must have entities. All tags are O.")
    labels = tagging_entities.list_labels(types, scheme)
    if scheme == "bmes" and tagging_entities.OUTSIDE not in found:
        labels.remove(tagging_entities.OUTSIDE)
    return Task(labels=tuple(labels), scheme=scheme, unit=unit)


def make_features(
    sentences: Sequence[Sentence],
    task: Task,
    tokenizer: tokenization.FullTokenizer,
    max_seq_length: int,
    *,
    document_context: bool = False,
    whole_words: bool = False,
    tells: bool = True,
) -> dict[str, np.ndarray]:
    """Returns what the model reads of the sentences, window by window.

    Args:
      sentences: Those of a document together; a sentence without words gives no window.
      task: What to decide.
      tokenizer: That of the model.
      max_seq_length: Tokens per window at most, [CLS] and [SEP] included.
      document_context: Whether to fill windows with the neighbouring sentences of the document,
        whose words are predicted elsewhere.
      whole_words: Whether the tokenizer takes words whole, of which many may be [UNK].
      tells: Whether to log what may surprise.

    Returns:
      int32 [N, S]: `input_ids`, `input_mask` and `segment_ids`; `label_mask`, 1 where a word that
      is predicted begins; `label_ids`, of its label, 0 where there is none; and `word_ids`, its
      number among all words, `NO_WORD` where there is none. Each word occurs once.

    Raises:
      ValueError: where a tag is of a type that the task does not have, naming its place.
    """
    if max_seq_length < 3:
        raise ValueError(f"`max_seq_length` must be at least 3. Received {max_seq_length}.")
    pieces = _WordPieces(tokenizer)
    windows: list[_Window] = []
    num_words = num_split = 0
    for _, group in itertools.groupby(sentences, lambda sentence: sentence.document):
        document = _Document(list(group), pieces, num_words)
        for sentence_windows in document.windows(max_seq_length - 2, document_context):
            windows += sentence_windows
            num_split += len(sentence_windows) > 1
        num_words += document.num_words
    if tells and not whole_words:
        pieces.report(num_words)
    if tells and num_split:
        logging.info(
            "%d of %d sentences are longer than %d tokens and were split.",
            num_split,
            len(sentences),
            max_seq_length,
        )
    if tells and document_context and len({sentence.document for sentence in sentences}) == 1:
        logging.warning("All sentences are of one document. Lines -DOCSTART- begin documents.")
    labels = _label_ids(sentences, task)
    return _to_arrays(windows, pieces, labels, max_seq_length)


@dataclasses.dataclass(frozen=True, slots=True)
class _Window:
    """Ids of word pieces; the places in it where words begin, and the numbers of these words."""

    input_ids: Sequence[int]
    places: Sequence[int]
    words: Sequence[int]


class _WordPieces:
    """Turns words into ids of word pieces, and counts what may surprise."""

    def __init__(self, tokenizer: tokenization.FullTokenizer) -> None:
        self._tokenizer = tokenizer
        self.cls_id, self.sep_id, self._unknown = tokenizer.convert_tokens_to_ids(
            ["[CLS]", "[SEP]", "[UNK]"]
        )
        self._empty: list[str] = []
        self._num_unknown = 0

    def __call__(self, word: str) -> list[int]:
        """Returns at least one id."""
        ids = self._tokenizer.tokenize_to_ids(word)
        if not ids:
            self._empty.append(word)
            return [self._unknown]
        self._num_unknown += ids[0] == self._unknown
        return ids

    def report(self, num_words: int) -> None:
        """Logs what was counted; `num_words` is the number of all words."""
        if self._empty:
            logging.warning(
                "%d of %d words, such as %r, have no word piece, and are taken for [UNK].",
                len(self._empty),
                num_words,
                self._empty[0],
            )
        warn_of_unknown(self._num_unknown, num_words, "words")


class _Document:
    """The word pieces of some sentences in a row.

    Args:
      sentences: The sentences.
      pieces: Gives the ids of a word.
      first_word: The number of the first word among all.
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
        """Yields the windows of each sentence, none where it has no words."""
        for first, last in itertools.pairwise(self._ends):
            ranges = list(split(self._starts, first, last, budget)) if first < last else []
            owned = self._share(range(first, last), ranges)
            if with_context:
                ranges = [extend(self._starts, *each, budget) for each in ranges]
            yield [
                self._window(each, words, budget)
                for each, words in zip(ranges, owned, strict=True)
                if words
            ]

    def _share(self, words: range, ranges: Sequence[tuple[int, int]]) -> list[Sequence[int]]:
        """Returns for each window those words that have most context in it."""
        if len(ranges) < 2:
            return [words] * len(ranges)
        owned: list[list[int]] = [[] for _ in ranges]
        firsts, lasts = zip(*ranges, strict=True)
        for word in words:
            # Both ends of the windows grow, so that only a few have it.
            near, stop = (bisect.bisect_right(each, word) for each in (lasts, firsts))
            contexts = [context(self._starts, *each, word) for each in ranges[near:stop]]
            owned[near + contexts.index(max(contexts))].append(word)
        return list(owned)

    def _window(self, span: tuple[int, int], words: Sequence[int], budget: int) -> _Window:
        start, end = (self._starts[word] for word in span)
        return _Window(
            # Only a single word can be longer than the budget; its first piece is what counts.
            self._ids[start : min(end, start + budget)],
            [self._starts[word] - start for word in words],
            [self._first_word + word for word in words],
        )


def split(starts: Sequence[int], first: int, last: int, budget: int) -> Iterator[tuple[int, int]]:
    """Yields windows over words, which overlap by half.

    Args:
      starts: The piece at which each word of the document begins, and their number at the end.
      first: The first word of the sentence.
      last: The word after its last.
      budget: Pieces per window at most. A word that is longer has a window of its own.

    Yields:
      The first word, and the word after the last, of each window.
    """
    start = first
    while True:
        end = bisect.bisect_right(starts, starts[start] + budget, start, last + 1) - 1
        end = max(end, start + 1)
        if end == last:
            break
        yield start, end
        middle = bisect.bisect_left(starts, starts[start] + budget // 2)
        # From there on, the next window reaches further than this one.
        further = bisect.bisect_left(starts, starts[end + 1] - budget)
        start = min(max(middle, further, start + 1), end)
    # The last window begins as early as it can.
    yield min(start, bisect.bisect_left(starts, starts[last] - budget, first)), last


def context(starts: Sequence[int], first: int, last: int, word: int) -> int:
    """Returns the pieces on that side of a word on which a window has fewer; -1 outside of it."""
    if not first <= word < last:
        return -1
    return min(starts[word] - starts[first], starts[last] - starts[word + 1])


def extend(starts: Sequence[int], first: int, last: int, budget: int) -> tuple[int, int]:
    """Returns a window with as many words around it as there are and fit, about half before it."""
    room = max(budget - (starts[last] - starts[first]), 0)
    after = starts[-1] - starts[last]
    before = min(starts[first], max(room // 2, room - after))
    start = bisect.bisect_left(starts, starts[first] - before)
    room -= starts[first] - starts[start]
    return start, bisect.bisect_right(starts, starts[last] + room) - 1


def _label_ids(sentences: Sequence[Sentence], task: Task) -> np.ndarray:
    """Returns the label of every word, 0 where a sentence has no tags, int32 [words]."""
    numbers = {label: number for number, label in enumerate(task.labels)}
    if task.is_plain:
        return _plain_ids(sentences, numbers)
    ids: list[int] = []
    for sentence in sentences:
        if sentence.tags is None:
            ids += [0] * len(sentence.words)
            continue
        labels = tagging_entities.convert(sentence.tags, task.scheme)
        for word, label in enumerate(labels):
            if label not in numbers:
                raise ValueError(
                    f"{sentence.place(word)}: a tag must be of a type that was trained, among "
                    f"{_list_types(task)}. Received {sentence.tags[word]!r}. Train on such a type, "
                    "too, or take it out of this file."
                )
            ids.append(numbers[label])
    return np.array(ids, np.int32)


def _plain_ids(sentences: Sequence[Sentence], numbers: Mapping[str, int]) -> np.ndarray:
    # Where there are none, "" stands for them.
    tags = [tag for each in sentences for tag in each.tags or [""] * len(each.words)]
    unknown = sorted({*tags} - {"", *numbers})
    if unknown:
        logging.warning(
            "%d of %d words have tags that were not trained, and so count as wrong: %s.",
            sum(tag in unknown for tag in tags),
            len(tags),
            ", ".join(unknown[:10]),
        )
    return np.array([numbers.get(tag, 0) for tag in tags], np.int32)


def _list_types(task: Task) -> list[str]:
    return sorted(
        {tagging_entities.split_label(label, task.scheme)[1] for label in task.labels} - {""}
    )


def _to_arrays(
    windows: Sequence[_Window], pieces: _WordPieces, labels: np.ndarray, max_seq_length: int
) -> dict[str, np.ndarray]:
    shape = (len(windows), max_seq_length)
    names = ("input_ids", "input_mask", "segment_ids", "label_ids", "label_mask")
    arrays = {name: np.zeros(shape, np.int32) for name in names}
    arrays["word_ids"] = np.full(shape, NO_WORD, np.int32)
    for row, window in enumerate(windows):
        ids = [pieces.cls_id, *window.input_ids, pieces.sep_id]
        places = np.array(window.places, np.int32) + 1
        arrays["input_ids"][row, : len(ids)] = ids
        arrays["input_mask"][row, : len(ids)] = 1
        arrays["label_mask"][row, places] = 1
        arrays["label_ids"][row, places] = labels[list(window.words)]
        arrays["word_ids"][row, places] = window.words
    return arrays


def read_text(text: str, unit: str) -> tuple[Sentence, list[tagging_words.Span]]:
    """Returns the words of raw text as a sentence, and where each begins and ends."""
    spans = tagging_words.find_spans(text, unit)
    return Sentence([text[start:end] for start, end in spans]), spans

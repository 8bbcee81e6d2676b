"""Windows over paragraphs: tokens, their words and answers (paper, section 4.2).

A window is `[CLS] question [SEP] part of the paragraph [SEP]`; the next window starts `doc_stride`
tokens later (original: run_squad.py, convert_examples_to_features). Each distinct word is tokenized
once, and so is each paragraph for all questions about it. The table of windows stores each question
and paragraph once, and of a window only its start.
"""

import dataclasses
import functools
import itertools
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np

import tokenization
from bert.files.display import Progress
from bert.files.machine import Workers
from bert.files.records import encode_examples, write_records
from bert.log import logger
from bert.options import Option
from bert.tasks.examples import warn_of_unknown
from bert.tasks.squad.options import NUM_SPECIAL, check_lengths
from bert.tasks.squad.questions import SquadExample
from bert.tasks.windows import Ragged, ranges, slide
from bert.text import bulk

FIRST_UNIQUE_ID = 1000000000


def context_scores(before: np.ndarray, length: int) -> np.ndarray:
    """Returns the score of the context that tokens have in a part of a paragraph.

    The score is the minimum of the numbers of tokens before and after, plus a little for length.

    Args:
      before: The number of tokens before each token in the part, int [...].
      length: The number of tokens of the part.
    """
    # Faithful: this very arithmetic, since its rounding decides which windows are equal.
    return np.minimum(before, length - 1 - before) + 0.01 * length


@dataclasses.dataclass(frozen=True, kw_only=True)
class WindowTable:
    """The windows of all examples, in order.

    Attributes:
      max_seq_length: Tokens per window, including padding.
      special_ids: The ids of [CLS] and [SEP].
      question_ids: The ids of each example's question.
      paragraph_ids: The ids of each paragraph's tokens.
      paragraph_words: The index of the word of each token of each paragraph.
      paragraphs: The index of each example's paragraph, int [E].
      doc_starts: The starts of each example's windows, from `slide`.
      answers: For training, the first and last token of the answer in its paragraph, or -1 and -1,
        int [E, 2].
      impossible: For training, whether each question has no answer, bool [E].
      num_labeled: Where only a teacher answers the last examples, the number of the others.
    """

    max_seq_length: int
    special_ids: tuple[int, int]
    question_ids: Ragged
    paragraph_ids: Ragged
    paragraph_words: Ragged
    paragraphs: np.ndarray
    doc_starts: Ragged
    answers: np.ndarray | None = None
    impossible: np.ndarray | None = None
    num_labeled: int | None = None

    def __len__(self) -> int:
        return len(self.doc_starts.values)

    @property
    def num_examples(self) -> int:
        return len(self.paragraphs)

    def windows_of(self, example: int) -> range:
        """Returns the indices of an example's windows."""
        return range(*self.doc_starts.starts[example : example + 2].tolist())

    @functools.cached_property
    def examples(self) -> np.ndarray:
        """The index of each window's example, int64 [W]."""
        return np.repeat(np.arange(self.num_examples), self.doc_starts.lengths)

    @functools.cached_property
    def parts(self) -> np.ndarray:
        """The part of its paragraph in each window, int64 [W, 3].

        The columns are the position in the window of the part's first token, the index of this
        token in the paragraph, and the number of tokens.
        """
        firsts = self.question_ids.lengths[self.examples] + 2
        starts = self.doc_starts.values.astype(np.int64)
        remaining = self.paragraph_ids.lengths[self.paragraphs[self.examples]] - starts
        lengths = np.minimum(remaining, self.max_seq_length - 1 - firsts)
        return np.stack([firsts, starts, lengths], axis=1)

    def lengths(self) -> np.ndarray:
        """Returns the number of tokens of each window, without padding, int64 [W]."""
        return self.parts[:, 0] + self.parts[:, 2] + 1

    def features(self, start: int, stop: int) -> dict[str, np.ndarray]:
        """Returns the features of the windows from `start` to `stop`, each [B, values]."""
        windows = np.arange(start, min(stop, len(self)))
        examples = self.examples[start:stop]
        firsts, doc_starts, lengths = self.parts[start:stop].T
        positions = np.arange(self.max_seq_length)
        begins, ends = firsts[:, None], (firsts + lengths)[:, None]  # [B, 1]
        inside = positions <= ends  # [B, S]
        segment = inside & (positions >= begins)
        cls_id, sep_id = self.special_ids
        input_ids = np.zeros(inside.shape, np.int32)
        input_ids[:, 0] = cls_id
        input_ids[(positions >= 1) & (positions < begins - 1)] = self.question_ids.take(
            examples
        ).values
        first_tokens = self.paragraph_ids.starts[self.paragraphs[examples]] + doc_starts
        input_ids[segment & (positions < ends)] = self.paragraph_ids.values[
            ranges(first_tokens, lengths)
        ]
        for separators in (begins - 1, ends):
            np.put_along_axis(input_ids, separators, sep_id, axis=1)
        features = {
            "unique_ids": FIRST_UNIQUE_ID + windows[:, None],
            "input_ids": input_ids,
            "input_mask": inside,
            "segment_ids": segment,
        }
        if self.answers is not None and self.impossible is not None:
            spans = self.answers[examples] + (firsts - doc_starts)[:, None]
            has_answer = (self.answers[examples, 0] >= 0) & (spans[:, 0] >= firsts)
            has_answer &= spans[:, 1] < firsts + lengths
            # [CLS] is the answer of a window that does not contain it.
            spans = np.where(has_answer[:, None], spans, 0)
            features["start_positions"], features["end_positions"] = spans[:, :1], spans[:, 1:]
            features["is_impossible"] = self.impossible[examples][:, None]
        if self.num_labeled is not None:
            features["is_labeled"] = (examples < self.num_labeled)[:, None]
        return features

    def part(self, values: Ragged, window: int) -> np.ndarray:
        """Returns the values, ids or words, of the tokens of the paragraph in a window."""
        _, start, length = self.parts[window].tolist()
        return values[self.paragraphs[self.examples[window]]][start : start + length]

    def max_context(self, example: int) -> list[np.ndarray]:
        """Returns whether each token of the paragraph has its maximum context in a window.

        The first of several windows with equal context counts (original: run_squad.py,
        _check_is_max_context). The list has an array, bool [tokens], for each window of an example.
        """
        windows = self.windows_of(example)
        spans = self.parts[windows.start : windows.stop, 1:].tolist()
        num_tokens = sum(spans[-1]) if spans else 0
        best_scores = np.full(num_tokens, -np.inf)
        best_windows = np.zeros(num_tokens, np.int64)
        for index, (start, length) in enumerate(spans):
            scores = context_scores(np.arange(length), length)
            better = np.flatnonzero(scores > best_scores[start : start + length])
            best_scores[start + better] = scores[better]
            best_windows[start + better] = index
        return [
            best_windows[start : start + length] == index
            for index, (start, length) in enumerate(spans)
        ]

    def log_summary(self) -> None:
        """Logs the number of windows, and warns of answers without tokens."""
        logger.info(
            "%d questions make %d windows of at most %d tokens; the longest has %d.",
            self.num_examples,
            len(self),
            self.max_seq_length,
            self.lengths().max(initial=0),
        )
        if self.answers is None or self.impossible is None:
            return
        num_empty = int(((self.answers[:, 0] < 0) & ~self.impossible).sum())
        if num_empty:
            logger.warning("%d training questions have an answer that has no tokens.", num_empty)


_SPECIAL_TOKENS = ["[CLS]", "[SEP]"]

# Texts and windows that a process gets at a time.
_TEXTS_AT_ONCE = 4096
_WINDOWS_AT_ONCE = 1024

# With fewer questions per process, starting it takes more time than it saves.
QUESTIONS_PER_PROCESS = 20_000


def make_features(  # noqa: PLR0913 (the arguments of the original)
    examples: Sequence[SquadExample],
    tokenizer: tokenization.FullTokenizer,
    max_seq_length: int,
    doc_stride: int,
    max_query_length: int,
    is_training: bool,
    num_processes: int = 1,
    *,
    logs: bool = True,
) -> WindowTable:
    """Returns the windows of examples in their order, which does not depend on `num_processes`.

    Raises:
      ValueError: if a length is out of range, the vocabulary lacks a special token, or an example
        for training has no position of its answer.
    """
    check_lengths(max_seq_length, doc_stride, max_query_length)
    vocab = getattr(tokenizer, "vocab", _SPECIAL_TOKENS)
    if missing := [token for token in _SPECIAL_TOKENS if token not in vocab]:
        raise ValueError(
            f"The vocabulary must hold '[CLS]' and '[SEP]'. Received one without {missing}."
        )
    cls_id, sep_id = tokenizer.convert_tokens_to_ids(_SPECIAL_TOKENS)
    with Workers(num_processes, tokenizer) as workers:
        paragraphs = _Paragraphs(examples, workers)
        questions = _tokenize(workers, [e.question_text for e in examples], "questions")
        answers = paragraphs.find_answers(examples, workers) if is_training else None
    impossible = (
        np.array([example.is_impossible for example in examples], bool) if is_training else None
    )
    if logs:
        _warn_of_truncation(questions.lengths, max_query_length)
        ids, unknown = paragraphs.ids.values, getattr(tokenizer, "vocab", {}).get("[UNK]", -1)
        warn_of_unknown(int((ids == unknown).sum()), len(ids), "tokens of the paragraphs")
    question_ids = questions.truncate(max_query_length)
    return WindowTable(
        max_seq_length=max_seq_length,
        special_ids=(cls_id, sep_id),
        question_ids=question_ids,
        paragraph_ids=paragraphs.ids,
        paragraph_words=paragraphs.token_words(),
        paragraphs=paragraphs.of_examples,
        doc_starts=slide(
            paragraphs.ids.lengths[paragraphs.of_examples],
            max_seq_length - NUM_SPECIAL - question_ids.lengths,
            doc_stride,
        ),
        answers=answers,
        impossible=impossible,
    )


def _warn_of_truncation(lengths: np.ndarray, max_query_length: int) -> None:
    num_truncated = int((lengths > max_query_length).sum())
    if num_truncated:
        logger.warning(
            "%d questions are truncated to %s tokens; the longest has %d.",
            num_truncated,
            Option("max_query_length", max_query_length),
            lengths.max(),
        )


class _Paragraphs:
    """The tokens of the paragraphs of examples.

    Attributes:
      of_examples: The index of each example's paragraph, int64 [E].
      ids: The ids of each paragraph's tokens.
      num_words: The number of words of each paragraph, int64 [paragraphs].
    """

    def __init__(self, examples: Sequence[SquadExample], workers: Workers) -> None:
        number: defaultdict[int, int] = _numbering()
        lists = {id(e.doc_tokens): e.doc_tokens for e in examples}
        self.of_examples = np.array([number[id(e.doc_tokens)] for e in examples], np.int64)
        self.num_words = np.array([len(words) for words in lists.values()], np.int64)
        vocabulary: defaultdict[str, int] = _numbering()
        words = np.fromiter(
            map(vocabulary.__getitem__, itertools.chain.from_iterable(lists.values())),
            np.int64,
            int(self.num_words.sum()),
        )
        pieces = _tokenize(workers, list(vocabulary), "words").take(words)
        # The index of the first token of each word, and of the first word of each paragraph.
        self._word_starts = pieces.starts
        self._first_words = np.concatenate([[0], np.cumsum(self.num_words)])
        self.ids = Ragged(pieces.values, pieces.starts[self._first_words])

    def token_words(self) -> Ragged:
        """Returns the index of the word of each token of each paragraph."""
        indices = ranges(np.zeros_like(self.num_words), self.num_words)
        words = np.repeat(indices.astype(np.int32), np.diff(self._word_starts))
        return Ragged(words, self.ids.starts)

    def find_answers(self, examples: Sequence[SquadExample], workers: Workers) -> np.ndarray:
        """Returns the first and last token of each answer in its paragraph; -1, -1 if none."""
        positions = np.array([_word_span(example) for example in examples], np.int64).reshape(-1, 2)
        texts = [example.orig_answer_text or "" for example in examples]
        answers = _tokenize(workers, texts, "answers")
        spans = np.full((len(examples), 2), -1, np.int32)
        word_numbers = positions + self._first_words[self.of_examples][:, None]
        starts = self._word_starts[word_numbers[:, 0]]
        ends = self._word_starts[word_numbers[:, 1] + 1]
        found = np.flatnonzero((positions[:, 0] >= 0) & (starts < ends))
        for index in found.tolist():
            start, end = int(starts[index]), int(ends[index])
            offset, length = improve_answer_span(self.ids.values[start:end], answers[index])
            spans[index] = start + offset, start + offset + length - 1
        spans[found] -= self.ids.starts[self.of_examples[found]][:, None].astype(np.int32)
        return spans


def _numbering() -> defaultdict[Any, int]:
    """Returns a dictionary that numbers keys from 0 in the order of their first look-up."""
    return defaultdict(itertools.count().__next__)


def _word_span(example: SquadExample) -> tuple[int, int]:
    # Faithful: the positions of a question without an answer are not read.
    if example.is_impossible:
        return -1, -1
    if example.start_position is None or example.end_position is None:
        raise ValueError(
            "Examples for training must have the positions of their answers. Received none for "
            f"question {example.qas_id!r}; read the file with `is_training`."
        )
    return example.start_position, example.end_position


def improve_answer_span(tokens: np.ndarray, answer: np.ndarray) -> tuple[int, int]:
    """Returns the start and length of an answer among tokens; without a match, of all tokens.

    An answer may be a part of the words that contain it, such as 1895 in `(1895-1943).` (original:
    run_squad.py, _improve_answer_span).
    """
    wanted, text = answer.tobytes(), tokens.tobytes()
    offset = text.find(wanted) if wanted else -1
    # A match must start at the first byte of a token.
    while offset % tokens.itemsize and offset >= 0:
        offset = text.find(wanted, offset + 1)
    if offset < 0:
        return 0, len(tokens)
    return offset // tokens.itemsize, len(answer)


def _tokenize(workers: Workers, texts: Sequence[str], noun: str) -> Ragged:
    """Returns the ids of each text's tokens."""
    progress = Progress(f"Tokenizing {noun}", len(texts))
    parts = (texts[i : i + _TEXTS_AT_ONCE] for i in range(0, len(texts), _TEXTS_AT_ONCE))
    ids, lengths = [np.zeros(0, np.int32)], [np.zeros(0, np.int64)]
    for part_ids, part_lengths in workers.map(_tokenize_part, parts):
        progress(len(ids) * _TEXTS_AT_ONCE)
        ids.append(part_ids)
        lengths.append(part_lengths)
    return Ragged.of(np.concatenate(ids), np.concatenate(lengths))


def _tokenize_part(tokenizer: Any, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    # Like the original, this accepts any tokenizer with the original's two methods.
    to_ids = getattr(tokenizer, "tokenize_to_ids", None) or (
        lambda text: tokenizer.convert_tokens_to_ids(tokenizer.tokenize(text))
    )
    ids, lengths = bulk.join(map(to_ids, texts))
    return ids.astype(np.int32), lengths


def write_features(path: str, table: WindowTable, num_processes: int = 1) -> None:
    """Writes the windows to a TFRecord file, which appears once complete."""
    progress = Progress("Writing windows", len(table))
    blocks = (
        table.features(start, start + _WINDOWS_AT_ONCE)
        for start in range(0, len(table), _WINDOWS_AT_ONCE)
    )
    num_written = 0
    with Workers(num_processes, None) as workers, write_records([path]) as (writer,):
        for records in workers.map(_encode, blocks):
            for record in records:
                writer.write(record)
            num_written += len(records)
            progress(num_written)


def _encode(_: None, features: dict[str, np.ndarray]) -> list[bytes]:
    return encode_examples(features)

"""Conversion of questions to windows: tokens, their words and answers (paper, section 4.2).

Each distinct word is tokenized once, and so is each paragraph for all questions about it. The
windows are those of the original's `convert_examples_to_features`.
"""

import itertools
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np

import tokenization
from bert.files.processes import Workers
from bert.files.progress import Progress
from bert.files.records import encode_examples, write_records
from bert.log import logger
from bert.options import Option
from bert.tasks.split import warn_of_unknown
from bert.tasks.squad.options import NUM_SPECIAL, check_lengths
from bert.tasks.squad.questions import SquadExample
from bert.tasks.squad.window_table import Ragged, WindowTable, ranges, slide
from bert.text import bulk

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
        ids.append(part_ids)
        lengths.append(part_lengths)
        progress(len(ids) * _TEXTS_AT_ONCE)
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

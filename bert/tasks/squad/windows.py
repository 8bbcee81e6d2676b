"""From questions to windows: tokens, their words, and where answers are (paper, section 4.2).

Every word is tokenized once, however often it occurs, and every paragraph once for all questions
about it. What comes out is, window by window, what the original's `convert_examples_to_features`
makes.
"""

import itertools
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
from absl import logging

import tokenization
from bert.files.processes import Workers
from bert.files.progress import Progress
from bert.files.records import encode_examples, write_records
from bert.options import Option
from bert.tasks.examples import warn_of_unknown
from bert.tasks.squad import questions as squad_questions
from bert.tasks.squad import window_table
from bert.tasks.squad.options import check_lengths
from bert.tasks.squad.window_table import Ragged, WindowTable
from bert.text import bulk

_SPECIAL_TOKENS = ["[CLS]", "[SEP]"]

_TEXTS_AT_ONCE = 4096
_WINDOWS_AT_ONCE = 1024

# Below this number of questions, a further process costs more than it brings.
QUESTIONS_PER_PROCESS = 20_000


def make_features(  # noqa: PLR0913 (those of the original)
    examples: Sequence[squad_questions.SquadExample],
    tokenizer: tokenization.FullTokenizer,
    max_seq_length: int,
    doc_stride: int,
    max_query_length: int,
    is_training: bool,
    num_processes: int = 1,
    *,
    tells: bool = True,
) -> WindowTable:
    """Returns the windows of all examples in their order, whatever the number of processes.

    Raises:
      ValueError: where a length is out of range, the vocabulary lacks a token that is needed, or
        the examples are not for training.
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
        questions = _tokenize(workers, [each.question_text for each in examples], "questions")
        answers = paragraphs.find_answers(examples, workers) if is_training else None
    impossible = np.array([each.is_impossible for each in examples], bool) if is_training else None
    if tells:
        _warn_of_cut(questions.lengths, max_query_length)
        ids, unknown = paragraphs.ids.values, getattr(tokenizer, "vocab", {}).get("[UNK]", -1)
        warn_of_unknown(int((ids == unknown).sum()), len(ids), "tokens of the paragraphs")
    question_ids = questions.cut(max_query_length)
    return WindowTable(
        max_seq_length=max_seq_length,
        special_ids=(cls_id, sep_id),
        question_ids=question_ids,
        paragraph_ids=paragraphs.ids,
        paragraph_words=paragraphs.token_words(),
        paragraphs=paragraphs.of_examples,
        doc_starts=window_table.slide(
            paragraphs.ids.lengths[paragraphs.of_examples],
            max_seq_length - window_table.NUM_SPECIAL - question_ids.lengths,
            doc_stride,
        ),
        answers=answers,
        impossible=impossible,
    )


def _warn_of_cut(lengths: np.ndarray, max_query_length: int) -> None:
    cut = int((lengths > max_query_length).sum())
    if cut:
        logging.warning(
            "%d questions are truncated to %s tokens; the longest has %d.",
            cut,
            Option("max_query_length", max_query_length),
            lengths.max(),
        )


class _Paragraphs:
    """The tokens of all examples' paragraphs.

    Attributes:
      of_examples: The paragraph of each example, int64 [E].
      ids: For each paragraph the ids of its tokens.
      num_words: For each paragraph, int64 [paragraphs].
    """

    def __init__(self, examples: Sequence[squad_questions.SquadExample], workers: Workers) -> None:
        number: defaultdict[int, int] = _numbering()
        lists = {id(each.doc_tokens): each.doc_tokens for each in examples}
        self.of_examples = np.array([number[id(each.doc_tokens)] for each in examples], np.int64)
        self.num_words = np.array([len(words) for words in lists.values()], np.int64)
        vocabulary: defaultdict[str, int] = _numbering()
        words = np.fromiter(
            map(vocabulary.__getitem__, itertools.chain.from_iterable(lists.values())),
            np.int64,
            int(self.num_words.sum()),
        )
        pieces = _tokenize(workers, list(vocabulary), "words").take(words)
        # One word after another, through all paragraphs: where its tokens begin.
        self._word_starts = pieces.starts
        self._first_words = np.concatenate([[0], np.cumsum(self.num_words)])
        self.ids = Ragged(pieces.values, pieces.starts[self._first_words])

    def token_words(self) -> Ragged:
        """Returns for each paragraph the index of each token's word."""
        indices = window_table.places(np.zeros_like(self.num_words), self.num_words)
        words = np.repeat(indices.astype(np.int32), np.diff(self._word_starts))
        return Ragged(words, self.ids.starts)

    def find_answers(
        self, examples: Sequence[squad_questions.SquadExample], workers: Workers
    ) -> np.ndarray:
        """Returns the first and last token of each answer in its paragraph, -1 and -1 for none."""
        positions = np.array([_word_span(each) for each in examples], np.int64).reshape(-1, 2)
        texts = [each.orig_answer_text or "" for each in examples]
        answers = _tokenize(workers, texts, "answers")
        spans = np.full((len(examples), 2), -1, np.int32)
        word_numbers = positions + self._first_words[self.of_examples][:, None]
        starts = self._word_starts[word_numbers[:, 0]]
        ends = self._word_starts[word_numbers[:, 1] + 1]
        found = np.flatnonzero((positions[:, 0] >= 0) & (starts < ends))
        for index in found.tolist():
            start, end = int(starts[index]), int(ends[index])
            better, length = improve_answer_span(self.ids.values[start:end], answers[index])
            spans[index] = start + better, start + better + length - 1
        spans[found] -= self.ids.starts[self.of_examples[found]][:, None].astype(np.int32)
        return spans


def _numbering() -> defaultdict[Any, int]:
    """Returns what gives a number to each key asked for, from 0, in the order of asking."""
    return defaultdict(itertools.count().__next__)


def _word_span(example: squad_questions.SquadExample) -> tuple[int, int]:
    if example.start_position is None or example.end_position is None:
        raise ValueError(
            "Examples to train on must say where their answers are. Received none for question "
            f"{example.qas_id!r}; read the file with `is_training`."
        )
    return example.start_position, example.end_position


def improve_answer_span(tokens: np.ndarray, answer: np.ndarray) -> tuple[int, int]:
    """Returns the start and length of the tokens that are the answer; else of all that are given.

    An answer may be less than the words that hold it, such as 1895 in `(1895-1943).` (original:
    run_squad.py, _improve_answer_span).
    """
    wanted, text = answer.tobytes(), tokens.tobytes()
    place = text.find(wanted) if wanted else -1
    while place % tokens.itemsize and place >= 0:
        place = text.find(wanted, place + 1)
    if place < 0:
        return 0, len(tokens)
    return place // tokens.itemsize, len(answer)


def _tokenize(workers: Workers, texts: Sequence[str], what: str) -> Ragged:
    """Returns the ids of each text's tokens."""
    progress = Progress(f"Tokenizing {what}", len(texts))
    parts = (texts[i : i + _TEXTS_AT_ONCE] for i in range(0, len(texts), _TEXTS_AT_ONCE))
    ids, lengths = [np.zeros(0, np.int32)], [np.zeros(0, np.int64)]
    for part_ids, part_lengths in workers.map(_tokenize_part, parts):
        ids.append(part_ids)
        lengths.append(part_lengths)
        progress(len(ids) * _TEXTS_AT_ONCE)
    return Ragged.of(np.concatenate(ids), np.concatenate(lengths))


def _tokenize_part(tokenizer: Any, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    # Also by a tokenizer of another make, as the original takes it.
    to_ids = getattr(tokenizer, "tokenize_to_ids", None) or (
        lambda text: tokenizer.convert_tokens_to_ids(tokenizer.tokenize(text))
    )
    ids, lengths = bulk.join(map(to_ids, texts))
    return ids.astype(np.int32), lengths


def write_features(path: str, table: WindowTable, num_processes: int = 1) -> None:
    """Writes the windows to a TFRecord file, which appears when it is whole."""
    progress = Progress("Writing windows", len(table))
    blocks = (
        table.features(start, start + _WINDOWS_AT_ONCE)
        for start in range(0, len(table), _WINDOWS_AT_ONCE)
    )
    num_written = 0
    with (
        Workers(num_processes, None) as workers,
        write_records([path]) as (writer,),
    ):
        for records in workers.map(_encode, blocks):
            for record in records:
                writer.write(record)
            num_written += len(records)
            progress(num_written)


def _encode(_: None, features: dict[str, np.ndarray]) -> list[bytes]:
    return encode_examples(features)


# The arguments of the function and the class below, in number and order, are the original's.

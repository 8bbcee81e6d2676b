"""Questions of SQuAD 1.1 and 2.0: their files, read and checked (paper, sections 4.2 and 4.3).

What is kept of a file, and what is skipped in training, is what the original's
`read_squad_examples` keeps and skips; where that one crashes, see `ReadingSummary`.
"""

import array
import dataclasses
import json
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from absl import logging

from bert.files.json_text import parse_json
from bert.files.paths import read_file
from bert.tasks.squad.remembered import remembered

# Original: run_squad.py, is_whitespace. Other spaces, such as U+00A0, belong to words.
_WORD = re.compile("[^ \t\r\n\u202f]+")
# Where `str.split` splits, too.
_OTHER_SPACES = re.compile("[\x0b\x0c\x1c-\x1f\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u205f\u3000]")


class Answer(NamedTuple):
    """An answer as a file gives it, with the offset in characters at which it begins."""

    text: str
    start: int | None


@dataclasses.dataclass
class SquadExample:
    """A question about a paragraph.

    Attributes:
      qas_id: The question's id.
      question_text: The question.
      doc_tokens: The paragraph's words; the questions about a paragraph share one list.
      orig_answer_text: For training; empty for a question without an answer.
      start_position: For training, the first word of the answer; -1 without an answer.
      end_position: The last word, likewise.
      is_impossible: For training, whether the paragraph has no answer.
      context: The paragraph as it stands in the file.
      answers: What the file gives, none for SQuAD 2.0's questions without an answer; None where
        the file does not say.
    """

    qas_id: str
    question_text: str
    doc_tokens: Sequence[str]
    orig_answer_text: str | None = None
    start_position: int | None = None
    end_position: int | None = None
    is_impossible: bool = False
    context: str = dataclasses.field(default="", repr=False)
    answers: tuple[Answer, ...] | None = dataclasses.field(default=None, repr=False)


@dataclasses.dataclass
class ReadingSummary:
    """What was read from a file, and what of it is not as it should be."""

    num_articles: int = 0
    num_paragraphs: int = 0
    num_questions: int = 0
    num_examples: int = 0
    num_impossible: int = 0
    num_blank_contexts: int = 0
    num_repeated_ids: int = 0
    num_wrong_offsets: int = 0
    num_several_answers: int = 0
    num_without_answer: int = 0
    num_not_found: int = 0

    def log(self, input_file: str) -> None:
        """Logs what was read, and a warning for each thing that is not as it should be."""
        logging.info(
            "%s: %d questions about %d paragraphs of %d articles; %d examples, %d of them without "
            "an answer.",
            input_file,
            self.num_questions,
            self.num_paragraphs,
            self.num_articles,
            self.num_examples,
            self.num_impossible,
        )
        for count, meaning in (
            (self.num_blank_contexts, "paragraphs are blank, so that nothing can be found there"),
            (
                self.num_repeated_ids,
                "questions have the id of an earlier one; of the answers to these, the last stays",
            ),
            (self.num_wrong_offsets, "answers are not where their `answer_start` says"),
            (self.num_several_answers, "training questions have several answers; the first counts"),
            (
                self.num_without_answer,
                "training questions have no answer, nor an `is_impossible` that says so, and are "
                "skipped",
            ),
            (
                self.num_not_found,
                "training questions are skipped, because words cut at spaces do not give back the "
                "answer",
            ),
        ):
            if count:
                logging.warning("%s: %d %s.", input_file, count, meaning)


def read_squad_examples(
    input_file: str, is_training: bool, version_2_with_negative: bool = False
) -> list[SquadExample]:
    """Returns the questions of a file in SQuAD's JSON, and logs what was read.

    Args:
      input_file: A path, local or any that `tf.io.gfile` reads.
      is_training: Whether answers are located; without them, questions are skipped.
      version_2_with_negative: Whether training is on questions without an answer, too.

    Raises:
      ValueError: naming the file, the place in it, the question's id and what is wrong.
    """
    examples, summary = read_examples(input_file, is_training, version_2_with_negative)
    summary.log(input_file)
    return examples


def read_examples(
    input_file: str, is_training: bool, version_2_with_negative: bool = False
) -> tuple[list[SquadExample], ReadingSummary]:
    """Returns the questions as `read_squad_examples` does, and what there is to say of the file."""
    reader = _Reader(is_training, version_2_with_negative)
    examples: list[SquadExample] = []
    for index, article in enumerate(_read_articles(input_file)):
        try:
            examples += reader.read_article(article)
        except _MalformedError as error:
            raise ValueError(f"{input_file!r}, data[{index}]{error}") from error
    if not examples:
        reader.summary.log(input_file)
        raise ValueError(
            f"{input_file!r} must hold questions{' to train on' if is_training else ''}. It has "
            f"{reader.summary.num_questions}, of which none can be used."
        )
    return examples, reader.summary


def _read_articles(input_file: str) -> list[Any]:
    """Returns what the file's object has as `data`.

    Raises:
      ValueError: naming the file, where it cannot be read, is not JSON, or has no such list.
    """
    try:
        content = parse_json(read_file(input_file).decode("utf-8-sig"))
    except OSError as error:
        reason = error.strerror or error
        raise ValueError(f"{input_file!r} must be a readable file ({reason}).") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"{input_file!r} must be UTF-8 text. {error}.") from error
    except json.JSONDecodeError as error:
        raise ValueError(
            f"{input_file!r} must be JSON. {error.msg} at line {error.lineno}, column "
            f"{error.colno}."
        ) from error
    except ValueError as error:
        raise ValueError(f"{input_file!r} must be JSON. {error}.") from error
    if not isinstance(content, dict):
        raise ValueError(
            f"{input_file!r} must hold an object with `data`, as SQuAD's files do. Received "
            f"{content!r:.80}."
        )
    if "data" not in content:
        raise ValueError(
            f"{input_file!r} must have `data`, as SQuAD's files do. It has {list(content)}."
        )
    articles = content["data"]
    if not isinstance(articles, list):
        raise ValueError(f"{input_file!r}: `data` must be a list. Received {articles!r:.80}.")
    return articles


class _MalformedError(Exception):
    """Says what is wrong; its place is put in front on the way up."""


def _field(holder: Any, name: str, kind: type, noun: str) -> Any:
    """Returns a field of an object, which must be there and of a kind."""
    if not isinstance(holder, dict):
        raise _MalformedError(f" must be an object with `{name}`. Received {holder!r:.80}.")
    if name not in holder:
        raise _MalformedError(f" must have `{name}`. It has {sorted(holder)}.")
    value = holder[name]
    if type(value) is not kind:
        raise _MalformedError(f": `{name}` must be {noun}. Received {value!r:.80}.")
    return value


class _Reader:
    def __init__(self, is_training: bool, version_2_with_negative: bool) -> None:
        self._is_training = is_training
        self._version_2_with_negative = version_2_with_negative
        self._ids: set[str] = set()
        self._words: dict[str, str] = {}
        self.summary = ReadingSummary()

    def read_article(self, article: Any) -> list[SquadExample]:
        self.summary.num_articles += 1
        examples: list[SquadExample] = []
        for index, paragraph in enumerate(_field(article, "paragraphs", list, "a list")):
            try:
                examples += self._read_paragraph(paragraph)
            except _MalformedError as error:
                raise _MalformedError(f".paragraphs[{index}]{error}") from error
        return examples

    def _read_paragraph(self, paragraph: Any) -> list[SquadExample]:
        context = _field(paragraph, "context", str, "text")
        questions = _field(paragraph, "qas", list, "a list")
        split = _splitter(context)
        words = split_words(context, self._words)
        self.summary.num_paragraphs += 1
        self.summary.num_blank_contexts += not words
        examples = []
        for index, question in enumerate(questions):
            try:
                example = self._read_question(question, context, words, split)
            except _MalformedError as error:
                named = isinstance(question, dict) and "id" in question
                name = f" (id {question['id']!r:.80})" if named else ""
                raise _MalformedError(f".qas[{index}]{name}{error}") from error
            if example is not None:
                examples.append(example)
        self.summary.num_examples += len(examples)
        return examples

    def _read_question(
        self, question: Any, context: str, words: list[str], split: Callable[[str], list[str]]
    ) -> SquadExample | None:
        """Returns the example, or None for one that training skips."""
        self.summary.num_questions += 1
        example = SquadExample(
            qas_id=self._read_id(question),
            question_text=_field(question, "question", str, "text"),
            doc_tokens=words,
            context=context,
            answers=self._read_answers(question, context),
        )
        if not self._is_training:
            self.summary.num_impossible += example.answers == ()
            return example
        if self._version_2_with_negative and _is_impossible(question, example.answers):
            self.summary.num_impossible += 1
            example.is_impossible = True
            example.orig_answer_text = ""
            example.start_position = example.end_position = -1
            return example
        if not example.answers:
            if question.get("is_impossible") is True:
                # Without the flag, the model would answer all questions.
                raise _MalformedError(
                    " has no answer (`is_impossible`). Train with `version_2_with_negative`, as "
                    "for SQuAD 2.0, or leave such questions out"
                )
            self.summary.num_without_answer += 1
            return None
        self.summary.num_several_answers += len(example.answers) > 1
        answer = example.answers[0]
        span = _locate(answer, context, words, split)
        if span is None:
            self.summary.num_not_found += 1
            return None
        example.orig_answer_text = answer.text
        example.start_position, example.end_position = span
        return example

    def _read_id(self, question: Any) -> str:
        number = isinstance(question, dict) and type(question.get("id")) is int
        qas_id = str(question["id"]) if number else _field(question, "id", str, "text")
        # Faithful: predictions are listed by id, so that the last one stays.
        self.summary.num_repeated_ids += qas_id in self._ids
        self._ids.add(qas_id)
        return qas_id

    def _read_answers(self, question: dict[str, Any], context: str) -> tuple[Answer, ...] | None:
        # Faithful: what is not needed is not read, so that it may be anything.
        is_impossible = question.get("is_impossible")
        if self._is_training and self._version_2_with_negative and is_impossible is True:
            return () if "answers" in question else None
        if "answers" not in question or (not self._is_training and question["answers"] is None):
            if self._is_training and not is_impossible:
                raise _MalformedError(f" must have `answers`. It has {sorted(question)}.")
            return None
        answers = []
        for index, item in enumerate(_field(question, "answers", list, "a list")):
            try:
                answers.append(self._read_answer(item, context))
            except _MalformedError as error:
                raise _MalformedError(f".answers[{index}]{error}") from error
        return tuple(answers)

    def _read_answer(self, item: Any, context: str) -> Answer:
        text = _field(item, "text", str, "text")
        # Only training needs it.
        if not self._is_training and type(item.get("answer_start")) is not int:
            return Answer(text, None)
        start = _field(item, "answer_start", int, "a whole number")
        if self._is_training and not 0 <= start < max(len(context), 1):
            raise _MalformedError(
                f": `answer_start` must be from 0 to {max(len(context) - 1, 0)}, within `context`. "
                f"Received {start}."
            )
        if start < 0 or not context.startswith(text, start):
            self.summary.num_wrong_offsets += 1
        return Answer(text, start)


def _is_impossible(question: dict[str, Any], answers: tuple[Answer, ...] | None) -> bool:
    # Departs: where SQuAD 1.1 is mixed in, the original crashes for want of the key.
    if "is_impossible" not in question:
        return not answers
    return bool(_field(question, "is_impossible", bool, "true or false"))


def _splitter(context: str) -> Callable[[str], list[str]]:
    """Returns what splits this text, or a part of it, at the spaces that the original knows."""
    return _WORD.findall if _OTHER_SPACES.search(context) else str.split


def split_words(context: str, known: dict[str, str] | None = None) -> list[str]:
    """Returns the paragraph's words.

    Args:
      context: The paragraph.
      known: Words of other paragraphs, each by itself. The same word is one object throughout,
        which saves most of the memory.
    """
    known = {} if known is None else known
    return [known.setdefault(word, word) for word in _splitter(context)(context)]


@remembered
def word_starts(context: str) -> "array.array[int]":
    """Returns the offset in characters of each of the paragraph's words."""
    return array.array("i", (match.start() for match in _WORD.finditer(context)))


def _locate(
    answer: Answer, context: str, words: list[str], split: Callable[[str], list[str]]
) -> tuple[int, int] | None:
    """Returns the first and last word of an answer; None where they do not hold its text."""
    assert answer.start is not None
    cleaned = " ".join(answer.text.split())
    end = answer.start + len(answer.text)
    # Departs: with an answer that goes beyond the paragraph the original crashes, and one of spaces
    # alone it takes to be found.
    if not cleaned or end > len(context):
        return None
    # Faithful: a space belongs to the word before it.
    first = len(split(context[: answer.start + 1])) - 1
    last = len(split(context[:end])) - 1
    if cleaned not in " ".join(words[first : last + 1]):
        return None
    return max(first, 0), last

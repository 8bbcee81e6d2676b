"""Questions of SQuAD 1.1 and 2.0, read from their files and checked (paper, sections 4.2 and 4.3).

The fields that are read, and the questions that training skips, are those of the original's
`read_squad_examples`. Files on which the original crashes are reported by `_WARNINGS` or an error.
"""

import array
import collections
import dataclasses
import functools
import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from bert.files.display import counted
from bert.files.paths import read_json_object
from bert.log import logger

# Original: run_squad.py, is_whitespace. Other spaces, such as U+00A0, belong to words.
_WORD = re.compile("[^ \t\r\n\u202f]+")
# Characters at which `str.split` splits, and the original does not.
_OTHER_SPACES = re.compile("[\x0b\x0c\x1c-\x1f\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u205f\u3000]")
_NOUNS = {str: "text", list: "a list", int: "a whole number", bool: "true or false"}
# The warnings about a file, by the name of their counter.
_WARNINGS = {
    "blank": "paragraphs are blank, so that no answer can be found in them",
    "repeated": "questions have the id of an earlier one; predictions keep the last of an id",
    "misplaced": "answers are not where their `answer_start` says",
    "several": "training questions have several answers; the first one is used",
    "unanswered": "training questions have no answer, nor an `is_impossible` that says so, and are "
    "skipped",
    "not_found": "training questions are skipped, because their answer is not in the words of the "
    "paragraph, which are split at spaces",
}


class Answer(NamedTuple):
    """An answer in a file, and the offset of its first character."""

    text: str
    start: int | None


@dataclasses.dataclass
class SquadExample:
    """A question about a paragraph.

    Attributes:
      qas_id: The question's id.
      question_text: The question.
      doc_tokens: The paragraph's words; the questions about a paragraph share one list.
      orig_answer_text: For training, the answer; empty for a question without an answer.
      start_position: For training, the first word of the answer; -1 without an answer.
      end_position: For training, the last word of the answer; -1 without an answer.
      is_impossible: For training, whether the paragraph has no answer.
      context: The paragraph as the file has it.
      answers: The answers in the file, none for SQuAD 2.0's questions without an answer; None if
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

    @functools.cached_property
    def word_starts(self) -> "array.array[int]":
        """The offset in characters of each of the paragraph's words."""
        return array.array("i", (match.start() for match in _WORD.finditer(self.context)))


def read_squad_examples(
    input_file: str, is_training: bool, version_2_with_negative: bool = False
) -> list[SquadExample]:
    """Returns the questions of a file in SQuAD's JSON format, and logs what was read.

    Args:
      input_file: A path, local or any that `tf.io.gfile` reads.
      is_training: Whether to locate answers, and to skip questions without them.
      version_2_with_negative: Whether to train on questions without an answer, too.

    Raises:
      ValueError: for a malformed file, naming the file, the place in it and the question's id.
    """
    reader = _Reader(is_training, version_2_with_negative)
    examples = reader.read(input_file)
    reader.log(input_file, examples)
    if not examples:
        raise ValueError(
            f"{input_file!r} must hold questions{' to train on' if is_training else ''}. It has "
            f"{reader.counts['questions']}, of which none can be used."
        )
    return examples


def _field(place: str, holder: Any, name: str, kind: type) -> Any:
    """Returns a required field of an object, which must be of a type of `_NOUNS`."""
    if not isinstance(holder, dict):
        raise ValueError(f"{place} must be an object with `{name}`. Received {holder!r:.80}.")
    if name not in holder:
        raise ValueError(f"{place} must have `{name}`. It has {sorted(holder)}.")
    value = holder[name]
    if type(value) is not kind:
        raise ValueError(f"{place}: `{name}` must be {_NOUNS[kind]}. Received {value!r:.80}.")
    return value


def _items(place: str, holder: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Yields the items of a required list of an object, each after its place."""
    for index, item in enumerate(_field(place, holder, name, list)):
        yield f"{place}.{name}[{index}]", item


class _Reader:
    def __init__(self, is_training: bool, version_2_with_negative: bool) -> None:
        self._is_training = is_training
        self._version_2_with_negative = version_2_with_negative
        self._ids: set[str] = set()
        self._words: dict[str, str] = {}
        self.counts: collections.Counter[str] = collections.Counter()

    def log(self, input_file: str, examples: Sequence[SquadExample]) -> None:
        """Logs what was read, and the warnings about the file."""
        logger.info(
            "%s: %s about %s of %s; %s, %d of them without an answer.",
            input_file,
            counted(self.counts["questions"], "question"),
            counted(self.counts["paragraphs"], "paragraph"),
            counted(self.counts["articles"], "article"),
            counted(len(examples), "example"),
            self.counts["impossible"],
        )
        for name, meaning in _WARNINGS.items():
            if self.counts[name]:
                logger.warning("%s: %d %s.", input_file, self.counts[name], meaning)

    def read(self, input_file: str) -> list[SquadExample]:
        """Returns the questions of a file that can be used."""
        examples = []
        for place, article in _items(repr(input_file), read_json_object(input_file), "data"):
            self.counts["articles"] += 1
            for where, paragraph in _items(place, article, "paragraphs"):
                examples += self._read_paragraph(where, paragraph)
        return examples

    def _read_paragraph(self, place: str, paragraph: Any) -> list[SquadExample]:
        context = _field(place, paragraph, "context", str)
        words = split_words(context, self._words)
        self.counts["paragraphs"] += 1
        self.counts["blank"] += not words
        examples = []
        for where, question in _items(place, paragraph, "qas"):
            has_id = isinstance(question, dict) and "id" in question
            name = f" (id {question['id']!r:.80})" if has_id else ""
            examples.append(self._read_question(where + name, question, context, words))
        return [example for example in examples if example is not None]

    def _read_question(
        self, place: str, question: Any, context: str, words: list[str]
    ) -> SquadExample | None:
        """Returns the example; None for a question that training skips."""
        self.counts["questions"] += 1
        example = SquadExample(
            qas_id=self._read_id(place, question),
            question_text=_field(place, question, "question", str),
            doc_tokens=words,
            context=context,
            answers=self._read_answers(place, question, context),
        )
        if not self._is_training:
            self.counts["impossible"] += example.answers == ()
            return example
        if self._version_2_with_negative and _is_impossible(place, question, example.answers):
            self.counts["impossible"] += 1
            example.is_impossible = True
            example.orig_answer_text = ""
            example.start_position = example.end_position = -1
            return example
        if not example.answers:
            if question.get("is_impossible") is True:
                # The model would learn to answer every question.
                raise ValueError(
                    f"{place} has no answer (`is_impossible`). Train with "
                    "`version_2_with_negative`, as for SQuAD 2.0, or leave such questions out."
                )
            self.counts["unanswered"] += 1
            return None
        self.counts["several"] += len(example.answers) > 1
        answer = example.answers[0]
        span = _locate(answer, context, words)
        if span is None:
            self.counts["not_found"] += 1
            return None
        example.orig_answer_text = answer.text
        example.start_position, example.end_position = span
        return example

    def _read_id(self, place: str, question: Any) -> str:
        is_number = isinstance(question, dict) and type(question.get("id")) is int
        qas_id = str(question["id"]) if is_number else _field(place, question, "id", str)
        # Faithful: predictions are stored by id, so that the last one remains.
        self.counts["repeated"] += qas_id in self._ids
        self._ids.add(qas_id)
        return qas_id

    def _read_answers(
        self, place: str, question: dict[str, Any], context: str
    ) -> tuple[Answer, ...] | None:
        # Faithful: answers that are not needed are not read, so that they may be malformed.
        is_impossible = question.get("is_impossible")
        if self._is_training and self._version_2_with_negative and is_impossible is True:
            return () if "answers" in question else None
        if "answers" not in question or (not self._is_training and question["answers"] is None):
            if self._is_training and not is_impossible:
                raise ValueError(f"{place} must have `answers`. It has {sorted(question)}.")
            return () if is_impossible is True else None
        return tuple(
            self._read_answer(where, item, context)
            for where, item in _items(place, question, "answers")
        )

    def _read_answer(self, place: str, item: Any, context: str) -> Answer:
        text = _field(place, item, "text", str)
        # Only training requires the offset.
        if not self._is_training and type(item.get("answer_start")) is not int:
            return Answer(text, None)
        start = _field(place, item, "answer_start", int)
        if self._is_training and not 0 <= start < max(len(context), 1):
            raise ValueError(
                f"{place}: `answer_start` must be from 0 to {max(len(context) - 1, 0)}, within "
                f"`context`. Received {start}."
            )
        self.counts["misplaced"] += start < 0 or not context.startswith(text, start)
        return Answer(text, start)


def _is_impossible(
    place: str, question: dict[str, Any], answers: tuple[Answer, ...] | None
) -> bool:
    # Departs: the original requires the key, and so crashes on a file with SQuAD 1.1 mixed in.
    if "is_impossible" not in question:
        return not answers
    return bool(_field(place, question, "is_impossible", bool))


def split_words(text: str, known: dict[str, str] | None = None) -> list[str]:
    """Returns the words of a text, split at the spaces that the original knows.

    Args:
      text: A paragraph, or a part of it.
      known: The words of other paragraphs, each under itself. Equal words become one object, which
        saves most of the memory.
    """
    words = _WORD.findall(text) if _OTHER_SPACES.search(text) else text.split()
    return words if known is None else [known.setdefault(word, word) for word in words]


def _locate(answer: Answer, context: str, words: list[str]) -> tuple[int, int] | None:
    """Returns the first and last word of an answer; None if they do not contain its text."""
    assert answer.start is not None
    cleaned = " ".join(answer.text.split())
    end = answer.start + len(answer.text)
    # Departs: the original crashes on an answer that ends after the paragraph, and accepts an
    # answer of spaces alone.
    if not cleaned or end > len(context):
        return None
    # Faithful: a space belongs to the word before it.
    first = len(split_words(context[: answer.start + 1])) - 1
    last = len(split_words(context[:end])) - 1
    if cleaned not in " ".join(words[first : last + 1]):
        return None
    return max(first, 0), last

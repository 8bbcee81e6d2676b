"""From logits to answers: the best spans of all windows, as text of the paragraph.

Follows the original's `write_predictions` to the letter: which spans are considered, their order,
how word pieces become the text that they came from, and when a question has no answer (paper,
sections 4.2 and 4.3). Where that one crashes, see `NULL_ONLY_ODDS`.
"""

import dataclasses
import functools
import json
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from absl import logging

import tokenization
from bert.files.durable import replace_files
from bert.files.progress import Progress
from bert.tasks.squad import questions as squad_questions
from bert.tasks.squad.options import DecodingOptions
from bert.tasks.squad.remembered import remembered
from bert.tasks.squad.window_table import WindowTable

# Departs: the original crashes where no span can be the answer. This says that there is none; it is
# what the original begins with to find the least score.
NULL_ONLY_ODDS = 1000000.0
# Faithful: what SQuAD 1.1, where each question has an answer, gets where no span can be it.
NO_SPAN = "empty"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Decoding(DecodingOptions):
    """Which spans are answers, and the casing of the tokens."""

    do_lower_case: bool = True


@dataclasses.dataclass(frozen=True, slots=True)
class Span:
    """Where a text comes from: characters of some words of the paragraph, joined by spaces."""

    first_word: int
    last_word: int
    begin: int
    end: int

    def in_context(self, example: squad_questions.SquadExample) -> tuple[int, int]:
        """Returns the characters of the paragraph, from the first to the one after the last."""
        words = slice(self.first_word, self.last_word + 1)
        starts = squad_questions.word_starts(example.context)[words]
        places: list[int] = []
        for start, word in zip(starts, example.doc_tokens[words], strict=True):
            places += range(start, start + len(word) + 1)
        return places[self.begin], places[self.end - 1] + 1


@dataclasses.dataclass(frozen=True, slots=True)
class Entry:
    """One of the n best answers.

    Attributes:
      text: Empty for "there is no answer".
      start_logit: Of the first token.
      end_logit: Of the last token.
      probability: Among the n best.
      span: Where the text is; None where it is nowhere.
    """

    text: str
    start_logit: float
    end_logit: float
    probability: float = 0.0
    span: Span | None = None

    @property
    def score(self) -> float:
        return self.start_logit + self.end_logit


@dataclasses.dataclass(frozen=True, slots=True)
class Prediction:
    """The answer to a question.

    Attributes:
      qas_id: The question's id.
      text: The answer, empty for none.
      nbest: The best answers, in order; never empty.
      null_odds: For SQuAD 2.0, by how much "there is no answer" scores higher than the best answer.
    """

    qas_id: str
    text: str
    nbest: tuple[Entry, ...]
    null_odds: float | None = None

    @property
    def best(self) -> Entry:
        """The entry that is the answer."""
        return next((entry for entry in self.nbest if entry.text == self.text), self.nbest[0])

    @property
    def best_text(self) -> str:
        """The best answer that is not empty, whatever its odds; empty where there is none."""
        return next((entry.text for entry in self.nbest if entry.text), "")


class Window(NamedTuple):
    """The part of a paragraph that a window holds.

    Attributes:
      first: The position in the window at which it begins.
      tokens: The part's tokens.
      words: The index of each token's word, int [tokens].
      may_begin: Whether an answer may begin there, bool [tokens].
    """

    first: int
    tokens: Sequence[str]
    words: np.ndarray
    may_begin: np.ndarray


Logits = tuple[np.ndarray, np.ndarray]
# `strip_accents` and `tokenize_chinese_chars` of the tokenizer.
Cutting = tuple[bool | None, bool]


def find_answers(
    examples: Sequence[squad_questions.SquadExample],
    table: WindowTable,
    logits: Iterable[Logits],
    tokenizer: tokenization.FullTokenizer,
    decoding: Decoding,
) -> Iterator[Prediction]:
    """Yields the answer to each question, as soon as there are logits for its windows.

    Args:
      examples: What the windows were made of.
      table: The windows.
      logits: For each window in order those of start and end, float [S]; or shorter, but not
        shorter than its tokens, where positions of padding are not to compete.
      tokenizer: With the vocabulary of the windows.
      decoding: What decides.

    Raises:
      ValueError: where logits are missing, too short or not finite.
    """
    basic = tokenizer.basic_tokenizer
    cutting = (basic.strip_accents, basic.tokenize_chinese_chars)
    rows = iter(logits)
    progress = Progress("Finding answers", len(examples))
    for index, example in enumerate(examples):
        numbers = table.windows_of(index)
        windows = [
            Window(
                int(table.parts[number, 0]),
                tokenizer.convert_ids_to_tokens(table.part_ids(number).tolist()),
                table.part_words(number),
                may_begin,
            )
            for number, may_begin in zip(numbers, table.max_context(index), strict=True)
        ]
        yield decode_windows(
            example, windows, [_next_row(rows, number) for number in numbers], decoding, cutting
        )
        progress(index + 1)


def _next_row(rows: Iterator[Logits], window: int) -> Logits:
    row = next(rows, None)
    if row is None:
        raise ValueError(f"There must be logits for each window. Received {window} rows only.")
    return row


def decode_windows(
    example: squad_questions.SquadExample,
    windows: Sequence[Window],
    rows: Sequence[Logits],
    decoding: Decoding,
    cutting: Cutting = (None, True),
) -> Prediction:
    """Returns the answer to a question from the logits of its windows."""
    for window, row in zip(windows, rows, strict=True):
        _check_row(example, window, row)
    null = _null_entry(rows) if decoding.version_2_with_negative else None
    nbest = _nbest(example, windows, rows, decoding, cutting, null)
    best = next((entry for entry in nbest if entry.text), None)
    probabilities = softmax([entry.score for entry in nbest])
    listed = tuple(
        Entry(entry.text, entry.start_logit, entry.end_logit, probability, entry.span)
        for entry, probability in zip(nbest, probabilities, strict=True)
    )
    if null is None:
        return Prediction(example.qas_id, listed[0].text, listed)
    if best is None:
        return Prediction(example.qas_id, "", listed, NULL_ONLY_ODDS)
    odds = null.score - best.start_logit - best.end_logit
    text = "" if odds > decoding.null_score_diff_threshold else best.text
    return Prediction(example.qas_id, text, listed, odds)


def _check_row(example: squad_questions.SquadExample, window: Window, row: Logits) -> None:
    length = window.first + len(window.tokens) + 1
    for name, logits in zip(("start", "end"), row, strict=True):
        if len(logits) < length or not np.isfinite(logits).all():
            raise ValueError(
                f"The {name} logits of a window must be finite, one for each of its {length} "
                f"tokens. Received {len(logits)} for question {example.qas_id!r}, "
                f"{int((~np.isfinite(logits)).sum())} of them not finite."
            )


def _null_entry(rows: Sequence[Logits]) -> Entry:
    """Returns "there is no answer" with the logits of the window where its score is least."""
    entries = [Entry("", float(start[0]), float(end[0])) for start, end in rows]
    return min(entries, key=lambda entry: entry.score, default=Entry("", 0.0, 0.0))


def _nbest(
    example: squad_questions.SquadExample,
    windows: Sequence[Window],
    rows: Sequence[Logits],
    decoding: Decoding,
    cutting: Cutting,
    null: Entry | None,
) -> list[Entry]:
    """Returns the entries with different texts, best first, without their probabilities."""
    found: dict[str, Entry] = {}
    for number, start, end in _best_spans(windows, rows, decoding, null):
        # Faithful: "there is no answer" comes in addition where it is not among the n best.
        if len(found) >= decoding.n_best_size:
            break
        if number < 0:
            assert null is not None
            entry = null
        else:
            start_logits, end_logits = rows[number]
            text, span = _text(example, windows[number], (start, end), decoding, cutting)
            first = windows[number].first
            entry = Entry(
                text, float(start_logits[first + start]), float(end_logits[first + end]), span=span
            )
        found.setdefault(entry.text, entry)
    if null is not None:
        found.setdefault("", null)
    return list(found.values()) or [Entry(NO_SPAN, 0.0, 0.0)]


def _best_spans(
    windows: Sequence[Window], rows: Sequence[Logits], decoding: Decoding, null: Entry | None
) -> Iterator[tuple[int, int, int]]:
    """Yields the window of each span, its first and its last token; -1 for "no answer"."""
    spans = [np.zeros((3, 0), np.int64)]
    scores: list[Any] = [np.zeros(0)]
    for number, (window, (start_logits, end_logits)) in enumerate(zip(windows, rows, strict=True)):
        # Faithful: the question and the padding compete for places among the n best, too.
        starts, ends = (
            best_places(logits, decoding.n_best_size) - window.first
            for logits in (start_logits, end_logits)
        )
        starts = starts[(starts >= 0) & (starts < len(window.tokens))]
        starts = starts[window.may_begin[starts]]
        ends = ends[(ends >= 0) & (ends < len(window.tokens))]
        lengths = ends - starts[:, None] + 1
        rank, end_rank = np.nonzero((lengths >= 1) & (lengths <= decoding.max_answer_length))
        spans.append(np.stack([np.full(len(rank), number), starts[rank], ends[end_rank]]))
        start_scores = start_logits[starts[rank] + window.first].astype(np.float64)
        scores.append(start_scores + end_logits[ends[end_rank] + window.first])
    if null is not None:
        spans.append(np.array([[-1], [0], [0]]))
        scores.append(np.array([null.score]))
    # Of equal scores the first one found comes first.
    order = np.argsort(-np.concatenate(scores), kind="stable")
    for number, start, end in np.concatenate(spans, axis=1)[:, order].T:
        yield int(number), int(start), int(end)


def best_places(logits: np.ndarray, count: int) -> np.ndarray:
    """Returns where the largest are, the largest first; of equal ones, the first."""
    return np.argsort(-logits, kind="stable")[:count]


def _text(
    example: squad_questions.SquadExample,
    window: Window,
    tokens: tuple[int, int],
    decoding: Decoding,
    cutting: Cutting,
) -> tuple[str, Span]:
    """Returns the paragraph's text from one token of a window to another, and where it stands."""
    start, end = tokens
    strip_accents, tokenize_chinese_chars = cutting
    joined = " ".join(window.tokens[start : end + 1]).replace(" ##", "").replace("##", "")
    first, last = int(window.words[start]), int(window.words[end])
    words = " ".join(example.doc_tokens[first : last + 1])
    begin, stop = align(
        " ".join(joined.split()),
        words,
        decoding.do_lower_case,
        strip_accents=strip_accents,
        tokenize_chinese_chars=tokenize_chinese_chars,
        verbose_logging=decoding.verbose_logging,
    )
    return words[begin:stop], Span(first, last, begin, stop)


def softmax(scores: Sequence[float]) -> list[float]:
    """Returns the probability of each score."""
    largest = max(scores)
    weights = [math.exp(score - largest) for score in scores]
    # In order, as the original adds them up; `sum` has its own way from Python 3.12 on.
    total = 0.0
    for weight in weights:
        total += weight
    return [weight / total for weight in weights]


def log_summary(predictions: Sequence[Prediction]) -> None:
    """Logs how many answers there are, and a warning where no span could be one."""
    logging.info(
        "%d questions answered, %d of them with an empty text.",
        len(predictions),
        sum(not prediction.text for prediction in predictions),
    )
    without = sum(all(entry.span is None for entry in each.nbest) for each in predictions)
    if without:
        logging.warning(
            "For %d questions no span could be the answer: the paragraph is blank, or the best "
            "starts and ends are in the question or too far apart. They are given %r, or for SQuAD "
            "2.0 no answer.",
            without,
            NO_SPAN,
        )


def write_answers(
    predictions: Sequence[Prediction],
    output_prediction_file: str,
    output_nbest_file: str,
    output_null_log_odds_file: str | None,
) -> None:
    """Writes the answers, and the n best, as JSON; the files appear together when all are whole.

    Args:
      predictions: In the order of the files.
      output_prediction_file: For the text of each answer, by question id.
      output_nbest_file: For the lists of entries.
      output_null_log_odds_file: For SQuAD 2.0's odds; None for SQuAD 1.1.
    """
    contents: dict[str, dict[str, Any]] = {
        output_prediction_file: {each.qas_id: each.text for each in predictions},
        output_nbest_file: {
            each.qas_id: [_entry_json(entry) for entry in each.nbest] for each in predictions
        },
    }
    if output_null_log_odds_file is not None:
        contents[output_null_log_odds_file] = {each.qas_id: each.null_odds for each in predictions}
    for path in contents:
        logging.info("Writing %s.", path)
    with replace_files(list(contents)) as files:
        for file, content in zip(files, contents.values(), strict=True):
            file.write((json.dumps(content, indent=4) + "\n").encode())


def _entry_json(entry: Entry) -> dict[str, str | float]:
    return {
        "text": entry.text,
        "probability": entry.probability,
        "start_logit": entry.start_logit,
        "end_logit": entry.end_logit,
    }


# Of a paragraph without spaces, each of very many spans is looked for in all of it.
@remembered
def align(
    pred_text: str,
    orig_text: str,
    do_lower_case: bool,
    *,
    strip_accents: bool | None = None,
    tokenize_chinese_chars: bool = True,
    verbose_logging: bool = False,
) -> tuple[int, int]:
    """Returns which characters of a text a prediction was made of.

    As long as the tokenizer leaves the number of characters but for spaces as it is, each is taken
    for the one in its place. Where that fails, all of the text is meant.

    Args:
      pred_text: Words as `BasicTokenizer` leaves them, with single spaces.
      orig_text: Text that holds them.
      do_lower_case: Of the tokenizer.
      strip_accents: Of the tokenizer.
      tokenize_chinese_chars: Of the tokenizer.
      verbose_logging: Whether to log why it fails.
    """
    split = _split(orig_text, do_lower_case, strip_accents, tokenize_chinese_chars)
    begin = split.find(pred_text)
    end = begin + len(pred_text) - 1
    if begin < 0:
        reason = "Unable to find text: %r in %r."
    elif _num_characters(split) != _num_characters(orig_text):
        reason = "Length not equal after stripping spaces, looking for %r in %r."
    elif not pred_text or split[begin] == " " or split[end] == " ":
        reason = "Couldn't map the ends of %r in %r."
    else:
        first = _place(orig_text, begin - split.count(" ", 0, begin))
        last = _place(orig_text, end - split.count(" ", 0, end))
        return first, last + 1
    if verbose_logging:
        logging.info(reason, pred_text, orig_text)
    return 0, len(orig_text)


def _num_characters(text: str) -> int:
    return len(text) - text.count(" ")


def _place(text: str, number: int) -> int:
    """Returns where the character with this number is, from 0, spaces not counted."""
    place = number
    for word in text.split(" "):
        if number < len(word):
            break
        number -= len(word)
        place += 1
    return place


@remembered
def _split(text: str, *options: Any) -> str:
    return " ".join(_basic_tokenizer(*options).tokenize(text))


@functools.lru_cache(maxsize=2)
def _basic_tokenizer(
    do_lower_case: bool, strip_accents: bool | None, tokenize_chinese_chars: bool
) -> tokenization.BasicTokenizer:
    return tokenization.BasicTokenizer(
        do_lower_case, strip_accents=strip_accents, tokenize_chinese_chars=tokenize_chinese_chars
    )

"""Decoding of answers: from the logits of windows to the best spans, as text of the paragraph.

This follows the original's `write_predictions` exactly: the spans that are considered, their order,
the way from word pieces to the text that they came from, and the choice of "no answer" (paper,
sections 4.2 and 4.3). `NULL_ONLY_ODDS` covers an input on which the original crashes.
"""

import dataclasses
import functools
import itertools
import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

import tokenization
from bert.files.display import Progress
from bert.files.durable import replace_files
from bert.log import logger
from bert.tasks.squad.options import DecodingOptions
from bert.tasks.squad.questions import SquadExample
from bert.tasks.squad.windows import WindowTable

# Departs: the original crashes if no span can be the answer. These odds choose "no answer"; the
# original's search for the lowest null score starts from this value.
NULL_ONLY_ODDS = 1000000.0
# Faithful: the answer of SQuAD 1.1, in which every question has one, if no span can be the answer.
NO_SPAN = "empty"

# Finds the characters of a text that a predicted text was made of, as `align` does.
Find = Callable[[str, str], tuple[int, int]]
Logits = tuple[np.ndarray, np.ndarray]


@dataclasses.dataclass(frozen=True, slots=True)
class Span:
    """The origin of an answer: characters of some words of the paragraph, joined by spaces."""

    first_word: int
    last_word: int
    begin: int
    end: int

    def in_context(self, example: SquadExample) -> tuple[int, int]:
        """Returns the start and end (exclusive) in characters of the paragraph."""
        words = slice(self.first_word, self.last_word + 1)
        offsets: list[int] = []
        for start, word in zip(example.word_starts[words], example.doc_tokens[words], strict=True):
            offsets += range(start, start + len(word) + 1)
        return offsets[self.begin], offsets[self.end - 1] + 1


@dataclasses.dataclass(frozen=True, slots=True)
class Entry:
    """One of the n best answers.

    Attributes:
      text: The text; empty for "no answer".
      start_logit: The logit of the first token.
      end_logit: The logit of the last token.
      probability: The probability among the n best.
      span: The place of the text; None for a text that is not from the paragraph.
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
      text: The answer; empty for "no answer".
      nbest: The best answers, in order; never empty.
      null_odds: For SQuAD 2.0, the score of "no answer" minus the best answer's.
    """

    qas_id: str
    text: str
    nbest: tuple[Entry, ...]
    null_odds: float | None = None

    @property
    def best(self) -> Entry:
        """The entry of the answer."""
        return next((entry for entry in self.nbest if entry.text == self.text), self.nbest[0])

    @property
    def best_text(self) -> str:
        """The best text that is not empty, whatever its odds; empty if every text is."""
        return next((entry.text for entry in self.nbest if entry.text), "")


class Window(NamedTuple):
    """The part of a paragraph in a window.

    Attributes:
      first: The position in the window of the part's first token.
      tokens: The tokens of the part.
      words: The index of each token's word, int [tokens].
      may_begin: Whether an answer may begin at each token, bool [tokens].
    """

    first: int
    tokens: Sequence[str]
    words: np.ndarray
    may_begin: np.ndarray


def find_answers(
    examples: Sequence[SquadExample],
    table: WindowTable,
    logits: Iterable[Logits],
    tokenizer: tokenization.FullTokenizer,
    decoding: DecodingOptions,
) -> Iterator[Prediction]:
    """Yields the answer to each question, as soon as there are logits for its windows.

    Args:
      examples: The questions of the windows.
      table: The windows.
      logits: The start and end logits of each window in order, float [S]; or only those of its
        tokens, to exclude padding from the best positions.
      tokenizer: The tokenizer of the windows.
      decoding: The options that choose among spans.

    Raises:
      ValueError: if logits are too short or not finite.
    """
    rows = iter(logits)
    progress = Progress("Finding answers", len(examples))
    for index, example in enumerate(examples):
        numbers = table.windows_of(index)
        windows = [
            Window(
                int(table.parts[number, 0]),
                tokenizer.convert_ids_to_tokens(table.part(table.paragraph_ids, number).tolist()),
                table.part(table.paragraph_words, number),
                may_begin,
            )
            for number, may_begin in zip(numbers, table.max_context(index), strict=True)
        ]
        window_rows = list(itertools.islice(rows, len(windows)))
        yield decode_windows(example, windows, window_rows, decoding, tokenizer.basic_tokenizer)
        progress(index + 1)


def decode_windows(
    example: SquadExample,
    windows: Sequence[Window],
    rows: Sequence[Logits],
    decoding: DecodingOptions,
    tokenizer: tokenization.BasicTokenizer,
) -> Prediction:
    """Returns the answer to a question from the logits of its windows.

    Args:
      example: The question.
      windows: The windows of the question.
      rows: The logits of each window.
      decoding: The options that choose among spans.
      tokenizer: The tokenizer that split the paragraph into words.
    """
    for window, row in zip(windows, rows, strict=True):
        _check_row(example, window, row)
    # A paragraph without spaces is one word, in which very many spans have to be found.
    tokenize = functools.cache(tokenizer.tokenize)

    @functools.cache
    def find(pred_text: str, orig_text: str) -> tuple[int, int]:
        return align(pred_text, orig_text, tokenize, verbose_logging=decoding.verbose_logging)

    null = _null_entry(rows) if decoding.version_2_with_negative else None
    nbest = _nbest(example, windows, rows, decoding, find, null)
    best = next((entry for entry in nbest if entry.text), None)
    probabilities = softmax([entry.score for entry in nbest])
    listed = tuple(
        dataclasses.replace(entry, probability=probability)
        for entry, probability in zip(nbest, probabilities, strict=True)
    )
    if null is None:
        return Prediction(example.qas_id, listed[0].text, listed)
    if best is None:
        return Prediction(example.qas_id, "", listed, NULL_ONLY_ODDS)
    odds = null.score - best.start_logit - best.end_logit
    text = "" if odds > decoding.null_score_diff_threshold else best.text
    return Prediction(example.qas_id, text, listed, odds)


def _check_row(example: SquadExample, window: Window, row: Logits) -> None:
    length = window.first + len(window.tokens) + 1
    for name, logits in zip(("start", "end"), row, strict=True):
        if len(logits) < length or not np.isfinite(logits).all():
            raise ValueError(
                f"The {name} logits of a window must be finite, one for each of its {length} "
                f"tokens. Received {len(logits)} for question {example.qas_id!r}, "
                f"{int((~np.isfinite(logits)).sum())} of them not finite."
            )


def _null_entry(rows: Sequence[Logits]) -> Entry:
    """Returns "no answer" with the logits of the window in which it scores lowest."""
    entries = [Entry("", float(start[0]), float(end[0])) for start, end in rows]
    return min(entries, key=lambda entry: entry.score, default=Entry("", 0.0, 0.0))


def _nbest(
    example: SquadExample,
    windows: Sequence[Window],
    rows: Sequence[Logits],
    decoding: DecodingOptions,
    find: Find,
    null: Entry | None,
) -> list[Entry]:
    """Returns the entries with different texts, best first, without their probabilities."""
    found: dict[str, Entry] = {}
    for number, start, end in _best_spans(windows, rows, decoding, null):
        # Faithful: "no answer" is added to the n best if it is not among them.
        if len(found) >= decoding.n_best_size:
            break
        if number < 0:
            assert null is not None
            entry = null
        else:
            start_logits, end_logits = rows[number]
            window = windows[number]
            text, span = _text(example, window, start, end, find)
            start_logit = float(start_logits[window.first + start])
            entry = Entry(text, start_logit, float(end_logits[window.first + end]), span=span)
        found.setdefault(entry.text, entry)
    if null is not None:
        found.setdefault("", null)
    return list(found.values()) or [Entry(NO_SPAN, 0.0, 0.0)]


def _best_spans(
    windows: Sequence[Window], rows: Sequence[Logits], decoding: DecodingOptions, null: Entry | None
) -> Iterator[tuple[int, int, int]]:
    """Yields the window, first token and last token of each span; window -1 is "no answer"."""
    spans = [np.zeros((3, 0), np.int64)]
    scores: list[Any] = [np.zeros(0)]
    for number, (window, (start_logits, end_logits)) in enumerate(zip(windows, rows, strict=True)):
        # Faithful: tokens of the question and padding take places among the n best, too.
        starts, ends = (
            best_places(logits, decoding.n_best_size) - window.first
            for logits in (start_logits, end_logits)
        )
        starts = starts[(starts >= 0) & (starts < len(window.tokens))]
        starts = starts[window.may_begin[starts]]
        ends = ends[ends < len(window.tokens)]
        lengths = ends - starts[:, None] + 1
        rank, end_rank = np.nonzero((lengths >= 1) & (lengths <= decoding.max_answer_length))
        spans.append(np.stack([np.full(len(rank), number), starts[rank], ends[end_rank]]))
        start_scores = start_logits[starts[rank] + window.first].astype(np.float64)
        scores.append(start_scores + end_logits[ends[end_rank] + window.first])
    if null is not None:
        spans.append(np.array([[-1], [0], [0]]))
        scores.append(np.array([null.score]))
    # The sort is stable: equal scores stay in the order in which they were found.
    order = np.argsort(-np.concatenate(scores), kind="stable")
    for number, start, end in np.concatenate(spans, axis=1)[:, order].T:
        yield int(number), int(start), int(end)


def best_places(logits: np.ndarray, count: int) -> np.ndarray:
    """Returns the positions of the largest logits, descending; ties in the order of positions."""
    return np.argsort(-logits, kind="stable")[:count]


def _text(
    example: SquadExample, window: Window, start: int, end: int, find: Find
) -> tuple[str, Span]:
    """Returns the text of the paragraph from one token of a window to another, and its place."""
    joined = " ".join(window.tokens[start : end + 1]).replace(" ##", "").replace("##", "")
    first, last = int(window.words[start]), int(window.words[end])
    words = " ".join(example.doc_tokens[first : last + 1])
    begin, stop = find(" ".join(joined.split()), words)
    return words[begin:stop], Span(first, last, begin, stop)


def softmax(scores: Sequence[float]) -> list[float]:
    """Returns the probability of each score."""
    largest = max(scores)
    weights = [math.exp(score - largest) for score in scores]
    # The original adds in this order; from Python 3.12 on, `sum` rounds in another way.
    total = 0.0
    for weight in weights:
        total += weight
    return [weight / total for weight in weights]


def log_summary(predictions: Sequence[Prediction]) -> None:
    """Logs the number of answers, and warns of questions for which no span can be the answer."""
    logger.info(
        "%d questions answered, %d of them with an empty text.",
        len(predictions),
        sum(not prediction.text for prediction in predictions),
    )
    num_without = sum(
        all(entry.span is None for entry in prediction.nbest) for prediction in predictions
    )
    if num_without:
        logger.warning(
            "For %d questions no span could be the answer: the paragraph is blank, or the best "
            "starts and ends are in the question or too far apart. Their answer is %r, or for "
            "SQuAD 2.0 empty.",
            num_without,
            NO_SPAN,
        )


def write_answers(
    predictions: Sequence[Prediction],
    output_prediction_file: str,
    output_nbest_file: str,
    output_null_log_odds_file: str | None,
) -> None:
    """Writes the answers and the n best as JSON; the files appear together once complete.

    Args:
      predictions: The predictions in the order of the files.
      output_prediction_file: The file of the text of each answer, by question id.
      output_nbest_file: The file of the n best answers, by question id.
      output_null_log_odds_file: The file of SQuAD 2.0's odds; None for SQuAD 1.1.
    """
    fields = ("text", "probability", "start_logit", "end_logit")
    contents: dict[str, dict[str, Any]] = {
        output_prediction_file: {p.qas_id: p.text for p in predictions},
        output_nbest_file: {
            p.qas_id: [{name: getattr(entry, name) for name in fields} for entry in p.nbest]
            for p in predictions
        },
    }
    if output_null_log_odds_file is not None:
        contents[output_null_log_odds_file] = {p.qas_id: p.null_odds for p in predictions}
    for path in contents:
        logger.info("Writing %s.", path)
    with replace_files(list(contents)) as files:
        for file, content in zip(files, contents.values(), strict=True):
            file.write((json.dumps(content, indent=4) + "\n").encode())


def format_answer(question: SquadExample, prediction: Prediction) -> dict[str, Any]:
    """Returns an answer as values of JSON.

    Returns:
      `answer`, the text, empty for "no answer"; its `start` and `end` in characters of the context,
      or None; `score`, the sum of its logits; `probability` among the n best; `nbest`, a list of
      such answers; and for SQuAD 2.0 `null_odds`.
    """
    answer = _format_entry(question, prediction.best)
    answer["nbest"] = [_format_entry(question, entry) for entry in prediction.nbest]
    if prediction.null_odds is not None:
        answer["null_odds"] = prediction.null_odds
    return answer


def _format_entry(question: SquadExample, entry: Entry) -> dict[str, Any]:
    start, end = entry.span.in_context(question) if entry.span else (None, None)
    return {
        "answer": entry.text if entry.span else "",
        "start": start,
        "end": end,
        "score": entry.score,
        "probability": entry.probability,
    }


def align(
    pred_text: str,
    orig_text: str,
    tokenize: Callable[[str], list[str]],
    *,
    verbose_logging: bool = False,
) -> tuple[int, int]:
    """Returns the start and end of the characters of a text that a prediction was made of.

    Characters are matched by their number, spaces not counted, which holds as long as the tokenizer
    changes no character into several or none. Otherwise, the result is the complete text.

    Args:
      pred_text: Words as the tokenizer returns them, joined by single spaces.
      orig_text: The text in which to find them.
      tokenize: The `tokenize` of the `BasicTokenizer`.
      verbose_logging: Whether to log a prediction that is not found.
    """
    split = " ".join(tokenize(orig_text))
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
        logger.info(reason, pred_text, orig_text)
    return 0, len(orig_text)


def _num_characters(text: str) -> int:
    return len(text) - text.count(" ")


def _place(text: str, number: int) -> int:
    """Returns the index of the character with a number from 0, spaces not counted."""
    place = number
    for word in text.split(" "):
        if number < len(word):
            break
        number -= len(word)
        place += 1
    return place

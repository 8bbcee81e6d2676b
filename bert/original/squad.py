"""Functions on texts of the original's run_squad.py, with its arguments and results.

Code written for the original finds these names as `run_squad.<name>`.
"""

import collections
import contextlib
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

import tokenization
from bert.files.records import encode_example, write_records
from bert.tasks.squad import answers as squad_answers
from bert.tasks.squad import questions as squad_questions
from bert.tasks.squad import windows as squad_windows
from bert.tasks.squad.options import DecodingOptions
from bert.tasks.squad.windows import WindowTable


@dataclasses.dataclass
class InputFeatures:
    """One window in the original's form.

    Attributes:
      unique_id: The number of the window among all windows, from 1000000000.
      example_index: The index of the question in the list of examples.
      doc_span_index: The number of the window among the question's windows.
      tokens: Tokens without padding.
      token_to_orig_map: By position of a token of the paragraph, the index of its word.
      token_is_max_context: By the same positions, whether no other window has more context.
      input_ids: Padded with 0.
      input_mask: 1 for tokens, 0 for padding.
      segment_ids: 1 for the paragraph, 0 for all else.
      start_position: For training, the answer's first token; 0 where it is not in the window.
      end_position: For training, the answer's last token; 0 where it is not in the window.
      is_impossible: Whether the question has no answer.
    """

    unique_id: int
    example_index: int
    doc_span_index: int
    tokens: list[str]
    token_to_orig_map: dict[int, int]
    token_is_max_context: dict[int, bool]
    input_ids: list[int]
    input_mask: list[int]
    segment_ids: list[int]
    start_position: int | None = None
    end_position: int | None = None
    is_impossible: bool | None = None


def input_features(
    table: WindowTable, example: int, tokenizer: tokenization.FullTokenizer
) -> Iterator[InputFeatures]:
    """Yields the windows of an example in the original's form."""
    windows = table.windows_of(example)
    rows = table.features(windows.start, windows.stop)
    answers: dict[str, Any] = {"is_impossible": False}
    max_context = table.max_context(example)
    for index, window in enumerate(windows):
        first, _, length = table.parts[window].tolist()
        ids = rows["input_ids"][index].tolist()
        places, words = range(first, first + length), table.part(table.paragraph_words, window)
        if table.answers is not None:
            answers = {
                "start_position": int(rows["start_positions"][index, 0]),
                "end_position": int(rows["end_positions"][index, 0]),
                "is_impossible": bool(rows["is_impossible"][index, 0]),
            }
        yield InputFeatures(
            unique_id=squad_windows.FIRST_UNIQUE_ID + window,
            example_index=example,
            doc_span_index=index,
            tokens=tokenizer.convert_ids_to_tokens(ids[: first + length + 1]),
            token_to_orig_map=dict(zip(places, words.tolist(), strict=True)),
            token_is_max_context=dict(zip(places, max_context[index].tolist(), strict=True)),
            input_ids=ids,
            input_mask=rows["input_mask"][index].astype(int).tolist(),
            segment_ids=rows["segment_ids"][index].astype(int).tolist(),
            **answers,
        )


def convert_examples_to_features(
    examples: Sequence[squad_questions.SquadExample],
    tokenizer: tokenization.FullTokenizer,
    max_seq_length: int,
    doc_stride: int,
    max_query_length: int,
    is_training: bool,
    output_fn: Callable[[InputFeatures], object],
) -> None:
    """Calls `output_fn` with each window of all examples, in order."""
    table = squad_windows.make_features(
        examples, tokenizer, max_seq_length, doc_stride, max_query_length, is_training
    )
    for example in range(table.num_examples):
        for features in input_features(table, example, tokenizer):
            output_fn(features)


class FeatureWriter:
    """Writes windows to a TFRecord file, which appears when the writer is closed."""

    def __init__(self, filename: str, is_training: bool) -> None:
        self.filename = filename
        self.is_training = is_training
        self.num_features = 0
        self._stack = contextlib.ExitStack()
        (self._writer,) = self._stack.enter_context(write_records([filename]))

    def process_feature(self, feature: InputFeatures) -> None:
        """Writes one window."""
        self.num_features += 1
        values: dict[str, Sequence[int]] = {
            "unique_ids": [feature.unique_id],
            "input_ids": feature.input_ids,
            "input_mask": feature.input_mask,
            "segment_ids": feature.segment_ids,
        }
        if self.is_training:
            assert feature.start_position is not None and feature.end_position is not None
            values["start_positions"] = [feature.start_position]
            values["end_positions"] = [feature.end_position]
            values["is_impossible"] = [int(bool(feature.is_impossible))]
        self._writer.write(encode_example(values))

    def close(self) -> None:
        """Completes the file."""
        self._stack.close()


class RawResult(NamedTuple):
    """The model's outputs for one window: logits for each position."""

    unique_id: int
    start_logits: Sequence[float]
    end_logits: Sequence[float]


def write_predictions(  # noqa: PLR0913, PLR0917
    all_examples: Sequence[squad_questions.SquadExample],
    all_features: Iterable[InputFeatures],
    all_results: Iterable[RawResult],
    n_best_size: int,
    max_answer_length: int,
    do_lower_case: bool,
    output_prediction_file: str,
    output_nbest_file: str,
    output_null_log_odds_file: str,
    *,
    version_2_with_negative: bool = False,
    null_score_diff_threshold: float = 0.0,
    verbose_logging: bool = False,
) -> None:
    """Writes the answers to all examples; the arguments, up to the star, are the original's.

    Raises:
      ValueError: where a window has no result, or one that is too short or not finite.
    """
    decoding = DecodingOptions(
        n_best_size=n_best_size,
        max_answer_length=max_answer_length,
        version_2_with_negative=version_2_with_negative,
        null_score_diff_threshold=null_score_diff_threshold,
        verbose_logging=verbose_logging,
    )
    tokenizer = tokenization.BasicTokenizer(do_lower_case)
    windows, rows = _group(len(all_examples), all_features, all_results)
    predictions = [
        squad_answers.decode_windows(*example, decoding, tokenizer)
        for example in zip(all_examples, windows, rows, strict=True)
    ]
    squad_answers.log_summary(predictions)
    squad_answers.write_answers(
        predictions,
        output_prediction_file,
        output_nbest_file,
        output_null_log_odds_file if version_2_with_negative else None,
    )


def _group(
    num_examples: int, all_features: Iterable[InputFeatures], all_results: Iterable[RawResult]
) -> tuple[list[list[squad_answers.Window]], list[list[squad_answers.Logits]]]:
    """Returns the windows of each example, and their logits."""
    logits = {
        result.unique_id: (np.asarray(result.start_logits), np.asarray(result.end_logits))
        for result in all_results
    }
    windows: list[list[squad_answers.Window]] = [[] for _ in range(num_examples)]
    rows: list[list[squad_answers.Logits]] = [[] for _ in range(num_examples)]
    for features in all_features:
        if features.unique_id not in logits:
            raise ValueError(
                f"There must be a result for each window. Received none for {features.unique_id}."
            )
        windows[features.example_index].append(_window_of(features))
        rows[features.example_index].append(logits[features.unique_id])
    return windows, rows


def _window_of(features: InputFeatures) -> squad_answers.Window:
    places = sorted(features.token_to_orig_map)
    return squad_answers.Window(
        places[0],
        features.tokens[places[0] : places[-1] + 1],
        np.array([features.token_to_orig_map[place] for place in places]),
        np.array([features.token_is_max_context.get(place, False) for place in places]),
    )


def get_final_text(
    pred_text: str, orig_text: str, do_lower_case: bool, *, verbose_logging: bool = False
) -> str:
    """Returns the part of `orig_text` that became `pred_text`; all of it if none is found."""
    split = tokenization.BasicTokenizer(do_lower_case).tokenize
    begin, end = squad_answers.align(pred_text, orig_text, split, verbose_logging=verbose_logging)
    return orig_text[begin:end]


def get_best_indexes(logits: Sequence[float], n_best_size: int) -> list[int]:
    """Returns the indexes of the `n_best_size` largest logits, the largest first."""
    return squad_answers.best_places(np.asarray(logits), n_best_size).tolist()


def compute_softmax(scores: Sequence[float]) -> list[float]:
    """Returns the probability of each score; [] for []."""
    return squad_answers.softmax(scores) if len(scores) else []


def improve_answer_span(
    doc_tokens: Sequence[str],
    input_start: int,
    input_end: int,
    tokenizer: tokenization.FullTokenizer,
    orig_answer_text: str,
) -> tuple[int, int]:
    """Returns the first and last token of the answer within a span, or else of the span.

    Args:
      doc_tokens: Tokens of the paragraph.
      input_start: First token of the words that hold the answer.
      input_end: Last token of these words.
      tokenizer: The tokenizer of the paragraph.
      orig_answer_text: The answer.
    """
    number: collections.defaultdict[str, int] = collections.defaultdict()
    number.default_factory = number.__len__
    tokens, answer = (
        np.array([number[token] for token in part], np.int32)
        for part in (doc_tokens[input_start : input_end + 1], tokenizer.tokenize(orig_answer_text))
    )
    start, length = squad_windows.improve_answer_span(tokens, answer)
    return input_start + start, input_start + start + length - 1


class DocSpan(NamedTuple):
    """A part of a paragraph, in tokens."""

    start: int
    length: int


def check_is_max_context(doc_spans: Sequence[DocSpan], cur_span_index: int, position: int) -> bool:
    """Returns whether no other span has more context of the token at `position`."""
    scores = [
        float(squad_windows.context_scores(np.array(position - span.start), span.length))
        if 0 <= position - span.start < span.length
        else -np.inf
        for span in doc_spans
    ]
    return int(np.argmax(scores)) == cur_span_index

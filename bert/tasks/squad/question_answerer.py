"""Answers questions about paragraphs with a trained model (paper, sections 4.2 and 4.3)."""

import dataclasses
import functools
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import keras
import numpy as np
from scipy.special import softmax

import modeling
import tokenization
from bert.files import fingerprints
from bert.files.machine import usable_cores
from bert.network.heads import span_model
from bert.tasks.answering import EncoderTask, stored_field
from bert.tasks.examples import QUERIES, Arrays, InputRow, Inputs, Outputs, Part
from bert.tasks.squad import answers as squad_answers
from bert.tasks.squad import windows as squad_windows
from bert.tasks.squad.options import DecodingOptions, check_lengths
from bert.tasks.squad.questions import SquadExample, split_words
from bert.tasks.squad.windows import WindowTable

if TYPE_CHECKING:
    from bert.export.tokenizer import GraphTokenizer

_FEATURES = ("input_ids", "input_mask", "segment_ids")


class _TableArrays(Mapping[str, np.ndarray]):
    """The model's inputs for all windows of a table, int32 [W, S], computed when first read.

    A table without windows, of blank paragraphs, has one row of padding, since the model needs one.
    """

    def __init__(self, table: WindowTable) -> None:
        self._table = table

    def head(self, count: int) -> dict[str, np.ndarray]:
        """Returns the inputs for the first windows."""
        table = self._table
        if not len(table):
            return dict.fromkeys(_FEATURES, np.zeros((1, table.max_seq_length), np.int32))
        features = table.features(0, min(count, len(table)))
        return {name: features[name].astype(np.int32) for name in _FEATURES}

    @functools.cached_property
    def _arrays(self) -> dict[str, np.ndarray]:
        return self.head(len(self._table))

    def __getitem__(self, name: str) -> np.ndarray:
        return self._arrays[name]

    def __iter__(self) -> Iterator[str]:
        return iter(_FEATURES)

    def __len__(self) -> int:
        return len(_FEATURES)


@dataclasses.dataclass(frozen=True, kw_only=True)
class WindowInputs(Inputs):
    """Questions, and windows over their paragraphs.

    Attributes:
      table: The windows.
      padding_competes: Whether positions of padding take places among the n best.
    """

    arrays: _TableArrays
    table: WindowTable
    padding_competes: bool = False

    @property
    def num_rows(self) -> int:
        return max(len(self.table), 1)

    def describe(self) -> dict[str, Any]:
        # Of answers, the arrays have none.
        given = [
            (each.start_position, each.end_position, each.is_impossible, each.answers)
            for each in self.examples
        ]
        digest = fingerprints.of_bytes(json.dumps([given, self.table.num_labeled]).encode())
        count = f"of {len(given)} questions"
        key = {f"the answer key of the {self.part.name} set": {"count": count, "sha256": digest}}
        return {**super().describe(), **key}

    def head(self, count: int) -> Arrays:
        # The arrays of all windows over long paragraphs would be many times as large.
        return self.arrays.head(count)


@dataclasses.dataclass(frozen=True)
class QuestionAnswerer(EncoderTask):
    """A task of `bert.tasks.answering` whose predictions are spans of paragraphs.

    Attributes:
      doc_stride: Tokens from the start of one window to the start of the next.
      max_query_length: Maximum tokens per question; longer questions are truncated.
      decoding: The options that choose among spans.
    """

    doc_stride: int
    max_query_length: int
    decoding: DecodingOptions

    kind = "question_answering"
    fields = ("question", "context")

    @classmethod
    def from_stored(
        cls,
        stored: Mapping[str, Any],
        config: modeling.BertConfig,
        tokenizer: tokenization.FullTokenizer,
    ) -> "QuestionAnswerer":
        """Returns the task that a `task.json` describes."""
        decoding = {name: stored_field(stored, name, kind) for name, kind in _DECODING.items()}
        lengths = {name: stored_field(stored, name, int) for name in LENGTHS}
        check_lengths(**lengths)
        del lengths["max_seq_length"]
        return cls.restore(
            stored, config, tokenizer, **lengths, decoding=DecodingOptions(**decoding)
        )

    @property
    def answer_names(self) -> tuple[str, ...]:
        names = ("answer", "start", "end", "score", "probability", "nbest")
        return (*names, *["null_odds"] * self.decoding.version_2_with_negative)

    def stored(self) -> dict[str, Any]:
        lengths = {name: getattr(self, name) for name in LENGTHS[1:]}
        return self.store(**lengths, **{name: getattr(self.decoding, name) for name in _DECODING})

    def parse(self, rows: Sequence[InputRow]) -> list[SquadExample]:
        # The questions about a paragraph share its words.
        known: dict[str, str] = {}
        words = {row["context"]: split_words(row["context"], known) for row in rows}
        return [
            SquadExample(
                str(number), row["question"], words[row["context"]], context=row["context"]
            )
            for number, row in enumerate(rows)
        ]

    def make_inputs(self, part: Part, examples: Sequence[SquadExample]) -> WindowInputs:
        table = squad_windows.make_features(
            examples,
            self.tokenizer,
            self.max_seq_length,
            self.doc_stride,
            self.max_query_length,
            part.split == "train",
            num_processes(examples),
            logs=part != QUERIES,
        )
        return WindowInputs(
            part,
            examples,
            arrays=_TableArrays(table),
            # Faithful: epochs are counted in questions, some of which have several windows.
            num_examples=table.num_examples,
            table=table,
        )

    def make_model(self, precision: str) -> keras.Model:
        return self.build_model(span_model, dtype=precision)

    def decode(self, inputs: Inputs, outputs: Outputs) -> list[squad_answers.Prediction]:
        assert isinstance(inputs, WindowInputs)
        questions, rows = inputs.examples, _rows(inputs, outputs)
        return list(
            squad_answers.find_answers(questions, inputs.table, rows, self.tokenizer, self.decoding)
        )

    def probabilities(self, arrays: Arrays, outputs: Arrays) -> np.ndarray:
        logits = np.stack([outputs["start_logits"], outputs["end_logits"]])  # [2, W, S]
        is_token = arrays["input_mask"][:, : logits.shape[-1]] > 0
        return softmax(np.where(is_token, logits, -np.inf), axis=-1)

    def answers(
        self, inputs: Inputs, predictions: Sequence[squad_answers.Prediction]
    ) -> list[dict[str, Any]]:
        return [
            squad_answers.format_answer(question, prediction)
            for question, prediction in zip(inputs.examples, predictions, strict=True)
        ]

    def export_text(self, folder: str, model: keras.Model, tokenizer: "GraphTokenizer") -> None:
        from bert.tasks.squad.export import export_answerer  # noqa: PLC0415

        lengths = {name: getattr(self, name) for name in LENGTHS}
        export_answerer(folder, model, tokenizer, **lengths, decoding=self.decoding)


# The fields of `task.json` about windows, and those about decoding with their types.
LENGTHS = ("max_seq_length", "doc_stride", "max_query_length")
_DECODING: Mapping[str, type] = {
    "version_2_with_negative": bool,
    "n_best_size": int,
    "max_answer_length": int,
    "null_score_diff_threshold": float,
}


def num_processes(examples: Sequence[SquadExample]) -> int:
    """Returns the number of processes that tokenize the paragraphs of questions."""
    return min(usable_cores(), max(len(examples) // squad_windows.QUESTIONS_PER_PROCESS, 1))


def _rows(inputs: WindowInputs, outputs: Outputs) -> Iterator[squad_answers.Logits]:
    """Yields the start and end logits of each window, in the order of windows."""
    lengths = None if inputs.padding_competes else inputs.table.lengths()
    # Outputs come in any order: logits wait until those of all windows before are there.
    waiting: dict[int, squad_answers.Logits] = {}
    following = 0
    for numbers, arrays in outputs:
        for row, number in enumerate(numbers.tolist()):
            if number < len(inputs.table):
                length = None if lengths is None else int(lengths[number])
                waiting[number] = (
                    arrays["start_logits"][row, :length],
                    arrays["end_logits"][row, :length],
                )
        while following in waiting:
            yield waiting.pop(following)
            following += 1

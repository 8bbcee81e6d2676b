"""The task of answering questions about paragraphs (paper, sections 4.2 and 4.3)."""

import dataclasses
import functools
import random
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np
from absl import logging
from scipy.special import softmax

import modeling
import tokenization
from bert.files.owned import claim
from bert.files.processes import usable_cores
from bert.network.heads import span_model, span_objective
from bert.options import MessageError, Option, OptionError
from bert.tasks.bilstm import bilstm_fields, stored_bilstm
from bert.tasks.squad import answers as squad_answers
from bert.tasks.squad import scores as squad_scores
from bert.tasks.squad import windows as squad_windows
from bert.tasks.squad.questions import SquadExample, read_squad_examples, split_words
from bert.tasks.squad.window_table import WindowTable
from bert.tasks.task import (
    ASKED,
    Arrays,
    ExampleFile,
    Inputs,
    Outputs,
    Part,
    Row,
    stored_field,
)
from bert.training.batches import LENGTH, Batches, Feature, Records, encoder_features
from bert.training.objective import Objective
from bert.training.scores import save_scores

# Faithful: whatever the seed of the run, the examples are shuffled with this one.
SHUFFLE_SEED = 12345

_FEATURES = ("input_ids", "input_mask", "segment_ids")


@dataclasses.dataclass(frozen=True, kw_only=True)
class WindowInputs(Inputs):
    """Questions, and windows over their paragraphs.

    Attributes:
      table: The windows; `arrays` are made of it when they are asked for.
      padding_competes: Whether padding competes for places among the best.
    """

    table: WindowTable
    padding_competes: bool = False

    @property
    def num_rows(self) -> int:
        return max(len(self.table), 1)

    def head(self, count: int) -> Arrays:
        # Of long paragraphs, all windows are many times as large as these.
        return _features(self.table, count)


def _features(table: WindowTable, count: int) -> dict[str, np.ndarray]:
    """Returns what the model reads of the first windows, as `_TableArrays` has it of all."""
    if not len(table):
        return dict.fromkeys(_FEATURES, np.zeros((1, table.max_seq_length), np.int32))
    features = table.features(0, min(count, len(table)))
    return {name: features[name].astype(np.int32) for name in _FEATURES}


class _TableArrays(Mapping[str, np.ndarray]):
    """What the model reads of all windows of a table, int32 [W, S], made when it is asked for.

    Where all paragraphs are blank there is no window, but the model wants one: it is not looked at.
    """

    def __init__(self, table: WindowTable) -> None:
        self._table = table

    @functools.cached_property
    def _arrays(self) -> dict[str, np.ndarray]:
        return _features(self._table, len(self._table))

    def __getitem__(self, name: str) -> np.ndarray:
        return self._arrays[name]

    def __iter__(self) -> Iterator[str]:
        return iter(_FEATURES)

    def __len__(self) -> int:
        return len(_FEATURES)


@dataclasses.dataclass(frozen=True)
class QuestionAnswering:
    """Implements the protocols of `bert.tasks.task`; its predictions are those of `answers`.

    Attributes:
      config: The shape of the model.
      tokenizer: That of the model.
      max_seq_length: Tokens of a window at most.
      doc_stride: Tokens from the beginning of a window to that of the next one.
      max_query_length: Tokens of a question; what is longer is cut.
      decoding: Which spans are answers.
      files: By split, the file to read; empty for a model that only answers.
      scored_options: The options in use that need answers in the file of the dev set.
      add_bilstm: Whether a BiLSTM stands on the encoder.
    """

    config: modeling.BertConfig
    tokenizer: tokenization.FullTokenizer
    max_seq_length: int
    doc_stride: int
    max_query_length: int
    decoding: squad_answers.Decoding
    files: Mapping[str, str] = dataclasses.field(default_factory=dict)
    scored_options: Sequence[str] = ()
    add_bilstm: bool = False

    kind = "question_answering"
    metric = "f1"
    counts_examples = False
    guess = "never answering"
    fields = ("question", "context")

    @classmethod
    def from_stored(
        cls,
        stored: Mapping[str, Any],
        config: modeling.BertConfig,
        tokenizer: tokenization.FullTokenizer,
    ) -> "QuestionAnswering":
        """Returns the task that `task.json` describes."""
        kinds = {"do_lower_case": bool, **_DECODING}
        decoding = squad_answers.Decoding(
            **{name: stored_field(stored, name, kind) for name, kind in kinds.items()}
        )
        lengths = {name: stored_field(stored, name, int) for name in _LENGTHS}
        return cls(
            config, tokenizer, **lengths, decoding=decoding, add_bilstm=stored_bilstm(stored)
        )

    @property
    def answer_names(self) -> tuple[str, ...]:
        names = ("answer", "start", "end", "score", "probability", "nbest")
        return (*names, *["null_odds"] * self.decoding.version_2_with_negative)

    def stored(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "do_lower_case": self.tokenizer.basic_tokenizer.do_lower_case,
            **{name: getattr(self, name) for name in _LENGTHS},
            **{name: getattr(self.decoding, name) for name in _DECODING},
            **bilstm_fields(add_bilstm=self.add_bilstm),
        }

    def fixed(self, *, is_training: bool) -> Collection[str]:
        # Windows of the training; a trained model may be asked in other ways.
        of_training = [*_LENGTHS, "version_2_with_negative"]
        return ("kind", "do_lower_case", *of_training * is_training)

    def read(self, splits: Collection[str]) -> dict[Part, Sequence[SquadExample]]:
        examples: dict[Part, Sequence[SquadExample]] = {}
        for split in splits:
            is_training = split == "train"
            read = read_squad_examples(
                self.files[split], is_training, self.decoding.version_2_with_negative
            )
            if is_training:
                random.Random(SHUFFLE_SEED).shuffle(read)
            elif self.scored_options and not self.golds(read):
                raise MessageError(
                    "%s needs answers in %s to score with. There are none in %r.",
                    *map(Option, (self.scored_options[0], "predict_file")),
                    self.files[split],
                )
            examples[Part(split)] = read
        return examples

    def parse(self, rows: Sequence[Row]) -> list[SquadExample]:
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
        is_training = part.split == "train"
        table = squad_windows.make_features(
            examples,
            self.tokenizer,
            self.max_seq_length,
            self.doc_stride,
            self.max_query_length,
            is_training,
            _num_processes(examples),
            tells=part != ASKED,
        )
        if is_training and not len(table):
            raise OptionError(
                "train_file",
                "have paragraphs with words",
                remedy=f"{self.files['train']!r} has none.",
            )
        return WindowInputs(
            part,
            examples,
            _TableArrays(table),
            # Faithful: steps are counted in questions, of which some have several windows.
            num_examples=table.num_examples,
            table=table,
        )

    def open_inputs(self, inputs: Inputs, file: ExampleFile) -> WindowInputs:
        assert isinstance(inputs, WindowInputs)
        table = inputs.table
        table.log_summary()
        squad_windows.write_features(file.path, table, _num_processes(inputs.examples))
        features = encoder_features(
            max_seq_length=self.max_seq_length,
            vocab_size=self.config.vocab_size,
            type_vocab_size=self.config.type_vocab_size,
        )
        if inputs.part.split == "train":
            place = Feature(1, "the task", self.max_seq_length, LENGTH)
            features |= {"start_positions": place, "end_positions": place}
            batches = file.open(features, table.lengths())
            return dataclasses.replace(inputs, batches=batches)
        if not len(table):
            return inputs
        # Faithful: padding competes for places among the n best, so all of it is there by default.
        buckets = self.decoding.bucket_predictions
        lengths = table.lengths() if buckets else None
        batches = Batches(
            Records([file.path]), features, file.batch_size, lengths=lengths, trim=buckets
        )
        return dataclasses.replace(inputs, batches=batches, padding_competes=not buckets)

    def make_model(self, precision: str) -> keras.Model:
        return span_model(self.config, dtype=precision, add_bilstm=self.add_bilstm)

    def whole_model(self, model: keras.Model) -> keras.Model:
        return model

    def objective(self, inputs: Inputs) -> Objective:
        return Objective(*span_objective())

    def decode(self, inputs: Inputs, outputs: Outputs) -> list[squad_answers.Prediction]:
        assert isinstance(inputs, WindowInputs)
        rows = _rows(inputs, outputs)
        return list(
            squad_answers.find_answers(
                inputs.examples, inputs.table, rows, self.tokenizer, self.decoding
            )
        )

    def probabilities(self, arrays: Arrays, outputs: Arrays) -> np.ndarray:
        logits = np.stack([outputs["start_logits"], outputs["end_logits"]])  # [2, W, S]
        is_token = arrays["input_mask"][:, : logits.shape[-1]] > 0
        return softmax(np.where(is_token, logits, -np.inf), axis=-1)

    def answers(
        self, inputs: Inputs, predictions: Sequence[squad_answers.Prediction]
    ) -> list[dict[str, Any]]:
        """Returns an answer for each question, fit for JSON.

        Each has `answer`, empty for none, with its `start` and `end` in characters of the context,
        or None; `score`, the sum of its logits; `probability` among the n best; `nbest`, these,
        each likewise; and for SQuAD 2.0 `null_odds`. Padding does not compete.
        """
        return [
            _answer(question, prediction)
            for question, prediction in zip(inputs.examples, predictions, strict=True)
        ]

    def golds(self, questions: Sequence[SquadExample]) -> dict[str, list[str]]:
        """Returns the gold answers of the questions that can be scored."""
        is_v2 = self.decoding.version_2_with_negative
        # Of questions with the same id, the last counts, as among the predictions.
        by_id = {question.qas_id: question.answers for question in questions}
        return {
            qas_id: [answer.text for answer in answers]
            for qas_id, answers in by_id.items()
            if answers or (answers == () and is_v2)
        }

    def score(
        self, inputs: Inputs, predictions: Sequence[squad_answers.Prediction]
    ) -> dict[str, Any]:
        """Returns the official scores, and as `baseline` the F1 of giving one answer to all."""
        golds = self.golds(inputs.examples)
        num_questions = len({example.qas_id for example in inputs.examples})
        if golds and len(golds) < num_questions:
            logging.warning(
                "%d questions are not scored, as the file has no answer to them; for those that "
                "have none, as in SQuAD 2.0, set %s.",
                num_questions - len(golds),
                Option("version_2_with_negative"),
            )
        if not golds:
            return {}
        if not self.decoding.version_2_with_negative:
            texts = {prediction.qas_id: prediction.text for prediction in predictions}
            return {**squad_scores.evaluate_v1(golds, texts), **self._baseline(0.0)}
        odds = {each.qas_id: each.null_odds for each in predictions if each.null_odds is not None}
        # Departs: the official script reads answers that are empty beyond the threshold of the run,
        # and so finds no better one above that. With those of all, and it, the scores are the same.
        texts = {prediction.qas_id: prediction.best_text for prediction in predictions}
        threshold = self.decoding.null_score_diff_threshold
        scores = squad_scores.evaluate_v2(golds, texts, odds, threshold)
        return {**scores, **self._baseline(scores.get("NoAns_total", 0) / scores["total"])}

    def _baseline(self, share: float) -> dict[str, Any]:
        return {"baseline": 100.0 * share, "baseline_metric": self.metric}

    def write(
        self,
        folder: str,
        step: int,
        inputs: Inputs,
        predictions: Sequence[squad_answers.Prediction],
        scores: Mapping[str, Any],
    ) -> None:
        squad_answers.log_summary(predictions)
        is_v2 = self.decoding.version_2_with_negative
        squad_answers.write_answers(
            predictions,
            claim(folder, "predictions.json"),
            claim(folder, "nbest_predictions.json"),
            claim(folder, "null_odds.json") if is_v2 else None,
        )
        if official := squad_scores.without_baseline(scores):
            _write_scores(folder, step, official)

    def export(self, folder: str, model: keras.Model) -> None:
        # A model that only answers loads no writer of graphs.
        from bert.tasks.squad.export import export_answerer  # noqa: PLC0415

        export_answerer(
            folder,
            model,
            self.tokenizer,
            max_seq_length=self.max_seq_length,
            doc_stride=self.doc_stride,
            max_query_length=self.max_query_length,
            decoding=self.decoding,
        )


# What `task.json` keeps of the windows and of the decoding.
_LENGTHS = ("max_seq_length", "doc_stride", "max_query_length")
_DECODING: Mapping[str, type] = {
    "version_2_with_negative": bool,
    "n_best_size": int,
    "max_answer_length": int,
    "null_score_diff_threshold": float,
}


def _num_processes(examples: Sequence[SquadExample]) -> int:
    return min(usable_cores(), max(len(examples) // squad_windows.QUESTIONS_PER_PROCESS, 1))


def _rows(inputs: WindowInputs, outputs: Outputs) -> Iterator[squad_answers.Logits]:
    """Yields the logits of each window, in order; what comes too early waits."""
    lengths = None if inputs.padding_competes else inputs.table.lengths()
    waiting: dict[int, squad_answers.Logits] = {}
    following = 0
    for numbers, each in outputs:
        for row, number in enumerate(numbers.tolist()):
            if number < len(inputs.table):
                length = None if lengths is None else int(lengths[number])
                waiting[number] = (
                    each["start_logits"][row, :length],
                    each["end_logits"][row, :length],
                )
        while following in waiting:
            yield waiting.pop(following)
            following += 1


def _write_scores(folder: str, step: int, scores: Mapping[str, Any]) -> None:
    save_scores(folder, step, scores)
    logging.info("***** Eval results at step %d *****", step)
    for name, value in scores.items():
        logging.info("  %s = %s", name, value if isinstance(value, int) else f"{value:.4f}")


def _answer(question: SquadExample, prediction: squad_answers.Prediction) -> dict[str, Any]:
    answer = _entry(question, prediction.best)
    answer["nbest"] = [_entry(question, entry) for entry in prediction.nbest]
    if prediction.null_odds is not None:
        answer["null_odds"] = prediction.null_odds
    return answer


def _entry(question: SquadExample, entry: squad_answers.Entry) -> dict[str, Any]:
    start, end = entry.span.in_context(question) if entry.span else (None, None)
    return {
        "answer": entry.text if entry.span else "",
        "start": start,
        "end": end,
        "score": entry.score,
        "probability": entry.probability,
    }

"""A classifier: reads texts or pairs of texts, and decides labels or a number."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import keras
import numpy as np

import modeling
import tokenization
from bert.network.heads import classifier_model
from bert.options import changed_options
from bert.tasks.answering import EncoderTask, collect, stored_field
from bert.tasks.classification import decisions
from bert.tasks.classification.examples import ClassificationTask, InputExample
from bert.tasks.classification.inputs import make_features, pool_windows
from bert.tasks.classification.long_texts import CUT_AT_ENDS, LongTexts
from bert.tasks.examples import QUERIES, Arrays, InputRow, Inputs, Outputs, Part

if TYPE_CHECKING:
    from bert.export.tokenizer import GraphTokenizer


def stored_temperature(stored: Mapping[str, Any]) -> float:
    """Returns the temperature of a calibrated model that `task.json` has, or 1."""
    temperature = stored_field({"temperature": 1.0, **stored}, "temperature", float)
    if not temperature > 0.0:
        raise ValueError(f"`temperature` in task.json must be positive. Received {temperature}.")
    return temperature


def stored_long_texts(stored: Mapping[str, Any]) -> LongTexts:
    """Returns what a model reads of long texts, as `task.json` has it."""
    kinds = {"truncation": str, "doc_stride": int, "window_pooling": str, "max_windows": int}
    found = {name: stored_field(stored, name, kinds[name]) for name in kinds.keys() & stored.keys()}
    return LongTexts(**found)


@dataclasses.dataclass(frozen=True)
class TextClassifier(EncoderTask):
    """A task of `bert.tasks.answering` whose predictions are logits, float32 [B, C].

    Attributes:
      task: The labels, and the type of the task.
      columns: The options of columns with which the training file was read.
      temperature: The number by which logits are divided; 1 without a calibration.
      long_texts: What is read of texts that are longer than the sequences of the model.
    """

    task: ClassificationTask
    columns: Mapping[str, Any] = dataclasses.field(default_factory=dict, kw_only=True)
    temperature: float = dataclasses.field(default=1.0, kw_only=True)
    long_texts: LongTexts = dataclasses.field(default=CUT_AT_ENDS, kw_only=True)

    kind = "classification"

    def __post_init__(self) -> None:
        self.long_texts.check(self.max_seq_length, is_pair=self.task.is_pair)

    @classmethod
    def from_stored(
        cls,
        stored: Mapping[str, Any],
        config: modeling.BertConfig,
        tokenizer: tokenization.FullTokenizer,
    ) -> "TextClassifier":
        """Returns the task that `task.json` describes."""
        return cls.restore(
            stored,
            config,
            tokenizer,
            task=ClassificationTask.from_dict(stored_field(stored, "task", dict)),
            columns=stored_field({"columns": {}, **stored}, "columns", dict),
            temperature=stored_temperature(stored),
            long_texts=stored_long_texts(stored),
        )

    @property
    def fields(self) -> tuple[str, ...]:
        return ("text_a", "text_b") if self.task.is_pair else ("text_a",)

    @property
    def answer_names(self) -> tuple[str, ...]:
        key = decisions.KEYS[self.task.task_type]
        return (key,) if self.task.task_type == "regression" else (key, "probabilities")

    def stored(self) -> dict[str, Any]:
        columns = {"columns": dict(self.columns)} if self.columns else {}
        return {
            **self.store(self.task.to_dict(), **columns),
            **({"temperature": self.temperature} if self.temperature != 1.0 else {}),
            **changed_options(self.long_texts),
        }

    def parse(self, rows: Sequence[InputRow]) -> list[InputExample]:
        return [
            InputExample(str(number), *(row[name] for name in self.fields))
            for number, row in enumerate(rows)
        ]

    def make_inputs(self, part: Part, examples: Sequence[InputExample]) -> Inputs:
        arrays = make_features(
            examples,
            self.task,
            self.tokenizer,
            self.max_seq_length,
            long_texts=self.long_texts,
            logs=part != QUERIES,
        )
        return Inputs(part, examples, arrays)

    def make_model(self, precision: str) -> keras.Model:
        return self.build_model(classifier_model, self.task.num_outputs, dtype=precision)

    def decode(self, inputs: Inputs, outputs: Outputs) -> np.ndarray:
        logits = collect(outputs)["logits"]
        logits = pool_windows(logits, inputs.arrays, self.long_texts.window_pooling)
        return logits / np.float32(self.temperature)

    def probabilities(self, arrays: Arrays, outputs: Arrays) -> np.ndarray:
        logits = outputs["logits"] / np.float32(self.temperature)
        return decisions.probabilities(self.task, logits)

    def answers(self, inputs: Inputs, predictions: np.ndarray) -> list[dict[str, Any]]:
        return decisions.decode(self.task, predictions)

    def export_text(self, folder: str, model: keras.Model, tokenizer: "GraphTokenizer") -> None:
        from bert.tasks.classification.export import export_classifier  # noqa: PLC0415

        lengths = self.max_seq_length, self.temperature, self.long_texts
        export_classifier(folder, model, tokenizer, self.task, *lengths)

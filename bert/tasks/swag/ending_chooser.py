"""Chooses which of some endings continues a text, with a trained model (paper, section 4.4)."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import keras
import numpy as np

import modeling
import tokenization
from bert.network.heads import choice_model
from bert.tasks.answering import EncoderTask, collect
from bert.tasks.examples import QUERIES, Arrays, InputRow, Inputs, Outputs, Part
from bert.tasks.swag import examples as swag_examples

if TYPE_CHECKING:
    from bert.export.tokenizer import GraphTokenizer


@dataclasses.dataclass(frozen=True)
class EndingChooser(EncoderTask):
    """A task of `bert.tasks.answering` whose predictions are logits, float32 [N, E]."""

    kind = "multiple_choice"
    fields = ("context", "endings")
    answer_names = ("label", "ending", "probabilities")

    @classmethod
    def from_stored(
        cls,
        stored: Mapping[str, Any],
        config: modeling.BertConfig,
        tokenizer: tokenization.FullTokenizer,
    ) -> "EndingChooser":
        """Returns the task that `task.json` describes."""
        return cls.restore(stored, config, tokenizer)

    def stored(self) -> dict[str, Any]:
        return self.store()

    def parse(self, rows: Sequence[InputRow]) -> list[swag_examples.Example]:
        examples = []
        for number, row in enumerate(rows):
            cells = {"context": row["context"], "endings": list(row["endings"])}
            place = f"Input {number}, counted from 0"
            examples.append(swag_examples.make_example(place, number, cells, with_label=False))
        return examples

    derive = staticmethod(swag_examples.derive)

    def make_inputs(self, part: Part, examples: Sequence[swag_examples.Example]) -> Inputs:
        arrays = swag_examples.make_features(
            examples, self.tokenizer, self.max_seq_length, logs=part != QUERIES
        )
        return Inputs(part, examples, arrays)

    def make_model(self, precision: str) -> keras.Model:
        return choice_model(self.config, dtype=precision, add_bilstm=self.add_bilstm)

    def decode(self, inputs: Inputs, outputs: Outputs) -> np.ndarray:
        return collect(outputs)["logits"]

    def probabilities(self, arrays: Arrays, outputs: Arrays) -> np.ndarray:
        return swag_examples.probabilities(arrays, outputs["logits"])

    def answers(self, inputs: Inputs, predictions: np.ndarray) -> list[dict[str, Any]]:
        return swag_examples.decode(inputs.examples, inputs.arrays, predictions)

    def export_text(self, folder: str, model: keras.Model, tokenizer: "GraphTokenizer") -> None:
        from bert.tasks.swag.chooser import export_chooser  # noqa: PLC0415

        export_chooser(folder, model, tokenizer, self.max_seq_length)

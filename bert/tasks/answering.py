"""What answers: the protocols of a trained model's task, and the part that all tasks share.

Nothing here is needed only to train; `bert.tasks.task` has the rest of the protocols.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import keras
import numpy as np

import modeling
import tokenization
from bert.export.formats import CORE
from bert.network.kernels import check_finite
from bert.tasks.examples import Arrays, InputRow, Inputs, Outputs, Part

if TYPE_CHECKING:
    from typing_extensions import Self

    from bert.export.tokenizer import GraphTokenizer


class Queries(Protocol):
    """The examples of queries, and the inputs of the model."""

    @property
    def fields(self) -> tuple[str, ...]:
        """The names of an input's values, such as `text_a` and `text_b`."""

    @property
    def tokenizer(self) -> tokenization.FullTokenizer:
        """The tokenizer of the model."""

    def parse(self, rows: Sequence[InputRow]) -> Sequence[Any]:
        """Returns the examples of rows of `fields`, without labels."""

    def make_inputs(self, part: Part, examples: Sequence[Any]) -> Inputs:
        """Returns the arrays of examples."""


class Answers(Protocol):
    """The predictions and answers of a model's outputs."""

    @property
    def answer_names(self) -> tuple[str, ...]:
        """The keys of an answer."""

    def decode(self, inputs: Inputs, outputs: Outputs) -> Any:
        """Returns the predictions, in the task's own form.

        Args:
          inputs: The inputs of `make_inputs` or `open_inputs`.
          outputs: The outputs for all rows, in any order; outputs per token may be truncated to
            the longest row of their batch.
        """

    def probabilities(self, arrays: Arrays, outputs: Arrays) -> np.ndarray:
        """Returns the probabilities of some rows without padding; for regression the numbers.

        Args:
          arrays: The arrays of `Inputs` for these rows.
          outputs: The outputs of the model; outputs per token may be truncated to the longest row.
        """

    def answers(self, inputs: Inputs, predictions: Any) -> list[dict[str, Any]]:
        """Returns the answer for each example, for JSON."""


class TrainedModel(Protocol):
    """The model of a task."""

    def make_model(self, precision: str) -> keras.Model:
        """Returns the trained model; `precision` is the name of a dtype policy."""

    def whole_model(self, model: keras.Model) -> keras.Model:
        """Returns the model from tokens, which may differ from the trained `model`."""


class Export(Protocol):
    """The contents of `task.json`, and the exported model."""

    @property
    def kind(self) -> str:
        """The name of the kind of task in `task.json`."""

    def stored(self) -> dict[str, Any]:
        """Returns the contents of `task.json`, which prediction needs beside the model."""

    def export(self, folder: str, model: keras.Model, wordpiece: str = CORE) -> None:
        """Writes a SavedModel that takes text.

        Args:
          folder: The folder to write.
          model: The model from tokens, as `whole_model` or `at_precision` returns it.
          wordpiece: Whose operations cut words into pieces, one of `WORDPIECES`.
        """


class AnsweringTask(Queries, Answers, TrainedModel, Export, Protocol):
    """A task that a trained model answers."""


@dataclasses.dataclass(frozen=True)
class EncoderTask:
    """An `AnsweringTask` on an encoder; a subclass has what its kind needs.

    Attributes:
      config: The shape of the model.
      tokenizer: The tokenizer of the model.
      max_seq_length: The maximum number of tokens of a sequence, specials included.
      add_bilstm: Whether there is a BiLSTM between the encoder and the head.
    """

    config: modeling.BertConfig
    tokenizer: tokenization.FullTokenizer
    max_seq_length: int
    add_bilstm: bool = dataclasses.field(default=False, kw_only=True)

    kind: ClassVar[str]

    @classmethod
    def restore(
        cls,
        stored: Mapping[str, Any],
        config: modeling.BertConfig,
        tokenizer: tokenization.FullTokenizer,
        **own: Any,
    ) -> "Self":
        """Returns the task of a `task.json`; `own` are the fields of the subclass."""
        length = stored_field(stored, "max_seq_length", int)
        return cls(config, tokenizer, length, add_bilstm=has_bilstm(stored), **own)

    def store(self, task: Mapping[str, Any] | None = None, **own: Any) -> dict[str, Any]:
        """Returns the fields of `task.json`: common ones, and those of the subclass among them."""
        return {
            "kind": self.kind,
            **({} if task is None else {"task": task}),
            "do_lower_case": self.tokenizer.basic_tokenizer.do_lower_case,
            "max_seq_length": self.max_seq_length,
            **own,
            **self.split_fields(),
            **({"add_bilstm": True} if self.add_bilstm else {}),
        }

    def split_fields(self) -> dict[str, Any]:
        """Returns the fields of `task.json` about a split of the training file, if it had one."""
        return {}

    def build_model(self, make: Callable[..., keras.Model], *sizes: int, **given: Any) -> Any:
        """Returns a model of `bert.network.heads`."""
        return make(self.config, *sizes, add_bilstm=self.add_bilstm, **given)

    def whole_model(self, model: keras.Model) -> keras.Model:
        return model

    def export(self, folder: str, model: keras.Model, wordpiece: str = CORE) -> None:
        # Importing what writes graphs takes time, which predictions do not need.
        from bert.export.tokenizer import GraphTokenizer  # noqa: PLC0415

        self.export_text(folder, model, GraphTokenizer(self.tokenizer, wordpiece))

    def export_text(self, folder: str, model: keras.Model, tokenizer: "GraphTokenizer") -> None:
        """Writes a SavedModel that takes text, which the tokenizer splits in the graph."""
        raise NotImplementedError


def has_bilstm(stored: Mapping[str, Any]) -> bool:
    """Returns whether `task.json` has a BiLSTM between the encoder and the head."""
    return bool(stored_field({"add_bilstm": False, **stored}, "add_bilstm", bool))


_NOUNS = {
    str: "text",
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    dict: "an object",
    list: "a list",
}
_MOST = 2**31 - 1


def stored_field(stored: Mapping[str, Any], name: str, kind: type) -> Any:
    """Returns a value of `task.json`.

    Args:
      stored: The contents of the file.
      name: The key.
      kind: The type of the value; a whole number is from 1 to the largest of 32 bits.

    Raises:
      ValueError: where the key is missing or has a value of another type.
    """
    value: Any = stored.get(name)
    kinds = (int, float) if kind is float else (kind,)
    if type(value) not in kinds or (kind is int and not 1 <= value <= _MOST):
        bound = f" from 1 to {_MOST}" * (kind is int)
        received = f"Received {value!s:.80}" if name in stored else "It is not there"
        raise ValueError(f"`{name}` must be {_NOUNS[kind]}{bound}. {received}.")
    return value


def collect(outputs: Outputs) -> dict[str, np.ndarray]:
    """Returns the outputs in the order of the rows, which must be of one shape."""
    numbers, batches = zip(*outputs, strict=True)
    order = np.argsort(np.concatenate(numbers))
    names = batches[0].keys()
    return {
        name: check_finite(np.concatenate([batch[name] for batch in batches]))[order]
        for name in names
    }


def collect_padded(outputs: Outputs, shape: tuple[int, ...], name: str) -> np.ndarray:
    """Returns an output per token, float32 [N, S, C], padded with 0 where it was truncated.

    Args:
      outputs: The outputs of all rows.
      shape: N and S.
      name: The name of the output.
    """
    padded = np.zeros((*shape, 0), np.float32)
    for numbers, batch in outputs:
        values = check_finite(batch[name])
        if not padded.size:
            padded = np.zeros((*shape, values.shape[-1]), np.float32)
        padded[numbers, : values.shape[1]] = values
    return padded

"""Examples of a task, from rows of texts to the arrays that a model takes."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bert.files import fingerprints
from bert.log import logger
from bert.options import Option

if TYPE_CHECKING:
    from bert.training.batches import Batches

Arrays = Mapping[str, np.ndarray]
# Batches of row numbers with the model's outputs for these rows.
Outputs = Iterable[tuple[np.ndarray, Arrays]]
InputRow = Mapping[str, Any]

# The fields that hold several texts.
LISTS = ("endings",)

# The share of pieces that are [UNK] beyond which a warning asks for the vocabulary.
_MANY_UNKNOWN = 0.05


@dataclasses.dataclass(frozen=True)
class Part:
    """A part of a data set.

    Attributes:
      split: "train", "dev" or "test"; "queries" for `QUERIES`.
      suffix: The ending of its file names where a split has several parts, such as "_mismatched".
    """

    split: str
    suffix: str = ""

    @property
    def name(self) -> str:
        """Split and suffix, such as "dev_mismatched"."""
        return f"{self.split}{self.suffix}"


# The part of queries to a trained model, about which nothing is logged.
QUERIES = Part("queries")


@dataclasses.dataclass(frozen=True)
class Inputs:
    """Examples, and the features of a model.

    Attributes:
      part: The part of the data set.
      examples: The examples, in the task's own form.
      arrays: The arrays by name, int32 [N, S] or [N, E, S] with 0 for padding, and the labels. N
        need not be the number of examples.
      batches: The batches of the arrays, once `Task.open_inputs` has made them.
      num_examples: The number of examples of an epoch; None for the number of records.
      total: The number of examples of the part, of which `examples` may be the first; None for
        these alone.
    """

    part: Part
    examples: Sequence[Any]
    arrays: Arrays
    batches: "Batches | None" = None
    num_examples: int | None = None
    total: int | None = None

    @property
    def share(self) -> float:
        """The fraction of the part's examples that the inputs have."""
        return 1.0 if self.total is None else len(self.examples) / self.total

    @property
    def num_rows(self) -> int:
        """The number of rows of the arrays, N."""
        return len(next(iter(self.arrays.values())))

    @property
    def num_sequences(self) -> int:
        """The number of sequences of an example, E where there are several."""
        ids = self.head(1)["input_ids"]
        return ids.shape[1] if ids.ndim > 2 else 1

    def describe(self) -> dict[str, Any]:
        """Returns by name the number and the digest of what a training run must find unchanged."""
        # Arrays that are computed when they are read need not stay for the training run.
        digest = fingerprints.of_arrays(self.head(self.num_rows))
        name = f"the {self.part.split} set{self.part.suffix}"
        return {name: {"records": f"{self.num_rows} records", "sha256": digest}}

    def head(self, count: int) -> Arrays:
        """Returns the arrays of the first rows."""
        return {name: values[:count] for name, values in self.arrays.items()}


def find_inputs(inputs: Iterable[Inputs], split: str) -> Inputs:
    """Returns the inputs of the main part of a split, the one without a suffix."""
    [found] = (each for each in inputs if each.part == Part(split))
    return found


def read_rows(inputs: Sequence[Any], fields: Sequence[str]) -> list[InputRow]:
    """Returns inputs as rows of a task's fields, texts or for `LISTS` lists of texts.

    Args:
      inputs: Dictionaries of the fields; or tuples of their values in order; or, for a task with
        one field, values.
      fields: The names of the fields.

    Raises:
      ValueError: where an input has another form, with its number.
    """
    if not is_list(inputs):
        raise ValueError(f"`inputs` must be a list, a text or an object. Received {inputs!r:.200}.")
    return [
        read_row(value, f"Input {number}, counted from 0,", fields)
        for number, value in enumerate(inputs)
    ]


def is_list(values: Any) -> bool:
    """Returns whether values are a list, or a column of pandas, and not a text or a table."""
    is_one = isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable)
    return not is_one and getattr(values, "ndim", 1) == 1


def read_row(value: Any, place: str, fields: Sequence[str]) -> InputRow:
    """Returns an input as a row, as `read_rows` does; `place` names the input in errors."""
    if isinstance(value, str) and len(fields) == 1:
        value = (value,)
    if isinstance(value, tuple | list) and len(value) == len(fields):
        value = dict(zip(fields, value, strict=True))
    if not isinstance(value, Mapping) or not all(name in value for name in fields):
        alone = ", or be a text" if len(fields) == 1 else ""
        raise ValueError(
            f"{place} must have {', '.join(map(repr, fields))}{alone}. Received {value!r:.200}."
        )
    for name in fields:
        is_list = name in LISTS
        texts = value[name] if is_list else [value[name]]
        if not isinstance(texts, list | tuple) or not all(isinstance(text, str) for text in texts):
            kind = "a list of texts" if is_list else "text"
            raise ValueError(
                f"{place} must have {kind} as {name!r}. Received {value[name]!r:.200}."
            )
    return {name: value[name] for name in fields}


def num_sequences(row: InputRow) -> int:
    """Returns the number of sequences that the model reads for a row."""
    return max([1, *(len(row[name]) for name in LISTS if name in row)])


def find_labelled(examples: Sequence[Any]) -> list[int]:
    """Returns the places of the examples whose `label` is known: only these are scored."""
    return [place for place, example in enumerate(examples) if example.label is not None]


def warn_of_unknown(num_unknown: int, count: int, what: str) -> None:
    """Warns where many pieces are [UNK], which the vocabulary of another text makes likely.

    Args:
      num_unknown: The number of pieces that are [UNK].
      count: The number of all pieces.
      what: What the pieces are, such as "words".
    """
    if num_unknown > _MANY_UNKNOWN * count:
        logger.warning(
            "%.1f %% of the %s are [UNK]. Are %s and %s the right ones?",
            100 * num_unknown / count,
            what,
            Option("vocab_file"),
            Option("do_lower_case"),
        )

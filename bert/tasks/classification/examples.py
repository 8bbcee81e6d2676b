"""Tasks that label a text or a pair of texts, and their examples (paper, section 4.1).

A task predicts one of several labels, any number of labels (multi-label), or a number (regression).
`glue` and `own_files` read the examples.
"""

import abc
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

Label = str | float | tuple[str, ...]

# The scores, higher ones better, that may select the best checkpoint of a task.
METRICS = {
    "classification": ("accuracy", "f1", "matthews"),
    "multi_label": ("accuracy", "micro_f1", "macro_f1"),
    "regression": ("pearson", "spearman"),
}


@dataclasses.dataclass
class InputExample:
    """A text, or a pair of texts, with its label (original: run_classifier.py, InputExample).

    Attributes:
      guid: The name of the example in messages and predictions.
      label: The label; a tuple of labels for multi-label, a number for regression; None where it is
        unknown.
    """

    guid: str
    text_a: str
    text_b: str | None = None
    label: Label | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClassificationTask:
    """The labels of a classifier, and the type of its task.

    Attributes:
      task_type: A key of `METRICS`.
      labels: The labels in the order of the model's outputs; empty for regression.
      is_pair: Whether examples have two texts.
      metric: The score, among `METRICS`, that selects the best checkpoint.
    """

    name: str
    task_type: str
    labels: tuple[str, ...]
    is_pair: bool
    metric: str

    def __post_init__(self) -> None:
        if self.task_type not in METRICS:
            raise ValueError(
                f"`task_type` must be one of {list(METRICS)}. Received {self.task_type!r}."
            )
        if self.metric not in METRICS[self.task_type]:
            raise ValueError(
                f"`metric` must be one of {list(METRICS[self.task_type])} for {self.task_type}. "
                f"Received {self.metric!r}."
            )
        repeated = sorted({label for label in self.labels if self.labels.count(label) > 1})
        if repeated or "" in self.labels:
            raise ValueError(
                f"`labels` must be names, each once. Received {list(self.labels)}"
                + (f", with {repeated} more than once." if repeated else ", with an empty one.")
            )
        least = {"classification": 2, "multi_label": 1, "regression": 0}[self.task_type]
        if len(self.labels) < least or (not least and self.labels):
            raise ValueError(
                f"`labels` must be {f'at least {least}' if least else 'empty'} for "
                f"{self.task_type}. Received {list(self.labels)}."
            )

    @property
    def num_outputs(self) -> int:
        """The width of the model's output."""
        return len(self.labels) or 1

    def to_dict(self) -> dict[str, Any]:
        """Returns the fields for JSON."""
        return {**dataclasses.asdict(self), "labels": list(self.labels)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "ClassificationTask":
        """Returns the task with the fields of `to_dict`."""
        kinds: dict[str, type] = {field.name: str for field in dataclasses.fields(cls)}
        kinds |= {"labels": list, "is_pair": bool}
        if values.keys() != kinds.keys():
            raise ValueError(f"A task must have the keys {list(kinds)}. Received {list(values)}.")
        for key, kind in kinds.items():
            if not isinstance(values[key], kind):
                raise ValueError(
                    f"`{key}` of a task must be {kind.__name__}. Received {values[key]!r}."
                )
        if not all(isinstance(label, str) for label in values["labels"]):
            raise ValueError(f"`labels` of a task must be strings. Received {values['labels']}.")
        return cls(**{**values, "labels": tuple(values["labels"])})


class DataSet(abc.ABC):
    """A task and the files of its examples, which are read on demand.

    Attributes:
      task: The task.
      data_dir: The folder of the files.
      submission_names: The file that GLUE expects for each part of the test set, by suffix.
      columns: The options of columns with which the files are read.
    """

    task: ClassificationTask
    data_dir: str
    submission_names: Mapping[str, str] = {}
    columns: Mapping[str, Any] = {}

    @abc.abstractmethod
    def read(self, split: str) -> dict[str, list[InputExample]]:
        """Returns the examples of "train", "dev" or "test", by the suffix of the part's outputs."""

    @abc.abstractmethod
    def check(self, splits: Sequence[str]) -> None:
        """Raises `ValueError` if a file of these splits is missing."""

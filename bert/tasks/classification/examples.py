"""Labelled texts and their tasks, and the official files of GLUE and XNLI (paper, section 4.1).

A task predicts one of several labels, any number of labels (multi-label), or a number (regression).
"""

import abc
import dataclasses
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from bert.files.display import counted
from bert.files.paths import describe_folder, find_file, list_folder
from bert.files.rows import Row, load_rows, shorten
from bert.log import logger
from bert.options import OptionError

Label = str | float | tuple[str, ...]

# The largest number of single precision.
_LARGEST = 3.4028234e38

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

    @property
    def decides(self) -> tuple[str, tuple[str, ...]]:
        """What the classifier decides, in words, and its labels."""
        return f"{self.task_type} of {'pairs' if self.is_pair else 'single texts'}", self.labels

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


def parse_number(value: Any) -> float | None:
    """Returns the number that is the label in a cell; None where it is none, or too large."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    # Python alone reads 1_000 as a number.
    if isinstance(value, str) and "_" in value:
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    # NaN, infinity, and numbers beyond the precision of the labels are refused.
    return number if abs(number) <= _LARGEST else None


def positive_label(labels: Sequence[str]) -> str:
    """Returns the label of two whose F1 and error curves are reported: "1", or else the second."""
    return "1" if "1" in labels else labels[1]


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


_NLI = ("contradiction", "entailment", "neutral")
_ENTAILMENT = ("entailment", "not_entailment")

# Other spellings of the tasks' names.
_ALIASES = {"sst2": "sst-2", "sst_2": "sst-2", "stsb": "sts-b", "sts_b": "sts-b"}

# The share of rows with too few columns that is tolerated in QQP's labelled files: the official
# ones have a few.
_TOLERATED_PART = 0.01


@dataclasses.dataclass(frozen=True)
class _Columns:
    """The columns of a file, counted from 0; -1 is the last one.

    Attributes:
      language: The column of the language, in a file with rows of several languages.
      guid: The column of the examples' names; None where the original counts rows.
    """

    texts: tuple[int, ...]
    label: int | None = None
    has_header: bool = True
    language: int | None = None
    guid: int | None = None

    @property
    def needed(self) -> int:
        """The number of columns that a row must have."""
        places = [*self.texts, self.label, self.language, self.guid]
        last = max(place for place in places if place is not None)
        return last + (2 if self.label == -1 else 1)


_SPLITS = ("train", "dev", "test")


@dataclasses.dataclass(frozen=True)
class _Layout:
    """The files of a task.

    Attributes:
      folder: The official name of the folder.
      dev: The columns of the dev set, and of the training set unless `train` has them.
      test: The columns of the test set.
      files: The name of each file, by split and by the suffix of output files; those without a
        suffix are required.
      submissions: The files that GLUE expects, by suffix; None for one with the folder's name.
    """

    folder: str
    dev: _Columns
    test: _Columns
    labels: tuple[str, ...] = ("0", "1")
    metric: str = "accuracy"
    files: Mapping[str, Mapping[str, str]] = dataclasses.field(
        default_factory=lambda: {split: {"": f"{split}.tsv"} for split in _SPLITS}
    )
    submissions: Mapping[str, str] | None = None
    train: _Columns | None = None

    def columns(self, split: str) -> _Columns:
        """Returns the columns of a split."""
        return {"train": self.train or self.dev, "dev": self.dev, "test": self.test}[split]


_PAIR = _Columns((1, 2))
_LABELLED_PAIR = _Columns((1, 2), 3)
_MNLI = _Columns((8, 9), -1, guid=0)
_XNLI = _Columns((6, 7), 1, language=0)


_LAYOUTS = {
    "cola": _Layout("CoLA", _Columns((3,), 1, has_header=False), _Columns((1,)), metric="matthews"),
    "sst-2": _Layout("SST-2", _Columns((0,), 1), _Columns((1,))),
    "mrpc": _Layout("MRPC", _Columns((3, 4), 0), _Columns((3, 4)), metric="f1"),
    "sts-b": _Layout("STS-B", _Columns((7, 8), 9), _Columns((7, 8)), labels=(), metric="pearson"),
    "qqp": _Layout("QQP", _Columns((3, 4), 5), _PAIR, metric="f1"),
    "mnli": _Layout(
        "MNLI",
        _MNLI,
        dataclasses.replace(_MNLI, label=None),
        _NLI,
        files={
            "train": {"": "train.tsv"},
            "dev": {"": "dev_matched.tsv", "_mismatched": "dev_mismatched.tsv"},
            "test": {"": "test_matched.tsv", "_mismatched": "test_mismatched.tsv"},
        },
        submissions={"": "MNLI-m.tsv", "_mismatched": "MNLI-mm.tsv"},
    ),
    "qnli": _Layout("QNLI", _LABELLED_PAIR, _PAIR, _ENTAILMENT),
    "rte": _Layout("RTE", _LABELLED_PAIR, _PAIR, _ENTAILMENT),
    "wnli": _Layout("WNLI", _LABELLED_PAIR, _PAIR),
    "ax": _Layout("AX", _PAIR, _PAIR, _NLI, files={"test": {"": "AX.tsv"}}),
    "xnli": _Layout(
        "XNLI",
        _XNLI,
        _XNLI,
        _NLI,
        files={
            "train": {"": "multinli/multinli.train.{language}.tsv"},
            "dev": {"": "xnli.dev.tsv"},
            "test": {"": "xnli.test.tsv"},
        },
        submissions={},
        train=_Columns((0, 1), 2),
    ),
}

TASK_NAMES = tuple(_LAYOUTS)

# Other paths of a file than its name, in the folder itself or in the one with the task's name.
_OTHER_PLACES = {
    "ax": ("diagnostic.tsv", "AX/diagnostic.tsv", "diagnostic/diagnostic.tsv"),
    "xnli": ("XNLI-1.0/{name}", "XNLI-MT-1.0/{name}"),
}


def open_data_set(task_name: str, data_dir: str, xnli_language: str = "zh") -> "GlueDataSet":
    """Returns the data set of a task of GLUE, or of XNLI; spelling variants of its name are known.

    Args:
      task_name: One of `TASK_NAMES`.
      data_dir: The folder with the official files, or the one with the task's folder in it.
      xnli_language: The code of XNLI's language, such as "de".
    """
    return GlueDataSet(find_task(task_name), data_dir, xnli_language)


def find_task(task_name: str) -> str:
    """Returns the one of `TASK_NAMES` that is meant; raises `OptionError` where it is none."""
    name = _ALIASES.get(task_name.lower(), task_name.lower())
    if name not in _LAYOUTS:
        must = f"be one of {list(TASK_NAMES)}, or 'custom' for other files"
        raise OptionError("task_name", must, task_name)
    return name


class GlueDataSet(DataSet):
    """The official files of a task of GLUE, or of XNLI."""

    def __init__(self, name: str, data_dir: str, language: str) -> None:
        self._layout = layout = _LAYOUTS[name]
        self.data_dir = data_dir
        self._language = language
        names = layout.submissions
        self.submission_names = {"": f"{layout.folder}.tsv"} if names is None else names
        self.task = ClassificationTask(
            name=name,
            task_type="classification" if layout.labels else "regression",
            labels=layout.labels,
            is_pair=len(layout.test.texts) == 2,
            metric=layout.metric,
        )

    def check(self, splits: Sequence[str]) -> None:
        for split in splits:
            self.find(split)

    def find(self, split: str, suffix: str = "") -> str | None:
        """Returns the path of a file; None for an optional one that is missing."""
        layout = self._layout
        if split not in layout.files:
            raise OptionError(
                "task_name",
                f"be a task with a {split} set",
                self.task.name,
                "It has a test set only: predict it with a model trained on 'mnli'.",
            )
        name = layout.files[split][suffix].format(language=self._language)
        others = [place.format(name=name) for place in _OTHER_PLACES.get(self.task.name, ())]
        path = find_file(self.data_dir, [name, os.path.join(layout.folder, name), *others])
        if path is None and not suffix:
            folder = os.path.dirname(os.path.join(self.data_dir, name))
            found = describe_folder(folder if list_folder(folder) else self.data_dir)
            raise OptionError(
                "data_dir",
                f"hold {name!r}, the {split} set of {self.task.name!r}, itself or in "
                f"{layout.folder!r}",
                remedy=f"Received {found}.",
            )
        return path

    def read(self, split: str) -> dict[str, list[InputExample]]:
        self.check([split])
        examples = {}
        for suffix, name in self._layout.files[split].items():
            path = self.find(split, suffix)
            if path is None:
                logger.warning("There is no %r in %r: it is left out.", name, self.data_dir)
            else:
                rows, columns = load_rows(path, "tsv"), self._layout.columns(split)
                set_type = self.set_type(split, suffix)
                examples[suffix] = self._make_examples(path, rows, columns, set_type)
        return examples

    def set_type(self, split: str, suffix: str = "") -> str:
        """Returns the beginning of the names of a file's examples."""
        # Original: run_classifier.py, MnliProcessor, which knows the matched sets only.
        is_matched = self._layout.files[split][suffix] == "dev_matched.tsv"
        return "dev_matched" if is_matched else split + suffix

    def parse(self, lines: Iterable[Sequence[str]], set_type: str) -> list[InputExample]:
        """Returns the examples of a file's lines, split at tabs (original: `_create_examples`).

        Args:
          lines: All lines, the header included.
          set_type: "train", "dev", "test", or another name of a labelled set, with which the names
            of the examples begin.
        """
        split = set_type if set_type in ("train", "test") else "dev"
        rows = [Row(number, list(cells)) for number, cells in enumerate(lines, start=1)]
        return self._make_examples("lines", rows, self._layout.columns(split), set_type)

    def _make_examples(
        self, path: str, rows: list[Row], columns: _Columns, set_type: str
    ) -> list[InputExample]:
        rows = self._drop_malformed(path, rows, columns)
        examples = []
        for index, row in enumerate(rows):
            if index == 0 and columns.has_header:
                self._warn_of_labelled_header(path, row, columns)
                continue
            cells = row.cells
            if columns.language is not None and cells[columns.language] != self._language:
                continue
            # Faithful: the number counts rows, the header included.
            number = index if columns.guid is None else cells[columns.guid]
            texts = [cells[place] for place in columns.texts]
            text_b = texts[1] if self.task.is_pair else None
            label = None if columns.label is None else self._label(path, row, columns)
            examples.append(InputExample(f"{set_type}-{number}", texts[0], text_b, label))
        if not examples:
            raise ValueError(f"{path!r} must hold examples. {self._say_why_empty(rows, columns)}")
        return examples

    def _drop_malformed(self, path: str, rows: list[Row], columns: _Columns) -> list[Row]:
        """Returns the rows with enough columns; raises unless the others may be left out."""
        short = [row for row in rows if len(row.cells) < columns.needed]
        if not short:
            return rows
        tolerated = max(1, _TOLERATED_PART * len(rows)) if self.task.name == "qqp" else 0
        # Without labels, rows have their places in a submission, which must not shift.
        if columns.label is None or len(short) > tolerated:
            found = counted(len(short[0].cells), "column")
            raise ValueError(
                f"{path}:{short[0].line}: has {found}, needs "
                f"{columns.needed} for task {self.task.name!r}. Received {shorten(short[0].cells)}."
            )
        skipped = counted(len(short), "row")
        text = "%s: skipped %s with too few columns, the first on line %d."
        logger.warning(text, path, skipped, short[0].line)
        return [row for row in rows if len(row.cells) >= columns.needed]

    def _warn_of_labelled_header(self, path: str, row: Row, columns: _Columns) -> None:
        cell = "" if columns.label is None else row.cells[columns.label].strip()
        if cell in self.task.labels or (not self.task.labels and parse_number(cell) is not None):
            logger.warning(
                "%s:%d: is taken for the header, but looks like an example with label %r.",
                path,
                row.line,
                cell,
            )

    def _label(self, path: str, row: Row, columns: _Columns) -> Label:
        assert columns.label is not None
        cell = row.cells[columns.label].strip()
        if not self.task.labels:
            number = parse_number(cell)
            if number is None:
                raise ValueError(
                    f"{path}:{row.line}: the score, in column {columns.label} counted from 0, must "
                    f"be a finite number. Received {cell!r}."
                )
            return number
        # Original: run_classifier.py, XnliProcessor.
        if cell == "contradictory" and self.task.name == "xnli":
            return "contradiction"
        if cell not in self.task.labels:
            is_last = columns.label < 0
            place = "the last column" if is_last else f"column {columns.label} counted from 0"
            is_first = row.line == 1
            header = f" The {self.task.name!r} task has no header in this file." * is_first
            raise ValueError(
                f"{path}:{row.line}: the label, in {place}, must be one of "
                f"{list(self.task.labels)}. Received {cell!r}.{header}"
            )
        return cell

    def _say_why_empty(self, rows: list[Row], columns: _Columns) -> str:
        if columns.language is None:
            return f"Received {'its header only' if rows else 'blank lines only'}."
        found = sorted({row.cells[columns.language] for row in rows[1:]})
        return f"`xnli_language` must be one of {found}. Received {self._language!r}."

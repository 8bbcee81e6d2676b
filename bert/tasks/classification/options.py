"""Options of classification: the data set, what is predicted, and which columns hold it."""

import dataclasses
import os
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from bert.files.row_writer import save_rows
from bert.files.rows import SEPARATORS, find_separator, is_number
from bert.options import Message, MessageError, Option, OptionError, changed_options, option
from bert.tasks.classification.examples import METRICS, TASK_NAMES, find_task
from bert.tasks.classification.long_texts import CUT_AT_ENDS, LongTexts
from bert.tasks.options import DataFiles

# The name of a task that is not one of GLUE.
CUSTOM = "custom"
_COLUMNS = ("text_a_column", "text_b_column", "label_column", "id_column")


class Table(Protocol):
    """An object with rows, such as a DataFrame."""

    @property
    def to_dict(self) -> Callable[..., Any]:
        """With "records", returns the rows as dictionaries."""


# A path, or in a program the rows themselves; the flag takes a path.
if TYPE_CHECKING:
    FileOrRows = str | os.PathLike[str] | Iterable[Mapping[str, Any]] | Table | None
else:
    FileOrRows = str | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClassificationData(LongTexts, DataFiles):
    """The data set of a classifier; from `metric` on, of a custom task alone."""

    OBJECTS: ClassVar = {
        **dict.fromkeys(("train_file", "dev_file", "test_file"), object),
        "labels": list | tuple,
    }

    GROUP = "data"

    data_dir: str | None = option(
        None,
        "Folder with the task's files: the official ones of GLUE or XNLI; for a custom task, "
        "train, dev and test, each .tsv, .csv, .jsonl or .parquet.",
    )
    train_file: FileOrRows = None  # type: ignore[assignment]
    dev_file: FileOrRows = None  # type: ignore[assignment]
    test_file: FileOrRows = None  # type: ignore[assignment]
    task_name: str | None = option(
        None,
        f"One of {', '.join(TASK_NAMES)}; or custom, for files of your own. Default: custom, "
        "if files are given one by one.",
    )
    window_pooling: str | None = option(  # type: ignore[assignment]
        None,
        Message(
            "With %s: the pooling of the logits of a text's windows. Default: as the model in %s "
            "was trained, or else mean.",
            *map(Option, ("doc_stride", "output_dir")),
        ),
        choices=("mean", "max"),
    )
    xnli_language: str = option("zh", "Language of the XNLI files, such as en or zh.")
    class_weights: str = option(
        "none",
        "Weights of the examples in the loss. balanced: the rarer its label, the more an example "
        "counts, so that all labels count alike.",
        choices=("none", "balanced"),
        shapes_training=True,
        group="training",
    )
    label_smoothing_factor: float = option(
        0.0,
        "Train on labels of 1 - e + e/C for the right one of C and e/C for the others, with this "
        "e. For tasks of one label per example; the loss of evaluations has none.",
        low=0.0,
        high=1.0,
        shapes_training=True,
        group="training",
    )
    metric: str | None = option(
        None,
        "Score of a custom task that says which weights, runs and combinations of values are the "
        "best. For one label accuracy, f1 or matthews; for multi_label micro_f1, macro_f1 or "
        "accuracy; for regression pearson or spearman. f1 is that of the label 1, or else of the "
        "second of two; of more labels the mean. Default: the first of these.",
        choices=tuple(dict.fromkeys(name for names in METRICS.values() for name in names)),
        group="training",
    )
    calibrate: bool = option(
        False,
        "Fit a temperature to the dev set, after training if there is any, so that probabilities "
        "say how often answers are right; the answers stay the same. Later predictions and exports "
        "of the model use it.",
        group="training",
    )
    task_type: str = option(
        "classification",
        "What a custom task predicts: one label, any number of labels, or a number.",
        choices=tuple(METRICS),
    )
    labels: str | None = option(
        None,
        "Labels of a custom task, comma-separated, in the order of the outputs. Default: those of "
        "the training file.",
    )
    text_a_column: str = option("text", "Column of the text: its name, or a number from 0.")
    text_b_column: str | None = option(
        None, "Column of the second text, for pairs: its name, or a number from 0."
    )
    label_column: str = option("label", "Column of the label: its name, or a number from 0.")
    id_column: str | None = option(None, "Column of an ID to copy to the predictions.")
    on_missing_label: str = option(
        "error",
        "What happens to examples without a label in the training or dev set of a custom task: "
        "error names their lines and stops; skip leaves them out with a warning.",
        choices=("error", "skip"),
    )
    separator: str | None = option(
        None,
        f"Column separator of the files: {SEPARATORS}. Default: tab for .tsv, comma for .csv. "
        "Where it is given, files may have any extension.",
    )
    label_separator: str = option(
        ",", "Separator between the labels of an example of a multi_label task."
    )
    has_header: bool | None = option(
        None,
        "Whether the first line of TSV and CSV files names the columns. Default: true, unless the "
        "columns are given as numbers.",
    )

    def with_files(self) -> "ClassificationData":
        """Returns the options as a command has them.

        A program's rows become files in memory, and numbers of columns become texts.
        """
        given = {name: getattr(self, name) for name in ("train_file", "dev_file", "test_file")}
        paths: dict[str, Any] = {
            name: os.fspath(value)
            if isinstance(value, str | os.PathLike)
            else save_rows(value, name)
            for name, value in given.items()
            if value is not None
        }
        return dataclasses.replace(self, **(paths | self.columns))

    def long_texts(self, trained: LongTexts) -> LongTexts:
        """Returns what is read of long texts: as a model was trained, but for the given options.

        Another stride, or another end to keep, replaces all that the model was trained with.
        """
        names = {field.name for field in dataclasses.fields(LongTexts)}
        given = {name: each for name, each in changed_options(self).items() if name in names}
        stride = given.get("doc_stride", trained.doc_stride)
        is_other = stride != trained.doc_stride or "truncation" in given
        return dataclasses.replace(CUT_AT_ENDS if is_other else trained, **given)

    @property
    def files(self) -> dict[str, str]:
        """The files that are given one by one, by split."""
        paths = {split: getattr(self, f"{split}_file") for split in ("train", "dev", "test")}
        return {split: path for split, path in paths.items() if path}

    @property
    def columns(self) -> dict[str, str]:
        """The columns in use, by the names of their options."""
        given = {name: getattr(self, name) for name in _COLUMNS}
        return {name: column for name, column in given.items() if column is not None}

    @property
    def expects_header(self) -> bool:
        """Whether the first row of a table names the columns."""
        if self.has_header is None:
            return not all(map(is_number, self.columns.values()))
        return self.has_header

    def check_columns(self) -> None:
        """Checks the options that say how a custom task's files are read.

        Raises:
          ValueError: where columns or separators are invalid.
        """
        columns = self.columns
        if len({*columns.values()}) < len(columns) or not all(columns.values()):
            raise ValueError(
                f"Columns must be names or numbers, each with one use. Received {columns}."
            )
        if self.has_header is False and not all(map(is_number, columns.values())):
            raise MessageError(
                "Columns must be numbers, counted from 0, where %s is false. Received %s.",
                Option("has_header"),
                columns,
            )
        find_separator("", self.separator)
        if not self.label_separator:
            raise OptionError("label_separator", "not be empty", "")

    def check_known(self, name: str) -> None:
        """Checks that a name is a task of GLUE, or XNLI, with its folder and no custom option.

        Raises:
          ValueError: naming the option.
        """
        of_custom = Message("For files of your own, %s is custom.", Option("task_name"))
        if not name:
            raise MessageError(
                "%s must be given, one of %s, or custom for files of your own; or a %s.",
                Option("task_name"),
                ", ".join(TASK_NAMES),
                Option("train_file"),
            )
        find_task(name)
        if self.files or self.data_dir is None:
            received = Option(f"{next(iter(self.files))}_file") if self.files else "none"
            raise MessageError(
                "%s must be given, and no single files, for task %r, whose files are known. "
                "Received %s. %s",
                Option("data_dir"),
                name,
                received,
                of_custom,
            )
        for field in dataclasses.fields(ClassificationData):
            value = getattr(self, field.name)
            if field.name in _OF_CUSTOM and value != field.default:
                must = Message("not be given for task %r, of which it is known", name)
                raise OptionError(field.name, must, value, of_custom)


# The options of a custom task, in the order in which they are checked.
_OF_CUSTOM = (
    *("metric", "task_type", "labels", *_COLUMNS, "on_missing_label", "separator"),
    *("label_separator", "has_header"),
)

"""The data set of a custom task, in files of one's own, and the labels in these files."""

import collections
import dataclasses
import functools
import math
import re
import unicodedata
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from bert.files.paths import describe_folder
from bert.files.rows import Row, format_of, is_table, shorten
from bert.log import logger
from bert.options import Message, MessageError, Option, OptionError, joined
from bert.tasks.classification.examples import (
    ClassificationTask,
    DataSet,
    InputExample,
    Label,
    parse_number,
)
from bert.tasks.classification.options import ClassificationData
from bert.tasks.classification.rows import File, is_not_finite, read_file
from bert.tasks.split import DevSplit, find_file, list_files

_ENDINGS = (".tsv", ".csv", ".jsonl", ".parquet", ".tsv.gz", ".csv.gz", ".jsonl.gz")

# Cells that are probably names of columns.
_HEADER_WORDS = re.compile(
    "category|class|classification|comment|content|gold|guid|id|idx|index|intent|labels?|hypothesis"
    "|premise|question|rating|review|score|sentence[12]?|sentiment|similarity|target|text(_?[ab12])?"
    "|title|topic|tweet",
    re.IGNORECASE,
)

# From this number on, labels with less than two examples each are probably texts or numbers.
_SUSPICIOUS_LABELS = 20
_LABELS_SHOWN = 20
_LINES_SHOWN = 20
_LABEL_SEPARATORS = (",", ";", "|", "/")
# Words that programs write for a missing value.
_MISSING = {"nan", "none", "null", "n/a", "na", "<na>", "nat"}

_METRICS = {"classification": "accuracy", "multi_label": "micro_f1", "regression": "pearson"}


class CustomDataSet(DataSet):
    """A custom task and its files, in a folder or given one by one.

    Args:
      data: The files, their columns and the type of the task.
      dev_split: How the dev set is split off the training file; None where it has a file.
      labels: The labels where the options name none; None for the training file's.
    """

    def __init__(
        self,
        data: ClassificationData,
        dev_split: DevSplit | None = None,
        labels: Sequence[str] | None = None,
    ) -> None:
        data.check_columns()
        self._data = data
        self._dev_split = dev_split
        self.data_dir = data.data_dir or ", ".join(data.files.values())
        others = {"has_header": data.has_header, "separator": data.separator}
        given = {name: value for name, value in others.items() if value is not None}
        self.columns = {**data.columns, **given}
        self._given_labels = _split_labels(data) if labels is None else tuple(labels)
        # Checks the options before a file is read, with any labels where they give none.
        self._make_task(self._given_labels or (["0", "1"] * (data.task_type != "regression")))

    def _make_task(self, labels: Sequence[str]) -> ClassificationTask:
        task_type = self._data.task_type
        return ClassificationTask(
            name="custom",
            task_type=task_type,
            labels=tuple(labels),
            is_pair=self._data.text_b_column is not None,
            metric=self._data.metric or _METRICS.get(task_type, ""),
        )

    @functools.cached_property
    def task(self) -> ClassificationTask:  # type: ignore[override]
        """The task; without given labels, they are read from the training file."""
        if self._given_labels is None:
            return self._make_task(_find_labels(self._training_file, self._data))
        return self._make_task(self._given_labels)

    @functools.cached_property
    def _training_file(self) -> File:
        return _read_labelled(self._find("train"), self._data)

    @functools.cached_property
    def _divided(self) -> tuple[list[InputExample], list[InputExample]]:
        """The training set, and the dev set that is split off it."""
        examples = self._make_examples("train", self._training_file)
        # The memory of the rows is freed, since the file is not needed again.
        del self._training_file
        if self._dev_split is None:
            return examples, []
        keys = [(example.text_a, example.text_b or "") for example in examples]
        strata = _strata([example.label for example in examples])
        return self._dev_split.divide(self._find("train"), examples, keys, strata)

    def read(self, split: str) -> dict[str, list[InputExample]]:
        if split == "train":
            return {"": self._read_train()}
        if split == "dev" and self._dev_split:
            return {"": self._divided[1]}
        if split == "dev":
            return {"": self._make_examples(split, _read_labelled(self._find(split), self._data))}
        file = read_file(self._find(split), self._data, needs_label=False)
        return {"": self._make_examples(split, file)}

    def _read_train(self) -> list[InputExample]:
        examples, _ = self._divided
        if self._given_labels and self.task.task_type == "classification":
            unused = sorted(set(self._given_labels) - {example.label for example in examples})
            if unused:
                logger.warning("No training example has the labels %s.", _show(unused))
        return examples

    def check(self, splits: Sequence[str]) -> None:
        for split in splits:
            if split != "dev" or not self._dev_split:
                self._find(split)
        has_file = self._data.train_file or list_files(self._data, "train", _ENDINGS)
        if self._given_labels is None and "train" not in splits and not has_file:
            folder = self._data.data_dir
            place = Message("%s", describe_folder(folder) if folder else self.data_dir)
            must = "be given where there is no training file to find them in"
            raise OptionError("labels", must, place)

    def _find(self, split: str) -> str:
        path = find_file(self._data, split, _ENDINGS, _ENDINGS)
        if format_of(path) == "lines" and self._data.separator is None:
            must = Message(
                "have one of the endings %s, unless %s says what separates its columns",
                list(_ENDINGS),
                Option("separator"),
            )
            raise OptionError(f"{split}_file", must, path)
        return path

    def _make_examples(self, split: str, file: File) -> list[InputExample]:
        labels = self.task.labels
        _check_header(file, self._data, labels)
        examples = []
        unknown: list[Row] = []
        # A blank cell of a multi-label task means no labels, but a blank column unknown labels.
        is_labelled = not all(map(_is_blank, file.rows))
        for number, row in file.numbered():
            cells = row.cells
            label = None
            if split != "test":
                label = _read_label(file, row, self._data, labels)
            elif "label_column" in cells and is_labelled:
                label = _parse_label(cells["label_column"], self._data, labels)
                if not _is_among(label, labels):
                    label = None
                    if not _is_blank(row):
                        unknown.append(row)
            guid = cells.get("id_column", f"{split}-{number}")
            text_a, text_b = cells["text_a_column"], cells.get("text_b_column")
            examples.append(InputExample(guid, text_a, text_b, label))
        if unknown:
            logger.warning(
                "%s: %d labels are not among those of the task and are left out; the first is %r "
                "on line %d.",
                file.path,
                len(unknown),
                unknown[0].cells["label_column"],
                unknown[0].line,
            )
        return examples


def _is_blank(row: Row) -> bool:
    cell = row.cells.get("label_column")
    is_nan = isinstance(cell, float) and math.isnan(cell)
    return cell is None or is_nan or (isinstance(cell, str) and not cell.strip())


def _read_labelled(path: str, data: ClassificationData) -> File:
    """Returns a file whose rows without a label are skipped, or else an error."""
    file = read_file(path, data)
    blank = [row for row in file.rows if _is_blank(row)]
    if data.task_type == "multi_label":
        # A blank cell means no labels; a missing value of JSON is an error.
        blank = [row for row in blank if not isinstance(row.cells["label_column"], str)]
    if not blank:
        return file
    lines = ", ".join(str(row.line) for row in blank[:_LINES_SHOWN])
    more = f" and {len(blank) - _LINES_SHOWN} more" * (len(blank) > _LINES_SHOWN)
    found = f"{len(blank)} of {len(file.rows)} examples, line{'s' * (len(blank) > 1)} {lines}{more}"
    if data.on_missing_label != "skip" or len(blank) == len(file.rows):
        skip = Message(
            ", or leave out a part of the examples with %s", Option("on_missing_label", "skip")
        )
        raise MessageError(
            "%s:%d: examples must have a label, in column %r. Without one: %s. Fill in the "
            "labels%s.",
            path,
            blank[0].line,
            data.label_column,
            found,
            skip if len(blank) < len(file.rows) else "",
        )
    logger.warning("%s: skipped examples without a label: %s.", path, found)
    return dataclasses.replace(file, skipped=frozenset(row.line for row in blank))


def _strata(labels: Sequence[Label | None]) -> list[Hashable]:
    """Returns the stratum of each label for the split of a dev set.

    The stratum is the label; for several labels the rarest; for a number its tenth of the ranks.
    """
    if any(isinstance(label, float) for label in labels):
        order = sorted(range(len(labels)), key=lambda place: (labels[place], place))
        tenths = {place: 10 * rank // len(labels) for rank, place in enumerate(order)}
        return [tenths[place] for place in range(len(labels))]
    names = [label if isinstance(label, tuple) else (label,) for label in labels]
    counts = collections.Counter(name for several in names for name in several)

    def rarity(name: Any) -> tuple[int, str]:
        return counts[name], str(name)

    return [min(several, key=rarity, default=None) for several in names]


def _split_labels(data: ClassificationData) -> tuple[str, ...] | None:
    labels: Any = data.labels
    if labels is None:
        return () if data.task_type == "regression" else None
    if isinstance(labels, str):
        return tuple(map(str.strip, labels.split(",")))
    # Python callers may give a sequence, of numbers too.
    return tuple(
        label if isinstance(label, str) else _parse_name(label) or str(label) for label in labels
    )


def _check_header(
    file: File,
    data: ClassificationData,
    labels: Sequence[str],
    counts: Mapping[str, int] | None = None,
) -> None:
    """Checks that no data was taken for a header, nor a header for data.

    Args:
      file: The file.
      data: The options of its columns.
      labels: The labels of the task.
      counts: The number of examples of each label in the file, where no labels are known.

    Raises:
      ValueError: where a header must be given or left out.
    """
    if file.header is not None:
        cell = file.header.cells.get("label_column", "")
        label = _parse_label(cell, data, labels)
        # The number 0 is a label, and no labels at all are none.
        is_label = label != () and _is_among(label, labels)
        if cell.strip() != data.label_column and is_label:
            raise MessageError(
                "%s:%d: the header must name columns. Received %r, which is a label. If the file "
                "has no header, set %s to false.",
                file.path,
                file.header.line,
                cell,
                Option("has_header"),
            )
    elif data.has_header is None and is_table(file.path):
        first = file.rows[0]
        words = [
            name for name, cell in first.cells.items() if _HEADER_WORDS.fullmatch(cell.strip())
        ]
        is_once = counts is not None and counts.get(first.cells["label_column"].strip()) == 1
        # pandas writes the numbers of the columns as a header where they have no names.
        is_header = len(words) == len(first.cells) or first.cells == data.columns
        if is_header or ("label_column" in words and is_once):
            raise MessageError(
                "%s:%d: the first row must be an example, as all columns are given as numbers. "
                "Received %s, which looks like a header. Set %s to true if it is one, or to false.",
                file.path,
                first.line,
                list(first.cells.values()),
                Option("has_header"),
            )


def _find_labels(file: File, data: ClassificationData) -> list[str]:
    counts: collections.Counter[str] = collections.Counter()
    for _, row in file.numbered():
        label = _read_label(file, row, data, None)
        assert not isinstance(label, float)
        counts.update([label] if isinstance(label, str) else label)
    _check_header(file, data, (), counts)
    are_numbers = all(re.fullmatch("-?[0-9]+", label) for label in counts)
    labels = sorted(counts, key=lambda label: (int(label) if are_numbers else 0, label))
    least, name = (2, "two labels") if data.task_type == "classification" else (1, "one label")
    if len(labels) < least:
        raise MessageError(
            "%r must hold at least %s in column %r, unless %s gives them. Received %s.",
            file.path,
            name,
            data.label_column,
            Option("labels"),
            labels,
        )
    if len(labels) >= _SUSPICIOUS_LABELS and 2 * len(labels) > len(file.rows):
        raise MessageError(
            "%r must hold labels in column %r. Received %d different ones for %d examples: %s. If "
            "they are numbers to predict, %s is regression; if they are labels, give them with %s.",
            file.path,
            data.label_column,
            len(labels),
            len(file.rows),
            _show(labels),
            Option("task_type"),
            Option("labels"),
        )
    logger.info("Labels found in %s: %s", file.path, _show(labels))
    _warn_of_alike(file, labels)
    if data.task_type == "multi_label":
        _warn_of_joined(file, labels, data.label_separator)
    return labels


def _warn_of_alike(file: File, labels: Sequence[str]) -> None:
    """Warns of labels that may be meant as the same label, or as a missing one."""
    groups: dict[Any, list[str]] = {}
    for label in labels:
        number = parse_number(label)
        groups.setdefault(_plain(label) if number is None else number, []).append(label)
    alike = [group for group in groups.values() if len(group) > 1]
    missing = [label for label in labels if label.casefold() in _MISSING]
    for found, what in ((alike, "differ only in how they are written"), (missing, "may be none")):
        if found:
            logger.warning(
                "%s: of the labels, %s %s. Each counts as a label of its own; where that is not "
                "meant, correct the file.",
                file.path,
                ", ".join(map(str, found[:_LABELS_SHOWN])),
                what,
            )


def _plain(label: str) -> str:
    """Returns a label without case, ways of composing characters, and invisible characters."""
    text = unicodedata.normalize("NFKC", label).casefold()
    return "".join(character for character in text if unicodedata.category(character)[0] != "C")


def _warn_of_joined(file: File, labels: Sequence[str], separator: str) -> None:
    """Warns of labels that consist of other labels with another separator between them."""
    for other in _LABEL_SEPARATORS:
        composed = [label for label in labels if other in label]
        parts = {part.strip() for label in composed for part in label.split(other)}
        if composed and other != separator and parts <= {*labels, ""}:
            logger.warning(
                "%s: the label %r consists of others. If there are several in a cell, give %s.",
                file.path,
                composed[0],
                Option("label_separator", other),
            )


def _read_label(
    file: File, row: Row, data: ClassificationData, labels: Sequence[str] | None
) -> Label:
    """Returns the label of a row; raises `ValueError` unless it is among `labels`."""
    value = row.cells["label_column"]
    label = _parse_label(value, data, labels or ())
    if label is not None and (labels is None or _is_among(label, labels)):
        return label
    hints = []
    if isinstance(value, list) and data.task_type == "classification":
        message = " With several labels for an example, %s is multi_label."
        hints.append(Message(message, Option("task_type")))
    elif file.is_first(row) and is_table(file.path):
        hints.append(Message(" If this line is a header, set %s to true.", Option("has_header")))
    if isinstance(value, str) and value.strip().startswith("["):
        hints.append(
            Message(" Lists are for JSON lines; in a table, write a,b without brackets and quotes.")
        )
    raise MessageError(
        "%s:%d: the label, in column %r, must be %s. Received %s.%s",
        file.path,
        row.line,
        data.label_column,
        _describe_labels(data, labels),
        shorten(value),
        joined(hints, ""),
    )


def _describe_labels(data: ClassificationData, labels: Sequence[str] | None) -> Message:
    if data.task_type == "regression":
        return Message("a finite number")
    kind = Message("a text or a number, and not empty")
    if labels is not None and data.labels is None:
        kind = Message("among %s, found in the training file", _show(labels))
    elif labels is not None:
        kind = Message("among %s, given by %s", _show(labels), Option("labels"))
    if data.task_type == "multi_label":
        separator = data.label_separator
        return Message("labels in a list or with %r between them, each %s", separator, kind)
    return kind


def _show(labels: Sequence[str]) -> str:
    more = f" and {len(labels) - _LABELS_SHOWN} more" if len(labels) > _LABELS_SHOWN else ""
    return f"{list(labels[:_LABELS_SHOWN])}{more}"


def _is_among(label: Label | None, labels: Sequence[str]) -> bool:
    if label is None or isinstance(label, float):
        return label is not None
    return ({label} if isinstance(label, str) else set(label)) <= set(labels)


def _parse_label(value: Any, data: ClassificationData, labels: Sequence[str]) -> Label | None:
    """Returns the label in a cell, in the form of the task; None for another form."""
    if data.task_type == "regression":
        return parse_number(value)
    if data.task_type == "classification":
        name = _parse_name(value)
        if name in labels or parse_number(name) is None:
            return name
        # Beside missing labels, pandas writes whole numbers as 1.0.
        plain = str(name).removesuffix(".0")
        return next((label for label in labels if label.removesuffix(".0") == plain), name)
    if isinstance(value, str):
        if re.fullmatch(r"\s*\[.*\]\s*", value, re.DOTALL):
            # A list in the notation of Python or JSON; its brackets would become part of labels.
            return None
        value = [part for part in value.split(data.label_separator) if part.strip()]
    if not isinstance(value, list):
        return None
    names = [_parse_name(part) for part in value]
    # A label named twice counts once.
    return None if None in names else tuple(dict.fromkeys(names))  # type: ignore[arg-type]


def _parse_name(value: Any) -> str | None:
    if isinstance(value, bool):
        return "true" if value else "false"
    if is_not_finite(value):
        return None
    return str(value).strip() or None if isinstance(value, str | int | float) else None

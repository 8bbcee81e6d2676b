"""A task in anyone's own files: `train`, `dev` and `test`, each a .tsv, .csv or .jsonl, or gzipped.

Columns are found by their names in the header or, counted from 0, by numbers. Labels are given, or
are those of the training file.
"""

import collections
import dataclasses
import functools
import math
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

from absl import logging

from bert.files.paths import describe_folder, list_folder
from bert.files.tables import Row, check_width, read_csv, read_json_lines, read_tsv
from bert.tasks.classification.examples import DataSet, InputExample, Label, Task

_ENDINGS = (".tsv", ".csv", ".jsonl", ".tsv.gz", ".csv.gz", ".jsonl.gz")

# Cells that hardly are anything but part of a header.
_HEADER_WORDS = re.compile(
    "category|class|classification|comment|content|gold|guid|id|idx|index|intent|labels?|hypothesis"
    "|premise|question|rating|review|score|sentence[12]?|sentiment|similarity|target|text(_?[ab12])?"
    "|title|topic|tweet",
    re.IGNORECASE,
)

# So many labels, with less than two examples each, are more likely texts or numbers.
_SUSPICIOUS_LABELS = 20
_LABELS_SHOWN = 20

_METRICS = {"classification": "accuracy", "multi_label": "micro_f1", "regression": "pearson"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """What the files mean; each field has the name of a flag.

    Attributes:
      text_a_column: A name in the header, or a number from 0; so are the next three.
      id_column: What names examples in predictions. Without one, rows are counted.
      has_header: Without it, there is a header unless all columns are given as numbers.
      labels: All labels, in a sequence or separated by commas. Without them, those of the training
        file in alphabetical order, or in that of numbers where all are integers.
      label_separator: What stands between the labels of a cell, for multi-label.
      metric: One of `examples.METRICS`.
    """

    task_type: str = "classification"
    text_a_column: str = "text"
    text_b_column: str | None = None
    label_column: str = "label"
    id_column: str | None = None
    has_header: bool | None = None
    labels: str | Sequence[str] | None = None
    label_separator: str = ","
    metric: str | None = None

    def __post_init__(self) -> None:
        given = self.columns
        if len(set(given.values())) < len(given) or not all(given.values()):
            raise ValueError(
                f"Columns must be names or numbers, each with one use. Received {given}."
            )
        if self.has_header is False and not all(map(_is_index, given.values())):
            raise ValueError(
                "Columns must be numbers, counted from 0, where `has_header` is false. "
                f"Received {given}."
            )
        if not self.label_separator:
            raise ValueError("`label_separator` must not be empty. Received ''.")

    @property
    def columns(self) -> dict[str, str]:
        """The columns in use, by the names of their flags."""
        names = ("text_a_column", "text_b_column", "label_column", "id_column")
        given = {name: getattr(self, name) for name in names}
        return {name: column for name, column in given.items() if column is not None}

    @property
    def expects_header(self) -> bool:
        """Whether the first row of a table names the columns."""
        if self.has_header is None:
            return not all(map(_is_index, self.columns.values()))
        return self.has_header


def _is_index(column: str) -> bool:
    return re.fullmatch("[0-9]+", column) is not None


def open_data_set(data_dir: str, options: Options) -> DataSet:
    """Returns the task in the files of a folder."""
    return _CustomDataSet(data_dir, options)


@dataclasses.dataclass(frozen=True, slots=True)
class _Record:
    """The columns in use of one row, by the names of their flags; a label may be missing."""

    line: int
    cells: Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class _File:
    path: str
    header: _Record | None
    records: list[_Record]

    def is_first(self, record: _Record) -> bool:
        """Returns whether a record stands where a header would."""
        return self.header is None and record is self.records[0]


class _CustomDataSet(DataSet):
    def __init__(self, data_dir: str, options: Options) -> None:
        self.data_dir = data_dir
        self._options = options
        self._given_labels = _split_labels(options)
        # What is wrong with the options is said before a file is read.
        self._make_task(self._given_labels or _ANY_LABELS[options.task_type == "regression"])

    def _make_task(self, labels: Sequence[str]) -> Task:
        task_type = self._options.task_type
        return Task(
            name="custom",
            task_type=task_type,
            labels=tuple(labels),
            is_pair=self._options.text_b_column is not None,
            metric=self._options.metric or _METRICS.get(task_type, ""),
        )

    @functools.cached_property
    def task(self) -> Task:  # type: ignore[override]
        """The task. Without given labels, the training file is read for them."""
        if self._given_labels is None:
            return self._make_task(_find_labels(self._training_file, self._options))
        return self._make_task(self._given_labels)

    @functools.cached_property
    def _training_file(self) -> _File:
        return _read_file(self._find("train"), self._options)

    def train(self) -> list[InputExample]:
        """Returns the training set."""
        examples = self._make_examples("train", self._training_file)
        # It has served its two uses. It would be read again if need be.
        del self._training_file
        if self._given_labels and self.task.task_type == "classification":
            unused = sorted(set(self._given_labels) - {example.label for example in examples})
            if unused:
                logging.warning("No training example has the labels %s.", _show(unused))
        return examples

    def dev(self) -> dict[str, list[InputExample]]:
        """Returns the development set."""
        return {"": self._make_examples("dev", _read_file(self._find("dev"), self._options))}

    def test(self) -> dict[str, list[InputExample]]:
        """Returns the test set, with labels where the file has them."""
        file = _read_file(self._find("test"), self._options, needs_label=False)
        return {"": self._make_examples("test", file)}

    def check(self, splits: Sequence[str]) -> None:
        """Raises `ValueError` if a file that these splits need is not there."""
        for split in splits:
            self._find(split)
        if self._given_labels is None and "train" not in splits and not self._names("train"):
            raise ValueError(
                "`labels` must be given where there is no training file to find them in. Received "
                f"{describe_folder(self.data_dir)}."
            )

    def _names(self, split: str) -> list[str]:
        possible = {split + ending for ending in _ENDINGS}
        return [name for name in list_folder(self.data_dir) if name in possible]

    def _find(self, split: str) -> str:
        names = self._names(split)
        if len(names) > 1:
            raise ValueError(
                f"`data_dir` must hold one file for the {split} set. Received {names} in "
                f"{self.data_dir!r}."
            )
        if not names:
            raise ValueError(
                f"`data_dir` must hold '{split}' with one of the endings {list(_ENDINGS)}. "
                f"Received {describe_folder(self.data_dir)}."
            )
        return os.path.join(self.data_dir, names[0])

    def _make_examples(self, split: str, file: _File) -> list[InputExample]:
        labels = self.task.labels
        _check_header(file, self._options, labels)
        examples = []
        unknown: list[_Record] = []
        for number, record in enumerate(file.records, start=1):
            cells = record.cells
            label = None
            if split != "test":
                label = _read_label(file, record, self._options, labels)
            elif "label_column" in cells:
                label = _parse_label(cells["label_column"], self._options)
                if not _is_among(label, labels):
                    label = None
                    if cells["label_column"] not in (None, ""):
                        unknown.append(record)
            guid = cells.get("id_column", f"{split}-{number}")
            text_a, text_b = cells["text_a_column"], cells.get("text_b_column")
            examples.append(InputExample(guid, text_a, text_b, label))
        if unknown:
            logging.warning(
                "%s: %d labels are not among those of the task and are left out; the first is %r "
                "on line %d.",
                file.path,
                len(unknown),
                unknown[0].cells["label_column"],
                unknown[0].line,
            )
        return examples


# Only tried whether they fit the other options; by whether the task is regression.
_ANY_LABELS = {False: ("0", "1"), True: ()}


def _split_labels(options: Options) -> tuple[str, ...] | None:
    labels = options.labels
    if isinstance(labels, str):
        labels = [label.strip() for label in labels.split(",")]
    if labels is None and options.task_type == "regression":
        labels = ()
    return None if labels is None else tuple(labels)


def _read_file(path: str, options: Options, *, needs_label: bool = True) -> _File:
    kind = _kind(path)
    if kind == ".jsonl":
        header, records = None, _read_objects(path, options, needs_label)
    else:
        rows = read_csv(path) if kind == ".csv" else read_tsv(path)
        header, records = _read_cells(path, rows, options, needs_label)
    if kind == ".tsv":
        _warn_of_quotes(path, records)
    if not records:
        raise ValueError(f"{path!r} must hold examples. Received a file without any.")
    return _File(path, header, records)


def _warn_of_quotes(path: str, records: Sequence[_Record]) -> None:
    texts = [(record.line, record.cells["text_a_column"]) for record in records]
    quoted = [line for line, text in texts if len(text) > 1 and text[0] == text[-1] == '"']
    if quoted:
        logging.warning(
            "%s: %d texts stand within quotes, which are text in a .tsv; the first is on line %d. "
            "If they are not meant so, make it a .csv.",
            path,
            len(quoted),
            quoted[0],
        )


def _read_objects(path: str, options: Options, needs_label: bool) -> list[_Record]:
    records = []
    for line, cells in read_json_lines(path):
        used = {}
        for flag, key in options.columns.items():
            if key in cells:
                used[flag] = cells[key]
                if flag != "label_column":
                    used[flag] = _text_of(path, line, key, cells[key])
            elif flag != "label_column" or needs_label:
                raise ValueError(
                    f"{path}:{line}: must have the key {key!r}, the `{flag}`. "
                    f"Received the keys {list(cells)}."
                )
        records.append(_Record(line, used))
    return records


def _text_of(path: str, line: int, key: str, value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError(f"{path}:{line}: {key!r} must be a string. Received {_shorten(value)}.")
    return str(value)


def _read_cells(
    path: str, rows: list[Row], options: Options, needs_label: bool
) -> tuple[_Record | None, list[_Record]]:
    """Returns the header, if there is one, and the other rows."""
    if not rows:
        return None, []
    places = _locate(path, rows[0], options, needs_label)
    width = len(rows[0].cells)
    for row in rows:
        count = len(row.cells)
        if count != width:
            raise ValueError(
                f"{path}:{row.line}: has {count} column{'s' * (count != 1)}, needs {width} "
                f"as line {rows[0].line} has. Received {_shorten(row.cells)}. "
                f"{_name_separator(path)}"
            )
    records = [
        _Record(row.line, {flag: row.cells[place] for flag, place in places.items()})
        for row in rows
    ]
    return (records[0], records[1:]) if options.expects_header else (None, records)


def _locate(path: str, first: Row, options: Options, needs_label: bool) -> dict[str, int]:
    """Returns the place of each column."""
    header = [cell.strip() for cell in first.cells] if options.expects_header else []
    places = {}
    for flag, column in options.columns.items():
        if header.count(column) > 1:
            raise ValueError(
                f"{path}:{first.line}: the header must have {column!r} once. Received {header}."
            )
        is_optional = flag == "label_column" and not needs_label
        if column in header:
            places[flag] = header.index(column)
        elif _is_index(column) and int(column) < len(first.cells):
            places[flag] = int(column)
        elif _is_index(column) and not is_optional:
            reason = f", as `{flag}` is {column}, counted from 0"
            check_width(path, first, int(column) + 1, reason)
        elif not is_optional:
            raise ValueError(
                f"{path}:{first.line}: the header must have the column {column!r}, the `{flag}`. "
                f"Received {_shorten(header)}. {_name_separator(path)} If the file has no header, "
                "give columns as numbers from 0."
            )
    return places


def _name_separator(path: str) -> str:
    return f"Columns are separated by {'commas' if _kind(path) == '.csv' else 'tabs'} here."


def _check_header(file: _File, options: Options, labels: Sequence[str]) -> None:
    """Raises `ValueError` if data was taken for a header, or a header for data."""
    if file.header is not None:
        cell = file.header.cells.get("label_column", "")
        label = _parse_label(cell, options)
        if cell.strip() != options.label_column and label and _is_among(label, labels):
            raise ValueError(
                f"{file.path}:{file.header.line}: the header must name columns. Received {cell!r}, "
                "which is a label. If the file has no header, set `has_header` to false."
            )
    elif _may_be_header(file, options):
        cells = list(file.records[0].cells.values())
        if all(map(_is_header_word, cells)):
            _refuse_header(file, cells)


def _may_be_header(file: _File, options: Options) -> bool:
    """Returns whether the first example may be a header that nobody spoke of."""
    return options.has_header is None and file.header is None and _kind(file.path) != ".jsonl"


def _is_header_word(cell: str) -> bool:
    return _HEADER_WORDS.fullmatch(cell.strip()) is not None


def _refuse_header(file: _File, cells: list[str]) -> None:
    raise ValueError(
        f"{file.path}:{file.records[0].line}: the first row must be an example, as all columns are "
        f"given as numbers. Received {cells}, which looks like a header. Set `has_header` to true "
        "if it is one, or to false."
    )


def _kind(path: str) -> str:
    """Returns ".tsv", ".csv" or ".jsonl"."""
    return os.path.splitext(path.removesuffix(".gz"))[1]


def _find_labels(file: _File, options: Options) -> list[str]:
    _check_header(file, options, ())
    counts: collections.Counter[str] = collections.Counter()
    for record in file.records:
        label = _read_label(file, record, options, None)
        assert not isinstance(label, float)
        counts.update([label] if isinstance(label, str) else label)
    if _may_be_header(file, options):
        cells = file.records[0].cells
        if _is_header_word(cells["label_column"]) and counts[cells["label_column"].strip()] == 1:
            _refuse_header(file, list(cells.values()))
    if all(re.fullmatch("-?[0-9]+", label) for label in counts):
        labels = sorted(counts, key=lambda label: (int(label), label))
    else:
        labels = sorted(counts)
    if len(labels) < (2 if options.task_type == "classification" else 1):
        raise ValueError(
            f"{file.path!r} must hold at least two labels in column {options.label_column!r}, "
            f"unless `labels` gives them. Received {labels}."
        )
    if len(labels) >= _SUSPICIOUS_LABELS and 2 * len(labels) > len(file.records):
        raise ValueError(
            f"{file.path!r} must hold labels in column {options.label_column!r}. Received "
            f"{len(labels)} different ones for {len(file.records)} examples: {_show(labels)}. "
            "If they are numbers to predict, `task_type` is regression; if they are labels, give "
            "them with `labels`."
        )
    logging.info("Labels found in %s: %s", file.path, _show(labels))
    return labels


def _read_label(
    file: _File, record: _Record, options: Options, labels: Sequence[str] | None
) -> Label:
    """Returns the label of a record; raises `ValueError` unless it is among `labels`."""
    value = record.cells["label_column"]
    label = _parse_label(value, options)
    if label is not None and (labels is None or _is_among(label, labels)):
        return label
    hint = ""
    if file.is_first(record) and _kind(file.path) != ".jsonl":
        hint = " If this line is a header, set `has_header` to true."
    if isinstance(value, list) and options.task_type == "classification":
        hint = " With several labels for an example, `task_type` is multi_label."
    raise ValueError(
        f"{file.path}:{record.line}: the label, in column {options.label_column!r}, must be "
        f"{_describe_labels(options, labels)}. Received {_shorten(value)}.{hint}"
    )


def _describe_labels(options: Options, labels: Sequence[str] | None) -> str:
    if options.task_type == "regression":
        return "a finite number"
    kind = "a text or a number, and not empty"
    if labels is not None:
        origin = "found in the training file" if options.labels is None else "given by `labels`"
        kind = f"among {_show(labels)}, {origin}"
    if options.task_type == "multi_label":
        return f"labels in a list or with {options.label_separator!r} between them, each {kind}"
    return kind


def _shorten(value: Any) -> str:
    shown = repr(value)
    return shown if len(shown) <= 80 else shown[:80] + "..."


def _show(labels: Sequence[str]) -> str:
    more = f" and {len(labels) - _LABELS_SHOWN} more" if len(labels) > _LABELS_SHOWN else ""
    return f"{list(labels[:_LABELS_SHOWN])}{more}"


def _is_among(label: Label | None, labels: Sequence[str]) -> bool:
    if label is None or isinstance(label, float):
        return label is not None
    return ({label} if isinstance(label, str) else set(label)) <= set(labels)


def _parse_label(value: Any, options: Options) -> Label | None:
    """Returns the label in a cell, in the form that the task has; None if it is of no such form."""
    if options.task_type == "regression":
        return _parse_number(value)
    if options.task_type == "classification":
        return _parse_name(value)
    if isinstance(value, str):
        value = [part for part in value.split(options.label_separator) if part.strip()]
    if not isinstance(value, list):
        return None
    names = [_parse_name(part) for part in value]
    # A label named twice counts once.
    return None if None in names else tuple(dict.fromkeys(names))  # type: ignore[arg-type]


def _parse_number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _parse_name(value: Any) -> str | None:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value).strip() or None if isinstance(value, str | int | float) else None

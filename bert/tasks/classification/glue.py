"""The tasks of GLUE and XNLI: their files, labels and metrics (paper, section 4.1)."""

import dataclasses
import math
import os
from collections.abc import Iterable, Mapping, Sequence

from bert.files.paths import describe_folder, find_file, list_folder
from bert.files.rows import Row, load_rows
from bert.files.tables import shorten
from bert.log import logger
from bert.tasks.classification.examples import DataSet, InputExample, Label, Task

_NLI = ("contradiction", "entailment", "neutral")
_ENTAILMENT = ("entailment", "not_entailment")

# Other spellings of the tasks' names.
_ALIASES = {"sst2": "sst-2", "sst_2": "sst-2", "stsb": "sts-b", "sts_b": "sts-b"}

# Of rows with too few columns, the part that QQP's labelled files may have: the official ones have
# a few.
_TOLERATED_PART = 0.01


@dataclasses.dataclass(frozen=True)
class _Columns:
    """Where the columns of a file are, counted from 0; a label in -1 is in the last.

    Attributes:
      language: Where only rows of one language are wanted.
      guid: Where the original names examples by a column, rather than by counting rows.
    """

    texts: tuple[int, ...]
    label: int | None = None
    has_header: bool = True
    language: int | None = None
    guid: int | None = None

    @property
    def needed(self) -> int:
        """How many columns a row must have."""
        places = [*self.texts, self.label, self.language, self.guid]
        last = max(place for place in places if place is not None)
        return last + (2 if self.label == -1 else 1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Layout:
    """How a task is laid out in files.

    Attributes:
      folder: The official name of its folder.
      columns: By split.
      files: By split, and then by the suffix of output files. All but the first may be absent.
      submissions: By suffix.
    """

    folder: str
    columns: Mapping[str, _Columns]
    files: Mapping[str, Mapping[str, str]]
    submissions: Mapping[str, str]
    labels: tuple[str, ...] = ("0", "1")
    metric: str = "accuracy"


def _layout(
    folder: str,
    train: _Columns,
    test: _Columns,
    labels: tuple[str, ...] = ("0", "1"),
    metric: str = "accuracy",
) -> _Layout:
    return _Layout(
        folder=folder,
        columns={"train": train, "dev": train, "test": test},
        files={split: {"": f"{split}.tsv"} for split in ("train", "dev", "test")},
        submissions={"": f"{folder}.tsv"},
        labels=labels,
        metric=metric,
    )


_PAIR = _Columns((1, 2))
_LABELLED_PAIR = _Columns((1, 2), 3)
_MNLI = _Columns((8, 9), -1, guid=0)
_XNLI = _Columns((6, 7), 1, language=0)

_LAYOUTS = {
    "cola": _layout("CoLA", _Columns((3,), 1, has_header=False), _Columns((1,)), metric="matthews"),
    "sst-2": _layout("SST-2", _Columns((0,), 1), _Columns((1,))),
    "mrpc": _layout("MRPC", _Columns((3, 4), 0), _Columns((3, 4)), metric="f1"),
    "sts-b": _layout("STS-B", _Columns((7, 8), 9), _Columns((7, 8)), labels=(), metric="pearson"),
    "qqp": _layout("QQP", _Columns((3, 4), 5), _PAIR, metric="f1"),
    "mnli": _Layout(
        folder="MNLI",
        columns={"train": _MNLI, "dev": _MNLI, "test": dataclasses.replace(_MNLI, label=None)},
        files={
            "train": {"": "train.tsv"},
            "dev": {"": "dev_matched.tsv", "_mismatched": "dev_mismatched.tsv"},
            "test": {"": "test_matched.tsv", "_mismatched": "test_mismatched.tsv"},
        },
        submissions={"": "MNLI-m.tsv", "_mismatched": "MNLI-mm.tsv"},
        labels=_NLI,
    ),
    "qnli": _layout("QNLI", _LABELLED_PAIR, _PAIR, _ENTAILMENT),
    "rte": _layout("RTE", _LABELLED_PAIR, _PAIR, _ENTAILMENT),
    "wnli": _layout("WNLI", _LABELLED_PAIR, _PAIR),
    "ax": _Layout(
        folder="AX",
        columns={"test": _PAIR},
        files={"test": {"": "AX.tsv"}},
        submissions={"": "AX.tsv"},
        labels=_NLI,
    ),
    "xnli": _Layout(
        folder="XNLI",
        columns={"train": _Columns((0, 1), 2), "dev": _XNLI, "test": _XNLI},
        files={
            "train": {"": "multinli/multinli.train.{language}.tsv"},
            "dev": {"": "xnli.dev.tsv"},
            "test": {"": "xnli.test.tsv"},
        },
        submissions={},
        labels=_NLI,
    ),
}

TASK_NAMES = tuple(_LAYOUTS)

# Where a file lies that is not in the folder itself or in that with the task's name, or what it is
# called there.
_OTHER_PLACES = {
    "ax": ("diagnostic.tsv", "AX/diagnostic.tsv", "diagnostic/diagnostic.tsv"),
    "xnli": ("XNLI-1.0/{name}", "XNLI-MT-1.0/{name}"),
}


def open_data_set(task_name: str, data_dir: str, xnli_language: str = "zh") -> "GlueDataSet":
    """Returns a task of GLUE, or XNLI in a language, in any case and usual spelling of its name.

    Args:
      task_name: One of `TASK_NAMES`.
      data_dir: The folder with the official files, or the one with the task's folder in it.
      xnli_language: Of XNLI only: the code, such as "de", of the language.
    """
    name = _ALIASES.get(task_name.lower(), task_name.lower())
    if name not in _LAYOUTS:
        raise ValueError(
            f"`task_name` must be one of {list(TASK_NAMES)}, or 'custom' for other files. "
            f"Received {task_name!r}."
        )
    return GlueDataSet(name, data_dir, xnli_language)


class GlueDataSet(DataSet):
    """The files of one of the tasks; `task` says which."""

    def __init__(self, name: str, data_dir: str, language: str) -> None:
        self._layout = layout = _LAYOUTS[name]
        self.data_dir = data_dir
        self._language = language
        self.submission_names = layout.submissions
        self.task = Task(
            name=name,
            task_type="classification" if layout.labels else "regression",
            labels=layout.labels,
            is_pair=len(layout.columns["test"].texts) == 2,
            metric=layout.metric,
        )

    def train(self) -> list[InputExample]:
        """Returns the training set."""
        return self._read_split("train")[""]

    def dev(self) -> dict[str, list[InputExample]]:
        """Returns the development set; of MNLI also the mismatched one."""
        return self._read_split("dev")

    def test(self) -> dict[str, list[InputExample]]:
        """Returns the test set, without labels but for XNLI; of MNLI also the mismatched one."""
        return self._read_split("test")

    def check(self, splits: Sequence[str]) -> None:
        """Raises `ValueError` if a file of these splits is not there."""
        for split in splits:
            self.find(split)

    def find(self, split: str, suffix: str = "") -> str | None:
        """Returns the path of a file, or None; a `ValueError` if it is the main one and absent."""
        layout = self._layout
        if split not in layout.files:
            raise ValueError(
                f"`task_name` must be a task with a {split} set. Received {self.task.name!r}, "
                "which has a test set only: predict it with a model trained on 'mnli'."
            )
        name = layout.files[split][suffix].format(language=self._language)
        others = [place.format(name=name) for place in _OTHER_PLACES.get(self.task.name, ())]
        path = find_file(self.data_dir, [name, os.path.join(layout.folder, name), *others])
        if path is None and not suffix:
            folder = os.path.dirname(os.path.join(self.data_dir, name))
            found = describe_folder(folder if list_folder(folder) else self.data_dir)
            raise ValueError(
                f"`data_dir` must hold {name!r}, the {split} set of {self.task.name!r}, itself or "
                f"in {layout.folder!r}. Received {found}."
            )
        return path

    def _read_split(self, split: str) -> dict[str, list[InputExample]]:
        self.check([split])
        examples = {}
        for suffix, name in self._layout.files[split].items():
            path = self.find(split, suffix)
            if path is None:
                logger.warning("There is no %r in %r: it is left out.", name, self.data_dir)
            else:
                columns, set_type = self._layout.columns[split], self.set_type(split, suffix)
                examples[suffix] = self._make_examples(
                    path, load_rows(path, "tsv"), columns, set_type
                )
        return examples

    def set_type(self, split: str, suffix: str = "") -> str:
        """Returns how the names of a file's examples begin."""
        # Original: run_classifier.py, MnliProcessor, which knows the matched sets only.
        is_matched = self._layout.files[split][suffix] == "dev_matched.tsv"
        return "dev_matched" if is_matched else split + suffix

    def parse(self, lines: Iterable[Sequence[str]], set_type: str) -> list[InputExample]:
        """Returns the examples of a file's lines, cut at tabs (original: `_create_examples`).

        Args:
          lines: All of them, a header included.
          set_type: "train", "dev", "test", or another name of a labelled set; examples have it.
        """
        split = set_type if set_type in ("train", "test") else "dev"
        rows = [Row(number, list(cells)) for number, cells in enumerate(lines, start=1)]
        return self._make_examples("lines", rows, self._layout.columns[split], set_type)

    def _make_examples(
        self, path: str, rows: list[Row], columns: _Columns, set_type: str
    ) -> list[InputExample]:
        rows = self._drop_malformed(path, rows, columns)
        if columns.has_header:
            self._check_header(path, rows[:1], columns)
        examples = []
        for index, row in enumerate(rows):
            if index == 0 and columns.has_header:
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
        """Returns the rows with enough columns; raises if it does not have to be so."""
        short = [row for row in rows if len(row.cells) < columns.needed]
        if not short:
            return rows
        tolerated = max(1, _TOLERATED_PART * len(rows)) if self.task.name == "qqp" else 0
        # Without labels, rows have their places in a submission, which must not shift.
        if columns.label is None or len(short) > tolerated:
            count = len(short[0].cells)
            raise ValueError(
                f"{path}:{short[0].line}: has {count} column{'s' * (count != 1)}, needs "
                f"{columns.needed} for task {self.task.name!r}. Received {shorten(short[0].cells)}."
            )
        logger.warning(
            "%s: skipped %d rows with too few columns, the first on line %d.",
            path,
            len(short),
            short[0].line,
        )
        return [row for row in rows if len(row.cells) >= columns.needed]

    def _check_header(self, path: str, first: list[Row], columns: _Columns) -> None:
        if not first or columns.label is None:
            return
        cell = first[0].cells[columns.label].strip()
        if cell in self.task.labels or (not self.task.labels and _is_number(cell)):
            logger.warning(
                "%s:%d: is taken for the header, but looks like an example with label %r.",
                path,
                first[0].line,
                cell,
            )

    def _label(self, path: str, row: Row, columns: _Columns) -> Label:
        assert columns.label is not None
        cell = row.cells[columns.label].strip()
        if not self.task.labels:
            if not _is_number(cell):
                raise ValueError(
                    f"{path}:{row.line}: the score, in column {columns.label} counted from 0, must "
                    f"be a finite number. Received {cell!r}."
                )
            return float(cell)
        # Original: run_classifier.py, XnliProcessor.
        if cell == "contradictory" and self.task.name == "xnli":
            return "contradiction"
        if cell not in self.task.labels:
            place = (
                f"column {columns.label} counted from 0"
                if columns.label >= 0
                else "the last column"
            )
            header = ""
            if row.line == 1:
                header = f" The {self.task.name!r} task has no header in this file."
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


def _is_number(cell: str) -> bool:
    try:
        return math.isfinite(float(cell))
    except ValueError:
        return False

"""The examples of multiple choice, as in SWAG, and their features and scores (paper, section 4.4).

Files are SWAG's CSV; or JSON lines with the same keys, or with `context`, `endings`, a list of any
length, and `label`, the number of the right ending from 0.
"""

import dataclasses
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from scipy.special import log_softmax

import tokenization
from bert.files.row_writer import write_tsv
from bert.files.rows import Row, is_table, load_rows, open_table
from bert.log import logger
from bert.tasks.examples import warn_of_unknown

_ENDINGS = (".csv", ".jsonl", ".jsonl.gz", ".tsv", ".parquet")
# The possible files of each split in a folder; the first one found is read.
_NAMES = {"train": ["train"], "dev": ["val", "dev"], "test": ["test"]}
FILES = {
    split: [f"{name}{ending}" for name in names for ending in _ENDINGS]
    for split, names in _NAMES.items()
}

_ENDING = re.compile("ending(0|[1-9][0-9]*)")
# The number of digits that Python converts to a number.
_MAX_DIGITS = 4000
# The logits of absent choices.
ABSENT = -1e9
# The shortest sequence: a token of each text, [CLS] and twice [SEP].
SHORTEST = 5


@dataclasses.dataclass(frozen=True, slots=True)
class Example:
    """A text and its possible endings.

    Attributes:
      id: The name of the example in predictions.
      context: Sentence A of every choice.
      endings: Sentence B of each choice; at least two.
      label: The number of the right ending, from 0; None where it is unknown.
    """

    id: str
    context: str
    endings: Sequence[str]
    label: int | None = None


def read(path: str, *, with_labels: bool = True, separator: str | None = None) -> list[Example]:
    """Returns the examples of a file of JSON lines, Parquet or TSV by its ending, else of CSV.

    Args:
      path: A path that `tf.io.gfile` reads.
      with_labels: Whether every example must have a label.
      separator: The separator of columns, as for `rows.find_separator`.

    Raises:
      ValueError: naming file and line, where an ending or a label is missing or invalid.
    """
    rows = _read_cells(path, with_labels, separator) if is_table(path) else load_rows(path)
    examples = [
        make_example(f"{path}:{row.line}", number, row.cells, with_label=with_labels)
        for number, row in enumerate(rows)
    ]
    if not examples:
        raise ValueError(f"{path!r} must hold examples. There are none.")
    return examples


def _read_cells(path: str, with_labels: bool, separator: str | None) -> Iterator[Row]:
    """Yields the rows by the names of the columns."""
    table = open_table(path, separator)
    needed = ["ending0", "ending1", *["label"] * with_labels]
    has_context = {*map(table.find, ("sent1", "context"))} != {None}
    for name in ("sent2", "label", "id", *filter(_ENDING.fullmatch, table.names)):
        table.find(name)
    if not has_context or None in map(table.find, needed):
        must = f"the header must name sent1 (or context), {', '.join(needed)}"
        raise table.error(must, lambda cells: "ending0" in cells)
    for row in table.rows:
        yield Row(row.line, table.name_cells(f"{path}:{row.line}", row.cells))


def make_example(place: str, number: int, cells: Mapping[str, Any], *, with_label: bool) -> Example:
    """Returns the example of a row.

    Args:
      place: The file and line of the row, for messages.
      number: The name of an example without `id`.
      cells: The values, by SWAG's column names or `context`, `endings`, `label` and `id`.
      with_label: Whether there must be a label.

    Raises:
      ValueError: where a value is missing or invalid.
    """
    context = cells.get("context", cells.get("sent1"))
    if not isinstance(context, str):
        raise ValueError(
            f"{place}: must have text as `context` or `sent1`. Received {context!r} and the keys "
            f"{list(cells)}."
        )
    endings = _find_endings(place, cells)
    label = _read_label(place, cells.get("label"), len(endings), with_label)
    # SWAG's first column, which counts the rows, has no name.
    given = (cells.get(name) for name in ("id", ""))
    name = next((each for each in given if each not in (None, "")), number)
    return Example(str(name), context, endings, label)


def derive(place: str, cells: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the fields of a row with SWAG's columns but its label; `place` is for messages."""
    known = {name: value for name, value in cells.items() if name != "label"}
    example = make_example(place, 0, known, with_label=False)
    return {"context": example.context, "endings": list(example.endings)}


def _find_endings(place: str, cells: Mapping[str, Any]) -> list[str]:
    """Returns the endings, each with SWAG's `sent2` as its beginning."""
    if "endings" in cells:
        endings = cells["endings"]
        if not isinstance(endings, list):
            raise ValueError(f"{place}: `endings` must be a list of texts. Received {endings!r}.")
    else:
        # A gap in the numbers is an ending that is None.
        count = sum(_ENDING.fullmatch(name) is not None for name in cells)
        endings = [cells.get(f"ending{number}") for number in range(count)]
    if len(endings) < 2:
        raise ValueError(
            f"{place}: must have at least two endings, as `endings` or as ending0, ending1 and so "
            f"on. Received {endings!r} and the keys {list(cells)}."
        )
    for number, ending in enumerate(endings):
        if not isinstance(ending, str) or not ending.strip():
            raise ValueError(
                f"{place}: every ending must have text. Received {ending!r} as ending {number} "
                f"of {len(endings)}."
            )
    start = cells.get("sent2") or ""
    if not isinstance(start, str):
        raise ValueError(f"{place}: `sent2` must be text. Received {start!r}.")
    return [f"{start} {ending}".strip() for ending in endings]


def _read_label(place: str, label: Any, num_endings: int, with_labels: bool) -> int | None:
    if label is None or not str(label).strip():
        if with_labels:
            raise ValueError(f"{place}: must have a `label`. Received {label!r}.")
        return None
    # Test sets hide labels as -1 or NaN; beside blanks, pandas writes whole numbers as 1.0.
    kinds = str | int if with_labels else str | int | float
    text = str(label).strip() if isinstance(label, kinds) else ""
    if not with_labels:
        text = text.removesuffix(".0")
        if text in ("-1", "nan", "NaN"):
            return None
    is_number = len(text) <= _MAX_DIGITS and re.fullmatch("[0-9]+", text)
    if not is_number or int(text) >= num_endings:
        raise ValueError(
            f"{place}: the label must be the number of an ending, from 0 to {num_endings - 1}. "
            f"Received {label!r}."
        )
    return int(text)


def make_features(
    examples: Sequence[Example],
    tokenizer: tokenization.FullTokenizer,
    max_seq_length: int,
    *,
    logs: bool = True,
) -> dict[str, np.ndarray]:
    """Returns the features of examples: `[CLS] context [SEP] ending [SEP]` for each choice.

    Args:
      examples: The examples; they may have different numbers of endings.
      tokenizer: The tokenizer of the model.
      max_seq_length: Tokens per choice at most; the longer of context and ending is truncated.
      logs: Whether to log counts of unusual examples.

    Returns:
      int32: `input_ids`, `input_mask` and `segment_ids`, [N, E, S]; `choice_mask`, [N, E], 1 where
      there is a choice; `label_ids`, [N, 1], 0 where there is no label. E is the largest number of
      endings.
    """
    if max_seq_length < SHORTEST:
        raise ValueError(
            f"`max_seq_length` must be at least {SHORTEST}, to hold a token of each text and what "
            f"surrounds them. Received {max_seq_length}."
        )
    num_choices = max((len(example.endings) for example in examples), default=0)
    shape = (len(examples), num_choices, max_seq_length)
    names = ("input_ids", "input_mask", "segment_ids")
    arrays: dict[str, np.ndarray] = {name: np.zeros(shape, np.int32) for name in names}
    arrays["choice_mask"] = np.zeros(shape[:2], np.int32)
    arrays["label_ids"] = np.array(
        [[example.label or 0] for example in examples], np.int32
    ).reshape(-1, 1)
    packer = _Packer(tokenizer, max_seq_length)
    for row, example in enumerate(examples):
        for choice, (ids, num_first) in enumerate(packer.pack(example)):
            arrays["input_ids"][row, choice, : len(ids)] = ids
            arrays["input_mask"][row, choice, : len(ids)] = 1
            arrays["segment_ids"][row, choice, num_first : len(ids)] = 1
            arrays["choice_mask"][row, choice] = 1
    if logs:
        packer.report(len(examples))
    return arrays


class _Packer:
    """Turns choices into ids, and counts unusual examples."""

    def __init__(self, tokenizer: tokenization.FullTokenizer, max_seq_length: int) -> None:
        self._tokenizer = tokenizer
        self._budget = max_seq_length - 3
        special = ["[CLS]", "[SEP]", "[UNK]"]
        self._cls, self._sep, self._unknown = tokenizer.convert_tokens_to_ids(special)
        self._num_cut = self._num_endings_cut = self._num_alike = 0
        self._num_tokens = self._num_unknown = 0

    def pack(self, example: Example) -> list[tuple[list[Any], int]]:
        """Returns the ids of each choice, and the number of ids before the ending."""
        context: list[Any] = self._tokenizer.tokenize_to_ids(example.context)
        packed: list[tuple[list[Any], int]] = []
        is_cut = ending_is_cut = False
        for ending in example.endings:
            ids: list[Any] = self._tokenizer.tokenize_to_ids(ending)
            a, b = tokenization.truncate_pair(context, ids, budget=self._budget)
            first = [self._cls, *a, self._sep]
            packed.append(([*first, *b, self._sep], len(first)))
            self._num_tokens += len(ids)
            self._num_unknown += ids.count(self._unknown)
            is_cut |= len(a) + len(b) < len(context) + len(ids)
            ending_is_cut |= len(b) < len(ids)
        self._num_cut += is_cut
        self._num_endings_cut += ending_is_cut
        self._num_alike += len({tuple(ids) for ids, _ in packed}) < len(packed)
        return packed

    def report(self, count: int) -> None:
        """Logs the counts of unusual examples; `count` is the number of all examples."""
        if self._num_cut:
            logger.info(
                "%d of %d examples were longer than %d tokens and were cut at their ends, %d of "
                "them in an ending.",
                self._num_cut,
                count,
                self._budget + 3,
                self._num_endings_cut,
            )
        warn_of_unknown(self._num_unknown, self._num_tokens, "tokens of the endings")
        if self._num_alike:
            logger.warning(
                "%d of %d examples have choices that are the same to the model.",
                self._num_alike,
                count,
            )


def decode(
    examples: Sequence[Example], arrays: Mapping[str, np.ndarray], logits: np.ndarray
) -> list[dict[str, Any]]:
    """Returns the answer for each example, fit for JSON.

    Args:
      examples: The examples.
      arrays: The features of `make_features`.
      logits: float [N, E].

    Returns:
      `label`, the number of the likeliest ending; `ending`, its text; and `probabilities`, of all
      endings in order.
    """
    chances = probabilities(arrays, logits)
    return [
        {
            "label": int(row.argmax()),
            "ending": example.endings[row.argmax()],
            "probabilities": row[: len(example.endings)].tolist(),
        }
        for example, row in zip(examples, chances, strict=True)
    ]


def probabilities(arrays: Mapping[str, np.ndarray], logits: np.ndarray) -> np.ndarray:
    """Returns the probability of each choice, [N, E], 0 for absent choices."""
    return np.exp(log_probabilities(arrays, logits))


def log_probabilities(arrays: Mapping[str, np.ndarray], logits: np.ndarray) -> np.ndarray:
    """Returns the logarithm of the probability of each choice, [N, E]."""
    logits = np.asarray(logits, np.float64)
    return log_softmax(np.where(arrays["choice_mask"] > 0, logits, ABSENT), axis=1)


def losses(arrays: Mapping[str, np.ndarray], logits: np.ndarray) -> np.ndarray:
    """Returns minus the logarithm of the probability of each right choice, [N]."""
    chances = log_probabilities(arrays, logits)
    return -np.take_along_axis(chances, arrays["label_ids"], axis=1)[:, 0]


def score(arrays: Mapping[str, np.ndarray], logits: np.ndarray) -> dict[str, float]:
    """Returns `accuracy`, `loss`, and `baseline`, the accuracy of always the same answer."""
    labels = arrays["label_ids"]
    chances = log_probabilities(arrays, logits)
    counts = np.bincount(labels[:, 0])
    return {
        "accuracy": float((chances.argmax(axis=1) == labels[:, 0]).mean()),
        "loss": float(losses(arrays, logits).mean()),
        "baseline": float(counts.max() / counts.sum()),
    }


def write_predictions(
    path: str,
    examples: Sequence[Example],
    arrays: Mapping[str, np.ndarray],
    logits: np.ndarray,
) -> None:
    """Writes a table with a header: id, predicted label and ending, a probability per choice, gold.

    The gold column is there where examples have labels. Tabs and line breaks within texts become
    spaces.
    """
    has_gold = any(example.label is not None for example in examples)
    num_choices = arrays["choice_mask"].shape[1]
    header = ["id", "predicted_label", "predicted_ending"]
    header += [f"probability_{choice}" for choice in range(num_choices)] + ["gold"] * has_gold
    lines: list[Iterable[str]] = [header]
    for example, decoded in zip(examples, decode(examples, arrays, logits), strict=True):
        absent = [""] * (num_choices - len(example.endings))
        gold = "" if example.label is None else str(example.label)
        chances = map(str, decoded["probabilities"])
        lines.append(
            [
                *(example.id, str(decoded["label"]), decoded["ending"]),
                *(*chances, *absent, *[gold] * has_gold),
            ]
        )
    write_tsv(path, lines)

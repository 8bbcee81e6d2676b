"""Examples and features of the original's run_classifier.py, with its arguments and results.

Code written for the original, such as a user's own `DataProcessor`, finds these names as
`run_classifier.<name>`.
"""

import csv
import dataclasses
import inspect
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import tokenization
from bert.files.records import encode_example, write_records
from bert.files.rows import load_rows, text_lines
from bert.log import logger
from bert.tasks.classification import examples as classification_examples

InputExample = classification_examples.InputExample

ENCODER_INPUTS = ("input_ids", "input_mask", "segment_ids")

# Examples that are logged; examples between two lines of progress (original: run_classifier.py).
_EXAMPLES_LOGGED = 5
_EXAMPLES_PER_LINE = 10_000


class PaddingInputExample:
    """An example that only fills the last batch: zeros, with `is_real_example` false."""


@dataclasses.dataclass
class InputFeatures:
    """The model's inputs for one example; the first three are lists of `max_seq_length`."""

    input_ids: Sequence[int]
    input_mask: Sequence[int]
    segment_ids: Sequence[int]
    label_id: int
    is_real_example: bool = True


class DataProcessor:
    """Reads the examples of a task; a base class for your own data."""

    def get_train_examples(self, data_dir: str) -> list[InputExample]:
        raise self._undefined("get_train_examples")

    def get_dev_examples(self, data_dir: str) -> list[InputExample]:
        raise self._undefined("get_dev_examples")

    def get_test_examples(self, data_dir: str) -> list[InputExample]:
        raise self._undefined("get_test_examples")

    def get_labels(self) -> list[str]:
        raise self._undefined("get_labels")

    def _undefined(self, method: str) -> NotImplementedError:
        return NotImplementedError(f"{type(self).__name__} must define `{method}`.")

    @classmethod
    def _read_tsv(cls, input_file: str, quotechar: str | None = None) -> list[list[str]]:
        """Returns the cells of each row; without `quotechar`, quotes are text.

        Departs: blank lines, a byte order mark and carriage returns at the ends of lines are left
        out, which the original took for cells.
        """
        if quotechar is None:
            return [row.cells for row in load_rows(input_file, "tsv")]
        lines = (f"{line}\n" for _, line in text_lines(input_file))
        reader = csv.reader(lines, delimiter="\t", quotechar=quotechar, strict=True)
        try:
            return [row for row in reader if any(cell.strip() for cell in row)]
        except csv.Error as error:
            raise ValueError(
                f"{input_file}:{reader.line_num}: a cell that begins with {quotechar!r} must end "
                f"with it, and then a tab or the end of the line must follow. Received: {error}."
            ) from error


class _GlueProcessor(DataProcessor):
    """Reads a task as `bert.tasks.classification.examples` does.

    Rows of the test set get the first label where it has none.
    """

    task_name: str
    language = "zh"

    def get_train_examples(self, data_dir: str) -> list[InputExample]:
        return self._read(data_dir, "train")

    def get_dev_examples(self, data_dir: str) -> list[InputExample]:
        return self._read(data_dir, "dev")

    def get_test_examples(self, data_dir: str) -> list[InputExample]:
        return self._read(data_dir, "test")

    def _read(self, data_dir: str, split: str) -> list[InputExample]:
        if not all(map(self._is_own, ("_read_tsv", "_create_examples"))):
            # A subclass overrides one of the original's steps, which may be the first to know the
            # labels.
            data_set = classification_examples.open_data_set(
                self.task_name, data_dir, self.language
            )
            path = data_set.find(split)
            assert path is not None
            return self._create_examples(self._read_tsv(path), data_set.set_type(split))
        return self._with_labels(self._open(data_dir).read(split)[""])

    def _is_own(self, method: str) -> bool:
        own = inspect.getattr_static(_GlueProcessor, method)
        return inspect.getattr_static(self, method) is own

    def _create_examples(self, lines: Sequence[list[str]], set_type: str) -> list[InputExample]:
        """Returns the examples of the rows of a file, the header included."""
        return self._with_labels(self._open(".").parse(lines, set_type))

    def _with_labels(self, examples: Sequence[InputExample]) -> list[InputExample]:
        first = self.get_labels()[0]
        return [
            dataclasses.replace(example, label=first) if example.label is None else example
            for example in examples
        ]

    def get_labels(self) -> list[str]:
        return list(self._open("").task.labels)

    def _open(self, data_dir: str) -> classification_examples.GlueDataSet:
        data_set = classification_examples.open_data_set(self.task_name, data_dir, self.language)
        # A subclass may have labels of its own.
        if data_dir and (labels := tuple(map(str, self.get_labels()))) != data_set.task.labels:
            data_set.task = dataclasses.replace(data_set.task, labels=labels)
        return data_set


class ColaProcessor(_GlueProcessor):
    """Reads CoLA: whether a sentence is acceptable."""

    task_name = "cola"


class MnliProcessor(_GlueProcessor):
    """Reads MultiNLI, with the matched development and test sets."""

    task_name = "mnli"


class MrpcProcessor(_GlueProcessor):
    """Reads MRPC: whether two sentences mean the same."""

    task_name = "mrpc"


class XnliProcessor(_GlueProcessor):
    """Reads XNLI in the language of its attribute `language`, Chinese unless that is set."""

    task_name = "xnli"


def truncate_seq_pair(tokens_a: list[str], tokens_b: list[str], max_length: int) -> None:
    """Removes the last token of the longer list until both fit; changes the lists."""
    a, b = tokenization.truncate_pair(tokens_a, tokens_b, budget=max_length)
    del tokens_a[len(a) :], tokens_b[len(b) :]


def convert_single_example(
    ex_index: int,
    example: InputExample | PaddingInputExample,
    label_list: Collection[Any],
    max_seq_length: int,
    tokenizer: tokenization.FullTokenizer,
) -> InputFeatures:
    """Returns the features of an example, and logs the first few examples' features.

    Args:
      ex_index: The number of the example, from 0.
      example: One example. Its label is in `label_list`, perhaps as a text (1 for "1"), or None
        where it is unknown, for a `label_id` of 0.
      label_list: The labels, in the order of the model's outputs.
      max_seq_length: S, with [CLS] and [SEP].
      tokenizer: Anything with `tokenize` and `convert_tokens_to_ids`.

    Raises:
      ValueError: where a text is none, or the label is not in the list.
    """
    if isinstance(example, PaddingInputExample):
        zeros = [0] * max_seq_length
        return InputFeatures(zeros, zeros[:], zeros[:], 0, is_real_example=False)
    _check_texts(ex_index, example, max_seq_length)
    label_id = _label_id(ex_index, example, label_list)
    a = tokenizer.tokenize(example.text_a)
    b = tokenizer.tokenize(example.text_b) if example.text_b else []
    tokens, segment_ids = tokenization.pack(a, b, max_length=max_seq_length)
    ids = tokenizer.convert_tokens_to_ids(tokens)
    padding = [0] * (max_seq_length - len(ids))
    features = InputFeatures(
        [*ids, *padding], [1] * len(ids) + padding, [*segment_ids, *padding], label_id
    )
    if ex_index < _EXAMPLES_LOGGED:
        logger.info("*** Example ***")
        logger.info("guid: %s", example.guid)
        logger.info("tokens: %s", " ".join(tokens))
        for name in ENCODER_INPUTS:
            logger.info("%s: %s", name, " ".join(map(str, getattr(features, name))))
        logger.info("label: %s (id = %d)", example.label, label_id)
    return features


def _check_texts(ex_index: int, example: InputExample, max_seq_length: int) -> None:
    for name in ("text_a", "text_b"):
        text = getattr(example, name)
        if not isinstance(text, str | bytes) and not (name == "text_b" and text is None):
            raise ValueError(
                f"`{name}` of {_describe(ex_index, example)} must be text. Received {text!r}."
            )
    least = 5 if example.text_b else 3
    if max_seq_length < least:
        raise ValueError(
            f"`max_seq_length` must be at least {least}, to hold a token of each text and what "
            f"surrounds them. Received {max_seq_length}."
        )


def _describe(ex_index: int, example: InputExample) -> str:
    return f"example {ex_index}, counted from 0, with guid {example.guid!r},"


def _label_id(ex_index: int, example: InputExample, label_list: Collection[Any]) -> int:
    if example.label is None:
        return 0
    labels = list(label_list)
    names = list(map(str, labels))
    if len(set(names)) < len(names):
        raise ValueError(f"`label_list` must name each label once. Received {labels}.")
    if example.label in labels:
        return labels.index(example.label)
    if str(example.label) in names:
        return names.index(str(example.label))
    raise ValueError(
        f"The label of {_describe(ex_index, example)} must be one of {labels}. "
        f"Received {example.label!r}."
    )


def _convert(
    examples: Collection[Any],
    label_list: Collection[Any],
    max_seq_length: int,
    tokenizer: tokenization.FullTokenizer,
) -> Iterator[InputFeatures]:
    """Yields the features of each example, after checking that all or none have labels."""
    # A series of pandas may have another index: examples are iterated over, and never indexed.
    real = [
        (index, example)
        for index, example in enumerate(examples)
        if not isinstance(example, PaddingInputExample)
    ]
    unlabelled = [(index, example) for index, example in real if example.label is None]
    if 0 < len(unlabelled) < len(real):
        raise ValueError(
            f"All of `examples` must have a label, or none. Received {len(unlabelled)} of "
            f"{len(real)} without, the first is {_describe(*unlabelled[0])[:-1]}."
        )
    for index, example in enumerate(examples):
        if index % _EXAMPLES_PER_LINE == 0:
            logger.info("Writing example %d of %d", index, len(examples))
        yield convert_single_example(index, example, label_list, max_seq_length, tokenizer)


def convert_examples_to_features(
    examples: Collection[Any],
    label_list: Collection[Any],
    max_seq_length: int,
    tokenizer: tokenization.FullTokenizer,
) -> list[InputFeatures]:
    """Returns the features of each example, as `convert_single_example` gives them.

    Raises:
      ValueError: as `convert_single_example`, or where only some examples have labels.
    """
    return list(_convert(examples, label_list, max_seq_length, tokenizer))


def file_based_convert_examples_to_features(
    examples: Collection[Any],
    label_list: Collection[Any],
    max_seq_length: int,
    tokenizer: tokenization.FullTokenizer,
    output_file: str,
) -> None:
    """Writes the features of each example as a record, as run_classifier.py does.

    Args:
      examples: As in `convert_examples_to_features`, like the next three arguments.
      label_list: The labels.
      max_seq_length: S.
      tokenizer: The tokenizer.
      output_file: A TFRecord file, which appears when it is complete.
    """
    with write_records([output_file]) as (writer,):
        for features in _convert(examples, label_list, max_seq_length, tokenizer):
            values = {name: getattr(features, name) for name in ENCODER_INPUTS}
            values |= {
                "label_ids": [features.label_id],
                "is_real_example": [int(features.is_real_example)],
            }
            writer.write(encode_example(values))

"""Predicts with an exported SavedModel, as with the model that was exported."""

import contextlib
import errno
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from bert.export import saved_model
from bert.export.operations import read_graph
from bert.files.paths import without_wildcards
from bert.models.model import Between, Model, Queries, as_list, assume_frozen_weights
from bert.options import Message, Option, OptionError
from bert.tasks.examples import LISTS, InputRow, num_sequences, read_rows
from bert.tasks.swag import examples as swag_examples
from bert.tasks.tagging.tags import TagSet
from bert.tasks.tagging.windows import as_word

# The operation of TensorFlow Text in exports with its tokenizer.
_TEXT = "FastWordpieceTokenizeWithOffsets"
# TensorFlow's errors for files that are damaged or do not belong together.
_DAMAGES = (
    *(AttributeError, LookupError, OSError, RuntimeError, TypeError, ValueError),
    tf.errors.OpError,
)
# Errors of the machine, not of the files.
_REFUSALS = (tf.errors.PermissionDeniedError, tf.errors.ResourceExhaustedError)
_REFUSED = (errno.EACCES, errno.EPERM, errno.EMFILE, errno.ENFILE, errno.ENOMEM)

Answers = list[dict[str, Any]]


class ExportedModel(Model):
    """A SavedModel of a fine-tuned model, as `--do_export` writes it.

    Args:
      path: The folder of the SavedModel.
      batch_size: Sequences that go through the model together, unless a single input has more.
      option: The option that gave the path, for messages.
      runs: Whether to load the graph and run it once. Otherwise its files are only read, and the
        model has its fields and its kind, but answers nothing.

    Attributes:
      fields: Names of an input's values.
      answer_names: Names of the values of an answer.
      task: The model itself, whose graph computes the answers.

    Raises:
      OptionError: where the SavedModel is damaged, or not one of this project.
    """

    def __init__(
        self, path: str, batch_size: int = 32, option: str = "model", *, runs: bool = True
    ) -> None:
        self._batch_size = batch_size
        graph = read_graph(path, option)
        serve = graph.signature_def["serving_default"]
        found, given = sorted(serve.inputs), sorted(serve.outputs)
        kinds = [kind for kind in _KINDS if {*kind[0]} == {*found} and kind[1] in given]
        if not kinds:
            raise OptionError(
                option,
                _written_by_export("a SavedModel"),
                path,
                f"It takes {found} and gives {given}.",
            )
        [(self.fields, _, self.kind, self._decode)] = kinds
        self.task = self
        self.derive = swag_examples.derive if self.kind == "multiple_choice" else None
        self.answer_names: tuple[str, ...] = ()
        self.labels = []
        self.methods = ("predict",)
        if not runs:
            with _reporting_damage(path, option):
                _read_weights(path)
            return
        _import_operations(graph, path, option)
        with _reporting_damage(path, option):
            self._model = saved_model.load(path)
            self._describe()

    def _describe(self) -> None:
        """Runs the graph once: only its outputs show the values of an answer."""
        self._serve = self._model.signatures["serving_default"]
        # A graph computes in the type of its weights.
        for dtype in {variable.dtype for variable in self._serve.variables}:
            assume_frozen_weights(dtype.name)
        self.labels = self._constants("labels")
        scheme, task_type = self._constants("scheme"), self._constants("task_type")
        if self.labels and not (scheme or task_type):
            raise ValueError("it does not say what its labels are; export the model again")
        self.is_multi_label = task_type == ["multi_label"]
        tags = TagSet(labels=tuple(self.labels), scheme=scheme[0]) if scheme else None
        self.answers_with_words = tags is not None and tags.answers_with_words
        example = {name: ["a", "b"] if name in LISTS else "a" for name in self.fields}
        outputs = self._run([example])
        self.answer_names = tuple(self._decode(self, outputs, [example])[0])

    def _constants(self, name: str) -> list[str]:
        """Returns the texts of a signature without inputs, [] where there is none of that name."""
        if name not in self._model.signatures:
            return []
        return [text.decode() for text in self._model.signatures[name]()[name].numpy()]

    def predict(self, inputs: Queries, *, between: Between = lambda: None) -> Answers:
        # Blank endings count as absent, other than with a model that is not exported.
        rows = read_rows(as_list(inputs), self.fields)
        _check_endings(rows)
        answers: Answers = []
        for batch in _split(rows, self._batch_size):
            answers += self._decode(self, self._run(batch), batch)
            between()
        return answers

    def _run(self, rows: Sequence[InputRow]) -> dict[str, np.ndarray]:
        values = {}
        for name in self.fields:
            column = [row[name] for row in rows]
            if name in LISTS:
                column = tf.ragged.constant(column, tf.string).to_tensor("")
            values[name] = tf.constant(column, tf.string)
        return {name: output.numpy() for name, output in self._serve(**values).items()}


def _check_endings(rows: Sequence[InputRow]) -> None:
    """Checks endings, since an error of the graph would not name the input."""
    for number, row in enumerate(rows):
        endings = row.get("endings")
        if endings is not None and sum(bool(ending.strip()) for ending in endings) < 2:
            raise ValueError(
                f"Input {number}, counted from 0, must have at least two endings that are not "
                f"blank. Received {endings!r:.200}."
            )


def _split(rows: Sequence[InputRow], limit: int) -> Iterator[list[InputRow]]:
    """Yields batches of at most `limit` sequences with padding, or of a single row."""
    batch: list[InputRow] = []
    most = 0
    for row in rows:
        most = max(most, num_sequences(row))
        if batch and (len(batch) + 1) * most > limit:
            yield batch
            batch, most = [], num_sequences(row)
        batch.append(row)
    if batch:
        yield batch


@contextlib.contextmanager
def _reporting_damage(path: str, option: str) -> Iterator[None]:
    """Turns errors of files that are damaged, or of different models, into an `OptionError`."""
    try:
        yield
    except _DAMAGES as error:
        if _is_refusal(error):
            raise
        first_line = str(error).strip().partition("\n")[0]
        raise OptionError(
            option,
            _written_by_export("a complete SavedModel"),
            path,
            f"It cannot be used: {type(error).__name__}: {first_line:.200}",
        ) from error


def _written_by_export(noun: str) -> Message:
    return Message("be %s that %s has written", noun, Option("do_export", True))


def _is_refusal(error: BaseException) -> bool:
    """Returns whether an error is of the machine, such as too little memory, and not of files."""
    # The reader of weights raises errors of one class, which differ by their text.
    return (
        isinstance(error, _REFUSALS)
        or bool(getattr(error, "errno", None))
        or any(os.strerror(number) in str(error) for number in _REFUSED)
    )


def _read_weights(path: str) -> None:
    with without_wildcards(path) as folder:
        reader = tf.train.load_checkpoint(os.path.join(folder, "variables", "variables"))
        for name in reader.get_variable_to_shape_map():
            reader.get_tensor(name)


def _import_operations(graph: Any, path: str, option: str) -> None:
    """Imports TensorFlow Text for the graph of an export that has its tokenizer."""
    functions = graph.graph_def.library.function
    if all(node.op != _TEXT for function in functions for node in function.node_def):
        return
    try:
        import tensorflow_text  # type: ignore  # noqa: F401, PLC0415
    except ImportError:
        raise OptionError(
            option,
            "be a SavedModel whose operations TensorFlow has",
            path,
            f"It has {_TEXT!r}. This one needs TensorFlow Text: `pip install tensorflow-text`; or "
            "export the model again.",
        ) from None


def _read_classes(model: ExportedModel, outputs: Mapping[str, Any], _: Any) -> Answers:
    if "score" in outputs:
        return [{"score": float(score)} for score in outputs["score"]]
    answers = []
    for label, row in zip(outputs["label"], outputs["probabilities"].tolist(), strict=True):
        chances = {"probabilities": dict(zip(model.labels, row, strict=True))}
        if model.is_multi_label:
            chosen = [name for name, chance in chances["probabilities"].items() if chance > 0.5]
            answers.append({"labels": chosen, **chances})
        else:
            answers.append({"label": label.decode(), **chances})
    return answers


def _read_answers(_: ExportedModel, outputs: Mapping[str, Any], rows: Any) -> Answers:
    del rows
    found = zip(*(outputs[name] for name in ("answer", "start", "end", "score")), strict=True)
    return [
        {
            "answer": text.decode(),
            "start": None if start < 0 else int(start),
            "end": None if end < 0 else int(end),
            "score": float(score),
        }
        for text, start, end, score in found
    ]


def _read_tags(model: ExportedModel, outputs: Mapping[str, Any], rows: Any) -> Answers:
    del rows
    names = ("entity_type", "start", "end", "entity_text", "score")
    name, format_span = ("words", as_word) if model.answers_with_words else ("entities", dict)
    return [
        {
            name: [
                format_span(
                    {
                        "type": kind.decode(),
                        "start": int(start),
                        "end": int(end),
                        "text": text.decode(),
                        "score": float(score),
                    }
                )
                for kind, start, end, text, score in zip(
                    *(outputs[name][place][:count] for name in names), strict=True
                )
            ]
        }
        for place, count in enumerate(outputs["num_entities"])
    ]


def _read_choices(_: ExportedModel, outputs: Mapping[str, Any], rows: Any) -> Answers:
    return [
        {
            "label": int(outputs["label"][place]),
            "ending": outputs["ending"][place].decode().strip(),
            "probabilities": outputs["probabilities"][place][: len(row["endings"])].tolist(),
        }
        for place, row in enumerate(rows)
    ]


# The inputs of `serving_default` in order, one of its outputs, the kind of task, and the function
# that makes answers of the outputs.
_Decode = Callable[[ExportedModel, Mapping[str, Any], Any], Answers]
_KINDS: tuple[tuple[tuple[str, ...], str, str, _Decode], ...] = (
    (("text_a",), "logits", "classification", _read_classes),
    (("text_a", "text_b"), "logits", "classification", _read_classes),
    (("question", "context"), "answer", "question_answering", _read_answers),
    (("text",), "num_entities", "tagging", _read_tags),
    (("context", "endings"), "ending", "multiple_choice", _read_choices),
)

"""An exported SavedModel that answers as the model that it is made of, asked by its signature."""

import contextlib
import dataclasses
import errno
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from bert.commands.checks import is_checking
from bert.commands.frozen_weights import assume_frozen_weights
from bert.export.operations import read_graph
from bert.files.paths import find_file, paths_from
from bert.files.weight_names import SAVED_MODEL_FILE
from bert.tasks.swag import examples as swag_examples
from bert.tasks.tagging import entities as tagging_entities
from bert.tasks.tagging.predictions import as_word
from bert.tasks.tagging.windows import Task as TaggingTask
from bert.tasks.task import LISTS, Row, num_sequences, read_rows
from bert.weights.checkpoint import weight_files

# Where logarithms of probabilities of labels that exclude each other, and of those that do not, are
# the same.
_ROUNDING = 1e-6
# The smallest probability that is told.
_LEAST = float(np.finfo(np.float32).tiny)

# What TensorFlow raises for files that are damaged or do not belong together.
_DAMAGES = (
    *(AttributeError, LookupError, OSError, RuntimeError, TypeError, ValueError),
    tf.errors.OpError,
)
# What the machine refuses is none.
_REFUSALS = (tf.errors.PermissionDeniedError, tf.errors.ResourceExhaustedError)
_REFUSED = (errno.EACCES, errno.EPERM, errno.EMFILE, errno.ENFILE, errno.ENOMEM)

Answers = list[dict[str, Any]]


def is_export(path: str) -> bool:
    """Returns whether a folder is that of a SavedModel, and has no weights beside it.

    Weights are preferred: reading them runs nothing.
    """
    return find_file(path, [SAVED_MODEL_FILE]) is not None and not weight_files(path)


@dataclasses.dataclass(frozen=True)
class Export:
    """The folder of a SavedModel.

    Attributes:
      path: Where it is.
    """

    path: str

    @property
    def files(self) -> list[str]:
        """Its files."""
        folders = (self.path, os.path.join(self.path, "variables"))
        return [path for folder in folders for path in paths_from(os.path.join(folder, ""))]


class ExportedModel:
    """A SavedModel of a fine-tuned model, as `--do_export` writes it.

    With `--check`, its file is read and its graph is not run, so that only its inputs and its kind
    are known.

    Args:
      path: Its folder.
      batch_size: Sequences that go through the model together, where an input is not more.
      flag: The flag that gave the path, for messages.

    Attributes:
      fields: Names of an input's values.
      answer_names: Names of what an answer holds.
      task: Itself: what it decides is in its graph.

    Raises:
      ValueError: where it is not one of this project's.
    """

    def __init__(self, path: str, batch_size: int = 32, flag: str = "model") -> None:
        self._batch_size = batch_size
        serve = read_graph(path, flag).signature_def["serving_default"]
        found, given = sorted(serve.inputs), sorted(serve.outputs)
        kinds = [each for each in _KINDS if {*each[0]} == {*found} and each[1] in given]
        if not kinds:
            raise ValueError(
                f"`--{flag}` must be a SavedModel that `--do_export` has written. That in {path!r} "
                f"takes {found} and gives {given}."
            )
        [(self.fields, _, self.kind, self._decode)] = kinds
        self.task = self
        self.columns: Mapping[str, Any] = {}
        self.derive = swag_examples.derive if self.kind == "multiple_choice" else None
        self.answer_names: tuple[str, ...] = ()
        if is_checking():
            with _telling_damage(path, flag):
                _read_weights(path)
            return
        self._model = _load(path, flag)
        with _telling_damage(path, flag):
            self._describe()

    def _describe(self) -> None:
        """Runs the graph once, for what only its outputs say."""
        self._serve = self._model.signatures["serving_default"]
        # A graph computes in the type of its weights.
        for dtype in {each.dtype for each in self._serve.variables}:
            assume_frozen_weights(dtype.name)
        self.labels = self._tell("labels")
        self.tells_words = self.kind == "tagging" and _tells_words(
            self.labels, self._tell("scheme")
        )
        example = {name: ["a", "b"] if name in LISTS else "a" for name in self.fields}
        outputs = self._ask([example])
        self.is_multi_label = self.kind == "classification" and _is_multi_label(outputs)
        self.answer_names = tuple(self._decode(self, outputs, [example])[0])

    def _tell(self, name: str) -> list[str]:
        """Returns what a signature that takes nothing gives, [] where there is no such."""
        if name not in self._model.signatures:
            return []
        return [each.decode() for each in self._model.signatures[name]()[name].numpy()]

    def predict(
        self, inputs: Sequence[Any], *, between: Callable[[], None] = lambda: None
    ) -> Answers:
        """Returns an answer for each input, as `bert.models.loaded.LoadedModel.predict` does.

        Args:
          inputs: As there, but that blank endings count as absent.
          between: As there.

        Raises:
          ValueError: as there.
        """
        rows = read_rows(inputs, self.fields)
        _check_endings(rows)
        answers: Answers = []
        for batch in _cut(rows, self._batch_size):
            answers += self._decode(self, self._ask(batch), batch)
            between()
        return answers

    def _ask(self, rows: Sequence[Row]) -> dict[str, np.ndarray]:
        values = {}
        for name in self.fields:
            column = [row[name] for row in rows]
            if name in LISTS:
                column = tf.ragged.constant(column, tf.string).to_tensor("")
            values[name] = tf.constant(column, tf.string)
        return {name: each.numpy() for name, each in self._serve(**values).items()}


def _check_endings(rows: Sequence[Row]) -> None:
    """Checks what the graph would refuse without telling where."""
    for number, row in enumerate(rows):
        endings = row.get("endings")
        if endings is not None and sum(bool(each.strip()) for each in endings) < 2:
            raise ValueError(
                f"Input {number}, counted from 0, must have at least two endings that are not "
                f"blank. Received {endings!r:.200}."
            )


def _cut(rows: Sequence[Row], limit: int) -> Iterator[list[Row]]:
    """Yields batches of so many sequences at most, all rows having as many, or of a single row."""
    batch: list[Row] = []
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
def _telling_damage(path: str, flag: str) -> Iterator[None]:
    """Names the SavedModel where its files are damaged or belong to different ones."""
    try:
        yield
    except _DAMAGES as error:
        if _is_refusal(error):
            raise
        first_line = str(error).strip().partition("\n")[0]
        raise ValueError(
            f"`--{flag}` must be a complete SavedModel that `--do_export` has written. {path!r} "
            f"cannot be used: {type(error).__name__}: {first_line:.200}"
        ) from error


def _is_refusal(error: BaseException) -> bool:
    """Returns whether an error is of the machine, such as too little memory, and not of files."""
    # What reads weights has errors of no class, which only their text tells apart.
    return (
        isinstance(error, _REFUSALS)
        or bool(getattr(error, "errno", None))
        or any(os.strerror(number) in str(error) for number in _REFUSED)
    )


def _read_weights(path: str) -> None:
    reader = tf.train.load_checkpoint(os.path.join(path, "variables", "variables"))
    for name in reader.get_variable_to_shape_map():
        reader.get_tensor(name)


def _load(path: str, flag: str) -> Any:
    with _telling_damage(path, flag):
        try:
            return tf.saved_model.load(path)
        except RuntimeError as error:
            if "Op type not registered" not in str(error):
                raise
            unknown = str(error).partition(" in binary")[0]
    # Exports had a tokenizer of TensorFlow Text once.
    try:
        import tensorflow_text  # type: ignore  # noqa: F401, PLC0415
    except ImportError:
        raise ValueError(
            f"`--{flag}` must be a SavedModel of operations that are there. Received {path!r}: "
            f"{unknown}. Older exports need those of TensorFlow Text: `pip install "
            "tensorflow-text`; or export the model again."
        ) from None
    with _telling_damage(path, flag):
        return tf.saved_model.load(path)


def _tells_words(labels: Sequence[str], scheme: Sequence[str]) -> bool:
    """Returns whether a tagger answers with words."""
    if not scheme:
        # Older exports do not say it.
        return tagging_entities.OUTSIDE not in labels
    return TaggingTask(labels=tuple(labels), scheme=scheme[0]).tells_words


def _is_multi_label(outputs: Mapping[str, np.ndarray]) -> bool:
    """Returns whether the outputs are those of labels that do not exclude each other."""
    if "probabilities" not in outputs:
        return False
    logits = outputs["logits"].astype(np.float64)  # [B, C]
    raised = np.exp(logits - logits.max(axis=-1, keepdims=True))
    exclusive = raised / raised.sum(axis=-1, keepdims=True)
    independent = 1 / (1 + np.exp(-logits))
    # Where one label is certain, only of what size the small ones are tells them apart.
    told = _log(outputs["probabilities"])
    others = [np.abs(told - _log(each)).max() for each in (independent, exclusive)]
    if max(others) < _ROUNDING:
        # None is above one half, so that none is chosen, but one of those that exclude each other.
        return bool((outputs["label"] == b"").all())
    return bool(others[0] < others[1])


def _log(probabilities: np.ndarray) -> np.ndarray:
    return np.log(np.maximum(probabilities, _LEAST, dtype=np.float64))


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
    name, tell = ("words", as_word) if model.tells_words else ("entities", dict)
    return [
        {
            name: [
                tell(
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
            "ending": outputs["ending"][place].decode(),
            "probabilities": outputs["probabilities"][place][: len(row["endings"])].tolist(),
        }
        for place, row in enumerate(rows)
    ]


# The inputs of `serving_default`, in order, one of its outputs, the kind of task, and what reads
# the outputs.
_Decode = Callable[[ExportedModel, Mapping[str, Any], Any], Answers]
_KINDS: tuple[tuple[tuple[str, ...], str, str, _Decode], ...] = (
    (("text_a",), "logits", "classification", _read_classes),
    (("text_a", "text_b"), "logits", "classification", _read_classes),
    (("question", "context"), "answer", "question_answering", _read_answers),
    (("text",), "num_entities", "tagging", _read_tags),
    (("context", "endings"), "ending", "multiple_choice", _read_choices),
)

"""Fine-tuned models: which task one has, whatever program has trained it, and its predictions.

A training run of this project writes the task to `task.json`. A folder of transformers has most of
it in `config.json`. A folder of the original does not describe it, so that options must.
"""

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import keras
import numpy as np
import tensorflow as tf

import modeling
import tokenization
from bert.export.formats import Runtime
from bert.files.stored_models import TASK_FILE
from bert.log import logger
from bert.models.answering import AnsweringModel
from bert.models.options import OVERRIDES, Overrides
from bert.models.vectors import Encoding, find_encoder
from bert.network.blank import blank_variables
from bert.network.kernels import infer
from bert.options import Message, MessageError, Option, OptionError, joined
from bert.tasks.answering import AnsweringTask, stored_field
from bert.tasks.examples import Arrays
from bert.weights import model_files
from bert.weights.folder import ModelFolder
from bert.weights.options import ARCHITECTURES, FINE_TUNED
from bert.weights.provenance import find_untrained
from bert.weights.variables import check_length

if TYPE_CHECKING:
    from bert.tasks.classification.examples import ClassificationTask

# The head of a classifier, of a tagger, and of a model of multiple choice.
_HEAD = "output_weights"

# The options that may override a `task.json`, since the weights do not depend on them.
_OF_ANSWERS = ("version_2_with_negative", "null_score_diff_threshold")
_OF_FILES = ("bert_config_file", "vocab_file", "do_lower_case")

# The fewest tokens of a sequence, with one text and with two.
_LEAST, _LEAST_OF_PAIRS = 3, 5

# The options of a model without `task.json`, by its class.
_OF_KIND = {
    "BertForSequenceClassification": ("task_name", "labels", "is_pair"),
    "BertForTokenClassification": ("labels",),
}


def open_task(
    stored: Mapping[str, Any], config: modeling.BertConfig, tokenizer: tokenization.FullTokenizer
) -> AnsweringTask:
    """Returns the task of a `task.json`; only the modules of its kind are loaded."""
    kind, model = stored["kind"], (stored, config, tokenizer)
    if kind == "classification":
        from bert.tasks.classification.text_classifier import TextClassifier  # noqa: PLC0415

        return TextClassifier.from_stored(*model)
    if kind == "question_answering":
        from bert.tasks.squad.question_answerer import QuestionAnswerer  # noqa: PLC0415

        return QuestionAnswerer.from_stored(*model)
    if kind == "tagging" and stored.get("feature_based"):
        from bert.tasks.tagging.feature_tagger import FeatureTextTagger  # noqa: PLC0415

        return FeatureTextTagger.from_stored(*model)
    if kind == "tagging":
        from bert.tasks.tagging.text_tagger import TextTagger  # noqa: PLC0415

        return TextTagger.from_stored(*model)
    if kind == "multiple_choice":
        from bert.tasks.swag.ending_chooser import EndingChooser  # noqa: PLC0415

        return EndingChooser.from_stored(*model)
    raise ValueError(f"`kind` in {TASK_FILE} must be that of a task. Received {kind!r}.")


def find_architecture(folder: ModelFolder, given: str | None = None) -> str:
    """Returns the class of a model, one of `bert.weights.options.ARCHITECTURES`.

    Args:
      folder: The folder of the model.
      given: The option `architecture`; None to decide by the files, or else by the heads.

    Raises:
      OptionError: where the folder lacks the head of that class.
    """
    shapes = folder.stored.shapes
    heads = [*shapes.keys() - find_untrained(folder.stored.folder, shapes)]
    listed = folder.huggingface_config.get("architectures")
    named = listed[0] if isinstance(listed, list) and listed else None
    # Version 2 of transformers lists classes of TensorFlow, too.
    named = named.removeprefix("TF") if isinstance(named, str) else None
    architecture = given or FINE_TUNED.get(folder.task.get("kind", ""))
    if architecture is None and named in ARCHITECTURES:
        # An encoder alone is often beside the configuration of the model that it was part of.
        is_there = named in FINE_TUNED.values() or set(ARCHITECTURES[named]).issubset(heads)
        architecture = named if is_there else None
    if architecture is None:
        architecture = model_files.architecture_of(heads)
        if _HEAD in shapes:
            _warn(
                folder,
                "No file says what the head `output_weights` is for: a classifier is assumed. "
                "Otherwise give %s.",
                Option("architecture"),
            )
    if missing := [name for name in ARCHITECTURES[architecture] if name not in heads]:
        file = TASK_FILE if folder.task else "config.json"
        raise OptionError(
            "architecture",
            "be a class whose head the model has",
            architecture if given else Message("%r, as %s says", architecture, file),
            f"It needs {missing}, which {folder.stored.path!r} lacks or has not trained. By its "
            f"heads, the model is a {model_files.architecture_of(heads)}.",
        )
    return architecture


def _warn(folder: ModelFolder, text: str, *values: Any) -> None:
    """Logs a warning, once however often the folder is read."""
    if text not in folder.warned_of:
        folder.warned_of.add(text)
        logger.warning(text, *values)


def num_labels(folder: ModelFolder) -> int:
    """Returns the number of outputs of a classifier or tagger."""
    return int(folder.stored.shapes.get(_HEAD, [2])[0])


def labels_of(folder: ModelFolder) -> list[str]:
    """Returns the names of the outputs, by default the names of transformers."""
    return folder.labels or [f"LABEL_{number}" for number in range(num_labels(folder))]


def read_task(folder: ModelFolder, overrides: Overrides) -> dict[str, Any]:
    """Returns the `task.json` of a fine-tuned model, or makes one where the folder has none.

    Raises:
      ValueError: where the model is only pre-trained, or neither files nor options describe its
        task.
    """
    if overrides.max_seq_length is not None:
        check_length(overrides.max_seq_length, folder.config)
    if folder.task:
        check_no_overrides(folder, overrides, but=("max_seq_length", *_OF_ANSWERS))
        length = overrides.max_seq_length
        task = {**folder.task, **({} if length is None else {"max_seq_length": length})}
        return override_answers(folder, task, overrides)
    folder.stored.check_fit(folder.config)
    architecture = find_architecture(folder, overrides.architecture)
    if architecture not in FINE_TUNED.values():
        return folder.read_task()
    _check_complete(folder, architecture, overrides)
    return make_task(folder, architecture, overrides)


def make_task(folder: ModelFolder, architecture: str, overrides: Overrides) -> dict[str, Any]:
    """Returns a `task.json` for a folder without one; {} where the task is unknown.

    Args:
      folder: The folder of the model, with vocabulary and casing.
      architecture: The class of the model.
      overrides: Options in place of what the folder says.

    Raises:
      OptionError: where an option does not fit the model.
    """
    _check_used(folder, architecture, overrides)
    task = _make_task(folder, architecture, overrides)
    _warn_of_assumptions(folder, architecture, overrides)
    return override_answers(folder, task, overrides)


def _make_task(folder: ModelFolder, architecture: str, overrides: Overrides) -> dict[str, Any]:
    limit = folder.config.max_position_embeddings
    # Special tokens are checked where the model is opened.
    model = (folder.config, folder.load_tokenizer(()), overrides.max_seq_length or limit)
    if architecture == "BertForMultipleChoice":
        from bert.tasks.swag.ending_chooser import EndingChooser  # noqa: PLC0415

        return EndingChooser(*model).stored()
    if architecture == "BertForQuestionAnswering":
        from bert.tasks.squad.options import DecodingOptions  # noqa: PLC0415
        from bert.tasks.squad.question_answerer import QuestionAnswerer  # noqa: PLC0415

        # The defaults of run_squad.py.
        lengths = (overrides.max_seq_length or min(limit, 384), 128, 64)
        return QuestionAnswerer(*model[:2], *lengths, DecodingOptions()).stored()
    if architecture == "BertForSequenceClassification":
        from bert.tasks.classification.text_classifier import TextClassifier  # noqa: PLC0415

        return TextClassifier(*model, _find_classes(folder, overrides)).stored()
    labels = overrides.label_names or folder.labels
    if architecture != "BertForTokenClassification" or not labels:
        return {}
    _check_outputs(folder, len(labels), labels)
    from bert.tasks.tagging.tags import TagSet, find_scheme  # noqa: PLC0415
    from bert.tasks.tagging.text_tagger import TextTagger  # noqa: PLC0415

    tag_set = TagSet(labels=tuple(labels), scheme=find_scheme(labels))
    return TextTagger(*model, tag_set).stored()


def _check_used(folder: ModelFolder, architecture: str, overrides: Overrides) -> None:
    """Checks that no option is given that a model of this class ignores."""
    used = _OF_KIND.get(architecture, ())
    unused = {"task_name", "labels", "is_pair"} - {*used}
    overrides.check_absent(sorted(unused), f"for a {architecture}", folder.path)
    if overrides.task_name:
        where = Message("beside %s, which sets it", Option("task_name", overrides.task_name))
        overrides.check_absent(("labels", "is_pair"), where, folder.path)


def _warn_of_assumptions(folder: ModelFolder, architecture: str, overrides: Overrides) -> None:
    """Warns of assumptions where neither files nor options say."""
    is_open = overrides.is_pair is None and not overrides.task_name
    if architecture == "BertForSequenceClassification" and is_open:
        _warn(
            folder,
            "Nothing says whether %s takes one text or two: one is assumed. For pairs of texts, "
            "give %s.",
            folder.stored.path,
            Option("is_pair", True),
        )
    if architecture == "BertForQuestionAnswering" and overrides.version_2_with_negative is None:
        _warn(
            folder,
            "Nothing says whether %s may find that a question has no answer: an answer to each is "
            "assumed. For a model of SQuAD 2.0, give %s.",
            folder.stored.path,
            Option("version_2_with_negative", True),
        )


def override_answers(
    folder: ModelFolder, task: Mapping[str, Any], overrides: Overrides
) -> dict[str, Any]:
    """Returns a `task.json` with the options about questions without an answer.

    Args:
      folder: The folder of the model.
      task: The `task.json` so far.
      overrides: The options.

    Raises:
      OptionError: where the model answers no questions, or a threshold would be ignored.
    """
    values = {name: getattr(overrides, name) for name in _OF_ANSWERS}
    given = {name: value for name, value in values.items() if value is not None}
    if task.get("kind") != "question_answering":
        where = "for a model that answers no questions"
        overrides.check_absent(_OF_ANSWERS, where, folder.path)
    found = {**task, **given}
    if "null_score_diff_threshold" in given and not found.get("version_2_with_negative"):
        raise MessageError(
            "%s needs %s for a model that gives an answer to each question. Received %r for %r.",
            Option("null_score_diff_threshold"),
            Option("version_2_with_negative", True),
            given["null_score_diff_threshold"],
            folder.path,
        )
    return found


def _find_classes(folder: ModelFolder, overrides: Overrides) -> "ClassificationTask":
    from bert.tasks.classification import examples  # noqa: PLC0415

    if overrides.task_name:
        task = examples.open_data_set(overrides.task_name, "").task
        _check_outputs(folder, task.num_outputs, task.labels)
        folder.check_labels(task.labels)
        return task
    task_type = model_files.read_task_type(folder.huggingface_config)
    if task_type is None:
        task_type = "classification" if num_labels(folder) > 1 else "regression"
    is_regression = task_type == "regression"
    if is_regression:
        if num_labels(folder) != 1:
            raise ValueError(
                f"A regression must have one output. {folder.path!r} has {num_labels(folder)}, and "
                "the `problem_type` 'regression'."
            )
        overrides.check_absent(
            ("labels",), "for a regression, whose output is a number", folder.path
        )
    labels = () if is_regression else overrides.label_names or labels_of(folder)
    task = examples.ClassificationTask(
        name="custom",
        task_type=task_type,
        labels=tuple(labels),
        is_pair=bool(overrides.is_pair),
        metric="pearson" if is_regression else "accuracy",
    )
    _check_outputs(folder, task.num_outputs, task.labels)
    return task


def _check_outputs(folder: ModelFolder, num_outputs: int, labels: Sequence[str]) -> None:
    if num_outputs != num_labels(folder):
        raise OptionError(
            "labels",
            f"name each of the model's {num_labels(folder)} outputs, in their order",
            Message("%s for %r", [*labels], folder.stored.path),
        )


def check_no_overrides(folder: ModelFolder, overrides: Overrides, but: tuple[str, ...]) -> None:
    """Checks that no option is given that would be ignored.

    Args:
      folder: The folder of a model that has a `task.json`, or is only pre-trained.
      overrides: The options.
      but: Names of the options that may be given.

    Raises:
      OptionError: naming the first option that may not.
    """
    kind = f"whose {TASK_FILE} has its task" if folder.task else "that is only pre-trained"
    names = [name for name in OVERRIDES if name not in (*_OF_FILES, *but)]
    overrides.check_absent(names, f"for a model {kind}", folder.path)


def _check_complete(folder: ModelFolder, architecture: str, overrides: Overrides) -> None:
    """Checks that files and options describe the task; one message names all that is missing."""
    missing: list[Message] = []
    if folder.do_lower_case is None:
        missing.append(
            Message(
                "%s (true for an uncased model, false for a cased one)", Option("do_lower_case")
            )
        )
    has_labels = _HEAD in folder.stored.shapes and architecture != "BertForMultipleChoice"
    is_named = folder.labels or overrides.label_names or overrides.task_name
    if has_labels and num_labels(folder) > 1 and not is_named:
        from bert.tasks.classification.examples import TASK_NAMES  # noqa: PLC0415

        missing.append(
            Message(
                "%s, %d names in the order of the outputs, such as %s, with %s for pairs of "
                "texts; or %s for a task of GLUE (%s)",
                Option("labels"),
                num_labels(folder),
                Option("labels", "no,yes"),
                Option("is_pair", True),
                Option("task_name"),
                ", ".join(TASK_NAMES),
            )
        )
    if missing:
        raise MessageError(
            "%s must be the %s of a fine-tuning script, or options must say what it does not. %r "
            "has no %s, but by its head it is a %s. Give %s.",
            Option(folder.option),
            Option("output_dir"),
            folder.path,
            TASK_FILE,
            architecture,
            joined(missing, "; and "),
        )


class LoadedModel(Encoding, AnsweringModel):
    """A fine-tuned model, which predicts.

    Args:
      task: The task of the model.
      model: The Keras model from tokens, with its weights.
      batch_size: Maximum sequences that go through the model together.
      max_seq_length: Maximum tokens of a text for `encode`; None for as many as the model takes.
        For answers, the task has its own limit.

    Attributes:
      model: As given, a Keras model of `input_ids`, `input_mask` and `segment_ids`.
    """

    def __init__(
        self,
        task: AnsweringTask,
        model: keras.Model,
        batch_size: int = 32,
        max_seq_length: int | None = None,
    ) -> None:
        ranks = {name: len(tensor.shape) for name, tensor in model.input.items()}
        signature = {
            name: tf.TensorSpec([None] * rank, tf.int32, name=name) for name, rank in ranks.items()
        }
        graph = tf.function(
            lambda batch: infer(model, batch), input_signature=[signature], autograph=False
        )

        def run(batch: Arrays) -> dict[str, np.ndarray]:
            return {name: values.numpy() for name, values in graph(batch).items()}

        super().__init__(task, Runtime(run, ranks), batch_size)
        self.max_seq_length = max_seq_length
        self.model = model
        self.methods += ("encode", "inputs") if find_encoder(model) else ()


def open_stored_task(folder: ModelFolder, stored: Mapping[str, Any]) -> AnsweringTask:
    """Returns the task of a `task.json`, checked against the rest of its folder.

    Args:
      folder: The folder of the model.
      stored: The contents of the file, with options in place of values, as `read_task`.

    Raises:
      ValueError: where files are missing or malformed, or an option does not fit them.
    """
    kind = stored.get("kind")
    path = os.path.join(folder.path, TASK_FILE)
    if kind not in FINE_TUNED:
        raise ValueError(f"`kind` in {path!r} must be one of {sorted(FINE_TUNED)}. It is {kind!r}.")
    # An option may name this file, which then is not the folder's.
    config = folder.config
    try:
        stored_field(stored, "do_lower_case", bool)
        check_length(stored_field(stored, "max_seq_length", int), config)
        task = open_task(stored, config, folder.load_tokenizer())
        least = _LEAST_OF_PAIRS if len(task.fields) == 2 else _LEAST
        if stored["max_seq_length"] < least:
            raise OptionError("max_seq_length", f"be at least {least}", stored["max_seq_length"])
        return task
    except ValueError as error:
        length = folder.task.get("max_seq_length")
        if folder.task and length in (None, stored.get("max_seq_length")):
            raise ValueError(f"{path!r} must be as a training run writes it: {error}") from error
        if folder.task:
            # The length is an option, which has no error where the file itself has one.
            open_stored_task(folder, {**stored, "max_seq_length": length})
        raise


def open_fine_tuned(
    folder: ModelFolder, overrides: Overrides, *, batch_size: int = 32, precision: str = "float32"
) -> LoadedModel:
    """Returns the fine-tuned model of a folder.

    Args:
      folder: The folder of the model.
      overrides: Options in place of what the folder says.
      batch_size: Maximum sequences that go through the model together.
      precision: Name of a dtype policy.

    Raises:
      ValueError: where files are missing or malformed.
    """
    stored = read_task(folder, overrides)
    weights = folder.stored
    task = open_stored_task(folder, stored)
    with blank_variables() as blank:
        model = task.whole_model(task.make_model(precision))
    blank.fill(but=weights.assign(model.weights, with_head=True))
    loaded = LoadedModel(task, model, batch_size, overrides.max_seq_length)
    loaded.text_vectors = folder.text_vectors
    return loaded

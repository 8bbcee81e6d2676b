"""What a fine-tuned model decides, whoever has trained it.

The folder of a run of this project says it in `task.json`. One of transformers says most of it in
`config.json`; one that the original has left says nothing, so that it is told with flags.
"""

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from absl import logging

import modeling
import tokenization
from bert.files import huggingface as huggingface_files
from bert.files.huggingface import ARCHITECTURES, FINE_TUNED
from bert.pretraining.goals import find_untrained
from bert.tasks.classification import examples as classification_examples
from bert.tasks.classification import glue
from bert.tasks.classification.task import Classification
from bert.tasks.squad.answers import Decoding
from bert.tasks.squad.task import QuestionAnswering
from bert.tasks.swag.task import MultipleChoice
from bert.tasks.tagging import entities as tagging_entities
from bert.tasks.tagging import task as tagging_task
from bert.tasks.tagging import windows as tagging_windows
from bert.tasks.task import Task
from bert.weights import huggingface
from bert.weights.folder import ModelFolder
from bert.weights.model_files import TASK_FILE

# By the `kind` in `task.json`, what makes a task of it.
KINDS: Mapping[
    str, Callable[[Mapping[str, Any], modeling.BertConfig, tokenization.FullTokenizer], Task]
] = {
    "classification": Classification.from_stored,
    "question_answering": QuestionAnswering.from_stored,
    "tagging": tagging_task.from_stored,
    "multiple_choice": MultipleChoice.from_stored,
}

# The head of a classifier, of a tagger, and of what chooses.
_HEAD = "output_weights"

# Fields of `Told`: what may be told of a model that brings its `task.json`, too, for the weights
# do not depend on it.
_ASKED_FOR: Mapping[str, type] = {
    "version_2_with_negative": bool,
    "null_score_diff_threshold": float,
}

# Other fields of `Told`: what may be told of a model of which kind.
_TOLD_OF = {
    "BertForSequenceClassification": ("task_name", "labels", "is_pair"),
    "BertForTokenClassification": ("labels",),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Told:
    """What a folder may not say of its model; each field has the name of a flag.

    Attributes:
      architecture: What the model is, in the terms of transformers.
      task_name: A task of GLUE, or XNLI, whose labels and number of texts it has.
      labels: Names of the outputs in their order, in a sequence or separated by commas.
      is_pair: Whether a classifier takes two texts.
      max_seq_length: Where texts are cut, in tokens, with specials.
      version_2_with_negative: Whether a question may have no answer, as in SQuAD 2.0.
      null_score_diff_threshold: By how much that there is none must score higher than the best
        answer to be said.
    """

    architecture: str | None = None
    task_name: str | None = None
    labels: str | Sequence[str] | None = None
    is_pair: bool | None = None
    max_seq_length: int | None = None
    version_2_with_negative: bool | None = None
    null_score_diff_threshold: float | None = None

    @property
    def names(self) -> list[str]:
        """The labels."""
        labels = self.labels.split(",") if isinstance(self.labels, str) else self.labels or ()
        return [label.strip() for label in labels]


def find_architecture(folder: ModelFolder, given: str | None = None) -> str:
    """Returns what the model is, one of `bert.files.huggingface.ARCHITECTURES`.

    Args:
      folder: That of the model.
      given: What --architecture says; None for what its files say, or else by its heads.

    Raises:
      ValueError: where its head is not there.
    """
    shapes = folder.stored.shapes
    heads = [*shapes.keys() - find_untrained(folder.stored.folder, shapes)]
    listed = folder.huggingface_config.get("architectures")
    named = listed[0] if isinstance(listed, list) and listed else None
    architecture = given or FINE_TUNED.get(folder.task.get("kind", ""))
    if architecture is None and isinstance(named, str) and named in ARCHITECTURES:
        architecture = named
    if architecture is None:
        architecture = huggingface.architecture_of(heads)
        if _HEAD in shapes:
            logging.warning(
                "Nothing says what the head `output_weights` is for, so it is taken for a "
                "classifier's; else give --architecture."
            )
    if missing := [n for n in ARCHITECTURES[architecture] if n not in heads]:
        raise ValueError(
            f"`--architecture` must be one whose head is there. {architecture} needs {missing}, "
            f"which {folder.stored.path!r} lacks or has not trained. By its heads, it is "
            f"{huggingface.architecture_of(heads)}."
        )
    return architecture


def num_labels(folder: ModelFolder) -> int:
    """Returns the number of outputs of a classifier or tagger."""
    return int(folder.stored.shapes.get(_HEAD, [2])[0])


def labels_of(folder: ModelFolder) -> list[str]:
    """Returns names of the outputs, those that transformers gives where nobody has named them."""
    return folder.labels or [f"LABEL_{number}" for number in range(num_labels(folder))]


def make_task(folder: ModelFolder, architecture: str, told: Told) -> dict[str, Any]:
    """Returns a `task.json` for a model that brings none, or {} where it decides nothing known.

    Args:
      folder: That of the model, with vocabulary and casing.
      architecture: What it is.
      told: What the folder does not say.

    Raises:
      ValueError: where what is told does not fit the model.
    """
    _check_use(folder, architecture, told)
    task = _make_task(folder, architecture, told)
    _warn_of_guesses(folder, architecture, told)
    return tell_decoding(folder, task, told)


def _make_task(folder: ModelFolder, architecture: str, told: Told) -> dict[str, Any]:
    limit = folder.config.max_position_embeddings
    # Whether it can be asked is looked at where it is.
    model = (folder.config, folder.load_tokenizer(()), told.max_seq_length or limit)
    if architecture == "BertForMultipleChoice":
        return MultipleChoice(*model).stored()
    if architecture == "BertForQuestionAnswering":
        # As run_squad.py's flags are by default.
        decoding = Decoding(do_lower_case=model[1].basic_tokenizer.do_lower_case)
        lengths = (told.max_seq_length or min(limit, 384), 128, 64)
        return QuestionAnswering(*model[:2], *lengths, decoding).stored()
    if architecture == "BertForSequenceClassification":
        return Classification(*model, _classes(folder, told)).stored()
    labels = told.names or folder.labels
    if architecture != "BertForTokenClassification" or not labels:
        return {}
    scheme = tagging_entities.find_scheme(labels)
    task = tagging_windows.Task(labels=tuple(labels), scheme=scheme)
    return tagging_task.Tagging(*model, task).stored()


def _check_use(folder: ModelFolder, architecture: str, told: Told) -> None:
    """Checks that nothing is told that a model of this kind has no use for."""
    given = [name for name in ("task_name", "labels", "is_pair") if getattr(told, name) is not None]
    for name in given:
        if name not in _TOLD_OF.get(architecture, ()):
            what = f"for a {architecture}"
        elif "task_name" in given and name != "task_name":
            what = f"beside `--task_name={told.task_name}`, which sets it"
        else:
            continue
        raise ValueError(
            f"`--{name}` must not be given {what}. Received {getattr(told, name)!r} for "
            f"{folder.path!r}."
        )


def _warn_of_guesses(folder: ModelFolder, architecture: str, told: Told) -> None:
    """Warns of what no file says where nobody has told it."""
    is_open = told.is_pair is None and not told.task_name
    if architecture == "BertForSequenceClassification" and is_open:
        logging.warning(
            "Nothing says whether %s takes one text or two: it is taken to take one. For pairs of "
            "texts, give --is_pair.",
            folder.stored.path,
        )
    if architecture == "BertForQuestionAnswering" and told.version_2_with_negative is None:
        logging.warning(
            "Nothing says whether %s may find that a question has no answer: it is taken to give "
            "one to each. For a model of SQuAD 2.0, give --version_2_with_negative.",
            folder.stored.path,
        )


def tell_decoding(folder: ModelFolder, task: Mapping[str, Any], told: Told) -> dict[str, Any]:
    """Returns a `task.json` with what is told of questions without an answer.

    Args:
      folder: That of the model.
      task: What is known of it.
      told: What counts in place of that.

    Raises:
      ValueError: where it answers no questions, or a threshold would be without effect.
    """
    given = {
        name: kind(getattr(told, name))
        for name, kind in _ASKED_FOR.items()
        if getattr(told, name) is not None
    }
    if given and task.get("kind") != QuestionAnswering.kind:
        name, value = next(iter(given.items()))
        raise ValueError(
            f"`--{name}` must not be given for a model that answers no questions. Received "
            f"{value!r} for {folder.path!r}."
        )
    found = {**task, **given}
    if "null_score_diff_threshold" in given and not found.get("version_2_with_negative"):
        raise ValueError(
            "`--null_score_diff_threshold` needs `--version_2_with_negative` for a model that "
            "gives an answer to each question. Received "
            f"{given['null_score_diff_threshold']!r} for {folder.path!r}."
        )
    return found


def _classes(folder: ModelFolder, told: Told) -> classification_examples.Task:
    if told.task_name:
        task = _check_outputs(folder, glue.open_data_set(told.task_name, "").task)
        folder.check_labels(task.labels)
        return task
    task_type = huggingface_files.task_type(folder.huggingface_config)
    if task_type is None:
        task_type = "classification" if num_labels(folder) > 1 else "regression"
    is_regression = task_type == "regression"
    task = classification_examples.Task(
        name="custom",
        task_type=task_type,
        labels=() if is_regression else tuple(told.names or labels_of(folder)),
        is_pair=bool(told.is_pair),
        metric="pearson" if is_regression else "accuracy",
    )
    return _check_outputs(folder, task)


def _check_outputs(
    folder: ModelFolder, task: classification_examples.Task
) -> classification_examples.Task:
    if task.num_outputs != num_labels(folder):
        raise ValueError(
            f"`--labels` must name each of the model's {num_labels(folder)} outputs, in their "
            f"order. Received {list(task.labels)} for {folder.stored.path!r}."
        )
    return task


def read_task(folder: ModelFolder, told: Told) -> dict[str, Any]:
    """Returns the `task.json` of a fine-tuned model, made of what is known where there is none.

    Raises:
      ValueError: where the model decides nothing, or what it decides is neither there nor told.
    """
    if folder.task:
        check_untold(folder, told, but=("max_seq_length", *_ASKED_FOR))
        length = told.max_seq_length
        task = {**folder.task, **({} if length is None else {"max_seq_length": length})}
        return tell_decoding(folder, task, told)
    folder.stored.check_fit(folder.config)
    architecture = find_architecture(folder, told.architecture)
    if architecture not in FINE_TUNED.values():
        return folder.read_task()
    _check_told(folder, architecture, told)
    return make_task(folder, architecture, told)


def check_untold(folder: ModelFolder, told: Told, but: Collection[str]) -> None:
    """Checks that nothing is told that would be without effect.

    Args:
      folder: That of a model of which it is known what it decides, or that it decides nothing.
      told: What is told of it.
      but: Names of what may be told.

    Raises:
      ValueError: naming the first thing that may not.
    """
    kind = f"whose {TASK_FILE} says what it decides" if folder.task else "that is only pre-trained"
    for field in dataclasses.fields(Told):
        if field.name not in but and getattr(told, field.name) is not None:
            raise ValueError(
                f"`--{field.name}` must not be given for a model {kind}. Received "
                f"{getattr(told, field.name)!r} for {folder.path!r}."
            )


def _check_told(folder: ModelFolder, architecture: str, told: Told) -> None:
    """Checks that what nothing in the folder says is told, all of it in one message."""
    missing = []
    if folder.do_lower_case is None:
        missing.append("--do_lower_case (true for an uncased model, false for a cased one)")
    has_labels = _HEAD in folder.stored.shapes and architecture != "BertForMultipleChoice"
    is_named = folder.labels or told.names or told.task_name
    if has_labels and num_labels(folder) > 1 and not is_named:
        missing.append(
            f"--labels, {num_labels(folder)} names in the order of the outputs, such as "
            "--labels=no,yes, with --is_pair for pairs of texts; or --task_name for a task of "
            f"GLUE ({', '.join(glue.TASK_NAMES)})"
        )
    if missing:
        raise ValueError(
            f"`--{folder.option}` must be the `--output_dir` of a fine-tuning script, or what it "
            f"does not say must be told. {folder.path!r} has no {TASK_FILE}, but by its head it is "
            f"a {architecture}. Give {'; and '.join(missing)}."
        )

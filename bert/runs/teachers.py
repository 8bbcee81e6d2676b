"""Opens the teacher of a run and gives it to the task of the student."""

import functools
import os
from typing import Any, TypeVar

from bert.files.process import same_random_state
from bert.models.fine_tuned import LoadedModel, open_fine_tuned
from bert.models.open import find_folder
from bert.models.options import NO_OVERRIDES
from bert.models.vectors import find_encoder
from bert.options import MessageError, Option, OptionError
from bert.tasks import distillation
from bert.tasks.distillation import Layers
from bert.tasks.options import Teacher
from bert.training.options import check_length
from bert.weights.checkpoint import describe_weights
from modeling import BertConfig

TaskType = TypeVar("TaskType", bound=Any)


def teach(
    task: TaskType, options: Teacher, output_dir: str, batch_size: int, *, fetches: bool = True
) -> TaskType:
    """Returns the task of a student with the teacher that the options name.

    Args:
      task: The task of the student.
      options: The options of the teacher.
      output_dir: The folder of the student.
      batch_size: The number of examples in a prediction step of the teacher.
      fetches: Whether a teacher of the hub that is not in the local cache is fetched.

    Raises:
      ValueError: where the teacher has another task, or its layers cannot be learned.
    """
    assert options.teacher
    if os.path.realpath(options.teacher) == os.path.realpath(output_dir):
        raise MessageError(
            "%s must not be the %s, in which the student is trained. Received %r for both.",
            *(Option("teacher"), Option("output_dir"), options.teacher),
        )
    folder = find_folder(options.teacher, "teacher", NO_OVERRIDES, fetches=fetches)
    described = describe_weights(folder.stored) or {}
    # Loading the teacher must not change the initial weights of the student.
    with same_random_state():
        model = _load_teacher(folder.path, batch_size, described["sha256"])
    if model.task.kind != task.kind:
        ours, theirs = (kind.replace("_", " ") for kind in (task.kind, model.task.kind))
        raise OptionError(
            "teacher",
            f"be a model of {ours}",
            remedy=f"The one in {options.teacher!r} is one of {theirs}.",
        )
    layers = _open_layers(options, model, task, task.config)
    taught: TaskType = task.with_teacher(model, layers, options)
    return taught


def _open_layers(
    options: Teacher, model: LoadedModel, task: Any, config: BertConfig
) -> Layers | None:
    """Returns the layers of the teacher that the student learns; None for none."""
    if options.distill_layers is None:
        return None
    path = options.teacher or ""
    encoder = find_encoder(model.model)
    if encoder is None:
        raise MessageError(
            "%s needs a %s with layers. The one in %r has word vectors alone.",
            *(Option("distill_layers"), Option("teacher"), path),
        )
    distillation.check_same_tokenizer(task, model.task, path)
    check_length(task.max_seq_length, encoder.config)
    weight = options.distill_layers_weight
    return distillation.open_layers(options.distill_layers, weight, encoder, config)


@functools.lru_cache(maxsize=1)
def _load_teacher(path: str, batch_size: int, digest: str) -> LoadedModel:
    """Returns the model in a folder; the runs of a search share it while its files are the same."""
    del digest
    folder = find_folder(path, "teacher", NO_OVERRIDES)
    return open_fine_tuned(folder, NO_OVERRIDES, batch_size=batch_size)

"""Models that students learn from, as the flags of a script name them."""

import functools
import os
import random

import modeling
from bert.commands.settings import DistilledSettings
from bert.models.encoding import find_encoder
from bert.models.kinds import Told
from bert.models.loaded import LoadedModel, find_folder, open_fine_tuned
from bert.tasks import distillation
from bert.tasks.distillation import Layers
from bert.tasks.task import Task
from bert.training.validation import check_length
from bert.weights.checkpoint import describe_weights


def open_teacher(
    settings: DistilledSettings, task: Task, config: modeling.BertConfig
) -> tuple[LoadedModel, Layers | None] | None:
    """Returns the model that `--teacher` names and what of its layers is learned; None for none.

    Args:
      settings: Those of the script.
      task: What the student decides.
      config: The shape of the student.

    Raises:
      ValueError: where it is of another kind, or its layers cannot be learned.
    """
    if settings.teacher is None:
        return None
    if os.path.realpath(settings.teacher) == os.path.realpath(settings.output_dir):
        raise ValueError(
            "`--teacher` must not be the `--output_dir`, in which the student is trained. Received "
            f"{settings.teacher!r} for both."
        )
    folder = find_folder(settings.teacher, "teacher", fetches=not settings.check)
    described = describe_weights(folder.stored) or {}
    drawn = random.getstate()
    model = _load_teacher(folder.path, settings.predict_batch_size, described["sha256"])
    # The student's random weights are those that it would have without a teacher.
    random.setstate(drawn)
    if model.task.kind != task.kind:
        names = [each.kind.replace("_", " ") for each in (task, model.task)]
        raise ValueError(
            f"`--teacher` must be a model of {names[0]}. The one in {settings.teacher!r} is one of "
            f"{names[1]}."
        )
    if settings.distill_layers is None:
        return model, None
    encoder = find_encoder(model.model)
    if encoder is None:
        raise ValueError(
            "`--distill_layers` needs a `--teacher` with layers. The one in "
            f"{settings.teacher!r} has word vectors alone."
        )
    distillation.check_same_pieces(task, model.task, settings.teacher)
    check_length(settings.max_seq_length, encoder.config)
    weight = settings.distill_layers_weight
    return model, distillation.open_layers(settings.distill_layers, weight, encoder, config)


@functools.lru_cache(maxsize=1)
def _load_teacher(path: str, batch_size: int, digest: str) -> LoadedModel:
    """Returns a model, the same one to all of several runs, as long as its files are the same."""
    del digest
    return open_fine_tuned(find_folder(path, "teacher"), Told(), batch_size=batch_size)

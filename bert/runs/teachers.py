"""Opens the teacher of a run and gives it to the task of the student."""

import dataclasses
import functools
from typing import Any, TypeVar

import keras

import modeling
from bert.files.paths import real_path
from bert.files.process import same_random_state
from bert.models.fine_tuned import LoadedModel, open_fine_tuned
from bert.models.open import find_folder
from bert.models.options import NO_OVERRIDES
from bert.models.pretrained import check_head
from bert.models.vectors import find_encoder
from bert.network.heads import layer_name
from bert.options import Message, MessageError, Option, OptionError
from bert.pretraining.heads import pretraining_model
from bert.pretraining.options import Goal
from bert.pretraining.records import RecordDescription
from bert.tasks import distillation
from bert.tasks.distillation import StepTeacher
from bert.tasks.options import Distillation, PretrainingTeacher, Teacher
from bert.weights.checkpoint import Stored
from bert.weights.folder import ModelFolder
from bert.weights.variables import check_length

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
    _find(options, output_dir, fetches=fetches)
    described = _describe(options)
    # Loading the teacher must not change the initial weights of the student.
    with same_random_state():
        model = _load_teacher(options.teacher or "", batch_size, described["sha256"])
    if model.task.kind != task.kind:
        ours, theirs = (kind.replace("_", " ") for kind in (task.kind, model.task.kind))
        raise OptionError(
            "teacher",
            f"be a model of {ours}",
            remedy=f"The one in {options.teacher!r} is one of {theirs}.",
        )
    taught: TaskType = task.with_teacher(model, _open_step(options, model, task), options)
    teacher = dataclasses.replace(taught.teacher, weights=described)
    return dataclasses.replace(taught, teacher=teacher)


def _open_step(options: Teacher, model: LoadedModel, task: Any) -> StepTeacher | None:
    """Returns what the teacher computes in the training step; None for nothing."""
    learns_in_step = hasattr(task, "step_targets")
    if options.distill_layers is None and not learns_in_step:
        return None
    encoder = find_encoder(model.model)
    if encoder is None:
        raise MessageError(
            "%s needs a %s with layers. The one in %r has word vectors alone.",
            Option("distill_layers"),
            Option("teacher"),
            options.teacher,
        )
    path = options.teacher or ""
    distillation.check_same_tokenizer(task, model.task, path, is_needed_always=learns_in_step)
    check_length(task.max_seq_length, encoder.config, Option("teacher", path))
    inputs = modeling.encoder_inputs()
    encoded = encoder(inputs)
    targets = {}
    if learns_in_step:
        # The outputs of the encoder in the model itself, so that it is computed once.
        inputs, encoded = model.model.input, keras.tree.pack_sequence_as(encoded, encoder.output)
        targets = task.step_targets(model.model)
    layers = distillation.open_layers(
        options.distill_layers, encoded["encoder_layers"], task.config
    )
    step_model = keras.Model(inputs, {**targets, **layers})
    return StepTeacher(step_model, encoder.config, options.distill_layers_weight)


def open_pretraining(
    options: PretrainingTeacher,
    output_dir: str,
    goal: Goal,
    config: modeling.BertConfig,
    description: RecordDescription,
    max_seq_length: int,
    fetches: bool,
) -> distillation.Teacher:
    """Returns the teacher of a pre-training run.

    Args:
      options: The options of the teacher.
      output_dir: The folder of the student.
      goal: The objective of the student.
      config: The shape of the student.
      description: The description of the records.
      max_seq_length: Tokens per sequence.
      fetches: As for `teach`.

    Raises:
      ValueError: where the teacher predicts no tokens, or others, or cannot read the records.
    """
    folder = _find(options, output_dir, fetches=fetches)
    theirs = folder.config
    folder.stored.check_fit(theirs)
    if (theirs.is_decoder, theirs.encoder_type) != (config.is_decoder, config.encoder_type):
        same = Message("predict the tokens that %s predicts", Option("objective", goal.name))
        received = Message("%r, which predicts others", options.teacher)
        raise OptionError("teacher", same, received)
    if theirs.vocab_size != config.vocab_size:
        must = f"have a `vocab_size` of {config.vocab_size}, as the student has"
        raise OptionError("teacher", must, theirs.vocab_size)
    vocab = description.vocab if description.vocabulary is not None else None
    if vocab is not None and dict(folder.load_tokenizer().vocab) != dict(vocab):
        must = "have the vocabulary of the student's records"
        remedy = f"The one of {options.teacher!r} has other tokens, or another order."
        raise OptionError("teacher", must, remedy=remedy)
    if theirs.type_vocab_size < config.type_vocab_size:
        must = f"have at least {config.type_vocab_size} types of segments, as the student has"
        raise OptionError("teacher", must, theirs.type_vocab_size)
    check_length(max_seq_length, theirs, Option("teacher", options.teacher))
    gives_layers = options.distill_layers is not None
    with same_random_state():
        model = pretraining_model(theirs, dtype="float32", gives_layers=gives_layers)
    check_head(folder.stored, model)
    folder.stored.assign(model.weights)
    names = map(layer_name, range(theirs.num_hidden_layers))
    layers = [model.output[name] for name in names] if gives_layers else []
    targets = {
        "masked_lm_logits": model.output["masked_lm_logits"],
        **distillation.open_layers(options.distill_layers, layers, config),
    }
    step_model = keras.Model(model.input, targets)
    return distillation.Teacher(
        weight=options.teacher_weight,
        temperature=options.distillation_temperature,
        in_step=StepTeacher(step_model, theirs, options.distill_layers_weight),
        path=options.teacher,
        weights=_describe(options),
    )


def _find(options: Distillation, output_dir: str, *, fetches: bool) -> ModelFolder:
    """Returns the folder of the teacher, which is not the student's."""
    assert options.teacher
    if real_path(options.teacher) == real_path(output_dir):
        raise MessageError(
            "%s must not be the %s, in which the student is trained. Received %r for both.",
            Option("teacher"),
            Option("output_dir"),
            options.teacher,
        )
    return find_folder(options.teacher, "teacher", NO_OVERRIDES, fetches=fetches)


def _describe(options: Distillation) -> dict[str, str]:
    """Returns the name and the digest of the teacher's weights, which `_find` has found."""
    return Stored.open(options.teacher or "", "teacher").describe()


@functools.lru_cache(maxsize=1)
def _load_teacher(path: str, batch_size: int, digest: str) -> LoadedModel:
    """Returns the model in a folder; the runs of a search share it while its files are the same."""
    del digest
    folder = find_folder(path, "teacher", NO_OVERRIDES)
    return open_fine_tuned(folder, NO_OVERRIDES, batch_size=batch_size)

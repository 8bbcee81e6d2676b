"""The model of a pre-training run: how its training starts, and where its weights come from."""

import keras

import optimization
from bert.files.weight_names import step_of
from bert.options import Message, Option, OptionError
from bert.pretraining.goals import find_learned
from bert.pretraining.objectives import OBJECTIVES
from bert.pretraining.options import PretrainingSchedule
from bert.runs import resources
from bert.runs.resumption import Training, find_weights
from bert.runs.training import TrainingRun
from bert.training.clock import TrainingClock
from bert.training.options import Compute, Output
from bert.training.trainer import Trainer, initialize
from bert.weights import checkpoint, provenance
from bert.weights.checkpoint import Stored

_TRAINS = Option("do_train")


def start(
    output: Output,
    compute: Compute,
    schedule: PretrainingSchedule,
    seed: int,
    model: keras.Model,
    training: Training,
) -> TrainingRun:
    """Returns the training run before its first step, its weights read."""
    clock = TrainingClock(schedule.seconds) if schedule.seconds else None
    optimizer = (
        clock.optimizer(schedule.learning_rate, schedule.warmup_proportion or 0.0)
        if clock
        else optimization.bert_optimizer(
            schedule.learning_rate, schedule.num_train_steps, schedule.num_warmup_steps
        )
    )
    loss = OBJECTIVES[schedule.objective].loss
    trainer = Trainer.of(compute, model, optimizer, loss, seed=seed)
    trainer.clock = clock
    run = TrainingRun(output, trainer, training)
    if not clock and run.first_step > schedule.num_train_steps:
        must = Message("be at least %d, where %r is", run.first_step, output.output_dir)
        remedy = Message("Give more steps or another %s.", Option("output_dir"))
        raise OptionError("num_train_steps", must, schedule.num_train_steps, remedy)
    return run


def restore(output: Output, objective: str, model: keras.Model, init: Stored | None) -> int:
    """Sets the model's weights without training, and returns the step that they are from.

    Raises:
      ValueError: where there are none, or they have not learned what is to be evaluated.
    """
    folder = output.output_dir
    weights = {variable.path: variable for variable in model.weights}
    checkpoints = checkpoint.Checkpoints(folder)
    trained = find_weights(output, init)
    if trained and init and trained.prefix == init.prefix:
        _check_learned(objective, folder)
        return checkpoints.restore(weights, trained.prefix)
    if latest := checkpoints.latest():
        step = step_of(latest)
        provenance.check_trained(folder, step, "output_dir")
        _check_learned(objective, folder)
    elif init is not None:
        _check_learned(objective, init.folder)
        _check_heads(model, init)
    else:
        raise resources.no_weights(folder)
    return initialize(model, weights, checkpoints, init)


def _check_heads(model: keras.Model, init: Stored) -> None:
    """Checks that the weights to evaluate have all that the figures depend on."""
    lacking = [each.path for each in model.trainable_weights if each.path not in init.shapes]
    if heads := sorted({"/".join(path.split("/")[:2]) for path in lacking}):
        raise OptionError(
            init.option,
            Message("hold the heads of pre-training, cls/*, to be evaluated without %s", _TRAINS),
            remedy=Message(
                "%r lacks weights of %s; was it fine-tuned, or stripped of its heads? Without a "
                "next-sentence head, %s can be evaluated.",
                *(init.prefix, heads, Option("objective", "masked_lm")),
            ),
        )


def _check_learned(objective: str, folder: str) -> None:
    """Checks that no head is evaluated that the training run in a folder left as it was drawn."""
    learned = find_learned(folder)
    if OBJECTIVES[objective].has_next_sentence and learned != objective:
        raise OptionError(
            "objective",
            f"be {learned} to evaluate the model in {folder!r}, which was trained with that and "
            "has learned nothing of next sentences",
            objective,
            Message("Give %s.", Option("objective", learned)),
        )

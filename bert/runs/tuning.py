"""Fine-tuning of a model: the number of steps, the learning rates, and the saved weights."""

import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

import optimization
from bert.files.signals import deferred_stop
from bert.files.weight_names import WEIGHTS, step_of
from bert.log import logger
from bert.options import Message, Option, OptionError
from bert.runs.resumption import Training, find_weights
from bert.runs.training import TrainingRun
from bert.tasks.options import Schedule
from bert.training import strategies
from bert.training.batches import Batches
from bert.training.evaluation import EarlyStopping
from bert.training.loop import Objective, Observer
from bert.training.options import Compute, Output
from bert.training.trainer import Trainer
from bert.weights import checkpoint, provenance, saving
from bert.weights.folder import ModelFolder


def train(
    run: TrainingRun,
    schedule: Schedule,
    batches: Batches,
    environment: Mapping[str, Any],
    evaluation: EarlyStopping | None = None,
    observers: Sequence[Observer] = (),
) -> int:
    """Trains the model, saves its weights, and returns their step.

    With early stopping, the best weights are saved; else the last.

    Args:
      run: The training run, as `begin` returns it.
      schedule: How long the model is trained.
      batches: The batches to train on.
      environment: What `run.json` records as `ran_with`.
      evaluation: Is called every `save_checkpoints_steps` and at the end, if there is one.
      observers: The user's.
    """
    output, trainer, num_train_steps = run.output, run.trainer, run.plan.last_step
    writes = strategies.is_chief(trainer.strategy)
    observer: Observer | None = None
    if evaluation:
        evaluation.open(output.output_dir, trainer.model, run.first_step, writes=writes)
        # A resumed run may evaluate here; all workers read the best weights once they are saved.
        with strategies.together(trainer.strategy):
            observer = evaluation.at_steps(output.save_checkpoints_steps, num_train_steps)
    if evaluation and evaluation.is_over:
        logger.warning("Nothing to train: early stopping ended it at step %d.", run.first_step)
    else:
        logger.info(
            "Training to step %d: %g epochs of %d examples in batches of %d.",
            num_train_steps,
            schedule.num_train_epochs,
            *(len(batches.records), schedule.train_batch_size),
        )
        if writes and run.first_step < num_train_steps:
            # A prediction must not use the weights of an earlier run.
            saving.remove(os.path.join(output.output_dir, WEIGHTS))
        run.train(batches, environment, observers, evaluation=observer)
    with deferred_stop():
        step = _save_weights(output.output_dir, trainer.model, trainer.step, evaluation)
        run.end()
    return step


def begin(output: Output, trainer: Trainer, plan: Training) -> TrainingRun:
    """Returns the training run before its first step, with its initial weights.

    Raises:
      OptionError: where the checkpoint in the folder is beyond the last step.
    """
    run = TrainingRun(output, trainer, plan)
    if run.first_step > plan.last_step:
        raise OptionError(
            "num_train_epochs",
            Message("reach step %d, where %r is", run.first_step, output.output_dir),
            remedy=Message(
                "It gives %d steps; give more epochs or %s.",
                *(plan.last_step, Option("overwrite_output_dir")),
            ),
        )
    return run


def count_steps(schedule: Schedule, num_examples: int) -> int:
    """Returns the number of steps of the training run (original: run_classifier.py, main).

    Raises:
      OptionError: where it is 0.
    """
    epochs, batch_size = schedule.num_train_epochs, schedule.train_batch_size
    steps = int(num_examples / batch_size * epochs)
    if steps < 1:
        raise OptionError(
            "num_train_epochs",
            "give at least one step",
            remedy=Message(
                "%s epochs of %d examples give none with %s.",
                *(epochs, num_examples, Option("train_batch_size", batch_size)),
            ),
        )
    return steps


def warn_of_patience(patience: int, every: int, steps: int, steps_per_epoch: int) -> None:
    """Warns where a training run ends before early stopping could end it.

    Args:
      patience: `early_stopping_patience`.
      every: `save_checkpoints_steps`, between two evaluations.
      steps: The steps of the run.
      steps_per_epoch: The steps of an epoch.
    """
    if not patience or (patience + 1) * every < steps:
        return
    # Twice an epoch, or as often as it takes.
    better = min(max(steps_per_epoch // 2, 1), (steps - 1) // (patience + 1))
    remedy = Message(
        "Give a smaller %s or more %s.",
        *(Option("early_stopping_patience"), Option("num_train_epochs")),
    )
    if better:
        remedy = Message("Give %s.", Option("save_checkpoints_steps", better))
    logger.warning(
        "%s cannot end this training of %d steps: it is evaluated every %s steps and at the end, "
        "%d times in all. %s",
        Option("early_stopping_patience", patience),
        steps,
        Option("save_checkpoints_steps", every),
        -(-steps // every),
        remedy,
    )


def freeze(model: keras.Model, num_layers: int | None) -> None:
    """Freezes the embeddings and the first layers of the encoder; None freezes nothing."""
    if num_layers is None:
        return
    bert = model.get_layer("bert")
    for layer in [bert.embeddings, *bert.stacked_layers[:num_layers]]:
        layer.trainable = False


def learning_rate_scales(model: keras.Model, decay: float) -> dict[str, float]:
    """Returns by path the factors of the learning rate: `decay` once per layer from the top.

    The head and the pooler have 1, the top layer `decay`, the one below its square, and so on down
    to the embeddings (Clark et al., ELECTRA, appendix B).
    """
    num_layers = len(model.get_layer("bert").stacked_layers)
    scales = {}
    for variable in model.weights:
        if match := re.match(r"bert/encoder/layer_(\d+)/", variable.path):
            scales[variable.path] = decay ** (num_layers - int(match[1]))
        elif variable.path.startswith("bert/embeddings/"):
            scales[variable.path] = decay ** (num_layers + 1)
    return scales


def make_trainer(
    model: keras.Model,
    objective: Objective,
    schedule: Schedule,
    compute: Compute,
    *,
    seed: int,
    num_train_steps: int,
    signature: Mapping[str, tf.TensorSpec] | None = None,
) -> Trainer:
    """Returns a trainer of a model on a schedule, which may freeze some of its layers."""
    freeze(model, schedule.freeze_layers)
    optimizer = optimization.bert_optimizer(
        schedule.learning_rate,
        num_train_steps,
        int(num_train_steps * schedule.warmup_proportion),
    )
    if schedule.layerwise_lr_decay != 1.0:
        optimizer.learning_rate_scales = learning_rate_scales(model, schedule.layerwise_lr_decay)
    return Trainer.of(compute, model, optimizer, objective, seed=seed, signature=signature)


def _save_weights(
    output_dir: str, model: keras.Model, step: int, evaluation: EarlyStopping | None
) -> int:
    """Writes the weights-only checkpoint; with early stopping, with the best weights."""
    weights = {variable.path: variable for variable in model.weights}
    if evaluation and evaluation.patience and evaluation.best_weights:
        step = checkpoint.Checkpoints(output_dir).restore(weights, evaluation.best_weights)
        logger.info("The weights are those of step %d, the best.", step)
    if strategies.is_chief(tf.distribute.get_strategy()):
        prefix = os.path.join(output_dir, WEIGHTS)
        checkpoint.save_variables(prefix, weights, step)
        logger.info("Saved the weights without the optimizer's slots to %s.", prefix)
    return step


def load(output: Output, source: ModelFolder, model: keras.Model, *, is_given: bool) -> int:
    """Sets the weights of a model that is not trained, and returns their step.

    The weights are those in the output folder, as `find_weights` finds them; or else those of
    `init_checkpoint`, which must include the head.

    Args:
      output: The output folder.
      source: The folder of the model to start from.
      model: The model.
      is_given: Whether `init_checkpoint` names weights.
    """
    named = source.stored if is_given else None
    trained = find_weights(output, named)
    if trained is None:
        source.stored.assign(model.weights, with_head=True)
        return 0
    is_named = named is not None and named.prefix == trained.prefix
    if not is_named:
        provenance.check_trained(output.output_dir, step_of(trained.prefix), "output_dir")
    weights = {variable.path: variable for variable in model.weights}
    step = checkpoint.Checkpoints(output.output_dir).restore(weights, trained.prefix)
    unread: str | Message = ""
    if named and not is_named:
        unread = Message("; %s is not read", Option("init_checkpoint"))
    logger.info("The weights are those of step %d in %s%s.", step, trained.prefix, unread)
    return step
